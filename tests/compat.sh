#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Builds and tests with later GStreamers and their analytics library, on any Debian or Ubuntu:
# with 1.26 on Debian 13, and with 1.28 on Debian sid.  If asked to, also with 1.24 on Ubuntu 24.04, with 1.20 on Ubuntu 22.04,
# which are also what NVIDIA's JetPack 7 and 6 have, and for 64-bit ARM:
# cross-built on Debian sid, with its Rust, and run by QEMU, which needs Linux 6.7.
#
# What GStreamer's version cannot change runs on this machine alone, by tests/run.sh.
#
#   tests/compat.sh          needs root or sudo; later runs reuse the folders and the builds
#   tests/compat.sh sid      only that one; the others are trixie, noble (Ubuntu 24.04) and jammy (Ubuntu 22.04)
#   tests/compat.sh arm64    64-bit ARM: what the architecture can change, and the sample clip in a pipeline
#
# Each is a folder in the user's cache, made by debootstrap.  This machine's Rust, its
# downloaded crates and this checkout are mounted into it read-only, the latter two at their own
# paths, so that a build there can begin with what was built here.  The mounts live in a mount
# namespace of this script, so they end with it, however it ends.
#
# Packages of sid do not fit each other on every day.  Where they cannot be installed, its
# tests are skipped, which the log shows; where they can, a failing test is a failure.
set -euo pipefail

# shellcheck source=pipelines/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../pipelines/setup.sh"
# shellcheck source=tests/folders.sh
. "$ROOT/tests/folders.sh"
# shellcheck source=tests/arm64.sh
. "$ROOT/tests/arm64.sh"

SUITES=("$@")
[ $# != 0 ] || SUITES=(trixie sid)

# Rooms of tests/elements.rs. Metas, caps and neighbours, which differ between any two versions.
EACH_VERSION=(tensor_meta pipeline trtinfer trtnms analytics neighbours unixfd)
# Everything else that puts frames through elements, and the launch lines of the pages.
PIPELINES=(
    trtpreprocess trttrack trtmatch trtoverlay trtanalytics trtpublish
    classify detr embed maps obb pose segment
    batching frames inspect loading nvmm readme regions replace_model slices stats two_models
)
# Programs of gst-trt's tests.
GST_TRT=(detect serve sources)

# choose SUITE: what the functions of the second part work on.
choose() {
    FOLDER=$CACHE/$1 RELEASE=$1 FEATURE='' MORE_PACKAGES=() WITH_PLUGINS=(env)
    case $1 in
        trixie)
            NAME="Debian 13" FEATURE=v1_26
            ROOMS=("${EACH_VERSION[@]}" "${PIPELINES[@]}" onvif) PROGRAMS=("${GST_TRT[@]}") UNIT_TESTS=(--lib)
            # What the plugin rsonvif draws with.
            MORE_PACKAGES=(libcairo2-dev libpango1.0-dev) WITH_PLUGINS=(env "GST_PLUGIN_PATH=$ROOT/target/onvif/debug")
            ;;
        sid)
            NAME="Debian sid" FEATURE=v1_28
            ROOMS=("${EACH_VERSION[@]}") PROGRAMS=() UNIT_TESTS=()
            ;;
        noble)
            NAME="Ubuntu 24.04" FEATURE=v1_24
            ROOMS=("${EACH_VERSION[@]}") PROGRAMS=() UNIT_TESTS=()
            ;;
        # Earlier than all features: there is no analytics library, and no CUDA memory of GStreamer.
        jammy)
            NAME="Ubuntu 22.04"
            ROOMS=("${EACH_VERSION[@]}" trtpreprocess trtoverlay trtpublish trttrack) PROGRAMS=(detect) UNIT_TESTS=(--lib)
            ;;
        arm64) choose_arm64 ;;
        *) fail "there is no suite \"$1\"; use trixie, sid, noble, jammy or arm64" ;;
    esac
    FEATURES=(--locked --workspace)
    [ -z "$FEATURE" ] || FEATURES+=(--features "$FEATURE")
}

# ------------------------------------------------------------- first part: as the user, outside

# Run before anything needs root, so that no file of the user's cargo comes to belong to root.
prepare() {
    setup_tests
    need_debootstrap
    COMPAT_RUST=$(rustc --print sysroot)
    [ "$COMPAT_RUST" != /usr ] ||
        fail "Rust from Debian packages does not run in Debian's folders; install it with rustup."
    COMPAT_CARGO=${CARGO_HOME:-$HOME/.cargo}
    COMPAT_NEXTEST=$(command -v cargo-nextest)
    cargo fetch --manifest-path "$ROOT/Cargo.toml" --locked --quiet
    cargo fetch --manifest-path "$ROOT/tests/onvif/Cargo.toml" --locked --quiet
    mkdir -p "$ROOT/target"
    COMPAT_BUILD=$TARGET/debug
}

# ------------------------------------------------------------- second part: as root

