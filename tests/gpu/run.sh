#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# The proof on a GPU: runs every row of tests/bench/FIGURES.md, prints PASS or FAIL with the figures, and writes them as JSON lines.
#
#   tests/gpu/run.sh [ROW…]
#
#   plans       builds the f32 and the f16 engine that the other rows then take   (needs TensorRT with its builder)
#   boxes       the GPU's boxes against the CPU's on both clips, f32 and f16
#   score       precision and recall on the 1080p clip
#   build       the same with an engine that trtinfer builds from the ONNX file   (needs TensorRT with its builder)
#   verify      engines that are built here compute what their models say, in f32, f16 and as auto   (needs TensorRT with its builder)
#   networks    the same of other packages' networks in batches of 16, as auto and in f16   (needs TensorRT with its builder, and what
#               tests/zoo/batches.py made in NETWORKS)
#   engines     tests of engines: profiles, types, several outputs, INT8, broken files   (needs TensorRT with its builder)
#   properties  what trtinfer's properties of TensorRT do   (needs TensorRT with its builder)
#   lean        lean runtimes against the full one, on a version-compatible engine
#   copies      bytes that cross between host and GPU for a frame, by copies and by kernels
#   frames      tests of frames in GStreamer's CUDA memory
#   batches     streams that share a model find what each finds alone   (needs TensorRT with its builder)
#   rectangles  frames of several shapes, parts of frames, slices, aligned faces, classes and vectors of objects: what the CPU finds
#               (needs TensorRT with its builder)
#   clips       tensors of several frames, sequences of vectors, and maps with scores: what the CPU finds   (needs TensorRT with its
#               builder)
#   units       what the library's own tests do on a GPU: memory, pools, DLPack, times
#   chain       tests of the whole chain: frames stay in GPU memory; tee, seeks, 100 state cycles without growth
#   download    … trtnms ! cudadownload ! x264enc gives a file
#   program     gst-trt: what doctor finds and tries, an engine built ahead, figures   (needs TensorRT with its builder)
#   serve       gst-trt serve: SERVE_SOURCES clips at their own pace, or cameras, share a model; fps of each, CUDA contexts, latency, memory
#   outputs     gst-trt serve: its videos by RTSP and WebRTC, many cameras in one picture, and a camera that floods   (needs rtspsrc)
#   kserve      a model on a server of another process, by shared memory of the GPU and of the host: the same boxes, fps of each
#               (needs TensorRT with its builder)
#   dead        the GPU is lost to gst-trt serve, gst-trt detect and a pipeline: what they say, and that they end
#   endure      tests/bench/endure: gst-trt serve with 64 cameras by RTSP for ENDURE_SECONDS, and faults by its plan   (needs rtspsrc)
#   gpus        one pipeline whose decoders are on two GPUs, one shared model: an instance and a CUDA context for each   (needs two GPUs)
#   start       gst-trt from its start to the first boxes, with the engine in the cache
#   zoo         what other packages' exporters gave, as tests/zoo/play.py plays it   (needs TensorRT with its builder, and numpy)
#   kernels     preprocessing, decoding and suppression: times
#   gallery     names of a gallery: those of the CPU, bit by bit; times
#   library     sessions on host memory, on their own and on a caller's GPU memory; pools; frames read in place: times
#   tensors     tensors to PyTorch and CuPy and back; those of a pipeline   (needs a python3 with both and gi)
#   regular     host tensors in and out against zero-copy, same engine   (needs TensorRT with its builder)
#   memcheck    compute-sanitizer's memcheck on the pipeline
#   sanitize    all of compute-sanitizer on the kernels' tests: boxes, pixels, galleries, vectors, maps, clips
#   sanitize_elements   the same on those tests of kernels that are among the elements' tests: parts of frames and aligned faces
#
# The most sources with RT-DETR-R50, and an archive of videos, are rows of tests/bench/gpu.sh: rtdetr, serve_nets, archive.
#
# Needs a GPU, GStreamer with nvcodec, TensorRT, and what tests/gpu/pack.sh made in .gpu/bin. Rows of pipelines run on every
# GStreamer of GSTREAMERS, each of which is a function of tests/gpu/machine.sh; exit status 1 where a row fails.
#
#   GSTREAMERS   names out of: native bundle in26       (default: those that are here)
#   PYTHON       of the row tensors                     (default: python3 with the GStreamer in K/u24, if there is one)
#   TRT          folder of the full TensorRT            (default: TensorRT is searched for as usual)
#   TRT_LEAN     files or folders of lean runtimes, with colons between them   (default: those of the bundle)
#   ENGINE32, ENGINE16, ENGINE_COMPATIBLE
#                engines of tests/models/shapes.onnx for TRT; without, the rows plans and engines build them
#   LEVEL        how long TensorRT looks for fast kernels in the rows plans, build and regular (default: 3, minutes; 1 takes
#                60 and 90 s)
#   INFER        further properties of trtinfer, such as allow-host-code=true
#   TIMEOUT_S    seconds for one run of compute-sanitizer (default: 400)
#   RACECHECK    words in the names of the tests for racecheck, which is by far the slowest (default: all tests); without those
#                that take it longest: gpu_boxes:: gpu_pixels:: --skip every_layout --skip crowds_
#   SERVE_SOURCES, SERVE_SECONDS, SERVE_RTSP
#                of the row serve: how many sources, with commas between, for how long, and whether they are cameras by RTSP, of a
#                server on this machine (default: 16; 30; false)
#   SERVE_SYNC   false: the row's clips as fast as they can be read (default: true)
#   ENDURE_SECONDS, ENDURE_FAULTS
#                of the row endure                     (default: 600; 60)
#   NETWORKS, ONLY_NETWORKS, NETWORKS_JOBS
#                of the row networks: the folder            (default: WORK/networks; without it the row is left out), some of its names,
#                and how many engines are built at a time   (default: 4)
#   WORK         folder for what is made here           (default: /root/k/proof where the GStreamers of a bundle are, else a new one)
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
# shellcheck source=tests/gpu/machine.sh
. tests/gpu/machine.sh
CUPTI_HOME=${CUPTI_HOME:-/usr/local/cuda/extras/CUPTI}
# Files, for a bundle's folder may lack the link that a folder is searched for.
TRT_LEAN=${TRT_LEAN-$(for version in 8 10; do compgen -G "$K/lean$version/libnvinfer_lean.so.$version*" | head -n 1; done | tr '\n' ':')}
RESULTS=$WORK/results.jsonl
MODEL=$WORK/shapes.onnx

