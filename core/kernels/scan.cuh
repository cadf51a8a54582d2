// SPDX-License-Identifier: MPL-2.0
// Suppression with the bit matrix, and of few candidates, by one block: see nms.cu.
#pragma once

#include "suppress.cuh"

inline constexpr u32 ROWS = 4;               // of the matrix; a warp fills their words of the same boxes at a time
inline constexpr u32 WORDS = 128;            // of the longest row of the matrix
inline constexpr u32 WINDOW = WORDS * 64;    // boxes that have a column of the matrix
inline constexpr u32 STEP_WORDS = STEP / 64;
inline constexpr u32 STEP_LANES = NMS_THREADS / STEP;    // threads for each box of a step
inline constexpr u32 FEW = 64;                           // boxes that are listed, a bit of a word for each
inline constexpr u32 FEW_LANES = NMS_THREADS / FEW;      // threads for each of them
inline constexpr u32 SMALL = 128;                        // candidates that a block ranks and suppresses in its memory
inline constexpr u32 SMALL_WORDS = SMALL / 64;
inline constexpr u32 SMALL_LANES = NMS_THREADS / SMALL;  // threads for each of them
inline constexpr u32 UNROLL = 8;                         // kept boxes that a thread compares at a time

// 64 boxes, two in each lane of a warp.
struct Column {
    float4 boxes[2];
    u32 classes[2];

    // Box i is number box_at(i) of all.
    template <typename BoxAt>
    __device__ __forceinline__ Column(const float4* all, const u32* classes_of_all, BoxAt box_at) {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 at = box_at(threadIdx.x % 32 + 32 * i);
            boxes[i] = all[at];
            classes[i] = classes_of_all[at];
        }
    }

    // A bit for each that repeats the box, or is repeated by it. Bits of missing boxes are undefined, and those of the second half if
    // it is not wanted.
    __device__ __forceinline__ u64 word(const NmsParams& p, float4 box, u32 cls, bool wants_all = true) const {
        const u32 low = __ballot_sync(FULL_WARP_MASK, repeats(p, box, cls, boxes[0], classes[0]));
        if (!wants_all) return low;
        const u32 high = __ballot_sync(FULL_WARP_MASK, repeats(p, box, cls, boxes[1], classes[1]));
        return static_cast<u64>(high) << 32 | low;
    }
};

// Rows of the matrix lie one after the other. Each begins with the word of its own step: earlier words are in the rows of
// earlier steps. Returns where word 0 of a row would be.
__device__ __forceinline__ u32 matrix_row(u32 box, u32 words) {
    const u32 step = box / STEP, skipped = step * STEP_WORDS;
    return STEP * (step * words - skipped * (step - 1) / 2) + box % STEP * (words - skipped) - skipped;
}

__device__ __forceinline__ u32 words_for(u32 boxes) {
    return (boxes + 63) / 64;
}

// All words, by all blocks: a job is a word of ROWS rows.
__device__ void fill_matrix(const NmsParams& p, u32 n) {
    const u32 within = min(n, WINDOW), rows = min(within, p.matrix_rows), words = words_for(within), warps = gridDim.x * WARPS;
    u32 job = threadIdx.x / 32 * gridDim.x + blockIdx.x;
    for (u32 step = 0; step * STEP < rows; step++) {
        const u32 across = words - step * STEP_WORDS, jobs = STEP / ROWS * across;
        for (; job < jobs; job += warps) {
            const u32 first = step * STEP + job / across * ROWS, word = step * STEP_WORDS + job % across;
            const Column column(p.sorted.boxes, p.sorted.classes, [&](u32 i) { return min(word * 64 + i, n - 1); });
            float4 boxes[ROWS];
            u32 classes[ROWS];
#pragma unroll
            for (u32 i = 0; i < ROWS; i++) {
                const u32 row = min(first + i, rows - 1);
                boxes[i] = p.sorted.boxes[row];
                classes[i] = p.sorted.classes[row];
            }
#pragma unroll
            for (u32 i = 0; i < ROWS; i++) {
                const u64 bits = column.word(p, boxes[i], classes[i]);
                if (threadIdx.x % 32 == 0 && first + i < rows) p.matrix[matrix_row(first + i, words) + word] = bits;
            }
        }
        job -= jobs;
    }
}