fill_folder() {
    local missing
    mapfile -t missing < <(missing_inside "${BUILD_PACKAGES[@]}" "${RUN_PACKAGES[@]}" "${TEST_PACKAGES[@]}" "${MORE_PACKAGES[@]}")
    if [ "${#missing[@]}" -gt 0 ]; then
        share_network_settings "$FOLDER"
        quietly "Installing in it: ${missing[*]}" install_inside "${missing[@]}"
    fi
    if [ -n "$FEATURE" ] && ! inside pkg-config --exists gstreamer-analytics-1.0; then
        quietly "Unpacking in it: ${ANALYTICS_PACKAGES[*]}" unpack_inside "${ANALYTICS_PACKAGES[@]}"
    fi
}

# first_build FROM: what was built of other crates in FROM is where the folder's own build begins, if what was
# linked there with an earlier glibc or the same runs here.  Cargo rebuilds what features and paths have changed.
first_build() {
    local part
    [ ! -d "$FOLDER/build" ] && [ -d "$1/deps" ] || return 0
    printf '%s\n' "$(getconf GNU_LIBC_VERSION)" "$(inside getconf GNU_LIBC_VERSION)" |
        sort --version-sort --check=quiet || return 0
    rm -rf "$FOLDER/build.new"
    mkdir -p "$FOLDER/build.new/debug"
    for part in .fingerprint build; do cp -a "$1/$part" "$FOLDER/build.new/debug"; done
    mkdir "$FOLDER/build.new/debug/deps"
    # Without programs: those of tests take gigabytes.
    find "$1/deps" -type f \( -name '*.rlib' -o -name '*.rmeta' -o -name '*.so' -o -name '*.d' \) \
        -exec cp -a --target-directory "$FOLDER/build.new/debug/deps" {} +
    mv "$FOLDER/build.new" "$FOLDER/build"
}

# What is the project's and this machine's, in the folder.
furnish_folder() {
    lend "$COMPAT_RUST" /opt/rust
    lend_project
    [ ! -d "$CACHE/tensorrt" ] || lend "$CACHE/tensorrt" /root/.cache/gst-plugin-trt/tensorrt
    # What was linked on Debian 13 runs on none that is older.
    [ "$RELEASE" != sid ] || first_build "$CACHE/trixie/build/debug"
    first_build "$COMPAT_BUILD"
    own_build
    cp "$COMPAT_NEXTEST" "$FOLDER/usr/local/bin/cargo-nextest"
    echo "GStreamer $(inside pkg-config --modversion gstreamer-1.0)"
}

run_tests() {
    local chosen=(--test=elements "${PROGRAMS[@]/#/--test=}") rooms
    rooms=$(IFS='|'; echo "${ROOMS[*]}")
    # Tests load target/debug/libgsttrt.so as applications do; the test runner alone does not put it there. All commands
    # name the whole workspace and something that is tested: others would have their own features, and builds.
    inside cargo build "${FEATURES[@]}" --lib --bins "${chosen[@]}"
    if inside cargo-nextest --version >/dev/null 2>&1; then
        inside "${WITH_PLUGINS[@]}" cargo nextest run "${FEATURES[@]}" "${UNIT_TESTS[@]}" \
            "${chosen[@]}" --retries 1 --filterset "not binary(elements) + test(/^($rooms)::/)"
        CARGO_TARGET_DIR=$FOLDER/build "$ROOT/tests/skipped.py"
    else
        echo "This machine's cargo-nextest does not run in $NAME; cargo test does the same, slower."
        inside "${WITH_PLUGINS[@]}" cargo test "${FEATURES[@]}" --test elements -- "${ROOMS[@]/%/::}"
        [ "${#PROGRAMS[@]}" = 0 ] ||
            inside cargo test "${FEATURES[@]}" "${UNIT_TESTS[@]}" "${PROGRAMS[@]/#/--test=}"
    fi
}

install_and_furnish() {
    make_folder
    kernel_files
    fill_folder
    furnish_folder
}

# Plugins that Debian does not have, where the tests look for plugins.
build_onvif() {
    inside cargo build --locked --manifest-path "$ROOT/tests/onvif/Cargo.toml" --target-dir "$ROOT/target/onvif"
}

test_trixie() {
    choose trixie
    nothing_mounted
    step "$NAME" install_and_furnish
    step "clippy on $NAME, $FEATURE" \
        inside cargo clippy "${FEATURES[@]}" --all-targets -- --deny warnings
    step "plugins for ONVIF on $NAME" build_onvif
    step "tests on $NAME, $FEATURE" run_tests
}

test_sid() {
    choose sid
    nothing_mounted
    # What fails in make_folder and fill_folder ends the shell that it is in.
    if ! (make_folder); then skip_suite && return; fi
    kernel_files
    if ! (fill_folder); then skip_suite && return; fi
    step "$NAME" furnish_folder
    step "tests on $NAME, $FEATURE" run_tests
}

