// SPDX-License-Identifier: MPL-2.0
// The best classes of pictures, each of which has a row of scores.
//
// find_logits: whether a row holds other values than probabilities
//   in   rows      [pictures] addresses of [classes] scores each, f32 or f16
//   out  seen      [pictures] IS_LOGITS or 0
// best_classes: logits to probabilities, then the classes that reach their threshold, the best first
//   in   rows, thresholds [classes], seen if kind is BY_VALUES: a row holds logits if that was seen in it or in one before
//   out  best      [pictures][top_k] in mapped host memory; behind the last one a class NONE
//        host_seen [pictures] in mapped host memory: seen, and IS_LOST where a score is not finite
//        scores    [pictures][classes] scratch
//   grid a block for each picture
//   math f64 and f32, in the order of src/postprocess/classify/host.rs, the reference implementation
//   launched by src/postprocess/classify/device.rs, whose ClassParams mirrors the one here (64 bytes)
#include "greatest.cuh"

inline constexpr uint32_t THREADS = 256;
inline constexpr uint32_t NONE = 0xffffffff;
// Of a picture, in host_seen.
inline constexpr uint32_t IS_LOGITS = 1, IS_LOST = 2;
// By how much the sum of probabilities may differ from 1.
inline constexpr double TOLERANCE = 0.01;

enum Kind : uint32_t { PROBABILITIES, LOGITS, BY_VALUES };

struct RankedClass {
    uint32_t cls;
    float score;
};

struct ClassParams {
    const uint64_t *rows;
    const float *thresholds;
    float *scores;
    RankedClass *best;
    uint32_t *seen;
    uint32_t *host_seen;
    uint32_t is_half, kind;
    uint32_t classes, top_k;
};

static_assert(sizeof(ClassParams) == 64, "mirrored in device.rs");

__device__ inline bool is_finite(float value) { return (__float_as_uint(value) & 0x7f800000) != 0x7f800000; }

__device__ inline float value_at(const ClassParams &p, uint64_t row, uint32_t cls) {
    return p.is_half ? half_value(__ldg(reinterpret_cast<const uint16_t *>(row) + cls)) : __ldg(reinterpret_cast<const float *>(row) + cls);
}

// The sum of what the threads have, by halves.
__device__ inline double sum_of(double mine) {
    __shared__ double sums[THREADS];
    sums[threadIdx.x] = mine;
    for (uint32_t half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    const double sum = sums[0];
    __syncthreads();
    return sum;
}

__device__ inline double exponential(double x) {
    constexpr double FACTORS[] = {1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0,
                                  1.0 / 720.0,       1.0 / 120.0,      1.0 / 24.0,      1.0 / 6.0,      0.5,           1.0,
                                  1.0};
    if (x > 709.0) return __longlong_as_double(0x7ff0000000000000);
    if (x < -708.0) return 0.0;
    const double doublings = rint(x * 1.4426950408889634);
    const double rest = x - doublings * 6.93147180369123816490e-01 - doublings * 1.90821492927058770002e-10;
    double sum = 1.0 / 6227020800.0;
    for (const double factor : FACTORS) sum = sum * rest + factor;
    return sum * __longlong_as_double((static_cast<long long>(doublings) + 1023) << 52);
}

extern "C" __global__ void __launch_bounds__(THREADS) find_logits(const __grid_constant__ ClassParams p) {
    const uint64_t row = p.rows[blockIdx.x]; // once, as it is in host memory
    bool are_shares = true, are_finite = true;
    double mine = 0.0;
    for (uint32_t cls = threadIdx.x; cls < p.classes; cls += THREADS) {
        const float value = value_at(p, row, cls);
        are_shares &= value >= 0.0f && value <= 1.0f;
        are_finite &= is_finite(value);
        mine += value;
    }
    const bool all_shares = __syncthreads_and(are_shares), all_finite = __syncthreads_and(are_finite);
    const double sum = sum_of(mine);
    if (threadIdx.x == 0) p.seen[blockIdx.x] = all_finite && (!all_shares || fabs(sum - 1.0) > TOLERANCE) ? IS_LOGITS : 0;
}

extern "C" __global__ void __launch_bounds__(THREADS) best_classes(const __grid_constant__ ClassParams p) {
    const uint64_t row = p.rows[blockIdx.x];
    float *scores = p.scores + static_cast<uint64_t>(blockIdx.x) * p.classes;
    bool was_seen = false;
    if (p.kind == BY_VALUES)
        for (uint32_t i = threadIdx.x; i <= blockIdx.x; i += THREADS) was_seen |= p.seen[i] != 0;
    const bool are_logits = __syncthreads_or(was_seen) || p.kind == LOGITS;

    // A thread writes and reads the scores of its own classes only.
    double greatest = 0.0, sum = 0.0;
    if (are_logits && p.classes > 1) {
        uint64_t mine = 0;
        for (uint32_t cls = threadIdx.x; cls < p.classes; cls += THREADS) {
            const float value = value_at(p, row, cls);
            if (is_finite(value)) mine = max(mine, static_cast<uint64_t>(ordered(value)));
        }
        const uint64_t found = greatest_of<THREADS>(mine);
        if (found > 0) greatest = unordered(static_cast<uint32_t>(found));
        double part = 0.0;
        for (uint32_t cls = threadIdx.x; cls < p.classes; cls += THREADS) {
            const float value = value_at(p, row, cls);
            if (is_finite(value)) part += exponential(value - greatest);
        }
        sum = sum_of(part);
    }
    bool is_lost = false;
    for (uint32_t cls = threadIdx.x; cls < p.classes; cls += THREADS) {
        float score = value_at(p, row, cls);
        is_lost |= !is_finite(score);
        if (are_logits && p.classes == 1)
            score = static_cast<float>(1.0 / (1.0 + exponential(-static_cast<double>(score))));
        else if (are_logits && is_finite(score))
            score = static_cast<float>(exponential(score - greatest) / sum);
        const bool passes = is_finite(score) && score >= p.thresholds[cls];
        scores[cls] = passes ? score : __uint_as_float(0x7fc00000);
    }
    const bool any_lost = __syncthreads_or(is_lost);
    if (threadIdx.x == 0) p.host_seen[blockIdx.x] = (p.kind == BY_VALUES ? p.seen[blockIdx.x] : 0) | (any_lost ? IS_LOST : 0);

    RankedClass *best = p.best + static_cast<uint64_t>(blockIdx.x) * p.top_k;
    uint64_t last = ~0ull;
    for (uint32_t i = 0; i < p.top_k; i++) {
        uint64_t mine = 0;
        for (uint32_t cls = threadIdx.x; cls < p.classes; cls += THREADS) {
            const float score = scores[cls];
            const uint64_t key = static_cast<uint64_t>(ordered(score)) << 32 | ~cls;
            if (is_finite(score) && key < last) mine = max(mine, key);
        }
        last = greatest_of<THREADS>(mine);
        if (threadIdx.x == 0) best[i] = {last ? ~static_cast<uint32_t>(last) : NONE, last ? unordered(last >> 32) : 0.0f};
        if (last == 0) return;
    }
}
