// SPDX-License-Identifier: MPL-2.0
// The names of a gallery that vectors are most like.
//
// match_products_*: roughly how like each known vector is to each of the others
//   in   known     [tiles][steps][ROWS][32] four numbers each: vectors in the order in which the lanes of a warp read them
//        vectors   [groups][VECTORS][steps][STEP] the others; the last group is filled up with zeros
//   out  products  [groups][VECTORS][tiles][TILE]
//   grid blocks whose warps take tiles in turn, and a row of blocks for each group
//   math f32 with fused multiply-add, in an order of its own: a product is off from the exact one by half of `margin` at most. So the
//        gallery is read from memory once, in the time that this takes; without fused multiply-add the arithmetic would take longer.
// match_names: the names that the others are most like
//   in   products, known, vectors; owners [rows] the name of each known vector
//   out  best      [vectors][most] in mapped host memory, the most similar first; behind the last one a name NONE
//        keys      [vectors][slices][most] scratch; products are overwritten
//   io   done      [vectors] 0 before and after
//   grid a block for each slice of the known vectors and each of the others; the last one of a vector puts together what they found
//   math of the known vectors that may be among the best, the exact product: f32 without fused multiply-add, in the order of
//        src/vector.rs. Of equals the one with the lowest row is the best.
//   reference implementation Gallery::find in src/gallery/mod.rs; launched by device.rs next to it, whose MatchParams mirrors the one
//        here (80 bytes)
//
// What is exactly among the best is so roughly as well, but for the margin: the names that are best by rough products have exact ones
// that are at most half of it lower, and no vector that is lower by all of it can be better. Each name of a slice has its own limit, so
// that many vectors of one name are not compared again. Near-duplicates of the best are, and then it takes longer.
#include "greatest.cuh"

inline constexpr uint32_t NONE = 0xffffffff;
inline constexpr uint32_t STEP = 16;                 // numbers of a vector that PARTS lanes read at a time, and sums of an exact product
inline constexpr uint32_t PARTS = STEP / 4;          // lanes that share a vector
inline constexpr uint32_t SLOTS = 32 / PARTS;        // vectors that a warp reads at a time
inline constexpr uint32_t ROWS = 4;                  // known vectors of a lane
inline constexpr uint32_t TILE = ROWS * SLOTS;       // known vectors of a warp
inline constexpr uint32_t TILE_STEP = ROWS * 32;     // a step of a tile, in four numbers each
inline constexpr uint32_t AHEAD = 2;                 // steps that are read ahead; a vector has a multiple of it
inline constexpr uint32_t CHUNK = 32;                // steps of the others in shared memory, a multiple of AHEAD
inline constexpr uint32_t PRODUCT_THREADS = 384;
inline constexpr uint32_t NAME_THREADS = 256;
inline constexpr uint32_t PER_THREAD = 16;           // known vectors of a thread of match_names
inline constexpr uint32_t SLICE = NAME_THREADS * PER_THREAD;
inline constexpr uint32_t MOST = 100;                // names of a vector; at most NAME_THREADS slices

static_assert(PARTS == ROWS && TILE == 32, "a lane writes the products of one known vector");

struct NamedLikeness {
    uint32_t name;
    float likeness;
};

struct MatchParams {
    const float4 *known;
    const uint32_t *owners;
    const float4 *vectors;
    float *products;
    uint64_t *keys;
    uint32_t *done;
    NamedLikeness *best;
    uint32_t rows, tiles;
    uint32_t steps, most;
    float margin;
    uint32_t unused;
};

static_assert(sizeof(MatchParams) == 80, "mirrored in device.rs");

// Which part of a step a lane reads, and of which vector of SLOTS. Neighbours read the same part, which shared memory serves at once.
__device__ inline uint32_t part_of(uint32_t lane) { return lane / 2 % PARTS; }
__device__ inline uint32_t slot_of(uint32_t lane) { return lane % 2 + lane / (2 * PARTS) * 2; }
__device__ inline uint32_t lane_of(uint32_t part, uint32_t slot) { return slot % 2 + part * 2 + slot / 2 * (2 * PARTS); }

