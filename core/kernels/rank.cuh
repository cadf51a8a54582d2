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
    u32* count;        // of candidates, and behind it what is lost
    u32* next_count;   // of the next frame, to be cleared
    u32* blocks_done;  // 0 before and after; for rotated boxes
    u32* kept;         // [capacity] indices of kept boxes among the sorted
    u64* matrix;       // which boxes one repeats: see matrix_row; or lists of them, see compare
    Results* results;
    Results* found;
    u32 capacity;
    u32 limit;
    u32 agnostic;
    float threshold;  // of IoU; for rotated boxes, `reach` of it, see suppress/rotated.rs
    u32 of_row;       // candidates that a row may give
    u32 matrix_rows;  // boxes that have a row of the matrix: whole steps, in the window
    u32 compared;     // as many candidates are compared without a matrix
    float margin;     // of an overlap, see iou.cuh
};

// Further counters of a frame, as many words behind that of its candidates, each in a line of the cache of its own: jobs of ranking
// that are claimed and that are done, and blocks that are done.
inline constexpr u32 CLAIMED = 32;
inline constexpr u32 RANKED = 64;
inline constexpr u32 DONE = 96;

static_assert(sizeof(NmsParams) == 136, "mirrored in params.rs");

// The row of the head that a candidate is of. Usually there is no division.
__device__ __forceinline__ u32 row_of(const NmsParams& p, u64 key) {
    const u32 index = index_of(key);
    return p.of_row == 1 ? index : index / p.of_row;
}

__device__ __forceinline__ Candidate detection(const NmsParams& p, u64 key, float4 box, u32 cls, float angle = 0.0f) {
    return {box.x, box.y, box.z, box.w, score_of(key), cls, row_of(p, key), angle};
}

__device__ __forceinline__ u32 candidates(const NmsParams& p) {
    return min(*p.count, p.capacity);
}

// What is counted of a frame besides its candidates.
struct Lost {
    u32 not_finite, beyond, greatest;
};

// The three loads are in flight together.
__device__ __forceinline__ Lost lost_of(const NmsParams& p) {
    return {p.count[NOT_FINITE], p.count[BEYOND], p.count[GREATEST]};
}

// How many are left, by one thread of the last kernel: one before it would have the host's memory waited for between kernels.
__device__ __forceinline__ void finish(const NmsParams& p, u32 count, const Lost& lost) {
    p.found->count = count;
    *reinterpret_cast<uint4*>(p.results) = make_uint4(count, lost.not_finite, lost.beyond, lost.greatest);
}

// The counters of the next frame, by one thread of each frame's.
__device__ __forceinline__ void clear_next(const NmsParams& p) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    p.next_count[0] = p.next_count[NOT_FINITE] = p.next_count[BEYOND] = p.next_count[GREATEST] = 0;
    p.next_count[CLAIMED] = p.next_count[RANKED] = p.next_count[DONE] = 0;
}

// Ranks EACH candidates a warp, of which `first` is the first of the block: a key that is loaded is compared with all of them.
// Independent loads are written before the code that needs them, here and below: an access to the L2 cache takes longer than all the
// arithmetic.
template <u32 EACH, typename Take>
__device__ __forceinline__ void rank_some(const NmsParams& p, u64 (&tile)[TILE], u32 n, u32 first, Take take) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // Lane i takes candidate i of the warp, and all lanes have the keys of all.
    const u32 of_warp = first + warp * EACH, mine = of_warp + lane % EACH;
    u64 keys[EACH];
    u32 smaller[EACH] = {};
#pragma unroll
    for (u32 e = 0; e < EACH; e++) keys[e] = p.from.keys[min(of_warp + e, n - 1)];
    const float4 box = p.from.boxes[min(mine, n - 1)];
    const u32 cls = p.from.classes[min(mine, n - 1)];
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
            for (u32 j = 0; j < 8; j++) {
                const u64 other = tile[i + j * 32];
#pragma unroll
                for (u32 e = 0; e < EACH; e++) smaller[e] += other < keys[e];
            }
        }
    }
    u64 key = 0;
    u32 place = 0;
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
        for (u32 offset = 16; offset > 0; offset /= 2) smaller[e] += __shfl_xor_sync(FULL_WARP_MASK, smaller[e], offset);
        if (lane == e) key = keys[e], place = smaller[e];
    }
    if (lane < EACH && mine < n) take(key, box, cls, place);
}

template <u32 EACH, typename Take>
__device__ __forceinline__ void rank_each(const NmsParams& p, u64 (&tile)[TILE], Take take) {
    const u32 n = candidates(p), of_block = WARPS * EACH;
    for (u32 first = blockIdx.x * of_block; first < n; first += gridDim.x * of_block) rank_some<EACH>(p, tile, n, first, take);
}

// Ranks all candidates: take(key, box, class, rank) in a lane of a warp. A warp has one of them, or several where there are more
// than warps: then the loads of keys take longer than the comparisons.
template <typename Take>
__device__ __forceinline__ void rank(const NmsParams& p, Take take) {
    __shared__ u64 tile[TILE];
    if (candidates(p) <= gridDim.x * WARPS) {
        rank_each<1>(p, tile, take);
    } else {
        rank_each<4>(p, tile, take);
    }
    clear_next(p);
}
