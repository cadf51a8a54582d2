# SPDX-License-Identifier: MPL-2.0
# shellcheck shell=bash
# Rows of the program gst-trt: its files, its start, its service, and what it does when the GPU is lost. tests/gpu/run.sh sources this.

downloaded() {
    "$1" "$WORK/gst-trt" detect "$WORK/sample.mp4" --model "$(model 16)" --backend tensorrt --output "$WORK/$1-drawn.mp4" --json "$WORK/$1-drawn.jsonl" \
        --infer "$(full) $(precision 16)" || return
    ls -l "$WORK/$1-drawn.mp4"
    [ "$(wc -c <"$WORK/$1-drawn.mp4")" -gt 100000 ]
}

row_download() {
    local gst
    for gst in $GSTREAMERS; do
        judge "cudadownload ! x264enc" "$gst" "a file" downloaded "$gst"
    done
}

built_ahead() {
    rm -rf "$WORK/cache-ahead"
    local options=(--precision fp16 --optimization-level 1 --engine-cache "$WORK/cache-ahead" --infer "$(full)")
    # shellcheck disable=SC2153  # tests/gpu/run.sh has MODEL
    "$1" "$WORK/gst-trt" build "$MODEL" "${options[@]}" && "$1" "$WORK/gst-trt" build "$MODEL" "${options[@]}" | grep "found in the cache"
}

