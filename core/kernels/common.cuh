// SPDX-License-Identifier: MPL-2.0
// What all kernels share. NVRTC compiles without the toolkit's headers, so their definitions are here.
//
// Results equal those of the reference implementations in Rust bit by bit: no fused multiply-add (kernels/compile.py
// switches it off), and operations in the order in which they are written.
#pragma once

using uint8_t = unsigned char;
using int32_t = int;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;

// The bits of a float rounded to an IEEE half, ties to even.
__device__ inline uint16_t half_bits(float value) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// The value of a half, exactly.
__device__ inline float half_value(uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
