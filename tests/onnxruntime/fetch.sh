#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Fetches ONNX Runtime for tests/onnxruntime.rs and prints its folder.
#
#   tests/onnxruntime/fetch.sh [openvino]
#
# From PyPI: the first release whose wheel has the library that this plugin loads, and the newest that was tried; 40 MB, kept in
# ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/onnxruntime, one folder each. With "openvino" also a build that has that execution
# provider, 84 MB. A second run needs no network.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/onnxruntime
wheels=(onnxruntime==1.20.0 onnxruntime==1.32.0)
case ${1:-} in
    '') ;;
    openvino) wheels+=(onnxruntime-openvino==1.24.1) ;;
    *) echo "fetch.sh: the argument is openvino or nothing, not \"$1\"." >&2; exit 1 ;;
esac

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
        --only-binary=:all: --python-version 3.11 --platform "manylinux_2_28_$(uname -m)" \
        --platform "manylinux_2_27_$(uname -m)" --dest "$scratch" "$wheel" >&2
    python3 -m zipfile --extract "$scratch"/*.whl "$scratch/$wheel"
    rm "$scratch"/*.whl
    # The folder appears when it is complete, so an interrupted run is no harm.
    mkdir "$scratch/complete"
    find "$scratch/$wheel" -type f -name 'lib*.so*' -exec mv -t "$scratch/complete" {} +
    mv "$scratch/complete" "$folder"
done
echo "$cache"
