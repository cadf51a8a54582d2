// SPDX-License-Identifier: MPL-2.0
// Masks of the kept boxes: weighted sums of prototypes, scaled to the size of the model's input, above 0, inside the box.
//
// place_masks: the position of each mask
//   in   found        the number of kept boxes, then the boxes
//   out  places       [kept] the pixels whose upper left corners are in the box, and the first word of the mask
//   grid one block
// fill_masks: their pixels
//   in   places; prototypes [count][height][width], f32 or f16; coefficients [kept][count]
//   out  bits         of each mask rows of whole words, the left pixel in the lowest bit
//   io   places       is_seen, where a pixel is set
//   grid y for objects, x for tiles of an object; both of any size: blocks stride over them
// give_masks: copies them to the host
//   in   places, bits
//   out  host_places  in mapped host memory
//        host_bits    the same, where the host wants masks
//   io   found        boxes without a pixel become empty: the overlay draws none of them
//   grid any size
//   math f32, in the order of src/image/masks.rs, the reference implementation
//   launched by src/postprocess/masks.rs, whose MaskParams mirrors the one here (96 bytes)
#include "boxes.cuh"

inline constexpr u32 PLACE_THREADS = 512;
inline constexpr u32 FILL_THREADS = 128;
inline constexpr u32 GIVE_THREADS = 256;
// Pixels along the sides of a tile: a word, and as many rows.
inline constexpr u32 TILE = 32;
// Sums of prototypes that a block keeps: those of a tile if prototypes are no finer than the input.
inline constexpr u32 SUMS = 36 * 36;
inline constexpr u32 FULL_MASK = 0xffffffff;

struct alignas(16) MaskPlace {
    u32 left, top, right, bottom;
    u64 first;
    u32 is_seen;
    u32 unused;
};

static_assert(sizeof(MaskPlace) == 32, "mirrored in masks.rs");

struct MaskParams {
    Results* found;
    const void* prototypes;
    const float* coefficients;
    MaskPlace* places;
    u32* bits;
    u64* words;  // of all masks
    MaskPlace* host_places;
    u32* host_bits;
    u32 is_half;
    u32 count, width, height;
    u32 input_width, input_height;
    u32 limit;
    u32 unused;
};

static_assert(sizeof(MaskParams) == 96, "mirrored in masks.rs");

__device__ __forceinline__ u32 words_of(u32 width) {
    return (width + 31) / 32;
}

__device__ __forceinline__ u32 edge(float at, u32 size) {
    return static_cast<u32>(fminf(fmaxf(ceilf(at), 0.0f), static_cast<float>(size)));
}

extern "C" __global__ __launch_bounds__(PLACE_THREADS) void place_masks(const __grid_constant__ MaskParams p) {
    __shared__ u64 sums[2][PLACE_THREADS];
    const u32 kept = min(p.found->count, p.limit), thread = threadIdx.x;
    u64 before = 0;
    for (u32 begin = 0; begin < kept; begin += PLACE_THREADS) {
        const u32 object = begin + thread;
        MaskPlace place = {};
        if (object < kept) {
            const Candidate box = p.found->detections[object];
            place.left = edge(box.x1, p.input_width);
            place.top = edge(box.y1, p.input_height);
            place.right = edge(box.x2, p.input_width);
            place.bottom = edge(box.y2, p.input_height);
        }
        const bool is_empty = place.left >= place.right || place.top >= place.bottom;
        const u64 words = is_empty ? 0 : static_cast<u64>(words_of(place.right - place.left)) * (place.bottom - place.top);
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
        place.first = before + sums[from][thread] - words;
        if (object < kept) p.places[object] = place;
        before += sums[from][PLACE_THREADS - 1];
        __syncthreads();  // the sums are used again
    }
    if (thread == 0) *p.words = before;
}

// The two samples of a line of length `from` between which sample `at` of a line of length `to` lies, and their weights.
struct Between {
    u32 samples[2];
    float weights[2];
};

__device__ __forceinline__ Between between(u32 at, u32 from, u32 to) {
    const float scale = static_cast<float>(from) / static_cast<float>(to);
    const float place = fmaxf((static_cast<float>(at) + 0.5f) * scale - 0.5f, 0.0f);
    const u32 first = min(static_cast<u32>(place), from - 1);
    const float second = place - static_cast<float>(first);
    return {{first, min(first + 1, from - 1)}, {1.0f - second, second}};
}

