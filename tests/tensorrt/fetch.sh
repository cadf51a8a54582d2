#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Fetches TensorRT libraries for tests/tensorrt_rtx.rs, which needs no GPU for them, and prints their folder.
#
#   tests/tensorrt/fetch.sh
#
# From PyPI: TensorRT-RTX 1.4 and 1.7 (two families of the ABI) and the lean runtimes of TensorRT 10 and 11; 300 MB, kept in
# ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/tensorrt, one folder each. A second run needs no network.
set -euo pipefail

# shellcheck source=tests/wheels.sh
. "$(dirname "${BASH_SOURCE[0]}")/../wheels.sh"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/tensorrt
wheels=(
    tensorrt-rtx-cu13-libs==1.4.0.76
    tensorrt-rtx-cu13-libs==1.7.1.116
    tensorrt-lean-cu13-libs==10.16.1.11
    tensorrt-lean-cu13-libs==11.4.0.106
)

fetch_wheels "$cache" "${wheels[@]}"
echo "$cache"
