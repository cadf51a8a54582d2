// rank_*: candidates in no order -> in the order of the result. suppress: what repeats a better box is dropped.
//   in   from     *count candidates
//   out  sorted   the same by key (rank_candidates), for suppress
//        results  in mapped host memory: how many, then each Detection (28 bytes)
//   grid rank_*   any; a warp ranks PER_WARP candidates at a time by counting the smaller keys, which is exact and needs no
//                 room, and goes on until all are done
//        suppress any, NMS_THREADS in a block; the blocks share the tiles of the bit matrix, the last one done walks it
//   math f32 without fused multiply-add, as BBox::iou; a pair gives the same in both orders
//   twin vision/nms.rs; Rust face cuda::kernels::boxes; params mirrored by NmsParams (112 bytes)
//
// Greedy suppression asks of each box in turn whether a better one that was kept repeats it. The bit matrix holds the answer
// for every pair of the first WINDOW boxes, [box][better box]; so the rows of a chunk of 64 boxes can be fetched before it
// is known which boxes are kept, and only an AND with the kept bits waits for that. Boxes behind the window, if the limit
// lets the walk come so far, are compared with all kept ones directly.
#include "boxes.cuh"

namespace {

constexpr u32 NMS_THREADS = 512;
constexpr u32 WARPS = NMS_THREADS / 32;
constexpr u32 EVERYONE = 0xffffffff;
constexpr u32 PER_WARP = 4;
constexpr u32 CHUNK = 64;              // boxes that are settled together: the bits of a word
constexpr u32 WORDS = 64;              // of a row of the matrix
constexpr u32 WINDOW = WORDS * CHUNK;  // boxes in the matrix
constexpr u32 LANES = NMS_THREADS / CHUNK;  // threads for each box of a chunk
constexpr u32 PER_LANE = WORDS / LANES;
constexpr u32 ROWS_PER_WARP = CHUNK / WARPS;

struct Detection {
    float x1, y1, x2, y2, score;
    u32 cls, anchor;
};

struct Results {
    u32 count;
    u32 unused[3];
    Detection detections[1];  // [limit]
};

struct NmsParams {
    Candidates from;
    Candidates sorted;
    u32* count;       // of candidates
    u32* next_count;  // of the next frame, to be cleared
    u32* blocks_done;  // 0 before and after
    u32* kept;         // [capacity] places of kept boxes among the sorted
    u64* matrix;       // [min(capacity, WINDOW)][WORDS]
    Results* results;
    u32 capacity;
    u32 limit;
    u32 agnostic;
    float threshold;
};

static_assert(sizeof(NmsParams) == 112 && sizeof(Detection) == 28, "mirrored in boxes.rs");

__device__ __forceinline__ u32 candidates(const NmsParams& p) {
    return min(*p.count, p.capacity);
}

// Ranks all candidates: take(i, rank), in each of the warp's lanes, for candidate i.
template <typename Take>
__device__ __forceinline__ void rank(const NmsParams& p, Take take) {
    const u32 n = candidates(p), lane = threadIdx.x % 32;
    const u32 warp = (blockIdx.x * NMS_THREADS + threadIdx.x) / 32, warps = gridDim.x * WARPS;
    for (u32 first = warp * PER_WARP; first < n; first += warps * PER_WARP) {
        u64 mine[PER_WARP];
        u32 smaller[PER_WARP] = {};
#pragma unroll
        for (u32 i = 0; i < PER_WARP; i++) mine[i] = p.from.keys[min(first + i, n - 1)];
#pragma unroll 4
        for (u32 other = lane; other < n; other += 32) {
            const u64 key = p.from.keys[other];
#pragma unroll
            for (u32 i = 0; i < PER_WARP; i++) smaller[i] += key < mine[i];
        }
#pragma unroll
        for (u32 i = 0; i < PER_WARP; i++) {
            for (u32 offset = 16; offset > 0; offset /= 2) smaller[i] += __shfl_xor_sync(EVERYONE, smaller[i], offset);
            if (first + i < n) take(first + i, smaller[i]);
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) *p.next_count = 0;
}


__device__ __forceinline__ float area(float4 box) {
    return (box.z - box.x) * (box.w - box.y);
}

// Whether their IoU is above the threshold.
__device__ __forceinline__ bool repeats(const NmsParams& p, float4 a, u32 a_class, float4 b, u32 b_class) {
    if (!p.agnostic && a_class != b_class) return false;
    const float width = fminf(a.z, b.z) - fmaxf(a.x, b.x), height = fminf(a.w, b.w) - fmaxf(a.y, b.y);
    float iou = 0;
    if (width > 0 && height > 0) {
        const float overlap = width * height;
        iou = overlap / (area(a) + area(b) - overlap);
    }
    return iou > p.threshold;
}

// A warp's word of the matrix: which boxes of a chunk are better than box `row` and repeated by it. Each lane holds two
// boxes of the chunk.
struct Column {
    u32 first;
    float4 boxes[2];
    u32 classes[2];

    __device__ __forceinline__ Column(const NmsParams& p, u32 n, u32 chunk) : first(chunk * CHUNK + threadIdx.x % 32) {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 at = min(first + 32 * i, n - 1);
            boxes[i] = p.sorted.boxes[at];
            classes[i] = p.sorted.classes[at];
        }
    }

    __device__ __forceinline__ u64 word(const NmsParams& p, u32 row) const {
        const float4 box = p.sorted.boxes[row];
        const u32 cls = p.sorted.classes[row];
        const u32 low = __ballot_sync(EVERYONE, first < row && repeats(p, box, cls, boxes[0], classes[0]));
        const u32 high = __ballot_sync(EVERYONE, first + 32 < row && repeats(p, box, cls, boxes[1], classes[1]));
        return static_cast<u64>(high) << 32 | low;
    }
};

// The lower triangle of the matrix, in tiles of a chunk by a chunk.
__device__ void fill_matrix(const NmsParams& p, u32 n) {
    const u32 chunks = (min(n, WINDOW) + CHUNK - 1) / CHUNK, tiles = chunks * (chunks + 1) / 2;
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        u32 down = static_cast<u32>((sqrtf(8.0f * tile + 1.0f) - 1.0f) * 0.5f);
        while (down * (down + 1) / 2 > tile) down--;
        while ((down + 1) * (down + 2) / 2 <= tile) down++;
        const u32 across = tile - down * (down + 1) / 2;
        const Column column(p, n, across);
#pragma unroll
        for (u32 i = 0; i < ROWS_PER_WARP; i++) {
            const u32 row = down * CHUNK + threadIdx.x / 32 * ROWS_PER_WARP + i;
            if (row >= n) break;
            const u64 word = column.word(p, row);
            if (threadIdx.x % 32 == 0) p.matrix[row * WORDS + across] = word;
        }
    }
}

