// SPDX-License-Identifier: MPL-2.0
// rank_rotated: candidates in no order -> in the order of the result, as normal distributions too. Angles that are not finite are counted.
// suppress_rotated: a box that repeats a better rotated box, kept or not, is dropped. keep_rotated: none is dropped.
//   in   from     *count candidates; angles of the head's rows
//   out  sorted, gaussians (rank_rotated), for the others
//        results  in mapped host memory: the counts, then each Candidate (32 bytes)
//        found    the same in device memory, for plan.cu
//   grid rank_rotated      as rank_detections
//        suppress_rotated  any; a warp compares a box with all better ones, then takes the next; the last block done writes the results
//        keep_rotated      one block
//        NMS_THREADS in a block
//   math f32 without fused multiply-add; a pair gives the same in both orders
//   reference implementation src/postprocess/suppress/rotated.rs; launched by device.rs next to it;
//        parameters mirrored by RotatedParams (168 bytes)
#include "rank.cuh"
#include "rotated.cuh"

// The normal distribution of a rotated box, and its angle.
struct alignas(16) Gaussian {
    float x, y;     // mean
    float a, b, c;  // covariance
    float angle;    // of the row; NaN where there is no such box
    u32 cls;
    u32 unused;
};

struct RotatedParams {
    NmsParams nms;
    Source angles;        // of the rows
    Gaussian* gaussians;  // [capacity] of the sorted
};

static_assert(sizeof(RotatedParams) == 168, "mirrored in params.rs");

__device__ __forceinline__ bool is_number(float value) {
    return value - value == 0;
}

// As Gaussian::of.
__device__ __forceinline__ Gaussian gaussian(float4 box, float angle, u32 cls) {
    const Turned at = regular({box.x, box.y, box.z, box.w, angle});
    float sin, cos;
    sin_cos(at.angle, sin, cos);
    const float along = at.width() * at.width() / 12.0f, across = at.height() * at.height() / 12.0f;
    const float sin2 = sin * sin, cos2 = cos * cos;
    return {at.x(), at.y(), along * cos2 + across * sin2, along * sin2 + across * cos2, (along - across) * cos * sin, angle, cls, 0};
}

// As ln.
__device__ __forceinline__ float natural_log(float x) {
    constexpr float LEAST = 1.17549435e-38f, GREATEST = 3.402823466e38f, LN_2 = 0.693147180559945f;
    constexpr u32 HALF_ROOT = 0x3f3504f3;
    if (!(x >= LEAST && x <= GREATEST)) return __int_as_float(0x7fc00000);
    const u32 bits = __float_as_uint(x) - HALF_ROOT;
    const int32_t exponent = static_cast<int32_t>(bits) >> 23;
    const float mantissa = __uint_as_float((bits & 0x007fffff) + HALF_ROOT);
    const float s = (mantissa - 1.0f) / (mantissa + 1.0f);
    const float z = s * s;
    const float series = 1.0f / 3.0f + z * (1.0f / 5.0f + z * (1.0f / 7.0f + z * (1.0f / 9.0f)));
    return static_cast<float>(exponent) * LN_2 + 2.0f * (s + s * z * series);
}

// As Gaussian::repeats. NaN is never near.
__device__ __forceinline__ bool repeats(const Gaussian& one, const Gaussian& better, float reach) {
    constexpr float TINY = 1e-7f;
    const float a = one.a + better.a, b = one.b + better.b, c = one.c + better.c;
    const float dx = better.x - one.x, dy = one.y - better.y;
    const float determinant = a * b - c * c;
    const auto own = [](const Gaussian& of) { return fmaxf(of.a * of.b - of.c * of.c, 0.0f); };
    const float means = (a * (dy * dy) + b * (dx * dx)) / (determinant + TINY) * 0.25f;
    const float slant = c * dx * dy / (determinant + TINY) * 0.5f;
    const float sizes = natural_log(determinant / (4.0f * sqrtf(own(one) * own(better)) + TINY) + TINY) * 0.5f;
    const float distance = means + slant + sizes;
    return (distance < TINY ? TINY : distance) < reach;
}

// Writes the kept ones of the sorted boxes, by one block.
template <typename IsKept>
__device__ void keep(const RotatedParams& p, u32 n, IsKept is_kept) {
    const NmsParams& nms = p.nms;
    __shared__ u32 kept_of[WARPS];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 count = 0;
    const Lost lost = lost_of(nms);
    for (u32 first = 0; first < n && count < nms.limit; first += NMS_THREADS) {
        const u32 at = first + threadIdx.x;
        const bool kept = at < n && is_kept(at);
        const u32 bits = __ballot_sync(FULL_WARP_MASK, kept);
        __syncthreads();  // the previous counts are no longer used
        if (lane == 0) kept_of[warp] = __popc(bits);
        __syncthreads();
        u32 place = count + __popc(bits & ((1u << lane) - 1));
#pragma unroll
        for (u32 i = 0; i < WARPS; i++) {
            if (i < warp) place += kept_of[i];
            count += kept_of[i];
        }
        if (kept && place < nms.limit) {
            const Candidate found =
                detection(nms, nms.sorted.keys[at], nms.sorted.boxes[at], nms.sorted.classes[at], p.gaussians[at].angle);
            nms.results->detections[place] = nms.found->detections[place] = found;
        }
    }
    if (threadIdx.x == 0) finish(nms, min(count, nms.limit), lost);
}

extern "C" __global__ __launch_bounds__(NMS_THREADS) void rank_rotated(const __grid_constant__ RotatedParams p) {
    rank(p.nms, [&](u64 key, float4 box, u32 cls, u32 place) {
        p.nms.sorted.keys[place] = key;
        p.nms.sorted.boxes[place] = box;
        p.nms.sorted.classes[place] = cls;
        const float angle = number(p.angles, row_of(p.nms, key));
        if (!is_number(angle)) atomicAdd(p.nms.count + NOT_FINITE, 1);
        p.gaussians[place] = gaussian(box, angle, cls);
    });
}

extern "C" __global__ __launch_bounds__(NMS_THREADS) void keep_rotated(const __grid_constant__ RotatedParams p) {
    keep(p, candidates(p.nms), [&](u32 at) { return is_number(p.gaussians[at].angle); });
}

extern "C" __global__ __launch_bounds__(NMS_THREADS) void suppress_rotated(const __grid_constant__ RotatedParams p) {
    __shared__ bool is_last;
    const u32 n = candidates(p.nms), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u32 mine = blockIdx.x * WARPS + warp; mine < n; mine += gridDim.x * WARPS) {
        const Gaussian one = p.gaussians[mine];
        bool kept = is_number(one.angle);
        for (u32 start = 0; kept && start < mine; start += 32) {
            const u32 at = start + lane;
            const Gaussian better = p.gaussians[min(at, mine)];
            const bool are_rivals = at < mine && is_number(better.angle) && (p.nms.agnostic || better.cls == one.cls);
            kept = !__any_sync(FULL_WARP_MASK, are_rivals && repeats(one, better, p.nms.threshold));
        }
        if (lane == 0) p.nms.kept[mine] = kept;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(p.nms.blocks_done, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
    // Blocks on other multiprocessors wrote them: they are read past the first cache.
    keep(p, n, [&](u32 at) { return __ldcg(&p.nms.kept[at]) != 0; });
    if (threadIdx.x == 0) *p.nms.blocks_done = 0;
}
