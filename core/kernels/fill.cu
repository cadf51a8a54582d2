// SPDX-License-Identifier: MPL-2.0
// fill: sets words of memory to a value, in place of a memset in a CUDA graph.
//   out  to     [words]
//   grid any size; the threads stride over the words
//   math none
//   reference implementation cuMemsetD32; launched by src/core/cuda/fill.rs, whose FillParams mirrors the one here (24 bytes)
#include "common.cuh"

inline constexpr uint32_t FILL_THREADS = 256;

struct FillParams {
    uint32_t* to;
    uint64_t words;
    uint32_t value;
    uint32_t unused;
};

static_assert(sizeof(FillParams) == 24, "mirrored in fill.rs");

extern "C" __global__ __launch_bounds__(FILL_THREADS) void fill(FillParams p) {
    const uint64_t threads = static_cast<uint64_t>(gridDim.x) * FILL_THREADS;
    for (uint64_t i = blockIdx.x * FILL_THREADS + threadIdx.x; i < p.words; i += threads) p.to[i] = p.value;
}
