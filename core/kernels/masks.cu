// SPDX-License-Identifier: MPL-2.0
// Masks of the kept boxes: weighted sums of prototypes, scaled to the size of the model's input, above 0, inside the box. Or the map
// of the box's row, scaled to the input or to the box.
//
// place_masks: the position of each mask
//   in   found        the number of kept boxes, then the boxes
//   out  entries       [kept] the pixels whose upper left corners are in the box, or around all of the map that is above 0; and the first
//                     word of the mask
//   grid one block
// fill_masks: their pixels
//   in   entries; prototypes or maps [count][height][width], f32 or f16; coefficients [kept][count], of prototypes
//   out  bits         of each mask rows of whole words, the left pixel in the lowest bit
//   io   entries       is_seen, where a pixel is set
//   grid y for objects, x for tiles of an object; both of any size: blocks stride over them
// give_masks: copies them to the host
//   in   entries, bits
//   out  host_entries  in mapped host memory
//        host_bits    the same, where the host wants masks
//   io   found        boxes without a pixel become empty: the overlay draws none of them
//   grid any size
//   math f32, in the order of src/image/masks.rs and masks/maps.rs, the reference implementation
//   launched by src/postprocess/masks.rs, whose MaskParams mirrors the one here (96 bytes)
#include "interpolate.cuh"
#include "boxes.cuh"

inline constexpr u32 PLACE_THREADS = 512;
inline constexpr u32 FILL_THREADS = 128;
inline constexpr u32 GIVE_THREADS = 256;
// Pixels along the sides of a tile: a word, and as many rows.
inline constexpr u32 TILE = 32;
// Sums of prototypes that a block keeps: those of a tile if prototypes are no finer than the input.
inline constexpr u32 SUMS = 36 * 36;
inline constexpr u32 FULL_WARP_MASK = 0xffffffff;

struct alignas(16) MaskEntry {
    u32 left, top, right, bottom;
    u64 first;
    u32 is_seen;
    u32 unused;
};

static_assert(sizeof(MaskEntry) == 32, "mirrored in masks.rs");

// What masks are made of: sums of prototypes, or a map for each row over the input or its box.
enum Parts : u32 { PROTOTYPES, OVER_INPUT, OVER_BOX };

struct MaskParams {
    Results* found;
    const void* prototypes;
    const float* coefficients;
    MaskEntry* entries;
    u32* bits;
    u64* words;  // of all masks
    MaskEntry* host_entries;
    u32* host_bits;
    u32 is_half;
    u32 count, width, height;
    u32 input_width, input_height;  // of the model, or of finer masks
    u32 limit;
    u32 parts;
};

static_assert(sizeof(MaskParams) == 96, "mirrored in masks.rs");

__device__ __forceinline__ u32 words_of(u32 width) {
    return (width + 31) / 32;
}

__device__ __forceinline__ u32 edge(float at, u32 size) {
    return static_cast<u32>(fminf(fmaxf(ceilf(at), 0.0f), static_cast<float>(size)));
}

__device__ __forceinline__ float number(float value) {
    return value;
}

__device__ __forceinline__ float number(uint16_t bits) {
    return half_value(bits);
}

__device__ __forceinline__ float value_at(const MaskParams& p, size_t at) {
    return p.is_half ? number(__ldg(static_cast<const uint16_t*>(p.prototypes) + at))
                     : number(__ldg(static_cast<const float*>(p.prototypes) + at));
}

// Pixels of a line of length `to` in which samples of a line of length `from` have a part, from one to another.
__device__ __forceinline__ void reach(u32 first, u32 last, u32 from, u32 to, u32& start, u32& end) {
    const auto along = [&](u64 twice) { return static_cast<u32>(twice * to / (2 * static_cast<u64>(from))); };
    const u32 begin = first == 0 ? 0 : along(2 * static_cast<u64>(first) - 1);
    start = begin > 0 ? begin - 1 : 0;
    end = last + 1 >= from ? to : min(along(2 * static_cast<u64>(last) + 3) + 1, to);
}

