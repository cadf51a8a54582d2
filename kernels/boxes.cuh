// What decode.cu and nms.cu share: candidates, as they lie in the scratch memory of DeviceDecoder. And what nms.cu gives
// to plan.cu.
#pragma once

#include "common.cuh"

using u32 = uint32_t;
using u64 = uint64_t;

// capacity = rows of the head: a row gives one candidate at most.
struct Candidates {
    u64* keys;      // [capacity] score and row: results are in ascending order, and no two keys are equal
    float4* boxes;  // [capacity] left, top, right, bottom in pixels of the model's input
    u32* classes;   // [capacity]
};

struct alignas(16) Candidate {
    float x1, y1, x2, y2, score;
    u32 cls, row;
    float angle;  // 0 for axis-aligned boxes
};

static_assert(sizeof(Candidate) == 32, "mirrored by image::Candidate");

struct Results {
    u32 count;
    u32 unused[3];
    Candidate detections[1];  // [limit]
};

// Higher scores become smaller numbers, in the order of f32::total_cmp.
__device__ __forceinline__ u32 descending(float score) {
    const u32 bits = __float_as_uint(score);
    return bits >> 31 ? bits : ~bits & 0x7fffffff;
}

__device__ __forceinline__ float score_of(u64 key) {
    const u32 high = static_cast<u32>(key >> 32);
    return __uint_as_float(high >> 31 ? high : ~high & 0x7fffffff);
}

__device__ __forceinline__ u32 row_of(u64 key) {
    return static_cast<u32>(key);
}

__device__ __forceinline__ u64 key_of(float score, u32 row) {
    return static_cast<u64>(descending(score)) << 32 | row;
}
