// SPDX-License-Identifier: MPL-2.0
// join: outputs that come once for each stride -> one for each of the head's own, in which their rows lie one after the other.
//   in   parts    the tensors, item 0 of the batch: rows, or a map of each of their columns
//   out  parts    where each of them begins in the joined one
//   grid y is the part; the threads of all blocks of it stride over its numbers
//   math none
//   reference implementation src/heads/levels.rs; launched by src/postprocess/suppress/join.rs, whose JoinParams mirrors the one here
//        (2560 bytes)
#include "common.cuh"

inline constexpr uint32_t JOIN_THREADS = 256;
inline constexpr uint32_t PARTS = 80;

struct Part {
    const void* from;
    void* to;
    uint32_t count;
    uint32_t is_half;
    uint32_t columns;  // of a row, where each of them is a map of its own; else 0
    uint32_t unused;
};

struct JoinParams {
    Part parts[PARTS];
};

static_assert(sizeof(JoinParams) == 2560, "mirrored in join.rs");

template <typename T>
__device__ __forceinline__ void copy(const Part& part) {
    const T* from = static_cast<const T*>(part.from);
    T* to = static_cast<T*>(part.to);
    const uint32_t first = blockIdx.x * JOIN_THREADS + threadIdx.x, step = gridDim.x * JOIN_THREADS;
    if (!part.columns) {
        for (uint32_t at = first; at < part.count; at += step) to[at] = from[at];
        return;
    }
    const uint32_t rows = part.count / part.columns;
    for (uint32_t at = first; at < part.count; at += step) to[at] = from[at % part.columns * rows + at / part.columns];
}

extern "C" __global__ __launch_bounds__(JOIN_THREADS) void join(JoinParams p) {
    const Part& part = p.parts[blockIdx.y];
    if (part.is_half) {
        copy<uint16_t>(part);
    } else {
        copy<uint32_t>(part);
    }
}