// Shared memory of the block that decides.
struct SuppressShared {
    u64 dead[WORDS];  // boxes in the window that are decided, or that a kept one repeats
    // Boxes of the step: undecided, and kept. Rounds read one side and write the other.
    u64 open[2][STEP_WORDS];
    u64 kept[2][STEP_WORDS];
    // The first undecided boxes, which of them repeat each other, and how many the words of each warp have.
    u32 listed[FEW];
    u64 repeating[FEW];
    u32 undecided_of[WARPS];
    // The boxes that were kept last, and where their rows of the matrix are.
    u32 rows[STEP];
    Candidate detections[STEP];
    // Boxes kept so far, a part at a time; which boxes of the step, or of those that are listed, one of them repeats; and which
    // boxes of the step repeat each other. Few candidates: all of them, and which repeat each other.
    float4 boxes[STEP];
    u32 classes[STEP];
    u32 repeated[STEP];
    u64 better[STEP][STEP_WORDS];
    // Of few candidates, as they come and in their order.
    u64 unsorted[SMALL];
    u64 keys[SMALL];
    Lost lost;
};

// Writes a warp's part of a word.
__device__ __forceinline__ void store_bits(u64* words, u32 warp, bool bit) {
    const u32 bits = __ballot_sync(FULL_WARP_MASK, bit);
    if (threadIdx.x % 32 == 0) reinterpret_cast<u32*>(words)[warp] = bits;
}

