// SPDX-License-Identifier: MPL-2.0
// preprocess: frames -> tensors in one pass: resample, convert colours, normalise, write; padding included.
//   in    planes of a frame; rows are `strides` bytes apart, pixels `step` bytes. Samples have 8 bits, or 16 of which the
//         upper 10 count; two that are read together are aligned to the size of both
//   out   tensor [C][H][W] or [H][W][C] of f32, f16 or u8, dense
//   grid  a thread writes COLUMNS pixels of a row of the scaled frame, and of the rows of padding that are a multiple of
//         its height away; a block is THREADS_X x THREADS_Y threads, blockIdx.z is the frame
//         preprocess_batch_*  up to MAX_BATCH frames, BATCH_COLUMNS pixels of BATCH_ROWS such rows. The others are for one frame,
//                             because parameters for 32 make its launch 0.1 us slower, at times 0.9
//   math  equal to the reference implementation, src/image/preprocess/host.rs, bit by bit
//   launched by src/image/preprocess/kernel.rs, which mirrors FrameParameters
#include "positions.cuh"

// One frame is done soonest by many threads that have little to do. In a batch there are threads enough: more columns make longer
// stores, and a second row needs no more positions of columns.
inline constexpr uint32_t COLUMNS = 2, BATCH_COLUMNS = 4, BATCH_ROWS = 2;

using One = FrameParameters<1>;
using Batch = FrameParameters<>;

template <typename Sample, uint32_t FIRST, uint32_t OTHERS = 1, uint32_t PLANES = 0>
__device__ inline void preprocess(const One &p) {
    preprocess_block<COLUMNS, 1, Sample, FIRST, OTHERS, PLANES>(p, p.frames[0], p.placement);
}

template <typename Sample, uint32_t FIRST, uint32_t OTHERS = 1, uint32_t PLANES = 0>
__device__ inline void preprocess(const Batch &p) {
    preprocess_block<BATCH_COLUMNS, BATCH_ROWS, Sample, FIRST, OTHERS, PLANES>(p, p.frames[blockIdx.z], p.placement);
}

// The second launch bound is the number of blocks per multiprocessor. With fourteen or more, loads wait for registers; twice the
// columns take twice as many.
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, 12) preprocess_nv12(const __grid_constant__ One p) {
    preprocess<uint8_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, 8) preprocess_batch_nv12(const __grid_constant__ Batch p) {
    preprocess<uint8_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, 12) preprocess_p010(const __grid_constant__ One p) {
    preprocess<uint16_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, 8) preprocess_batch_p010(const __grid_constant__ Batch p) {
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
