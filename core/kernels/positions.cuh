// SPDX-License-Identifier: MPL-2.0
// A block of preprocess and regions: where its columns and rows are sampled, and their pixels. Positions are computed once in a
// block: they are quotients of whole numbers, and so exact. Tables would be waited for before the samples can be.
#pragma once

#include "bilinear.cuh"

// A column's pair must lie in the row: at the last sample it begins one before, and the second counts all.
__device__ inline AxisSample in_row(AxisSample column, uint32_t samples) {
    if (column.near > 0 && column.near == samples - 1) return {column.near - 1, 1, 1};
    return column;
}

// Where weights are 0 they are not computed, and there is no pair. Those of chroma only where there are PLANES of it.
template <uint32_t PLANES>
__device__ inline Position position(const AxisSample &first, const AxisSample &others, uint32_t first_step, uint32_t others_step,
                                    uint32_t alone) {
    const float first_weight = alone & FIRST_ALONE ? 0.0f : first.weight();
    const float others_weight = PLANES == 0 || alone & OTHERS_ALONE ? 0.0f : others.weight();
    return {first.near * first_step, first_weight, others.near * others_step, others_weight};
}

template <uint32_t PLANES>
__device__ inline Position column_position(const Sampling &p, const ViewPlacement &at, uint32_t i, uint32_t alone) {
    const AxisSample full = sample_axis(i, at.source_left, at.source_width, at.width, 1, 1);
    AxisSample first = full, others = {0, 0, 1};
    if constexpr (PLANES > 0) others = sample_axis(i, at.source_left, at.source_width, at.width, p.siting_x, full);
    if (!(alone & FIRST_ALONE)) first = in_row(first, p.samples);
    if (!(alone & OTHERS_ALONE)) others = in_row(others, p.other_samples);
    return position<PLANES>(first, others, p.first_step, p.others_step, alone);
}

template <uint32_t PLANES>
__device__ inline Position row_position(const Sampling &p, const ViewPlacement &at, uint32_t i, uint32_t alone) {
    const AxisSample full = sample_axis(i, at.source_top, at.source_height, at.height, 1, 1);
    AxisSample others = {0, 0, 1};
    if constexpr (PLANES > 0) others = sample_axis(i, at.source_top, at.source_height, at.height, p.siting_y, full);
    return position<PLANES>(full, others, 1, 1, alone);
}

// The positions of a block's columns and rows. Column k of a thread is columns[k][threadIdx.x], so that no two threads wait for the
// same bank of memory; outside the scaled rectangle it is the rectangle's first column.
template <uint32_t COLUMNS, uint32_t ROWS>
struct Positions {
    Position columns[COLUMNS][THREADS_X];
    Position rows[THREADS_Y * ROWS];
};

// The rows of a thread, from row `top` of the scaled rectangle on.
template <typename Element, uint32_t COLUMNS, uint32_t ROWS, typename Sample, uint32_t FIRST, uint32_t OTHERS, uint32_t PLANES, uint32_t ALONE>
__device__ inline void preprocess_rows(const Conversion &p, const Frame &frame, const ViewPlacement &at,
                                       const Positions<COLUMNS, ROWS> &positions, uint32_t x, uint32_t top) {
    Columns<COLUMNS> columns = {{}, false, true};
#pragma unroll
    for (uint32_t k = 0; k < COLUMNS; k++) {
        columns.each[k] = positions.columns[k][threadIdx.x];
        const bool inside = x + k - at.left < at.width; // left of the rectangle this wraps around to a great number
        columns.any |= inside;
        columns.all &= inside;
    }
#pragma unroll 1
    for (uint32_t row = threadIdx.y; row < THREADS_Y * ROWS && top + row < at.height; row += THREADS_Y)
        preprocess_row<Element, COLUMNS, Sample, FIRST, OTHERS, PLANES, ALONE>(p, frame, at, columns, positions.rows[row], x, top + row,
                                                                              [] {});
}

// Of the ways that a kernel has, the one for planes that are alone as `alone` says; the last of them, if there is none.
template <uint32_t WAY, uint32_t... MORE>
__device__ inline uint32_t way_of(uint32_t alone) {
    if constexpr (sizeof...(MORE) > 0) return alone == WAY ? WAY : way_of<MORE...>(alone);
    return WAY;
}

