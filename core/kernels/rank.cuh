// SPDX-License-Identifier: MPL-2.0
// What nms.cu and rotated.cu share: their parameters, and candidates in the order of the result.
#pragma once

#include "boxes.cuh"

inline constexpr u32 NMS_THREADS = 512;
inline constexpr u32 WARPS = NMS_THREADS / 32;
inline constexpr u32 FULL_WARP_MASK = 0xffffffff;
inline constexpr u32 TILE = 2048;  // keys that a block compares at a time

struct NmsParams {
    Candidates from;
    Candidates sorted;
    u32* count;        // of candidates, and behind it of numbers that are not finite
    u32* next_count;   // of the next frame, to be cleared
    u32* blocks_done;  // 0 before and after
    u32* kept;         // [capacity] indices of kept boxes among the sorted
    u64* matrix;       // which boxes one repeats: a row for each of min(*count, WINDOW), see matrix_row
    Results* results;
    Results* found;
    u32 capacity;
    u32 limit;
    u32 agnostic;
    float threshold;  // of IoU; for rotated boxes, `reach` of it, see suppress/rotated.rs
    u32 of_row;       // candidates that a row may give
    u32 unused;
};

static_assert(sizeof(NmsParams) == 128, "mirrored in device.rs");

__device__ __forceinline__ Candidate detection(const NmsParams& p, u64 key, float4 box, u32 cls, float angle = 0.0f) {
    const u32 index = index_of(key), row = p.of_row == 1 ? index : index / p.of_row;  // usually no division
    return {box.x, box.y, box.z, box.w, score_of(key), cls, row, angle};
}

__device__ __forceinline__ u32 candidates(const NmsParams& p) {
    return min(*p.count, p.capacity);
}

// How many are left, by one thread of the last kernel: one before it would have the host's memory waited for between kernels.
__device__ __forceinline__ void finish(const NmsParams& p, u32 count, u32 not_finite) {
    p.found->count = count;
    *reinterpret_cast<uint2*>(p.results) = make_uint2(count, not_finite);
}

// By one thread of a kernel that counts no more candidates.
__device__ __forceinline__ void clear_next(const NmsParams& p) {
    if (blockIdx.x == 0 && threadIdx.x == 0) p.next_count[0] = p.next_count[NOT_FINITE] = 0;
}

// Ranks all candidates: take(key, box, class, rank) in each lane of a warp. Independent loads are written before
// the code that needs them, here and below: an access to the L2 cache takes longer than all the arithmetic.
template <typename Take>
__device__ __forceinline__ void rank(const NmsParams& p, Take take) {
    __shared__ u64 tile[TILE];
    const u32 n = candidates(p), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u32 first = blockIdx.x * WARPS; first < n; first += gridDim.x * WARPS) {
        const u32 mine = min(first + warp, n - 1);
        const u64 key = p.from.keys[mine];
        const float4 box = p.from.boxes[mine];
        const u32 cls = p.from.classes[mine];
        u32 smaller = 0;
        for (u32 start = 0; start < n; start += TILE) {
            u64 ahead[TILE / NMS_THREADS];
#pragma unroll
            for (u32 i = 0; i < TILE / NMS_THREADS; i++) {
                const u32 at = start + i * NMS_THREADS + threadIdx.x;
                ahead[i] = at < n ? p.from.keys[at] : ~0ull;
            }
            __syncthreads();
#pragma unroll
            for (u32 i = 0; i < TILE / NMS_THREADS; i++) tile[i * NMS_THREADS + threadIdx.x] = ahead[i];
            __syncthreads();
            for (u32 i = lane; i < min(TILE, n - start); i += 8 * 32) {
#pragma unroll
                for (u32 j = 0; j < 8; j++) smaller += tile[i + j * 32] < key;
            }
        }
        for (u32 offset = 16; offset > 0; offset /= 2) smaller += __shfl_xor_sync(FULL_WARP_MASK, smaller, offset);
        if (first + warp < n && lane == 0) take(key, box, cls, smaller);
    }
    clear_next(p);
}
