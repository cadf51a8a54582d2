// SPDX-License-Identifier: MPL-2.0
// overlay: marks on a frame, in place.
//   in    marks [*count], glyphs of their texts, coverage [glyph][height][width] of the font
//   io    planes of a frame, rows `strides` bytes apart
//   grid  y is the part of a mark, from first_part on: four sides, then the tag; blocks of x, no more than there is room for marks, share the
//         marks, and those of z the pieces of a part, of PIECE cells each, for how many there are is known on the GPU only
//   math  no mark reads the frame, and every sample takes the value of the last mark that touches it. A block writes the
//         samples of its part that no later mark touches: so each is written by its last mark, whatever runs when, and those
//         that two sides of one mark share take the same value from both.
//   face  src/cuda/kernels/overlay.rs, which mirrors Parameters; the twin is src/vision/overlay/paint.rs
#include "marks.cuh"

inline constexpr uint32_t CELLS = 8; // of a thread
inline constexpr uint32_t PIECE = THREADS * CELLS;
inline constexpr uint32_t TAG = 4;

struct Parameters {
    uint8_t *planes[3];
    const uint32_t *count;
    const Mark *marks;
    const uint16_t *text;
    const uint8_t *coverage;
    uint32_t strides[3];
    uint32_t glyph_width, glyph_height;
    uint32_t first_part; // what blockIdx.y counts from
};

static_assert(sizeof(Parameters) == 80, "mirrored in overlay.rs");

__device__ inline bool holds(const Rect &rect, uint32_t x, uint32_t y) {
    return rect.left <= x && x < rect.right && rect.top <= y && y < rect.bottom;
}

