// SPDX-License-Identifier: MPL-2.0
// Bilinear resampling of a picture into a tensor, in one pass: what preprocess and regions share. The arithmetic is stated in
// src/image/preprocess/host.rs. COLUMNS is the number of pixels in a row that a thread makes at a time.
#pragma once

#include "frames.cuh"

inline constexpr uint32_t THREADS_X = 32;
inline constexpr uint32_t THREADS_Y = 4;
// Of a block of padding.
inline constexpr uint32_t PADDED_ROWS = 32;

// Where a column or a row is sampled: between the sample at `first` and the next one, which has the weight `first_weight`.
// `others` are the same for chroma. Columns are in bytes.
struct alignas(16) Position {
    uint32_t first;
    float first_weight; // of plane 0
    uint32_t others;
    float others_weight; // of planes 1 and 2
};

// N adjacent samples, as they are loaded.
template <typename Sample, uint32_t N>
struct Samples {
    uint32_t each[N];

    __device__ inline void load(const uint8_t *at) {
#pragma unroll
        for (uint32_t n = 0; n < N; n++) each[n] = __ldg(reinterpret_cast<const Sample *>(at) + n);
    }
    __device__ inline float operator[](uint32_t n) const { return value<Sample>(each[n]); }
};

// Two samples in one word: half the loads, and half the registers until they are used.
template <typename Sample>
struct Samples<Sample, 2> {
    uint32_t both;

    __device__ inline void load(const uint8_t *at) {
        if constexpr (sizeof(Sample) == 1) {
            both = __ldg(reinterpret_cast<const uint16_t *>(at));
        } else {
            both = __ldg(reinterpret_cast<const uint32_t *>(at));
        }
    }
    __device__ inline float operator[](uint32_t n) const {
        constexpr uint32_t BITS = 8 * sizeof(Sample);
        return value<Sample>(n == 0 ? both & ((1u << BITS) - 1) : both >> BITS);
    }
};

// The four samples around a position: two in the near row, two in the far row.
template <typename S>
struct Around {
    S near[2], far[2];
};

// Loads the samples of one plane for the columns of a thread.
template <typename S, uint32_t COLUMNS>
__device__ inline void load(Around<S> (&to)[COLUMNS], const uint8_t *plane, uint32_t stride, uint32_t row, float weight,
                            const uint32_t (&columns)[COLUMNS], uint32_t step) {
    const uint8_t *at = plane + uint64_t(row) * stride;
    // Without this the compiler adds row and column first and then the plane, which takes twice the instructions.
    asm("" : "+l"(at));
#pragma unroll
    for (uint32_t k = 0; k < COLUMNS; k++)
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) to[k].near[i].load(at + columns[k] + i * step);
    // If the far row has weight 0 the near one is read again: there may be no far row, and this is faster than a branch.
    at += weight != 0.0f ? stride : 0;
    asm("" : "+l"(at));
#pragma unroll
    for (uint32_t k = 0; k < COLUMNS; k++)
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) to[k].far[i].load(at + columns[k] + i * step);
}

// The same where every position falls on a sample.
template <typename S, uint32_t COLUMNS>
__device__ inline void load_alone(Around<S> (&to)[COLUMNS], const uint8_t *plane, uint32_t stride, uint32_t row,
                                  const uint32_t (&columns)[COLUMNS]) {
    const uint8_t *at = plane + uint64_t(row) * stride;
    asm("" : "+l"(at));
#pragma unroll
    for (uint32_t k = 0; k < COLUMNS; k++) to[k].near[0].load(at + columns[k]);
}

__device__ inline float lerp(float a, float b, float weight) { return a + (b - a) * weight; }

template <typename S>
__device__ inline float resample(const Around<S> &around, uint32_t n, float across, float down) {
    const float near = lerp(around.near[0][n], around.near[1][n], across);
    const float far = lerp(around.far[0][n], around.far[1][n], across);
    return lerp(near, far, down);
}

template <typename Element, uint32_t COLUMNS>
struct alignas(COLUMNS * sizeof(Element)) Together {
    Element elements[COLUMNS];
};

// Writes COLUMNS consecutive elements, or `count` if that is fewer.
template <typename Element, uint32_t COLUMNS>
__device__ inline void store_together(const Frame &frame, uint32_t at, uint32_t count, const Together<Element, COLUMNS> &all) {
    Element *to = reinterpret_cast<Element *>(frame.tensor) + at;
    if (frame.together) {
        *reinterpret_cast<Together<Element, COLUMNS> *>(to) = all;
    } else {
#pragma unroll
        for (uint32_t k = 0; k < COLUMNS; k++)
            if (k < count) to[k] = all.elements[k];
    }
}

