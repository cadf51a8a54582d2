#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Builds what packages contain, into target/release: packaging/build.sh plugin|library|program...
#
# The library is built so that programs that link it look for libgsttrt-1.so.0, the name that packages give it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for part in "$@"; do
    case $part in
        # With the features that gst-trt asks for, so that both are compiled once.
        plugin) cargo build --locked --release --lib --package gst-plugin-trt --features internals ;;
        library)
            cargo rustc --locked --release --lib --package gsttrt-capi --crate-type cdylib -- \
                -C link-arg=-Wl,-soname,libgsttrt-1.so.0
            ;;
        program) cargo build --locked --release --package gst-trt ;;
        *) echo "build.sh: the parts are plugin, library and program, not \"$part\"" >&2; exit 1 ;;
    esac
done