// Decides the boxes of a step: a box is kept if it is alive and does not repeat a better one that is kept. A round decides all
// boxes whose better ones are decided. So there are as many rounds as boxes in the longest chain of repetition; usually a few.
// Thread i holds whether box i is alive, and its better ones. Returns the side of shared.kept with the kept boxes.
__device__ __forceinline__ u32 resolve(SuppressShared& shared, bool alive, const u64 (&better)[STEP_WORDS]) {
    const u32 warp = threadIdx.x / 32;
    const bool has_box = threadIdx.x < STEP;
    bool kept = false;
    for (u32 side = 0;; side ^= 1) {
        if (has_box) {
            store_bits(shared.open[side], warp, alive);
            store_bits(shared.kept[side], warp, kept);
        }
        __syncthreads();
        u64 any_open = 0, better_open = 0, better_kept = 0;
#pragma unroll
        for (u32 i = 0; i < STEP_WORDS; i++) {
            const u64 open = shared.open[side][i];
            any_open |= open;
            better_open |= better[i] & open;
            better_kept |= better[i] & shared.kept[side][i];
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

// Whether one of the kept boxes from `from` on to before `count` repeats a box, which LANES threads in a row share.
template <u32 LANES>
__device__ __forceinline__ bool repeats_kept(const NmsParams& p, SuppressShared& shared, u32 at, u32 from, u32 count) {
    const float4 box = p.sorted.boxes[at];
    const u32 cls = p.sorted.classes[at], lane = threadIdx.x % 32;
    bool repeated = false;
    for (u32 start = from; start < count; start += STEP) {
        __syncthreads();
        if (threadIdx.x < STEP && start + threadIdx.x < count) {
            const u32 other = p.kept[start + threadIdx.x];
            shared.boxes[threadIdx.x] = p.sorted.boxes[other];
            shared.classes[threadIdx.x] = p.sorted.classes[other];
        }
        __syncthreads();
        for (u32 i = threadIdx.x % LANES; i < min(STEP, count - start) && !repeated; i += LANES) {
            repeated = repeats(p, box, cls, shared.boxes[i], shared.classes[i]);
        }
    }
    const u32 bits = __ballot_sync(FULL_WARP_MASK, repeated);
    return bits >> (lane / LANES * LANES) & ((1u << LANES) - 1);
}

// After the window: compares the boxes of the step that starts with `first` with all `count` kept ones, and with each
// other.
__device__ void compare_step(const NmsParams& p, u32 n, SuppressShared& shared, u32 first, u32 count) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, mine = threadIdx.x / STEP_LANES;
    const bool repeated = repeats_kept<STEP_LANES>(p, shared, min(first + mine, n - 1), 0, count);
    if (threadIdx.x % STEP_LANES == 0) shared.repeated[mine] = repeated;
    __syncthreads();
    // Boxes that are dropped need none; where objects are crowded that is nearly all.
    for (u32 word = 0; word < STEP_WORDS; word++) {
        const Column column(p.sorted.boxes, p.sorted.classes, [&](u32 i) { return min(first + word * 64 + i, n - 1); });
        for (u32 row = warp; row < STEP; row += WARPS) {
            if (shared.repeated[row]) continue;
            const u32 other = min(first + row, n - 1);
            const u64 bits = column.word(p, p.sorted.boxes[other], p.sorted.classes[other]);
            if (lane == 0) shared.better[row][word] = bits;
        }
    }
    __syncthreads();
}

// Lists the first undecided boxes of the window and returns how many. Each warp looks at some words in a row.
__device__ __forceinline__ u32 list_undecided(SuppressShared& shared, u32 words) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 each = (words + WARPS - 1) / WARPS, word = warp * each + lane;
    const u64 undecided = lane < each && word < words ? ~shared.dead[word] : 0;
    u32 until = __popcll(undecided);  // with this word, of the warp's boxes
    for (u32 offset = 1; offset < 32; offset *= 2) {
        const u32 other = __shfl_up_sync(FULL_WARP_MASK, until, offset);
        if (lane >= offset) until += other;
    }
    if (lane == 31) shared.undecided_of[warp] = until;
    __syncthreads();
    u32 place = until - __popcll(undecided), total = 0;
#pragma unroll
    for (u32 i = 0; i < WARPS; i++) {
        if (i < warp) place += shared.undecided_of[i];
        total += shared.undecided_of[i];
    }
    // A word at a time, of which each lane takes two bits.
    u32 lanes = __ballot_sync(FULL_WARP_MASK, undecided && place < FEW);
    for (; lanes; lanes &= lanes - 1) {
        const u32 from = __ffs(lanes) - 1;
        const u64 bits = __shfl_sync(FULL_WARP_MASK, undecided, from);
        const u32 start = __shfl_sync(FULL_WARP_MASK, place, from);
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 bit = lane + 32 * i, at = start + __popcll(bits & before(0, bit));
            if (bits >> bit & 1 && at < FEW) shared.listed[at] = (warp * each + from) * 64 + bit;
        }
    }
    __syncthreads();
    return min(total, FEW);
}

