// SPDX-License-Identifier: MPL-2.0
// motion_means_*: the mean luma of each cell of a frame
//   in    plane 0 of a frame; background [rows][columns]
//   out   means [rows][columns], in parts of 256; totals.difference += those to the background
//   grid  a block for WIDTH x CELL pixels, a thread for each column of them
// motion_changes: which cells differ from the background, and what the background is from now on
//   in    means, totals.difference
//   io    background
//   out   totals.changed += cells
//   grid  a thread for each cell
//   math  integers. A change of the light that all cells have, up to MAX_SHIFT, is none.
//   Reference implementation: src/image/motion/host.rs. Launched by src/image/motion/kernel.rs.
#include "common.cuh"

inline constexpr uint32_t CELL = 8;      // pixels across and down
inline constexpr uint32_t THREADS = 128; // of a block
inline constexpr int32_t MAX_SHIFT = 16 * 256;
inline constexpr uint32_t FULL_WARP_MASK = 0xffffffff;

using int64_t = long long;

struct Totals {
    uint64_t difference; // the bits of an int64_t
    uint32_t changed;
    uint32_t unused;
};

struct Parameters {
    const uint8_t *plane;
    uint16_t *background;
    uint16_t *means;
    Totals *totals;
    uint32_t stride;
    uint32_t width, height; // of the frame
    uint32_t columns, rows; // of cells
    uint32_t channels;      // of a pixel, of packed colours
    uint32_t red, green, blue;
    uint32_t threshold; // in parts of 256
    uint32_t is_first;  // there is no background yet
    uint32_t unused;
};

static_assert(sizeof(Parameters) == 80, "mirrored in kernel.rs");

struct Eight {
    __device__ static uint32_t luma(const Parameters &, const uint8_t *row, uint32_t x) { return row[x]; }
};

// The words' upper bytes.
struct Sixteen {
    __device__ static uint32_t luma(const Parameters &, const uint8_t *row, uint32_t x) { return row[2 * x + 1]; }
};

struct Rgb {
    __device__ static uint32_t luma(const Parameters &p, const uint8_t *row, uint32_t x) {
        const uint8_t *pixel = row + x * p.channels;
        return (77 * pixel[p.red] + 150 * pixel[p.green] + 29 * pixel[p.blue] + 128) >> 8;
    }
};

template <typename Format>
__device__ inline void means(const Parameters &p) {
    const uint32_t x = blockIdx.x * THREADS + threadIdx.x, top = blockIdx.y * CELL, bottom = min(top + CELL, p.height);
    uint32_t sum = 0;
    if (x < p.width) {
        for (uint32_t y = top; y < bottom; y++) sum += Format::luma(p, p.plane + uint64_t(y) * p.stride, x);
    }
#pragma unroll
    for (uint32_t by = CELL / 2; by > 0; by /= 2) sum += __shfl_down_sync(FULL_WARP_MASK, sum, by, CELL);
    int32_t difference = 0;
    if (threadIdx.x % CELL == 0 && x < p.width) {
        const uint32_t pixels = (min(x + CELL, p.width) - x) * (bottom - top);
        const uint32_t mean = (sum * 256 + pixels / 2) / pixels;
        const uint32_t cell = blockIdx.y * p.columns + x / CELL;
        p.means[cell] = mean;
        if (!p.is_first) difference = int32_t(mean) - int32_t(p.background[cell]);
    }
    // One cell in 8 threads: 4 of a warp.
    difference += __shfl_down_sync(FULL_WARP_MASK, difference, 16);
    difference += __shfl_down_sync(FULL_WARP_MASK, difference, 8);
    if (threadIdx.x % 32 == 0 && difference != 0) atomicAdd(&p.totals->difference, uint64_t(int64_t(difference)));
}

extern "C" __global__ void __launch_bounds__(THREADS) motion_means_8(const __grid_constant__ Parameters p) { means<Eight>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) motion_means_16(const __grid_constant__ Parameters p) { means<Sixteen>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) motion_means_rgb(const __grid_constant__ Parameters p) { means<Rgb>(p); }

extern "C" __global__ void __launch_bounds__(THREADS) motion_changes(const __grid_constant__ Parameters p) {
    const uint32_t cells = p.columns * p.rows, cell = blockIdx.x * THREADS + threadIdx.x;
    const int64_t mean_shift = int64_t(p.totals->difference) / int64_t(cells);
    const int32_t shift = mean_shift > MAX_SHIFT ? MAX_SHIFT : mean_shift < -MAX_SHIFT ? -MAX_SHIFT : int32_t(mean_shift);
    bool has_changed = false;
    if (cell < cells) {
        const int32_t mean = p.means[cell];
        if (p.is_first) {
            p.background[cell] = mean;
        } else {
            const int32_t difference = mean - int32_t(p.background[cell]);
            has_changed = abs(difference - shift) > int32_t(p.threshold);
            p.background[cell] += (difference + 32) >> 6;
        }
    }
    const uint32_t changed = __syncthreads_count(has_changed);
    if (threadIdx.x == 0 && changed > 0) atomicAdd(&p.totals->changed, changed);
}