// Where the one block that walks the boxes notes what it knows.
struct Walk {
    u64 kept[WORDS];                 // bits of the kept boxes in the window
    u64 diagonal[CHUNK];             // the chunk's own word of each of its boxes
    u32 dead[WARPS];                 // bits of the chunk's boxes that an earlier chunk's repeat, ROWS_PER_WARP in each
    u32 count;                       // of kept boxes
};

// Which boxes of a chunk are kept: those alive that no kept one of the chunk repeats. By the first warp, each lane for
// boxes lane and lane + 32. In a round every box is settled whose better ones are, so there are as many rounds as boxes in
// the longest chain of repetition, usually one or two.
__device__ __forceinline__ u64 settle(u64 low_diagonal, u64 high_diagonal, bool low_alive, bool high_alive) {
    u64 open = static_cast<u64>(__ballot_sync(EVERYONE, high_alive)) << 32 | __ballot_sync(EVERYONE, low_alive);
    u64 kept = 0;
    while (open) {
        const bool low_kept = low_alive && !(low_diagonal & (kept | open));
        const bool high_kept = high_alive && !(high_diagonal & (kept | open));
        low_alive = low_alive && !low_kept && !(low_diagonal & kept);
        high_alive = high_alive && !high_kept && !(high_diagonal & kept);
        kept |= static_cast<u64>(__ballot_sync(EVERYONE, high_kept)) << 32 | __ballot_sync(EVERYONE, low_kept);
        open = static_cast<u64>(__ballot_sync(EVERYONE, high_alive)) << 32 | __ballot_sync(EVERYONE, low_alive);
    }
    return kept;
}

