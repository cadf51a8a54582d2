#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# Assembles core/kernels/ptx/*.ptx for each generation of GPUs, as a driver does when a kernel is used first. Needs no GPU and no driver.
#
#   tests/ptx.sh [FILE.ptx…]
#
# Fails where a file cannot be assembled. Prints for each file and compute capability the most registers that one of its kernels has, and
# behind + the bytes that its kernels spill to memory; then each kernel that spills. The assembler is ptxas of CUDA 13.0 from PyPI (37 MB),
# kept in the user's cache. Without network this is skipped, except where CI is set.
set -euo pipefail

# shellcheck source=pipelines/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../pipelines/setup.sh"
# shellcheck source=core/kernels/wheels.sh
. "$ROOT/core/kernels/wheels.sh"

NVCC=nvidia-cuda-nvcc==13.0.88
# Its wheels for x86-64 and 64-bit ARM.
NVCC_HASHES=(
    sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
    sha256:c7ff28f86a24effdc6c034fa15230c549a273e4771b10a7fec14996f8cf3307f
)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/gst-plugin-trt/${NVCC/==/-}
# Turing; Ampere; Ada; Hopper; Blackwell, which is also in Jetson Thor (110), RTX 50 (120) and DGX Spark (121).
CAPABILITIES=(75 80 86 87 89 90 100 103 110 120 121)

case ${1:-} in
    --help | -h) sed -n '/^set /q; /^#!/d; /SPDX/d; s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
FILES=("$@")
[ $# != 0 ] || FILES=("$ROOT"/core/kernels/ptx/*.ptx)
for file in "${FILES[@]}"; do
    [ -f "$file" ] || fail "there is no file $file; core/kernels/build.sh makes those of core/kernels/ptx."
done

SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT

# The folder in the wheel has the name of the CUDA.
ptxas_here() {
    compgen -G "$CACHE/nvidia/*/bin/ptxas" | head -n 1
}

if [ -z "$(ptxas_here)" ]; then
    echo "Fetching $NVCC"
    if ! fetch_wheel "$NVCC" "$CACHE" "${NVCC_HASHES[@]}"; then
        [ -z "${CI:-}" ] || fail "cannot fetch $NVCC (the messages are above); connect to the network or a mirror of PyPI."
        echo "SKIP: the kernels are not assembled, because $NVCC cannot be fetched."
        exit 0
    fi
fi
PTXAS=$(ptxas_here || true)
[ -n "$PTXAS" ] || fail "$NVCC has no ptxas in $CACHE/nvidia/*/bin; look where it is, and correct this script."
# pip does not keep it executable everywhere.
[ -x "$PTXAS" ] || chmod +x "$PTXAS"

# A log for each file and compute capability; one that fails leaves a mark.
# shellcheck disable=SC2016  # the shell inside expands it
for file in "${FILES[@]}"; do
    for capability in "${CAPABILITIES[@]}"; do printf '%s\0%s\0' "$file" "$capability"; done
done | xargs -0 -n 2 -P "$(nproc)" bash -c '
log=$2/$(basename "$3" .ptx)-$4.log
"$1" --verbose --gpu-name "sm_$4" --output-file "$log.cubin" "$3" >"$log" 2>&1 || touch "$log.failed"
rm -f "$log.cubin"
' assemble "$PTXAS" "$SCRATCH"

# The most registers of a log, and all bytes that are spilled. The kernels that spill go to the file SPILLED.
figures() {
    awk -v spilled="$SPILLED" -v where="$2" '
        /Compiling entry function/ { split($0, parts, "\047"); kernel = parts[2]; stores = loads = 0 }
        /bytes spill stores/ { stores = $5; loads = $9 }
        /: Used [0-9]+ registers/ {
            for (i = 1; i < NF; i++) if ($i == "Used") registers = $(i + 1) + 0
            if (registers > most) most = registers
            bytes += stores + loads
            if (stores + loads) printf "  %s, %s: %d bytes written, %d read\n", kernel, where, stores, loads >>spilled
            stores = loads = 0
        }
        END { printf bytes ? "%d+%d" : "%d", most, bytes }
    ' "$1"
}

SPILLED=$SCRATCH/spilled
: >"$SPILLED"
printf '%-22s' "$("$PTXAS" --version | grep -o 'V[0-9.]*' | tail -n 1)"
printf '%9s' "${CAPABILITIES[@]/#/sm_}"
echo
for file in "${FILES[@]}"; do
    name=$(basename "$file" .ptx)
    printf '%-22s' "$name"
    for capability in "${CAPABILITIES[@]}"; do
        log=$SCRATCH/$name-$capability.log
        if [ -e "$log.failed" ]; then printf '%9s' failed; else printf '%9s' "$(figures "$log" "sm_$capability")"; fi
    done
    echo
done
if [ -s "$SPILLED" ]; then
    echo "Kernels that spill registers:"
    sort "$SPILLED"
fi
failed=("$SCRATCH"/*.log.failed)
if [ -e "${failed[0]}" ]; then
    for mark in "${failed[@]}"; do
        echo "$(basename "$mark" .log.failed):"
        head -n 5 "${mark%.failed}"
    done >&2
    fail "ptxas refuses ${#failed[@]} of $((${#FILES[@]} * ${#CAPABILITIES[@]})); its messages are above."
fi
