#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Finds objects in a video: installs what is missing, builds the program, runs `gst-trt detect`.
set -euo pipefail

# shellcheck source=pipelines/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
    cat <<'END'
Finds objects in a video: writes the video with boxes drawn on it, and the boxes as JSON lines.

Usage: pipelines/detect.sh [options] [INPUT [MODEL]]

  INPUT   a video file, an image, a folder of images, a URI such as rtsp://, or a camera such as /dev/video0
                                                 (default: tests/data/sample.mp4)
  MODEL   an .onnx model, or a TensorRT .engine  (default: tests/models/shapes.onnx)

Options:
  --output PATH          the video with boxes, or the folder of images (default: ./NAME-boxes.mp4, ./NAME-boxes)
  --json FILE.jsonl      one line of JSON a frame (default: ./NAME-boxes.jsonl)
  --labels FILE          names of the classes, one a line, if the model has none of its own
  --backend BACKEND      auto, tensorrt, cpu, openvino, onnxruntime, rten (default: auto = the GPU if there is one)
  --preprocess "P=V …"   more properties of trtpreprocess, as in a launch line
  --infer "P=V …"        … of trtinfer
  --nms "P=V …"          … of trtnms
  --track[=TRACKER]      give objects ids: bytetrack, botsort-iou, ocsort, iou or boosttrack
  --slices COLUMNSxROWS  look at slices of large frames too
  --frames COUNT         stop after so many frames
  --no-video             write only the JSON lines
  --help                 show this

Examples:
  pipelines/detect.sh
  pipelines/detect.sh street.mp4 yolo11n.onnx
  pipelines/detect.sh --backend cpu --no-video --json street.jsonl street.mp4 yolo11n.onnx
  pipelines/detect.sh --nms "score-threshold=0.5" street.mp4 yolo11n.onnx

The first run installs missing Debian packages (needs root or sudo) and builds the program, the plugin and the C library,
which takes some minutes. GST_TRT_PROFILE names cargo's profile, release by default.
`gst-inspect-1.0 trtnms` lists properties; docs/program.md has the other subcommands of the program that is built, gst-trt.
END
}

misused() {
    fail "$1; see: pipelines/detect.sh --help"
}

need_file() {
    [ ! -d "$2" ] || fail "the $1 $2 is a folder; give one file."
    [ -f "$2" ] || fail "the $1 $2 does not exist${3:+; $3}."
    [ -r "$2" ] || fail "the $1 $2 cannot be read; check its permissions."
}

need_input() {
    [[ $1 != *://* ]] || return 0
    [ -e "$1" ] || fail "the input $1 does not exist; give a file, a folder, a URI such as rtsp://, or a camera such as /dev/video0."
    [ -r "$1" ] || fail "the input $1 cannot be read; check its permissions."
}

# Checked before the build, which takes minutes.
need_folder_of() {
    [ -d "$(dirname "$1")" ] || fail "the folder of $1 does not exist; make it or choose another name."
}

input='' model='' output='' json='' labels='' no_video=''
passed_on=()

while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --no-video) no_video=yes; shift ;;
        --track | --track=*) passed_on+=("$1"); shift ;;
        --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
        --output | --json | --labels | --backend | --slices | --frames | --preprocess | --infer | --nms)
            [ $# -ge 2 ] || misused "$1 needs a value"
            case $1 in
                --output) output=$2 ;;
                --json) json=$2 ;;
                --labels) labels=$2 ;;
                *) passed_on+=("$1" "$2") ;;
            esac
            shift 2 ;;
        -*) misused "unknown option $1" ;;
        *)
            if [ -z "$input" ]; then input=$1
            elif [ -z "$model" ]; then model=$1
            else misused "one INPUT and one MODEL at most, \"$1\" is too many"
            fi
            shift ;;
    esac
done

input=${input:-$ROOT/tests/data/sample.mp4}
model=${model:-$ROOT/tests/models/shapes.onnx}
need_input "$input"
need_file model "$model" "give one as the second argument"
[ -z "$output" ] || need_folder_of "$output"
[ -z "$json" ] || need_folder_of "$json"
[ ! "$output" -ef "$input" ] || fail "--output would overwrite the input $input; choose another name."
if [ -n "$labels" ]; then
    need_file "label file" "$labels"
    passed_on+=(--labels "$labels")
fi
[ -z "$json" ] || passed_on+=(--json "$json")
if [ -n "$no_video" ]; then
    passed_on+=(--no-video)
elif [ -n "$output" ]; then
    passed_on+=(--output "$output")
fi

profile=${GST_TRT_PROFILE:-release}
folder=$TARGET/$profile
[ "$profile" != dev ] || folder=$TARGET/debug
build=(cargo build --manifest-path "$ROOT/Cargo.toml" --locked --profile "$profile" --workspace --lib --bins)
setup_build "${build[@]}" --keep-going
[ -x "$folder/gst-trt" ] || echo "Building the program, the plugin and the C library: some minutes, with cargo's progress below."
"${build[@]}" </dev/null || fail "the build failed; cargo's messages are above."
cat <<END
Built. For gst-launch-1.0 and applications, in this shell:
  export GST_PLUGIN_PATH=$folder
Now the objects in $input:
END
exec "$folder/gst-trt" detect --model "$model" "${passed_on[@]}" -- "$input"
