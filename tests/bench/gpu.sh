#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# What the plugin does on a GPU compared with its ceilings and its rivals: measures, then judges by bars, and prints how long each row took.
#
#   tests/bench/gpu.sh [ROW…]
#
#   decode      NVDEC alone
#   engine      each engine alone, with and without a CUDA graph; builds it if need be, which takes minutes
#   small       streams of 1080p H.264 through the whole pipeline with the model of tests/models: a model for each stream, and one
#               for all of them with batches; flat out, and at LIVE frames a second
#   yolov8s     the same with a model of YOLOv8s's shape, 640x640, f16, random weights
#   nets        YOLOv8 n, s, m and YOLO11 n, s, m with random weights, in FP16 and INT8: 1, 4 and 16 streams, and next to them the
#               same networks as a PyTorch chain, and Ultralytics' predict   (only where it is named; needs what tests/gpu/pack.sh
#               nets made, and the package ultralytics in PYTHON)
#   segment     the same with a model of YOLOv8n-seg's shape; masks are drawn on the frames. Next to it decoding and the engine at the
#               same time, without our elements
#   waits       1, 16 and 64 streams that share the model of YOLOv8s's shape in batches of 16, with each batch-timeout of WAITS: files, and
#               at LIVE frames a second   (only where it is named)
#   many        MANY streams in one process that share that model: threads, CUDA contexts, time on the CPU   (only where it is named)
#   second      the small model on a crowd, with a tracker and a classifier of YOLO11n-cls's size on its 30 objects: at each frame,
#               and once
#   reid        the same with a network of YOLOv8n-cls's size whose results are vectors of 512 numbers, on each new object of the tracker, and
#               the chain without it
#   swap        the model swapped while streams play, for one of another size and other classes: SWAPS times flat out, and some at
#               LIVE frames a second
#   prompts     the words of a model changed while streams play: SWAPS times flat out, and as often at LIVE frames a second
#   serve       gst-trt serve with SERVE_SOURCES sources that share the model of YOLOv8s's shape: clips at their own pace; fps of each,
#               latency, memory, CUDA contexts
#   rtdetr_engine   makes a network of RT-DETR-R50's shape, 640x640, and its engine of batches, which takes minutes: in FP16 as far as that
#               gives what the file says   (only where it is named; PYTHON needs the package transformers, unless RTDETR is there)
#   rtdetr      the most sources that gst-trt serve takes with it and a tracker, cameras by RTSP where the GStreamer reads them: fps of
#               each, latency, and the share of the engine alone   (only where it is named)
#   serve_nets  the same with NETS, and clips at their own pace unless SERVE_RTSP is true   (only where it is named)
#   archive     gst-trt detect --parquet on ARCHIVE_VIDEOS short videos with YOLO11n's shape, and NVDEC alone on them   (only where it is named)
#   python      Detector of the Python package on lists of arrays and of tensors on the GPU, the engine alone, and Ultralytics' predict
#               (PYTHON needs numpy; torch for tensors on the GPU, and ultralytics)
#   gpus        the small model on one GPU and on two, with twice the streams   (needs two GPUs)
#   torch       the same networks as a PyTorch chain, on the GPU and by way of the host, and ours next to it on such frames, which are
#               on the GPU already
#   sahi        slices of a 4K clip: the small model by SAHI in PyTorch, and ours with the same slices on the same frames,
#               which are in GPU memory already, or are to be decoded; 1 and 4 streams   (PYTHON needs the package sahi, too)
#   nms         decoding and suppression against torchvision and TensorRT's EfficientNMS
#   preprocess  the letterbox against PyTorch and CV-CUDA
#   gallery     the objects of a frame compared with galleries of up to 100,000 vectors, next to a copy of that memory within the GPU
#   soak        streams that join and leave, for SOAK seconds of each of KINDS
#   bars        measures nothing; judges what was measured before, as every call does at its end
#
# Needs a GPU, GStreamer with nvcodec, TensorRT with its builder, and what tests/gpu/pack.sh made in .gpu/bin; for the rivals a
# python3 with numpy, PyTorch and torchvision. What is missing is said in a line, and a row that fails does not stop the others.
# At the defaults a row takes 1 to 3 minutes, small and yolov8s 8 each, and the first to use an engine some minutes more for each
# batch; engines stay in WORK/cache. Figures stay in WORK/bench until they are measured again, so rows, and parts of STREAMS, may
# be run in several calls. Without a GPU it goes as far as the CPU goes, which is for trying out this script. Exit status 1 where
# something failed or misses its bar.
#
#   JSON         file for all figures and verdicts        (default: WORK/bench/all.json)
#   GSTREAMER    one of: native bundle in26               (default: the first that is here)
#   STREAMS, BATCHES, LENGTH, REPEATS, LIVE, DRAW
#                what is measured                         (default: 16,1,4,32 and 1,4,16; 2 s, medians of 3; 30 fps; true)
#   NMS          properties of trtnms in the row segment, with commas between   (default: mask-output=none: masks are only drawn)
#   BATCH_TIMEOUT
#                batch-timeout of trtinfer where streams share a model, in microseconds, or -1 for automatic   (default: -1)
#   WAITS, MANY  of the rows waits and many               (default: -1 0 2000 10000; 200)
#   DECODER      properties of nvh264dec, with commas between: from GStreamer 1.24 on num-output-surfaces=0 saves two copies of
#                each frame                              (default: none)
#   TOGETHER     whether decoding and the engine are measured at the same time as well, without our elements   (default: false)
#   LIVE_QUEUE   whether live streams have a queue between trtinfer and trtnms   (default: true)
#   LEVEL        how long TensorRT looks for fast kernels (default: 3)
#   NETS         of the row nets                         (default: yolov8n yolov8s yolov8m yolo11n yolo11s yolo11m)
#   SWAPS        of the rows swap and prompts             (default: 100)
#   SERVE_SOURCES, SERVE_SECONDS, SERVE_RTSP
#                of the row serve: how many sources, for how long, and whether they are cameras by RTSP, of a server on this machine
#                                                         (default: 16,64,128; 30; false)
#   RTDETR, RTDETR_BATCH, RTDETR_SOURCES
#                of the rows rtdetr: the network, frames of a run, how many sources at first
#                                                         (default: WORK/rtdetr-r50.onnx, made here; 16; 1,8,16,20,24,32)
#   SERVE_NETS_SOURCES
#                of the row serve_nets                     (default: 1,16,64,128,176)
#   MOST_SECONDS, MOST_TRIES
#                of the rows rtdetr and serve_nets: how long each number of sources is measured once its latency stays, 35 s at least, and how
#                many numbers between the last that was enough and the first that was not are tried   (default: 35; 1)
#   ARCHIVE_CLIPS, ARCHIVE_VIDEOS, ARCHIVE_WAYS, ARCHIVE_ROUNDS
#                of the row archive: what its videos are copies of, how many they are, how many processes read how many of them at the
#                same time, and how often                  (default: the 1080p clip; 1000; 1x8,1x16; 1)
#   ARCHIVE_DETECT, ARCHIVE_INFER
#                further options of gst-trt detect, and properties of trtinfer   (default: none; batch-size=16)
#                a way decodes all videos twice, some 4,000 frames a second each time on an H200. ARCHIVE_VIDEOS=100 LEVEL=0 is a
#                look that takes two minutes, most of it the engine
#   SOAK, KINDS, STAY
#                of the row soak: kinds with a comma between run at the same time; with STAY=true engines stay loaded
#                                                         (default: 120 s; detect segment track+second; false)
#   YOLOV8S, SEGMENT, CLASSIFY, EMBED
#                the other models. TensorRT 8.6 keeps 92 kB of the heap for each load of an engine with a Softmax, as the default
#                ones have, which the rows swap and soak count
#   LIMIT        seconds for one step                     (default: 540)
#   CROWD, SECOND_RUNS
#                of the rows second and reid: their clip, and the second model's runs at the same time
#                                                         (default: the crowd that tests/gpu/pack.sh draws; 4)
#   UHD          clip of the row sahi, of 3840x2160       (default: the one that tests/gpu/pack.sh draws)
#   PROGRAMS     folder of the benches                    (default: what tests/gpu/pack.sh packed, unpacked into WORK)
#   LOGS         a folder where the steps' logs go as well, while they run   (default: OUT of the caller, else none)
#   PYTHON       of the rivals                            (default: python3)
#   TRT, K, WORK, INFER
#                as tests/gpu/machine.sh prints it
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
# shellcheck source=tests/gpu/machine.sh
. tests/gpu/machine.sh
# A caller that sets OUT wants what is left of a run there, however it ends.
LOGS=${LOGS-${OUT-}}
OUT=$WORK/bench
[ "$LOGS" != "$OUT" ] || LOGS=""
# Lines come as they are said, and not when a script has ended.
export PYTHONUNBUFFERED=1
JSON=${JSON:-$OUT/all.json}
STREAMS=${STREAMS-16,1,4,32} BATCHES=${BATCHES-1,4,16} LENGTH=${LENGTH:-2} REPEATS=${REPEATS:-3}
DECODER=${DECODER-} TOGETHER=${TOGETHER:-false} NMS=${NMS-mask-output=none} LIVE=${LIVE-30} LIVE_QUEUE=${LIVE_QUEUE:-true} DRAW=${DRAW:-true}
NETS=${NETS:-yolov8n yolov8s yolov8m yolo11n yolo11s yolo11m}
BATCH_TIMEOUT=${BATCH_TIMEOUT:--1} WAITS=${WAITS:--1 0 2000 10000} MANY=${MANY:-200} LEVEL=${LEVEL:-3} SWAPS=${SWAPS:-100} SECOND_RUNS=${SECOND_RUNS:-4}
SERVE_SOURCES=${SERVE_SOURCES:-16,64,128} SERVE_SECONDS=${SERVE_SECONDS:-30} SERVE_RTSP=${SERVE_RTSP:-false} SOAK=${SOAK:-120}
RTDETR=${RTDETR:-$WORK/rtdetr-r50.onnx} RTDETR_BATCH=${RTDETR_BATCH:-16} RTDETR_SOURCES=${RTDETR_SOURCES:-1,8,16,20,24,32}
SERVE_NETS_SOURCES=${SERVE_NETS_SOURCES:-1,16,64,128,176} MOST_SECONDS=${MOST_SECONDS:-35} MOST_TRIES=${MOST_TRIES:-1}
ARCHIVE_CLIPS=${ARCHIVE_CLIPS:-} ARCHIVE_VIDEOS=${ARCHIVE_VIDEOS:-1000} ARCHIVE_WAYS=${ARCHIVE_WAYS:-1x8,1x16} ARCHIVE_ROUNDS=${ARCHIVE_ROUNDS:-1}
ARCHIVE_DETECT=${ARCHIVE_DETECT:-} ARCHIVE_INFER=${ARCHIVE_INFER-batch-size=16}
KINDS=${KINDS:-detect segment track+second} STAY=${STAY:-false} LIMIT=${LIMIT:-540} PYTHON=${PYTHON:-python3}
FAILED=0

