# SPDX-License-Identifier: MPL-2.0
# shellcheck shell=bash
# Rows of compute-sanitizer. tests/gpu/run.sh sources this.

# The tool's summary as the last line, and its status.
sanitized() {
    local tool=$1 log=$2 status
    shift 2
    timeout "${TIMEOUT_S:-400}" compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" >"$log" 2>&1
    status=$?
    [ "$status" != 124 ] || echo "no end after ${TIMEOUT_S:-400} s"
    # Where errors were found, which separates ours from those of a library.
    grep -ao '^=========     at [^(+<]*' "$log" | sort | uniq -c | sort -rn | head -n 3 | tr '\n' ' '
    grep -a 'ERROR SUMMARY\|RACECHECK SUMMARY\|test result' "$log" | tr '\n' ' '
    return "$status"
}

sanitized_chain() {
    local words
    read -ra words <<<"$(decoder sample) ! $(detector draw=true "$2") ! fakesink sync=false num-buffers=40"
    "$1" bash -c "$(declare -f sanitized); sanitized \"\$@\"" sanitized memcheck "$WORK/sanitize-chain-$2" gst-launch-1.0 -q "${words[@]}"
}

row_memcheck() {
    local gst bits
    command -v compute-sanitizer >/dev/null || { skip memcheck "compute-sanitizer is not on the path"; return; }
    for gst in $GSTREAMERS; do
        # The root folder of in26 has no compute-sanitizer.
        [ "$gst" != in26 ] || continue
        for bits in 32 16; do
            judge "memcheck of the pipeline, f$bits" "$gst" "0 errors" sanitized_chain "$gst" "$bits" &
        done
    done
    wait
}

# sanitized_elements GSTREAMER TOOL TEST: of the tests of elements.
sanitized_elements() {
    "$1" bash -c "$(declare -f sanitized); sanitized \"\$@\"" sanitized "$2" "$WORK/sanitize-$2-elements" \
        "$WORK/elements" --test-threads 1 "$3"
}

row_sanitize_elements() {
    local gst tool
    command -v compute-sanitizer >/dev/null || { skip sanitize_elements "compute-sanitizer is not on the path"; return; }
    for gst in $GSTREAMERS; do
        # The root folder of in26 has no compute-sanitizer.
        [ "$gst" != in26 ] || continue
        for tool in memcheck racecheck initcheck; do
            judge "$tool of parts and faces" "$gst" "0 errors" sanitized_elements "$gst" "$tool" gpu_rectangles::tensors_of &
        done
        wait
    done
}

row_sanitize() {
    local tool test program some
    command -v compute-sanitizer >/dev/null || { skip sanitize "compute-sanitizer is not on the path"; return; }
    # They take a minute or more each, and no time is measured while they run.
    for test in gpu_boxes gpu_pixels gpu_gallery vectors_on_a_gpu; do
        program=core
        # Of the library's own tests.
        [ "$test" != vectors_on_a_gpu ] || program=gsttrt_core
        for tool in memcheck racecheck initcheck; do
            some=("$test::")
            [ "$program" = core ] || some=("$test")
            case $tool-$test in
                racecheck-gpu_boxes | racecheck-gpu_pixels) [ -z "${RACECHECK:-}" ] || read -ra some <<<"$RACECHECK" ;;
            esac
            judge "$tool of $test" kernels "0 errors" sanitized "$tool" "$WORK/sanitize-$tool-$test" "$WORK/$program" --test-threads 1 "${some[@]}" &
        done
    done
    for tool in memcheck racecheck initcheck; do
        judge "$tool of maps" kernels "0 errors" sanitized "$tool" "$WORK/sanitize-$tool-maps" "$WORK/core" --test-threads 1 gpu_maps:: &
        judge "$tool of clips" kernels "0 errors" sanitized "$tool" "$WORK/sanitize-$tool-clips" "$WORK/gsttrt_core" --test-threads 1 \
            clips_on_the_gpu &
    done
    wait
}
