// SPDX-License-Identifier: MPL-2.0
// A block of preprocess and regions: where its columns and rows are sampled, and their pixels. Positions are computed once in a
// block: they are quotients of whole numbers, and so exact. Tables would be waited for before the samples can be.
#pragma once

#include "bilinear.cuh"

// A column's pair must lie in the row: at the last sample it begins one before, and the second counts all.
__device__ inline AxisSample in_row(AxisSample column, uint32_t samples, uint32_t step) {
    if (column.near > 0 && column.near == samples - 1) column = {column.near - 1, 1.0f};
    return {column.near * step, column.weight};
}

// Those of chroma only where there are PLANES of it.
template <uint32_t PLANES>
__device__ inline Position column_position(const Sampling &p, const ViewPlacement &at, uint32_t i) {
    const AxisSample full = sample_axis(i, at.source_left, at.source_width, at.width, 1, 1);
    const AxisSample first = in_row(full, p.samples, p.first_step);
    AxisSample others = {};
    if constexpr (PLANES > 0) {
        others = sample_axis(i, at.source_left, at.source_width, at.width, p.siting_x, full);
        others = in_row(others, p.other_samples, p.others_step);
    }
    return {first.near, first.weight, others.near, others.weight};
}

template <uint32_t PLANES>
__device__ inline Position row_position(const Sampling &p, const ViewPlacement &at, uint32_t i) {
    const AxisSample full = sample_axis(i, at.source_top, at.source_height, at.height, 1, 1);
    AxisSample others = {};
    if constexpr (PLANES > 0) others = sample_axis(i, at.source_top, at.source_height, at.height, p.siting_y, full);
    return {full.near, full.weight, others.near, others.weight};
}

// The positions of a block's columns and rows. Column k of a thread is columns[k][threadIdx.x], so that no two threads wait for the
// same bank of memory; outside the scaled rectangle it is the rectangle's first column.
template <uint32_t COLUMNS, uint32_t ROWS>
struct Positions {
    Position columns[COLUMNS][THREADS_X];
    Position rows[THREADS_Y * ROWS];
};

template <uint32_t COLUMNS, uint32_t ROWS>
struct BlockPlace {
    const Positions<COLUMNS, ROWS> &positions;
    uint32_t left, top, width, height;
    uint32_t first_row; // of the block, in the scaled rectangle

    __device__ inline Position column(uint32_t k) const { return positions.columns[k][threadIdx.x]; }
    __device__ inline Position row(uint32_t i) const { return positions.rows[i - first_row]; }
};

// A block of the scaled rectangle, of which each thread writes COLUMNS pixels in each of ROWS rows.
template <uint32_t COLUMNS, uint32_t ROWS, typename Sample, uint32_t FIRST, uint32_t OTHERS, uint32_t PLANES>
__device__ inline void preprocess_block(const Sampling &p, const Frame &frame, const ViewPlacement &at) {
    constexpr uint32_t BLOCK_ROWS = THREADS_Y * ROWS;
    static_assert(BLOCK_ROWS <= THREADS_X, "a warp computes the rows");
    __shared__ Positions<COLUMNS, ROWS> positions;
    const uint32_t x = (blockIdx.x * THREADS_X + threadIdx.x) * COLUMNS, top = blockIdx.y * BLOCK_ROWS;
    if (top >= at.height) return;
    // By a warp for each column of a thread.
    for (uint32_t k = threadIdx.y; k < COLUMNS; k += THREADS_Y) {
        const uint32_t column = x + k - at.left; // left of the rectangle this wraps around to a great number
        positions.columns[k][threadIdx.x] = column_position<PLANES>(p, at, column < at.width ? column : 0);
    }
    // By the last warp, which has no column where a thread has two.
    if (threadIdx.y == THREADS_Y - 1 && threadIdx.x < BLOCK_ROWS) {
        positions.rows[threadIdx.x] = row_position<PLANES>(p, at, min(top + threadIdx.x, at.height - 1));
    }
    __syncthreads();
    const BlockPlace<COLUMNS, ROWS> place = {positions, at.left, at.top, at.width, at.height, top};
#pragma unroll 1
    for (uint32_t row = threadIdx.y; row < BLOCK_ROWS; row += THREADS_Y)
        preprocess_pixels<COLUMNS, Sample, FIRST, OTHERS, PLANES>(p, frame, place, x, top + row);
}
