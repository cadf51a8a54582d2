#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Compiles core/kernels/*.cu to core/kernels/ptx/*.ptx, which are committed: building the plugin needs no CUDA.
#
#   core/kernels/build.sh           writes them
#   core/kernels/build.sh --check   fails where what is committed is not what the sources give
#
# The compiler is NVRTC of CUDA 12.2 from PyPI, kept in the user's cache: its PTX runs on every driver from 535 on.  Neither a
# GPU nor a driver is needed.  Without network --check is skipped, except where CI is set.
set -euo pipefail

# shellcheck source=pipelines/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../pipelines/setup.sh"
# shellcheck source=core/kernels/wheels.sh
. "$ROOT/core/kernels/wheels.sh"

NVRTC=nvidia-cuda-nvrtc-cu12==12.2.140
NVRTC_HASH=sha256:b1cdcae6443cb7cdcfb5d1bf51896a148c9f82f9e65b27db9ab095eaed689aa7 # its wheel for x86-64
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/${NVRTC/==/-}
LIBRARIES=$CACHE/nvidia/cuda_nvrtc/lib

case ${1:-} in
    '' | --check) MODE=${1:-} ;;
    --help | -h) sed -n '/^set /q; /^#!/d; /SPDX/d; s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "the argument is --check or nothing, not \"$1\"." ;;
esac

SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT

if [ ! -e "$LIBRARIES/libnvrtc.so.12" ]; then
    echo "Fetching $NVRTC"
    if ! fetch_wheel "$NVRTC" "$CACHE" "$NVRTC_HASH"; then
        if [ "$MODE" != --check ] || [ -n "${CI:-}" ]; then
            fail "cannot fetch $NVRTC (the messages are above); connect to the network or a mirror of PyPI."
        fi
        echo "SKIP: the kernels are not compared with their sources, because $NVRTC cannot be fetched."
        exit 0
    fi
fi

mkdir "$SCRATCH/ptx"
python3 "$ROOT/core/kernels/compile.py" "$LIBRARIES" "$SCRATCH/ptx" "$ROOT"/core/kernels/*.cu
if [ "$MODE" = --check ]; then
    diff --recursive --brief "$SCRATCH/ptx" "$ROOT/core/kernels/ptx" ||
        fail "core/kernels/ptx is not what the sources give; run core/kernels/build.sh and commit what it writes."
else
    rm -f "$ROOT"/core/kernels/ptx/*.ptx
    cp "$SCRATCH"/ptx/*.ptx "$ROOT/core/kernels/ptx/"
fi
