#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Checks the Helm chart in packaging/chart, without a cluster: tests/kubernetes/chart.sh [PROGRAM]
#
# Helm is a library of PyPI here, and so are the schemas of Kubernetes' versions: 100 MB, kept in
# ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/kubernetes. A second run needs no network. PROGRAM, gst-trt, checks the configurations that
# the chart writes; without it that of the build is taken.
set -euo pipefail

# shellcheck source=pipelines/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../pipelines/setup.sh"

export GST_TRT=${1:-$TARGET/debug/gst-trt}
[ "$(uname -m)" = x86_64 ] || { echo "SKIP: PyPI has Helm's library for x86_64 alone"; exit 0; }
[ -x "$GST_TRT" ] || fail "there is no program $GST_TRT; build it with: cargo build --workspace --bins"

modules=$("$ROOT/tests/kubernetes/fetch.sh")
PYTHONPATH=$modules PYTHONDONTWRITEBYTECODE=1 exec python3 -m unittest discover --start-directory "$ROOT/tests/kubernetes" --pattern chart.py
