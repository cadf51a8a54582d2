#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Renders the pictures of the pages: docs/images/*.jpg, each a frame of a clip in tests/data with what the plugin draws on it.
#
#   GST_PLUGIN_PATH=target/release docs/images.sh            all of them
#   GST_PLUGIN_PATH=target/release docs/images.sh zones      one
#
# Those of docs/film.md, whose names begin with film-, are what commands print; they need what `cargo build --release` makes.
#
# They are rendered by hand and committed. A minute on the CPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# picture NAME FRAME CLIP ELEMENTS…: the frame behind these elements, as JPEG. multifilesink keeps the last file alone.
picture() {
    local name=$1 frame=$2 clip=$3 folder
    shift 3
    [ -z "$WANTED" ] || [ "$WANTED" = "$name" ] || return 0
    folder=$(mktemp -d)
    gst-launch-1.0 --quiet filesrc location="tests/data/$clip.mp4" ! decodebin ! videoconvert ! "$@" ! identity eos-after=$((frame + 2)) \
        ! videoconvert ! jpegenc quality=80 ! multifilesink location="$folder/%d.jpg" max-files=1
    mv "$folder"/*.jpg "docs/images/$name.jpg"
    rmdir "$folder"
    echo "docs/images/$name.jpg: $(stat --format %s "docs/images/$name.jpg") bytes"
}

# terminal NAME LINES SHOWN COMMAND…: what a command prints, in a folder of its own; its files stay for the next one.
terminal() {
    local name=$1
    shift
    [ -z "$WANTED" ] || [ "$WANTED" = "$name" ] || return 0
    (cd "$FILM" && /usr/bin/python3 "$ROOT/docs/terminal.py" "$ROOT/docs/images/$name.jpg" "$@")
    echo "docs/images/$name.jpg: $(stat --format %s "docs/images/$name.jpg") bytes"
}

WANTED=${1:-} ROOT=$PWD FILM=$(mktemp -d)
mkdir -p docs/images
TESTS=tests/models
DETECT=(trtpreprocess ! trtinfer "model-file=$TESTS/shapes.onnx" ! trtnms)
TRACK=("${DETECT[@]}" draw=false score-threshold=0.1 ! trttrack)
ZONES=$(mktemp --suffix .json)
trap 'rm -rf "$ZONES" "$FILM"' EXIT
cat >"$ZONES" <<'END'
{"frame-width": 640, "frame-height": 360,
 "zones": [{"id": "hall", "points": [[25, 110], [290, 70], [290, 340], [25, 340]]}],
 "tripwires": [{"id": "gate", "points": [[400, 20], [400, 340]]}]}
END

picture boxes 120 sample "${DETECT[@]}"
picture masks 40 shapes trtpreprocess ! trtinfer "model-file=$TESTS/shapes-seg.onnx" ! trtnms
picture rotated 40 shapes trtpreprocess ! trtinfer "model-file=$TESTS/shapes-obb.onnx" ! trtnms
picture poses 40 pose trtpreprocess ! trtinfer "model-file=$TESTS/figures-pose.onnx" ! trtnms
picture classes 20 classes trtpreprocess ! trtinfer "model-file=$TESTS/shapes-cls.onnx" ! trtnms
picture semantic 40 shapes trtpreprocess ! trtinfer "model-file=$TESTS/shapes-sem.onnx" ! trtnms
picture depth 20 rooms trtpreprocess ! trtinfer "model-file=$TESTS/rooms-depth.onnx" ! trtnms mask-alpha=0.8
picture tracks 120 sample "${TRACK[@]}" ! trtoverlay trail-length=40
picture zones 200 sample "${TRACK[@]}" ! trtanalytics "config-file=$ZONES" ! trtoverlay
picture film-privacy 120 sample "${DETECT[@]}" draw=false ! trtoverlay blur=disc

# All is built before, so that what cargo says is short.
PROGRAM=$ROOT/target/release/gst-trt
ln -s "$ROOT/tests" "$FILM/tests"
terminal film-detect 12 "pipelines/detect.sh" "$ROOT/pipelines/detect.sh" tests/data/sample.mp4 tests/models/shapes.onnx
# Of a long line the beginning says enough.
terminal film-json 8 "head -n 1 sample-boxes.jsonl" bash -o pipefail -c 'head -n 1 sample-boxes.jsonl | cut -c 1-760'
terminal film-info 16 "gst-trt info tests/models/shapes.onnx" "$PROGRAM" info tests/models/shapes.onnx
terminal film-track 10 "gst-trt detect tests/data/sample.mp4 --model tests/models/shapes.onnx --track" \
    "$PROGRAM" detect tests/data/sample.mp4 --model tests/models/shapes.onnx --track
