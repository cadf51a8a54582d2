#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# What `cargo cinstall` makes of the plugin and of the C library, and the program, installed together as a distribution does it.
#
#   tests/install.sh PREFIX
#
# PREFIX is emptied first.  Programs in C99, C++17 and Python find the library by pkg-config or by its name, and detect with it.
set -euo pipefail

# shellcheck source=pipelines/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../pipelines/setup.sh"

[ $# = 1 ] || fail "the argument is the folder to install into."
need_cargo
need_cargo_c
cd "$ROOT"
rm -rf "$1"
mkdir -p "$1"
PREFIX=$(cd "$1" && pwd)

# cargo-c knows only libraries. The program is that of the tests' build.
cargo build --locked --workspace --lib --bins --examples
install -D "$TARGET/debug/gst-trt" "$PREFIX/bin/gst-trt"

# Not optimized: a few frames are computed here, which takes less time than the optimizer. In a folder of its own, because
# cargo-c has another cargo inside, after which cargo would compile what is in target/debug again.
BUILD=(--locked --debug --target-dir "$TARGET/cinstall" --config profile.dev.opt-level=0)
for crate in rten rten-base rten-gemm; do BUILD+=(--config "profile.dev.package.$crate.opt-level=0"); done

cinstall() {
    cargo cinstall "${BUILD[@]}" --library-type cdylib --prefix "$PREFIX" --libdir "$PREFIX/lib" "$@"
}
cinstall
cinstall --package gsttrt-capi

export GST_PLUGIN_PATH=$PREFIX/lib/gstreamer-1.0 GST_REGISTRY=$PREFIX/registry.bin
export PKG_CONFIG_PATH=$PREFIX/lib/pkgconfig LD_LIBRARY_PATH=$PREFIX/lib

# expect WHAT FOUND WANTED
expect() {
    [ "$2" = "$3" ] || fail "$1: found \"$2\", wanted \"$3\"."
    echo "$1: $2"
}

exports() {
    nm --dynamic --defined-only "$1" | awk '{ print $3 }' | grep "$2" | sort | paste --serial --delimiters=' '
}

# The words that a dynamic section has in square brackets behind KIND.
dynamic() {
    readelf --dynamic --wide "$1" | sed -n "s/.*($2).*\[\(.*\)\].*/\1/p" | sort
}

plugin=$GST_PLUGIN_PATH/libgsttrt.so library=$PREFIX/lib/libgsttrt-1.so
elements=$(gst-inspect-1.0 "$plugin" | sed -n 's/^  \(trt[a-z]*\): .*/\1/p' | sort | paste --serial --delimiters=' ')
expect "elements" "$elements" "trtanalytics trtinfer trtmatch trtnms trtoverlay trtpreprocess trtpublish trttrack"
expect "exported by the plugin" "$(exports "$plugin" '^gst_')" "gst_plugin_trt_get_desc gst_plugin_trt_register"
expect "exported plugins of the library" "$(exports "$library" '^gst_plugin_' || true)" ""
expect "SONAME" "$(dynamic "$library" SONAME)" "libgsttrt-1.so.0"
expect "libraries of GStreamer and GLib" "$(dynamic "$library" NEEDED | grep -E 'gst|glib|gobject' || true)" ""
for file in "$plugin" "$library"; do
    readelf --dynamic --wide "$file" | grep -q 'FLAGS_1.*NODELETE' || fail "$file may be unloaded."
done
expect "compiler flags" "$(pkg-config --cflags gsttrt-1.0 | xargs)" "-I$PREFIX/include/gsttrt-1.0"
expect "linker flags" "$(pkg-config --libs gsttrt-1.0 | xargs)" "-L$PREFIX/lib -lgsttrt-1"
expect "version" "$(pkg-config --modversion gsttrt-1.0)" "$(cargo pkgid --package gsttrt-capi | sed 's/.*[#@]//')"

# shellcheck disable=SC2046  # flags are words
build() {
    "$@" -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags gsttrt-1.0) -o "$PREFIX/program" $(pkg-config --libs gsttrt-1.0)
}

# The first frame of a clip.
picture() {
    gst-launch-1.0 --quiet filesrc location="$1" ! decodebin ! identity eos-after=2 ! videoconvert ! pnmenc ! \
        filesink location="$PREFIX/picture.ppm"
}

build cc -std=c99 examples/session.c
picture tests/data/sample.mp4
"$PREFIX/program" tests/models/shapes.onnx "$PREFIX/picture.ppm" | tee "$PREFIX/found.txt"
grep -qE '^(disc|box) 0\.' "$PREFIX/found.txt" || fail "the C program finds nothing."

build c++ -std=c++17 tests/install/pose.cpp
picture tests/data/pose.mp4
"$PREFIX/program" tests/models/figures-pose.onnx "$PREFIX/picture.ppm" | tee "$PREFIX/found.txt"
grep -qE '^figure 0\.[0-9]+( [^ ]+ \([0-9.]+, [0-9.]+\) [01]\.[0-9]+){17}$' "$PREFIX/found.txt" ||
    fail "the C++ program finds no figures of 17 keypoints."

/usr/bin/python3 examples/session.py tests/models/shapes.onnx

# The program has the elements inside, and needs no plugin path.
expect "program" "$(env -u GST_PLUGIN_PATH "$PREFIX/bin/gst-trt" --version)" "gst-trt $(cargo pkgid --package gst-trt | sed 's/.*[#@]//')"
env -u GST_PLUGIN_PATH "$PREFIX/bin/gst-trt" doctor
