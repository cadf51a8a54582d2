// SPDX-License-Identifier: MPL-2.0
// What decode.cu and nms.cu share: candidates, as they lie in the scratch memory of DeviceDecoder. And the detections that
// nms.cu passes to plan.cu.
#pragma once

#include "common.cuh"

using u32 = uint32_t;
using u64 = uint64_t;

// Elements of a source.
enum Type : u32 { F32, F16, U8, I32, I64 };

// An array of numbers: element i of row r is data[first + r * stride + i * step].
struct Source {
    const void* data;
    u32 type;
    u32 first;
    u32 stride;
    u32 step;
};

__device__ __forceinline__ float widen(float value) {
    return value;
}

__device__ __forceinline__ float widen(uint16_t half) {
    return half_value(half);
}

__device__ __forceinline__ float number(const Source& source, u32 row, u32 i = 0) {
    const size_t at = source.first + static_cast<size_t>(row) * source.stride + static_cast<size_t>(i) * source.step;
    switch (source.type) {
        case F32: return static_cast<const float*>(source.data)[at];
        case F16: return widen(static_cast<const uint16_t*>(source.data)[at]);
        case U8: return static_cast<float>(static_cast<const uint8_t*>(source.data)[at]);
        case I32: return __int2float_rn(static_cast<const int32_t*>(source.data)[at]);
        default: return __ll2float_rn(static_cast<const long long*>(source.data)[at]);
    }
}

// capacity = rows of the head: a row gives one candidate at most, with logits one for each of them.
struct Candidates {
    u64* keys;      // [capacity] score and index of the candidate: results are in ascending order, and no two keys are equal
    float4* boxes;  // [capacity] left, top, right, bottom in pixels of the model's input
    u32* classes;   // [capacity]
};

struct alignas(16) Candidate {
    float x1, y1, x2, y2, score;
    u32 cls, row;
    float angle;  // 0 for axis-aligned boxes
};

static_assert(sizeof(Candidate) == 32, "mirrored by image::Candidate");

// How many words behind a count of candidates these are: that of numbers that are not finite, that of boxes whose class ids are beyond
// the classes, and the greatest of these ids.
inline constexpr u32 NOT_FINITE = 4, BEYOND = 6, GREATEST = 8;

struct Results {
    u32 count;
    u32 not_finite;  // rows, boxes or angles
    u32 beyond;      // boxes whose class ids are beyond the classes
    u32 greatest;    // of these ids
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

// The row, or with logits the row times their number, plus the slot.
__device__ __forceinline__ u32 index_of(u64 key) {
    return static_cast<u32>(key);
}

__device__ __forceinline__ u64 key_of(float score, u32 index) {
    return static_cast<u64>(descending(score)) << 32 | index;
}
