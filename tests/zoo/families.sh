#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Makes core/src/test/families.txt: what other packages find in outputs that are made by a seed (families.py). A test of the core reads
# them as we do, and compares. Run it again when families.py or one of the packages has changed, and commit the file.
#
#   tests/zoo/families.sh
#
# Needs the packages of the model zoo, which tests/zoo/run.sh installs. Some more are downloaded once, about 150 MB, and kept in
# ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/zoo-families.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt
python=$cache/zoo/venv/bin/python
folder=$cache/zoo-families

if [ ! -x "$python" ]; then
    echo "zoo: $python is not there; run tests/zoo/run.sh first" >&2
    exit 2
fi

# As in run.sh: an interrupted or outdated installation is made again.
wanted=$(cat "$here/families-requirements.txt"; "$python" --version)
if [ "$(cat "$folder/made-from" 2>/dev/null)" != "$wanted" ]; then
    echo "zoo: installing the packages into $folder"
    rm -rf "$folder"
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
        --requirement "$here/families-requirements.txt" --target "$folder"
    printf '%s\n' "$wanted" >"$folder/made-from"
fi

PYTHONPATH=$folder "$python" -W ignore "$here/families.py" "$here/../../core/src/test/families.txt"