// The weighted sum of the prototypes at one of their samples.
__device__ __forceinline__ float sum_at(const MaskParams& p, const float* coefficients, u32 x, u32 y) {
    const size_t plane = static_cast<size_t>(p.width) * p.height;
    size_t from = static_cast<size_t>(y) * p.width + x;
    float sum = 0;
    for (u32 i = 0; i < p.count; i++, from += plane) {
        const float value = p.is_half ? half_value(__ldg(static_cast<const uint16_t*>(p.prototypes) + from))
                                      : __ldg(static_cast<const float*>(p.prototypes) + from);
        sum = sum + coefficients[i] * value;
    }
    return sum;
}

__device__ __forceinline__ float mix(const Between& x, const Between& y, float a, float b, float c, float d) {
    const float above = x.weights[0] * a + x.weights[1] * b, below = x.weights[0] * c + x.weights[1] * d;
    return y.weights[0] * above + y.weights[1] * below;
}

extern "C" __global__ __launch_bounds__(FILL_THREADS) void fill_masks(const __grid_constant__ MaskParams p) {
    __shared__ float sums[SUMS];
    const u32 kept = min(p.found->count, p.limit), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u32 object = blockIdx.y; object < kept; object += gridDim.y) {
        const MaskPlace place = p.places[object];
        if (place.left >= place.right || place.top >= place.bottom) continue;
        const float* coefficients = p.coefficients + static_cast<size_t>(object) * p.count;
        const u32 stride = words_of(place.right - place.left);
        const u32 tiles = stride * ((place.bottom - place.top + TILE - 1) / TILE);
        for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const u32 word = tile % stride;
            const u32 left = place.left + word * TILE, right = min(left + TILE, place.right);
            const u32 top = place.top + tile / stride * TILE, bottom = min(top + TILE, place.bottom);
            // The samples of prototypes that the tile needs.
            const u32 x0 = between(left, p.width, p.input_width).samples[0];
            const u32 y0 = between(top, p.height, p.input_height).samples[0];
            const u32 wide = between(right - 1, p.width, p.input_width).samples[1] + 1 - x0;
            const u32 high = between(bottom - 1, p.height, p.input_height).samples[1] + 1 - y0;
            const bool are_kept = static_cast<u64>(wide) * high <= SUMS;
            __syncthreads();  // the previous tile no longer uses its sums
            if (are_kept) {
                for (u32 i = threadIdx.x; i < wide * high; i += FILL_THREADS)
                    sums[i] = sum_at(p, coefficients, x0 + i % wide, y0 + i / wide);
            }
            __syncthreads();
            const bool is_inside = left + lane < right;
            const Between x = between(is_inside ? left + lane : left, p.width, p.input_width);
            u32 seen = 0;
            for (u32 row = top + warp; row < bottom; row += FILL_THREADS / 32) {
                const Between y = between(row, p.height, p.input_height);
                float value;
                if (are_kept) {
                    const float* upper = sums + (y.samples[0] - y0) * wide;
                    const float* lower = sums + (y.samples[1] - y0) * wide;
                    const u32 a = x.samples[0] - x0, b = x.samples[1] - x0;
                    value = mix(x, y, upper[a], upper[b], lower[a], lower[b]);
                } else {
                    const auto at = [&](u32 i, u32 j) { return sum_at(p, coefficients, x.samples[i], y.samples[j]); };
                    value = mix(x, y, at(0, 0), at(1, 0), at(0, 1), at(1, 1));
                }
                const u32 bits = __ballot_sync(FULL_MASK, is_inside && value > 0);
                seen |= bits;
                if (lane == 0) p.bits[place.first + static_cast<u64>(row - place.top) * stride + word] = bits;
            }
            if (lane == 0 && seen) p.places[object].is_seen = 1;
        }
    }
}

extern "C" __global__ __launch_bounds__(GIVE_THREADS) void give_masks(const __grid_constant__ MaskParams p) {
    const u32 kept = min(p.found->count, p.limit), thread = blockIdx.x * GIVE_THREADS + threadIdx.x;
    const u32 threads = gridDim.x * GIVE_THREADS;
    for (u32 object = thread; object < kept; object += threads) {
        const MaskPlace place = p.places[object];
        p.host_places[object] = place;
        if (!place.is_seen) p.found->detections[object].x2 = p.found->detections[object].x1;
    }
    if (!p.host_bits) return;
    const u64 words = *p.words;
    for (u64 word = thread; word < words; word += threads) p.host_bits[word] = p.bits[word];
}