__device__ __forceinline__ void read_step(float4 (&known)[ROWS], const float4 *from) {
#pragma unroll
    for (uint32_t row = 0; row < ROWS; row++) known[row] = __ldg(from + row * 32);
}

template <uint32_t VECTORS>
__device__ __forceinline__ void add_products(float (&sums)[VECTORS][ROWS], const float4 (&known)[ROWS], const float4 *others) {
#pragma unroll
    for (uint32_t vector = 0; vector < VECTORS; vector++) {
        const float4 other = others[vector * CHUNK * PARTS];
#pragma unroll
        for (uint32_t row = 0; row < ROWS; row++) sums[vector][row] = __fmaf_rn(known[row].x, other.x, sums[vector][row]);
#pragma unroll
        for (uint32_t row = 0; row < ROWS; row++) sums[vector][row] = __fmaf_rn(known[row].y, other.y, sums[vector][row]);
#pragma unroll
        for (uint32_t row = 0; row < ROWS; row++) sums[vector][row] = __fmaf_rn(known[row].z, other.z, sums[vector][row]);
#pragma unroll
        for (uint32_t row = 0; row < ROWS; row++) sums[vector][row] = __fmaf_rn(known[row].w, other.w, sums[vector][row]);
    }
}

template <uint32_t VECTORS>
__device__ __forceinline__ void match_products(const MatchParams &p) {
    __shared__ float4 others[VECTORS][CHUNK * PARTS];
    const uint32_t lane = threadIdx.x % 32, part = part_of(lane), slot = slot_of(lane);
    const uint32_t warps = gridDim.x * (PRODUCT_THREADS / 32), parts = p.steps * PARTS;
    const float4 *vectors = p.vectors + static_cast<uint64_t>(blockIdx.y) * VECTORS * parts;
    float *products = p.products + static_cast<uint64_t>(blockIdx.y) * VECTORS * p.tiles * TILE;

    // What the warp reads next, AHEAD steps before it needs that: also of the next tile.
    uint32_t tile = threadIdx.x / 32 * gridDim.x + blockIdx.x, ahead = tile, left = p.steps / AHEAD;
    const float4 *next = p.known + static_cast<uint64_t>(tile) * p.steps * TILE_STEP + lane;
    const auto advance = [&] {
        if (left > 1) {
            left--;
            next += AHEAD * TILE_STEP;
        } else if (ahead + warps < p.tiles) {
            ahead += warps;
            left = p.steps / AHEAD;
            next = p.known + static_cast<uint64_t>(ahead) * p.steps * TILE_STEP + lane;
        }  // else the last ones are read once more, for nothing: they are at hand
    };
    float4 known[AHEAD][ROWS] = {};
    if (tile < p.tiles) {
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) read_step(known[i], next + i * TILE_STEP);
        advance();
    }
    for (uint32_t first = 0; first < p.tiles; first += warps, tile += warps) {
        float sums[VECTORS][ROWS] = {};
        for (uint32_t begin = 0; begin < p.steps; begin += CHUNK) {
            const uint32_t steps = min(CHUNK, p.steps - begin);
            // Where all steps are in shared memory, they are there since the first tile.
            if (first == 0 || p.steps > CHUNK) {
                __syncthreads();
                for (uint32_t i = threadIdx.x; i < VECTORS * CHUNK * PARTS; i += PRODUCT_THREADS) {
                    const uint32_t vector = i / (CHUNK * PARTS), at = i % (CHUNK * PARTS);
                    if (at < steps * PARTS) others[vector][at] = __ldg(vectors + vector * parts + begin * PARTS + at);
                }
                __syncthreads();
            }
            if (tile >= p.tiles) continue;
            for (uint32_t step = 0; step < steps; step += AHEAD) {
#pragma unroll
                for (uint32_t i = 0; i < AHEAD; i++) {
                    add_products<VECTORS>(sums, known[i], &others[0][(step + i) * PARTS + part]);
                    read_step(known[i], next + i * TILE_STEP);
                }
                advance();
            }
        }
        if (tile >= p.tiles) continue;
        // The lanes that share known vectors add their sums, and write those of one each.
        float *to = products + tile * TILE + part * SLOTS + slot;
#pragma unroll
        for (uint32_t vector = 0; vector < VECTORS; vector++) {
            float mine = 0.0f;
#pragma unroll
            for (uint32_t row = 0; row < ROWS; row++) {
                float sum = sums[vector][row];
                sum += __shfl_xor_sync(FULL_WARP_MASK, sum, 2);
                sum += __shfl_xor_sync(FULL_WARP_MASK, sum, 4);
                if (row == part) mine = sum;
            }
            to[static_cast<uint64_t>(vector) * p.tiles * TILE] = mine;
        }
    }
}

