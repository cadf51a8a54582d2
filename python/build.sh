#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Builds the wheel of gsttrt and prints its path.
#
#   python/build.sh [FOLDER]      FOLDER: default target/wheels
#
# What builds it is kept in ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/wheel.
# Needs what the plugin is built with (see docs/install.md), and Python 3.9 or newer with venv.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-${CARGO_TARGET_DIR:-$here/../target}/wheels}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/wheel
requirement=$(sed -n 's/^requires = \["\(.*\)"\]$/\1/p' "$here/pyproject.toml")
wanted=$(echo "$requirement"; command -v python3; python3 --version)
# What it was made from is kept inside, so that an interrupted or outdated installation is made again.
if [ "$(cat "$cache/made-from" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$cache"
    # Debian's python3 comes without pip, a virtual environment of it has one.
    python3 -m venv "$cache"
    "$cache/bin/python" -m pip install --quiet --disable-pip-version-check "$requirement" >&2
    printf '%s\n' "$wanted" >"$cache/made-from"
fi
(cd "$here" && "$cache/bin/python" -m hatchling build --target wheel --directory "$scratch/wheel") >/dev/null
rm -f "$folder"/gsttrt-*.whl
mv "$scratch"/wheel/gsttrt-*.whl "$folder"
echo "$folder"/gsttrt-*.whl
