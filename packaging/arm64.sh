#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Builds the Debian package and the wheel for 64-bit ARM on a PC, and prints their paths.
#
#   packaging/arm64.sh [FOLDER]      FOLDER: default target/arm64; needs root or sudo, and Linux 6.7 or later
#
# They run on Debian 12, on Ubuntu 22.04, and on what is later, such as NVIDIA's JetPack 6 and 7. What is built is tried in an emulator
# (QEMU), on the CPU; on a machine with such a processor it was not tried.
#
# Rust, with its library for ARM, is that of Debian sid, in the folder of tests/compat.sh arm64. What it makes would need the glibc of
# sid: so it is linked in a second folder, by the compiler of Debian 12 and with the ARM libraries of Debian 12. Later runs reuse both.
set -euo pipefail

# shellcheck source=pipelines/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../pipelines/setup.sh"
# shellcheck source=tests/folders.sh
. "$ROOT/tests/folders.sh"
# shellcheck source=tests/arm64.sh
. "$ROOT/tests/arm64.sh"

PROFILE=${GST_TRT_PROFILE:-dist}
TRIPLE=aarch64-unknown-linux-gnu
# The newest glibc that binaries may ask for: that of Ubuntu 22.04. Of Debian 12's, which is 2.36, they use nothing newer.
GLIBC=2.35
SID=$CACHE/arm64 BOOKWORM=$CACHE/arm64-bookworm

# Compiler, and libraries to link with. dpkg-dev says what the binaries depend on.
# shellcheck disable=SC2034  # fill_arm64 takes its name
LINK_PACKAGES=(
    gcc-aarch64-linux-gnu libc6-dev-arm64-cross dpkg-dev
    libglib2.0-0:arm64 libgstreamer1.0-0:arm64 libgstreamer-plugins-base1.0-0:arm64
)
# shellcheck disable=SC2034
LINK_FILES=(libglib2.0-dev:arm64 libgstreamer1.0-dev:arm64 libgstreamer-plugins-base1.0-dev:arm64)
# What Debian 12 does for the build in sid.
LINK_TOOLS=(aarch64-linux-gnu-gcc dpkg-architecture dpkg-shlibdeps)

