// SPDX-License-Identifier: MPL-2.0
// Suppression by lists of what each candidate repeats, which need no matrix: see nms.cu.
#pragma once

#include "suppress.cuh"

inline constexpr u32 PAIR = 2;                           // candidates that a warp compares with the better ones
inline constexpr u32 PARTS = 4;                          // warps that share the better ones of a pair
inline constexpr u32 PAIRS = WARPS / PARTS;              // of a block at a time
inline constexpr u32 AHEAD = 4;                          // boxes that a thread loads at a time
inline constexpr u32 NEARBY = 63;                        // better boxes in the list of one
inline constexpr u32 MOST_COMPARED = 8192;               // the limit of `compared`, a multiple of NMS_THREADS

// The best boxes that one repeats, the best first, in a line of the cache. A list that has no room for all says so.
struct Nearby {
    uint16_t count;
    uint16_t boxes[NEARBY];
};

inline constexpr u32 HAS_MORE = 1 << 15;  // in the count
inline constexpr u32 NUMBERS = sizeof(uint4) / sizeof(uint16_t);

static_assert(sizeof(Nearby) == 128, "device.rs has room for them");

struct CompareShared {
    uint16_t boxes[WARPS][PAIR][NEARBY + 1];
    u32 counts[WARPS][PAIR];
};

// The lists of all candidates, by all blocks: a job is PAIRS pairs of neighbours in the order. PARTS warps share the better boxes of a
// pair, each some in a row, so that their lists are parts of the whole list. Pairs far behind take longest: so a job has pairs of
// all parts of the order, and all jobs take as long.
__device__ void compare(const NmsParams& p, CompareShared& shared, u32 n) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = warp % PARTS;
    const u32 jobs = (n + PAIRS * PAIR - 1) / (PAIRS * PAIR);
    Nearby* lists = reinterpret_cast<Nearby*>(p.matrix);
    const auto first_of = [&](u32 job, u32 pair) { return (pair % 2 ? (pair + 1) * jobs - 1 - job : pair * jobs + job) * PAIR; };
    for (u32 job = blockIdx.x; job < jobs; job += gridDim.x) {
        const u32 mine = first_of(job, warp / PARTS);
        float4 boxes[PAIR];
        u32 classes[PAIR], counts[PAIR] = {};
#pragma unroll
        for (u32 e = 0; e < PAIR; e++) {
            boxes[e] = p.sorted.boxes[min(mine + e, n - 1)];
            classes[e] = p.sorted.classes[min(mine + e, n - 1)];
        }
        const u32 better = mine < n ? mine + PAIR - 1 : 0, each = (better + PARTS * 32 - 1) / (PARTS * 32) * 32;
        const u32 until = min((part + 1) * each, better);
        for (u32 start = part * each; start < until; start += AHEAD * 32) {
            float4 others[AHEAD];
            u32 other_classes[AHEAD];
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                const u32 at = min(start + i * 32 + lane, n - 1);
                others[i] = p.sorted.boxes[at];
                other_classes[i] = p.sorted.classes[at];
            }
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                const u32 at = start + i * 32 + lane;
#pragma unroll
                for (u32 e = 0; e < PAIR; e++) {
                    const bool repeated = at < min(until, mine + e) && repeats(p, boxes[e], classes[e], others[i], other_classes[i]);
                    const u32 bits = __ballot_sync(FULL_WARP_MASK, repeated);
                    if (!bits) continue;
                    const u32 place = counts[e] + __popc(bits & ((1u << lane) - 1));
                    if (repeated && place < NEARBY) shared.boxes[warp][e][place] = static_cast<uint16_t>(at);
                    counts[e] += __popc(bits);
                }
            }
            bool has_room = false;
#pragma unroll
            for (u32 e = 0; e < PAIR; e++) has_room |= counts[e] <= NEARBY;
            if (!has_room) break;
        }
