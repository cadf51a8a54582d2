// SPDX-License-Identifier: MPL-2.0
// preprocess: frames -> tensors in one pass: resample, convert colours, normalise, write; padding included. Each kind of samples is a file
// of its own, preprocess_*.cu, so that a driver compiles only what is used.
//   in    planes of a frame; rows are `strides` bytes apart, pixels `step` bytes. Samples have 8 bits, or 16 of which the
//         upper 10 count; two that are read together are aligned to the size of both
//   out   tensor [C][H][W] or [H][W][C] of f32, f16 or u8, dense
//   grid  a thread writes COLUMNS pixels of a row of the scaled frame; a block is THREADS_X x THREADS_Y threads, blockIdx.z is the frame.
//         Behind the blocks of the scaled frame are those of the padding, of PADDED_ROWS rows above and below it
//         preprocess_*        one frame: parameters for 32 make its launch 0.1 us slower, at times 0.9
//         preprocess_steps_*  the same, STEPS_COLUMNS pixels, where all positions fall on samples that are equally far from each other, as
//                             of 1080p to 640x640: there is nothing to divide and to wait for before the samples can be read. The threads
//                             of the scaled frame write the padding too, while their samples are on their way. Only where STEPS_COLUMNS
//                             elements can be written at once
//         preprocess_batch_*  up to MAX_BATCH frames, BATCH_COLUMNS pixels in each of BATCH_ROWS such rows
//         preprocess_alone_*  as preprocess_batch_*, in ALONE_ROWS rows, where all positions fall on samples: fewer registers, more threads
//                             at a time
//   math  equal to the reference implementation, src/image/preprocess/host.rs, bit by bit
//   launched by src/image/preprocess/kernel.rs, which mirrors FrameParameters
#pragma once

#include "positions.cuh"

// One frame is done soonest by many threads that have little to do. In a batch there are threads enough: more columns make longer
// stores, and more rows need no more positions of columns.
inline constexpr uint32_t COLUMNS = 2, STEPS_COLUMNS = 4, BATCH_COLUMNS = 4, BATCH_ROWS = 2, ALONE_ROWS = 4;

using One = FrameParameters<1>;
using Batch = FrameParameters<>;

// Writes COLUMNS pixels of a row of the scaled frame, and those above and below them. The positions of plane 0 are a step from each other,
// and begin in the middle of the first; of chroma there is a sample for each two pixels and each two rows.
template <typename Element, uint32_t COLUMNS, typename Sample, uint32_t FIRST, uint32_t OTHERS, uint32_t PLANES>
__device__ inline void preprocess_steps(const One &p, uint32_t x, uint32_t row) {
    const ViewPlacement &at = p.placement;
    Frame frame = p.frames[0];
    frame.together = true; // else the host takes preprocess_*
    // Columns outside the scaled frame are read too, at its first one: a branch for them would be more to fetch.
    Columns<COLUMNS> columns = {{}, true, true};
#pragma unroll
    for (uint32_t k = 0; k < COLUMNS; k++) {
        const uint32_t column = x + k - at.left; // left of the scaled frame this wraps around to a great number
        const bool inside = column < at.width;
        const uint32_t pixel = at.source_left + p.step_across / 2 + (inside ? column : 0) * p.step_across;
        columns.each[k] = {pixel * p.first_step, 0.0f, pixel / 2 * p.others_step, 0.0f};
        columns.all &= inside;
    }
    const uint32_t pixel = at.source_top + p.step_down / 2 + row * p.step_down;
    const auto pad = [&] { pad_rows<Element, COLUMNS>(p, frame, at, x, row, p.tensor_height - at.height, at.height); };
    preprocess_row<Element, COLUMNS, Sample, FIRST, OTHERS, PLANES, ALL_ALONE>(p, frame, at, columns, {pixel, 0.0f, pixel / 2, 0.0f}, x, row,
                                                                              pad);
}

// FIRST adjacent samples in plane 0, then OTHERS in each of PLANES planes of chroma. Where all are alone there are
// kernels of their own. Of the others, those of what is common have a way of its own for either that may be alone; chroma that is read
// one by one, which is rare, has none.
template <typename Sample, uint32_t FIRST, uint32_t OTHERS = 1, uint32_t PLANES = 0>
struct Preprocess {
    static constexpr uint32_t ALL = PLANES > 0 ? ALL_ALONE : FIRST_ALONE;
    static constexpr bool IS_COMMON = PLANES == 1;

    __device__ static inline void one(const One &p) {
        if constexpr (IS_COMMON) {
            block<COLUMNS, 1, FIRST_ALONE, OTHERS_ALONE, 0>(p, p.frames[0]);
        } else {
            block<COLUMNS, 1, 0>(p, p.frames[0]);
        }
    }
    __device__ static inline void steps(const One &p) {
        const uint32_t x = (blockIdx.x * THREADS_X + threadIdx.x) * STEPS_COLUMNS, row = blockIdx.y * THREADS_Y + threadIdx.y;
        if (x >= p.tensor_width || row >= p.placement.height) return;
        switch (p.type) {
            case Type::F32: return preprocess_steps<float, STEPS_COLUMNS, Sample, FIRST, OTHERS, PLANES>(p, x, row);
            case Type::F16: return preprocess_steps<uint16_t, STEPS_COLUMNS, Sample, FIRST, OTHERS, PLANES>(p, x, row);
            case Type::U8: return preprocess_steps<uint8_t, STEPS_COLUMNS, Sample, FIRST, OTHERS, PLANES>(p, x, row);
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
    extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_steps_##name(const __grid_constant__ One p) {         \
        Preprocess<__VA_ARGS__>::steps(p);                                                                                              \
    }                                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, of_batch) preprocess_batch_##name(const __grid_constant__ Batch p) { \
        Preprocess<__VA_ARGS__>::batch(p);                                                                                              \
    }                                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y, of_alone) preprocess_alone_##name(const __grid_constant__ Batch p) { \
        Preprocess<__VA_ARGS__>::alone(p);                                                                                              \
    }