// Decides the first `listed` of the list, one kept box after the other: that takes no longer than the rounds of resolve where few
// are kept. They are not marked yet where they repeat boxes kept from `unmarked` on to before `count`. All threads get the bits of
// the kept ones.
__device__ __forceinline__ u64 resolve_listed(const NmsParams& p, SuppressShared& shared, u32 listed, u32 unmarked, u32 count) {
    static_assert(FEW == WARPS * ROWS, "each warp compares ROWS boxes with all");
    const u32 lane = threadIdx.x % 32, row = threadIdx.x / 32 * ROWS;
    const auto box_at = [&](u32 i) { return shared.listed[min(i, listed - 1)]; };
    if (unmarked < count) {
        const bool repeated = repeats_kept<FEW_LANES>(p, shared, box_at(threadIdx.x / FEW_LANES), unmarked, count);
        if (threadIdx.x % FEW_LANES == 0) shared.repeated[threadIdx.x / FEW_LANES] = repeated;
    }
    const Column column(p.sorted.boxes, p.sorted.classes, box_at);
    float4 boxes[ROWS];
    u32 classes[ROWS];
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
        boxes[i] = p.sorted.boxes[box_at(row + i)];
        classes[i] = p.sorted.classes[box_at(row + i)];
    }
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
        const u64 bits = column.word(p, boxes[i], classes[i]);
        if (lane == 0) shared.repeating[row + i] = bits;
    }
    __syncthreads();
    u64 open = before(0, listed), kept = 0;
    if (unmarked < count) {
        const u32 low = __ballot_sync(FULL_WARP_MASK, shared.repeated[lane]);
        const u32 high = __ballot_sync(FULL_WARP_MASK, shared.repeated[lane + 32]);
        open &= ~(static_cast<u64>(high) << 32 | low);
    }
    while (open) {
        const u32 best = __ffsll(open) - 1;
        kept |= 1ull << best;
        open &= ~(shared.repeating[best] | 1ull << best);
    }
    return kept;
}

// The candidate of a thread, where there are at most SMALL.
struct Own {
    u64 key;
    float4 box;
    u32 cls;
};

// It may be beyond all candidates, whose number need not be known: so these loads do not wait for it.
__device__ __forceinline__ Own own_candidate(const NmsParams& p) {
    const u32 at = min(threadIdx.x / SMALL_LANES, p.capacity - 1);
    return {p.from.keys[at], p.from.boxes[at], p.from.classes[at]};
}

// Ranks all candidates, which are few, into shared memory, and compares them.
__device__ __forceinline__ void rank_small(const NmsParams& p, SuppressShared& shared, u32 n, const Own& own) {
    const u32 mine = threadIdx.x / SMALL_LANES, part = threadIdx.x % SMALL_LANES;
    const u64 key = own.key;
    const float4 box = own.box;
    const u32 cls = own.cls;
    if (part == 0) shared.unsorted[mine] = key;
    __syncthreads();
    u32 smaller = 0;
    for (u32 i = part; i < n; i += SMALL_LANES) smaller += shared.unsorted[i] < key;
    for (u32 offset = SMALL_LANES / 2; offset > 0; offset /= 2) smaller += __shfl_xor_sync(FULL_WARP_MASK, smaller, offset);
    if (part == 0 && mine < n) {
        shared.keys[smaller] = key;
        shared.boxes[smaller] = box;
        shared.classes[smaller] = cls;
    }
    __syncthreads();
    const u32 warp = threadIdx.x / 32;
    for (u32 word = 0; word * 64 < n; word++) {
        const Column column(shared.boxes, shared.classes, [&](u32 i) { return min(word * 64 + i, n - 1); });
        // A word behind the row's own one has no better boxes, and the second half of a word none where the row is in the first one.
        for (u32 row = word * 64 + warp; row < n; row += WARPS) {
            const u64 bits = column.word(p, shared.boxes[row], shared.classes[row], row > word * 64 + 32);
            if (threadIdx.x % 32 == 0) shared.better[row][word] = bits;
        }
    }
    __syncthreads();
}

// Goes through the sorted boxes in one block and writes the results.
struct Scan {
    const NmsParams& p;
    SuppressShared& shared;
    const u32 n, within, words, rows;
    u32 count = 0;   // kept so far
    u32 marked = 0;  // of them, whose rows have marked what repeats them
    // Thread i has box i of the step that begins with box `fetched`.
    u32 fetched = 0;
    u64 better[STEP_WORDS] = {};
    u64 key = 0;
    float4 corners = {};
    u32 cls = 0;

    __device__ __forceinline__ Scan(const NmsParams& p, SuppressShared& shared, u32 n)
        : p(p), shared(shared), n(n), within(min(n, WINDOW)), words(words_for(within)), rows(min(within, p.matrix_rows)) {}

