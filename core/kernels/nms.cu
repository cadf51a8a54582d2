// SPDX-License-Identifier: MPL-2.0
// rank_detections: candidates in no order -> in the order of the result. suppress: the same without boxes that repeat a better one.
//   in   from     *count candidates
//   out  sorted   the same by key, where suppress has more than SMALL
//        results  in mapped host memory: the counts, then each Candidate (32 bytes)
//        found    the same in device memory, for plan.cu
//   grid any; a warp ranks some candidates by counting the smaller keys, which is exact and needs no memory, then takes the next ones.
//        Up to SMALL candidates are ranked and suppressed by the first block, which needs no other one. Else the blocks of suppress
//        rank, wait for each other, and find what repeats what; the last one done decides.
//        NMS_THREADS in a block
//   math f32 without fused multiply-add, as BBox::iou; a pair gives the same in both orders
//   reference implementation src/postprocess/suppress/host.rs; launched by device.rs next to it;
//        parameters of rank.cuh mirrored by NmsParams (136 bytes)
//
// Greedy suppression tests for each box in turn whether it repeats a better one that is kept. iou.cuh says which repeat each other.
//
// Up to `compared` candidates are compared with all better ones, which gives a list of the best NEARBY that each repeats (lists.cuh).
// That is all that the last block needs: it decides all boxes at a time, those whose better ones are decided. A box whose list has no
// room for all, and has no kept one, is compared with all kept ones when its turn comes, which is rare.
//
// Of more, it takes some boxes at a time (scan.cuh): it decides between them first, then marks all later boxes that repeat a kept one
// of them. For the first boxes the bit matrix holds which of the WINDOW boxes repeat them: all work on pairs is done by all blocks
// before. Where many in a row are undecided these are the boxes of a step, STEP in a row. Where objects are crowded, few are undecided
// after the first step: then they are the next FEW of those, wherever they are. What repeats a kept box without a row is found when it
// is listed. Boxes after the window, if the limit is not reached before them, are compared with all kept ones directly, STEP at a time.
#include "scan.cuh"
#include "lists.cuh"

// Candidates -> results, for heads whose boxes do not repeat.
extern "C" __global__ __launch_bounds__(NMS_THREADS) void rank_detections(NmsParams p) {
    const u32 n = candidates(p);
    const Lost lost = lost_of(p);
    rank(p, [&](u64 key, float4 box, u32 cls, u32 place) {
        if (place < p.limit) p.results->detections[place] = p.found->detections[place] = detection(p, key, box, cls);
    });
    if (blockIdx.x == 0 && threadIdx.x == 0) finish(p, min(n, p.limit), lost);
}

// What a block of suppress has in its memory, one after the other.
union Shared {
    u64 tile[TILE];
    CompareShared compare;
    DecideShared decide;
    SuppressShared scan;
};

// Candidates -> sorted, by all blocks, which wait until it is done. Blocks claim jobs, of which the thread 0 has the first. So none
// waits for one that has not begun: a GPU that has no room for all blocks at a time runs those later.
__device__ __forceinline__ void rank_shared(const NmsParams& p, u64 (&tile)[TILE], u32& claimed, u32 n, u32 job) {
    const bool are_few = n <= gridDim.x * WARPS;
    const u32 of_job = are_few ? WARPS : 4 * WARPS, jobs = (n + of_job - 1) / of_job;
    const auto take = [&](u64 key, float4 box, u32 cls, u32 place) {
        p.sorted.keys[place] = key;
        p.sorted.boxes[place] = box;
        p.sorted.classes[place] = cls;
    };
    for (;;) {
        if (threadIdx.x == 0) claimed = job;
        __syncthreads();
        const u32 first = claimed * of_job;
        if (claimed >= jobs) break;
        if (are_few) {
            rank_some<1>(p, tile, n, first, take);
        } else {
            rank_some<4>(p, tile, n, first, take);
        }
        __syncthreads();
        if (threadIdx.x != 0) continue;
        job = atomicAdd(p.count + CLAIMED, 1);
        __threadfence();
        atomicAdd(p.count + RANKED, 1);
    }
    if (threadIdx.x == 0) {
        while (*static_cast<volatile u32*>(p.count + RANKED) < jobs) {
        }
        __threadfence();
    }
    __syncthreads();
}

// Candidates -> results.
extern "C" __global__ __launch_bounds__(NMS_THREADS, 2) void suppress(const __grid_constant__ NmsParams p) {
    __shared__ Shared shared;
    __shared__ u32 claimed;
    __shared__ bool is_last;
    // On the way with the number of candidates: those that are there if they are few, and a claim, which is given up then.
    Own own = {};
    if (blockIdx.x == 0) own = own_candidate(p);
    const u32 job = threadIdx.x == 0 ? atomicAdd(p.count + CLAIMED, 1) : 0;
    const u32 n = candidates(p);
    clear_next(p);
    if (n <= SMALL) {
        if (blockIdx.x == 0) Scan(p, shared.scan, n).run_small(own);
        return;
    }
    rank_shared(p, shared.tile, claimed, n, job);
    const bool is_compared = n <= min(p.compared, MOST_COMPARED);
    if (is_compared) {
        compare(p, shared.compare, n);
    } else {
        fill_matrix(p, n);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(p.count + DONE, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
    if (is_compared) {
        Decide(p, shared.decide, n).run();
    } else {
        Scan(p, shared.scan, n).run();
    }
}
