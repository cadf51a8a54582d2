// SPDX-License-Identifier: MPL-2.0
// map_tint_*: the colours of a map on a frame, in place.
//   in    values of the map, in rows of map_width; palette [entries]
//         columns, rows: for each column and row of the frame that of the map, or NEVER
//   io    planes of a frame
//   grid  a block for each tile of TILE_WIDTH x TILE_HEIGHT cells, a thread for each cell
//   math  integers; a sample of chroma takes the lowest entry of the palette that its pixels have
//   Reference implementation: src/image/overlay/map.rs. Launched by src/image/overlay/kernel/maps.rs.
#include "blend.cuh"

struct MapTintParameters {
    uint8_t *planes[3];
    const uint16_t *values;
    const uint32_t *columns;
    const uint32_t *rows;
    const Sample *palette;
    uint32_t strides[3];
    uint32_t width, height; // of the frame
    uint32_t map_width;
    uint32_t first, shift, entries;
    uint32_t weight;
};

static_assert(sizeof(MapTintParameters) == 96, "mirrored in maps.rs");

inline constexpr uint32_t TILE_WIDTH = 16, TILE_HEIGHT = THREADS / TILE_WIDTH;
inline constexpr uint32_t NEVER = 0xffffffff, NOTHING = 0xffff;

// The entry of the palette for a pixel of the frame.
__device__ inline uint32_t entry_at(const MapTintParameters &p, uint32_t x, uint32_t y) {
    if (x >= p.width || y >= p.height) return NOTHING;
    const uint32_t column = p.columns[x], row = p.rows[y];
    if (column == NEVER || row == NEVER) return NOTHING;
    const uint32_t found = ((p.values[uint64_t(row) * p.map_width + column] - p.first) & 0xffff) >> p.shift;
    return found < p.entries ? found : NOTHING;
}

template <typename Format>
__device__ inline void tint_map(const MapTintParameters &p) {
    constexpr uint32_t CELL = Format::CELL;
    const uint32_t x = (blockIdx.x * TILE_WIDTH + threadIdx.x % TILE_WIDTH) * CELL;
    const uint32_t y = (blockIdx.y * TILE_HEIGHT + threadIdx.x / TILE_WIDTH) * CELL;
    uint32_t lowest = NOTHING;
#pragma unroll
    for (uint32_t k = 0; k < CELL * CELL; k++) {
        const uint32_t entry = entry_at(p, x + k % CELL, y + k / CELL);
        if (entry == NOTHING) continue;
        Blend<Format>::pixel(p, x + k % CELL, y + k / CELL, p.palette[entry]);
        lowest = min(lowest, entry);
    }
    if (lowest != NOTHING) Blend<Format>::chroma(p, x / CELL, y / CELL, p.palette[lowest]);
}

extern "C" __global__ void __launch_bounds__(THREADS) map_tint_nv12(const __grid_constant__ MapTintParameters p) { tint_map<Nv12>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) map_tint_p010(const __grid_constant__ MapTintParameters p) { tint_map<P010>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) map_tint_i420(const __grid_constant__ MapTintParameters p) { tint_map<I420>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) map_tint_packed1(const __grid_constant__ MapTintParameters p) { tint_map<Packed<1>>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) map_tint_packed3(const __grid_constant__ MapTintParameters p) { tint_map<Packed<3>>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) map_tint_packed4(const __grid_constant__ MapTintParameters p) { tint_map<Packed<4>>(p); }
