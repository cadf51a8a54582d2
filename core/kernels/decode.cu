// SPDX-License-Identifier: MPL-2.0
// decode_*: a head's outputs -> candidates in no order.
//   in   sources  the tensors that the layout reads, item 0 of the batch: boxes and scores for dense heads, which may lie in one
//                 tensor, else one for each part
//   out  to       candidates; *count is 0 before, and their number after; count[NOT_FINITE] likewise, the rows (decode_logits: the
//                 logits) whose scores as they were read are not all finite, and the boxes that are not although their score passes;
//                 decode_ids: count[BEYOND] the boxes that would pass, but whose class ids are beyond the classes, and count[GREATEST]
//                 the greatest of these ids
//   grid decode_rows     a group of 2^lanes_log2 threads for each row, DECODE_THREADS in a block
//        decode_columns  32 rows in a block, each by SLICES threads, SLICES * 32 in a block
//        decode_logits   a thread for each logit, DECODE_THREADS in a block
//        decode_ids      a thread for each row, DECODE_THREADS in a block
//        …_general_…     the same for boxes that count from cells, and for two scores that are no factors: code that others do not wait for
//   math f32, every operation rounded once, in the order of the reference implementation; elements are widened first, which
//        is exact
//   reference implementation src/heads/decode.rs; launched by src/postprocess/suppress/device.rs; params.rs next to it mirrors
//        DecodeParams (264 bytes)
#include "boxes.cuh"
#include "grid.cuh"

inline constexpr u32 DECODE_THREADS = 128;
inline constexpr u32 SLICES = 8;
inline constexpr u32 UNROLL = 8;
inline constexpr u32 FULL_WARP_MASK = 0xffffffff;
inline constexpr u32 NONE = 0xffffffff;
inline constexpr float LEAST = -3.402823466e+38f;  // of the finite numbers

// The meaning of the numbers of a box: four, but of both kinds of distances four distributions of BINS numbers.
enum BoxEncoding : u32 {
    CORNERS,
    CENTER,
    CENTER_SHARES,
    CENTER_CELLS,
    CORNERS_YX_SHARES,
    CORNERS_SHARES,
    CORNER_DISTANCES,
    MIDDLE_DISTANCES,
    CORNER_EDGES,
    PRIOR_OFFSETS,
    CORNER_PIXELS,
    PRIOR_LOGITS,
};
inline constexpr u32 BINS = 8;

// What the score of a row is, of its best class and the objectness.
enum Objectness : u32 { WITHOUT, PRODUCT, ROOT, LOGITS };

struct DecodeParams {
    Source sources[4];  // boxes, scores, classes or for dense heads objectness, count; if count has no data, all rows are valid
    Candidates to;
    u32* count;
    const float* per_class;  // [listed] score thresholds of the first classes
    u32 listed;
    float beyond;  // threshold of the other classes
    float least;   // the lowest of all thresholds
    u32 rows;
    u32 capacity;    // for candidates
    u32 classes;     // class ids are below; for dense heads, scores in a row, of which one may be the background's
    u32 background;  // the logit of a row that is of no class; NONE where each is of one
    float least_logit;  // lower ones reach no threshold
    u32 encoding;
    u32 objectness;
    u32 lanes_log2;
    float first_class;  // the head's value for class 0
    float width;        // of the model's input
    float height;
    Grid grid;
};

static_assert(sizeof(DecodeParams) == 264, "mirrored by DecodeParams in params.rs");

__device__ __forceinline__ float infinity() {
    return __int_as_float(0x7f800000);
}

__device__ __forceinline__ float4 from_center(float cx, float cy, float w, float h) {
    const float dx = w * 0.5f, dy = h * 0.5f;
    return make_float4(cx - dx, cy - dy, cx + dx, cy + dy);
}

// exp in double, rounded.
__device__ __forceinline__ float exp_of(float value) {
    return static_cast<float>(exp(static_cast<double>(value)));
}

// The probability of a logit, in double, rounded.
__device__ __forceinline__ float sigmoid(float logit) {
    return static_cast<float>(1.0 / (1.0 + exp(-static_cast<double>(logit))));
}

__device__ __forceinline__ float4 from_cell(Cell cell, float x, float y, float w, float h) {
    return from_center(from_place(cell.x, cell.stride, 0.0f, x), from_place(cell.y, cell.stride, 0.0f, y), exp_of(w) * cell.stride, exp_of(h) * cell.stride);
}