# ---------------------------------------------------------------------------- saying it

# row NAME WHERE STATUS BAR FIGURES: one line of the table, and of the JSON.
row() {
    local verdict=PASS
    [ "$3" = 0 ] || verdict=FAIL
    printf '%s  %-34s %-7s %s   [bar: %s]\n' "$verdict" "$1" "$2" "$5" "$4"
    python3 -c '
import json, sys
print(json.dumps(dict(zip(("row", "where", "verdict", "bar", "figures"), sys.argv[1:])), ensure_ascii=False))
' "$1" "$2" "$verdict" "$4" "$5" >>"$RESULTS"
}

# The last line of a log, as a figure.
said() {
    grep -v '^$' "$1" | tail -n "${2:-1}" | tr '\n' ' ' | tr -s ' ' | cut -c 1-240
}

# figures ROW FILE…: those of a row, in one line; fails where they miss its bar.
figures() {
    python3 tests/gpu/figures.py "$@"
}

# judge NAME WHERE BAR COMMAND…: PASS if it succeeds; the figure is the last line that it prints.
judge() {
    local name=$1 where=$2 bar=$3 log status
    shift 3
    log=$WORK/log-${name//[^a-z0-9]/-}-$where
    "$@" >"$log" 2>&1
    status=$?
    row "$name" "$where" "$status" "$bar" "$(said "$log")"
    # What panicked is said before the list of tests.
    [ "$status" = 0 ] || { grep -a -A 2 ' panicked at ' "$log" | head -n 12; tail -n 15 "$log"; } | sed 's/^/      /'
}

skip() {
    printf 'SKIP  %-34s %s\n' "$1" "$2"
}

# ---------------------------------------------------------------------------- set-up

setup() {
    unpack
    : >"$RESULTS"
    cp tests/data/sample.mp4 tests/data/sample.json tests/models/shapes.onnx "$WORK"/
    cp tests/models/shapes-f16.onnx "$WORK"/
    export REQUIRE_GPU=1
    local engine
    for engine in ENGINE32 ENGINE16 ENGINE_COMPATIBLE; do
        [ ! -f "${!engine:-}" ] || cp "${!engine}" "$WORK/$engine.engine"
    done
    build_counter
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
}

build_counter() {
    local include lib
    include=$(find -L "$CUPTI_HOME" /usr/local/cuda/include /opt -name cupti.h 2>/dev/null | head -n 1)
    lib=$(find -L "$CUPTI_HOME" /usr/local/cuda /opt -name 'libcupti.so.1*' -type f 2>/dev/null | head -n 1)
    if [ -z "$include" ] || [ -z "$lib" ]; then
        echo "CUPTI is not in $CUPTI_HOME; set CUPTI_HOME." >&2
        return 1
    fi
    cp -L "$lib" "$WORK/$(basename "$lib" | cut -d. -f1-3)"
    local library
    cc -shared -fPIC -O2 tests/gpu/crash.c -o "$WORK/libcrash.so" || return
    for library in copies break; do
        cc -shared -fPIC -O2 -pthread -I"$(dirname "$include")" -I/usr/local/cuda/include "tests/gpu/$library.c" \
            -L"$WORK" -l:"$(basename "$lib" | cut -d. -f1-3)" -ldl -o "$WORK/lib$library.so" || return
    done
    cc -O2 tests/gpu/copies_known.c -ldl -o "$WORK/copies_known"
}

# The model for a precision: an engine that was brought along or built by the row plans, else the ONNX file.
model() {
    if [ -f "$WORK/ENGINE$1.engine" ]; then echo "$WORK/ENGINE$1.engine"; else echo "$MODEL"; fi
}

precision() {
    [ -f "$WORK/ENGINE$1.engine" ] || printf 'precision=fp%s ' "$1"
}

# The two ends of a launch line: a clip's frames in GPU memory, and the three elements with properties of trtnms and the bits of
# the engine.
decoder() {
    printf 'filesrc location=%s ! qtdemux ! h264parse ! nvh264dec %s' "$WORK/$1.mp4" "${DECODER:-}"
}

detector() {
    local bits=${2:-16}
    printf 'trtpreprocess ! trtinfer backend=tensorrt model-file=%s %s ! queue ! trtnms %s' \
        "$(model "$bits")" "$(full) $(precision "$bits")" "$1"
}

# detect GSTREAMER NAME CLIP MODEL BACKEND INFER-PROPERTIES [NMS-PROPERTIES]: boxes into $WORK/NAME.jsonl
detect() {
    "$1" "$WORK/gst-trt" detect "$WORK/$3.mp4" --model "$4" --backend "$5" --no-video --json "$WORK/$2.jsonl" --infer "$6" --nms "${7:-}" \
        >"$WORK/$2.log" 2>&1 ||
        { tail -n 5 "$WORK/$2.log"; return 1; }
}

# ---------------------------------------------------------------------------- rows

# plan NAME MODEL [PROPERTIES]: builds the engine WORK/NAME.engine, unless it is there.
plan() {
    local file=$WORK/$1.engine cache=$WORK/cache-$1
    if [ ! -f "$file" ]; then
        rm -rf "$cache"
        detect "${GSTREAMERS%% *}" "plan-$1" sample "$2" tensorrt \
            "${TRT:+trt-library=$TRT} engine-cache=$cache optimization-level=${LEVEL:-3} ${3:-} ${INFER:-}" || return
        mv "$cache"/*.engine "$file" || return
    fi
    wc -c "$file"
}

row_plans() {
    local bits
    for bits in 32 16; do
        judge "an engine of f$bits" "${GSTREAMERS%% *}" "it is there" plan "ENGINE$bits" "$MODEL" "precision=fp$bits"
    done
}

# Detections of both sides, then the comparison.
compare() {
    local gst=$1 clip=$2 bits=$3 iou=$4 score=$5
    detect "$gst" "$gst-$clip-gpu$bits" "$clip" "$(model "$bits")" tensorrt "$(full) $(precision "$bits")" || return
    # GStreamers differ in what they say about a clip's colours, so each has a reference of its own.
    [ -f "$WORK/$gst-$clip-cpu.jsonl" ] || detect "$gst" "$gst-$clip-cpu" "$clip" "$MODEL" cpu "" || return
    python3 tests/gpu/compare_boxes.py "$WORK/$gst-$clip-cpu.jsonl" "$WORK/$gst-$clip-gpu$bits.jsonl" --min-iou "$iou" --max-score "$score"
}

# The detections for f16, by their candidates: checks whether pairs that differ are two boxes of an object with similar scores.
compare_candidates() {
    local of=$WORK/$1-$2 all=iou-threshold=1.0
    detect "$1" "$1-$2-gpu16-all" "$2" "$(model 16)" tensorrt "$(full) $(precision 16)" "$all" || return
    detect "$1" "$1-$2-cpu-all" "$2" "$MODEL" cpu "" "$all" || return
    python3 tests/gpu/compare_boxes.py "$of-cpu.jsonl" "$of-gpu16.jsonl" --min-iou 0.95 --max-score 1e-2 \
        --candidates "$of-cpu-all.jsonl" "$of-gpu16-all.jsonl"
}

row_boxes() {
    local gst clip
    for gst in $GSTREAMERS; do
        for clip in sample hd; do
            judge "boxes f32, $clip" "$gst" "all matched, IoU ≥ 0.98, score 1e-3" compare "$gst" "$clip" 32 0.98 1e-3
            judge "boxes f16, $clip" "$gst" "all matched, IoU ≥ 0.95, score 1e-2" compare "$gst" "$clip" 16 0.95 1e-2
            judge "… among candidates" "$gst" "the same, but for equals" compare_candidates "$gst" "$clip"
        done
    done
}

score() {
    python3 tests/data/score.py "$WORK/hd.json" "$1" --min-precision 0.98 --min-recall 0.98 | tr '\n' ' '
}

row_score() {
    local gst bits
    for gst in $GSTREAMERS; do
        for bits in 32 16; do
            local boxes=$WORK/$gst-hd-gpu$bits.jsonl
            [ -f "$boxes" ] || detect "$gst" "$gst-hd-gpu$bits" hd "$(model "$bits")" tensorrt "$(full) $(precision "$bits")"
            judge "precision and recall, f$bits" "$gst" "≥ 0.98" score "$boxes"
        done
    done
}

built_and_scored() {
    rm -rf "$WORK/cache-new"
    detect "$1" "$1-built" hd "$MODEL" tensorrt "${TRT:+trt-library=$TRT} engine-cache=$WORK/cache-new optimization-level=${LEVEL:-3}" &&
        grep -i 'build\|engine' "$WORK/$1-built.log" | tail -n 3
    score "$WORK/$1-built.jsonl"
}

row_build() {
    local gst
    for gst in $GSTREAMERS; do
        judge "engine built by trtinfer" "$gst" "≥ 0.98" built_and_scored "$gst"
    done
}

# verified GST PRECISION: the verdict on an engine of a cache of its own.
verified() {
    rm -rf "$WORK/cache-verified"
    "$1" "$WORK/gst-trt" verify "$MODEL" --backend tensorrt --infer \
        "${TRT:+trt-library=$TRT} engine-cache=$WORK/cache-verified optimization-level=${LEVEL:-3} precision=$2 ${INFER:-}"
}

row_verify() {
    local gst=${GSTREAMERS%% *} precision
    for precision in auto fp32 fp16; do
        judge "verify: $precision" "$gst" "right" verified "$gst" "$precision"
    done
}

networks() {
    scripts "$1"
    # shellcheck disable=SC2086  # words
    python3 tests/gpu/networks.py "$WORK/start-$1/gst-trt" "$NETWORKS" "$WORK/networks.jsonl" \
        --infer "$(full)optimization-level=${LEVEL:-3}" --jobs "${NETWORKS_JOBS:-4}" ${ONLY_NETWORKS:+--only $ONLY_NETWORKS}
}

row_networks() {
    local gst=${GSTREAMERS%% *}
    NETWORKS=${NETWORKS:-$WORK/networks}
    [ -d "$NETWORKS" ] || { skip networks "tests/zoo/batches.py makes $NETWORKS"; return; }
    judge "networks of other packages" "$gst" "right or refused; ≥ 0.95 of f16 where that is right" networks "$gst"
    sed 's/^/      /' "$WORK/log-networks-of-other-packages-$gst"
}

lean_and_full() {
    local gst=$1 lean=$2
    [ -f "$WORK/$gst-compatible.jsonl" ] ||
        detect "$gst" "$gst-compatible" hd "$WORK/ENGINE_COMPATIBLE.engine" tensorrt "${TRT:+trt-library=$TRT} allow-host-code=true" || return
    detect "$gst" "$gst-lean" hd "$WORK/ENGINE_COMPATIBLE.engine" tensorrt "trt-library=$lean allow-host-code=true" || return
    python3 tests/gpu/compare_boxes.py --identical "$WORK/$gst-compatible.jsonl" "$WORK/$gst-lean.jsonl"
}

row_properties() {
    local gst test
    for gst in $GSTREAMERS; do
        for test in engines_are_built each_way host_code runs_are_captured wrong_libraries a_pipeline_stops a_gpu_without; do
            judge "properties: ${test//_/ }" "$gst" "passes" run_test "$gst" TRT_LIBRARY="$TRT" \
                ENGINE_COMPATIBLE="$WORK/ENGINE_COMPATIBLE.engine" "$WORK/elements" "gpu_properties::$test"
        done
    done
}

row_lean() {
    local gst lean
    [ -f "$WORK/ENGINE_COMPATIBLE.engine" ] || { skip lean "there is no version-compatible engine, which the row engines builds"; return; }
    for gst in $GSTREAMERS; do
        for lean in ${TRT_LEAN//:/ }; do
            judge "same boxes on $(basename "$lean")" "$gst" "identical" lean_and_full "$gst" "$lean"
        done
    done
}

# counted GSTREAMER NAME COMMAND…: the command's copies, as one line of JSON in $WORK/NAME.copies
counted() {
    local gst=$1 out=$WORK/$2.copies
    shift 2
    rm -f "$out"
    if ! "$gst" env CUDA_INJECTION64_PATH="$WORK/libcopies.so" COPIES_OUT="$out" "$@" >"$out.log" 2>&1 || [ ! -s "$out" ]; then
        tail -n 5 "$out.log"
        return 1
    fi
}

# Two lengths, so that what only the start costs falls out; both short of the clip, for the decoder runs ahead of the sink.
SHORT=50 LONG=130

# launch_counted GSTREAMER NAME LINE [CLIP]: LINE between the clip's decoder and a sink, for SHORT and for LONG frames.
launch_counted() {
    local frames words
    for frames in $SHORT $LONG; do
        read -ra words <<<"$(decoder "${4:-hd}") ! $3 fakesink sync=false num-buffers=$frames"
        counted "$1" "$1-$2-$frames" gst-launch-1.0 -q "${words[@]}" || return
    done
}

known() {
    counted "$1" "$1-known" "$WORK/copies_known" && figures known "$WORK/$1-known.copies" "$WORK/$1-known.copies.log"
}

chain_copies() {
    launch_counted "$1" none "" && launch_counted "$1" chain "$(detector "$2") !" &&
        figures per-frame "$WORK/$1-chain" "$WORK/$1-none" "$SHORT" "$LONG"
}

# The same of a line's elements, on the clip of a crowd.
crowd_copies() {
    launch_counted "$1" crowd-none "" crowd && launch_counted "$1" "$2" "$3 !" crowd &&
        figures per-frame "$WORK/$1-$2" "$WORK/$1-crowd-none" "$SHORT" "$LONG"
}

# A tracker, and a classifier of 1,000 classes on each object of each frame.
second_copies() {
    crowd_copies "$1" second "$(detector "") ! trttrack ! trtpreprocess regions=objects ! trtinfer backend=tensorrt \
model-file=$WORK/yolov8n-cls.onnx batch-size=32 $(full) optimization-level=${LEVEL:-3} ! trtnms"
}

sliced_copies() {
    crowd_copies "$1" sliced "trtpreprocess slice-size=512x512 slice-frame=true ! trtinfer backend=tensorrt model-file=$(model 16) \
$(full) $(precision 16) ! queue ! trtnms ! trttrack"
}

# That the counter sees what it should: one 1080p NV12 frame crosses for each.
download_copies() {
    launch_counted "$1" download "cudadownload ! video/x-raw !" && figures download "$WORK/$1-download" "$SHORT" "$LONG"
}

# What kernels read and write in the host's memory themselves, which are no copies.
mapped_bytes() {
    local gst=$1 kernels words
    kernels=$(figures launches "$WORK/$gst-chain" "$SHORT" "$LONG") || return
    read -ra words <<<"$(decoder hd) ! $(detector draw=true) ! fakesink sync=false num-buffers=30"
    "$gst" ncu --clock-control none --replay-mode kernel --launch-skip $((kernels * 20)) --launch-count $((kernels * 4)) --csv \
        --metrics lts__t_sectors_aperture_sysmem_op_read.sum,lts__t_sectors_aperture_sysmem_op_write.sum \
        gst-launch-1.0 -q "${words[@]}" >"$WORK/ncu.csv" 2>&1
    figures mapped "$WORK/ncu.csv" 4
}

row_copies() {
    local gst
    for gst in $GSTREAMERS; do
        judge "the counter's self-test" "$gst" "exact" known "$gst"
        judge "the counter sees cudadownload" "$gst" "a frame's bytes" download_copies "$gst"
        judge "host-device bytes of a frame" "$gst" "≤ 16 KiB" chain_copies "$gst" ""
        judge "… with boxes drawn" "$gst" "≤ 16 KiB" chain_copies "$gst" draw=true
        judge "… with a tracker and a second model" "$gst" "≤ 16 KiB" second_copies "$gst"
        judge "… with slices and a tracker" "$gst" "≤ 16 KiB" sliced_copies "$gst"
        [ "$gst" != in26 ] ||
            DECODER='num-output-surfaces=0' judge "… and num-output-surfaces=0" "$gst" "≤ 16 KiB" chain_copies "$gst" draw=true
        if [ "$gst" != in26 ] && command -v ncu >/dev/null; then
            judge "… by kernels themselves" "$gst" "≤ 16 KiB" mapped_bytes "$gst"
        fi
    done
}

run_test() {
    local gst=$1
    shift
    "$gst" env REQUIRE_GPU=1 GPU_CLIP="$WORK/sample.mp4" GPU_MODEL="$(model 16)" TRT_PROPERTIES="$(full) $(precision 16)" \
        GPU_ONNX="$MODEL" "$@" --nocapture --test-threads 1 | grep -v '^$'
}

row_frames() {
    local gst
    for gst in $GSTREAMERS; do
        judge "GStreamer's CUDA memory" "$gst" "all tests" run_test "$gst" "$WORK/elements" gst_cuda::
    done
}

row_engines() {
    local gst=${GSTREAMERS%% *}
    judge "engines of TensorRT" "$gst" "all tests" run_test "$gst" TRT_LIBRARY="$TRT" TRT_LEAN="$TRT_LEAN" "$WORK/core" tensorrt_gpu::
    # Of the engines that it built, rows after this one need the version-compatible one.
    local built
    built=$(cat "$WORK/built-in")/target/tmp/tensorrt-plans/shapes.onnx-fp32-compatible.engine
    [ -f "$WORK/ENGINE_COMPATIBLE.engine" ] || [ ! -f "$built" ] || cp "$built" "$WORK/ENGINE_COMPATIBLE.engine"
}

row_batches() {
    local gst
    for gst in $GSTREAMERS; do
        judge "streams that share a model" "$gst" "same boxes" run_test "$gst" "$WORK/elements" gpu_batching::
        grep -a '^one stream\|^three\|^pre0\|^infer0\|^nms0' "$WORK/log-streams-that-share-a-model-$gst" | cut -c 1-400 | sed 's/^/      /'
    done
}

row_rectangles() {
    local gst
    for gst in $GSTREAMERS; do
        judge "parts of frames and aligned faces" "$gst" "as on the CPU" run_test "$gst" TRT_LIBRARY="$TRT" "$WORK/elements" gpu_rectangles::
    done
}

row_clips() {
    local gst=${GSTREAMERS%% *}
    judge "frames laid into clips" "$gst" "as on the CPU" run_test "$gst" "$WORK/gsttrt_core" image::clip::
    judge "maps, and scores of anomalies" "$gst" "as on the CPU" run_test "$gst" "$WORK/core" gpu_maps::
    for gst in $GSTREAMERS; do
        judge "clips of objects, sequences of vectors" "$gst" "as on the CPU" run_test "$gst" TRT_LIBRARY="$TRT" \
            "$WORK/elements" track_clips::gpu_ sequences::gpu_
    done
}

# They skip what they do not find, which here is a failure.
all_units() {
    local words=(--nocapture --test-threads 1 memory:: dlpack:: counters:: stats:: cuda:: preprocess:: postprocess:: queued tensor::)
    { "$1" "$WORK/gsttrt_core" "${words[@]}" && "$1" "$WORK/gsttrt" "${words[@]}"; } >"$WORK/units.txt" 2>&1 || {
        tail -n 20 "$WORK/units.txt"
        return 1
    }
    grep '^test result' "$WORK/units.txt"
    # A bundle may lack software decoders, and a machine with a GPU a compiler.
    ! grep SKIP "$WORK/units.txt" | grep -v -e avdec_h264 -e 'compiler c++'
}

row_units() {
    judge "the library's own tests" "${GSTREAMERS%% *}" "all tests" all_units "${GSTREAMERS%% *}"
    grep 'There is one GPU' "$WORK/units.txt" | sed 's/^/      /'
}

row_chain() {
    local gst
    for gst in $GSTREAMERS; do
        judge "frames stay in place" "$gst" "all" run_test "$gst" "$WORK/elements" gpu_chain::frames_are
        judge "pools keep frames that decoders hold" "$gst" "all" run_test "$gst" "$WORK/elements" gpu_chain::pools_keep
        [ "$gst" != in26 ] || judge "the decoder's own surfaces" "$gst" "same pixels" run_test "$gst" "$WORK/elements" gpu_chain::surfaces_of
        judge "held frames: drawn on where they are" "$gst" "all" run_test "$gst" "$WORK/elements" gpu_chain::frames_that_were_held
        judge "tee: nothing drawn on others'" "$gst" "same pixels" run_test "$gst" "$WORK/elements" gpu_chain::frames_that_others
        judge "cudaupload, cudadownload" "$gst" "same objects" run_test "$gst" "$WORK/elements" gpu_chain::cuda_elements
        if "$gst" gst-inspect-1.0 --exists videoflip; then
            judge "neighbours between our elements" "$gst" "same objects or an error" run_test "$gst" "$WORK/elements" neighbours::cuda_neighbours
        else
            skip "neighbours between our elements" "$gst has no videoflip, of GStreamer's good plugins"
        fi
        if "$gst" gst-launch-1.0 -q videotestsrc num-buffers=1 ! cudaupload ! cudaconvert ! fakesink >/dev/null 2>&1; then
            judge "cudaconvert" "$gst" "same objects" run_test "$gst" "$WORK/elements" gpu_chain::cuda_converters
            judge "converters between our elements" "$gst" "same objects or an error" run_test "$gst" "$WORK/elements" neighbours::cuda_converters
        else
            skip "cudaconvert, cudascale ($gst)" "nvcodec finds no NVRTC that it can use: libnvrtc of CUDA 12 (before 1.24, none of CUDA 13)"
        fi
        judge "wrong GPUs, several GPUs" "$gst" "named; same objects" run_test "$gst" "$WORK/elements" gpu_chain::one_pipeline
        judge "frames of another CUDA context" "$gst" "reported" run_test "$gst" "$WORK/elements" gpu_chain::frames_of_another
        judge "40 flushing seeks" "$gst" "no error" run_test "$gst" "$WORK/elements" gpu_chain::seeks
        judge "100 state cycles" "$gst" "no growth" run_test "$gst" "$WORK/elements" gpu_chain::a_hundred
        judge "the same without a pipeline" "$gst" "same boxes" run_test "$gst" "$WORK/elements" session::elements::on_the_gpu_too
        judge "… on a caller's GPU memory" "$gst" "same boxes" run_test "$gst" "$WORK/elements" session::elements::device_memory
        sed -n 's/^GPU memory/      GPU memory/p' "$WORK"/log-100-state-cycles-"$gst"
    done
}

# Two clips of two GPUs find what one finds alone, frame by frame, and libgstcuda made two contexts.
two_gpus() {
    local gst=$1 log=$WORK/gpus-$1.txt line decoder lines=() number
    rm -f "$WORK"/gpus-*.jsonl
    INFER="${INFER:-} optimization-level=${LEVEL:-3}" detector "draw=false" >"$WORK/gpus-detector"
    for number in alone 0 1; do
        decoder=nvh264dec
        [ "$number" != 1 ] || decoder=nvh264device1dec
        printf -v line 'filesrc location=%s ! qtdemux ! h264parse ! %s ! %s ! trtpublish drop=block location=%s ! fakesink' \
            "$WORK/sample.mp4" "$decoder" "$(sed "s/trtinfer /trtinfer shared-model=both /" "$WORK/gpus-detector")" \
            "$WORK/gpus-$number.jsonl"
        lines+=("$line")
    done
    # shellcheck disable=SC2086  # a launch line's words
    "$gst" gst-launch-1.0 -q ${lines[0]} || return
    # shellcheck disable=SC2086
    GST_DEBUG=cudacontext:6 GST_DEBUG_NO_COLOR=1 "$gst" gst-launch-1.0 -q ${lines[1]} ${lines[2]} 2>"$log" || { tail -n 5 "$log"; return 1; }
    for number in 0 1; do
        python3 tests/gpu/compare_boxes.py "$WORK/gpus-alone.jsonl" "$WORK/gpus-$number.jsonl" --min-iou 0.999 --max-score 1e-3 || return
    done
    # nvcodec makes one for each GPU when it is loaded, to see what that can decode, and destroys it.
    number=$(awk '/Created CUDA context/ { most = ++now > most ? now : most } /Destroying CUDA context/ { now-- } END { print most + 0 }' "$log")
    echo "$(wc -l <"$WORK/gpus-1.jsonl") frames of each GPU are those of one alone; CUDA contexts at the same time: $number"
    [ "$number" = 2 ]
}

row_gpus() {
    local gst
    for gst in $GSTREAMERS; do
        if [ "$(nvidia-smi --list-gpus | wc -l)" -ge 2 ]; then
            judge "decoders of two GPUs, one shared model" "$gst" "the same boxes, 2 contexts" two_gpus "$gst"
        else
            skip "decoders of two GPUs" "there is one GPU"
        fi
    done
}

# shellcheck source=tests/gpu/program.sh
. tests/gpu/program.sh
# shellcheck source=tests/gpu/kernels.sh
. tests/gpu/kernels.sh
# shellcheck source=tests/gpu/sanitize.sh
. tests/gpu/sanitize.sh

# ---------------------------------------------------------------------------- all of it

ROWS=("$@")
[ $# -gt 0 ] || ROWS=(plans boxes score build verify networks engines properties lean copies frames batches rectangles clips units chain download program serve outputs kserve dead endure gpus start zoo kernels gallery library tensors regular memcheck sanitize sanitize_elements)
GSTREAMERS=${GSTREAMERS:-$(gstreamers_here | tr '\n' ' ')}
setup || exit 1
for each in "${ROWS[@]}"; do
    if ! declare -F "row_$each" >/dev/null; then
        echo "There is no row $each; tests/gpu/run.sh names them in its first lines." >&2
        exit 2
    fi
    "row_$each"
done
# Counted from the file, for some rows run at the same time.
failed=$(grep -c '"verdict": "FAIL"' "$RESULTS")
echo "$(wc -l <"$RESULTS") rows, $failed failed; figures in $RESULTS"
[ "$failed" = 0 ]
