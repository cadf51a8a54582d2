// preprocess: frames -> tensors in one pass: resample, convert colours, normalise, write; padding included.
//   in    planes of a frame, rows `strides` bytes apart, samples of 8 bits or of 16 (10 in the upper bits); packed pixels
//         and interleaved chroma are planes too, with samples `step` bytes apart
//   out   tensor [C][H][W] or [H][W][C] of f32, f16 or u8, dense
//   grid  a thread makes COLUMNS x ROWS pixels, a block is THREADS_X x THREADS_Y threads, blockIdx.z is the frame
//   math  that of src/vision/preprocess/mod.rs, bit by bit; positions come from its tables
//   face  src/cuda/kernels/preprocess.rs, which mirrors Parameters
#include "common.cuh"

#ifndef TUNE
inline constexpr uint32_t THREADS_X = 32;
inline constexpr uint32_t THREADS_Y = 8;
inline constexpr uint32_t ROWS = 2;
#endif
inline constexpr uint32_t COLUMNS = 2;
inline constexpr uint32_t MAX_BATCH = 32;

// Where a column or a row is sampled: between `near` and the sample after it, which counts `weight`. Columns are in bytes.
struct alignas(16) Position {
    uint32_t first;
    float first_weight; // of plane 0
    uint32_t others;
    float others_weight; // of planes 1 and 2
};

struct Frame {
    const uint8_t *planes[3];
    uint8_t *tensor;
    uint32_t strides[3];
    // Whether two elements of the tensor can be written at once: rows have an even number, and the address allows it.
    uint32_t paired;
};

enum class Convert : uint32_t { NONE, RGB_TO_GRAY, YUV_TO_RGB, LUMA };
enum class Type : uint32_t { F32, F16, U8 };

struct Parameters {
    Frame frames[MAX_BATCH];
    const Position *columns; // [width]
    const Position *rows;    // [height]
    uint32_t left, top, width, height; // of the scaled frame in the tensor
    uint32_t tensor_width, tensor_height;
    // Bytes to the next sample of a row; 0 where there is none.
    uint32_t first_step, others_step;
    Convert convert;
    uint32_t reversed; // channels are B, G, R
    uint32_t channels; // 1 or 3
    uint32_t interleaved; // NHWC
    Type type;
    float black, gain, r_cr, g_cb, g_cr, b_cb;
    float factor[3], addend[3];
    float pad; // a sample
};

struct Pixel {
    float channels[3];
};

// The samples around a position, in the near row and in the far one.
template <typename Sample>
struct Around {
    Sample near[2], far[2];
};

template <typename Sample>
__device__ inline Sample load(const uint8_t *at) {
    return __ldg(reinterpret_cast<const Sample *>(at));
}

template <typename Sample>
__device__ inline Around<Sample> load_around(const uint8_t *near, const uint8_t *far, uint32_t column, uint32_t step) {
    near += column;
    far += column;
    return {{load<Sample>(near), load<Sample>(near + step)}, {load<Sample>(far), load<Sample>(far + step)}};
}

__device__ inline float value(uint8_t sample) { return sample; }
__device__ inline float value(uint16_t sample) { return sample * (1.0f / 256.0f); }

__device__ inline float lerp(float a, float b, float weight) { return a + (b - a) * weight; }

template <typename Sample>
__device__ inline float resample(const Around<Sample> &around, float across, float down) {
    const float near = lerp(value(around.near[0]), value(around.near[1]), across);
    const float far = lerp(value(around.far[0]), value(around.far[1]), across);
    return lerp(near, far, down);
}

// Samples of the planes to the channels of the tensor, before clamping.
template <uint32_t PLANES>
__device__ inline Pixel convert(const Parameters &p, const float (&samples)[PLANES]) {
    if constexpr (PLANES == 1) {
        const float luma = (samples[0] - p.black) * p.gain;
        return {luma, luma, luma};
    } else {
        Pixel rgb = {samples[0], samples[1], samples[2]};
        if (p.convert == Convert::YUV_TO_RGB) {
            const float luma = (samples[0] - p.black) * p.gain;
            const float cb = samples[1] - 128.0f;
            const float cr = samples[2] - 128.0f;
            rgb = {luma + cr * p.r_cr, (luma + cb * p.g_cb) + cr * p.g_cr, luma + cb * p.b_cb};
        } else if (p.convert == Convert::RGB_TO_GRAY) {
            rgb.channels[0] = (samples[0] * 0.299f + samples[1] * 0.587f) + samples[2] * 0.114f;
        }
        return p.reversed ? Pixel{rgb.channels[2], rgb.channels[1], rgb.channels[0]} : rgb;
    }
}

__device__ inline float clamp(float value) { return fminf(fmaxf(value, 0.0f), 255.0f); }

__device__ inline void encode(float element, float &to) { to = element; }
__device__ inline void encode(float element, uint16_t &to) { to = half_bits(element); }
// A number of 0..255 added to 1.5 * 2^23 is rounded to a whole one, which the lowest byte then holds.
__device__ inline void encode(float element, uint8_t &to) { to = __float_as_uint(clamp(element) + 12582912.0f); }

template <typename Element>
struct alignas(2 * sizeof(Element)) Pair {
    Element elements[2];
};

// Two elements that follow one another, the second only where there is one.
template <typename Element>
__device__ inline void store_pair(const Frame &frame, uint32_t at, Element a, Element b, bool second) {
    Element *to = reinterpret_cast<Element *>(frame.tensor) + at;
    if (frame.paired) {
        *reinterpret_cast<Pair<Element> *>(to) = {a, b};
    } else {
        to[0] = a;
        if (second) to[1] = b;
    }
}

