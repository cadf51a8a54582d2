#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Compares what our program finds by a real Triton (compare.py) and by a real MLServer (compare_mlserver.py) with what it finds by
# itself.
#
#   tests/kserve/run.sh [PROGRAM]     PROGRAM: default target/debug/gst-trt
#
# Needs Python 3.11 with venv. The first run downloads 300 MB of packages, among them Triton with its Python backend, and keeps them
# (850 MB) in ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/kserve.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${1:-$here/../../target/debug/gst-trt}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/kserve

if [ ! -x "$program" ]; then
    echo "kserve: $program is not there; cargo build --package gst-trt" >&2
    exit 2
fi

# environment NAME REQUIREMENTS: the packages, if they are not there.
environment() {
    local venv=$cache/$1 wanted
    wanted=$(cat "$here/$2"; python3 --version)
    [ "$(cat "$venv/made-from" 2>/dev/null)" != "$wanted" ] || return 0
    echo "kserve: installing the packages into $venv"
    rm -rf "$venv"
    mkdir -p "$cache"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --requirement "$here/$2"
    printf '%s\n' "$wanted" >"$venv/made-from"
}

environment venv requirements.txt
environment mlserver requirements-mlserver.txt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$cache/venv/bin/python" -W ignore "$here/compare.py" "$program" "$folder"
"$cache/mlserver/bin/python" -W ignore "$here/compare_mlserver.py" "$program" "$folder"
