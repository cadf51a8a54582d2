// SPDX-License-Identifier: MPL-2.0
// align: faces and boxes of one frame -> tensors, turned and scaled, all in one launch.
//   in    planes of a frame, as for preprocess
//   out   a tensor for each: [C][H][W] or [H][W][C] of f32, f16 or u8, dense; what is outside the frame or the extent is padding
//   grid  a thread writes one pixel; a block is THREADS_X x THREADS_Y threads, blockIdx.z is the face or box
//   math  equal to the reference implementation, src/image/preprocess/aligned.rs, bit by bit
//   launched by src/image/preprocess/align_kernel.rs, which mirrors Parameters
#include "axis.cuh"
#include "store.cuh"

inline constexpr uint32_t THREADS_X = 32;
inline constexpr uint32_t THREADS_Y = 4;
inline constexpr uint32_t MAX_CROPS = 64;

// A column to the right in the tensor goes by `across` in the frame, a row down by `below`.
struct Crop {
    uint8_t *tensor;
    float across_x, across_y, below_x, below_y;
    float origin_x, origin_y; // of the first pixel
    uint32_t columns, rows;   // of the tensor that show it
};

struct Parameters : Conversion {
    uint32_t width, height;               // of the frame
    uint32_t other_samples, other_rows;   // of a row of the other planes, and their rows
    Siting siting_x, siting_y;
    uint32_t strides[3];
    const uint8_t *planes[3];
    Crop crops[MAX_CROPS];
};

// Two samples of an axis, and how much the far one counts.
struct AxisPair {
    uint32_t near, far;
    float weight;
};

__device__ inline AxisPair between(float at, uint32_t samples) {
    const uint32_t near = uint32_t(at);
    return {near, min(near + 1, samples - 1), at - float(near)};
}

// Of a place in the frame, in a plane of chroma.
__device__ inline AxisPair between(float place, uint32_t pixels, uint32_t samples, Siting siting) {
    switch (siting) {
        case Siting::OnFirst: return between(place * 0.5f, samples);
        case Siting::Between: return between(fmaxf((place - 0.5f) * 0.5f, 0.0f), samples);
        case Siting::InCommon: break;
    }
    const AxisPair full = between(place, pixels);
    return {full.near / 2, full.far / 2, full.weight};
}

__device__ inline float lerp(float a, float b, float weight) { return a + (b - a) * weight; }

// The N adjacent samples of a place in a plane.
template <typename Sample, uint32_t N>
__device__ inline void resample(float (&samples)[N], const uint8_t *plane, uint32_t stride, uint32_t step, const AxisPair &x,
                                const AxisPair &y) {
    const uint8_t *above = plane + uint64_t(y.near) * stride, *below = plane + uint64_t(y.far) * stride;
    const auto along = [&](const uint8_t *row, uint32_t n) {
        const float near = value<Sample>(__ldg(reinterpret_cast<const Sample *>(row + x.near * step) + n));
        const float far = value<Sample>(__ldg(reinterpret_cast<const Sample *>(row + x.far * step) + n));
        return lerp(near, far, x.weight);
    };
#pragma unroll
    for (uint32_t n = 0; n < N; n++) samples[n] = lerp(along(above, n), along(below, n), y.weight);
}

// FIRST adjacent samples in plane 0; then OTHERS in each of PLANES planes of chroma.
template <typename Sample, uint32_t FIRST, uint32_t OTHERS = 1, uint32_t PLANES = 0>
__device__ inline void align(const Parameters &p) {
    const uint32_t i = blockIdx.x * THREADS_X + threadIdx.x, j = blockIdx.y * THREADS_Y + threadIdx.y;
    if (i >= p.tensor_width || j >= p.tensor_height) return;
    const Crop &crop = p.crops[blockIdx.z];
    const Frame frame = {
        {p.planes[0], p.planes[1], p.planes[2]}, crop.tensor, {p.strides[0], p.strides[1], p.strides[2]}, 0};
    const float column = float(i), row = float(j), width = float(p.width), height = float(p.height);
    const float at_x = (crop.across_x * column + crop.below_x * row) + crop.origin_x;
    const float at_y = (crop.across_y * column + crop.below_y * row) + crop.origin_y;
    Pixel pixel = {p.pad, p.pad, p.pad};
    const bool is_shown = i < crop.columns && j < crop.rows;
    if (is_shown && at_x >= -0.5f && at_x < width - 0.5f && at_y >= -0.5f && at_y < height - 0.5f) {
        const float x = fminf(fmaxf(at_x, 0.0f), width - 1.0f), y = fminf(fmaxf(at_y, 0.0f), height - 1.0f);
        float first[FIRST];
        resample<Sample>(first, frame.planes[0], frame.strides[0], p.first_step, between(x, p.width), between(y, p.height));
        if constexpr (PLANES > 0) {
            float others[PLANES][OTHERS];
            const AxisPair other_x = between(x, p.width, p.other_samples, p.siting_x);
            const AxisPair other_y = between(y, p.height, p.other_rows, p.siting_y);
#pragma unroll
            for (uint32_t plane = 0; plane != PLANES; plane++)
                resample<Sample>(others[plane], frame.planes[1 + plane], frame.strides[1 + plane], p.others_step, other_x, other_y);
            pixel = from_yuv(p, first[0], others[0][0], others[1 / OTHERS][1 % OTHERS]);
        } else if constexpr (FIRST == 3) {
            pixel = from_rgb(p, first[0], first[1], first[2]);
        } else {
            pixel = from_luma(p, first[0]);
        }
    }
    store(p, frame, i, j, pixel);
}

extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) align_pairs8(const __grid_constant__ Parameters p) {
    align<uint8_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) align_pairs16(const __grid_constant__ Parameters p) {
    align<uint16_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) align_planes8(const __grid_constant__ Parameters p) {
    align<uint8_t, 1, 1, 2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) align_rgb(const __grid_constant__ Parameters p) {
    align<uint8_t, 3>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) align_luma8(const __grid_constant__ Parameters p) {
    align<uint8_t, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) align_luma16(const __grid_constant__ Parameters p) {
    align<uint16_t, 1>(p);
}
