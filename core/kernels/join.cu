// SPDX-License-Identifier: MPL-2.0
// join: outputs that come once for each stride -> one for each of the head's own, in which their rows lie one after the other.
//   in   parts    the tensors, item 0 of the batch
//   out  parts    where each of them begins in the joined one
//   grid y is the part; the threads of all blocks of it stride over its numbers
//   math none
//   reference implementation src/heads/levels.rs; launched by src/postprocess/suppress/join.rs, whose JoinParams mirrors the one here
//        (1920 bytes)
#include "common.cuh"

inline constexpr uint32_t JOIN_THREADS = 256;
inline constexpr uint32_t PARTS = 80;

struct Part {
    const void* from;
    void* to;
    uint32_t count;
    uint32_t is_half;
};

struct JoinParams {
    Part parts[PARTS];
};

static_assert(sizeof(JoinParams) == 1920, "mirrored in join.rs");

template <typename T>
__device__ __forceinline__ void copy(const Part& part) {
    const T* from = static_cast<const T*>(part.from);
    T* to = static_cast<T*>(part.to);
    for (uint32_t at = blockIdx.x * JOIN_THREADS + threadIdx.x; at < part.count; at += gridDim.x * JOIN_THREADS) to[at] = from[at];
}

extern "C" __global__ __launch_bounds__(JOIN_THREADS) void join(JoinParams p) {
    const Part& part = p.parts[blockIdx.y];
    if (part.is_half) {
        copy<uint16_t>(part);
    } else {
        copy<uint32_t>(part);
    }
}
