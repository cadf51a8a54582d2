// SPDX-License-Identifier: MPL-2.0
// plan_tints: masks of objects -> tints that tint_* blends into a frame
//   in    entries [*count]: positions of masks, the best object first; labelled boxes [*count] of the same objects, the weakest first
//   out   tints [limit], the best object first; those that are not drawn are empty
//   grid  a thread for each of `limit` objects
// tint_*: masks on a frame, in place.
//   in    tints [*count], bits of masks: rows of whole words, the left pixel in the lowest bit
//         columns, rows: for each column and row of the frame that of the masks, or NEVER
//   io    planes of a frame
//   grid  a block for each tile of TILE_WIDTH x TILE_HEIGHT cells, a thread for each cell
//   math  integers; every sample is blended once, with the colour of the first tint that touches it
//   Reference implementation: src/image/overlay/tint.rs. Launched by src/image/overlay/kernel/tints.rs.
#include "blend.cuh"

struct alignas(16) Tint {
    Rect rect;
    uint64_t first;
    Sample color;
    uint32_t unused;
};

static_assert(sizeof(Tint) == 32, "mirrored in tints.rs");

// As in masks.cu.
struct alignas(16) MaskEntry {
    Rect rect;
    uint64_t first;
    uint32_t is_seen;
    uint32_t unused;
};

static_assert(sizeof(MaskEntry) == 32, "mirrored in tints.rs");

struct PlanParameters {
    const MaskEntry *entries;
    const LabeledBox *boxes;
    const uint32_t *count;
    Tint *tints;
    uint32_t limit;
    uint32_t unused;
};

static_assert(sizeof(PlanParameters) == 40, "mirrored in tints.rs");

struct TintParameters {
    uint8_t *planes[3];
    const uint32_t *count;
    const Tint *tints;
    const uint32_t *bits;
    const uint32_t *columns;
    const uint32_t *rows;
    uint32_t strides[3];
    uint32_t width, height; // of the frame
    uint32_t weight;
};

static_assert(sizeof(TintParameters) == 88, "mirrored in tints.rs");

inline constexpr uint32_t TILE_WIDTH = 16, TILE_HEIGHT = THREADS / TILE_WIDTH;
inline constexpr uint32_t FULL_WARP_MASK = 0xffffffff, NEVER = 0xffffffff;

extern "C" __global__ void __launch_bounds__(THREADS) plan_tints(const __grid_constant__ PlanParameters p) {
    const uint32_t object = blockIdx.x * THREADS + threadIdx.x;
    if (object >= p.limit) return;
    const uint32_t count = min(*p.count, p.limit);
    Tint tint = {};
    if (object < count) {
        const LabeledBox &labeled = p.boxes[count - 1 - object];
        const MaskEntry entry = p.entries[object];
        if (!is_empty(labeled.outer)) tint = {entry.rect, entry.first, labeled.color};
    }
    p.tints[object] = tint;
}

// Whether a mask has that pixel, in its own pixels; NEVER is in no mask.
__device__ inline bool touches(const TintParameters &p, const Tint &tint, uint32_t x, uint32_t y) {
    const Rect &rect = tint.rect;
    if (x < rect.left || x >= rect.right || y < rect.top || y >= rect.bottom) return false;
    const uint32_t stride = (rect.right - rect.left + 31) / 32, column = x - rect.left;
    return p.bits[tint.first + uint64_t(y - rect.top) * stride + column / 32] >> column % 32 & 1;
}

template <typename Format>
__device__ inline void draw_tints(const TintParameters &p) {
    constexpr uint32_t CELL = Format::CELL;
    const uint32_t left = blockIdx.x * TILE_WIDTH * CELL, top = blockIdx.y * TILE_HEIGHT * CELL;
    const uint32_t x = left + threadIdx.x % TILE_WIDTH * CELL, y = top + threadIdx.x / TILE_WIDTH * CELL;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t count = *p.count;
    __shared__ Tint near[THREADS];
    __shared__ uint32_t found[THREADS / 32];
    // The part of the masks that the tile may show. NEVER on all sides of the area that they cover.
    const uint32_t last_x = min(left + TILE_WIDTH * CELL, p.width) - 1, last_y = min(top + TILE_HEIGHT * CELL, p.height) - 1;
    const auto begin = [](uint32_t at) { return at == NEVER ? 0 : at; };
    const uint32_t from_x = begin(p.columns[left]), to_x = p.columns[last_x];
    const uint32_t from_y = begin(p.rows[top]), to_y = p.rows[last_y];
    // A bit for each pixel of the cell that is in the frame and not blended yet; and whether chroma is not.
    uint32_t open = 0, columns[CELL], rows[CELL];
#pragma unroll
    for (uint32_t k = 0; k < CELL; k++) {
        columns[k] = x + k < p.width ? p.columns[x + k] : NEVER;
        rows[k] = y + k < p.height ? p.rows[y + k] : NEVER;
    }
#pragma unroll
    for (uint32_t k = 0; k < CELL * CELL; k++) {
        if (columns[k % CELL] != NEVER && rows[k / CELL] != NEVER) open |= 1u << k;
    }
    const uint32_t inside = open;
    bool chroma_open = CELL > 1 && inside;
    for (uint32_t done = 0; done < count; done += THREADS) {
        Tint tint = {};
        if (done + threadIdx.x < count) tint = p.tints[done + threadIdx.x];
        const Rect &rect = tint.rect;
        const bool is_near = !is_empty(rect) && rect.left <= to_x && rect.right > from_x && rect.top <= to_y && rect.bottom > from_y;
        const uint32_t bits = __ballot_sync(FULL_WARP_MASK, is_near);
        __syncthreads(); // the previous tints are no longer used
        if (lane == 0) found[warp] = __popc(bits);
        __syncthreads();
        uint32_t place = __popc(bits & ((1u << lane) - 1)), total = 0;
#pragma unroll
        for (uint32_t i = 0; i < THREADS / 32; i++) {
            if (i < warp) place += found[i];
            total += found[i];
        }
        if (is_near) near[place] = tint;
        __syncthreads();
        for (uint32_t i = 0; i < total && (open || chroma_open); i++) {
            const Tint &tint = near[i];
            bool any = false;
#pragma unroll
            for (uint32_t k = 0; k < CELL * CELL; k++) {
                if (!(inside >> k & 1) || !touches(p, tint, columns[k % CELL], rows[k / CELL])) continue;
                any = true;
                if (open >> k & 1) Blend<Format>::pixel(p, x + k % CELL, y + k / CELL, tint.color);
                open &= ~(1u << k);
            }
            if (any && chroma_open) {
                Blend<Format>::chroma(p, x / CELL, y / CELL, tint.color);
                chroma_open = false;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) tint_nv12(const __grid_constant__ TintParameters p) { draw_tints<Nv12>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) tint_p010(const __grid_constant__ TintParameters p) { draw_tints<P010>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) tint_i420(const __grid_constant__ TintParameters p) { draw_tints<I420>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) tint_packed1(const __grid_constant__ TintParameters p) { draw_tints<Packed<1>>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) tint_packed3(const __grid_constant__ TintParameters p) { draw_tints<Packed<3>>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) tint_packed4(const __grid_constant__ TintParameters p) { draw_tints<Packed<4>>(p); }