#pragma unroll
        for (u32 e = 0; e < PAIR; e++) {
            if (lane == e) shared.counts[warp][e] = counts[e];
        }
        __syncthreads();
        // A warp puts a list together.
        const u32 pair = warp / PAIR, which = warp % PAIR, box = first_of(job, pair) + which;
        if (pair < PAIRS && box < n) {
            u32 count = 0;
            for (u32 i = 0; i < PARTS; i++) {
                const u32 of_part = shared.counts[pair * PARTS + i][which], fits = min(of_part, NEARBY - min(count, NEARBY));
                for (u32 at = lane; at < fits; at += 32) lists[box].boxes[count + at] = shared.boxes[pair * PARTS + i][which][at];
                count += of_part;
            }
            const u32 filled = min(count, NEARBY);
            if (lane == 0) lists[box].count = static_cast<uint16_t>(filled | (count > NEARBY ? HAS_MORE : 0));
            // The rest of the last vector, which is read as a whole.
            if (filled % NUMBERS + 1 + lane < NUMBERS) lists[box].boxes[filled + lane] = 0;
        }
        __syncthreads();
    }
}

enum State : uint8_t { OPEN, KEPT, DROPPED };

struct DecideShared {
    uint8_t states[MOST_COMPARED];
    u32 kept[MOST_COMPARED / 32];    // a bit for each box
    u32 places[MOST_COMPARED / 32];  // kept boxes before those of a word
    u32 total;
    u32 first;  // undecided box
    Candidate detections[STEP];
};

// Decides all boxes by their lists, in one block, and writes the results. A round decides all boxes whose better ones are decided, or
// of whose better ones one is kept. Thread i has box i, and each NMS_THREADS-th behind it.
struct Decide {
    const NmsParams& p;
    DecideShared& shared;
    const u32 n;
    u32 open = 0;  // a bit for each box of the thread

    __device__ __forceinline__ Decide(const NmsParams& p, DecideShared& shared, u32 n) : p(p), shared(shared), n(n) {}

    __device__ __forceinline__ const uint4* list_of(u32 box) const {
        return reinterpret_cast<const uint4*>(reinterpret_cast<const Nearby*>(p.matrix) + box);
    }

    static __device__ __forceinline__ u32 number_of(uint4 some, u32 i) {
        const u32 both = i / 2 == 0 ? some.x : i / 2 == 1 ? some.y : i / 2 == 2 ? some.z : some.w;
        return i % 2 ? both >> 16 : both & 0xffff;
    }

