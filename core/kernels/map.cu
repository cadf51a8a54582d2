// SPDX-License-Identifier: MPL-2.0
// Maps of classes and depths: the part of the model's input that shows the frame, with a value for each pixel.
//
// map_classes: the class with the greatest score, or that a class id names
//   in   data    [planes][height][width] scores, f32 or f16; or [height][width] class ids, u8, i32 or i64
//        kept    [count] whether a class is kept
//   out  values  [map_height][map_width] classes, or NO_CLASS; and host_values in mapped host memory, where the host wants them
//   io   counts  [count + 1] zeros, to which the pixels of each class are added, and the scores of pixels that are not finite
// find_depths: the range of depths
//   in   data    [height][width] depths, f32 or f16
//   io   counts  [3] zeros; then the minimum and the maximum, as ordered() and in reverse order, or zeros where none is finite; and the
//                pixels whose depth is not
// map_depths: depths as 16 bits
//   in   data, counts
//   out  values, host_values
// give_map: copies counts to the host
//   grid any size; a thread for each pixel of the others
//   math f32 and integers, in the order of src/image/map.rs, the reference implementation
//   launched by src/postprocess/map/device.rs, whose MapParams mirrors the one here (104 bytes)
#include "interpolate.cuh"

inline constexpr uint32_t THREADS = 256;
inline constexpr uint32_t FULL_WARP_MASK = 0xffffffff;
inline constexpr uint16_t NO_CLASS = 0xffff;
// Depths beyond these count as infinite.
inline constexpr float MAX_DEPTH = 1e37f;

enum Dtype : uint32_t { F32, F16, U8, I32, I64 };

struct MapParams {
    const void *data;
    uint16_t *values;
    uint16_t *host_values;
    uint32_t *counts;
    uint32_t *host_counts;
    const uint8_t *kept;
    uint32_t dtype, planes, width, height;
    uint32_t input_width, input_height, left, top;
    uint32_t map_width, map_height;
    uint32_t first, count;
    float threshold;  // of a single class a score must be above it
    uint32_t unused;
};

static_assert(sizeof(MapParams) == 104, "mirrored in device.rs");

__device__ inline float float_at(const MapParams &p, uint64_t at) {
    return p.dtype == F16 ? half_value(__ldg(static_cast<const uint16_t *>(p.data) + at)) : __ldg(static_cast<const float *>(p.data) + at);
}

// The planes at a pixel of the model's input.
struct Scaled {
    Interpolation x, y;
    bool is_same;

    __device__ Scaled(const MapParams &p, uint32_t column, uint32_t row)
        : x(interpolation(column, p.width, p.input_width)), y(interpolation(row, p.height, p.input_height)),
          is_same(p.width == p.input_width && p.height == p.input_height) {}

    __device__ float of(const MapParams &p, uint32_t plane) const {
        const uint64_t start = uint64_t(plane) * p.width * p.height;
        const auto at = [&](uint32_t i, uint32_t j) {
            return float_at(p, start + uint64_t(y.samples[j]) * p.width + x.samples[i]);
        };
        return is_same ? at(0, 0) : interpolate(x, y, at(0, 0), at(1, 0), at(0, 1), at(1, 1));
    }
};

__device__ inline uint32_t nearest(uint32_t at, uint32_t from, uint32_t to) {
    return (2 * uint64_t(at) + 1) * from / (2 * uint64_t(to));
}

__device__ inline bool is_finite(float value) { return (__float_as_uint(value) & 0x7f800000) != 0x7f800000; }

// `lost` is how many scores are not finite.
__device__ inline uint16_t greatest(const MapParams &p, uint32_t column, uint32_t row, uint32_t &lost) {
    const Scaled scaled(p, column, row);
    float best = p.planes == 1 ? p.threshold : -__int_as_float(0x7f800000);
    uint32_t found = NO_CLASS;
    for (uint32_t i = 0; i < p.planes; i++) {
        const float score = scaled.of(p, i);
        lost += !is_finite(score);
        if (score > best) {
            best = score;
            found = i;
        }
    }
    return found;
}

