// SPDX-License-Identifier: MPL-2.0
// hide_means_*: what is left of areas that are hidden
//   in    areas [count], planes of a frame
//   out   means [plane][area][CELLS * CELLS][4]: of the samples of each cell
//   grid  x an area, y a cell, z a plane
// hide_*: each sample of the areas between the means of cells, in place
//   in    areas [count], means
//   io    planes
//   grid  x an area, y pieces of it, z a plane
//   math  no sample is read: each takes the value of the last area that has it, in any order of execution
// hide_mask_*: black where a mask is, in place
//   in    bits: rows of whole words, the left quad in the lowest bit
//   grid  x and y quads, z a plane
// A quad is 2 x 2 pixels. All is in integers. Words of P010 have 10 bits.
//   Reference implementation: src/image/privacy/host.rs. Launched by src/image/privacy/kernel.rs.
#include "overlay.cuh"

inline constexpr uint32_t CELLS = 8;       // of an area at most, across and down
inline constexpr uint32_t MEAN_THREADS = 64; // of a block of hide_means_*
inline constexpr uint32_t MEAN_WIDTH = 16;   // of them in a row
inline constexpr uint32_t FULL_WARP_MASK = 0xffffffff;

struct alignas(16) HiddenArea {
    Rect quads;
    uint32_t cell; // side of a cell in quads
    uint32_t is_smooth;
    uint32_t unused[2];
};

static_assert(sizeof(HiddenArea) == 32, "mirrored by image::privacy::HiddenArea");

struct Plane {
    uint8_t *address;
    uint32_t stride;
    uint32_t width, height; // in samples
    uint32_t channels;      // of a sample
    uint32_t per_quad;      // samples across and down
    Sample black;
};

static_assert(sizeof(Plane) == 32, "mirrored in kernel.rs");

struct HideParameters {
    Plane planes[3];
    const HiddenArea *areas;
    uint16_t *means;
    uint32_t count;
    uint32_t unused;
};

static_assert(sizeof(HideParameters) == 120, "mirrored in kernel.rs");

struct MaskParameters {
    Plane planes[3];
    Rect quads;
    const uint32_t *bits;
    uint64_t unused;
};

static_assert(sizeof(MaskParameters) == 128, "mirrored in kernel.rs");

__device__ inline uint32_t value(uint8_t word) { return word; }
__device__ inline uint32_t value(uint16_t word) { return word >> 6; }
__device__ inline void store(uint32_t value, uint8_t &to) { to = value; }
__device__ inline void store(uint32_t value, uint16_t &to) { to = value << 6; }
__device__ inline void store_byte(uint8_t byte, uint8_t &to) { to = byte; }
__device__ inline void store_byte(uint8_t byte, uint16_t &to) { to = byte << 8; }

template <typename Word>
__device__ inline Word *at(const Plane &plane, uint32_t x, uint32_t y) {
    return reinterpret_cast<Word *>(plane.address + uint64_t(y) * plane.stride) + uint64_t(x) * plane.channels;
}

// The samples of a rectangle of quads that the plane has.
__device__ inline Rect samples(const Plane &plane, const Rect &quads) {
    const uint32_t k = plane.per_quad;
    return {quads.left * k, quads.top * k, min(quads.right * k, plane.width), min(quads.bottom * k, plane.height)};
}

__device__ inline uint16_t *means_of(const HideParameters &p, uint32_t plane, uint32_t area, uint32_t cell) {
    return p.means + ((uint64_t(plane) * p.count + area) * CELLS * CELLS + cell) * 4;
}

template <typename Word>
__device__ inline void hide_means(const HideParameters &p) {
    const HiddenArea area = p.areas[blockIdx.x];
    const Plane &plane = p.planes[blockIdx.z];
    const Rect whole = samples(plane, area.quads);
    const uint32_t side = area.cell * plane.per_quad;
    const uint32_t left = whole.left + blockIdx.y % CELLS * side, top = whole.top + blockIdx.y / CELLS * side;
    const uint32_t right = min(whole.right, left + side), bottom = min(whole.bottom, top + side);
    if (left >= right || top >= bottom) return;

    uint64_t sums[4] = {};
    for (uint32_t y = top + threadIdx.x / MEAN_WIDTH; y < bottom; y += MEAN_THREADS / MEAN_WIDTH)
        for (uint32_t x = left + threadIdx.x % MEAN_WIDTH; x < right; x += MEAN_WIDTH) {
            const Word *from = at<Word>(plane, x, y);
#pragma unroll
            for (uint32_t c = 0; c < 4; c++)
                if (c < plane.channels) sums[c] += value(from[c]);
        }
    __shared__ uint64_t totals[MEAN_THREADS / 32][4];
#pragma unroll
    for (uint32_t c = 0; c < 4; c++) {
#pragma unroll
        for (uint32_t by = 16; by > 0; by /= 2) sums[c] += __shfl_down_sync(FULL_WARP_MASK, sums[c], by);
        if (threadIdx.x % 32 == 0) totals[threadIdx.x / 32][c] = sums[c];
    }
    __syncthreads();
    if (threadIdx.x >= plane.channels) return;
    uint64_t total = 0;
#pragma unroll
    for (uint32_t warp = 0; warp < MEAN_THREADS / 32; warp++) total += totals[warp][threadIdx.x];
    const uint32_t count = (right - left) * (bottom - top);
    means_of(p, blockIdx.z, blockIdx.x, blockIdx.y)[threadIdx.x] = (total + count / 2) / count;
}

