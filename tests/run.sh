#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Tests of this repository that one machine can do.
#
#   tests/run.sh             all that a change of ours can break, in minutes: one build, all tests, the clips
#   tests/run.sh full        that, and what needs gigabytes or an hour: packages, other Debians, valgrind, foreign exporters
#   tests/run.sh only WORD…  of what only "full" runs, the steps whose names have one of the words, such as: only Ray "model zoo"
#   tests/run.sh touched     of what only "full" runs, what the last changes can break (see TOUCHES); BASE=COMMIT says since when
#
# TRT_SETUP=skip installs no Debian packages.  The first failing step ends the run.  CONTRIBUTING.md says what each step guards.
set -euo pipefail

# shellcheck source=pipelines/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../pipelines/setup.sh"

case ${1:-all} in
    all | full | touched) MODE=${1:-all} ;;
    only) MODE=only WORDS=("${@:2}") ;;
    --help | -h) sed -n '/^set /q; /^#!/d; /SPDX/d; s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "the argument is full, touched, only or nothing, not \"$1\"." ;;
esac

SCRATCH=$TARGET/end-to-end
# The clips, the Python package and the zoo take the build of the tests.
export GST_TRT_PROFILE=dev
PROGRAM=$TARGET/debug/gst-trt

# Each GStreamer version brings its feature; the crate cannot be built with one of a later version.
features_here() {
    local version
    for version in 1.24 1.26 1.28; do
        ! pkg-config --atleast-version=$version gstreamer-1.0 || echo "v${version/./_}"
    done
}

files_ending_in() {
    git -C "$ROOT" ls-files --cached --others --exclude-standard -- "*$1" | sed "s|^|$ROOT/|"
}

# ---------------------------------------------------------------------------- what every change can break

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

# What was written among the sources by accident, such as a video, stays in the history for good.
check_sizes() {
    local large
    large=$(cd "$ROOT" && git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'find "$@" -maxdepth 0 -size +2M' sh)
    [ -z "$large" ] || { echo "More than 2 MiB: $large"; return 1; }
}

lint() {
    local feature
    cargo clippy --locked --workspace --all-targets -- --deny warnings
    for feature in $(features_here); do
        cargo clippy --locked --workspace --all-targets --features "$feature" -- --deny warnings
    done
}

# All that the steps below run, by one command: of other packages or targets, cargo would compile crates again with other features.
# Tests load target/debug/libgsttrt.so as applications do; the test runner alone does not put it there.
build() {
    cargo build --locked --workspace --lib --bins --examples --tests
}

# test_units FILTER…: those that the filter takes.
test_units() {
    # Three times as many as processors, since most of them wait for pipelines, servers and limits of time.
    # One that fails runs once more, so that a busy machine costs nobody a landing; it is listed.
    cargo nextest run --locked --workspace --test-threads $((3 * $(nproc))) --retries 1 --filterset "$1"
    tests/skipped.py
}

# What the crates without elements and programs are made of, and what their tests read.
CRATES="core publish streaming capi tests docs examples packaging Cargo.toml Cargo.lock .config"

# The C library is the core without GStreamer.
check_dependencies() {
    local found
    tests/dependencies.py
    ! found=$(cargo tree --locked --package gsttrt-capi --edges normal,build --prefix none | grep -E '^(gst|glib|gobject)[a-z-]* ' |
        grep -vE '^gsttrt-(capi|core) ') || { echo "the C library depends on: $found"; return 1; }
}

