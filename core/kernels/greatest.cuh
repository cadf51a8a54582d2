// SPDX-License-Identifier: MPL-2.0
// What classes.cu and match.cu share: scores as numbers in their order, and the greatest number of a block.
#pragma once

#include "common.cuh"

inline constexpr uint32_t FULL_WARP_MASK = 0xffffffff;

// In the order of floats that are numbers; never 0.
__device__ inline uint32_t ordered(float value) {
    const uint32_t bits = __float_as_uint(value);
    return bits >> 31 ? ~bits : bits | 0x80000000;
}

__device__ inline float unordered(uint32_t bits) { return __uint_as_float(bits >> 31 ? bits & 0x7fffffff : ~bits); }

// The greatest number that a thread of the block has.
template <uint32_t THREADS>
__device__ inline uint64_t greatest_of(uint64_t mine) {
    __shared__ uint64_t greatest[THREADS / 32];
    for (uint32_t step = 16; step > 0; step /= 2) mine = max(mine, __shfl_xor_sync(FULL_WARP_MASK, mine, step));
    if (threadIdx.x % 32 == 0) greatest[threadIdx.x / 32] = mine;
    __syncthreads();
    for (uint32_t i = 0; i < THREADS / 32; i++) mine = max(mine, greatest[i]);
    __syncthreads();
    return mine;
}
