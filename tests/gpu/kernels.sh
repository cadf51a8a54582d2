# SPDX-License-Identifier: MPL-2.0
# shellcheck shell=bash
# Rows that need no pipeline: times of kernels and of the library, its tensors in other programs. tests/gpu/run.sh sources this.

# Three ways to the same figure, and all must keep to it: the GPU's own counter, which ncu reads; 32 launches in a row, each with its
# start; and one launch between two events, which are some µs apart with nothing between them, 1.3 on one machine and 2.9 on another
# with the same GPU.
preprocess_bars() {
    "$WORK/bench_gpu_kernels" | tee "$WORK/gpu_kernels.txt"
    ncu --clock-control none --cache-control none --kernel-name preprocess_steps_nv12 --launch-count 30 --csv \
        --metrics gpu__time_duration.sum "$WORK/bench_gpu_kernels" >"$WORK/ncu-preprocess.csv" 2>&1
    figures preprocess "$WORK/gpu_kernels.txt" "$WORK/ncu-preprocess.csv"
}

nms_bars() {
    local status words=()
    [ -z "$TRT" ] || read -ra words <<<"$(full)"
    python3 tests/bench/gpu_nms.py "$WORK/bench_gpu_nms" "${words[@]}" >"$WORK/gpu_nms.txt" 2>&1
    status=$?
    cat "$WORK/gpu_nms.txt"
    grep '^2000' "$WORK/gpu_nms.txt" | tr -s ' ' | tr '\n' ';'
    return "$status"
}

row_kernels() {
    judge "preprocess" kernels "≤ 6 µs, ≥ 75 % of copy" preprocess_bars
    judge "decode and NMS" kernels "≤ 14, 25 and 100 µs, ≥ 5x torchvision" nms_bars
    judge "keypoints, rotated boxes, masks" kernels "≤ 10 µs more; masks ≤ 40 and 80 µs, ≥ 10x PyTorch" \
        python3 tests/bench/gpu_tasks.py "$WORK/bench_gpu_nms"
}

gallery_bars() {
    "$1" "$WORK/bench_gpu_gallery" | tee "$WORK/gallery.txt"
    figures gallery "$WORK/gallery.txt"
}

row_gallery() {
    local gst
    judge "names of a gallery" "${GSTREAMERS%% *}" "those of the CPU" run_test "${GSTREAMERS%% *}" "$WORK/core" gpu_gallery::
    for gst in $GSTREAMERS; do
        judge "trtmatch on the GPU" "$gst" "the names of the CPU" run_test "$gst" "$WORK/elements" gpu_match::
    done
    judge "20 objects, 100,000 vectors of 512" "${GSTREAMERS%% *}" "≤ 100 µs" gallery_bars "${GSTREAMERS%% *}"
    sed '/^{/d; s/^/      /' "$WORK/gallery.txt"
}

# Its bars are for an engine file, whose run by itself is the last line.
library_bars() {
    local words
    read -ra words <<<"$(model 32) $(full)"
    "$1" "$WORK/bench_session" "${words[@]}" | tee "$WORK/session.txt"
    figures sessions "$WORK/session.txt"
}

memory_bars() {
    "$WORK/bench_memory" | tee "$WORK/memory.txt"
    figures memory "$WORK/memory.txt"
}

row_library() {
    local gst=${GSTREAMERS%% *}
    judge "sessions" "$gst" "≥ 1.25x, ≤ 2 µs beyond the engine" library_bars "$gst"
    sed 's/^/      /' "$WORK/session.txt"
    judge "pools, and frames read in place" kernels "≤ 200 ns; auto is the faster" memory_bars
    sed 's/^/      /' "$WORK/memory.txt"
}

# The pipeline's tensors are a Python program's that has GStreamer in the same process.
appsink_tensors() {
    local words
    read -ra words <<<"$PYTHON"
    LD_LIBRARY_PATH=$TRT:${LD_LIBRARY_PATH:-} GST_PLUGIN_PATH=$WORK:${GST_PLUGIN_PATH:-} \
        "${words[@]}" examples/tensors.py "$WORK/libgsttrt-1.so.0" "$WORK/sample.mp4" "$(model 32)" "$1" | tee "$WORK/tensors.txt" | tail -n 2
    [ "$(grep -c '^frame .* on the GPU' "$WORK/tensors.txt")" = 300 ]
}

dlpack() {
    local words
    read -ra words <<<"$PYTHON tests/gpu/dlpack.py $WORK/libgsttrt-1.so.0 $(model 32) backend=tensorrt $(full)"
    "${words[@]}"
}

row_tensors() {
    PYTHON=${PYTHON:-$([ ! -x "$K/u24/run" ] || echo "$K/u24/run") python3}
    judge "DLPack, to PyTorch, CuPy and back" python "same address, same values" dlpack
    judge "tensors of a pipeline in PyTorch" python "300 frames" appsink_tensors torch
    judge "tensors of a pipeline in CuPy" python "300 frames" appsink_tensors cupy
}

regular() {
    plan "$2" "$WORK/$2.onnx" && "$1" "$WORK/bench_gpu_chain" "$WORK/$2.engine" "$TRT"
}

row_regular() {
    local gst=${GSTREAMERS%% *} models=(shapes-640 shapes-640-f16) model name
    [ -f "$WORK/shapes-640.onnx" ] || models=(shapes shapes-f16)
    for model in "${models[@]}"; do
        name="regular against zero-copy $model"
        judge "$name" "$gst" "≥ 1.25x" regular "$gst" "$model"
        sed 's/^/      /' "$WORK/log-${name//[^a-z0-9]/-}-$gst"
    done
}
