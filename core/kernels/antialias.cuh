// SPDX-License-Identifier: MPL-2.0
// Resampling with antialiasing: what antialias and antialias_regions share. Each element is a weighted mean of all samples that it
// covers. The arithmetic is that of src/image/preprocess/antialias.rs.
#pragma once

#include "store.cuh"

inline constexpr uint32_t THREADS_X = 32;
inline constexpr uint32_t THREADS_Y = 4;

// A run of samples along one axis, columns counted in bytes, and the index of its first weight.
struct Run {
    uint32_t first, count, weights;
};

// The samples of a column or a row.
struct alignas(16) Taps {
    Run first;  // of plane 0
    Run others; // of planes 1 and 2
    uint32_t unused[2];
};

// Weights lie after the tables, and are indexed from the beginning of the columns.
__device__ inline float weight(const Taps *columns, uint32_t i) {
    return __ldg(reinterpret_cast<const float *>(columns) + i);
}

// The weighted means of the N adjacent samples of each pixel: down each column, then across.
template <typename Sample, uint32_t N>
__device__ inline void mean(const Taps *table, float (&means)[N], const uint8_t *plane, uint32_t stride, const Run &rows,
                            const Run &columns, uint32_t step) {
    const uint8_t *top = plane + uint64_t(rows.first) * stride + columns.first;
    for (uint32_t x = 0; x < columns.count; x++, top += step) {
        float sums[N];
        const uint8_t *at = top;
        for (uint32_t y = 0; y < rows.count; y++, at += stride) {
            const float down = weight(table, rows.weights + y);
#pragma unroll
            for (uint32_t n = 0; n < N; n++) {
                const float product = value<Sample>(__ldg(reinterpret_cast<const Sample *>(at) + n)) * down;
                sums[n] = y == 0 ? product : sums[n] + product;
            }
        }
        const float across = weight(table, columns.weights + x);
#pragma unroll
        for (uint32_t n = 0; n < N; n++) {
            const float product = sums[n] * across;
            means[n] = x == 0 ? product : means[n] + product;
        }
    }
}

// FIRST adjacent samples in plane 0; then OTHERS in each of PLANES planes of chroma. Rows lie behind the columns.
template <typename Sample, uint32_t FIRST, uint32_t OTHERS, uint32_t PLANES>
__device__ inline void antialias(const Conversion &p, const Frame &frame, const Taps *all_columns, const Taps *all_rows) {
    const uint32_t x = blockIdx.x * THREADS_X + threadIdx.x, y = blockIdx.y * THREADS_Y + threadIdx.y;
    if (x >= p.tensor_width || y >= p.tensor_height) return;
    const Taps columns = all_columns[x], rows = all_rows[y];
    float first[FIRST] = {}, others[PLANES + 1][OTHERS] = {};
    mean<Sample>(all_columns, first, frame.planes[0], frame.strides[0], rows.first, columns.first, p.first_step);
#pragma unroll
    for (uint32_t i = 0; i != PLANES; i++)
        mean<Sample>(all_columns, others[i], frame.planes[1 + i], frame.strides[1 + i], rows.others, columns.others, p.others_step);
    Pixel pixel;
    if constexpr (PLANES > 0) {
        pixel = from_yuv(p, first[0], others[0][0], others[1 / OTHERS][1 % OTHERS]);
    } else if constexpr (FIRST == 3) {
        pixel = from_rgb(p, first[0], first[1], first[2]);
    } else {
        pixel = from_luma(p, first[0]);
    }
    store(p, frame, x, y, pixel);
}