// What all threads do alike is asked once, so that each way is short.
template <typename Element, uint32_t COLUMNS, uint32_t ROWS, typename Sample, uint32_t FIRST, uint32_t OTHERS, uint32_t PLANES, uint32_t WAY,
          uint32_t... MORE>
__device__ inline void preprocess_way(const Conversion &p, const Frame &frame, const ViewPlacement &at,
                                      const Positions<COLUMNS, ROWS> &positions, uint32_t x, uint32_t top, uint32_t alone) {
    if (sizeof...(MORE) == 0 || alone == WAY) {
        preprocess_rows<Element, COLUMNS, ROWS, Sample, FIRST, OTHERS, PLANES, WAY>(p, frame, at, positions, x, top);
    } else if constexpr (sizeof...(MORE) > 0) {
        preprocess_way<Element, COLUMNS, ROWS, Sample, FIRST, OTHERS, PLANES, MORE...>(p, frame, at, positions, x, top, alone);
    }
}

// A block of padding. Blocks of its own need no positions, and leave the others fewer registers to keep.
template <typename Element, uint32_t COLUMNS>
__device__ inline void pad_block(const Conversion &p, const Frame &frame, const ViewPlacement &at, uint32_t x, uint32_t block) {
    const uint32_t begin = block * PADDED_ROWS, end = min(begin + PADDED_ROWS, p.tensor_height - at.height);
    pad_rows<Element, COLUMNS>(p, frame, at, x, begin + threadIdx.y, end, THREADS_Y);
}

// A block of the scaled rectangle, of which each thread writes COLUMNS pixels in each of ROWS rows; and of the padding, behind those.
// WAYS: for which planes that are alone there is a way of its own; the last must fit all that are none of the others.
template <uint32_t COLUMNS, uint32_t ROWS, typename Sample, uint32_t FIRST, uint32_t OTHERS, uint32_t PLANES, uint32_t... WAYS>
__device__ inline void preprocess_block(const Sampling &p, const Frame &frame, const ViewPlacement &at) {
    constexpr uint32_t BLOCK_ROWS = THREADS_Y * ROWS;
    static_assert(BLOCK_ROWS <= THREADS_X, "a warp computes the rows");
    __shared__ Positions<COLUMNS, ROWS> positions;
    const uint32_t x = (blockIdx.x * THREADS_X + threadIdx.x) * COLUMNS, top = blockIdx.y * BLOCK_ROWS;
    const uint32_t blocks = (at.height + BLOCK_ROWS - 1) / BLOCK_ROWS;
    if (blockIdx.y >= blocks) {
        if (x >= p.tensor_width) return;
        switch (p.type) {
            case Type::F32: return pad_block<float, COLUMNS>(p, frame, at, x, blockIdx.y - blocks);
            case Type::F16: return pad_block<uint16_t, COLUMNS>(p, frame, at, x, blockIdx.y - blocks);
            case Type::U8: return pad_block<uint8_t, COLUMNS>(p, frame, at, x, blockIdx.y - blocks);
        }
    }
    const uint32_t alone = way_of<WAYS...>(p.alone);
    // By a warp for each column of a thread.
    for (uint32_t k = threadIdx.y; k < COLUMNS; k += THREADS_Y) {
        const uint32_t column = x + k - at.left; // as above
        positions.columns[k][threadIdx.x] = column_position<PLANES>(p, at, column < at.width ? column : 0, alone);
    }
    // By the last warp, which has no column where a thread has two.
    if (threadIdx.y == THREADS_Y - 1 && threadIdx.x < BLOCK_ROWS) {
        positions.rows[threadIdx.x] = row_position<PLANES>(p, at, min(top + threadIdx.x, at.height - 1), alone);
    }
    __syncthreads();
    if (x >= p.tensor_width) return;
    switch (p.type) {
        case Type::F32:
            return preprocess_way<float, COLUMNS, ROWS, Sample, FIRST, OTHERS, PLANES, WAYS...>(p, frame, at, positions, x, top, alone);
        case Type::F16:
            return preprocess_way<uint16_t, COLUMNS, ROWS, Sample, FIRST, OTHERS, PLANES, WAYS...>(p, frame, at, positions, x, top, alone);
        case Type::U8:
            return preprocess_way<uint8_t, COLUMNS, ROWS, Sample, FIRST, OTHERS, PLANES, WAYS...>(p, frame, at, positions, x, top, alone);
    }
}
