#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Compares what our program finds by a real Triton with what it finds by itself (compare.py).
#
#   tests/kserve/run.sh [PROGRAM]     PROGRAM: default target/debug/gst-trt
#
# Needs Python 3.11 with venv. The first run downloads 130 MB of packages, among them Triton with its Python backend, and keeps them
# (450 MB) in ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/kserve; VENV=FOLDER says that they are there.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${1:-$here/../../target/debug/gst-trt}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/kserve
venv=${VENV:-$cache/venv}

if [ ! -x "$program" ]; then
    echo "kserve: $program is not there; cargo build --package gst-trt" >&2
    exit 2
fi
wanted=$(cat "$here/requirements.txt"; python3 --version)
if [ -z "${VENV:-}" ] && [ "$(cat "$venv/made-from" 2>/dev/null)" != "$wanted" ]; then
    echo "kserve: installing the packages into $venv"
    rm -rf "$venv"
    mkdir -p "$cache"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --requirement "$here/requirements.txt"
    printf '%s\n' "$wanted" >"$venv/made-from"
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$venv/bin/python" -W ignore "$here/compare.py" "$program" "$folder"