// Between which two cells a sample lies, and how near to the second, in parts of 256.
struct Place {
    uint32_t first, second, weight;
};

__device__ inline Place place(uint32_t at, uint32_t side, uint32_t cells, bool is_smooth) {
    if (!is_smooth) return {at / side, at / side, 0};
    const uint32_t twice = 2 * at + 1;
    if (twice < side) return {0, 0, 0};
    const uint32_t first = (twice - side) / (2 * side);
    return {first, min(first + 1, cells - 1), (twice - side) % (2 * side) * 128 / side};
}

__device__ inline bool meets(const Rect &a, const Rect &b) {
    return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

__device__ inline bool holds(const Rect &rect, uint32_t x, uint32_t y) {
    return rect.left <= x && x < rect.right && rect.top <= y && y < rect.bottom;
}

template <typename Word>
__device__ inline void hide(const HideParameters &p) {
    const HiddenArea area = p.areas[blockIdx.x];
    const Plane &plane = p.planes[blockIdx.z];
    const Rect whole = samples(plane, area.quads);
    const uint32_t width = whole.right - whole.left, count = width * (whole.bottom - whole.top);
    const uint32_t side = area.cell * plane.per_quad;
    const uint32_t columns = (area.quads.right - area.quads.left + area.cell - 1) / area.cell;
    const uint32_t rows = (area.quads.bottom - area.quads.top + area.cell - 1) / area.cell;

    // The last area that may lie on this one.
    __shared__ uint32_t last;
    if (threadIdx.x == 0) last = blockIdx.x;
    __syncthreads();
    for (uint32_t other = blockIdx.x + 1 + threadIdx.x; other < p.count; other += THREADS)
        if (meets(area.quads, p.areas[other].quads)) atomicMax(&last, other);
    __syncthreads();

    for (uint32_t i = blockIdx.y * THREADS + threadIdx.x; i < count; i += gridDim.y * THREADS) {
        const uint32_t across = i % width, down = i / width, x = whole.left + across, y = whole.top + down;
        bool is_covered = false;
        for (uint32_t other = blockIdx.x + 1; other <= last && !is_covered; other++)
            is_covered = holds(p.areas[other].quads, x / plane.per_quad, y / plane.per_quad);
        if (is_covered) continue;
        const Place column = place(across, side, columns, area.is_smooth), row = place(down, side, rows, area.is_smooth);
        const auto mean = [&](uint32_t cell_row, uint32_t cell_column) {
            return means_of(p, blockIdx.z, blockIdx.x, cell_row * CELLS + cell_column);
        };
        const uint16_t *a = mean(row.first, column.first), *b = mean(row.first, column.second);
        const uint16_t *c = mean(row.second, column.first), *d = mean(row.second, column.second);
        Word *to = at<Word>(plane, x, y);
#pragma unroll
        for (uint32_t part = 0; part < 4; part++) {
            if (part >= plane.channels) break;
            const uint32_t upper = a[part] * (256 - column.weight) + b[part] * column.weight;
            const uint32_t lower = c[part] * (256 - column.weight) + d[part] * column.weight;
            store((upper * (256 - row.weight) + lower * row.weight + 32768) >> 16, to[part]);
        }
    }
}

template <typename Word>
__device__ inline void hide_mask(const MaskParameters &p) {
    const Plane &plane = p.planes[blockIdx.z];
    const uint32_t width = p.quads.right - p.quads.left;
    const uint32_t column = blockIdx.x * THREADS + threadIdx.x;
    if (column >= width || !(p.bits[uint64_t(blockIdx.y) * ((width + 31) / 32) + column / 32] >> column % 32 & 1)) return;
    const uint32_t left = p.quads.left + column, top = p.quads.top + blockIdx.y;
    const Rect quad = samples(plane, {left, top, left + 1, top + 1});
    for (uint32_t y = quad.top; y < quad.bottom; y++)
        for (uint32_t x = quad.left; x < quad.right; x++) {
            Word *to = at<Word>(plane, x, y);
#pragma unroll
            for (uint32_t c = 0; c < 4; c++)
                if (c < plane.channels) store_byte(plane.black.parts[c], to[c]);
        }
}

extern "C" __global__ void __launch_bounds__(MEAN_THREADS) hide_means_8(const __grid_constant__ HideParameters p) { hide_means<uint8_t>(p); }
extern "C" __global__ void __launch_bounds__(MEAN_THREADS) hide_means_16(const __grid_constant__ HideParameters p) { hide_means<uint16_t>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) hide_8(const __grid_constant__ HideParameters p) { hide<uint8_t>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) hide_16(const __grid_constant__ HideParameters p) { hide<uint16_t>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) hide_mask_8(const __grid_constant__ MaskParameters p) { hide_mask<uint8_t>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) hide_mask_16(const __grid_constant__ MaskParameters p) { hide_mask<uint16_t>(p); }