// The first warp settles a chunk and notes what is kept, up to the limit.
__device__ __forceinline__ void finish_chunk(const NmsParams& p, Walk& walk, u32 n, u32 chunk, u64 low, u64 high) {
    const u32 lane = threadIdx.x, first = chunk * CHUNK + lane;
    const auto alive = [&](u32 i) {
        return chunk * CHUNK + i < n && !(walk.dead[i / ROWS_PER_WARP] >> (i % ROWS_PER_WARP) & 1);
    };
    const u64 kept = settle(low, high, alive(lane), alive(lane + 32));
    const u32 count = walk.count;
    const u32 low_place = count + __popcll(kept & ((1ull << lane) - 1));
    const u32 high_place = count + __popcll(kept & ((1ull << (lane + 32)) - 1));
    if (kept >> lane & 1 && low_place < p.limit) p.kept[low_place] = first;
    if (kept >> (lane + 32) & 1 && high_place < p.limit) p.kept[high_place] = first + 32;
    __syncwarp();
    if (lane == 0) {
        if (chunk < WORDS) walk.kept[chunk] = kept;
        walk.count = min(count + __popcll(kept), p.limit);
    }
}

// The walk through the sorted boxes, chunk by chunk, by one block.
__device__ void walk_matrix(const NmsParams& p, u32 n, Walk& walk) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, mine = threadIdx.x / LANES, part = threadIdx.x % LANES;
    const u32 chunks = (n + CHUNK - 1) / CHUNK;
    // Bits of a warp's ballot -> one for each of its boxes.
    const auto note_dead = [&](bool dead) {
        const u32 ballot = __ballot_sync(EVERYONE, dead);
        if (lane == 0) {
            u32 bits = 0;
#pragma unroll
            for (u32 i = 0; i < ROWS_PER_WARP; i++) bits |= static_cast<u32>((ballot >> (i * LANES) & ((1u << LANES) - 1)) != 0) << i;
            walk.dead[warp] = bits;
        }
    };

    // Blocks that ran on other multiprocessors wrote the matrix: it is read past the first cache.
    u64 ahead[PER_LANE], low_ahead = 0, high_ahead = 0;
    const auto fetch = [&](u32 chunk) {
        const u32 row = chunk * CHUNK + mine;
#pragma unroll
        for (u32 i = 0; i < PER_LANE; i++) {
            const u32 word = part + i * LANES;
            ahead[i] = row < n && word < chunk ? __ldcg(&p.matrix[row * WORDS + word]) : 0;
        }
        if (warp == 0) {
            const u32 low = chunk * CHUNK + lane, high = low + 32;
            low_ahead = low < n ? __ldcg(&p.matrix[low * WORDS + chunk]) : 0;
            high_ahead = high < n ? __ldcg(&p.matrix[high * WORDS + chunk]) : 0;
        }
    };
    const u32 within = min(chunks, WORDS);
    fetch(0);
    for (u32 chunk = 0; chunk < within && walk.count < p.limit; chunk++) {
        u64 words[PER_LANE];
#pragma unroll
        for (u32 i = 0; i < PER_LANE; i++) words[i] = ahead[i];
        const u64 low = low_ahead, high = high_ahead;
        if (chunk + 1 < within) fetch(chunk + 1);
        u64 hits = 0;
#pragma unroll
        for (u32 i = 0; i < PER_LANE; i++) {
            if (part + i * LANES < chunk) hits |= words[i] & walk.kept[part + i * LANES];
        }
        note_dead(hits != 0);
        __syncthreads();
        if (warp == 0) finish_chunk(p, walk, n, chunk, low, high);
        __syncthreads();
    }

    for (u32 chunk = within; chunk < chunks && walk.count < p.limit; chunk++) {
        const u32 row = chunk * CHUNK + mine, count = walk.count;
        bool dead = false;
        if (row < n) {
            const float4 box = p.sorted.boxes[row];
            const u32 cls = p.sorted.classes[row];
            for (u32 i = part; i < count && !dead; i += LANES) {
                const u32 better = p.kept[i];
                dead = repeats(p, box, cls, p.sorted.boxes[better], p.sorted.classes[better]);
            }
        }
        note_dead(dead);
        const Column column(p, n, chunk);
        for (u32 i = warp * ROWS_PER_WARP; i < (warp + 1) * ROWS_PER_WARP; i++) {
            const u64 word = chunk * CHUNK + i < n ? column.word(p, chunk * CHUNK + i) : 0;
            if (lane == 0) walk.diagonal[i] = word;
        }
        __syncthreads();
        if (warp == 0) finish_chunk(p, walk, n, chunk, walk.diagonal[lane], walk.diagonal[lane + 32]);
        __syncthreads();
    }
}

