// SPDX-License-Identifier: MPL-2.0
// regions: rectangles of one frame -> tensors, all in one launch: slices, or crops of objects.
//   in    planes of a frame, as for preprocess
//   out   a tensor for each rectangle, as of preprocess
//   grid  as of preprocess for the highest of the scaled rectangles, but a thread writes ROWS rows; blockIdx.z is the rectangle
//   math  equal to the reference implementation for each rectangle, bit by bit. Positions are computed here, once in a block, and not
//         read from tables, which would be other ones for each rectangle: they are quotients of whole numbers, and so exact
//   launched by src/image/preprocess/region_kernel.rs, which mirrors Parameters
#include "axis.cuh"
#include "bilinear.cuh"

inline constexpr uint32_t MAX_REGIONS = 64;
// Rows of a thread. More make large rectangles faster, and a few small ones slower.
inline constexpr uint32_t ROWS = 2;
inline constexpr uint32_t BLOCK_COLUMNS = THREADS_X * COLUMNS, BLOCK_ROWS = THREADS_Y * ROWS;

struct Region {
    uint8_t *tensor;
    uint32_t source_left, source_top, source_width, source_height;
    uint32_t left, top, width, height; // of the scaled rectangle in the tensor
    uint32_t together;                 // as of Frame
    uint32_t unused;
};

struct Parameters : Conversion {
    uint32_t samples;         // of a row of plane 0
    uint32_t other_samples;   // of a row of the other planes
    Siting siting_x, siting_y;
    uint32_t strides[3];
    const uint8_t *planes[3];
    Region regions[MAX_REGIONS];
};

// A column's pair must lie in the row: at the last sample it begins one before, and the second counts all.
__device__ inline AxisSample in_row(AxisSample column, uint32_t samples, uint32_t step) {
    if (column.near > 0 && column.near == samples - 1) column = {column.near - 1, 1.0f};
    return {column.near * step, column.weight};
}

// The positions of a block's columns and rows, which its threads share: each is two quotients for luma and two for chroma.
struct Positions {
    Position columns[BLOCK_COLUMNS + 1]; // the last one is the first column of the scaled rectangle, for those outside it
    Position rows[BLOCK_ROWS];
};

struct RegionPlace {
    const Positions &positions;
    uint32_t left, top, width, height;
    uint32_t first_column, first_row; // of the block, in the scaled rectangle

    // Left of the rectangle the difference wraps around to a large number.
    __device__ inline Position column(uint32_t i) const { return positions.columns[min(i - first_column, BLOCK_COLUMNS)]; }
    __device__ inline Position row(uint32_t i) const { return positions.rows[i - first_row]; }
};

__device__ inline Position column_position(const Parameters &p, const Region &region, uint32_t i) {
    const AxisSample full = sample_axis(i, region.source_left, region.source_width, region.width, 1, 1);
    const AxisSample others = sample_axis(i, region.source_left, region.source_width, region.width, p.siting_x, full);
    const AxisSample first = in_row(full, p.samples, p.first_step);
    const AxisSample chroma = in_row(others, p.other_samples, p.others_step);
    return {first.near, first.weight, chroma.near, chroma.weight};
}

__device__ inline Position row_position(const Parameters &p, const Region &region, uint32_t i) {
    const AxisSample full = sample_axis(i, region.source_top, region.source_height, region.height, 1, 1);
    const AxisSample others = sample_axis(i, region.source_top, region.source_height, region.height, p.siting_y, full);
    return {full.near, full.weight, others.near, others.weight};
}

template <typename Sample, uint32_t FIRST, uint32_t OTHERS = 1, uint32_t PLANES = 0>
__device__ inline void preprocess_region(const Parameters &p) {
    __shared__ Positions positions;
    const Region &region = p.regions[blockIdx.z];
    const uint32_t left = blockIdx.x * BLOCK_COLUMNS, top = blockIdx.y * BLOCK_ROWS;
    if (top >= region.height) return;
    for (uint32_t i = threadIdx.y * THREADS_X + threadIdx.x; i <= BLOCK_COLUMNS + BLOCK_ROWS; i += THREADS_X * THREADS_Y) {
        if (i <= BLOCK_COLUMNS) {
            const uint32_t column = left + i - region.left;
            positions.columns[i] = column_position(p, region, i < BLOCK_COLUMNS && column < region.width ? column : 0);
        } else {
            const uint32_t row = i - BLOCK_COLUMNS - 1;
            positions.rows[row] = row_position(p, region, min(top + row, region.height - 1));
        }
    }
    __syncthreads();
    const Frame frame = {{p.planes[0], p.planes[1], p.planes[2]},
                         region.tensor,
                         {p.strides[0], p.strides[1], p.strides[2]},
                         region.together};
    const RegionPlace place = {positions, region.left, region.top, region.width, region.height, left - region.left, top};
    const uint32_t x = left + threadIdx.x * COLUMNS;
#pragma unroll 1
    for (uint32_t row = threadIdx.y; row < BLOCK_ROWS; row += THREADS_Y)
        preprocess<Sample, FIRST, OTHERS, PLANES>(p, frame, place, x, top + row);
}

extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_nv12(const __grid_constant__ Parameters p) {
    preprocess_region<uint8_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_p010(const __grid_constant__ Parameters p) {
    preprocess_region<uint16_t, 1, 2, 1>(p);
}
// I420, and NV12 and P010 whose pairs of samples are not aligned.
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_planes8(const __grid_constant__ Parameters p) {
    preprocess_region<uint8_t, 1, 1, 2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_planes16(const __grid_constant__ Parameters p) {
    preprocess_region<uint16_t, 1, 1, 2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_rgb(const __grid_constant__ Parameters p) {
    preprocess_region<uint8_t, 3>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_luma8(const __grid_constant__ Parameters p) {
    preprocess_region<uint8_t, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) regions_luma16(const __grid_constant__ Parameters p) {
    preprocess_region<uint16_t, 1>(p);
}