# ---------------------------------------------------------------------------- steps

missing() {
    echo "$*" >&2
    FAILED=1
}

# step NAME COMMAND…: shows the command's output as it comes, keeps it in OUT/NAME.log, and prints how long it took.
step() {
    local name=$1 begun=$SECONDS status
    shift
    echo "== $name"
    "$@" 2>&1 | tee "$OUT/$name.log" ${LOGS:+"$LOGS/$name.log"}
    status=${PIPESTATUS[0]}
    case $status in
        0) echo "== $name: $((SECONDS - begun)) s" ;;
        124 | 137) missing "== $name did not end within $LIMIT s." ;;
        *) missing "== $name failed after $((SECONDS - begun)) s, with status $status." ;;
    esac
    return "$status"
}

# bench NAME PROGRAM ARGUMENT…: a step that is one of our programs, with the GStreamer.
bench() {
    local name=$1 program=$PROGRAMS/bench_$2
    shift 2
    if [ ! -x "$program" ]; then
        missing "== $name: there is no $program."
        return 1
    fi
    step "$name" "$GSTREAMER" timeout --kill-after=10 "$LIMIT" "$program" "$@"
}

# streams NAME MODEL ARGUMENT…: the bench of that name; its figures go into OUT/NAME.jsonl.
streams() {
    local name=$1 model=$2 properties
    shift 2
    if [ ! -f "$model" ]; then
        missing "== $name: there is no $model, which tests/gpu/pack.sh makes where Python has the onnx package."
        return 1
    fi
    read -ra properties <<<"$(full) $BACKEND optimization-level=$LEVEL"
    bench "$name" streams "$CLIP" "$model" "${properties[@]}" "seconds=$LENGTH" "repeats=$REPEATS" "live=$LIVE" \
        "live-queue=$LIVE_QUEUE" "draw=$DRAW" "batch-timeout=$BATCH_TIMEOUT" "together=$TOGETHER" "decoder=$DECODER" "json=$OUT/$name.jsonl" "$@"
}

