// SPDX-License-Identifier: MPL-2.0
// decode_*: a head's outputs -> candidates in no order.
//   in   sources  the tensors that the layout reads, item 0 of the batch: one for dense heads, else one for each part
//   out  to       candidates; *count is 0 before, and their number after
//   grid decode_rows     a group of 2^lanes_log2 threads for each row, DECODE_THREADS in a block
//        decode_columns  32 rows in a block, each by SLICES threads, SLICES * 32 in a block
//        decode_ids      a thread for each row, DECODE_THREADS in a block
//   math f32, every operation rounded once, in the order of the reference implementation; elements are widened first, which
//        is exact
//   reference implementation src/heads/decode.rs; launched by src/postprocess/suppress/device.rs, whose DecodeParams mirrors
//        the one here (232 bytes)
#include "boxes.cuh"

inline constexpr u32 DECODE_THREADS = 128;
inline constexpr u32 SLICES = 8;
inline constexpr u32 GLANCE = 8;
inline constexpr u32 EVERYONE = 0xffffffff;
inline constexpr u32 NONE = 0xffffffff;

// The meaning of the four numbers of a box.
enum BoxEncoding : u32 { CORNERS, CENTER, CENTER_SHARES, CENTER_CELLS, CORNERS_YX_SHARES };

// The cells of one stride, of a head that has one row for each.
struct Level {
    u32 stride;
    u32 columns;
    u32 cells;
};

struct DecodeParams {
    Source sources[4];  // boxes (or the only tensor), scores, classes, count; if count has no data, all rows are valid
    Candidates to;
    u32* count;
    const float* per_class;  // [listed] score thresholds of the first classes
    u32 listed;
    float beyond;  // threshold of the other classes
    float least;   // the lowest of all thresholds
    u32 rows;
    u32 columns;  // of dense heads
    u32 classes;  // class ids are below; for dense heads, scores in a row
    u32 encoding;
    u32 objectness;  // 1 if rows have it, after the box
    u32 lanes_log2;
    float first_class;  // the head's value for class 0
    float width;        // of the model's input
    float height;
    Level levels[4];
};

static_assert(sizeof(DecodeParams) == 232, "mirrored by DecodeParams in device.rs");

__device__ __forceinline__ float infinity() {
    return __int_as_float(0x7f800000);
}

__device__ __forceinline__ float4 from_center(float cx, float cy, float w, float h) {
    const float dx = w * 0.5f, dy = h * 0.5f;
    return make_float4(cx - dx, cy - dy, cx + dx, cy + dy);
}

__device__ float4 from_cell(const DecodeParams& p, u32 row, float x, float y, float w, float h) {
    u32 cell = row;
    for (int i = 0; i < 4; i++) {
        const Level level = p.levels[i];
        if (cell < level.cells) {
            const float gx = static_cast<float>(cell % level.columns), gy = static_cast<float>(cell / level.columns);
            const float stride = static_cast<float>(level.stride);
            const float ew = static_cast<float>(exp(static_cast<double>(w)));
            const float eh = static_cast<float>(exp(static_cast<double>(h)));
            return from_center((x + gx) * stride, (y + gy) * stride, ew * stride, eh * stride);
        }
        cell -= level.cells;
    }
    return make_float4(0, 0, 0, 0);
}

__device__ __forceinline__ float4 box_of(const DecodeParams& p, u32 row, float a, float b, float c, float d) {
    switch (p.encoding) {
        case CORNERS: return make_float4(a, b, c, d);
        case CENTER: return from_center(a, b, c, d);
        case CENTER_SHARES: return from_center(a * p.width, b * p.height, c * p.width, d * p.height);
        case CENTER_CELLS: return from_cell(p, row, a, b, c, d);
        default: return make_float4(b * p.width, a * p.height, d * p.width, c * p.height);
    }
}

__device__ __forceinline__ bool is_finite(float value) {
    return fabsf(value) < infinity();
}

// Whether a score reaches the threshold of its class. NaN reaches none.
__device__ __forceinline__ bool reaches(const DecodeParams& p, float score, u32 cls) {
    return score >= (cls < p.listed ? p.per_class[cls] : p.beyond) && is_finite(score);
}

__device__ __forceinline__ bool is_box(float4 box) {
    const float width = box.z - box.x, height = box.w - box.y;
    return width > 0 && height > 0 && is_finite(width) && is_finite(height);
}

// Called by all threads of a warp, which reserve space with one atomic.
__device__ void append(const DecodeParams& p, bool passes, u32 row, float4 box, float score, u32 cls) {
    const u32 passing = __ballot_sync(EVERYONE, passes), lane = threadIdx.x % 32;
    if (!passing) return;
    const int leader = __ffs(passing) - 1;
    u32 start = 0;
    if (lane == leader) start = atomicAdd(p.count, __popc(passing));
    const u32 at = __shfl_sync(EVERYONE, start, leader) + __popc(passing & ((1u << lane) - 1));
    if (passes && at < p.rows) {
        p.to.keys[at] = key_of(score, row);
        p.to.boxes[at] = box;
        p.to.classes[at] = cls;
    }
}

// The maximum score so far, and the first class that has it; NaN is never the maximum.
struct Best {
    float score;
    u32 cls;

