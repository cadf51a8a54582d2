// SPDX-License-Identifier: MPL-2.0
// How kernels that tint blend a colour with the samples of each format: `weight` of 255 parts are the colour. The parameters of such
// a kernel have `planes`, `strides` and `weight`.
#pragma once

#include "formats.cuh"

__device__ inline uint32_t blend(uint32_t have, uint32_t color, uint32_t weight) {
    return (have * (255 - weight) + color * weight + 127) / 255;
}

template <uint32_t BYTES>
__device__ inline void blend_bytes(uint8_t *to, const uint8_t *color, uint32_t weight) {
#pragma unroll
    for (uint32_t i = 0; i < BYTES; i++) to[i] = blend(to[i], color[i], weight);
}

// Of 16 bits the upper 10 count.
__device__ inline void blend_wide(uint16_t *to, uint8_t color, uint32_t weight) { *to = blend(*to, color << 8, weight) & 0xffc0; }

// How samples of each format are blended.
template <typename Format>
struct Blend;

template <uint32_t BYTES>
struct Blend<Packed<BYTES>> {
    template <typename Parameters>
    __device__ static void pixel(const Parameters &p, uint32_t x, uint32_t y, const Sample &color) {
        blend_bytes<BYTES>(at(p, 0, x, y, BYTES), color.parts, p.weight);
    }
    template <typename Parameters>
    __device__ static void chroma(const Parameters &, uint32_t, uint32_t, const Sample &) {}
};

template <>
struct Blend<Nv12> {
    template <typename Parameters>
    __device__ static void pixel(const Parameters &p, uint32_t x, uint32_t y, const Sample &color) {
        blend_bytes<1>(at(p, 0, x, y, 1), color.parts, p.weight);
    }
    template <typename Parameters>
    __device__ static void chroma(const Parameters &p, uint32_t x, uint32_t y, const Sample &color) {
        blend_bytes<2>(at(p, 1, x, y, 2), color.parts + 1, p.weight);
    }
};

template <>
struct Blend<P010> {
    template <typename Parameters>
    __device__ static void pixel(const Parameters &p, uint32_t x, uint32_t y, const Sample &color) {
        blend_wide(reinterpret_cast<uint16_t *>(at(p, 0, x, y, 2)), color.parts[0], p.weight);
    }
    template <typename Parameters>
    __device__ static void chroma(const Parameters &p, uint32_t x, uint32_t y, const Sample &color) {
        uint16_t *to = reinterpret_cast<uint16_t *>(at(p, 1, x, y, 4));
        blend_wide(to, color.parts[1], p.weight);
        blend_wide(to + 1, color.parts[2], p.weight);
    }
};

template <>
struct Blend<I420> {
    template <typename Parameters>
    __device__ static void pixel(const Parameters &p, uint32_t x, uint32_t y, const Sample &color) {
        blend_bytes<1>(at(p, 0, x, y, 1), color.parts, p.weight);
    }
    template <typename Parameters>
    __device__ static void chroma(const Parameters &p, uint32_t x, uint32_t y, const Sample &color) {
        blend_bytes<1>(at(p, 1, x, y, 1), color.parts + 1, p.weight);
        blend_bytes<1>(at(p, 2, x, y, 1), color.parts + 2, p.weight);
    }
};