    // Blocks on other multiprocessors wrote the matrix: it is read past the first cache.
    __device__ __forceinline__ void fetch(u32 first) {
        const u32 box = first + threadIdx.x;
        fetched = first;
        if (threadIdx.x >= STEP || box >= n) return;
        key = p.sorted.keys[box];
        corners = p.sorted.boxes[box];
        cls = p.sorted.classes[box];
        if (box >= rows) return;
        const u32 row = matrix_row(box, words);
#pragma unroll
        for (u32 i = 0; i < STEP_WORDS; i++) {
            const u32 word = box / STEP * STEP_WORDS + i;
            better[i] = word * 64 <= box ? __ldcg(&p.matrix[row + word]) : 0;
        }
    }

    // Decides between the boxes of the step that was fetched. Returns how many are kept with them.
    __device__ __forceinline__ u32 decide(bool alive) {
        const u32 box = fetched + threadIdx.x;
#pragma unroll
        for (u32 i = 0; i < STEP_WORDS; i++) better[i] &= before(fetched + i * 64, box);
        const u32 side = resolve(shared, alive, better);
        u32 place = count, total = count;
        bool kept = false;
#pragma unroll
        for (u32 i = 0; i < STEP_WORDS; i++) {
            const u64 bits = shared.kept[side][i];
            total += __popcll(bits);
            place += __popcll(bits & before(fetched + i * 64, box));
            if (threadIdx.x / 64 == i) kept = bits >> (threadIdx.x % 64) & 1;
        }
        total = min(total, p.limit);
        if (kept && place < total) keep(place, box, key, corners, cls);
        return total;
    }

    __device__ __forceinline__ void keep(u32 place, u32 box, u64 key, float4 corners, u32 cls) {
        p.kept[place] = box;
        shared.rows[place - count] = matrix_row(box, words);
        shared.detections[place - count] = detection(p, key, corners, cls);
    }

    // Boxes from word `later` on that repeat one kept after the first `count` are dead: each thread reads a word of some of
    // these. The fewer words are left, the more threads share one.
    __device__ __forceinline__ void mark(u32 total, u32 later) {
        marked = total;
        const u32 added = total - count, left = later < words ? words - later : 0;
        const u32 across_log2 = left > 32 ? 32 - __clz(left - 1) : 5, parts = NMS_THREADS >> across_log2;
        const u32 word = later + threadIdx.x % (1u << across_log2);
        if (word >= words) return;
        u64 repeated = 0;
        for (u32 i = threadIdx.x >> across_log2; i < added; i += UNROLL * parts) {
            u64 of_rows[UNROLL];
#pragma unroll
            for (u32 j = 0; j < UNROLL; j++) {
                const u32 at = i + j * parts;
                of_rows[j] = at < added ? __ldcg(&p.matrix[shared.rows[at] + word]) : 0;
            }
#pragma unroll
            for (u32 j = 0; j < UNROLL; j++) repeated |= of_rows[j];
        }
        if (repeated) atomicOr(&shared.dead[word], repeated);
    }

    // To the host in whole lines, while the next boxes are decided.
    __device__ __forceinline__ void report(u32 total) {
        const uint4* made = reinterpret_cast<const uint4*>(shared.detections);
        uint4* results = reinterpret_cast<uint4*>(p.results->detections + count);
        uint4* found = reinterpret_cast<uint4*>(p.found->detections + count);
        for (u32 i = threadIdx.x; i < (total - count) * CANDIDATE_VECTORS; i += NMS_THREADS) results[i] = found[i] = made[i];
        count = total;
        __syncthreads();
    }

    // The step that begins with box `first`.
    __device__ __forceinline__ void take_step(u32 first) {
        if (fetched != first) fetch(first);
        const u32 box = first + threadIdx.x;
        const u32 total = decide(threadIdx.x < STEP && box < within && !(shared.dead[box / 64] >> (box % 64) & 1));
        fetch(first + STEP);
        __syncthreads();
        if (threadIdx.x < STEP_WORDS) shared.dead[first / 64 + threadIdx.x] = ~0ull;
        mark(total, first / 64 + STEP_WORDS);
        report(total);
    }

