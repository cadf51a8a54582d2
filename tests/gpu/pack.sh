#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Packs what tests/gpu/run.sh and tests/bench/gpu.sh need on a machine that cannot build: into .gpu/bin/bin.tar.xz (22 MB,
# and 28 more where the 640x640 models can be made), from the checkout it is called in.
#
#   tests/gpu/pack.sh           the stripped plugin, tests, benches and examples, 1080p clips and one of 4K, 640x640 models
#   tests/gpu/pack.sh nets      besides, the networks of the row nets of tests/bench/gpu.sh, 120 MB more
#
# Libraries, the program and benches are built as a release is, so that they measure what users run; that takes minutes the first time. Programs that look for
# files of the project find them where it was built, so run.sh puts a link there if need be. Drawing the clip needs Debian's
# python3-numpy, and the 640x640 models a python3 with numpy and onnx.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
BIN=.gpu/bin OUT=$PWD/target/gpu-bin
TESTS=(elements core)
BENCHES=(gpu_nms gpu_kernels gpu_gallery gpu_chain streams swap soak session memory)
TARGET=${CARGO_TARGET_DIR:-target}

# Copies the programs that cargo's messages name, without what only debuggers read: KIND of target -> prefix of the file.
copy_programs() {
    python3 -c '
import json, shutil, subprocess, sys
folder, prefix = sys.argv[1:]
for line in sys.stdin:
    message = json.loads(line)
    # The test of the library itself is called as the library is.
    if message.get("executable") and message.get("profile", {}).get("test"):
        to = f"{folder}/{prefix}" + message["target"]["name"]
        subprocess.run(["strip", "-o", to, message["executable"]], check=True)
' "$OUT" "$1"
}

mkdir -p "$BIN" "$OUT"
cargo build --locked --release --workspace --lib --bins
strip -o "$OUT/libgsttrt.so" "$TARGET/release/libgsttrt.so"
strip -o "$OUT/libgsttrt-1.so.0" "$TARGET/release/libgsttrt_capi.so"
strip -o "$OUT/gst-trt" "$TARGET/release/gst-trt"
cargo test --locked --workspace --no-run --message-format=json --lib "${TESTS[@]/#/--test=}" | copy_programs ''
cargo bench --locked --workspace --no-run --message-format=json "${BENCHES[@]/#/--bench=}" | copy_programs bench_
pwd > "$OUT/built-in"

# One clip as files are, the same as cameras send it, without B-frames, and one of a crowd.
for clip in hd camera crowd; do
    [ "$clip" = hd ] && bframes=2 || bframes=0
    [ "$clip" = crowd ] && objects=30 || objects=8
    [ -f "$OUT/$clip.json" ] || PATH=/usr/bin:$PATH python3 tests/data/render.py --width 1920 --height 1080 --frames 150 --seed 2 \
        --objects "$objects" --kbps 6000 --bframes "$bframes" --out "$OUT/$clip.mp4" --truth "$OUT/$clip.json"
done
# One of 4K with many discs and boxes of 12 to 90 pixels, of which a model sees the small ones in slices only.
[ -f "$OUT/uhd.json" ] || PATH=/usr/bin:$PATH python3 tests/data/render.py --width 3840 --height 2160 --net 5486 --frames 60 --seed 2 \
    --objects 120 --kbps 12000 --bframes 0 --out "$OUT/uhd.mp4" --truth "$OUT/uhd.json"
# The 640x640 models of the row regular, where Python has the onnx package.
for kind in '' -f16; do
    python3 tests/models/train.py resize --from "tests/models/shapes$kind.onnx" --side 640 --out "$OUT/shapes-640$kind.onnx" ||
        echo "The row regular will take the 512x512 models." >&2
done
models=(yolov8s yolov8n-seg yolov8n-cls yolov8n-embed)
[ "${1:-}" != nets ] || models+=(yolov8{n,m} yolo11{n,s,m})
for model in "${models[@]}"; do
    size=${model%-*} version=8 task=() table=()
    [ "${size%?}" = yolov8 ] || version=11
    case $model in
        *-seg) task=(--masks) ;;
        *-cls) task=(--classify) ;;
        *-embed) task=(--embed) ;;
        *) table=(--int8 "$OUT/$model.cache") ;;
    esac
    [ "$OUT/$model.onnx" -nt tests/bench/yolo.py ] ||
        python3 tests/bench/yolo.py "$OUT/$model.onnx" --batch n --version "$version" --size "${size: -1}" "${task[@]}" "${table[@]}" ||
        echo "The rows of tests/bench/gpu.sh with $model's shape will be left out." >&2
done
# They have most of their code in common, so a window over all of them pays.
tar -C "$OUT" -c . | xz -T1 -6 --lzma2=preset=6,dict=96MiB >"$BIN/bin.tar.xz"
ls -l "$BIN"
