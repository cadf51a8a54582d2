#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Builds the wheel of gsttrt and tests it as it is installed: python/test.sh [pytest options...]
#
# With GST_TRT_PROFILE=dist, as wheels are released, it is tested with mypy, OpenCV and pandas too, which are 80 MB.
# With GST_TRT_RAY=1 it is tested with Ray and Arrow too, which are 500 MB.
# GST_TRT_WHEEL names a wheel that is built already, such as that of a release.
#
# Its environment is kept in ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/python; it uses NumPy and PyGObject of the system, as videos do.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/python
requirements=("$here/requirements-test.txt")
if [ "${GST_TRT_PROFILE:-}" = dist ]; then
    cache+=-released
    requirements+=("$here/requirements-released.txt")
fi
if [ "${GST_TRT_RAY:-}" = 1 ]; then
    cache+=-ray
    requirements+=("$here/requirements-ray.txt")
fi
wanted=$(cat "${requirements[@]}"; /usr/bin/python3 --version)
# What it was made from is kept inside, so that an interrupted or outdated installation is made again.
if [ "$(cat "$cache/made-from" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$cache"
    /usr/bin/python3 -m venv --system-site-packages "$cache"
    "$cache/bin/python" -m pip install --quiet --disable-pip-version-check "${requirements[@]/#/--requirement=}"
    printf '%s\n' "$wanted" >"$cache/made-from"
fi

started=$SECONDS
if [ -n "${GST_TRT_WHEEL:-}" ]; then
    wheel=$(realpath -- "$GST_TRT_WHEEL")
    [ -f "$wheel" ] || { echo "test.sh: there is no wheel $wheel; GST_TRT_WHEEL names it." >&2; exit 1; }
else
    wheel=$("$here/build.sh")
fi
size=$(stat --format=%s "$wheel")
echo "$(basename "$wheel"): $((size / 1000)) kB, $((SECONDS - started)) s"
# hatch_build.py refuses to make a larger one, but this one may have come from elsewhere.
of=MAXIMUM
[ "${GST_TRT_PROFILE:-}" != dev ] || of=MAXIMUM_OF_TESTS
maximum=$(sed -n "s/^$of = \([0-9_]*\).*/\1/p" "$here/hatch_build.py")
[ "$size" -le "${maximum//_/}" ] || { echo "test.sh: $wheel has $size bytes; ${maximum//_/} is the maximum." >&2; exit 1; }
started=$SECONDS
"$cache/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall "$wheel"
echo "installed in $((SECONDS - started)) s"
# From a folder without the sources, so that it is the wheel that is tested. No OpenVINO and no ONNX Runtime, whatever is installed.
cd "$here/tests"
INTEL_OPENVINO_DIR=/nonexistent ORT_DYLIB_PATH=/nonexistent "$cache/bin/python" -m pytest --quiet -rs "$@"
