// SPDX-License-Identifier: MPL-2.0
// normalise_vectors: outputs of a model as vectors of the length 1
//   in   rows     [vectors] addresses of [numbers] each, f32 or f16; in mapped host memory
//   out  vectors  [vectors][numbers] in mapped host memory, where seen says that there is one
//        seen     [vectors] in mapped host memory: HAS_LENGTH, and IS_LOST where a number is not finite
//   grid a block for each vector
//   math f32 without fused multiply-add, in the order of src/vector.rs, the reference implementation
//   launched by src/postprocess/vectors/device.rs, whose VectorParams mirrors the one here (32 bytes)
#include "common.cuh"

inline constexpr uint32_t THREADS = 128;
inline constexpr uint32_t LANES = 16; // sums of the squares
inline constexpr uint32_t FULL_WARP_MASK = 0xffffffff;
// Of a vector, in seen.
inline constexpr uint32_t HAS_LENGTH = 1, IS_LOST = 2;

struct VectorParams {
    const uint64_t *rows;
    float *vectors;
    uint32_t *seen;
    uint32_t numbers, is_half;
};

static_assert(sizeof(VectorParams) == 32, "mirrored in device.rs");

__device__ inline bool is_finite(float value) { return (__float_as_uint(value) & 0x7f800000) != 0x7f800000; }

__device__ inline float value_at(const VectorParams &p, uint64_t row, uint32_t i) {
    return p.is_half ? half_value(__ldg(reinterpret_cast<const uint16_t *>(row) + i)) : __ldg(reinterpret_cast<const float *>(row) + i);
}

extern "C" __global__ void __launch_bounds__(THREADS) normalise_vectors(const __grid_constant__ VectorParams p) {
    __shared__ float length;
    const uint64_t row = p.rows[blockIdx.x]; // once, as it is in host memory
    bool are_finite = true;
    for (uint32_t i = threadIdx.x; i < p.numbers; i += THREADS) are_finite &= is_finite(value_at(p, row, i));
    if (threadIdx.x < 32) {
        // Half of the lanes do what the others do.
        float sum = 0.0f;
#pragma unroll 8
        for (uint32_t i = threadIdx.x % LANES; i < p.numbers; i += LANES) {
            const float value = value_at(p, row, i);
            sum += value * value;
        }
        for (uint32_t half = LANES / 2; half > 0; half /= 2) sum += __shfl_xor_sync(FULL_WARP_MASK, sum, half);
        if (threadIdx.x == 0) length = __fsqrt_rn(sum);
    }
    const bool all_finite = __syncthreads_and(are_finite);
    const bool has_length = is_finite(length) && length > 0.0f;
    float *vector = p.vectors + static_cast<uint64_t>(blockIdx.x) * p.numbers;
    if (has_length)
        for (uint32_t i = threadIdx.x; i < p.numbers; i += THREADS) vector[i] = value_at(p, row, i) / length;
    if (threadIdx.x == 0) p.seen[blockIdx.x] = (has_length ? HAS_LENGTH : 0) | (all_finite ? 0 : IS_LOST);
}
