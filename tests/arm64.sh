# SPDX-License-Identifier: MPL-2.0
# shellcheck shell=bash disable=SC2034
# SC2034: what is not used here is read by the scripts that source this file.
#
# Debian sid in a folder, with Rust and compilers for 64-bit ARM, for tests/compat.sh and packaging/arm64.sh, which source this file behind
# tests/folders.sh.
#
# The compiler and all tools are those of this machine's own architecture; only what is built is ARM, and QEMU runs it.

choose_arm64() {
    FOLDER=$CACHE/arm64 RELEASE=sid NAME="Debian sid for 64-bit ARM"
}

ARM_PACKAGES=(
    cargo gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
    libgio-2.0-dev:arm64 gstreamer1.0-tools:arm64 gstreamer1.0-plugins-base:arm64
)
ARM_FILES=(
    libdrm-dev:arm64 libgstreamer-plugins-base1.0-dev:arm64 libgstreamer1.0-dev:arm64
    liborc-0.4-dev:arm64 libstd-rust-dev:arm64
)

# fill_arm64 PACKAGES FILES: two arrays. Of FILES only what is in them, for by what they depend on they would bring a desktop and a compiler.
fill_arm64() {
    local missing
    local -n packages=$1 files=$2
    # Of QEMU's machines, which take 450 MB, one.
    printf '%s\n' 'path-exclude=/usr/bin/qemu-*' 'path-include=/usr/bin/qemu-aarch64' \
        >"$FOLDER/etc/dpkg/dpkg.cfg.d/one-machine"
    inside dpkg --add-architecture arm64
    mapfile -t missing < <(missing_inside "${packages[@]}")
    if [ "${#missing[@]}" -gt 0 ]; then
        share_network_settings "$FOLDER"
        quietly "Installing in it: ${missing[*]}" install_inside "${missing[@]}"
    fi
    [ ! -e "$FOLDER/var/lib/arm64-files" ] || return 0
    quietly "Unpacking in it: ${files[*]}" unpack_inside "${files[@]}"
    # Lists of two architectures take 300 MB.
    rm -rf "$FOLDER"/var/lib/apt/lists/* "$FOLDER"/var/cache/apt/*
    touch "$FOLDER/var/lib/arm64-files"
}

# Not optimized, but for what computes networks: the compiler would take longer for it than QEMU for the tests.
for_arm() {
    inside env CARGO_BUILD_TARGET=aarch64-unknown-linux-gnu \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        PKG_CONFIG=aarch64-linux-gnu-pkg-config PKG_CONFIG_ALLOW_CROSS=1 \
        CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_OPT_LEVEL=0 "$@"
}

# Programs for ARM run as if they were this machine's, also those that a test starts: a user namespace has
# a table of binary formats of its own, since Linux 6.7.
on_arm() {
    local BEFORE_CHROOT
    # shellcheck disable=SC2016  # the inner shell expands it
    BEFORE_CHROOT=(unshare --user --map-root-user --mount sh -euc '
        table=/proc/sys/fs/binfmt_misc
        mount -t binfmt_misc binfmt_misc $table
        printf ":aarch64:M::%s:%s:%s:F" \
            "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00" \
            "\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff" "$1" >$table/register
        shift
        exec "$@"' sh "$FOLDER/usr/bin/qemu-aarch64")
    for_arm env PATH=/opt/arm64:/usr/bin \
        GST_PLUGIN_PATH="$ROOT/target/aarch64-unknown-linux-gnu/debug" INTEL_OPENVINO_DIR=/nonexistent ORT_DYLIB_PATH=/nonexistent "$@"
}
