// rank_*: candidates in no order -> in the order of the result. suppress: what repeats a better box is dropped.
//   in   from     *count candidates
//   out  sorted   the same by key (rank_candidates), for suppress
//        results  in mapped host memory: how many, then each Detection (28 bytes)
//   grid rank_*   any; a warp ranks PER_WARP candidates at a time by counting the smaller keys, which is exact and needs no
//                 room, and goes on until all are done
//        suppress any; the blocks share the bit matrix, the last one done walks it
//        NMS_THREADS in a block
//   math f32 without fused multiply-add, as BBox::iou; a pair gives the same in both orders
//   twin vision/nms.rs; Rust face cuda::kernels::boxes; params mirrored by NmsParams (112 bytes)
//
// Greedy suppression asks of each box in turn whether a better one that was kept repeats it. The walk takes STEP boxes at a
// time: it settles them among each other, then marks all that the kept ones of them repeat further down. For the first
// WINDOW boxes the bit matrix says who repeats whom. Boxes behind it, if the limit lets the walk come so far, are compared
// with all kept ones directly.
#include "boxes.cuh"

inline constexpr u32 NMS_THREADS = 512;
inline constexpr u32 WARPS = NMS_THREADS / 32;
inline constexpr u32 EVERYONE = 0xffffffff;
inline constexpr u32 PER_WARP = 2;           // candidates that a warp ranks at a time
inline constexpr u32 ROWS = 8;               // of the matrix, whose words of the same boxes a warp fills at a time
inline constexpr u32 WORDS = 64;             // of a row of the matrix
inline constexpr u32 WINDOW = WORDS * 64;    // boxes in the matrix
inline constexpr u32 STEP = 256;             // boxes of a step
inline constexpr u32 STEP_WORDS = STEP / 64;
inline constexpr u32 STEP_LANES = NMS_THREADS / STEP;  // threads for each box of a step

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
    u64* matrix;       // [min(capacity, WINDOW)][WORDS] which boxes one repeats, in its own step and further down
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
    // Few candidates are shared by as many multiprocessors as there are.
    const u32 warp = threadIdx.x / 32 * gridDim.x + blockIdx.x, warps = gridDim.x * WARPS;
    for (u32 first = warp * PER_WARP; first < n; first += warps * PER_WARP) {
        u64 mine[PER_WARP];
        u32 smaller[PER_WARP] = {};
#pragma unroll
        for (u32 i = 0; i < PER_WARP; i++) mine[i] = p.from.keys[min(first + i, n - 1)];
#pragma unroll 8
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

// 64 boxes in a row, two in each lane of a warp.
struct Column {
    float4 boxes[2];
    u32 classes[2];

    __device__ __forceinline__ Column(const NmsParams& p, u32 n, u32 first) {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 at = min(first + threadIdx.x % 32 + 32 * i, n - 1);
            boxes[i] = p.sorted.boxes[at];
            classes[i] = p.sorted.classes[at];
        }
    }

    // A bit for each that repeats the box, or is repeated by it. Bits of boxes that are not there mean nothing.
    __device__ __forceinline__ u64 word(const NmsParams& p, float4 box, u32 cls) const {
        const u32 low = __ballot_sync(EVERYONE, repeats(p, box, cls, boxes[0], classes[0]));
        const u32 high = __ballot_sync(EVERYONE, repeats(p, box, cls, boxes[1], classes[1]));
        return static_cast<u64>(high) << 32 | low;
    }
};

// All words from the diagonal on, by all blocks.
__device__ void fill_matrix(const NmsParams& p, u32 n) {
    const u32 within = min(n, WINDOW), across = (within + 63) / 64, down = (within + ROWS - 1) / ROWS;
    const u32 warps = gridDim.x * WARPS;
    for (u32 job = threadIdx.x / 32 * gridDim.x + blockIdx.x; job < down * across; job += warps) {
        const u32 first = job / across * ROWS, word = job % across;
        if (word < first / STEP * STEP_WORDS) continue;
        const Column column(p, n, word * 64);
#pragma unroll
        for (u32 i = 0; i < ROWS; i++) {
            const u32 row = min(first + i, within - 1);
            const u64 bits = column.word(p, p.sorted.boxes[row], p.sorted.classes[row]);
            if (threadIdx.x % 32 == 0) p.matrix[row * WORDS + word] = bits;
        }
    }
}

// What the threads of the walking block tell each other.
struct Walk {
    u64 dead[WORDS];  // boxes in the window that a kept one of an earlier step repeats
    // Boxes of the step: not settled yet, and kept. Rounds read one side and write the other.
    u64 open[2][STEP_WORDS];
    u64 kept[2][STEP_WORDS];
    u32 places[STEP];  // kept boxes of the step
    u64 better[STEP][STEP_WORDS];  // behind the window: boxes of the step that repeat this one
};

// Part of a word that a warp of boxes has.
__device__ __forceinline__ void tell(u64* words, u32 warp, bool bit) {
    const u32 bits = __ballot_sync(EVERYONE, bit);
    if (threadIdx.x % 32 == 0) reinterpret_cast<u32*>(words)[warp] = bits;
}

