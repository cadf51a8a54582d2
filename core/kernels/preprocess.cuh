// SPDX-License-Identifier: MPL-2.0
// preprocess: frames -> tensors in one pass: resample, convert colours, normalise, write; padding included. Each kind of samples is a file
// of its own, preprocess_*.cu, so that a driver compiles only what is used.
//   in    planes of a frame; rows are `strides` bytes apart, pixels `step` bytes. Samples have 8 bits, or 16 of which the
//         upper 10 count; two that are read together are aligned to the size of both
//   out   tensor [C][H][W] or [H][W][C] of f32, f16 or u8, dense
//   grid  a thread writes COLUMNS pixels of a row of the scaled frame; a block is THREADS_X x THREADS_Y threads, blockIdx.z is the frame.
//         Behind the blocks of the scaled frame are those of the padding, of PADDED_ROWS rows above and below it
//         preprocess_*        one frame: parameters for 32 make its launch 0.1 us slower, at times 0.9
//         preprocess_batch_*  up to MAX_BATCH frames, BATCH_COLUMNS pixels in each of BATCH_ROWS such rows
//         preprocess_alone_*  the same, in ALONE_ROWS rows, where all positions fall on samples, as of 1080p to 640x640: fewer registers,
//                             more threads at a time
//   math  equal to the reference implementation, src/image/preprocess/host.rs, bit by bit
//   launched by src/image/preprocess/kernel.rs, which mirrors FrameParameters
#pragma once

#include "positions.cuh"

// One frame is done soonest by many threads that have little to do. In a batch there are threads enough: more columns make longer
// stores, and more rows need no more positions of columns.
inline constexpr uint32_t COLUMNS = 2, BATCH_COLUMNS = 4, BATCH_ROWS = 2, ALONE_ROWS = 4;

using One = FrameParameters<1>;
using Batch = FrameParameters<>;

// FIRST adjacent samples in plane 0, then OTHERS in each of PLANES planes of chroma. What is common has a way of its own for each set of
// planes that may be alone; what is rare, chroma that is read one by one, only where all are.
template <typename Sample, uint32_t FIRST, uint32_t OTHERS = 1, uint32_t PLANES = 0>
struct Preprocess {
    static constexpr uint32_t ALL = PLANES > 0 ? ALL_ALONE : FIRST_ALONE;
    static constexpr bool IS_COMMON = PLANES == 1;

    __device__ static inline void one(const One &p) {
        if constexpr (IS_COMMON) {
            block<COLUMNS, 1, FIRST_ALONE, OTHERS_ALONE, ALL, 0>(p, p.frames[0]);
        } else {
            block<COLUMNS, 1, ALL, 0>(p, p.frames[0]);
        }
    }
    __device__ static inline void batch(const Batch &p) {
        if constexpr (IS_COMMON) {
            block<BATCH_COLUMNS, BATCH_ROWS, FIRST_ALONE, OTHERS_ALONE, 0>(p, p.frames[blockIdx.z]);
        } else {
            block<BATCH_COLUMNS, BATCH_ROWS, 0>(p, p.frames[blockIdx.z]);
        }
    }
    __device__ static inline void alone(const Batch &p) { block<BATCH_COLUMNS, ALONE_ROWS, ALL>(p, p.frames[blockIdx.z]); }

private:
    template <uint32_t C, uint32_t R, uint32_t... WAYS, typename Parameters>
    __device__ static inline void block(const Parameters &p, const Frame &frame) {
        preprocess_block<C, R, Sample, FIRST, OTHERS, PLANES, WAYS...>(p, frame, p.placement);
    }
};

// The kernels of a kind of samples, and the blocks per multiprocessor of each. With more, loads wait for registers.
#define PREPROCESS(name, of_one, of_batch, of_alone, ...)                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, of_one) preprocess_##name(const __grid_constant__ One p) {       \
        Preprocess<__VA_ARGS__>::one(p);                                                                                                \
    }                                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, of_batch) preprocess_batch_##name(const __grid_constant__ Batch p) { \
        Preprocess<__VA_ARGS__>::batch(p);                                                                                              \
    }                                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, of_alone) preprocess_alone_##name(const __grid_constant__ Batch p) { \
        Preprocess<__VA_ARGS__>::alone(p);                                                                                              \
    }