__device__ inline long long id_at(const MapParams &p, uint32_t column, uint32_t row) {
    const uint64_t at = uint64_t(nearest(row, p.height, p.input_height)) * p.width + nearest(column, p.width, p.input_width);
    if (p.dtype == U8) return static_cast<const uint8_t *>(p.data)[at];
    if (p.dtype == I32) return static_cast<const int32_t *>(p.data)[at];
    return static_cast<const long long *>(p.data)[at];
}

__device__ inline void give(const MapParams &p, uint32_t pixel, uint16_t value) {
    p.values[pixel] = value;
    if (p.host_values) p.host_values[pixel] = value;
}

extern "C" __global__ void __launch_bounds__(THREADS) map_classes(const __grid_constant__ MapParams p) {
    const uint32_t pixel = blockIdx.x * THREADS + threadIdx.x;
    const bool is_inside = pixel < p.map_width * p.map_height;
    const uint32_t inside = __ballot_sync(FULL_WARP_MASK, is_inside);
    if (!is_inside) return;
    const uint32_t column = p.left + pixel % p.map_width, row = p.top + pixel / p.map_width;
    uint32_t lost = 0;
    const long long id = p.dtype <= F16 ? greatest(p, column, row, lost) : id_at(p, column, row);
    if (lost > 0) atomicAdd(p.counts + p.count, lost);
    const long long first = p.first;
    uint16_t value = NO_CLASS;
    if (id >= first && uint64_t(id - first) < p.count && p.kept[id - first]) value = id - first;
    give(p, pixel, value);
    // One addition for all pixels of the warp that have the class.
    const uint32_t alike = __match_any_sync(inside, value);
    if (value != NO_CLASS && threadIdx.x % 32 == __ffs(alike) - 1) atomicAdd(p.counts + value, __popc(alike));
}

// In the order of floats that are numbers; never 0 nor the greatest.
__device__ inline uint32_t ordered(float value) {
    const uint32_t bits = __float_as_uint(value);
    return bits >> 31 ? ~bits : bits | 0x80000000;
}

__device__ inline float unordered(uint32_t bits) { return __uint_as_float(bits >> 31 ? bits & 0x7fffffff : ~bits); }

__device__ inline float depth_at(const MapParams &p, uint32_t pixel) {
    return Scaled(p, p.left + pixel % p.map_width, p.top + pixel / p.map_width).of(p, 0);
}

extern "C" __global__ void __launch_bounds__(THREADS) find_depths(const __grid_constant__ MapParams p) {
    const uint32_t pixel = blockIdx.x * THREADS + threadIdx.x;
    uint32_t low = 0, high = 0;
    if (pixel < p.map_width * p.map_height) {
        const float depth = depth_at(p, pixel) + 0.0f; // no zero is negative
        if (fabsf(depth) <= MAX_DEPTH) {
            high = ordered(depth);
            low = ~high;
        } else {
            atomicAdd(p.counts + p.count, 1);
        }
    }
    for (uint32_t step = 16; step > 0; step /= 2) {
        low = max(low, __shfl_xor_sync(FULL_WARP_MASK, low, step));
        high = max(high, __shfl_xor_sync(FULL_WARP_MASK, high, step));
    }
    if (threadIdx.x % 32 == 0 && high > 0) {
        atomicMax(p.counts, low);
        atomicMax(p.counts + 1, high);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) map_depths(const __grid_constant__ MapParams p) {
    const uint32_t pixel = blockIdx.x * THREADS + threadIdx.x;
    if (pixel >= p.map_width * p.map_height) return;
    uint16_t value = 0;
    if (p.counts[1] > 0) {
        const float minimum = unordered(~p.counts[0]), maximum = unordered(p.counts[1]), range = maximum - minimum;
        const float depth = fminf(fmaxf(depth_at(p, pixel), minimum), maximum);
        if (range > 0) value = static_cast<uint32_t>((depth - minimum) / range * 65535.0f + 0.5f);
    }
    give(p, pixel, value);
}

extern "C" __global__ void __launch_bounds__(THREADS) give_map(const __grid_constant__ MapParams p) {
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i <= p.count; i += gridDim.x * THREADS) p.host_counts[i] = p.counts[i];
}