# In the folder of sid, its own build is in the place of target/.
PACKAGES=$ROOT/target/packages
BUILT=$PACKAGES/$TRIPLE/${PROFILE/#dev/debug}

# ------------------------------------------------------------- as root

make_compilers() {
    make_folder
    kernel_files
    fill_arm64 ARM_PACKAGES ARM_FILES
    lend_project
    own_build
    mkdir -p "$FOLDER/build/packages"
}

# Behind make_compilers: both have the same sources, build and scratch files at the same places.
make_libraries() {
    local FOLDER=$BOOKWORM RELEASE=bookworm NAME="Debian 12 for 64-bit ARM"
    nothing_mounted
    make_folder
    kernel_files
    fill_arm64 LINK_PACKAGES LINK_FILES
    lend_project
    mount --bind "$SID/build" "$FOLDER$ROOT/target"
    mount --bind "$SID/tmp" "$FOLDER/tmp"
    lend "$SID/usr/lib/rustlib" /usr/lib/rustlib
    mkdir -p "$SID/opt/debian12"
    mount --rbind "$FOLDER" "$SID/opt/debian12"
}

# Programs of Debian 12 by their names: each runs in the folder that it is called in.
make_tools() {
    local tool
    mkdir -p "$SID/opt/link"
    for tool in "${LINK_TOOLS[@]}"; do
        cat >"$SID/opt/link/$tool" <<END
#!/bin/sh
exec chroot /opt/debian12 sh -c 'cd "\$0" && exec $tool "\$@"' "\$PWD" "\$@"
END
        chmod 755 "$SID/opt/link/$tool"
    done
}

# Without symbols for debuggers, since a PC's strip, which packages are made with, does not know ARM.
for_packages() {
    for_arm env PATH=/opt/link:/usr/bin:/usr/sbin "CARGO_TARGET_DIR=$PACKAGES" "GST_TRT_PROFILE=$PROFILE" \
        CARGO_PROFILE_DIST_STRIP=symbols CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_DEV_STRIP=symbols "$@"
}

build_all() {
    for_packages packaging/build.sh plugin library program
}

# newest_glibc FILE…: the newest version of glibc whose symbols they ask for.
newest_glibc() {
    local file
    for file in "$@"; do inside aarch64-linux-gnu-readelf --wide --version-info "$file"; done |
        grep -o 'GLIBC_[0-9][0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1
}

check_glibc() {
    local newest
    newest=$(newest_glibc "$BUILT/gst-trt" "$BUILT/libgsttrt.so" "$BUILT/libgsttrt_capi.so")
    echo "they need glibc $newest"
    [ "$(printf '%s\n' "$GLIBC" "$newest" | sort -V | tail -n 1)" = "$GLIBC" ] ||
        fail "the binaries need glibc $newest, and Ubuntu 22.04 has $GLIBC: they use functions of later libraries."
}

# Its man pages are what the program says of itself, so that runs in the emulator.
build_deb() {
    rm -f "$SID/build/packages"/*.deb
    on_arm env PATH=/opt/link:/usr/bin:/usr/sbin "GST_TRT_BUILT=$BUILT" DEB_HOST_ARCH=arm64 \
        "DEBFULLNAME=${DEBFULLNAME:-}" "DEBEMAIL=${DEBEMAIL:-}" packaging/deb.sh "$PACKAGES"
}

# As it is installed, but for the place: the program starts, and the elements run a model.
try_package() {
    rm -rf "$SID/opt/gst-trt"
    # shellcheck disable=SC2016  # the shell inside expands it
    inside sh -ec 'dpkg-deb --extract "$0"/gst-plugin-trt_*_arm64.deb /opt/gst-trt' "$PACKAGES"
    on_arm env GST_PLUGIN_PATH=/opt/gst-trt/usr/lib/aarch64-linux-gnu/gstreamer-1.0 sh -ec '
        /opt/gst-trt/usr/bin/gst-trt --version
        gst-inspect-1.0 trtinfer >/dev/null
        gst-launch-1.0 videotestsrc num-buffers=2 ! video/x-raw,format=I420,width=640,height=360 ! trtpreprocess ! \
            trtinfer model-file=tests/models/shapes.onnx ! trtnms draw=false ! fakesink'
}

if [ -n "${SECOND_PART:-}" ]; then
    trap count_steps EXIT
    only_one_at_a_time lock
    choose_arm64
    nothing_mounted
    step "$NAME" make_compilers
    step "libraries of Debian 12 for 64-bit ARM" make_libraries
    make_tools
    step "build for 64-bit ARM" build_all
    step "glibc that it needs" check_glibc
    step "Debian package for 64-bit ARM" build_deb
    step "the package in an emulator" try_package
    exit
fi

# ------------------------------------------------------------- as the user

[ $# -le 1 ] || fail "there is one argument, the folder for what is built."
[ "$(uname -m)" = x86_64 ] ||
    fail "this is no x86-64 machine; on one with 64-bit ARM, packaging/deb.sh and python/build.sh build for it."
case $PROFILE in dist | dev | release) ;; *) fail "GST_TRT_PROFILE is $PROFILE, and dist, dev and release are the profiles." ;; esac
need_cargo
need_debootstrap
cd "$ROOT"
folder=${1:-$TARGET/arm64}
mkdir -p "$folder" "$ROOT/target"
folder=$(cd "$folder" && pwd)
cargo fetch --locked --quiet
# By exec it would end this script.
(start_second_part "$ROOT/packaging/arm64.sh" -- "COMPAT_CARGO=${CARGO_HOME:-$HOME/.cargo}" "GST_TRT_PROFILE=$PROFILE" \
    "DEBFULLNAME=${DEBFULLNAME:-}" "DEBEMAIL=${DEBEMAIL:-}") >&2

# The wheel needs no root, but Python packages that pip brings.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
wheel=$(GST_TRT_BUILT=$SID/build/packages/$TRIPLE/${PROFILE/#dev/debug} python/build.sh "$scratch")
[[ $wheel == *_aarch64.whl ]] || fail "the wheel is $(basename "$wheel"), and was to be for aarch64."
rm -f "$folder"/gst-plugin-trt_*_arm64.deb "$folder"/gsttrt-*_aarch64.whl
cp "$SID/build/packages"/gst-plugin-trt_*_arm64.deb "$wheel" "$folder"
printf '%s\n' "$folder"/gst-plugin-trt_*_arm64.deb "$folder"/gsttrt-*_aarch64.whl
