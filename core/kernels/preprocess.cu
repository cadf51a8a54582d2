// SPDX-License-Identifier: MPL-2.0
// preprocess: frames -> tensors in one pass: resample, convert colours, normalise, write; padding included.
//   in    planes of a frame; rows are `strides` bytes apart, pixels `step` bytes. Samples have 8 bits, or 16 of which the
//         upper 10 count; two that are read together are aligned to the size of both
//   out   tensor [C][H][W] or [H][W][C] of f32, f16 or u8, dense
//   grid  a thread writes COLUMNS pixels of a row of the scaled frame, and of the rows of padding that are a multiple of
//         its height away; a block is THREADS_X x THREADS_Y threads, blockIdx.z is the frame
//         …_batch_…     up to MAX_BATCH frames; the others are for one, because parameters for 32 make its launch 0.1 us slower,
//                       at times 0.9
//   math  equal to the reference implementation, src/image/preprocess/host.rs, bit by bit; positions are from its tables
//   launched by src/image/preprocess/kernel.rs, which mirrors Parameters
#include "bilinear.cuh"

using One = ParametersOf<Position, 1>;
using Batch = ParametersOf<Position>;

static_assert(sizeof(One) == 176 && sizeof(Batch) == 128 + MAX_BATCH * 48, "mirrored by PreprocessParams");

// The positions are in tables.
struct TablePlace {
    const Position *columns, *rows;
    uint32_t left, top, width, height;

    static __device__ inline Position position(const Position *table, uint32_t i) {
        const uint4 words = __ldg(reinterpret_cast<const uint4 *>(table + i));
        return {words.x, __uint_as_float(words.y), words.z, __uint_as_float(words.w)};
    }
    __device__ inline Position column(uint32_t i) const { return position(columns, i); }
    __device__ inline Position row(uint32_t i) const { return position(rows, i); }
};

template <typename Sample, uint32_t FIRST, uint32_t OTHERS = 1, uint32_t PLANES = 0, uint32_t FRAMES>
__device__ inline void preprocess(const ParametersOf<Position, FRAMES> &p) {
    const TablePlace place = {p.columns, p.rows, p.left, p.top, p.width, p.height};
    const uint32_t x = (blockIdx.x * THREADS_X + threadIdx.x) * COLUMNS, row = blockIdx.y * THREADS_Y + threadIdx.y;
    preprocess<Sample, FIRST, OTHERS, PLANES>(p, p.frames[FRAMES == 1 ? 0 : blockIdx.z], place, x, row);
}

// The second launch bound is the number of blocks per multiprocessor. With fourteen or more, loads wait for registers.
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, 12) preprocess_nv12(const __grid_constant__ One p) {
    preprocess<uint8_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, 12) preprocess_batch_nv12(const __grid_constant__ Batch p) {
    preprocess<uint8_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, 12) preprocess_p010(const __grid_constant__ One p) {
    preprocess<uint16_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, 12) preprocess_batch_p010(const __grid_constant__ Batch p) {
    preprocess<uint16_t, 1, 2, 1>(p);
}
// I420, and NV12 and P010 whose pairs of samples are not aligned.
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_planes8(const __grid_constant__ One p) {
    preprocess<uint8_t, 1, 1, 2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_batch_planes8(const __grid_constant__ Batch p) {
    preprocess<uint8_t, 1, 1, 2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_planes16(const __grid_constant__ One p) {
    preprocess<uint16_t, 1, 1, 2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_batch_planes16(const __grid_constant__ Batch p) {
    preprocess<uint16_t, 1, 1, 2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_rgb(const __grid_constant__ One p) {
    preprocess<uint8_t, 3>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_batch_rgb(const __grid_constant__ Batch p) {
    preprocess<uint8_t, 3>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_luma8(const __grid_constant__ One p) {
    preprocess<uint8_t, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_batch_luma8(const __grid_constant__ Batch p) {
    preprocess<uint8_t, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_luma16(const __grid_constant__ One p) {
    preprocess<uint16_t, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_batch_luma16(const __grid_constant__ Batch p) {
    preprocess<uint16_t, 1>(p);
}
