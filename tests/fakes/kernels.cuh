// SPDX-License-Identifier: MPL-2.0
// In place of core/kernels/common.cuh: what a C++ compiler needs to take kernels for functions, whose arithmetic tests compare with the
// reference implementations where there is no GPU. A call is one thread, a warp of its own, so a kernel must give each row one thread.
// c++ -std=c++17 -ffp-contract=off
#pragma once

#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(threads)

using uint8_t = unsigned char;
using int32_t = int;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using size_t = decltype(sizeof(0));

extern "C" double exp(double);

struct float4 {
    float x, y, z, w;
};

inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}

// The only lane of its warp.
struct ThreadIndex {
    uint32_t value;

    operator uint32_t() const {
        return value;
    }
};

inline uint32_t operator%(ThreadIndex, int) {
    return 0;
}

inline uint32_t operator/(ThreadIndex index, int) {
    return index.value;
}

inline struct {
    ThreadIndex x;
} threadIdx;
inline struct {
    uint32_t x, y;
} blockIdx, gridDim;

// Which thread the next call is, of how many for each part of the work.
extern "C" inline __attribute__((used)) void set_thread(uint32_t thread, uint32_t part) {
    threadIdx.x.value = thread;
    blockIdx = {0, part};
    gridDim = {1, 1};
}

inline float fabsf(float value) {
    return __builtin_fabsf(value);
}

inline float sqrtf(float value) {
    return __builtin_sqrtf(value);
}

inline float fminf(float a, float b) {
    return __builtin_fminf(a, b);
}

inline float fmaxf(float a, float b) {
    return __builtin_fmaxf(a, b);
}

inline float __fmaf_rn(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}

inline float __int_as_float(int bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof(value));
    return value;
}

inline float __uint_as_float(uint32_t bits) {
    return __int_as_float(static_cast<int>(bits));
}

inline uint32_t __float_as_uint(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof(bits));
    return bits;
}

inline float __int2float_rn(int value) {
    return static_cast<float>(value);
}

inline float __ll2float_rn(long long value) {
    return static_cast<float>(value);
}

inline uint64_t __float2ull_rz(float value) {
    return value < 18446744073709551616.0f ? static_cast<uint64_t>(value) : ~0ull;
}

inline uint32_t __float2uint_rz(float value) {
    return value < 4294967296.0f ? static_cast<uint32_t>(value) : ~0u;
}

inline uint32_t min(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

inline int __popc(uint32_t bits) {
    return __builtin_popcount(bits);
}

inline int __ffs(int bits) {
    return __builtin_ffs(bits);
}

inline uint32_t __ballot_sync(uint32_t, bool is_true) {
    return is_true;
}

template <typename T>
T __shfl_sync(uint32_t, T value, uint32_t) {
    return value;
}

template <typename T>
T __shfl_xor_sync(uint32_t, T value, uint32_t) {
    return value;
}

inline void __syncthreads() {}

inline uint32_t atomicAdd(uint32_t* to, uint32_t value) {
    const uint32_t before = *to;
    *to += value;
    return before;
}

inline uint32_t atomicMax(uint32_t* to, uint32_t value) {
    const uint32_t before = *to;
    if (value > before) *to = value;
    return before;
}

// The value of a half, exactly.
inline float half_value(uint16_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000 | fraction << 13);
    if (exponent) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -value : value;
}
