// SPDX-License-Identifier: MPL-2.0
// How a thread writes one pixel of a tensor: what antialias, antialias_regions and align share.
#pragma once

#include "frames.cuh"

template <typename Element>
__device__ inline void store_as(const Conversion &p, const Frame &frame, uint32_t x, uint32_t y, const Pixel &pixel) {
    Element *tensor = reinterpret_cast<Element *>(frame.tensor);
    const uint32_t at = y * p.tensor_width + x, plane = p.tensor_width * p.tensor_height;
#pragma unroll
    for (uint32_t c = 0; c < 3; c++) {
        if (c == p.channels) return;
        encode(clamp(pixel.channels[c]) * p.factor[c] + p.addend[c], tensor[p.interleaved ? at * p.channels + c : at + c * plane]);
    }
}

__device__ inline void store(const Conversion &p, const Frame &frame, uint32_t x, uint32_t y, const Pixel &pixel) {
    switch (p.type) {
        case Type::F32: return store_as<float>(p, frame, x, y, pixel);
        case Type::F16: return store_as<uint16_t>(p, frame, x, y, pixel);
        case Type::U8: return store_as<uint8_t>(p, frame, x, y, pixel);
    }
}
