// SPDX-License-Identifier: MPL-2.0
// What decode.cu and gather.cu share: the cells of a grid over the model's input, and what counts from them.
#pragma once

#include "common.cuh"

inline constexpr uint32_t LEVELS = 5;

// The cells of one stride.
struct Level {
    uint32_t stride;
    uint32_t columns;
    uint32_t rows;  // of the head: as many for each cell as there are anchors
};

// Of a head without a grid all of it is 0.
struct Grid {
    const float* priors;  // [levels][anchors] sides of prior boxes in pixels, or three numbers for each; none where there are no such boxes
    Level levels[LEVELS];
    uint32_t anchors;
};

static_assert(sizeof(Grid) == 72, "mirrored by CellGrid in suppress/params.rs");

// Where the numbers of a row count from.
struct Cell {
    float x, y;  // column and row
    float stride;
    float prior;  // the side of the prior box in pixels
    uint32_t at;  // the place of the prior box among all
};

// The cell of a row; all 0 beyond the grid, so boxes of no size.
__device__ __forceinline__ Cell cell_of(const Grid& grid, uint32_t row) {
    for (uint32_t i = 0; i < LEVELS; i++) {
        const Level level = grid.levels[i];
        if (row < level.rows) {
            const uint32_t cell = row / grid.anchors, anchor = row % grid.anchors;
            const uint32_t at = i * grid.anchors + anchor;
            const float prior = grid.priors ? grid.priors[at] : 0.0f;
            return {static_cast<float>(cell % level.columns), static_cast<float>(cell / level.columns), static_cast<float>(level.stride), prior, at};
        }
        row -= level.rows;
    }
    return {};
}

// One coordinate in cells from a place in the cell, both ways.
__device__ __forceinline__ float from_place(float cell, float stride, float place, float number) {
    return (number + (cell + place)) * stride;
}

// One coordinate in tenths of the prior box from its middle.
__device__ __forceinline__ float from_prior(float cell, float stride, float prior, float number) {
    return (cell + 0.5f) * stride + number * 0.1f * prior;
}