// How like one of the others is to a known vector, exactly: in all lanes of a warp, which have one row and one vector. A lane has the
// sum of each 16th product, and half of the lanes do what the others do.
__device__ __forceinline__ float exact_product(const MatchParams &p, uint32_t vector, uint32_t row, uint32_t lane) {
    const uint32_t number = lane % STEP, in_tile = row % TILE;
    const uint64_t place = (static_cast<uint64_t>(row / TILE) * p.steps * ROWS + in_tile / SLOTS) * 32 + lane_of(number / 4, in_tile % SLOTS);
    const float *known = reinterpret_cast<const float *>(p.known + place) + number % 4;
    const float *other = reinterpret_cast<const float *>(p.vectors) + static_cast<uint64_t>(vector) * p.steps * STEP + number;
    float sum = 0.0f;
#pragma unroll 16
    for (uint32_t step = 0; step < p.steps; step++) sum += __ldg(known + step * TILE_STEP * 4) * __ldg(other + step * STEP);
    for (uint32_t half = STEP / 2; half > 0; half /= 2) sum += __shfl_xor_sync(FULL_WARP_MASK, sum, half);
    return sum;
}

// The best known vector of a thread, as a number that is greater the better it is; 0 where none is left. `left` has a bit for each.
__device__ __forceinline__ uint64_t best_of(const float (&likeness)[PER_THREAD], uint32_t left, uint32_t first) {
    float best = 0.0f;
    uint32_t at = NONE;
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; i++) {
        if ((left >> i & 1) != 0 && (at == NONE || likeness[i] > best)) {
            best = likeness[i];
            at = first + i * NAME_THREADS;
        }
    }
    return at == NONE ? 0 : static_cast<uint64_t>(ordered(best)) << 32 | ~at;
}

__device__ inline uint32_t row_of(uint64_t key) { return ~static_cast<uint32_t>(key); }
__device__ inline float likeness_of(uint64_t key) { return unordered(key >> 32); }

// What is left without the known vectors of a name.
__device__ __forceinline__ uint32_t without(uint32_t name, const uint32_t (&owners)[PER_THREAD], uint32_t left) {
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; i++)
        if (owners[i] == name) left &= ~(1u << i);
    return left;
}

__device__ inline uint32_t position(const uint32_t *names, uint32_t count, uint32_t name) {
    uint32_t at = 0;
    while (at < count && names[at] != name) at++;
    return at;
}

// Of what the blocks of a vector have found, the best: a thread has what is left of one slice, the best of it first.
__device__ void put_together(const MatchParams &p, uint32_t vector, uint32_t *names) {
    const uint64_t *mine = p.keys + (static_cast<uint64_t>(vector) * gridDim.x + threadIdx.x) * p.most;
    NamedLikeness *best = p.best + static_cast<uint64_t>(vector) * p.most;
    uint32_t at = 0, name = NONE;
    uint64_t head = threadIdx.x < gridDim.x ? __ldcg(mine) : 0;
    if (head != 0) name = __ldg(p.owners + row_of(head));
    for (uint32_t found = 0; found < p.most; found++) {
        const uint64_t greatest = greatest_of<NAME_THREADS>(head);
        const uint32_t next = greatest != 0 ? __ldg(p.owners + row_of(greatest)) : NONE;
        if (threadIdx.x == 0) {
            best[found] = {next, greatest != 0 ? likeness_of(greatest) : 0.0f};
            names[found] = next;
        }
        if (greatest == 0) return;
        __syncthreads();
        if (name != next) continue;
        // A slice has each name once, but others may be found already.
        do {
            at++;
            head = at < p.most ? __ldcg(mine + at) : 0;
            name = head != 0 ? __ldg(p.owners + row_of(head)) : NONE;
        } while (head != 0 && position(names, found + 1, name) <= found);
    }
}

extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) match_products_4(const __grid_constant__ MatchParams p) { match_products<4>(p); }
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) match_products_8(const __grid_constant__ MatchParams p) { match_products<8>(p); }
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) match_products_20(const __grid_constant__ MatchParams p) { match_products<20>(p); }

extern "C" __global__ void __launch_bounds__(NAME_THREADS) match_names(const __grid_constant__ MatchParams p) {
    __shared__ uint32_t names[MOST];
    __shared__ float least[MOST];
    __shared__ bool is_last;
    const uint32_t vector = blockIdx.y, lane = threadIdx.x % 32, first = blockIdx.x * SLICE + threadIdx.x;
    float *products = p.products + static_cast<uint64_t>(vector) * p.tiles * TILE;
    float likeness[PER_THREAD];
    uint32_t owners[PER_THREAD], there = 0;
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; i++) {
        const uint32_t row = first + i * NAME_THREADS;
        const bool is_there = row < p.rows;
        there |= static_cast<uint32_t>(is_there) << i;
        likeness[i] = is_there ? products[row] : 0.0f;
        owners[i] = is_there ? __ldg(p.owners + row) : NONE;
    }

    // The best names of the slice by rough products, and from which one on a vector of theirs may be the best exactly.
    uint32_t found = 0, left = there;
    for (; found < p.most; found++) {
        const uint64_t best = greatest_of<NAME_THREADS>(best_of(likeness, left, first));
        if (best == 0) break;
        const uint32_t name = __ldg(p.owners + row_of(best));
        if (threadIdx.x == 0) {
            names[found] = name;
            least[found] = likeness_of(best) - p.margin;
        }
        left = without(name, owners, left);
    }
    __syncthreads();
    // Where there are no more names than those, no other one can be among the best.
    const bool are_all = found < p.most;
    uint32_t wanted = 0;
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; i++) {
        if ((there >> i & 1) == 0 || (!are_all && likeness[i] < least[found - 1])) continue;
        const uint32_t at = position(names, found, owners[i]);
        if (at == found || likeness[i] >= least[at]) wanted |= 1u << i;
    }

#pragma unroll 1
    for (uint32_t i = 0; i < PER_THREAD; i++) {
        for (uint32_t lanes = __ballot_sync(FULL_WARP_MASK, wanted >> i & 1); lanes != 0; lanes &= lanes - 1) {
            const uint32_t of = __ffs(lanes) - 1, row = first - lane + of + i * NAME_THREADS;
            const float exact = exact_product(p, vector, row, lane);
            if (lane == of) products[row] = exact;
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; i++)
        if ((wanted >> i & 1) != 0) likeness[i] = products[first + i * NAME_THREADS]; // as this thread has written it

    uint64_t *keys = p.keys + (static_cast<uint64_t>(vector) * gridDim.x + blockIdx.x) * p.most;
    left = wanted;
    for (uint32_t i = 0; i < p.most; i++) {
        const uint64_t best = greatest_of<NAME_THREADS>(best_of(likeness, left, first));
        if (threadIdx.x == 0) keys[i] = best;
        if (best == 0) break;
        left = without(__ldg(p.owners + row_of(best)), owners, left);
    }
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(p.done + vector, 1) == gridDim.x - 1;
        __threadfence();
        if (is_last) p.done[vector] = 0;
    }
    __syncthreads();
    if (is_last) put_together(p, vector, names);
}
