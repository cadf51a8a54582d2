// SPDX-License-Identifier: MPL-2.0
// How kernels that draw write to a frame of each format.
#pragma once

#include "overlay.cuh"

// Where sample x, y of a plane begins, in samples of `bytes` bytes.
template <typename Frame>
__device__ inline uint8_t *at(const Frame &p, uint32_t plane, uint32_t x, uint32_t y, uint32_t bytes) {
    return p.planes[plane] + uint64_t(y) * p.strides[plane] + uint64_t(x) * bytes;
}

// A format: pixels along a side of a cell, which has one sample of chroma; how a pixel and chroma are stored.

template <uint32_t BYTES>
struct Packed {
    static constexpr uint32_t CELL = 1;
    template <typename Frame>
    __device__ static void pixel(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        uint8_t *to = at(p, 0, x, y, BYTES);
        for (uint32_t i = 0; i < BYTES; i++) to[i] = sample.parts[i];
    }
    template <typename Frame>
    __device__ static void chroma(const Frame &, uint32_t, uint32_t, const Sample &) {}
};

struct Nv12 {
    static constexpr uint32_t CELL = 2;
    template <typename Frame>
    __device__ static void pixel(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        Packed<1>::pixel(p, x, y, sample);
    }
    template <typename Frame>
    __device__ static void chroma(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        uint8_t *to = at(p, 1, x, y, 2);
        to[0] = sample.parts[1];
        to[1] = sample.parts[2];
    }
};

// The words' upper bytes.
struct P010 {
    static constexpr uint32_t CELL = 2;
    template <typename Frame>
    __device__ static void pixel(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        *reinterpret_cast<uint16_t *>(at(p, 0, x, y, 2)) = sample.parts[0] << 8;
    }
    template <typename Frame>
    __device__ static void chroma(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        uint16_t *to = reinterpret_cast<uint16_t *>(at(p, 1, x, y, 4));
        to[0] = sample.parts[1] << 8;
        to[1] = sample.parts[2] << 8;
    }
};

struct I420 {
    static constexpr uint32_t CELL = 2;
    template <typename Frame>
    __device__ static void pixel(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        Packed<1>::pixel(p, x, y, sample);
    }
    template <typename Frame>
    __device__ static void chroma(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        *at(p, 1, x, y, 1) = sample.parts[1];
        *at(p, 2, x, y, 1) = sample.parts[2];
    }
};
