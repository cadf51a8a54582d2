#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Every check of this repository that one machine can do; tests/compat.sh does newer GStreamers.
#
#   tests/run.sh          everything
#   tests/run.sh quick    without the book, the Python package, the model zoo, the 1080p clip, valgrind and cargo-c
#
# TRT_SETUP=skip installs no Debian packages.  The first failing step ends the run.
set -euo pipefail

# shellcheck source=pipelines/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../pipelines/setup.sh"

case ${1:-full} in
    full | quick) MODE=${1:-full} ;;
    --help | -h) sed -n '/^set /q; /^#!/d; /SPDX/d; s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "the argument is quick or nothing, not \"$1\"." ;;
esac

SCRATCH=$TARGET/end-to-end

# Each GStreamer version brings its feature; the crate cannot be built with one of a later version.
features_here() {
    local version
    for version in 1.24 1.26 1.28; do
        ! pkg-config --atleast-version=$version gstreamer-1.0 || echo "v${version/./_}"
    done
}

files_ending_in() {
    find "$ROOT" -path "$TARGET" -prune -o -path "$ROOT/target" -prune -o -name .git -prune -o \
        -type f -name "*$1" -print
}

check_scripts() {
    local scripts
    mapfile -t scripts < <(files_ending_in .sh)
    (cd "$ROOT" && shellcheck --external-sources "${scripts[@]}" .ci/run)
}

check_python() {
    local scripts
    mapfile -t scripts < <(files_ending_in .py)
    python3 -c '
import ast, sys
for path in sys.argv[1:]:
    ast.parse(open(path, encoding="utf-8").read(), path)
' "${scripts[@]}"
}

# Each source file names its licence in one of its first lines.
check_headers() {
    local ending file status=0
    for ending in .rs .cu .cuh .c .cpp .h .py .sh .js .css .html .service; do
        while IFS= read -r file; do
            grep -qF "SPDX-License-Identifier: MPL-2.0" <(head -n 3 "$file") || { echo "$file has no SPDX line"; status=1; }
        done < <(files_ending_in "$ending")
    done
    return "$status"
}

clippy() {
    cargo clippy --locked --workspace --all-targets "$@" -- --deny warnings
}

lint() {
    local feature
    step "clippy" clippy
    for feature in $(features_here); do
        step "clippy, $feature" clippy --features "$feature"
    done
}

# The core by itself: what it depends on, and the tests that need no pipeline.
without_gstreamer() {
    local found
    found=$(cargo tree --locked --package gsttrt-capi --edges normal,build --prefix none | grep -E '^(gst|glib|gobject)[a-z-]* ' |
        grep -vE '^(gst-plugin-trt|gsttrt-capi) ') && { echo "the C library depends on: $found"; return 1; }
    cargo clippy --locked --no-default-features --all-targets -- --deny warnings
    cargo nextest run --locked --no-default-features --lib --test session --test nms --test models_refused --test preprocess_gold
}

# As applications see it. From nothing, or pages of items that were removed would stay.
document() {
    rm -rf "${CARGO_TARGET_DIR:-target}/doc"
    RUSTDOCFLAGS=--deny=warnings cargo doc --locked --package gst-plugin-trt --package gsttrt-streaming --no-deps --quiet
}

# detect_and_score NAME CLIP TRUTH: the main job on a clip, its boxes compared with the true ones.
detect_and_score() {
    local boxes=$SCRATCH/$1.jsonl
    pipelines/detect.sh --output "$SCRATCH/$1.mp4" --json "$boxes" "$2"
    python3 tests/data/score.py "$3" "$boxes" --min-precision 0.98 --min-recall 0.98 --min-iou 0.85
}

detect_sample() {
    detect_and_score sample tests/data/sample.mp4 tests/data/sample.json
}

detect_poses() {
    local poses=$SCRATCH/poses.jsonl
    pipelines/detect.sh --no-video --json "$poses" tests/data/pose.mp4 tests/models/figures-pose.onnx
    python3 tests/data/score_pose.py tests/data/pose.json "$poses" --min-ap 0.95
}

# score_shapes TASK CLIP MODEL MINIMUM VALUE...: a model's results on a clip of shapes, compared with the truth.
score_shapes() {
    local results=$SCRATCH/$1.jsonl
    pipelines/detect.sh --no-video --json "$results" "tests/data/$2.mp4" "tests/models/$3.onnx"
    python3 tests/data/score_shapes.py "$1" "tests/data/$2.json" "$results" "${@:4}"
}

detect_shapes() {
    score_shapes masks shapes shapes-seg --min-ap 0.95
    score_shapes rotated shapes shapes-obb --min-ap 0.95
    score_shapes classes classes shapes-cls --min-top1 0.98
}

detect_1080p() {
    python3 tests/data/render.py --width 1920 --height 1080 --frames 150 --seed 2 --kbps 6000 \
        --out "$SCRATCH/hd-clip.mp4" --truth "$SCRATCH/hd-clip.json"
    detect_and_score hd "$SCRATCH/hd-clip.mp4" "$SCRATCH/hd-clip.json"
}

# Frames from avcodec look uninitialised to valgrind, and are left out.
under_valgrind() {
    cargo test --locked --quiet --workspace --config 'target."cfg(unix)".runner="valgrind --quiet --error-exitcode=9"' \
        "$@" -- --test-threads 1 --skip examples --skip the_detector_finds --skip on_the_gpu
}

# Tests of what is unsafe, in two groups at the same time: valgrind uses one core.
check_memory() {
    local log=$SCRATCH/valgrind.log status=0
    under_valgrind --lib >"$log" 2>&1 &
    under_valgrind --test capi --test session --test frames --test trtpreprocess --test trtnms || status=1
    wait $! || status=1
    cat "$log"
    return "$status"
}

trap count_steps EXIT
setup_tests
cd "$ROOT"
mkdir -p "$SCRATCH"

step "format" cargo fmt --all --check
step "shell scripts" check_scripts
step "Python scripts" check_python
step "dependencies" tests/dependencies.py
step "SPDX lines" check_headers
step "kernels are what their sources give" kernels/build.sh --check
lint
# Tests load target/debug/libgsttrt.so as applications do; the test runner alone does not put it there.
step "build" cargo build --locked --workspace --lib --bins --examples
step "tests" cargo nextest run --locked --workspace
step "without GStreamer" without_gstreamer
step "examples in the documentation" cargo test --locked --workspace --doc --quiet
step "documentation" document
step "public API" tests/api.py
step "detect.sh on the sample clip" detect_sample
step "detect.sh on a clip of figures" detect_poses
step "detect.sh on clips of shapes" detect_shapes
step "recordings of other exporters" tests/zoo/play.py "$TARGET/debug/gst-trt"
if [ "$MODE" = full ]; then
    step "Python package" python/test.sh
    step "mdbook" need_mdbook
    step "book" tests/book.py
    step "cargo-c" need_cargo_c
    step "installed plugin and C library" tests/install.sh "$SCRATCH/prefix"
    step "memory errors" check_memory
    step "detect.sh on a 1080p clip" detect_1080p
    step "model zoo" tests/zoo/run.sh
fi
