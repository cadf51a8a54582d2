// SPDX-License-Identifier: MPL-2.0
// gather: for each kept box, the other numbers of its row, such as keypoints; points that count from the row's cell are in pixels
//         of the model's input then.
//   in   found    the number of kept boxes, then the boxes
//        data     a tensor of the head: number i of row r is at data[first + r * row_stride + i * column_stride]
//   out  results  in mapped host memory, [kept][columns] as f32
//        copies   the same in device memory, for the overlay
//   grid any size; the threads stride over the numbers
//   math f32, every operation rounded once; f16 is widened first, which is exact
//   reference implementation src/postprocess/refine.rs, and of points src/heads/points.rs; launched by the former, whose GatherParams
//        mirrors the one here (136 bytes)
#include "boxes.cuh"
#include "grid.cuh"

inline constexpr u32 GATHER_THREADS = 128;

// Where numbers count from: nowhere, or as points from the corner or the middle of the row's cell, or from its prior box.
enum PointOrigin : u32 { AS_THEY_ARE, CORNER, MIDDLE, PRIOR };

struct GatherParams {
    const Results* found;
    const void* data;
    float* results;
    float* copies;
    u32 is_half;
    u32 first, row_stride, column_stride;
    u32 columns;
    u32 limit;
    u32 origin;
    u32 of_point;  // numbers of a point, of which x and y are the first
    Grid grid;
};

static_assert(sizeof(GatherParams) == 136, "mirrored in refine.rs");

// A number of a point: x, y, or what else there is.
__device__ __forceinline__ float of_cell(const GatherParams& p, u32 row, u32 column, float value) {
    const u32 axis = column % p.of_point;
    if (axis > 1) return value;
    const Cell cell = cell_of(p.grid, row);
    const float at = axis == 0 ? cell.x : cell.y;
    if (p.origin == PRIOR) return from_prior(at, cell.stride, cell.prior, value);
    return from_place(at, cell.stride, p.origin == MIDDLE ? 0.5f : 0.0f, value);
}

extern "C" __global__ __launch_bounds__(GATHER_THREADS) void gather(GatherParams p) {
    const u32 numbers = min(p.found->count, p.limit) * p.columns;
    for (u32 at = blockIdx.x * GATHER_THREADS + threadIdx.x; at < numbers; at += gridDim.x * GATHER_THREADS) {
        const u32 row = p.found->detections[at / p.columns].row, column = at % p.columns;
        const size_t from = p.first + static_cast<size_t>(row) * p.row_stride + static_cast<size_t>(column) * p.column_stride;
        float value = p.is_half ? half_value(static_cast<const uint16_t*>(p.data)[from]) : static_cast<const float*>(p.data)[from];
        if (p.origin != AS_THEY_ARE) value = of_cell(p, row, column, value);
        p.results[at] = p.copies[at] = value;
    }
}
