#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Renders 200 pictures with lines of text, reads them with RapidOCR and with our elements, by the same files of PP-OCR's models on the
# same cores, and prints the share of lines with equal texts and both speeds. Ends with status 1 where fewer than 99 % are equal, or we
# are less than twice as fast.
#
#   tests/zoo/text.sh [FOLDER [text.py options...]]     FOLDER: has libgsttrt.so, default target/release
#   tests/zoo/text.sh target/release --folder pictures  the pictures in a folder of your own, and their texts alone
#
# Needs Python 3.11 or newer with venv, and gst-launch-1.0. The first run downloads about 150 MB of packages, and keeps them in
# ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/zoo-text.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(cd "${1:-$here/../../target/release}" && pwd)
shift || true
venv=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/zoo-text

if [ ! -f "$folder/libgsttrt.so" ]; then
    echo "zoo: $folder/libgsttrt.so is not there; cargo build --release" >&2
    exit 2
fi

# As in run.sh: an interrupted or outdated installation is made again.
wanted=$(cat "$here/text-requirements.txt"; python3 --version)
if [ "$(cat "$venv/made-from" 2>/dev/null)" != "$wanted" ]; then
    echo "zoo: installing the packages into $venv"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$here/text-requirements.txt"
    printf '%s\n' "$wanted" >"$venv/made-from"
fi

library=$(ls "$venv"/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*)
# A folder of its own: GStreamer looks into all folders below.
plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
ln -s "$folder/libgsttrt.so" "$plugins/"
ORT_DYLIB_PATH=$library GST_PLUGIN_PATH=$plugins GST_REGISTRY=$plugins/registry.bin "$venv/bin/python" -W ignore "$here/text.py" "$@"