// Pixels x and x + 1 of row y; indices of elements fit 32 bits, as no side is above 2^15.
template <typename Element>
__device__ inline void store_as(const Parameters &p, const Frame &frame, uint32_t x, uint32_t y, const Pixel (&pixels)[2]) {
    Element elements[2][3];
    #pragma unroll
    for (uint32_t k = 0; k < 2; k++)
        #pragma unroll
        for (uint32_t c = 0; c < 3; c++)
            encode(clamp(pixels[k].channels[c]) * p.factor[c] + p.addend[c], elements[k][c]);

    const bool second = x + 1 < p.tensor_width;
    const uint32_t at = y * p.tensor_width + x;
    if (p.channels == 1) {
        store_pair(frame, at, elements[0][0], elements[1][0], second);
    } else if (p.interleaved) {
        store_pair(frame, at * 3, elements[0][0], elements[0][1], true);
        store_pair(frame, at * 3 + 2, elements[0][2], elements[1][0], second);
        if (second) store_pair(frame, at * 3 + 4, elements[1][1], elements[1][2], true);
    } else {
        const uint32_t plane = p.tensor_width * p.tensor_height;
        #pragma unroll
        for (uint32_t c = 0; c < 3; c++) store_pair(frame, at + c * plane, elements[0][c], elements[1][c], second);
    }
}

__device__ inline void store(const Parameters &p, const Frame &frame, uint32_t x, uint32_t y, const Pixel (&pixels)[2]) {
    switch (p.type) {
        case Type::F32: return store_as<float>(p, frame, x, y, pixels);
        case Type::F16: return store_as<uint16_t>(p, frame, x, y, pixels);
        case Type::U8: return store_as<uint8_t>(p, frame, x, y, pixels);
    }
}

template <typename Sample, uint32_t PLANES>
__device__ inline void preprocess(const Parameters &p) {
    const Frame &frame = p.frames[blockIdx.z];
    const uint32_t x = (blockIdx.x * THREADS_X + threadIdx.x) * COLUMNS;
    const uint32_t y = (blockIdx.y * THREADS_Y + threadIdx.y) * ROWS;
    if (x >= p.tensor_width || y >= p.tensor_height) return;

    // Outside the scaled frame these wrap around to great numbers.
    bool column_inside[COLUMNS], row_inside[ROWS], any_column = false, any_row = false;
    #pragma unroll
    for (uint32_t k = 0; k < COLUMNS; k++) any_column |= column_inside[k] = x + k - p.left < p.width;
    #pragma unroll
    for (uint32_t r = 0; r < ROWS; r++) any_row |= row_inside[r] = y + r - p.top < p.height;

    // All loads go before all arithmetic, so that they are under way together.
    Position columns[COLUMNS], rows[ROWS];
    Around<Sample> around[ROWS][COLUMNS][PLANES];
    if (any_column && any_row) {
        #pragma unroll
        for (uint32_t k = 0; k < COLUMNS; k++) columns[k] = p.columns[column_inside[k] ? x + k - p.left : 0];
        #pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) rows[r] = p.rows[row_inside[r] ? y + r - p.top : 0];
        #pragma unroll
        for (uint32_t r = 0; r < ROWS; r++)
            #pragma unroll
            for (uint32_t i = 0; i < PLANES; i++) {
                const uint8_t *near = frame.planes[i] + uint64_t(i == 0 ? rows[r].first : rows[r].others) * frame.strides[i];
                const float weight = i == 0 ? rows[r].first_weight : rows[r].others_weight;
                // A far row without weight is not read; below the last there is none.
                const uint8_t *far = weight == 0.0f ? near : near + frame.strides[i];
                #pragma unroll
                for (uint32_t k = 0; k < COLUMNS; k++) {
                    const uint32_t column = i == 0 ? columns[k].first : columns[k].others;
                    around[r][k][i] = load_around<Sample>(near, far, column, i == 0 ? p.first_step : p.others_step);
                }
            }
    }

    #pragma unroll
    for (uint32_t r = 0; r < ROWS; r++) {
        if (y + r >= p.tensor_height) continue;
        Pixel pixels[COLUMNS];
        #pragma unroll
        for (uint32_t k = 0; k < COLUMNS; k++) {
            if (row_inside[r] && column_inside[k]) {
                float samples[PLANES];
                #pragma unroll
                for (uint32_t i = 0; i < PLANES; i++) {
                    const float across = i == 0 ? columns[k].first_weight : columns[k].others_weight;
                    const float down = i == 0 ? rows[r].first_weight : rows[r].others_weight;
                    samples[i] = resample(around[r][k][i], across, down);
                }
                pixels[k] = convert<PLANES>(p, samples);
            } else {
                pixels[k] = {p.pad, p.pad, p.pad};
            }
        }
        store(p, frame, x, y + r, pixels);
    }
}

// Named after samples and number of planes.
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_u8x3(const __grid_constant__ Parameters p) {
    preprocess<uint8_t, 3>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_u16x3(const __grid_constant__ Parameters p) {
    preprocess<uint16_t, 3>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_u8x1(const __grid_constant__ Parameters p) {
    preprocess<uint8_t, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) preprocess_u16x1(const __grid_constant__ Parameters p) {
    preprocess<uint16_t, 1>(p);
}