// Distances in cells from a place in the cell, both ways.
__device__ __forceinline__ float4 from_edges(Cell cell, float place, float left, float top, float right, float bottom) {
    const float x = (cell.x + place) * cell.stride, y = (cell.y + place) * cell.stride;
    return make_float4(x - left * cell.stride, y - top * cell.stride, x + right * cell.stride, y + bottom * cell.stride);
}

// Distances in pixels from the corner of the cell.
__device__ __forceinline__ float4 from_pixels(Cell cell, float left, float top, float right, float bottom) {
    const float x = cell.x * cell.stride, y = cell.y * cell.stride;
    return make_float4(x - left, y - top, x + right, y + bottom);
}

__device__ __forceinline__ float4 from_prior_box(Cell cell, float x, float y, float w, float h) {
    return from_center(from_prior(cell.x, cell.stride, cell.prior, x), from_prior(cell.y, cell.stride, cell.prior, y), exp_of(w * 0.2f) * cell.prior,
                       exp_of(h * 0.2f) * cell.prior);
}

// A coordinate within the cell by its logit, stretched about the middle.
__device__ __forceinline__ float from_logit(float cell, float stride, float scale, float logit) {
    return (sigmoid(logit) * scale - (scale - 1.0f) * 0.5f + cell) * stride;
}

// Of prior boxes that are no squares: width, height and scale of each.
__device__ __forceinline__ float4 from_prior_logits(const Grid& grid, Cell cell, float x, float y, float w, float h) {
    const float* prior = grid.priors + 3 * cell.at;
    return from_center(from_logit(cell.x, cell.stride, prior[2], x), from_logit(cell.y, cell.stride, prior[2], y), exp_of(w) * prior[0],
                       exp_of(h) * prior[1]);
}

template <bool GENERAL>
__device__ __forceinline__ float4 box_of(const DecodeParams& p, u32 row, float a, float b, float c, float d) {
    switch (p.encoding) {
        case CORNERS: return make_float4(a, b, c, d);
        case CENTER: return from_center(a, b, c, d);
        case CENTER_SHARES: return from_center(a * p.width, b * p.height, c * p.width, d * p.height);
        case CORNERS_YX_SHARES: return make_float4(b * p.width, a * p.height, d * p.width, c * p.height);
        case CORNERS_SHARES: return make_float4(a * p.width, b * p.height, c * p.width, d * p.height);
    }
    if (!GENERAL) return {};
    const Cell cell = cell_of(p.grid, row);
    if (p.encoding == CENTER_CELLS) return from_cell(cell, a, b, c, d);
    if (p.encoding == PRIOR_OFFSETS) return from_prior_box(cell, a, b, c, d);
    if (p.encoding == CORNER_PIXELS) return from_pixels(cell, a, b, c, d);
    if (p.encoding == PRIOR_LOGITS) return from_prior_logits(p.grid, cell, a, b, c, d);
    return from_edges(cell, p.encoding == MIDDLE_DISTANCES ? 0.5f : 0.0f, a, b, c, d);
}

__device__ __forceinline__ bool is_finite(float value) {
    return fabsf(value) < infinity();
}

// Whether a score reaches the threshold of its class. NaN reaches none.
__device__ __forceinline__ bool reaches(const DecodeParams& p, float score, u32 cls) {
    return score >= (cls < p.listed ? p.per_class[cls] : p.beyond) && is_finite(score);
}

// Of a row that would pass if there were such a class.
__device__ __forceinline__ void count_beyond(const DecodeParams& p, float4 box, u32 cls) {
    const float width = box.z - box.x, height = box.w - box.y;
    if (!(width > 0 && height > 0 && is_finite(width) && is_finite(height))) return;
    atomicAdd(p.count + BEYOND, 1);
    atomicMax(p.count + GREATEST, cls);
}

// Of a row whose score passes: one without a finite size is counted.
__device__ __forceinline__ bool is_box(const DecodeParams& p, float4 box) {
    const float width = box.z - box.x, height = box.w - box.y;
    const bool has_size = is_finite(width) && is_finite(height);
    if (!has_size) atomicAdd(p.count + NOT_FINITE, 1);
    return has_size && width > 0 && height > 0;
}

