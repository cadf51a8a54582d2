# SPDX-License-Identifier: MPL-2.0
# shellcheck shell=bash
# Set-up shared by pipelines/detect.sh, tests/run.sh and tests/compat.sh, which source this file.
#
# It asks dpkg first and installs only missing packages, so a second run needs neither network nor root.  Debian 12 and 13
# and Ubuntu 24.04 have every package under these names.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck disable=SC2034  # read by the scripts that source this file
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
ME=$(basename "$0")

BUILD_PACKAGES=(
    build-essential pkg-config
    libgstreamer1.0-dev libgstreamer-plugins-base1.0-dev
)
RUN_PACKAGES=(
    gstreamer1.0-tools
    gstreamer1.0-plugins-base gstreamer1.0-plugins-good
    gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly
    gstreamer1.0-libav gstreamer1.0-x
)
TEST_PACKAGES=(
    python3 python3-numpy python3-venv python3-gi python3-gst-1.0 python3-prometheus-client curl xvfb
    gir1.2-gst-plugins-base-1.0 gir1.2-gst-rtsp-server-1.0
)
# Servers that trtpublish publishes to, their clients, and certificates for them. librdkafka has one of Kafka inside.
BROKER_PACKAGES=(mosquitto mosquitto-clients redis-server redis-tools nats-server librdkafka1 openssl)
LINT_PACKAGES=(shellcheck valgrind)
# To build cargo-c.
OPENSSL_PACKAGES=(libssl-dev)
# The analytics library for the features v1_24 and later. It depends on OpenCV, so it is installed only for them.
ANALYTICS_PACKAGES=(libgstreamer-plugins-bad1.0-dev)

# Ends the script with one sentence: what is wrong and what to do.
fail() {
    echo "$ME: $*" >&2
    exit 1
}

# quietly WHAT COMMAND…: prints WHAT, and the command's output only if it fails.
quietly() {
    local what=$1 log
    shift
    log=$(mktemp)
    echo "$what"
    if ! "$@" >"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        rm -f "$log"
        fail "\"$what\" failed; its output is above."
    fi
    rm -f "$log"
}

# ---------------------------------------------------------------------------- steps of a test run

STEPS_PASSED=0 STEP='' STEP_STARTED=0 STEP_TIMES=()

# step HEADING COMMAND…: a failing command ends the script, and count_steps prints its heading.
step() {
    STEP=$1 STEP_STARTED=$SECONDS
    shift
    printf '\n== %s\n' "$STEP"
    "$@" </dev/null
    STEP_TIMES+=("$(printf '%5d s  %s' $((SECONDS - STEP_STARTED)) "$STEP")")
    echo "== $STEP: $((SECONDS - STEP_STARTED)) s"
    STEPS_PASSED=$((STEPS_PASSED + 1)) STEP=''
}

# What git has of these paths, changes that are not committed included, and how the command is written.
state_of() {
    git -C "$ROOT" ls-files --stage -- "$@"
    git -C "$ROOT" diff HEAD -- "$@"
    git -C "$ROOT" ls-files --others --exclude-standard -- "$@" | (cd "$ROOT" && xargs -r -d '\n' sha256sum)
}

