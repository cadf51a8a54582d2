#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Builds what packages contain and prints the folder: packaging/build.sh plugin|library|program...
#
# GST_TRT_PROFILE names cargo's profile, dist by default. With dev, tests of packages take the build of all other tests, as it is.
# Else the library is built so that programs that link it look for libgsttrt-1.so.0, the name that packages give it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=${GST_TRT_PROFILE:-dist}
parts=()
for part in "$@"; do
    case $part in
        plugin) parts+=(--package gst-plugin-trt) ;;
        library) parts+=(--package gsttrt-capi) ;;
        program) parts+=(--package gst-trt) ;;
        *) echo "build.sh: the parts are plugin, library and program, not \"$part\"" >&2; exit 1 ;;
    esac
done
if [ "$profile" = dev ]; then
    # Of a part alone, cargo would compile some crates again with fewer features.
    parts=(--workspace)
else
    export GSTTRT_SONAME=libgsttrt-1.so.0
fi
cargo build --locked --profile "$profile" --lib --bins "${parts[@]}" >&2
[ "$profile" != dev ] || profile=debug
echo "${CARGO_TARGET_DIR:-target}${CARGO_BUILD_TARGET:+/$CARGO_BUILD_TARGET}/$profile"
