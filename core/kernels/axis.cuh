// SPDX-License-Identifier: MPL-2.0
// Where along an axis of a rectangle of a frame a position is sampled: what regions and antialias_regions share. Positions are
// quotients of whole numbers, and so exact; the reference implementation is SampleAxis of src/image/preprocess/sampler.rs.
#pragma once

#include "common.cuh"

// How chroma belongs to pixels along an axis; the numbers of `Between` are its `c`.
enum class Siting : uint32_t { InCommon, OnFirst, Between };

// `rest` of `parts` of the way from sample `near` to the next one.
struct AxisSample {
    uint32_t near, rest, parts;

    // A division, which takes a while: not for those whose weights are 0 anyway.
    __device__ inline float weight() const { return float(rest) / float(parts); }
};

// `i` of `scaled` positions over `length` pixels from `start` on, of which `pixels` have a sample; `lead` is 1 where that lies
// between the pixels or on the only one, in halves of a pixel for each of them.
__device__ inline AxisSample sample_axis(uint32_t i, uint32_t start, uint32_t length, uint32_t scaled,
                                         uint32_t pixels, uint32_t lead) {
    const uint32_t den = 2 * pixels * scaled, first = start / pixels, last = (start + length - 1) / pixels;
    const uint32_t middle = (2 * i + 1) * length + 2 * start * scaled, before = lead * scaled;
    const uint32_t from_first = middle > before ? middle - before : 0;
    const uint32_t num = max(from_first, first * den);
    const uint32_t near = num / den;
    if (near >= last) return {last, 0, 1};
    return {near, num - near * den, den};
}

__device__ inline AxisSample sample_axis(uint32_t i, uint32_t start, uint32_t length, uint32_t scaled,
                                         Siting siting, const AxisSample &full) {
    switch (siting) {
        case Siting::InCommon: return {full.near / 2, full.near % 2 == 0 ? 0 : full.rest, full.parts};
        case Siting::OnFirst: return sample_axis(i, start, length, scaled, 2, 1);
        case Siting::Between: return sample_axis(i, start, length, scaled, 2, 2);
    }
    return full;
}