# step_of HEADING "PATH…" COMMAND…: a step that depends on these files alone. Where it has passed in this checkout and they
# are the same, it is left out, and the log says so.
step_of() {
    local heading=$1 paths passed=$TARGET/passed/${1//[^[:alnum:]]/-} state
    read -ra paths <<<"$2"
    shift 2
    state=$(state_of "${paths[@]}" pipelines/setup.sh | sha256sum)
    if [ "$(cat "$passed" 2>/dev/null)" = "$state $*" ]; then
        printf '\n== %s: unchanged since it passed (%s)\n' "$heading" "${paths[*]}"
        return
    fi
    step "$heading" "$@"
    mkdir -p "$TARGET/passed"
    echo "$state $*" >"$passed"
}

# The last lines of a test run; for: trap count_steps EXIT
count_steps() {
    local status=$?
    [ "${#STEP_TIMES[@]}" = 0 ] || printf '%s\n' '' 'Times of the steps:' "${STEP_TIMES[@]}"
    if [ "$status" = 0 ]; then
        printf '\n%s: %d passed, 0 failed in %d s\n' "$ME" "$STEPS_PASSED" "$SECONDS"
    else
        printf '\n%s: %d passed, 1 failed: %s\n' "$ME" "$STEPS_PASSED" "${STEP:-set-up}"
    fi
}

# ---------------------------------------------------------------------------- Debian packages

missing_packages() {
    local package
    for package in "$@"; do
        dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null |
            grep -qx installed || echo "$package"
    done
}

# Runs apt-get as root, without questions.
apt() {
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --yes --quiet "$@"
}

# A failed update alone is not a failure, because a third party's package list may be broken.
apt_install() {
    apt update || true
    apt install --no-install-recommends "$@"
}

# need_packages WHY PACKAGE…
need_packages() {
    local why=$1 missing
    shift
    command -v apt-get >/dev/null ||
        fail "this system has no apt; install what these Debian packages hold and set TRT_SETUP=skip: $*"
    mapfile -t missing < <(missing_packages "$@")
    [ "${#missing[@]}" -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
        fail "packages are missing and need root; run as root or with sudo: apt-get install ${missing[*]}"
    quietly "Installing $why: ${missing[*]}" apt_install "${missing[@]}"
}

# ---------------------------------------------------------------------------- Rust

rust_version_wanted() {
    sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$ROOT/Cargo.toml"
}

need_cargo() {
    local wanted found
    # A shell that did not read the user's profile has no rustup folder in its PATH.
    [ ! -d "${CARGO_HOME:-$HOME/.cargo}/bin" ] || PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    command -v cargo >/dev/null ||
        fail "cargo is missing; install Rust with rustup (https://rustup.rs) and try again."
    wanted=$(rust_version_wanted)
    found=$(cargo --version | cut -d' ' -f2) || fail "cargo does not run; try: rustup default stable"
    [ "$(printf '%s\n' "$wanted" "${found%%-*}" | sort -V | head -n 1)" = "$wanted" ] ||
        fail "Rust $found is too old, $wanted or newer is needed; run: rustup update stable"
}

need_cargo_tools() {
    if ! cargo clippy --version >/dev/null 2>&1 || ! cargo fmt --version >/dev/null 2>&1; then
        command -v rustup >/dev/null || fail "clippy and rustfmt are missing; install them next to cargo."
        quietly "Installing clippy and rustfmt" rustup component add clippy rustfmt
    fi
    cargo nextest --version >/dev/null 2>&1 ||
        quietly "Installing cargo-nextest, which runs the tests (some minutes)" \
            cargo install --locked cargo-nextest
}

# cargo-c installs the plugin and the C library. It is large; without optimisation the build takes a third of the time.
need_cargo_c() {
    ! cargo cinstall --version >/dev/null 2>&1 || return 0
    [ "${TRT_SETUP:-}" = skip ] || need_packages "what cargo-c is built with" "${OPENSSL_PACKAGES[@]}"
    quietly "Installing cargo-c, which installs plugin and C library (some minutes)" \
        env -u CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
        cargo install --locked --debug cargo-c --version 0.10.24+cargo-0.98.0
}

# forget_packed_crates FOLDER: what cargo has packed there, as its folder for builds. To cargo a version of a registry's crate never changes:
# what an earlier run left of ours, sources and build, would be taken for what is packed now.
forget_packed_crates() {
    rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/{cache,src}/-*/{gsttrt,gst-plugin-trt,gst-trt}-* \
        "$1"/package "$1"/debug/.fingerprint/gst{trt,-trt,-plugin-trt}-*
}

# mdbook makes the book of the pages in docs. Without optimisation and without its server it builds in about a minute of processor time.
need_mdbook() {
    ! mdbook --version >/dev/null 2>&1 || return 0
    quietly "Installing mdbook, which makes a book of the pages (a minute)" \
        env -u CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
        cargo install --locked --debug mdbook --version 0.5.4 --no-default-features
}

# ---------------------------------------------------------------------------- the two set-ups

need_gstreamer() {
    pkg-config --atleast-version=1.20 gstreamer-1.0 ||
        fail "GStreamer 1.20 or newer is needed, found $(pkg-config --modversion gstreamer-1.0 2>&1 | head -n 1)."
}

# setup_build [COMMAND…]: everything needed to build and run the plugin. Where apt has to install something, COMMAND compiles meanwhile what
# needs none of it.
setup_build() {
    local packages=("${BUILD_PACKAGES[@]}" "${RUN_PACKAGES[@]}") wanted=''
    need_cargo
    [ "${TRT_SETUP:-}" = skip ] || wanted=$(missing_packages "${packages[@]}")
    [ -n "$wanted" ] || set --
    # Crates come while apt installs. Where they do not, the build says why. Compilers are in the group of the job, and end with it.
    set -m
    {
        cargo fetch --manifest-path "$ROOT/Cargo.toml" --locked --quiet --target "$(rustc -vV | sed -n 's/^host: //p')" && "$@"
    } </dev/null >/dev/null 2>&1 &
    MEANWHILE=$!
    set +m
    [ $# = 0 ] || trap end_meanwhile EXIT
    [ -z "$wanted" ] || need_packages "what builds and runs GStreamer plugins" "${packages[@]}"
    if [ $# = 0 ]; then wait "$MEANWHILE" || true; else end_meanwhile; fi
    need_gstreamer
}

end_meanwhile() {
    trap - EXIT
    kill -- "-$MEANWHILE" 2>/dev/null || true
    wait "$MEANWHILE" || true
}

# TensorRT libraries for tests/tensorrt_rtx.rs, which reports if they are missing.
need_tensorrt() {
    [ "$(uname -m)" = x86_64 ] || return 0
    "$ROOT/tests/tensorrt/fetch.sh" >/dev/null || echo "$ME: without TensorRT's libraries their tests are skipped" >&2
}

# ONNX Runtime for tests/onnxruntime.rs. Tests that want it or OpenVINO name it; for all others there is none, whatever is installed.
need_onnxruntime() {
    "$ROOT/tests/onnxruntime/fetch.sh" >/dev/null
    export REQUIRE_ORT=1 ORT_DYLIB_PATH=/nonexistent INTEL_OPENVINO_DIR=/nonexistent
}

# The same, and everything the tests need.
setup_tests() {
    setup_build
    if [ "${TRT_SETUP:-}" != skip ]; then
        need_packages "what the tests need" "${TEST_PACKAGES[@]}" "${BROKER_PACKAGES[@]}" "${LINT_PACKAGES[@]}"
        ! pkg-config --atleast-version=1.24 gstreamer-1.0 ||
            need_packages "GStreamer's analytics library" "${ANALYTICS_PACKAGES[@]}"
    fi
    need_cargo_tools
    # apt installs Python modules for /usr/bin/python3, so it comes before any other python3, but after cargo.
    PATH=$(dirname "$(command -v cargo)"):/usr/bin:$PATH
    need_tensorrt
    need_onnxruntime
}
