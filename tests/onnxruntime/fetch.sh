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

# shellcheck source=tests/wheels.sh
. "$(dirname "${BASH_SOURCE[0]}")/../wheels.sh"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/onnxruntime
wheels=(onnxruntime==1.20.0 onnxruntime==1.32.0)
case ${1:-} in
    '') ;;
    openvino) wheels+=(onnxruntime-openvino==1.24.1) ;;
    *) echo "fetch.sh: the argument is openvino or nothing, not \"$1\"." >&2; exit 1 ;;
esac

fetch_wheels "$cache" "${wheels[@]}"
echo "$cache"