// Settles the boxes of a step: kept is who is alive and not repeated by a better one that is kept. In a round all are
// settled whose better ones are, so there are as many rounds as boxes in the longest chain of repetition; a few, usually.
// Thread i knows of box i whether it is alive, and its better ones. Returns the side of walk.kept that says who is kept.
__device__ __forceinline__ u32 settle(Walk& walk, bool alive, const u64 (&better)[STEP_WORDS]) {
    const u32 warp = threadIdx.x / 32;
    const bool has_box = threadIdx.x < STEP;
    bool kept = false;
    for (u32 side = 0;; side ^= 1) {
        if (has_box) {
            tell(walk.open[side], warp, alive);
            tell(walk.kept[side], warp, kept);
        }
        __syncthreads();
        u64 any_open = 0, better_open = 0, better_kept = 0;
#pragma unroll
        for (u32 i = 0; i < STEP_WORDS; i++) {
            const u64 open = walk.open[side][i];
            any_open |= open;
            better_open |= better[i] & open;
            better_kept |= better[i] & walk.kept[side][i];
        }
        if (!any_open) return side;
        if (alive && !better_kept && !better_open) kept = true;
        if (kept || better_kept) alive = false;
    }
}

// Of a word that starts with box `first`, the bits of boxes better than `box`.
__device__ __forceinline__ u64 before(u32 first, u32 box) {
    if (box <= first) return 0;
    return box - first < 64 ? (1ull << (box - first)) - 1 : ~0ull;
}

// The walk through the sorted boxes by one block. Returns how many are kept.
__device__ u32 walk_boxes(const NmsParams& p, u32 n, Walk& walk) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, within = min(n, WINDOW);
    for (u32 i = threadIdx.x; i < WORDS; i += NMS_THREADS) walk.dead[i] = 0;
    u64 better[STEP_WORDS] = {};
    // Blocks on other multiprocessors wrote the matrix: it is read past the first cache.
    const auto fetch = [&](u32 box) {
        if (threadIdx.x < STEP && box < within) {
#pragma unroll
            for (u32 i = 0; i < STEP_WORDS; i++) {
                const u32 word = box / STEP * STEP_WORDS + i;
                better[i] = word * 64 <= box ? __ldcg(&p.matrix[box * WORDS + word]) : 0;
            }
        }
    };
    fetch(threadIdx.x);
    __syncthreads();
    u32 count = 0;
    for (u32 first = 0; first < n && count < p.limit; first += STEP) {
        const u32 box = first + threadIdx.x;
        bool alive = threadIdx.x < STEP && box < n;
        if (first < WINDOW) {
            alive = alive && !(walk.dead[box / 64] >> (box % 64) & 1);
        } else {
            // Every box of the step against all kept, and against the others of the step.
            const u32 mine = first + threadIdx.x / STEP_LANES;
            bool repeated = mine >= n;
            if (!repeated) {
                const float4 corners = p.sorted.boxes[mine];
                const u32 cls = p.sorted.classes[mine];
                for (u32 i = threadIdx.x % STEP_LANES; i < count && !repeated; i += STEP_LANES) {
                    const u32 other = p.kept[i];
                    repeated = repeats(p, corners, cls, p.sorted.boxes[other], p.sorted.classes[other]);
                }
            }
            const u32 bits = __ballot_sync(EVERYONE, repeated);
            if (lane % STEP_LANES == 0) walk.places[mine - first] = bits >> lane & ((1u << STEP_LANES) - 1);
            for (u32 word = 0; word < STEP_WORDS; word++) {
                const Column column(p, n, first + word * 64);
                for (u32 row = warp; row < STEP; row += WARPS) {
                    const u32 at = min(first + row, n - 1);
                    const u64 bits = column.word(p, p.sorted.boxes[at], p.sorted.classes[at]);
                    if (lane == 0) walk.better[row][word] = bits;
                }
            }
            __syncthreads();
            if (threadIdx.x < STEP) {
                alive = alive && !walk.places[threadIdx.x];
#pragma unroll
                for (u32 i = 0; i < STEP_WORDS; i++) better[i] = walk.better[threadIdx.x][i];
            }
            __syncthreads();
        }
#pragma unroll
        for (u32 i = 0; i < STEP_WORDS; i++) better[i] &= before(first + i * 64, box);
        const u32 side = settle(walk, alive, better);

        u32 place = count, total = count;
        bool kept = false;
#pragma unroll
        for (u32 i = 0; i < STEP_WORDS; i++) {
            const u64 bits = walk.kept[side][i];
            total += __popcll(bits);
            place += __popcll(bits & before(first + i * 64, box));
            if (threadIdx.x / 64 == i) kept = bits >> (threadIdx.x % 64) & 1;
        }
        total = min(total, p.limit);
        if (kept && place < total) {
            p.kept[place] = box;
            walk.places[place - count] = box;
        }
        fetch(box + STEP);
        __syncthreads();
        const u32 word = threadIdx.x % WORDS;
        if (word * 64 >= first + STEP && word * 64 < within) {
            u64 repeated = 0;
#pragma unroll 4
            for (u32 i = threadIdx.x / WORDS; i < total - count; i += NMS_THREADS / WORDS) {
                repeated |= __ldcg(&p.matrix[walk.places[i] * WORDS + word]);
            }
            if (repeated) atomicOr(&walk.dead[word], repeated);
        }
        count = total;
        __syncthreads();
    }
    return count;
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
    if (threadIdx.x == 0) is_last = atomicAdd(p.blocks_done, 1) == gridDim.x - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    const u32 count = walk_boxes(p, n, walk);
    u32* words = reinterpret_cast<u32*>(p.results->detections);
    for (u32 i = threadIdx.x; i < count * 7; i += NMS_THREADS) words[i] = word_of(p, p.kept[i / 7], i % 7);
    if (threadIdx.x == 0) {
        p.results->count = count;
        *p.blocks_done = 0;
    }
}