# rival NAME SCRIPT ARGUMENT…: a step in Python, whose lines of JSON go into OUT/NAME.jsonl.
rival() {
    local name=$1 status
    shift
    step "$name" timeout --kill-after=10 "$LIMIT" "$PYTHON" "$@"
    status=$?
    grep '^{' "$OUT/$name.log" >"$OUT/$name.jsonl"
    return "$status"
}

# ---------------------------------------------------------------------------- rows

row_decode() {
    streams "decode-$STREAMS" "$SMALL" batch= "streams=$STREAMS"
}

row_engine() {
    local graph batch model
    for model in "$SMALL" "$YOLOV8S"; do
        # A step for each batch, for its engine may have to be built.
        for batch in ${BATCHES//,/ }; do
            for graph in on off; do
                streams "engine-$(basename "$model" .onnx)-$batch-$graph" "$model" streams= "batch=$batch" "cuda-graph=$graph"
            done
        done
    done
}

row_small() {
    streams "small-$STREAMS" "$SMALL" "streams=$STREAMS" "batch=$BATCHES"
}

row_yolov8s() {
    streams "yolov8s-$STREAMS" "$YOLOV8S" "streams=$STREAMS" "batch=$BATCHES"
}

# Each network in each precision is a step; its engine may have to be built.
row_nets() {
    local net model precision table common=(--seconds "$LENGTH" --repeats "$REPEATS")
    if [ "$DEVICE" = cuda ]; then
        step frames frames 16 1920 1080 "$OUT/frames.nv12" && common+=(--frames "$OUT/frames.nv12")
    fi
    for net in $NETS; do
        model=$WORK/$net.onnx
        for precision in fp16 int8; do
            table=()
            [ "$precision" = fp16 ] || table=("int8-calibration-cache=$WORK/$net.cache")
            DRAW=false streams "nets-$net-$precision" "$model" streams=1,4,16 batch=16 "precision=$precision" "${table[@]}"
        done
        [ -f "$model" ] || continue
        rival "nets-$net-torch" tests/bench/torch_chain.py chain "$model" --streams 16 --batch 16 --device "$DEVICE" "${common[@]}"
        rival "nets-$net-ultralytics" tests/bench/ultralytics_chain.py "$net" --device "${DEVICE/cuda/0}" "${common[@]}"
    done
}

row_segment() {
    streams "segment-$STREAMS" "$SEGMENT" "streams=$STREAMS" "batch=$BATCHES" "nms=$NMS"
    # A step of its own, for all of it takes too long for one.
    TOGETHER=true LIVE=0 streams segment-together "$SEGMENT" streams=16 batch=16 "nms=$NMS"
}

# Nothing is drawn, so that there is nothing but batches to wait for.
row_waits() {
    local timeout
    for timeout in $WAITS; do
        BATCH_TIMEOUT=$timeout DRAW=false streams "waits$timeout" "$YOLOV8S" streams=1,16,64 batch=16
    done
}

row_many() {
    LIVE=0 DRAW=false streams "many-$MANY" "$YOLOV8S" "streams=$MANY" batch=16
}

row_second() {
    if [ ! -f "$CLASSIFY" ]; then
        missing "== second: there is no $CLASSIFY, which tests/gpu/pack.sh makes where Python has the onnx package."
        return
    fi
    CLIP=$CROWD DRAW=false LIVE=0 streams "second-$STREAMS" "$SMALL" "streams=$STREAMS" batch=16 "second=$CLASSIFY" second-batch=32 \
        "second-runs=$SECOND_RUNS" reclassify=1,0
}

row_reid() {
    if [ ! -f "$EMBED" ]; then
        missing "== reid: there is no $EMBED, which tests/gpu/pack.sh makes where Python has the onnx package."
        return
    fi
    CLIP=$CROWD DRAW=false LIVE=0 streams "reid-$STREAMS" "$SMALL" "streams=$STREAMS" batch=16 "second=$EMBED" second-batch=32 \
        "second-runs=$SECOND_RUNS" reclassify=0
}

# swap NAME ARGUMENT…: the bench of that name, between the small model and that of YOLOv8s's shape.
swap() {
    local name=$1 properties
    shift
    read -ra properties <<<"$(full) $BACKEND optimization-level=$LEVEL"
    bench "$name" swap "$CLIP" "$SMALL" "$YOLOV8S" "${properties[@]}" streams=16 "json=$OUT/$name.jsonl" "$@"
}

row_swap() {
    if [ ! -f "$YOLOV8S" ]; then
        missing "== swap: there is no $YOLOV8S, which tests/gpu/pack.sh makes where Python has the onnx package."
        return
    fi
    swap swap-shared batch=16 "swaps=$SWAPS"
    swap swap-own batch=0 "swaps=$(((SWAPS + 4) / 5))"
    [ "$LIVE" = 0 ] || swap swap-live batch=16 "swaps=$(((SWAPS + 4) / 5))" "live=$LIVE"
}

# words NAME ARGUMENT…: the same bench with a model of its own, whose words are changed.
words() {
    local name=$1 properties
    shift
    read -ra properties <<<"$(full) $BACKEND optimization-level=$LEVEL"
    bench "$name" swap "$CLIP" words=true "${properties[@]}" streams=16 batch=16 "swaps=$SWAPS" "json=$OUT/$name.jsonl" "$@"
}

row_prompts() {
    words prompts
    # Frames come every 2 ms, so that a batch cannot wait for more of them.
    [ "$LIVE" = 0 ] || words prompts-live batch-timeout=1000 every=10 "live=$LIVE"
}

# program NAME [COMMAND]: a script that is the program of that name with the GStreamer, which Python must not get. It lasts as long as
# the program, and has its status.
program() {
    cat >"$OUT/$1" <<END
#!/usr/bin/env bash
trap : TERM
$(declare -p K LIBS WORK)
$(declare -f native bundle in26)
$GSTREAMER env GST_DEBUG="\${GST_DEBUG:-}" GST_DEBUG_NO_COLOR=1 "${2:-$PROGRAMS/$1}" "\$@"
END
    chmod +x "$OUT/$1"
}

row_serve() {
    local model=$YOLOV8S sources gpus=1 backend=tensorrt batch=16 infer
    infer="$(full)optimization-level=$LEVEL precision=fp16"
    if [ "$DEVICE" = cpu ]; then
        # The small model takes no batches, and so little is inferred that a CPU keeps up.
        model=$SMALL gpus=0 backend=cpu batch=1 infer="interval=1000000"
    fi
    if [ ! -x "$PROGRAMS/gst-trt" ] || [ ! -f "$model" ]; then
        missing "== serve: there is no $PROGRAMS/gst-trt or no $model, which tests/gpu/pack.sh makes."
        return
    fi
    program gst-trt
    for sources in ${SERVE_SOURCES//,/ }; do
        # Files of this row lie where every GStreamer sees them.
        SERVE_TMP=$OUT step "serve-$sources" timeout --kill-after=30 "$LIMIT" "$PYTHON" tests/bench/serve_sources.py "program=$OUT/gst-trt" \
            "clip=$CLIP" "model=$model" "sources=$sources" "seconds=$SERVE_SECONDS" "gpus=$gpus" "backend=$backend" "batch=$batch" "infer=$infer" \
            "rtsp=$SERVE_RTSP" "limit=$((LIMIT - 90))" "json=$OUT/serve-$sources.jsonl" "journal=$OUT/serve-$sources.journal"
    done
}

# network NAME: WORK/NAME.onnx, of the shape of YOLOv8 or YOLO11 with open batches, unless it was brought along.
network() {
    local version=11
    [ "${1%?}" = yolo11 ] || version=8
    [ -f "$WORK/$1.onnx" ] || step "network-$1" "$PYTHON" tests/bench/yolo.py "$WORK/$1.onnx" --batch n --version "$version" --size "${1: -1}"
}

# Properties of trtinfer for the rows below. With precision=auto an engine is in FP16 where that gives what the file says.
verified_engine() {
    printf '%soptimization-level=%s precision=auto' "$(full)" "$LEVEL"
}

# most NAME MODEL SOURCES BATCH RTSP ARGUMENT…: how many sources gst-trt serve takes, and which share of the engine that is.
most() {
    local name=$1 model=$2 sources=$3 batch=$4 rtsp=$5 gpus=1 backend=tensorrt infer
    shift 5
    infer=$(verified_engine)
    [ "$DEVICE" = cuda ] || gpus=0 backend=cpu infer=""
    program gst-trt
    SERVE_TMP=$OUT step "$name" timeout --kill-after=30 "$LIMIT" "$PYTHON" tests/bench/most_sources.py "program=$OUT/gst-trt" "clip=$CLIP" \
        "model=$model" "sources=$sources" "batch=$batch" "infer=$infer" "backend=$backend" "gpus=$gpus" "rtsp=$rtsp" "seconds=$MOST_SECONDS" \
        "tries=$MOST_TRIES" "bound=$((LIMIT - 90))" "limit=$((LIMIT - 60))" "folder=$OUT/$name" "json=$OUT/$name.jsonl" "$@"
}

row_rtdetr_engine() {
    local given=()
    if [ ! -f "$RTDETR" ]; then
        if [ "$DEVICE" = cuda ]; then
            step frames frames 16 1920 1080 "$OUT/frames.nv12" && given=(--frames "$OUT/frames.nv12")
        fi
        step rtdetr-network timeout --kill-after=10 "$LIMIT" "$PYTHON" tests/bench/rtdetr.py "$RTDETR" "${given[@]}" || return
    fi
    [ "$DEVICE" = cuda ] || return 0
    program gst-trt
    step rtdetr-engine timeout --kill-after=10 "$LIMIT" "$OUT/gst-trt" build "$RTDETR" --batch-size "$RTDETR_BATCH" --infer "$(verified_engine)"
}

row_rtdetr() {
    local rtsp=true
    if ! "$GSTREAMER" gst-inspect-1.0 --exists rtspsrc; then
        echo "This GStreamer has no rtspsrc, so clips at their own pace stand for cameras." >&2
        rtsp=false
    fi
    row_rtdetr_engine && most rtdetr "$RTDETR" "$RTDETR_SOURCES" "$RTDETR_BATCH" "$rtsp"
}

# What the engine gives is more than NVDEC gives to it, so no share of it is asked for.
row_serve_nets() {
    local net
    for net in $NETS; do
        network "$net" && most "serve-nets-$net" "$WORK/$net.onnx" "$SERVE_NETS_SOURCES" 16 "$SERVE_RTSP" share=0
    done
}

row_archive() {
    local decoder="nvh264dec ${DECODER//,/ }" backend=tensorrt infer
    infer="$(verified_engine) $ARCHIVE_INFER"
    [ "$DEVICE" = cuda ] || decoder=avdec_h264 backend=cpu infer=$ARCHIVE_INFER
    network yolo11n || return
    program gst-trt
    program gst-launch-1.0 gst-launch-1.0
    [ -n "$ARCHIVE_CLIPS" ] || { [ -f "$WORK/hd.mp4" ] && ARCHIVE_CLIPS=$WORK/hd.mp4 || ARCHIVE_CLIPS=$CLIP; }
    step archive timeout --kill-after=30 "$LIMIT" "$PYTHON" tests/bench/archive.py "program=$OUT/gst-trt" "launch=$OUT/gst-launch-1.0" \
        "model=$WORK/yolo11n.onnx" "clips=$ARCHIVE_CLIPS" "videos=$ARCHIVE_VIDEOS" "ways=$ARCHIVE_WAYS" "rounds=$ARCHIVE_ROUNDS" \
        "detect=$ARCHIVE_DETECT" "infer=$infer" "backend=$backend" "decoder=$decoder" "folder=$OUT" \
        "logs=${LOGS:-$OUT}/archive" "json=$OUT/archive.jsonl" "build=$((LIMIT - 40))" "limit=$((LIMIT * 40 / 100))" "bound=$((LIMIT - 20))"
}

row_python() {
    local model=$YOLOV8S batch=16 lists=1,16,1000 kinds=numpy,cuda backend=tensorrt infer
    infer="$(full)optimization-level=$LEVEL precision=fp16"
    if [ "$DEVICE" = cpu ]; then
        model=$SMALL batch=1 lists=1,16 kinds=numpy backend=rten infer=""
    fi
    if [ ! -f "$PROGRAMS/libgsttrt-1.so.0" ] || [ ! -f "$model" ]; then
        missing "== python: there is no $PROGRAMS/libgsttrt-1.so.0 or no $model, which tests/gpu/pack.sh makes."
        return
    fi
    program gst-trt
    step python timeout --kill-after=10 "$LIMIT" "$PYTHON" tests/bench/python_lists.py "program=$OUT/gst-trt" \
        "library=$PROGRAMS/libgsttrt-1.so.0" "model=$model" "batch=$batch" "lists=$lists" "kinds=$kinds" "infer=$infer" "backend=$backend" \
        "duration=$LENGTH" "seconds=$LENGTH" "repeats=$REPEATS" "folder=$OUT/python" "json=$OUT/python.jsonl"
}

row_gpus() {
    if [ "$(nvidia-smi -L 2>/dev/null | wc -l)" -lt 2 ]; then
        missing "== gpus: there is one GPU, or none."
        return
    fi
    # Each GPU has a shared model of its own.
    streams gpus-1 "$SMALL" streams=16 batch=16 live=0
    streams gpus-2 "$SMALL" streams=32 batch=16 live=0 gpus=2
}

# frames COUNT WIDTH HEIGHT FILE: the first frames of the clip, which have that size, dense. At the end that comes then, the
# decoder may give some more.
frames() {
    local bytes=$(($1 * $2 * $3 * 3 / 2)) file=$4
    "$GSTREAMER" gst-launch-1.0 -q filesrc location="$CLIP" ! qtdemux ! h264parse ! nvh264dec ! cudadownload ! video/x-raw,format=NV12 \
        ! identity eos-after=$(($1 + 1)) ! filesink location="$file"
    [ "$(wc -c <"$file")" -ge "$bytes" ] && truncate --size="$bytes" "$file"
}

row_torch() {
    local model name common=(--streams 16 --seconds "$LENGTH" --repeats "$REPEATS" --device "$DEVICE")
    if [ "$DEVICE" = cuda ]; then
        step frames frames 16 1920 1080 "$OUT/frames.nv12" && common+=(--frames "$OUT/frames.nv12")
    fi
    for model in "$SMALL" "$YOLOV8S"; do
        name=torch-$(basename "$model" .onnx)
        [ -f "$model" ] || { missing "== $name: there is no $model."; continue; }
        rival "$name-1" tests/bench/torch_chain.py chain "$model" "${common[@]}"
        rival "$name-16" tests/bench/torch_chain.py chain "$model" "${common[@]}" --batch 16
        DRAW=false LIVE=0 streams "$name-ours" "$model" streams=16 batch=16 decoded=true
        rival "$name-staged" tests/bench/torch_chain.py chain "$model" "${common[@]}" --staged
    done
}

row_sahi() {
    local model=$SMALL side=512 pictures=61 common=(--seconds "$LENGTH" --repeats "$REPEATS" --device "$DEVICE") ours decoded
    if [ ! -f "$UHD" ]; then
        missing "== sahi: there is no $UHD, which tests/gpu/pack.sh makes."
        return
    fi
    # Slices of the model's size, and the whole frame.
    [ ! -f "$WORK/shapes-640.onnx" ] || model=$WORK/shapes-640.onnx side=640 pictures=33
    if [ "$DEVICE" = cuda ]; then
        CLIP=$UHD step frames-uhd frames 8 3840 2160 "$OUT/uhd.nv12" && common+=(--frames "$OUT/uhd.nv12")
        [ ! -f "${UHD%.*}.json" ] || common+=(--truth "${UHD%.*}.json")
    fi
    rival sahi tests/bench/sahi_chain.py "$model" "${common[@]}" --slice-size "${side}x$side" --slice-overlap 0.2
    ours="preprocess=slice-size=${side}x$side,slice-overlap=0.2,slice-frame=true"
    for decoded in true false; do
        CLIP=$UHD DRAW=false LIVE=0 streams "sahi-ours-$decoded" "$model" streams=1,4 "batch=$pictures" "$ours" \
            "decoded=$decoded"
    done
}

row_nms() {
    local properties
    read -ra properties <<<"$(full)"
    # The program needs no GStreamer to run, but its libraries; Python must not get them.
    cat >"$OUT/gpu_nms" <<END
#!/usr/bin/env bash
$(declare -p K LIBS WORK)
$(declare -f native bundle in26)
$GSTREAMER "$PROGRAMS/bench_gpu_nms" "\$@"
END
    chmod +x "$OUT/gpu_nms"
    # Heads go through files, which every GStreamer must see.
    TMPDIR=$OUT step nms timeout --kill-after=10 "$LIMIT" "$PYTHON" tests/bench/gpu_nms.py "$OUT/gpu_nms" --json "$OUT/nms.jsonl" "${properties[@]}"
}

row_preprocess() {
    bench kernels gpu_kernels
    rival preprocess tests/bench/torch_chain.py preprocess --repeats "$REPEATS"
}

row_gallery() {
    bench gallery gpu_gallery && grep '^{' "$OUT/gallery.log" >"$OUT/gallery.jsonl"
}

row_soak() {
    local properties kind each models passed second
    read -ra properties <<<"$(full) $BACKEND optimization-level=$LEVEL"
    for kind in $KINDS; do
        models=() passed=false second=()
        for each in ${kind//,/ }; do
            case $each in
                segment) models+=("$SEGMENT") ;;
                track+second) models+=("$SMALL") second=("second=$CLASSIFY") ;;
                *) models+=("$SMALL") ;;
            esac
        done
        LIMIT=$((SOAK + 300)) bench "soak-$kind" soak "$CLIP" "${models[@]}" "kind=$kind" "${second[@]}" "streams=16" "seconds=$SOAK" \
            "stay=$STAY" "${properties[@]}" && passed=true
        "$PYTHON" -c '
import json, sys
print(json.dumps({"row": "soak", "kind": sys.argv[1], "passed": sys.argv[2] == "true", "said": sys.argv[3]}))
' "$kind" "$passed" "$(tail -n 1 "$OUT/soak-$kind.log" 2>/dev/null)" >"$OUT/soak-$kind.jsonl"
    done
}

