# SPDX-License-Identifier: MPL-2.0
# shellcheck shell=bash
# What tests/gpu/run.sh and tests/bench/gpu.sh know of the machine that they run on; they source this in the project's root.
#
#   K        where a bundle was unpacked                (default: /root/k)
#   TRT      folder of the full TensorRT                (default: that of the bundle, else it is searched for as usual)
#   WORK     folder for what is made here               (default: /root/k/proof where the GStreamers of a bundle are, else a new one)
#   INFER    further properties of trtinfer, such as allow-host-code=true

K=${K:-/root/k}
BIN=$PWD/.gpu/bin
TRT=${TRT-$([ -e "$K/trt8/libnvinfer.so.8" ] && echo "$K/trt8")}
if [ -d "$K" ]; then WORK=${WORK:-$K/proof}; else WORK=${WORK:-$(mktemp -d)}; fi
# On the library path of each GStreamer: TensorRT's builder takes its lean runtime from there for version-compatible engines.
LIBS=$WORK:$K/lean8

# ---------------------------------------------------------------------------- the GStreamers

# Each runs a command with its GStreamer and $LIBS on the library path.
native() {
    LD_LIBRARY_PATH=$LIBS:${LD_LIBRARY_PATH:-} GST_PLUGIN_PATH=$WORK:${GST_PLUGIN_PATH:-} "$@"
}

bundle() {
    (
        # shellcheck source=/dev/null
        . "$K/env.sh"
        LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$LIBS GST_PLUGIN_PATH=$WORK:$GST_PLUGIN_PATH exec "$@"
    )
}

# A root folder with GStreamer 1.26, where $K is too.
in26() {
    # Its glibc refuses the builder of TensorRT 8 otherwise.
    local environment="GLIBC_TUNABLES=glibc.rtld.execstack=2 ${CUDA_VISIBLE_DEVICES:+CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES}"
    IN26_LIBS=$LIBS GST_PLUGIN_PATH_26=$WORK IN26_ENV=$environment "$K/in26" "$@"
}

gstreamers_here() {
    ! command -v gst-launch-1.0 >/dev/null || echo native
    [ ! -f "$K/env.sh" ] || echo bundle
    [ ! -x "$K/in26" ] || echo in26
}

# ---------------------------------------------------------------------------- what was brought along

# What runs must be below $K, which every GStreamer sees.
unpack() {
    mkdir -p "$WORK"
    tar -C "$WORK" -xJf "$BIN/bin.tar.xz" || return
    # Programs look for files of the project where they were built.
    local built
    built=$(cat "$WORK/built-in")
    [ -e "$built" ] || { mkdir -p "$(dirname "$built")" && ln -s "$PWD" "$built"; }
}

# Properties of trtinfer for the full TensorRT.
full() {
    [ -z "$TRT" ] || printf 'trt-library=%s ' "$TRT"
    printf 'engine-cache=%s %s ' "$WORK/cache" "${INFER:-}"
}
