# SPDX-License-Identifier: MPL-2.0
# shellcheck shell=bash
# Libraries out of wheels from PyPI, for the fetch.sh of tests/onnxruntime, tests/openvino and tests/tensorrt, which source this.

# fetch_wheels FOLDER NAME==VERSION…: the libraries of each wheel that is not there yet, in FOLDER/NAME-VERSION. With all of them there it
# needs no network.
fetch_wheels() {
    local cache=$1 wheel folder scratch='' machine
    machine=$(uname -m)
    shift
    for wheel in "$@"; do
        folder=$cache/${wheel/==/-}
        [ ! -d "$folder" ] || continue
        mkdir -p "$cache"
        if [ -z "$scratch" ]; then
            scratch=$(mktemp -d "$cache/fetching.XXXXXX")
            # shellcheck disable=SC2064 # it is local
            trap "rm -rf '$scratch'" EXIT
            # Debian's python3 comes without pip, a virtual environment of it has one.
            python3 -m venv "$scratch/venv"
        fi
        echo "fetch.sh: downloading $wheel" >&2
        mkdir -p "$scratch/$wheel"
        "$scratch/venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-cache-dir \
            --only-binary=:all: --python-version 3.11 --platform "manylinux_2_28_$machine" \
            --platform "manylinux_2_27_$machine" --platform "manylinux2014_$machine" --dest "$scratch" "$wheel" >&2
        python3 -m zipfile --extract "$scratch"/*.whl "$scratch/$wheel"
        rm "$scratch"/*.whl
        # The folder appears when it is complete, so an interrupted run is no harm.
        mkdir "$scratch/complete"
        find "$scratch/$wheel" -type f -name 'lib*.so*' -exec mv -t "$scratch/complete" {} +
        mv "$scratch/complete" "$folder"
    done
}