row_bars() {
    :
}

# ---------------------------------------------------------------------------- all of it

ROWS=("$@")
[ $# -gt 0 ] || ROWS=(decode engine small yolov8s segment second reid swap prompts serve python torch sahi nms preprocess gallery soak)
for each in "${ROWS[@]}"; do
    if ! declare -F "row_$each" >/dev/null; then
        echo "There is no row $each; tests/bench/gpu.sh names them in its first lines." >&2
        exit 2
    fi
done

GSTREAMER=${GSTREAMER:-$(gstreamers_here | head -n 1)}
[ -n "$GSTREAMER" ] || { echo "There is no GStreamer here, neither gst-launch-1.0 nor a bundle in $K." >&2; exit 2; }
mkdir -p "$OUT" ${LOGS:+"$LOGS"}
if [ -n "${PROGRAMS:-}" ]; then
    PROGRAMS=$(cd "$PROGRAMS" && pwd) || exit 2
elif [ -f "$BIN/bin.tar.xz" ]; then
    # Once is enough: rows may be run in several calls.
    [ -x "$WORK/bench_streams" ] && [ ! "$BIN/bin.tar.xz" -nt "$WORK/bench_streams" ] || { unpack && touch "$WORK/bench_streams"; } || exit 2
    PROGRAMS=$WORK
else
    echo "There is no $BIN/bin.tar.xz, which tests/gpu/pack.sh makes, and PROGRAMS names no folder." >&2
    exit 2
fi
SMALL=$WORK/shapes.onnx YOLOV8S=${YOLOV8S:-$WORK/yolov8s.onnx} SEGMENT=${SEGMENT:-$WORK/yolov8n-seg.onnx}
CLASSIFY=${CLASSIFY:-$WORK/yolov8n-cls.onnx} EMBED=${EMBED:-$WORK/yolov8n-embed.onnx} CLIP=${CLIP:-$WORK/camera.mp4}
cp tests/models/shapes.onnx "$SMALL"
[ -f "$CLIP" ] || { CLIP=tests/data/sample.mp4 && echo "The 1080p clip is not here; $CLIP is used instead." >&2; }
CROWD=${CROWD:-$WORK/crowd.mp4} UHD=${UHD:-$WORK/uhd.mp4}
[ -f "$CROWD" ] || { CROWD=$CLIP && echo "The clip of a crowd is not here; $CROWD is used instead." >&2; }
if nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null; then
    # The CPU must not take over unseen.
    DEVICE=cuda BACKEND=backend=tensorrt
else
    DEVICE=cpu BACKEND=''
    echo "There is no GPU here, so the figures are those of the CPU and mean nothing." >&2
fi

for each in "${ROWS[@]}"; do
    begun=$SECONDS
    "row_$each"
    echo "=== row $each: $((SECONDS - begun)) s"
done
"$PYTHON" tests/bench/gpu_bars.py "$OUT" "$JSON" || FAILED=1
[ "$FAILED" = 0 ]
