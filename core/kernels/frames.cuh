// SPDX-License-Identifier: MPL-2.0
// What kernels that convert frames to tensors share: their parameters, colours, and how elements are stored.
// src/image/preprocess/kernel.rs mirrors the parameters.
#pragma once

#include "axis.cuh"

// Of one launch. Each launch more has a start and an end in which the GPU is not full.
inline constexpr uint32_t MAX_BATCH = 32;

struct Frame {
    const uint8_t *planes[3];
    uint8_t *tensor;
    uint32_t strides[3];
    // Whether COLUMNS elements of the tensor can be written at once: rows are a multiple of that, and the address is aligned.
    uint32_t together;
};

enum class Type : uint32_t { F32, F16, U8 };

// Planes of which every position falls on a sample, so that all weights are 0: plane 0, and those of chroma.
inline constexpr uint32_t FIRST_ALONE = 1, OTHERS_ALONE = 2, ALL_ALONE = FIRST_ALONE | OTHERS_ALONE;

// How the samples of a frame become elements of a tensor.
struct Conversion {
    uint32_t tensor_width, tensor_height;
    // Bytes to the next sample of a row; 0 if there is none.
    uint32_t first_step, others_step;
    uint32_t alone; // of FIRST_ALONE and OTHERS_ALONE
    uint32_t to_gray;  // RGB becomes gray
    uint32_t reversed; // either the samples or the channels are B, G, R, not both
    uint32_t channels; // 1 or 3
    uint32_t interleaved; // NHWC
    Type type;
    float black, gain, r_cr, g_cb, g_cr, b_cb;
    float factor[3], addend[3];
    float pad; // a sample
};

// The samples of a row of plane 0, and of the other planes, and how those belong to pixels.
struct Sampling : Conversion {
    uint32_t samples, other_samples;
    Siting siting_x, siting_y;
};

// A rectangle of a frame, and where it lies in the tensor once it is scaled.
struct ViewPlacement {
    uint32_t source_left, source_top, source_width, source_height;
    uint32_t left, top, width, height;
};

// Of preprocess and antialias.
template <uint32_t FRAMES = MAX_BATCH>
struct FrameParameters : Sampling {
    ViewPlacement placement;
    // Of antialias, its tables for each column and each row. Of preprocess_steps, how many pixels of the frame lie from one column of the
    // scaled frame to the next, and from one row to the next.
    union {
        const void *columns;
        uint32_t step_across;
    };
    union {
        const void *rows;
        uint32_t step_down;
    };
    Frame frames[FRAMES]; // last: parameters for one frame are the beginning of those for many
};

static_assert(sizeof(FrameParameters<1>) == 160 + sizeof(Frame), "mirrored by PreprocessParams");

struct Pixel {
    float channels[3];
};

template <typename Sample>
__device__ inline float value(uint32_t sample) {
    return sizeof(Sample) == 1 ? float(sample) : float(sample) * (1.0f / 256.0f);
}

__device__ inline Pixel from_luma(const Conversion &p, float y) {
    const float luma = (y - p.black) * p.gain;
    return {luma, luma, luma};
}

__device__ inline Pixel from_yuv(const Conversion &p, float y, float u, float v) {
    const float luma = (y - p.black) * p.gain;
    const float cb = u - 128.0f, cr = v - 128.0f;
    const float r = luma + cr * p.r_cr;
    const float b = luma + cb * p.b_cb;
    return {p.reversed ? b : r, (luma + cb * p.g_cb) + cr * p.g_cr, p.reversed ? r : b};
}

__device__ inline Pixel from_rgb(const Conversion &p, float first, float green, float last) {
    Pixel pixel = {p.reversed ? last : first, green, p.reversed ? first : last};
    if (p.to_gray) {
        pixel.channels[0] = (pixel.channels[0] * 0.299f + green * 0.587f) + pixel.channels[2] * 0.114f;
    }
    return pixel;
}

__device__ inline float clamp(float value) { return fminf(fmaxf(value, 0.0f), 255.0f); }

__device__ inline void encode(float element, float &to) { to = element; }
__device__ inline void encode(float element, uint16_t &to) { to = half_bits(element); }
// Adding 1.5 * 2^23 to a number of 0..255 rounds it to an integer, which is then in the lowest byte.
__device__ inline void encode(float element, uint8_t &to) { to = __float_as_uint(clamp(element) + 12582912.0f); }