    __device__ __forceinline__ void take_listed(u32 listed) {
        const bool has_box = threadIdx.x < listed;
        const u32 box = shared.listed[min(threadIdx.x, listed - 1)];
        // On the way while the boxes are compared.
        const u64 key = p.sorted.keys[box];
        const float4 corners = p.sorted.boxes[box];
        const u32 cls = p.sorted.classes[box];
        const u64 kept = resolve_listed(p, shared, listed, marked, count);
        const u32 total = min(count + __popcll(kept), p.limit), place = count + __popcll(kept & before(0, threadIdx.x));
        if (has_box && kept >> threadIdx.x & 1 && place < total) keep(place, box, key, corners, cls);
        __syncthreads();
        if (has_box) atomicOr(&shared.dead[box / 64], 1ull << (box % 64));
        // Undecided boxes are behind the last one listed, and there are none unless the list is full.
        const u32 last = shared.listed[listed - 1];
        if (listed == FEW && last < rows) mark(total, last / 64);
        report(total);
    }

    // There are more than fit in a list: so the first ones are a step.
    __device__ __forceinline__ void take_window() {
        take_step(0);
        for (u32 listed = FEW; listed == FEW && count < p.limit;) {
            listed = list_undecided(shared, words);
            if (!listed) return;
            const u32 step = shared.listed[0] / STEP;
            if (listed == FEW && shared.listed[FEW - 1] / STEP == step && step * STEP < rows) {
                take_step(step * STEP);
            } else {
                take_listed(listed);
            }
        }
    }

    __device__ __forceinline__ void take_others() {
        for (u32 first = WINDOW; first < n && count < p.limit; first += STEP) {
            fetch(first);
            compare_step(p, n, shared, first, count);
            bool alive = false;
            if (threadIdx.x < STEP) {
                alive = first + threadIdx.x < n && !shared.repeated[threadIdx.x];
#pragma unroll
                for (u32 i = 0; i < STEP_WORDS; i++) better[i] = shared.better[threadIdx.x][i];
            }
            const u32 total = decide(alive);
            __syncthreads();
            report(total);
        }
    }

    // All candidates, at most SMALL.
    __device__ __forceinline__ void take_small(const Own& own) {
        rank_small(p, shared, n, own);
        if (threadIdx.x < n) {
            key = shared.keys[threadIdx.x];
            corners = shared.boxes[threadIdx.x];
            cls = shared.classes[threadIdx.x];
#pragma unroll
            for (u32 i = 0; i < SMALL_WORDS; i++) {
                if (i * 64 <= threadIdx.x) better[i] = shared.better[threadIdx.x][i];
            }
        }
        const u32 total = decide(threadIdx.x < n);
        __syncthreads();
        report(total);
    }

    // All candidates, which all blocks have ranked, with the matrix.
    __device__ __forceinline__ void take_ranked() {
        static_assert(SMALL >= FEW, "take_window begins with a step");
        fetch(0);
        for (u32 i = threadIdx.x; i < words; i += NMS_THREADS) shared.dead[i] = ~before(i * 64, within);
        __syncthreads();
        take_window();
        take_others();
    }

    __device__ __forceinline__ void run() {
        // Loaded early, and needed at the end.
        if (threadIdx.x == 0) shared.lost = lost_of(p);
        take_ranked();
        if (threadIdx.x == 0) finish(p, count, shared.lost);
    }

    // Few candidates, which are not ranked.
    __device__ __forceinline__ void run_small(const Own& own) {
        // Not into shared memory: nothing waits for it before the end.
        const Lost lost = lost_of(p);
        if (n) take_small(own);
        if (threadIdx.x == 0) finish(p, count, lost);
    }
};