    // For classes in ascending order.
    __device__ __forceinline__ void see(float other, u32 other_cls) {
        if (other > score) *this = {other, other_cls};
    }

    // For classes in any order.
    __device__ __forceinline__ void join(Best other) {
        if (other.score > score || (other.score == score && other.cls < cls)) *this = other;
    }
};

__device__ __forceinline__ Best empty() {
    return {-infinity(), NONE};
}

// Takes the scores number(first), number(first + step), … below `end`. GLANCE loads are in flight at a time.
// `class_0` is the index of the first class score.
template <typename Number>
__device__ __forceinline__ void look(Best& best, u32 first, u32 step, u32 end, Number number, u32 class_0) {
    for (u32 start = first; start < end; start += GLANCE * step) {
        float scores[GLANCE];
#pragma unroll
        for (u32 i = 0; i < GLANCE; i++) {
            const u32 at = start + i * step;
            scores[i] = at < end ? number(at) : -infinity();
        }
#pragma unroll
        for (u32 i = 0; i < GLANCE; i++) best.see(scores[i], start + i * step - class_0);
    }
}

// [rows][box, objectness if there is one, a score for each class, numbers that are gathered later]
template <typename T>
__device__ __forceinline__ void decode_rows(const DecodeParams& p) {
    const u32 thread = blockIdx.x * DECODE_THREADS + threadIdx.x;
    const u32 lanes = 1u << p.lanes_log2, lane = thread % lanes, row = thread >> p.lanes_log2;
    const T* values = static_cast<const T*>(p.sources[0].data) + static_cast<size_t>(row) * p.columns;
    const u32 first = 4 + p.objectness;
    bool passes = row < p.rows;
    float objectness = 1;
    if (passes && p.objectness) {
        objectness = widen(values[4]);
        passes = objectness >= p.least;
    }
    Best best = empty();
    float4 box = {};
    if (passes) {
        box = {widen(values[0]), widen(values[1]), widen(values[2]), widen(values[3])};
        look(best, first + lane, lanes, first + p.classes, [&](u32 i) { return widen(values[i]); }, first);
    }
    for (u32 offset = lanes / 2; offset > 0; offset /= 2) {
        Best other;
        other.score = __shfl_xor_sync(EVERYONE, best.score, offset);
        other.cls = __shfl_xor_sync(EVERYONE, best.cls, offset);
        best.join(other);
    }
    const float score = p.objectness ? objectness * best.score : best.score;
    passes = passes && lane == 0 && best.cls != NONE && score >= p.least && reaches(p, score, best.cls);
    if (passes) {
        box = box_of(p, row, box.x, box.y, box.z, box.w);
        passes = is_box(box);
    }
    append(p, passes, row, box, score, best.cls);
}

// [box, a score for each class, numbers that are gathered later][rows]
template <typename T>
__device__ __forceinline__ void decode_columns(const DecodeParams& p) {
    __shared__ Best slices[SLICES][32];
    const u32 lane = threadIdx.x % 32, slice = threadIdx.x / 32, row = blockIdx.x * 32 + lane;
    const size_t rows = p.rows;
    const T* values = static_cast<const T*>(p.sources[0].data) + row;
    Best best = empty();
    if (row < rows) look(best, 4 + slice, SLICES, 4 + p.classes, [&](u32 i) { return widen(values[i * rows]); }, 4);
    slices[slice][lane] = best;
    __syncthreads();
    if (slice) return;
#pragma unroll
    for (u32 i = 1; i < SLICES; i++) best.join(slices[i][lane]);
    bool passes = best.cls != NONE && best.score >= p.least && reaches(p, best.score, best.cls);
    float4 box = {};
    if (passes) {
        box = box_of(p, row, widen(values[0]), widen(values[rows]), widen(values[2 * rows]), widen(values[3 * rows]));
        passes = is_box(box);
    }
    append(p, passes, row, box, best.score, best.cls);
}

extern "C" __global__ __launch_bounds__(DECODE_THREADS) void decode_rows_f32(DecodeParams p) {
    decode_rows<float>(p);
}

extern "C" __global__ __launch_bounds__(DECODE_THREADS) void decode_rows_f16(DecodeParams p) {
    decode_rows<uint16_t>(p);
}

extern "C" __global__ __launch_bounds__(SLICES * 32) void decode_columns_f32(DecodeParams p) {
    decode_columns<float>(p);
}

extern "C" __global__ __launch_bounds__(SLICES * 32) void decode_columns_f16(DecodeParams p) {
    decode_columns<uint16_t>(p);
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
    float score = 0;
    u32 cls = 0;
    if (passes) {
        const float id = number(p.sources[2], row) - p.first_class;
        passes = id >= 0 && id < static_cast<float>(p.classes);
        if (passes) {
            cls = static_cast<u32>(id);
            score = number(p.sources[1], row);
            passes = reaches(p, score, cls);
        }
    }
    float4 box = {};
    if (passes) {
        const Source& boxes = p.sources[0];
        box = box_of(p, row, number(boxes, row, 0), number(boxes, row, 1), number(boxes, row, 2), number(boxes, row, 3));
        passes = is_box(box);
    }
    append(p, passes, row, box, score, cls);
}