// The rectangles around maps over the input: outside them no pixel is above 0. A warp for each object.
__device__ void bound_maps(const MaskParams& p, u32 kept) {
    const size_t plane = static_cast<size_t>(p.width) * p.height;
    const u32 lane = threadIdx.x % 32;
    for (u32 object = threadIdx.x / 32; object < kept; object += PLACE_THREADS / 32) {
        const size_t map = p.found->detections[object].row * plane;
        u32 left = 0xffffffff, top = 0xffffffff, right = 0, bottom = 0;
        for (u32 i = lane; i < plane; i += 32) {
            if (value_at(p, map + i) > 0) {
                const u32 x = i % p.width, y = i / p.width;
                left = min(left, x);
                right = max(right, x);
                top = min(top, y);
                bottom = max(bottom, y);
            }
        }
        for (u32 offset = 16; offset > 0; offset /= 2) {
            left = min(left, __shfl_xor_sync(FULL_WARP_MASK, left, offset));
            top = min(top, __shfl_xor_sync(FULL_WARP_MASK, top, offset));
            right = max(right, __shfl_xor_sync(FULL_WARP_MASK, right, offset));
            bottom = max(bottom, __shfl_xor_sync(FULL_WARP_MASK, bottom, offset));
        }
        if (lane == 0) {
            MaskEntry entry = {};
            if (left <= right) {
                reach(left, right, p.width, p.input_width, entry.left, entry.right);
                reach(top, bottom, p.height, p.input_height, entry.top, entry.bottom);
            }
            p.entries[object] = entry;
        }
    }
}

extern "C" __global__ __launch_bounds__(PLACE_THREADS) void place_masks(const __grid_constant__ MaskParams p) {
    __shared__ u64 sums[2][PLACE_THREADS];
    const u32 kept = min(p.found->count, p.limit), thread = threadIdx.x;
    if (p.parts == OVER_INPUT) {
        bound_maps(p, kept);
        __syncthreads();
    }
    u64 before = 0;
    for (u32 begin = 0; begin < kept; begin += PLACE_THREADS) {
        const u32 object = begin + thread;
        MaskEntry entry = {};
        if (object < kept && p.parts == OVER_INPUT) {
            entry = p.entries[object];
        } else if (object < kept) {
            const Candidate box = p.found->detections[object];
            entry.left = edge(box.x1, p.input_width);
            entry.top = edge(box.y1, p.input_height);
            entry.right = edge(box.x2, p.input_width);
            entry.bottom = edge(box.y2, p.input_height);
        }
        const bool is_empty = entry.left >= entry.right || entry.top >= entry.bottom;
        const u64 words = is_empty ? 0 : static_cast<u64>(words_of(entry.right - entry.left)) * (entry.bottom - entry.top);
        // The sum of the words up to each thread's.
        u32 from = 0;
        sums[0][thread] = words;
        __syncthreads();
        for (u32 step = 1; step < PLACE_THREADS; step *= 2) {
            const u64 left = thread >= step ? sums[from][thread - step] : 0;
            sums[1 - from][thread] = sums[from][thread] + left;
            from = 1 - from;
            __syncthreads();
        }
        entry.first = before + sums[from][thread] - words;
        if (object < kept) p.entries[object] = entry;
        before += sums[from][PLACE_THREADS - 1];
        __syncthreads();  // the sums are used again
    }
    if (thread == 0) *p.words = before;
}

// The sums are added in order; several loads are in flight meanwhile.
template <typename T>
__device__ __forceinline__ float sum_of(const T* values, size_t plane, const float* coefficients, u32 count) {
    float sum = 0;
#pragma unroll 8
    for (u32 i = 0; i < count; i++) sum = sum + __ldg(coefficients + i) * number(__ldg(values + i * plane));
    return sum;
}

// The weighted sum of the prototypes at one of their samples, or a sample of the row's map.
__device__ __forceinline__ float sum_at(const MaskParams& p, const float* coefficients, u32 row, u32 x, u32 y) {
    const size_t plane = static_cast<size_t>(p.width) * p.height, from = static_cast<size_t>(y) * p.width + x;
    if (p.parts != PROTOTYPES) return 0.0f + value_at(p, from + row * plane);
    if (p.is_half) return sum_of(static_cast<const uint16_t*>(p.prototypes) + from, plane, coefficients, p.count);
    return sum_of(static_cast<const float*>(p.prototypes) + from, plane, coefficients, p.count);
}