// Writes the pixels of row y from x on. Indices fit 32 bits, because no side is longer than 2^15.
template <typename Element, uint32_t COLUMNS>
__device__ inline void store_as(const Conversion &p, const Frame &frame, uint32_t x, uint32_t y, const Pixel (&pixels)[COLUMNS]) {
    Together<Element, COLUMNS> channels[3];
#pragma unroll
    for (uint32_t k = 0; k < COLUMNS; k++)
#pragma unroll
        for (uint32_t c = 0; c < 3; c++)
            encode(clamp(pixels[k].channels[c]) * p.factor[c] + p.addend[c], channels[c].elements[k]);

    const uint32_t at = y * p.tensor_width + x, count = p.tensor_width - x;
    if (p.channels == 1) {
        store_together(frame, at, count, channels[0]);
    } else if (p.interleaved) {
#pragma unroll
        for (uint32_t part = 0; part < 3; part++) {
            Together<Element, COLUMNS> pixel_by_pixel;
#pragma unroll
            for (uint32_t k = 0; k < COLUMNS; k++) {
                const uint32_t i = part * COLUMNS + k;
                pixel_by_pixel.elements[k] = channels[i % 3].elements[i / 3];
            }
            const uint32_t before = part * COLUMNS;
            if (before < count * 3) store_together(frame, at * 3 + before, count * 3 - before, pixel_by_pixel);
        }
    } else {
        const uint32_t plane = p.tensor_width * p.tensor_height;
#pragma unroll
        for (uint32_t c = 0; c < 3; c++) store_together(frame, at + c * plane, count, channels[c]);
    }
}

// Where the pixels of a thread are sampled along their row, and which of them lie in the scaled picture.
template <uint32_t COLUMNS>
struct Columns {
    Position each[COLUMNS];
    bool any, all;
};

// Writes the pixels of a thread from column x of the tensor on, in a row of the scaled picture.
// FIRST adjacent samples in plane 0; then OTHERS in each of PLANES planes of chroma, of which those of ALONE fall on samples.
// `meanwhile` is done while the samples are on their way.
template <typename Element, uint32_t COLUMNS, typename Sample, uint32_t FIRST, uint32_t OTHERS, uint32_t PLANES, uint32_t ALONE,
          typename Meanwhile>
__device__ inline void preprocess_row(const Conversion &p, const Frame &frame, const ViewPlacement &at, const Columns<COLUMNS> &columns,
                                      const Position &row, uint32_t x, uint32_t row_number, const Meanwhile &meanwhile) {
    constexpr bool FIRST_IS_ALONE = (ALONE & FIRST_ALONE) != 0, OTHERS_ARE_ALONE = (ALONE & OTHERS_ALONE) != 0;
    // All loads are issued first, so that they are in flight together.
    Around<Samples<Sample, FIRST>> first[COLUMNS];
    Around<Samples<Sample, OTHERS>> others[PLANES + 1][COLUMNS];
    if (columns.any) {
        uint32_t first_columns[COLUMNS], others_columns[COLUMNS];
#pragma unroll
        for (uint32_t k = 0; k < COLUMNS; k++) {
            first_columns[k] = columns.each[k].first;
            others_columns[k] = columns.each[k].others;
        }
        if constexpr (FIRST_IS_ALONE) {
            load_alone(first, frame.planes[0], frame.strides[0], row.first, first_columns);
        } else {
            load(first, frame.planes[0], frame.strides[0], row.first, row.first_weight, first_columns, p.first_step);
        }
#pragma unroll
        for (uint32_t i = 0; i != PLANES; i++) {
            const uint8_t *plane = frame.planes[1 + i];
            const uint32_t stride = frame.strides[1 + i];
            if constexpr (OTHERS_ARE_ALONE) {
                load_alone(others[i], plane, stride, row.others, others_columns);
            } else {
                load(others[i], plane, stride, row.others, row.others_weight, others_columns, p.others_step);
            }
        }
    }

    meanwhile();

    Pixel pixels[COLUMNS];
    if (columns.any) {
#pragma unroll
        for (uint32_t k = 0; k < COLUMNS; k++) {
            const auto main = [&](uint32_t n) {
                if constexpr (FIRST_IS_ALONE) return first[k].near[0][n];
                return resample(first[k], n, columns.each[k].first_weight, row.first_weight);
            };
            const auto chroma = [&](uint32_t i) {
                const auto &around = others[i / OTHERS][k];
                if constexpr (OTHERS_ARE_ALONE) return around.near[0][i % OTHERS];
                return resample(around, i % OTHERS, columns.each[k].others_weight, row.others_weight);
            };
            if constexpr (PLANES > 0) {
                pixels[k] = from_yuv(p, main(0), chroma(0), chroma(1));
            } else if constexpr (FIRST == 3) {
                pixels[k] = from_rgb(p, main(0), main(1), main(2));
            } else {
                pixels[k] = from_luma(p, main(0));
            }
        }
        if (!columns.all) {
#pragma unroll
            for (uint32_t k = 0; k < COLUMNS; k++)
                if (x + k - at.left >= at.width) pixels[k] = {p.pad, p.pad, p.pad};
        }
    } else {
#pragma unroll
        for (uint32_t k = 0; k < COLUMNS; k++) pixels[k] = {p.pad, p.pad, p.pad};
    }
    store_as<Element>(p, frame, x, at.top + row_number, pixels);
}

// Rows of padding, above and below the scaled picture: every `step`th from `row` on, to before `end`, counted without the picture's.
template <typename Element, uint32_t COLUMNS>
__device__ inline void pad_rows(const Conversion &p, const Frame &frame, const ViewPlacement &at, uint32_t x, uint32_t row, uint32_t end,
                                uint32_t step) {
    Pixel pixels[COLUMNS];
#pragma unroll
    for (uint32_t k = 0; k < COLUMNS; k++) pixels[k] = {p.pad, p.pad, p.pad};
#pragma unroll 1
    for (; row < end; row += step) store_as<Element>(p, frame, x, row < at.top ? row : row + at.height, pixels);
}