# Releases of Ubuntu are what they are, so what fails there fails here.
test_ubuntu() {
    choose "$1"
    nothing_mounted
    step "$NAME" install_and_furnish
    step "tests on $NAME${FEATURE:+, $FEATURE}" run_tests
}

test_noble() {
    test_ubuntu noble
}

test_jammy() {
    test_ubuntu jammy
}

# ------------------------------------------------------------- 64-bit ARM

# What the architecture can change: arithmetic on vectors, the order of memory accesses, layouts, what C and Rust pass to each other.
ARM_ROOMS=(session nms models_refused preprocess_gold capi frames tensor_meta trtpreprocess trtnms trttrack)
ARM_TESTS=(--lib --test elements --test core)

furnish_arm64() {
    local tool
    lend_project
    own_build
    # Tests call them by these names.
    mkdir -p "$FOLDER/opt/arm64"
    for tool in gcc:cc g++:c++ nm:nm; do
        ln -sf "/usr/bin/aarch64-linux-gnu-${tool%:*}" "$FOLDER/opt/arm64/${tool#*:}"
    done
    inside cargo --version
    echo "GStreamer $(for_arm aarch64-linux-gnu-pkg-config --modversion gstreamer-1.0)"
}

# One build for all that runs: with the features of the tests, and without the network's, which bring TLS.
ARM_BUILD=(--locked --package gst-plugin-trt --package gsttrt-core --no-default-features)

build_for_arm() {
    for_arm cargo test "${ARM_BUILD[@]}" "${ARM_TESTS[@]}" --no-run
    for_arm cargo build "${ARM_BUILD[@]}" --package gsttrt-capi --lib
}

# Left out: what needs Python and FFmpeg for ARM; what gives files to other users, whom the namespace has not; what takes QEMU minutes.
ARM_SKIP=(
    python_example c_and_rust_examples
    files_that_others_wrote folders_that_others_may_change
    every_format_equals great_frames_equal numbers_that_no_head_writes any_size_of_frame the_detector_finds
    thousands_of_boxes_at_one_place each_task_has_its_results_in_lists
)

# One after the other: tests of one process share what TensorRT says of errors.
test_on_arm() {
    local options=(--test-threads 1 "${ARM_SKIP[@]/#/--skip=}")
    on_arm env PROPTEST_CASES=16 cargo test "${ARM_BUILD[@]}" --lib -- "${options[@]}"
    on_arm env PROPTEST_CASES=16 cargo test "${ARM_BUILD[@]}" --test elements --test core -- "${options[@]}" "${ARM_ROOMS[@]/%/::}"
}

# The first five frames.  They are decoded on this machine: FFmpeg for ARM is a hundred packages.
detect_on_arm() {
    local raw=$FOLDER/build/sample.i420 found=$FOLDER/build/sample.jsonl
    rm -f "$found"
    gst-launch-1.0 --quiet filesrc location="$ROOT/tests/data/sample.mp4" ! qtdemux ! h264parse ! avdec_h264 ! \
        videoconvert ! video/x-raw,format=I420,colorimetry=bt601 ! filesink location="$raw"
    truncate --size $((5 * 640 * 360 * 3 / 2)) "$raw"
    on_arm gst-inspect-1.0 trt
    on_arm gst-launch-1.0 filesrc location=target/sample.i420 ! \
        rawvideoparse width=640 height=360 format=i420 framerate=30/1 ! trtpreprocess ! \
        trtinfer model-file=tests/models/shapes.onnx ! trtnms draw=false ! trtpublish location=target/sample.jsonl ! \
        fakesink
    python3 "$ROOT/tests/data/score.py" "$ROOT/tests/data/sample.json" "$found" --only-present \
        --min-precision 0.98 --min-recall 0.98 --min-iou 0.85
}

test_arm64() {
    choose arm64
    nothing_mounted
    if ! (make_folder); then skip_suite && return; fi
    kernel_files
    if ! (fill_arm64 ARM_PACKAGES ARM_FILES); then skip_suite && return; fi
    step "$NAME" furnish_arm64
    step "build on $NAME" build_for_arm
    step "tests on $NAME" test_on_arm
    step "sample clip on $NAME" detect_on_arm
}

skip_suite() {
    printf '\n== SKIP: %s cannot be installed today, the reason is above; nothing ran with %s\n' "$NAME" "${FEATURE:-64-bit ARM}"
}

if [ -z "${SECOND_PART:-}" ]; then
    for suite in "${SUITES[@]}"; do choose "$suite"; done
    prepare
    start_second_part "$ROOT/tests/compat.sh" "${SUITES[@]}" -- \
        "COMPAT_RUST=$COMPAT_RUST" "COMPAT_CARGO=$COMPAT_CARGO" "COMPAT_NEXTEST=$COMPAT_NEXTEST" "COMPAT_BUILD=$COMPAT_BUILD"
fi
trap count_steps EXIT
only_one_at_a_time lock
for suite in "${SUITES[@]}"; do "test_$suite"; done
