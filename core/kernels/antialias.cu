// SPDX-License-Identifier: MPL-2.0
// antialias: frames -> tensors with an antialiased resize: each element is a weighted mean of all samples that it covers.
//   in    planes of a frame, as for preprocess
//   out   tensor [C][H][W] or [H][W][C] of f32, f16 or u8, dense; the frame covers all of it
//   grid  a thread writes one pixel; a block is THREADS_X x THREADS_Y threads, blockIdx.z is the frame
//   math  equal to the reference implementation, src/image/preprocess/antialias.rs, bit by bit; weights are from its tables
//   launched by src/image/preprocess/kernel.rs, which mirrors Parameters
#include "antialias.cuh"

using Parameters = FrameParameters<>;

template <typename Sample, uint32_t FIRST, uint32_t OTHERS = 1, uint32_t PLANES = 0>
__device__ inline void antialias_frame(const Parameters &p) {
    const Taps *columns = static_cast<const Taps *>(p.columns), *rows = static_cast<const Taps *>(p.rows);
    antialias<Sample, FIRST, OTHERS, PLANES>(p, p.frames[blockIdx.z], columns, rows);
}

extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) antialias_pairs8(const __grid_constant__ Parameters p) {
    antialias_frame<uint8_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) antialias_pairs16(const __grid_constant__ Parameters p) {
    antialias_frame<uint16_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) antialias_planes8(const __grid_constant__ Parameters p) {
    antialias_frame<uint8_t, 1, 1, 2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) antialias_rgb(const __grid_constant__ Parameters p) {
    antialias_frame<uint8_t, 3>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) antialias_luma8(const __grid_constant__ Parameters p) {
    antialias_frame<uint8_t, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) antialias_luma16(const __grid_constant__ Parameters p) {
    antialias_frame<uint16_t, 1>(p);
}
