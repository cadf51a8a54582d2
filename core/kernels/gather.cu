// SPDX-License-Identifier: MPL-2.0
// gather: for each kept box, the other numbers of its row, such as keypoints.
//   in   found    the number of kept boxes, then the boxes
//        data     a tensor of the head: number i of row r is at data[first + r * row_stride + i * column_stride]
//   out  results  in mapped host memory, [kept][columns] as f32
//        copies   the same in device memory, for the overlay
//   grid any size; the threads stride over the numbers
//   math none: f16 is widened, which is exact
//   reference implementation and launcher src/postprocess/refine.rs, whose GatherParams mirrors the one here (56 bytes)
#include "boxes.cuh"

inline constexpr u32 GATHER_THREADS = 128;

struct GatherParams {
    const Results* found;
    const void* data;
    float* results;
    float* copies;
    u32 is_half;
    u32 first, row_stride, column_stride;
    u32 columns;
    u32 limit;
};

static_assert(sizeof(GatherParams) == 56, "mirrored in refine.rs");

extern "C" __global__ __launch_bounds__(GATHER_THREADS) void gather(GatherParams p) {
    const u32 numbers = min(p.found->count, p.limit) * p.columns;
    for (u32 at = blockIdx.x * GATHER_THREADS + threadIdx.x; at < numbers; at += gridDim.x * GATHER_THREADS) {
        const u32 row = p.found->detections[at / p.columns].row, column = at % p.columns;
        const size_t from = p.first + static_cast<size_t>(row) * p.row_stride + static_cast<size_t>(column) * p.column_stride;
        const float value = p.is_half ? half_value(static_cast<const uint16_t*>(p.data)[from])
                                      : static_cast<const float*>(p.data)[from];
        p.results[at] = p.copies[at] = value;
    }
}