    // Those that repeat none are kept. The lists of several boxes are on the way at a time.
    __device__ __forceinline__ void begin() {
        for (u32 start = 0; start * NMS_THREADS < n; start += AHEAD) {
            u32 counts[AHEAD];
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                const u32 box = (start + i) * NMS_THREADS + threadIdx.x;
                counts[i] = box < n ? number_of(*list_of(box), 0) : 0;
            }
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                const u32 box = (start + i) * NMS_THREADS + threadIdx.x;
                if (box >= n) continue;
                shared.states[box] = counts[i] ? OPEN : KEPT;
                if (counts[i]) open |= 1u << (start + i);
            }
        }
    }

    // What follows for a box from the states of those in its list.
    __device__ __forceinline__ State look(u32 box) const {
        const uint4* list = list_of(box);
        uint4 some = *list;
        const u32 header = number_of(some, 0), end = (header & ~HAS_MORE) + 1;
        bool waits = header & HAS_MORE;
        for (u32 start = 0;;) {
            bool is_repeated = false;
#pragma unroll
            for (u32 i = 0; i < NUMBERS; i++) {
                const bool is_number = start + i > 0 && start + i < end;
                const u32 state = is_number ? shared.states[number_of(some, i)] : DROPPED;
                is_repeated |= state == KEPT;
                waits |= state == OPEN;
            }
            if (is_repeated) return DROPPED;
            start += NUMBERS;
            if (start >= end) return waits ? OPEN : KEPT;
            some = list[start / NUMBERS];
        }
    }

    // The first undecided box, whose list has no room for all: it is compared with all better ones that are kept.
    __device__ __forceinline__ void decide_first() {
        if (threadIdx.x == 0) shared.first = n;
        __syncthreads();
        if (open) atomicMin(&shared.first, (__ffs(open) - 1) * NMS_THREADS + threadIdx.x);
        __syncthreads();
        const u32 box = shared.first, cls = p.sorted.classes[box];
        const float4 corners = p.sorted.boxes[box];
        bool is_repeated = false;
        for (u32 other = threadIdx.x; other < box && !is_repeated; other += NMS_THREADS) {
            if (shared.states[other] != KEPT) continue;
            is_repeated = repeats(p, corners, cls, p.sorted.boxes[other], p.sorted.classes[other]);
        }
        is_repeated = __syncthreads_or(is_repeated);
        if (threadIdx.x != box % NMS_THREADS) return;
        shared.states[box] = is_repeated ? DROPPED : KEPT;
        open &= ~(1u << (box / NMS_THREADS));
    }

    __device__ __forceinline__ void decide() {
        while (__syncthreads_or(open != 0)) {
            u32 kept = 0, dropped = 0;
            for (u32 left = open; left; left &= left - 1) {
                const u32 i = __ffs(left) - 1;
                const State state = look(i * NMS_THREADS + threadIdx.x);
                if (state == KEPT) kept |= 1u << i;
                if (state == DROPPED) dropped |= 1u << i;
            }
            if (!__syncthreads_or((kept | dropped) != 0)) {
                decide_first();
                continue;
            }
            for (u32 left = kept | dropped; left; left &= left - 1) {
                const u32 i = __ffs(left) - 1;
                shared.states[i * NMS_THREADS + threadIdx.x] = kept >> i & 1 ? KEPT : DROPPED;
            }
            open &= ~(kept | dropped);
        }
    }

    // Where the kept boxes of each word are among all.
    __device__ __forceinline__ void place() {
        const u32 lane = threadIdx.x % 32, words = (n + 31) / 32;
        for (u32 start = 0; start < n; start += NMS_THREADS) {
            const u32 box = start + threadIdx.x;
            const u32 bits = __ballot_sync(FULL_WARP_MASK, box < n && shared.states[box] == KEPT);
            if (lane == 0) shared.kept[box / 32] = bits;
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            u32 before = 0;
            for (u32 start = 0; start < words; start += 32) {
                const u32 own = start + lane < words ? __popc(shared.kept[start + lane]) : 0;
                u32 until = own;  // with this word
                for (u32 offset = 1; offset < 32; offset *= 2) {
                    const u32 other = __shfl_up_sync(FULL_WARP_MASK, until, offset);
                    if (lane >= offset) until += other;
                }
                shared.places[start + lane] = before + until - own;
                before += __shfl_sync(FULL_WARP_MASK, until, 31);
            }
            if (lane == 0) shared.total = min(before, p.limit);
        }
        __syncthreads();
    }

    // To the host in whole lines, STEP boxes at a time.
    __device__ __forceinline__ void report() {
        const u32 total = shared.total;
        const uint4* made = reinterpret_cast<const uint4*>(shared.detections);
        for (u32 first = 0; first < total; first += STEP) {
            for (u32 box = threadIdx.x; box < n; box += NMS_THREADS) {
                const u32 bits = shared.kept[box / 32], place = shared.places[box / 32] + __popc(bits & ((1u << box % 32) - 1));
                if (!(bits >> box % 32 & 1) || place < first || place >= min(first + STEP, total)) continue;
                shared.detections[place - first] = detection(p, p.sorted.keys[box], p.sorted.boxes[box], p.sorted.classes[box]);
            }
            __syncthreads();
            uint4* results = reinterpret_cast<uint4*>(p.results->detections + first);
            uint4* found = reinterpret_cast<uint4*>(p.found->detections + first);
            const u32 vectors = min(STEP, total - first) * CANDIDATE_VECTORS;
            for (u32 i = threadIdx.x; i < vectors; i += NMS_THREADS) results[i] = found[i] = made[i];
            __syncthreads();
        }
    }

    __device__ __forceinline__ void run() {
        begin();
        decide();
        place();
        const Lost lost = lost_of(p);  // needed at the end
        report();
        if (threadIdx.x == 0) finish(p, shared.total, lost);
    }
};
