// SPDX-License-Identifier: MPL-2.0
// Bilinear interpolation, as in src/image/bilinear.rs: first along the row, then between rows.
#pragma once

#include "common.cuh"

// The part of a line of pixels that samples cover.
struct SourceRange {
    float origin, length;
};

// The two samples of a line of length `from` between which a sample of another line lies, and their weights.
struct Interpolation {
    uint32_t samples[2];
    float weights[2];
};

__device__ __forceinline__ Interpolation interpolation(uint32_t at, uint32_t from, SourceRange over) {
    const float scale = static_cast<float>(from) / over.length;
    const float place = fmaxf((static_cast<float>(at) + 0.5f - over.origin) * scale - 0.5f, 0.0f);
    const uint32_t first = min(static_cast<uint32_t>(place), from - 1);
    const float second = place - static_cast<float>(first);
    return {{first, min(first + 1, from - 1)}, {1.0f - second, second}};
}

// The same of the whole line, of length `to`.
__device__ __forceinline__ Interpolation interpolation(uint32_t at, uint32_t from, uint32_t to) {
    return interpolation(at, from, SourceRange{0.0f, static_cast<float>(to)});
}

__device__ __forceinline__ float interpolate(const Interpolation& x, const Interpolation& y, float a, float b, float c, float d) {
    const float above = x.weights[0] * a + x.weights[1] * b, below = x.weights[0] * c + x.weights[1] * d;
    return y.weights[0] * above + y.weights[1] * below;
}
