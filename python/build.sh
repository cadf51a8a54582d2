#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Builds the wheel of gsttrt and prints its path.
#
#   python/build.sh [FOLDER]      FOLDER: default target/wheels
#
# Needs what the plugin is built with (see docs/install.md), and Python 3.9 or newer with venv.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-${CARGO_TARGET_DIR:-$here/../target}/wheels}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Debian's python3 comes without pip, a virtual environment of it has one.
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$scratch/wheel" "$here" >&2
rm -f "$folder"/gsttrt-*.whl
mv "$scratch"/wheel/gsttrt-*.whl "$folder"
echo "$folder"/gsttrt-*.whl