// Called by all threads of a warp, which reserve space with one atomic. `is_lost` is whether scores are not finite.
__device__ void append(const DecodeParams& p, bool passes, bool is_lost, u32 index, float4 box, float score, u32 cls) {
    const u32 passing = __ballot_sync(FULL_WARP_MASK, passes), lost = __ballot_sync(FULL_WARP_MASK, is_lost), lane = threadIdx.x % 32;
    if (lost && lane == 0) atomicAdd(p.count + NOT_FINITE, __popc(lost));
    if (!passing) return;
    const int leader = __ffs(passing) - 1;
    u32 start = 0;
    if (lane == leader) start = atomicAdd(p.count, __popc(passing));
    const u32 at = __shfl_sync(FULL_WARP_MASK, start, leader) + __popc(passing & ((1u << lane) - 1));
    if (passes && at < p.capacity) {
        p.to.keys[at] = key_of(score, index);
        p.to.boxes[at] = box;
        p.to.classes[at] = cls;
    }
}

// The maximum score so far, and the first class that has it; NaN is never the maximum.
struct Best {
    float score;
    u32 cls;

    // For classes in ascending order.
    __device__ __forceinline__ void update(float other, u32 other_cls) {
        if (other > score) score = other, cls = other_cls;
    }

    // For classes in any order.
    __device__ __forceinline__ void merge(Best other) {
        if (other.score > score || (other.score == score && other.cls < cls)) score = other.score, cls = other.cls;
    }
};

__device__ __forceinline__ Best empty() {
    return {-infinity(), NONE};
}

// 0 where all numbers that it has seen are finite, else NaN: an instruction for each of them.
struct Check {
    float sum = 0;

    __device__ __forceinline__ void see(float number) {
        sum = __fmaf_rn(number, 0.0f, sum);
    }

    __device__ __forceinline__ bool is_lost() const {
        return !(sum == 0);
    }
};

// Takes the scores number(first), number(first + step), … below `end`. UNROLL loads are in flight at a time. LEAST stands for those
// beyond `end`, which saves a comparison for each number: a best class that is not below `end` is none.
template <typename Number>
__device__ __forceinline__ void scan(Best& best, Check& check, u32 first, u32 step, u32 end, Number number) {
    for (u32 start = first; start < end; start += UNROLL * step) {
        float scores[UNROLL];
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
            const u32 at = start + i * step;
            scores[i] = at < end ? number(at) : LEAST;
        }
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
            check.see(scores[i]);
            best.update(scores[i], start + i * step);
        }
    }
}

template <typename T>
__device__ __forceinline__ float4 numbers_at(const T* at, size_t step) {
    return make_float4(widen(at[0]), widen(at[step]), widen(at[2 * step]), widen(at[3 * step]));
}

template <typename T>
inline constexpr Type TYPE_OF = sizeof(T) == sizeof(float) ? F32 : F16;

// The same as number(), faster where T is the type.
template <typename T>
__device__ __forceinline__ float element(const Source& source, u32 row, u32 i) {
    if (source.type != TYPE_OF<T>) return number(source, row, i);
    const size_t at = source.first + static_cast<size_t>(row) * source.stride + static_cast<size_t>(i) * source.step;
    return widen(static_cast<const T*>(source.data)[at]);
}

// The box of a row, not yet scaled. T is its usual type. There is one branch for all four numbers, so that their loads are in
// flight together.
template <typename T>
__device__ __forceinline__ float4 numbers_of(const Source& boxes, u32 row) {
    if (boxes.type == TYPE_OF<T>) {
        const size_t at = boxes.first + static_cast<size_t>(row) * boxes.stride;
        return numbers_at(static_cast<const T*>(boxes.data) + at, boxes.step);
    }
    float numbers[4];
#pragma unroll 1  // rarely needed
    for (u32 i = 0; i < 4; i++) numbers[i] = number(boxes, row, i);
    return make_float4(numbers[0], numbers[1], numbers[2], numbers[3]);
}

// The mean of a distribution over 0, 1, …, by the softmax of BINS numbers from `first` on.
__device__ float mean_of(const Source& boxes, u32 row, u32 first) {
    float greatest = -infinity(), sum = 0, weighted = 0;
#pragma unroll 1  // for few boxes of few heads
    for (u32 bin = 0; bin < BINS; bin++) {
        const float value = number(boxes, row, first + bin);
        if (value > greatest) greatest = value;
    }
#pragma unroll 1
    for (u32 bin = 0; bin < BINS; bin++) {
        const float weight = exp_of(number(boxes, row, first + bin) - greatest);
        sum += weight;
        weighted += weight * static_cast<float>(bin);
    }
    return weighted / sum;
}