extern "C" __global__ __launch_bounds__(FILL_THREADS) void fill_masks(const __grid_constant__ MaskParams p) {
    __shared__ float sums[SUMS];
    const u32 kept = min(p.found->count, p.limit), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u32 object = blockIdx.y; object < kept; object += gridDim.y) {
        const MaskEntry entry = p.entries[object];
        if (entry.left >= entry.right || entry.top >= entry.bottom) continue;
        const float* coefficients = p.coefficients + static_cast<size_t>(object) * p.count;
        const Candidate box = p.found->detections[object];
        const bool is_over_box = p.parts == OVER_BOX;
        const SourceRange across = {is_over_box ? box.x1 : 0.0f, is_over_box ? box.x2 - box.x1 : static_cast<float>(p.input_width)};
        const SourceRange down = {is_over_box ? box.y1 : 0.0f, is_over_box ? box.y2 - box.y1 : static_cast<float>(p.input_height)};
        const float level = is_over_box ? 0.5f : 0.0f;
        const u32 stride = words_of(entry.right - entry.left);
        const u32 tiles = stride * ((entry.bottom - entry.top + TILE - 1) / TILE);
        for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const u32 word = tile % stride;
            const u32 left = entry.left + word * TILE, right = min(left + TILE, entry.right);
            const u32 top = entry.top + tile / stride * TILE, bottom = min(top + TILE, entry.bottom);
            // The samples of prototypes that the tile needs.
            const u32 x0 = interpolation(left, p.width, across).samples[0];
            const u32 y0 = interpolation(top, p.height, down).samples[0];
            const u32 wide = interpolation(right - 1, p.width, across).samples[1] + 1 - x0;
            const u32 high = interpolation(bottom - 1, p.height, down).samples[1] + 1 - y0;
            const bool are_kept = static_cast<u64>(wide) * high <= SUMS;
            __syncthreads();  // the previous tile no longer uses its sums
            if (are_kept) {
                for (u32 i = threadIdx.x; i < wide * high; i += FILL_THREADS)
                    sums[i] = sum_at(p, coefficients, box.row, x0 + i % wide, y0 + i / wide);
            }
            __syncthreads();
            const bool is_inside = left + lane < right;
            const Interpolation x = interpolation(is_inside ? left + lane : left, p.width, across);
            u32 seen = 0;
            for (u32 row = top + warp; row < bottom; row += FILL_THREADS / 32) {
                const Interpolation y = interpolation(row, p.height, down);
                float value;
                if (are_kept) {
                    const float* upper = sums + (y.samples[0] - y0) * wide;
                    const float* lower = sums + (y.samples[1] - y0) * wide;
                    const u32 a = x.samples[0] - x0, b = x.samples[1] - x0;
                    value = interpolate(x, y, upper[a], upper[b], lower[a], lower[b]);
                } else {
                    float corners[4];
#pragma unroll 1
                    for (u32 i = 0; i < 4; i++) corners[i] = sum_at(p, coefficients, box.row, x.samples[i % 2], y.samples[i / 2]);
                    value = interpolate(x, y, corners[0], corners[1], corners[2], corners[3]);
                }
                const u32 bits = __ballot_sync(FULL_WARP_MASK, is_inside && value > level);
                seen |= bits;
                if (lane == 0) p.bits[entry.first + static_cast<u64>(row - entry.top) * stride + word] = bits;
            }
            if (lane == 0 && seen) p.entries[object].is_seen = 1;
        }
    }
}

extern "C" __global__ __launch_bounds__(GIVE_THREADS) void give_masks(const __grid_constant__ MaskParams p) {
    const u32 kept = min(p.found->count, p.limit), thread = blockIdx.x * GIVE_THREADS + threadIdx.x;
    const u32 threads = gridDim.x * GIVE_THREADS;
    for (u32 object = thread; object < kept; object += threads) {
        const MaskEntry entry = p.entries[object];
        p.host_entries[object] = entry;
        if (!entry.is_seen) p.found->detections[object].x2 = p.found->detections[object].x1;
    }
    if (!p.host_bits) return;
    const u64 words = *p.words;
    for (u64 word = thread; word < words; word += threads) p.host_bits[word] = p.bits[word];
}
