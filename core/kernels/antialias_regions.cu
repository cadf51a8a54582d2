// SPDX-License-Identifier: MPL-2.0
// antialias_regions: rectangles of one frame -> tensors with an antialiased resize: crops of objects for a classifier.
//   in    planes of a frame, as for preprocess
//   out   a tensor for each rectangle, as of antialias
//   grid  antialias_tables: a thread makes a column or a row of a rectangle's tables; blockIdx.y is the rectangle
//         antialias_regions_*: as of antialias; blockIdx.z is the rectangle
//   math  equal to the reference implementation for each rectangle, bit by bit. Its tables are made here, in f64 as there, for they are
//         other ones for each rectangle
//   launched by src/image/preprocess/antialias_regions.rs, which mirrors Parameters
#include "axis.cuh"
#include "antialias.cuh"

inline constexpr uint32_t MAX_REGIONS = 64;
inline constexpr uint32_t TABLE_THREADS = 64;

struct Region {
    uint8_t *tensor;
    Taps *tables; // of the columns, then of the rows; weights follow
    uint32_t source_left, source_top, source_width, source_height;
    uint32_t whole_width, whole_height; // of the scaled rectangle
    uint32_t left, top;                 // of what the tensor has of it
    uint32_t column_room, row_room;     // for the weights of a column or a row, in plane 0 and as many in the others
};

struct Parameters : Conversion {
    Siting siting_x, siting_y;
    uint32_t strides[3];
    const uint8_t *planes[3];
    Region regions[MAX_REGIONS];
};

// The samples of a position and their weights, of which the first has that index in `weights`. `sample_of` gives the sample of a
// pixel of the rectangle, and the share of the next sample in it.
template <typename SampleOf>
__device__ inline Run taps(float *weights, uint32_t begin, uint32_t position, uint32_t pixels, uint32_t scaled, uint32_t step,
                           const SampleOf &sample_of) {
    const double scale = double(pixels) / double(scaled), reach = fmax(scale, 1.0);
    const double center = (double(position) + 0.5) * scale;
    const double from = center - reach + 0.5, to = center + reach + 0.5;
    const uint32_t low = min(from > 0.0 ? uint32_t(from) : 0, pixels - 1);
    const uint32_t high = max(min(uint32_t(to), pixels), low + 1);
    const auto triangle = [&](uint32_t pixel) { return fmax(1.0 - fabs((double(pixel) - center + 0.5) / reach), 0.0); };
    double sum = 0.0;
    for (uint32_t pixel = low; pixel < high; pixel++) sum += triangle(pixel);
    const uint32_t first = sample_of(low).near;
    // Pixels go on by a sample at most, so the sums of two are open at a time.
    uint32_t open = 0, count = 0;
    double near = 0.0, far = 0.0;
    for (uint32_t pixel = low; pixel < high; pixel++) {
        const AxisSample own = sample_of(pixel);
        if (own.near - first != open) {
            weights[begin + open++] = float(near);
            near = far;
            far = 0.0;
        }
        const double weight = triangle(pixel) / sum, share = own.weight();
        near += weight * (1.0 - share);
        far += weight * share;
        count = max(count, open + (share > 0.0 ? 2 : 1));
    }
    weights[begin + open] = float(near);
    if (count > open + 1) weights[begin + open + 1] = float(far);
    return {first * step, count, begin};
}

// Those of an axis in plane 0 and in the others.
__device__ inline Taps axis_taps(float *weights, uint32_t begin, uint32_t room, uint32_t position, uint32_t start, uint32_t pixels,
                                 uint32_t scaled, Siting siting, uint32_t first_step, uint32_t others_step) {
    const auto full = [&](uint32_t pixel) { return AxisSample{start + pixel, 0, 1}; };
    const auto others = [&](uint32_t pixel) { return sample_axis(pixel, start, pixels, pixels, siting, full(pixel)); };
    return {taps(weights, begin, position, pixels, scaled, first_step, full),
            taps(weights, begin + room, position, pixels, scaled, others_step, others),
            {}};
}

extern "C" __global__ void __launch_bounds__(TABLE_THREADS) antialias_tables(const __grid_constant__ Parameters p) {
    const Region &region = p.regions[blockIdx.y];
    const uint32_t i = blockIdx.x * TABLE_THREADS + threadIdx.x, tables = p.tensor_width + p.tensor_height;
    if (i >= tables) return;
    float *weights = reinterpret_cast<float *>(region.tables);
    const uint32_t columns_begin = tables * uint32_t(sizeof(Taps) / sizeof(float));
    if (i < p.tensor_width) {
        const uint32_t begin = columns_begin + i * 2 * region.column_room;
        region.tables[i] = axis_taps(weights, begin, region.column_room, region.left + i, region.source_left, region.source_width,
                                     region.whole_width, p.siting_x, p.first_step, p.others_step);
    } else {
        const uint32_t row = i - p.tensor_width, rows_begin = columns_begin + p.tensor_width * 2 * region.column_room;
        region.tables[i] = axis_taps(weights, rows_begin + row * 2 * region.row_room, region.row_room, region.top + row,
                                     region.source_top, region.source_height, region.whole_height, p.siting_y, 1, 1);
    }
}

template <typename Sample, uint32_t FIRST, uint32_t OTHERS = 1, uint32_t PLANES = 0>
__device__ inline void antialias_region(const Parameters &p) {
    const Region &region = p.regions[blockIdx.z];
    const Frame frame = {
        {p.planes[0], p.planes[1], p.planes[2]}, region.tensor, {p.strides[0], p.strides[1], p.strides[2]}, 0};
    antialias<Sample, FIRST, OTHERS, PLANES>(p, frame, region.tables, region.tables + p.tensor_width);
}

extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) antialias_regions_pairs8(const __grid_constant__ Parameters p) {
    antialias_region<uint8_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) antialias_regions_pairs16(const __grid_constant__ Parameters p) {
    antialias_region<uint16_t, 1, 2, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) antialias_regions_planes8(const __grid_constant__ Parameters p) {
    antialias_region<uint8_t, 1, 1, 2>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) antialias_regions_rgb(const __grid_constant__ Parameters p) {
    antialias_region<uint8_t, 3>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) antialias_regions_luma8(const __grid_constant__ Parameters p) {
    antialias_region<uint8_t, 1>(p);
}
extern "C" __global__ void __launch_bounds__(THREADS_X *THREADS_Y) antialias_regions_luma16(const __grid_constant__ Parameters p) {
    antialias_region<uint16_t, 1>(p);
}