__device__ inline bool meets(const Rect &a, const Rect &b) {
    return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

__device__ inline bool lies_in(const Rect &a, const Rect &b) {
    return b.left <= a.left && a.right <= b.right && b.top <= a.top && a.bottom <= b.bottom;
}

// As Mark::sides of the twin; any may be empty.
__device__ inline Rect part_of(const Mark &mark, uint32_t part) {
    const Rect &outer = mark.outer, &inner = mark.inner;
    switch (part) {
        case 0: return {outer.left, outer.top, outer.right, inner.top};
        case 1: return {outer.left, inner.bottom, outer.right, outer.bottom};
        case 2: return {outer.left, inner.top, inner.left, inner.bottom};
        case 3: return {inner.right, inner.top, outer.right, inner.bottom};
        default: return mark.tag;
    }
}

// What a mark may touch: pixels in `outer` and not in `inner`.
struct Ring {
    Rect outer, inner;
};

// All outlines come before all tags.
__device__ inline Ring ring_of(const Parameters &p, uint32_t count, uint32_t turn) {
    if (turn < count) return {p.marks[turn].outer, p.marks[turn].inner};
    return {p.marks[turn - count].tag, {}};
}

// 0 paper .. 255 ink, at a pixel of the tag.
__device__ inline uint32_t coverage_at(const Parameters &p, const Mark &mark, uint32_t x, uint32_t y) {
    // Left of the text this wraps around to a great number.
    const uint32_t column = x - (mark.tag.left + p.glyph_width / 2);
    const uint32_t letter = column / p.glyph_width;
    if (letter >= mark.text_len) return 0;
    const uint32_t glyph = p.text[mark.text_start + letter];
    return p.coverage[(glyph * p.glyph_height + (y - mark.tag.top)) * p.glyph_width + column % p.glyph_width];
}

__device__ inline uint8_t blend(uint8_t paper, uint8_t ink, uint32_t coverage) {
    return (paper * (255 - coverage) + ink * coverage + 127) / 255;
}

// Where sample x, y of a plane begins, in samples of `bytes` bytes.
template <typename Frame>
__device__ inline uint8_t *at(const Frame &p, uint32_t plane, uint32_t x, uint32_t y, uint32_t bytes) {
    return p.planes[plane] + uint64_t(y) * p.strides[plane] + uint64_t(x) * bytes;
}

// A format: pixels along a side of a cell, which is what chroma has one sample for; how a pixel is stored, and chroma.

template <uint32_t BYTES>
struct Packed {
    static constexpr uint32_t CELL = 1;
    template <typename Frame>
    __device__ static void pixel(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        uint8_t *to = at(p, 0, x, y, BYTES);
        for (uint32_t i = 0; i < BYTES; i++) to[i] = sample.parts[i];
    }
    template <typename Frame>
    __device__ static void chroma(const Frame &, uint32_t, uint32_t, const Sample &) {}
};

struct Nv12 {
    static constexpr uint32_t CELL = 2;
    template <typename Frame>
    __device__ static void pixel(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        Packed<1>::pixel(p, x, y, sample);
    }
    template <typename Frame>
    __device__ static void chroma(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        uint8_t *to = at(p, 1, x, y, 2);
        to[0] = sample.parts[1];
        to[1] = sample.parts[2];
    }
};

// The words' upper bytes.
struct P010 {
    static constexpr uint32_t CELL = 2;
    template <typename Frame>
    __device__ static void pixel(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        *reinterpret_cast<uint16_t *>(at(p, 0, x, y, 2)) = sample.parts[0] << 8;
    }
    template <typename Frame>
    __device__ static void chroma(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        uint16_t *to = reinterpret_cast<uint16_t *>(at(p, 1, x, y, 4));
        to[0] = sample.parts[1] << 8;
        to[1] = sample.parts[2] << 8;
    }
};

struct I420 {
    static constexpr uint32_t CELL = 2;
    template <typename Frame>
    __device__ static void pixel(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        Packed<1>::pixel(p, x, y, sample);
    }
    template <typename Frame>
    __device__ static void chroma(const Frame &p, uint32_t x, uint32_t y, const Sample &sample) {
        *at(p, 1, x, y, 1) = sample.parts[1];
        *at(p, 2, x, y, 1) = sample.parts[2];
    }
};

// A part in cells.
struct Cells {
    uint32_t left, top, width, count;
};

// Cells first..last of a part of mark `number`.
template <typename Format>
__device__ inline void paint(const Parameters &p, uint32_t count, uint32_t number, const Mark &mark, const Rect &part,
                             const Cells &cells, uint32_t first, uint32_t last) {
    constexpr uint32_t CELL = Format::CELL;
    const uint32_t left = cells.left, top = cells.top, width = cells.width;
    const Rect piece = {left * CELL, (top + first / width) * CELL, (left + width) * CELL, (top + last / width + 1) * CELL};

    uint32_t xs[CELLS], ys[CELLS];
#pragma unroll
    for (uint32_t i = 0; i < CELLS; i++) {
        const uint32_t cell = first + i * THREADS + threadIdx.x;
        xs[i] = (left + cell % width) * CELL;
        ys[i] = (top + cell / width) * CELL;
    }

    // A bit for each pixel of each cell that a later mark touches.
    uint32_t covered = 0;
    __shared__ Ring rings[THREADS];
    __shared__ uint32_t found;
    const bool is_tag = blockIdx.y + p.first_part == TAG;
    const uint32_t turn = number + (is_tag ? count : 0);
    for (uint32_t next = turn + 1; next < 2 * count; next += THREADS) {
        if (threadIdx.x == 0) found = 0;
        __syncthreads();
        if (next + threadIdx.x < 2 * count) {
            const Ring ring = ring_of(p, count, next + threadIdx.x);
            if (meets(ring.outer, piece) && !lies_in(piece, ring.inner)) rings[atomicAdd(&found, 1)] = ring;
        }
        __syncthreads();
        for (uint32_t r = 0; r < found; r++) {
            const Ring ring = rings[r];
#pragma unroll
            for (uint32_t i = 0; i < CELLS; i++)
#pragma unroll
                for (uint32_t k = 0; k < CELL * CELL; k++) {
                    const uint32_t x = xs[i] + k % CELL, y = ys[i] + k / CELL;
                    if (holds(ring.outer, x, y) && !holds(ring.inner, x, y)) covered |= 1u << (i * 4 + k);
                }
        }
        __syncthreads();
    }

#pragma unroll
    for (uint32_t i = 0; i < CELLS; i++) {
        if (first + i * THREADS + threadIdx.x > last) break;
        const uint32_t hidden = covered >> (i * 4) & 15;
        if (CELL > 1 && hidden == 0) Format::chroma(p, xs[i] / CELL, ys[i] / CELL, mark.paper);
        for (uint32_t k = 0; k < CELL * CELL; k++) {
            const uint32_t x = xs[i] + k % CELL, y = ys[i] + k / CELL;
            if (!holds(part, x, y) || hidden >> k & 1) continue;
            Sample sample = mark.paper;
            if (is_tag) {
                const uint32_t coverage = coverage_at(p, mark, x, y);
#pragma unroll
                for (uint32_t c = 0; c < 4; c++) sample.parts[c] = blend(sample.parts[c], mark.ink.parts[c], coverage);
            }
            Format::pixel(p, x, y, sample);
        }
    }
}

template <typename Format>
__device__ inline void overlay(const Parameters &p) {
    constexpr uint32_t CELL = Format::CELL;
    // The first mark is loaded together with their number, though it may be beyond.
    Mark mark = p.marks[blockIdx.x];
    const uint32_t count = *p.count;
    for (uint32_t number = blockIdx.x; number < count; number += gridDim.x) {
        if (number != blockIdx.x) mark = p.marks[number];
        const Rect part = part_of(mark, blockIdx.y + p.first_part);
        // An empty rectangle at an odd place would have cells.
        if (is_empty(part)) continue;
        Cells cells = {part.left / CELL, part.top / CELL};
        cells.width = (part.right + CELL - 1) / CELL - cells.left;
        cells.count = ((part.bottom + CELL - 1) / CELL - cells.top) * cells.width;
        for (uint32_t first = blockIdx.z * PIECE; first < cells.count; first += gridDim.z * PIECE)
            paint<Format>(p, count, number, mark, part, cells, first, min(first + PIECE, cells.count) - 1);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) overlay_nv12(const __grid_constant__ Parameters p) { overlay<Nv12>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) overlay_p010(const __grid_constant__ Parameters p) { overlay<P010>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) overlay_i420(const __grid_constant__ Parameters p) { overlay<I420>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) overlay_packed1(const __grid_constant__ Parameters p) { overlay<Packed<1>>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) overlay_packed3(const __grid_constant__ Parameters p) { overlay<Packed<3>>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) overlay_packed4(const __grid_constant__ Parameters p) { overlay<Packed<4>>(p); }

// strokes_*: skeletons on a frame, in place, between outlines and tags.
//   in    strokes [*count * each]
//   io    planes of a frame
//   grid  a block for each tile of TILE_WIDTH x TILE_HEIGHT cells, a thread for each cell
//   math  integers; every sample takes the value of the last stroke that touches it: it is looked for from the last one on
//   twin  src/vision/overlay/strokes.rs
struct StrokeParameters {
    uint8_t *planes[3];
    const uint32_t *count;
    const Stroke *strokes;
    uint32_t strides[3];
    uint32_t each; // strokes of an object
    uint32_t width, height; // of the frame
};

static_assert(sizeof(StrokeParameters) == 64, "mirrored in overlay.rs");

inline constexpr uint32_t TILE_WIDTH = 16, TILE_HEIGHT = THREADS / TILE_WIDTH;
inline constexpr uint32_t FULL_MASK = 0xffffffff;

using int64_t = long long;

// As Stroke::touches of the twin.
__device__ inline bool touches(const Stroke &stroke, int32_t x, int32_t y) {
    const auto square = [](int64_t a, int64_t b) { return uint64_t(a * a + b * b); };
    const int64_t along_x = stroke.to_x - stroke.from_x, along_y = stroke.to_y - stroke.from_y;
    const int64_t at_x = x - stroke.from_x, at_y = y - stroke.from_y;
    const uint64_t length = square(along_x, along_y), width = uint64_t(stroke.width) * stroke.width;
    const int64_t forward = at_x * along_x + at_y * along_y;
    if (forward <= 0) return 4 * square(at_x, at_y) <= width;
    if (uint64_t(forward) >= length) return 4 * square(x - stroke.to_x, y - stroke.to_y) <= width;
    const int64_t across = at_x * along_y - at_y * along_x;
    return 4 * uint64_t(across * across) <= width * length;
}

template <typename Format>
__device__ inline void draw_strokes(const StrokeParameters &p) {
    constexpr int32_t CELL = Format::CELL;
    const int32_t left = blockIdx.x * TILE_WIDTH * CELL, top = blockIdx.y * TILE_HEIGHT * CELL;
    const int32_t right = left + TILE_WIDTH * CELL, bottom = top + TILE_HEIGHT * CELL;
    const int32_t x = left + threadIdx.x % TILE_WIDTH * CELL, y = top + threadIdx.x / TILE_WIDTH * CELL;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t count = *p.count * p.each;
    __shared__ Stroke near[THREADS];
    __shared__ uint32_t found[THREADS / 32];
    // A bit for each pixel of the cell that is in the frame and has no colour yet; and whether chroma has none.
    uint32_t open = 0;
#pragma unroll
    for (int32_t k = 0; k < CELL * CELL; k++) {
        if (x + k % CELL < p.width && y + k / CELL < p.height) open |= 1u << k;
    }
    const uint32_t inside = open;
    bool chroma_open = CELL > 1;
    for (uint32_t done = 0; done < count; done += THREADS) {
        Stroke stroke = {};
        if (done + threadIdx.x < count) stroke = p.strokes[count - 1 - done - threadIdx.x];
        const int32_t reach = stroke.width / 2;
        const bool is_near = stroke.width && min(stroke.from_x, stroke.to_x) - reach < right &&
                             max(stroke.from_x, stroke.to_x) + reach >= left && min(stroke.from_y, stroke.to_y) - reach < bottom &&
                             max(stroke.from_y, stroke.to_y) + reach >= top;
        const uint32_t bits = __ballot_sync(FULL_MASK, is_near);
        __syncthreads(); // the strokes before are done with
        if (lane == 0) found[warp] = __popc(bits);
        __syncthreads();
        uint32_t place = __popc(bits & ((1u << lane) - 1)), total = 0;
#pragma unroll
        for (uint32_t i = 0; i < THREADS / 32; i++) {
            if (i < warp) place += found[i];
            total += found[i];
        }
        if (is_near) near[place] = stroke;
        __syncthreads();
        for (uint32_t i = 0; i < total && (open || chroma_open); i++) {
            const Stroke stroke = near[i];
            bool any = false;
#pragma unroll
            for (int32_t k = 0; k < CELL * CELL; k++) {
                if (!(inside >> k & 1) || !touches(stroke, x + k % CELL, y + k / CELL)) continue;
                any = true;
                if (open >> k & 1) Format::pixel(p, x + k % CELL, y + k / CELL, stroke.paper);
                open &= ~(1u << k);
            }
            if (any && chroma_open) {
                Format::chroma(p, x / CELL, y / CELL, stroke.paper);
                chroma_open = false;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) strokes_nv12(const __grid_constant__ StrokeParameters p) { draw_strokes<Nv12>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) strokes_p010(const __grid_constant__ StrokeParameters p) { draw_strokes<P010>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) strokes_i420(const __grid_constant__ StrokeParameters p) { draw_strokes<I420>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) strokes_packed1(const __grid_constant__ StrokeParameters p) { draw_strokes<Packed<1>>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) strokes_packed3(const __grid_constant__ StrokeParameters p) { draw_strokes<Packed<3>>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) strokes_packed4(const __grid_constant__ StrokeParameters p) { draw_strokes<Packed<4>>(p); }