template <bool GENERAL>
__device__ __forceinline__ float4 box_of(const DecodeParams& p, u32 row, float4 numbers) {
    if (GENERAL && (p.encoding == CORNER_DISTANCES || p.encoding == MIDDLE_DISTANCES)) {
        const Source& boxes = p.sources[0];
        float means[4];
#pragma unroll 1  // so that the code is there once
        for (u32 side = 0; side < 4; side++) means[side] = mean_of(boxes, row, side * BINS);
        numbers = make_float4(means[0], means[1], means[2], means[3]);
    }
    return box_of<GENERAL>(p, row, numbers.x, numbers.y, numbers.z, numbers.w);
}

// Within 0..1; NaN stays.
__device__ __forceinline__ float held(float value) {
    return value < 0.0f ? 0.0f : value > 1.0f ? 1.0f : value;
}

// [rows][a score for each class]; the boxes, and objectness if there is one, next to them or in a tensor of their own.
template <typename T, bool GENERAL>
__device__ __forceinline__ void decode_rows(const DecodeParams& p) {
    const u32 thread = blockIdx.x * DECODE_THREADS + threadIdx.x;
    const u32 lanes = 1u << p.lanes_log2, lane = thread % lanes, row = thread >> p.lanes_log2;
    const Source& source = p.sources[1];
    const T* scores = static_cast<const T*>(source.data) + source.first + static_cast<size_t>(row) * source.stride;
    bool passes = row < p.rows;
    float objectness = 1;
    Best best = empty();
    Check check;
    if (passes && p.objectness) {
        objectness = element<T>(p.sources[2], row, 0);
        passes = objectness >= (GENERAL && p.objectness == LOGITS ? p.least_logit : p.least) || (GENERAL && p.objectness == ROOT);
        check.see(objectness);
    }
    float4 box = {};
    if (passes) {
        box = numbers_of<T>(p.sources[0], row);
        scan(best, check, lane, lanes, p.classes, [&](u32 i) { return widen(scores[i]); });
    }
    for (u32 offset = lanes / 2; offset > 0; offset /= 2) {
        Best other;
        other.score = __shfl_xor_sync(FULL_WARP_MASK, best.score, offset);
        other.cls = __shfl_xor_sync(FULL_WARP_MASK, best.cls, offset);
        best.merge(other);
    }
    float score = best.score;
    if (p.objectness == PRODUCT) score = objectness * best.score;
    if (GENERAL && p.objectness == ROOT) score = sqrtf(held(objectness) * held(best.score));
    if (GENERAL && p.objectness == LOGITS) score = sigmoid(objectness) * sigmoid(best.score);
    passes = passes && lane == 0 && best.cls < p.classes && score >= p.least && reaches(p, score, best.cls);
    if (passes) {
        box = box_of<GENERAL>(p, row, box);
        passes = is_box(p, box);
    }
    // A row is lost where any of its lanes is.
    const u32 lost = __ballot_sync(FULL_WARP_MASK, check.is_lost()) >> (threadIdx.x % 32);
    append(p, passes, lane == 0 && (lost & (FULL_WARP_MASK >> (32 - lanes))), row, box, score, best.cls);
}

// [a score for each class][rows]; the boxes before them or in a tensor of their own.
template <typename T, bool GENERAL>
__device__ __forceinline__ void decode_columns(const DecodeParams& p) {
    __shared__ Best slices[SLICES][32];
    __shared__ u32 lost_of[SLICES];  // a bit for each row
    const u32 lane = threadIdx.x % 32, slice = threadIdx.x / 32, row = blockIdx.x * 32 + lane;
    const size_t rows = p.rows;
    const T* scores = static_cast<const T*>(p.sources[1].data) + p.sources[1].first + row;
    Best best = empty();
    Check check;
    if (row < rows) scan(best, check, slice, SLICES, p.classes, [&](u32 i) { return widen(scores[i * rows]); });
    slices[slice][lane] = best;
    u32 lost = __ballot_sync(FULL_WARP_MASK, check.is_lost());
    if (lane == 0) lost_of[slice] = lost;
    __syncthreads();
    if (slice) return;
#pragma unroll
    for (u32 i = 1; i < SLICES; i++) best.merge(slices[i][lane]), lost |= lost_of[i];
    bool passes = best.cls < p.classes && best.score >= p.least && reaches(p, best.score, best.cls);
    float4 box = {};
    if (passes) {
        box = box_of<GENERAL>(p, row, numbers_of<T>(p.sources[0], row));
        passes = is_box(p, box);
    }
    append(p, passes, lost >> lane & 1, row, box, best.score, best.cls);
}

