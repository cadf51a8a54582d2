// SPDX-License-Identifier: MPL-2.0
// Whether a box repeats another one, for nms.cu. The reference implementation is BBox::iou of src/image/geometry.rs, bit for bit.
#pragma once

#include "common.cuh"

__device__ __forceinline__ float area(float4 box) {
    return (box.z - box.x) * (box.w - box.y);
}

// Whether their IoU is above the threshold. The quotient takes longest, and what it is compared with is nearly always clear without it:
// where the overlap and as large a part of the whole area as the threshold are further apart than all roundings make, by `margin`.
template <typename Params>
__device__ __forceinline__ bool repeats(const Params& p, float4 a, uint32_t a_class, float4 b, uint32_t b_class) {
    constexpr float LEAST_MARGIN = 1e-30f;  // above what is lost where numbers are no longer normal
    if (!p.agnostic && a_class != b_class) return false;
    const float width = fminf(a.z, b.z) - fmaxf(a.x, b.x), height = fminf(a.w, b.w) - fmaxf(a.y, b.y);
    if (!(width > 0 && height > 0)) return 0.0f > p.threshold;
    const float overlap = width * height, all = area(a) + area(b) - overlap;
    const float above = overlap - p.threshold * all;
    // NaN is never further.
    if (fabsf(above) > overlap * p.margin + LEAST_MARGIN) return above > 0;
    return overlap / all > p.threshold;
}