# As applications see it. From nothing, or pages of items that were removed would stay.
document() {
    rm -rf "$TARGET/doc"
    RUSTDOCFLAGS=--deny=warnings cargo doc --locked --workspace --lib --no-deps --quiet
    tests/api.py
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

# Begins what a later step waits for: it uses one core at a time, as do the steps in between. What it prints is kept until then.
begin() {
    "$@" </dev/null >"$SCRATCH/begun.log" 2>&1 &
    BEGUN=$!
}

begun() {
    local status=0
    wait "$BEGUN" || status=$?
    cat "$SCRATCH/begun.log"
    return "$status"
}

test_all() {
    step "format" cargo fmt --all --check
    step "shell scripts" check_scripts
    step "Python scripts" check_python
    step "SPDX lines" check_headers
    step "sizes of files" check_sizes
    step "dependencies" check_dependencies
    step "keys of the Helm chart" tests/kubernetes/keys.py
    step "versions and bill of materials" tests/release.py
    step_of "kernels are what their sources give" core/kernels core/kernels/build.sh --check
    step "clippy" lint
    step "build" build
    step_of "tests of crates without elements" "$CRATES" test_units "package(/^gsttrt-/)" "${REQUIRE_GPU:-}" "${REQUIRE_ORT:-}" "$(rustc --version)"
    step "tests" test_units "not package(/^gsttrt-/)"
    step "examples in the documentation" cargo test --locked --workspace --doc --quiet
    step "documentation and public API" document
    begin python/test.sh
    step "detect.sh on the sample clip" detect_sample
    step "detect.sh on a clip of figures" detect_poses
    step "detect.sh on clips of shapes" detect_shapes
    step "recordings of other exporters" tests/zoo/play.py "$PROGRAM"
    step "Python package" begun
}

# ---------------------------------------------------------------------------- what only some changes can break

# Builds with optimisation, and what cargo runs of them.
build_release() {
    GST_TRT_PROFILE=release pipelines/detect.sh --no-video --json "$SCRATCH/release.jsonl"
    python3 tests/data/score.py tests/data/sample.json "$SCRATCH/release.jsonl" --min-precision 0.98 --min-recall 0.98 --min-iou 0.85
}

detect_1080p() {
    python3 tests/data/render.py --width 1920 --height 1080 --frames 150 --seed 2 --kbps 6000 \
        --out "$SCRATCH/hd-clip.mp4" --truth "$SCRATCH/hd-clip.json"
    detect_and_score hd "$SCRATCH/hd-clip.mp4" "$SCRATCH/hd-clip.json"
}

# Frames from avcodec look uninitialised to valgrind, so tests that take such are left out.
under_valgrind() {
    PROPTEST_CASES=16 cargo test --locked --quiet --workspace --config 'target."cfg(unix)".runner="valgrind --quiet --error-exitcode=9"' \
        --no-fail-fast "$@" --test-threads 1 --skip examples --skip on_the_gpu \
        --skip the_detector_finds --skip each_task_has_its_results_in_lists
}

# Tests of what is unsafe, in two groups at the same time: valgrind uses one core.
check_memory() {
    local log=$SCRATCH/valgrind.log status=0
    under_valgrind --lib -- >"$log" 2>&1 &
    under_valgrind --test elements -- capi:: session:: frames:: trtpreprocess:: trtnms:: trtnms_drawing:: || status=1
    wait $! || status=1
    cat "$log"
    return "$status"
}

book() {
    need_mdbook
    tests/book.py
}

installed() {
    need_cargo_c
    tests/install.sh "$SCRATCH/prefix"
}

# Destinations that no other step builds, and those whose server is large.
other_destinations() {
    local features=nats,websocket
    [ "${TRT_SETUP:-}" = skip ] || need_packages "a larger server to publish to, and its client" rabbitmq-server python3-pika
    cargo clippy --locked --workspace --all-targets --features "$features" -- --deny warnings
    cargo nextest run --locked --workspace --features "$features" -E 'package(gsttrt-publish) or test(/^trtpublish/)'
    tests/skipped.py
}

# As it is released, with its size.
wheel() {
    GST_TRT_PROFILE=dist python/test.sh
}

# Archives of videos, on a cluster of Ray that has several nodes on this machine.
ray_archives() {
    GST_TRT_RAY=1 python/test.sh test_ray.py test_rows.py
}

# debian_package SUITE: as it is released where all runs; else with the build of the tests, which says the same of what is in it.
debian_package() {
    local profile=dev
    [ "$MODE" != full ] || profile=dist
    GST_TRT_PROFILE=$profile tests/packages.sh "$1"
}

# Each crate packs, and builds from what is packed. In a folder of its own, so that no other build takes what is packed.
publish() {
    local target=$TARGET/publish
    forget_packed_crates "$target"
    cargo publish --locked --workspace --dry-run --allow-dirty --quiet --target-dir "$target"
}

# All that a release hands out, in one folder, but for the image. In "full", all is built already. That the crates build is the step above.
release() {
    local profile=dev folder=$SCRATCH/release
    [ "$MODE" != full ] || profile=dist
    rm -rf "$folder"
    GST_TRT_PROFILE=$profile packaging/release.sh --allow-dirty --no-verify --without image --require all "$folder"
    (cd "$folder" && sha256sum --check --quiet SHA256SUMS)
}

# What lies in that folder, as users install it: in fresh systems, and in a fresh environment of Python.
release_installs() {
    local folder=$SCRATCH/release kept=${XDG_CACHE_HOME:-$HOME/.cache}/pip fresh=$SCRATCH/fresh packages wheels
    [ -d "$folder" ] || release
    packages=("$folder"/*.deb) wheels=("$folder"/*.whl)
    GST_TRT_DEB=${packages[0]} tests/packages.sh
    rm -rf "$fresh"
    PIP_CACHE_DIR=$kept XDG_CACHE_HOME=$fresh GST_TRT_WHEEL=${wheels[0]} python/test.sh
    rm -rf "$fresh"
}

# Both packages for 64-bit ARM, cross-built, and tried in an emulator.
arm64_packages() {
    local profile=dev
    [ "$MODE" != full ] || profile=dist
    rm -rf "$TARGET/arm64"
    GST_TRT_PROFILE=$profile packaging/arm64.sh "$TARGET/arm64"
}

# Each model cast to 16 bits: computed by ONNX Runtime, and built by TensorRT-RTX, which needs no GPU for that.
half_precision() {
    HALF_MODELS=$ROOT/tests/models cargo nextest run --locked --workspace -E 'test(/^half::/)'
}

# OpenVINO is large, and other tests do without it.
openvino() {
    tests/openvino/fetch.sh >/dev/null
    REQUIRE_OPENVINO=1 cargo nextest run --locked -E 'test(/^openvino::/)'
    tests/skipped.py
}

# The limit is for a busy machine; without it the script measures.
kubernetes() {
    tests/kubernetes/chart.sh "$PROGRAM"
    tests/kubernetes/replicas.py --sources 12 --limit 60 --program "$PROGRAM"
}

# What only "full" runs, with the paths that it depends on (a regular expression; ^never of what no change runs) and its minutes on two cores.
TOUCHES=(
    "the book:^docs/|^tests/book.py:2:book"
    "crates pack:Cargo.toml$|README.md$:8:publish"
    "Debian package:^packaging/|^docs/|^gst-trt/Cargo|^pipelines/setup.sh|^tests/(packages|folders).sh:5:debian_package bookworm"
    "Helm chart, its replicas:^packaging/(chart|prometheus)/|^tests/kubernetes/|^docs/kubernetes.md|^gst-trt/src/serve/(config|mod.rs|changes|place|service):4:kubernetes"
    "other destinations:^publish/|^src/trtpublish|^tests/(trtpublish|common/(kafka|rabbit|brokers))|^Cargo.lock$:8:other_destinations"
    "installed plugin and C library:^capi/|Cargo.toml$|build.rs$|^examples/|^tests/install:10:installed"
    "Debian 13, Debian sid:^src/gst/|^src/trt|^tests/(compat|folders).sh|^tests/onvif|Cargo.lock$:12:tests/compat.sh"
    "memory errors:^core/src/(backends|cuda|memory|dlpack|tensor|image)|^capi/src|^src/gst/(cuda|memory|meta):6:check_memory"
    "detect.sh as people build it:^pipelines/|Cargo.(toml|lock)$:5:build_release"
    "detect.sh on a 1080p clip:^core/src/(image|postprocess)|^gst-trt/src/detect:1:detect_1080p"
    "wheel as it is released:^python/|^packaging/build.sh:6:wheel"
    "release folder:^packaging/|^python/(build.sh|hatch_build.py|pyproject.toml)|Cargo.toml$|^pipelines/setup.sh:4:release"
    "release folder, installed:^never:16:release_installs"
    "PTX for each GPU:^core/kernels/|^tests/ptx.sh:3:tests/ptx.sh"
    "archives of videos with Ray:^python/|^docs/archives.md:6:ray_archives"
    "64-bit ARM:^core/src/(backends|cuda|dlpack)|^capi/|^tests/arm64.sh:30:tests/compat.sh arm64"
    "models on OpenVINO:^core/src/backends/(openvino|host|mod|request)|^core/src/onnx/weights|^tests/openvino:4:openvino"
    "half precision:^core/src/onnx/|^core/src/backends/tensorrt/|^tests/models/:4:half_precision"
    "models on Triton and MLServer:^tests/kserve/|^core/src/backends/kserve/:6:tests/kserve/run.sh $PROGRAM"
    "model zoo:^tests/zoo/:60:tests/zoo/run.sh $PROGRAM"
    "Debian package on Ubuntu 24.04:^packaging/(deb|build|postinst|prerm)|^tests/(packages|folders).sh:8:debian_package noble"
    "Ubuntu 24.04, GStreamer 1.24:^src/gst/|^tests/(compat|folders).sh:20:tests/compat.sh noble"
    "packages for 64-bit ARM:^packaging/(arm64|deb|build).sh|^python/(build.sh|hatch_build.py)|^tests/(arm64|folders).sh:40:arm64_packages"
    "Debian package on Ubuntu 22.04:^packaging/(deb|build|postinst|prerm)|^tests/(packages|folders).sh:8:debian_package jammy"
    "Ubuntu 22.04, GStreamer 1.20:^src/gst/|^tests/(compat|folders).sh:30:tests/compat.sh jammy"
)

# The commit that the change is compared with: BASE, or the last one that is a day older than this one, or none.
base() {
    if [ -n "${BASE:-}" ]; then
        git rev-parse --verify "$BASE^{commit}"
    else
        git rev-list -1 --min-age=$(($(git log -1 --format=%ct) - 86400)) HEAD
    fi
}

# Of the rest, what the change touches, as long as it ends in time: a landing runs what it can break, and none runs all.
test_touched() {
    local since row heading paths minutes command words changed left=()
    since=$(base)
    # Where there is none, such as in a clone without history, all has changed.
    changed=$(if [ -n "$since" ]; then git diff --name-only "$since"; else git ls-files; fi)
    echo "Changes since ${since:-the beginning}: $(wc -l <<<"$changed") files"
    # Of what tests/run.sh has built, nothing is left to do.
    step "build" build
    for row in "${TOUCHES[@]}"; do
        IFS=: read -r heading paths minutes command <<<"$row"
        grep -qE "$paths" <<<"$changed" || continue
        if [ $((SECONDS + minutes * 60)) -gt "${MAX_SECONDS:-100000}" ]; then
            left+=("$heading ($minutes minutes)")
            continue
        fi
        read -ra words <<<"$command"
        step "$heading" "${words[@]}"
    done
    [ "${#left[@]}" = 0 ] || printf '\n== SKIP, no time is left for it: %s\n' "${left[@]}"
}

test_rest() {
    local row heading command words
    for row in "${TOUCHES[@]}"; do
        IFS=: read -r heading _ _ command <<<"$row"
        read -ra words <<<"$command"
        step "$heading" "${words[@]}"
    done
}

# Those with one of the words in their names.
test_only() {
    local row heading command words word names=()
    for row in "${TOUCHES[@]}"; do
        IFS=: read -r heading _ _ command <<<"$row"
        for word in "${WORDS[@]}"; do
            if [[ "${heading,,}" == *"${word,,}"* ]]; then
                names+=("$heading:$command")
                break
            fi
        done
    done
    if [ "${#names[@]}" = 0 ]; then
        fail "no step of \"full\" has one of these words in its name. The names: $(cut -d: -f1 < <(printf '%s\n' "${TOUCHES[@]}") | paste -sd '|')"
    fi
    step "build" build
    for row in "${names[@]}"; do
        IFS=: read -r heading command <<<"$row"
        read -ra words <<<"$command"
        step "$heading" "${words[@]}"
    done
}

trap count_steps EXIT
setup_tests
cd "$ROOT"
mkdir -p "$SCRATCH"
[ "$MODE" = touched ] || [ "$MODE" = only ] || test_all
[ "$MODE" != full ] || test_rest
[ "$MODE" != touched ] || test_touched
[ "$MODE" != only ] || test_only