// A word of what the host reads.
__device__ __forceinline__ u32 word_of(const NmsParams& p, u32 place, u32 field) {
    switch (field) {
        case 4: return __float_as_uint(score_of(p.sorted.keys[place]));
        case 5: return p.sorted.classes[place];
        case 6: return anchor_of(p.sorted.keys[place]);
        default: return reinterpret_cast<const u32*>(p.sorted.boxes)[place * 4 + field];
    }
}

}  // namespace

// Candidates -> sorted.
extern "C" __global__ __launch_bounds__(NMS_THREADS) void rank_candidates(NmsParams p) {
    rank(p, [&](u32 i, u32 place) {
        if (threadIdx.x % 32 == 0) {
            p.sorted.keys[place] = p.from.keys[i];
            p.sorted.boxes[place] = p.from.boxes[i];
            p.sorted.classes[place] = p.from.classes[i];
        }
    });
}

// Candidates -> results, for heads whose boxes do not repeat.
extern "C" __global__ __launch_bounds__(NMS_THREADS) void rank_detections(NmsParams p) {
    rank(p, [&](u32 i, u32 place) {
        if (threadIdx.x % 32 == 0 && place < p.limit) {
            const u64 key = p.from.keys[i];
            const float4 box = p.from.boxes[i];
            p.results->detections[place] = {box.x, box.y, box.z, box.w, score_of(key), p.from.classes[i], anchor_of(key)};
        }
    });
    if (blockIdx.x == 0 && threadIdx.x == 0) p.results->count = min(candidates(p), p.limit);
}

// Sorted -> results.
extern "C" __global__ __launch_bounds__(NMS_THREADS) void suppress(NmsParams p) {
    __shared__ Walk walk;
    __shared__ bool is_last;
    const u32 n = candidates(p);
    if (n) fill_matrix(p, n);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(p.blocks_done, 1) == gridDim.x - 1;
        walk.count = 0;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (n) walk_matrix(p, n, walk);
    u32* words = reinterpret_cast<u32*>(p.results->detections);
    for (u32 i = threadIdx.x; i < walk.count * 7; i += NMS_THREADS) words[i] = word_of(p, p.kept[i / 7], i % 7);
    if (threadIdx.x == 0) {
        p.results->count = walk.count;
        *p.blocks_done = 0;
    }
}