# Python must not get the GStreamer's libraries, so both programs are scripts, in $WORK/start-GSTREAMER.
scripts() {
    local program
    mkdir -p "$WORK/start-$1"
    for program in gst-launch-1.0 "$WORK/gst-trt"; do
        cat >"$WORK/start-$1/$(basename "$program")" <<END
#!/usr/bin/env bash
$(declare -p K LIBS WORK)
$(declare -f native bundle in26)
$1 $program "\$@"
END
    done
    chmod +x "$WORK/start-$1"/*
}

started() {
    local words
    scripts "$1"
    read -ra words <<<"$(full) $(precision 16)"
    PATH=$WORK/start-$1:$PATH python3 tests/bench/start.py "$WORK/start-$1/gst-trt" "$WORK/sample.mp4" "$(model 16)" \
        --backend tensorrt --infer "${words[*]}"
}

row_start() {
    local gst
    for gst in $GSTREAMERS; do
        judge "first boxes of gst-trt detect" "$gst" "≤ 0.30 s from the start" started "$gst"
    done
}

# What play.py writes must be where every GStreamer sees it. An engine is built for each model.
recordings() {
    scripts "$1"
    TMPDIR=$WORK PATH=$WORK/start-$1:$PATH python3 tests/zoo/play.py "$WORK/start-$1/gst-trt" --first --backend tensorrt \
        --infer "$(full) optimization-level=0"
}

row_zoo() {
    judge "recordings of other exporters" "${GSTREAMERS%% *}" "as the packages have it" recordings "${GSTREAMERS%% *}"
}

# Python must not get the GStreamer's libraries, so the program is a script.
served() {
    local gst=$1 sources=$2 model=$WORK/yolov8s.onnx batch=16 clip=hd
    [ "${SERVE_RTSP:-false}" = false ] || clip=camera
    # The small model takes no batches.
    [ -f "$model" ] || model=$MODEL batch=1
    mkdir -p "$WORK/serve-$gst"
    # The script lasts as long as the program that it starts, and has its status.
    cat >"$WORK/serve-$gst/gst-trt" <<END
#!/usr/bin/env bash
trap : TERM
$(declare -p K LIBS WORK)
$(declare -f native bundle in26)
$gst env GST_DEBUG="\${GST_DEBUG:-}" GST_DEBUG_NO_COLOR=1 "$WORK/gst-trt" "\$@"
END
    chmod +x "$WORK/serve-$gst/gst-trt"
    SERVE_TMP=$WORK/serve-$gst python3 tests/bench/serve_sources.py "program=$WORK/serve-$gst/gst-trt" "clip=$WORK/$clip.mp4" \
        "rtsp=${SERVE_RTSP:-false}" "sync=${SERVE_SYNC:-true}" "model=$model" "batch=$batch" "sources=$sources" "gpus=${SERVE_GPUS:-1}" \
        "seconds=${SERVE_SECONDS:-30}" "infer=$(full)precision=fp16 optimization-level=${LEVEL:-3}" \
        "json=$WORK/serve-$gst/$sources.json" "journal=$WORK/serve-$gst/$sources.journal"
}

row_serve() {
    local gst sources name list=${SERVE_SOURCES:-16}
    for gst in $GSTREAMERS; do
        for sources in ${list//,/ }; do
            name="serve $sources sources"
            [ "${SERVE_RTSP:-false}" = false ] || name="serve $sources cameras"
            judge "$name" "$gst" "≥ 29.5 fps each, a CUDA context for each of ${SERVE_GPUS:-1} GPUs" served "$gst" "$sources"
            sed 's/^/      /' "$WORK/log-${name//[^a-z0-9]/-}-$gst"
        done
    done
}

# become FOLDER GSTREAMER: scripts there that become the program, for who watches its process or sends it signals. Where it crashes
# it says so.
become() {
    local program
    mkdir -p "$1"
    for program in gst-launch-1.0 "$WORK/gst-trt"; do
        cat >"$1/$(basename "$program")" <<END
#!/usr/bin/env bash
$(declare -p K LIBS WORK)
$(declare -f native bundle)
PATH=\${PATH//"$1:"/}
while IFS= read -r -d '' each; do export "\$each"; done < <($2 env -0)
LD_PRELOAD=$WORK/libcrash.so exec $program "\$@"
END
        chmod +x "$1/$(basename "$program")"
    done
}

# has_rtsp NAME GSTREAMER: whether it reads cameras; says so where it does not.
has_rtsp() {
    "$2" gst-inspect-1.0 --exists rtspsrc || { skip "$1" "$2 has no rtspsrc"; false; }
}

shown() {
    local folder=$WORK/outputs-$1
    become "$folder" "$1"
    python3 tests/gpu/outputs.py "program=$folder/gst-trt" "launch=$folder/gst-launch-1.0" "clip=$WORK/hd.mp4" \
        "model=$(model 16)" "infer=$(full)$(precision 16)" "folder=$folder"
}

row_outputs() {
    local gst
    for gst in $GSTREAMERS; do
        # In a root folder of its own the program has another number.
        if [ "$gst" = in26 ] || ! has_rtsp "videos of serve" "$gst"; then continue; fi
        judge "videos of serve" "$gst" "frames of all, status 0" shown "$gst"
    done
}

# What needs no GStreamer: outputs, byte for byte. Then boxes and fps of the program.
kserve() {
    local gst=$1 folder=$WORK/kserve-$1 words
    words="$(full)precision=fp16 optimization-level=${LEVEL:-3}"
    "$gst" env REQUIRE_GPU=1 GPU_ONNX="$MODEL" TRT_PROPERTIES="$words" "$WORK/core" kserve_gpu::gpu_ --nocapture --test-threads 1 || return
    scripts "$gst"
    mkdir -p "$folder"
    cat >"$folder/server" <<END
#!/usr/bin/env bash
$(declare -p K LIBS WORK)
$(declare -f native bundle in26)
$gst env KSERVE_MODEL="\$KSERVE_MODEL" TRT_PROPERTIES="\$TRT_PROPERTIES" "$WORK/core" "\$@"
END
    chmod +x "$folder/server"
    python3 tests/gpu/kserve_cuda.py "program=$WORK/start-$gst/gst-trt" "server=$folder/server" "clip=$WORK/hd.mp4" "model=$MODEL" \
        "infer=$words" "folder=$folder"
}

row_kserve() {
    local gst=${GSTREAMERS%% *}
    judge "a model on a server" "$gst" "the same outputs and boxes" kserve "$gst"
    grep -a ' a request$\| fps' "$WORK/log-a-model-on-a-server-$gst" | sed 's/^/      /'
}

# The scripts set CUDA_INJECTION64_PATH for the program alone.
dead() {
    local gst=$1 program words
    mkdir -p "$WORK/dead-$gst"
    for program in gst-launch-1.0 "$WORK/gst-trt"; do
        cat >"$WORK/dead-$gst/$(basename "$program")" <<END
#!/usr/bin/env bash
$(declare -p K LIBS WORK)
$(declare -f native bundle in26)
$gst env CUDA_INJECTION64_PATH="\$DEAD_INJECTION" BREAK_WHEN="\$BREAK_WHEN" BREAK_BY="\$BREAK_BY" $program "\$@"
END
        chmod +x "$WORK/dead-$gst/$(basename "$program")"
    done
    words=$(full)$(precision 16)
    python3 tests/gpu/dead.py "$2" "program=$WORK/dead-$gst/gst-trt" "launch=$WORK/dead-$gst/gst-launch-1.0" "library=$WORK/libbreak.so" \
        "clip=$WORK/hd.mp4" "model=$(model 16)" "infer=$words" "folder=$WORK/dead-$gst"
}

row_dead() {
    local gst
    for gst in $GSTREAMERS; do
        judge "a lost GPU: serve" "$gst" "503, all published, status 75" dead "$gst" serve
        judge "a lost GPU: detect" "$gst" "status 75" dead "$gst" detect
        judge "a lost GPU: a pipeline" "$gst" "one error, no hang" dead "$gst" launch
    done
}

endured() {
    local gst=$1 folder=$WORK/endure-$1 words
    become "$folder" "$gst"
    words="$(full)precision=fp16 optimization-level=${LEVEL:-3}"
    "$folder/gst-trt" build "$MODEL" --infer "$words" || return
    PATH=$folder:$PATH python3 tests/bench/endure --cameras 64 --fps 15 --seconds "${ENDURE_SECONDS:-600}" --faults "${ENDURE_FAULTS:-60}" \
        --program "$folder/gst-trt" --backend tensorrt --model "$MODEL" --infer "$words" \
        --report "$folder/report.md" --json "$folder/report.json" --journal "$folder/journal"
}

row_endure() {
    local gst
    for gst in $GSTREAMERS; do
        # In a root folder of its own the program has another number.
        [ "$gst" != in26 ] || continue
        has_rtsp "hours of faults, 64 cameras" "$gst" || continue
        judge "hours of faults, 64 cameras" "$gst" "as tests/bench/endure has it" endured "$gst"
        sed 's/^/      /' "$WORK/log-hours-of-faults--64-cameras-$gst"
    done
}

row_program() {
    local gst
    for gst in $GSTREAMERS; do
        judge "gst-trt doctor" "$gst" "status 0" "$gst" "$WORK/gst-trt" doctor --gpu ${TRT:+--trt-library "$TRT"}
        judge "gst-trt build, twice" "$gst" "found in the cache" built_ahead "$gst"
        judge "gst-trt bench" "$gst" "figures" "$gst" "$WORK/gst-trt" bench "$(model 16)" --backend tensorrt --infer "$(full) $(precision 16)"
    done
}
