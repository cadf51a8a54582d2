#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Runs every Ultralytics architecture through our program and compares its boxes with ONNX Runtime's; then videos, whose boxes
# are compared with those of Ultralytics' own predict. Models of other families are compared with their packages' post-processing.
# The service asks a real vision-language server questions. Trained networks that packages ship are compared with these (packages.sh).
# Last it plays the recordings of all that, which tests/run.sh does without these packages (play.py); where versions changed, it records
# again (record.py), to be committed.
#
#   tests/zoo/run.sh [PROGRAM [compare.py options...]]     PROGRAM: default target/release/gst-trt
#
# Needs Python 3.11 or newer with venv. The first run downloads about 2.3 GB of packages (torch, paddle) and keeps them, and the exported
# models, in ${XDG_CACHE_HOME:-~/.cache}/gst-plugin-trt/zoo; a later run only compares. No model weights are downloaded. For the
# videos a small network is trained each time, which takes some minutes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=${1:-$here/../../target/release/gst-trt}
shift || true
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/zoo
venv=$cache/venv
old=$cache/old-release
models=$cache/models
python=$venv/bin/python

if [ ! -x "$program" ]; then
    echo "zoo: $program is not there; cargo build --release --package gst-trt" >&2
    exit 2
fi

# What a folder was made from is kept inside it, so that an interrupted or outdated installation is made again.
wanted=$(cat "$here"/requirements*.txt; python3 --version)
if [ "$(cat "$venv/made-from" 2>/dev/null)" != "$wanted" ]; then
    echo "zoo: installing the packages into $venv"
    rm -rf "$venv" "$old"
    mkdir -p "$cache"
    python3 -m venv "$venv"
    install=("$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile)
    "${install[@]}" --requirement "$here/requirements.txt"
    "${install[@]}" --requirement "$here/requirements-others.txt"
    CC=true CXX=true LDSHARED=true "${install[@]}" --no-build-isolation --requirement "$here/requirements-sources.txt"
    "${install[@]}" --requirement "$here/requirements-old.txt" --target "$old"
    printf '%s\n' "$wanted" >"$venv/made-from"
    echo "zoo: installed in $SECONDS s, $(du -sh "$venv" | cut -f1)"
fi

started=$SECONDS
echo "zoo: exporting into $models"
"$python" -W ignore "$here/export.py" "$models"
PYTHONPATH=$old "$python" -W ignore "$here/export.py" "$models"
echo "zoo: exported in $((SECONDS - started)) s, $(du -sh "$models" | cut -f1)"

echo "zoo: comparing with $program"
"$python" "$here/compare.py" "$models" --detect "$program" "$@"

if [ $# = 0 ]; then
    videos=$(mktemp -d)
    # At the same time as the rest: either uses one processor for the larger part.
    "$python" -W ignore "$here/others.py" "$cache/others" --detect "$program" >"$videos/others.log" 2>&1 &
    others=$!
    trap 'kill "$others" 2>/dev/null || true; rm -rf "$videos"' EXIT

    echo "zoo: an INT8 copy of our own model, by rten and by ONNX Runtime"
    gst-launch-1.0 --quiet filesrc location="$here/../data/sample.mp4" ! decodebin ! videorate ! video/x-raw,framerate=3/1 ! videoconvert \
        ! jpegenc ! multifilesink location="$videos/%03d.jpg"
    "$program" quantize "$here/../models/shapes-v8.onnx" "$videos"/*.jpg --output "$videos/int8.onnx" --python "$python"
    library=$(ls "$venv"/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*)
    for backend in rten onnxruntime; do
        ORT_DYLIB_PATH=$library "$program" detect "$here/../data/sample.mp4" --model "$videos/int8.onnx" --backend "$backend" --no-video \
            --json "$videos/int8.jsonl" 2>/dev/null
        python3 "$here/../data/score.py" "$here/../data/sample.json" "$videos/int8.jsonl" --min-precision 0.98 --min-recall 0.98 --min-iou 0.85
    done

    echo "zoo: questions of the service to a real server"
    "$python" -W ignore "$here/questions.py" "$videos/questions" "$program" 2>/dev/null

    echo "zoo: detectors with words as an input"
    "$python" -W ignore "$here/prompts.py" "$cache/prompts" --detect "$program"

    echo "zoo: comparing videos"
    "$python" -W ignore "$here/video.py" "$videos" --detect "$program"

    echo "zoo: models of other families"
    status=0
    wait "$others" || status=1
    cat "$videos/others.log"

    echo "zoo: trained networks of packages"
    "$here/packages.sh" "$program" || status=1

    # Those whose versions are no longer the installed ones are made again: they are to be committed.
    echo "zoo: recordings"
    "$python" -W ignore "$here/record.py" "$models" "$cache/others" || status=1
    "$python" "$here/play.py" "$program" || status=1
    exit "$status"
fi