// [rows][logits], of which several may pass in a row; the boxes in a tensor of their own.
template <typename T, bool GENERAL>
__device__ __forceinline__ void decode_logits(const DecodeParams& p) {
    const u32 index = blockIdx.x * DECODE_THREADS + threadIdx.x, row = index / p.classes, slot = index % p.classes;
    bool passes = row < p.rows && slot != p.background;
    bool is_lost = false;
    float score = 0;
    u32 cls = 0;
    if (passes) {
        const float logit = widen(static_cast<const T*>(p.sources[1].data)[index]);
        passes = logit >= p.least_logit;
        is_lost = !(logit < infinity());  // minus infinity is the logit of 0
        if (passes) {
            cls = slot - (slot > p.background);
            score = sigmoid(logit);
            passes = reaches(p, score, cls);
        }
    }
    float4 box = {};
    if (passes) {
        box = box_of<GENERAL>(p, row, numbers_of<T>(p.sources[0], row));
        passes = is_box(p, box);
    }
    append(p, passes, is_lost, index, box, score, cls);
}

extern "C" __global__ __launch_bounds__(DECODE_THREADS) void decode_rows_f32(DecodeParams p) {
    decode_rows<float, false>(p);
}

extern "C" __global__ __launch_bounds__(DECODE_THREADS) void decode_rows_general_f32(DecodeParams p) {
    decode_rows<float, true>(p);
}

extern "C" __global__ __launch_bounds__(DECODE_THREADS) void decode_rows_general_f16(DecodeParams p) {
    decode_rows<uint16_t, true>(p);
}

extern "C" __global__ __launch_bounds__(DECODE_THREADS) void decode_rows_f16(DecodeParams p) {
    decode_rows<uint16_t, false>(p);
}

extern "C" __global__ __launch_bounds__(SLICES * 32) void decode_columns_f32(DecodeParams p) {
    decode_columns<float, false>(p);
}

extern "C" __global__ __launch_bounds__(SLICES * 32) void decode_columns_general_f32(DecodeParams p) {
    decode_columns<float, true>(p);
}

extern "C" __global__ __launch_bounds__(SLICES * 32) void decode_columns_general_f16(DecodeParams p) {
    decode_columns<uint16_t, true>(p);
}

extern "C" __global__ __launch_bounds__(SLICES * 32) void decode_columns_f16(DecodeParams p) {
    decode_columns<uint16_t, false>(p);
}

extern "C" __global__ __launch_bounds__(DECODE_THREADS) void decode_logits_f32(DecodeParams p) {
    decode_logits<float, false>(p);
}

extern "C" __global__ __launch_bounds__(DECODE_THREADS) void decode_logits_general_f32(DecodeParams p) {
    decode_logits<float, true>(p);
}

extern "C" __global__ __launch_bounds__(DECODE_THREADS) void decode_logits_general_f16(DecodeParams p) {
    decode_logits<uint16_t, true>(p);
}

extern "C" __global__ __launch_bounds__(DECODE_THREADS) void decode_logits_f16(DecodeParams p) {
    decode_logits<uint16_t, false>(p);
}

// Heads with a class id for each row.
extern "C" __global__ __launch_bounds__(DECODE_THREADS) void decode_ids(DecodeParams p) {
    const u32 row = blockIdx.x * DECODE_THREADS + threadIdx.x;
    bool passes = row < p.rows;
    if (passes && p.sources[3].data) {
        // The count may be any number. The conversion truncates and saturates; NaN and negative counts are refused before.
        const float count = number(p.sources[3], 0);
        passes = count >= 1 && row < __float2ull_rz(count);
    }
    bool is_lost = false, is_beyond = false;
    float score = 0;
    u32 cls = 0;
    if (passes) {
        const float id = number(p.sources[2], row) - p.first_class;
        passes = id >= 0 && is_finite(id);
        is_lost = !is_finite(id);
        if (passes) {
            is_beyond = !(id < static_cast<float>(p.classes));
            cls = __float2uint_rz(id);  // cuts a fraction off, and saturates
            score = number(p.sources[1], row);
            passes = reaches(p, score, cls);
            is_lost = !is_beyond && !is_finite(score);
        }
    }
    float4 box = {};
    if (passes) {
        box = box_of<false>(p, row, numbers_of<float>(p.sources[0], row));
        if (is_beyond) count_beyond(p, box, cls);
        passes = !is_beyond && is_box(p, box);
    }
    append(p, passes, is_lost, row, box, score, cls);
}
