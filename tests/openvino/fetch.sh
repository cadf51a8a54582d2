#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Fetches OpenVINO for tests/openvino.rs and prints its folder: tests/openvino/fetch.sh
#
# From PyPI: the newest release that was tried and the oldest, whose wheels have the library that this plugin loads; 100 MB, kept in
# ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/openvino, one folder each, 350 MB. A second run needs no network.
set -euo pipefail

# shellcheck source=tests/wheels.sh
. "$(dirname "${BASH_SOURCE[0]}")/../wheels.sh"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/openvino
[ "$(uname -m)" = x86_64 ] || { echo "fetch.sh: the tests of OpenVINO are for x86." >&2; exit 1; }
fetch_wheels "$cache" openvino==2024.3.0 openvino==2026.4.0
echo "$cache"
