// SPDX-License-Identifier: MPL-2.0
// Labelled boxes on a frame, in place.
//   in    boxes [*count], glyphs of their texts, coverage [glyph][height][width] of the font
//   io    planes of a frame, rows `strides` bytes apart
//   grid  y is the part of a box, from FIRST on: four sides, then the tag; blocks of x, at most as many as there is room for boxes,
//         share the boxes, and those of z the pieces of a part, of PIECE cells each, for how many there are is known on the
//         GPU only
//   math  no box reads the frame, and every sample takes the value of the last box that touches it. A block writes the
//         samples of its part that no later box touches: so each is written by its last box, in any order of execution, and those
//         that two sides of one box share take the same value from both.
//   Reference implementation: src/image/overlay/paint.rs.
#pragma once

#include "formats.cuh"

inline constexpr uint32_t CELLS = 8; // of a thread
inline constexpr uint32_t PIECE = THREADS * CELLS;
// At rings by a thread, before those that are near are drawn. With more, the memory for rings keeps blocks of other boxes waiting.
inline constexpr uint32_t LOOKS = 2;
inline constexpr uint32_t TAG = 4;

struct Parameters {
    uint8_t *planes[3];
    const uint32_t *count;
    const LabeledBox *boxes;
    const uint16_t *text;
    const uint8_t *coverage;
    uint32_t strides[3];
    uint32_t glyph_width, glyph_height;
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

// As LabeledBox::sides of the reference implementation; any may be empty.
__device__ inline Rect part_of(const LabeledBox &labeled, uint32_t part) {
    const Rect &outer = labeled.outer, &inner = labeled.inner;
    switch (part) {
        case 0: return {outer.left, outer.top, outer.right, inner.top};
        case 1: return {outer.left, inner.bottom, outer.right, outer.bottom};
        case 2: return {outer.left, inner.top, inner.left, inner.bottom};
        case 3: return {inner.right, inner.top, outer.right, inner.bottom};
        default: return labeled.tag;
    }
}

// The pixels that a box may touch: those in `outer` and not in `inner`.
struct Ring {
    Rect outer, inner;
};

// All outlines come before all tags. No branch is around the loads, so that those of several rings are in flight together.
__device__ inline Ring ring_of(const Parameters &p, uint32_t count, uint32_t turn) {
    const bool is_tag = turn >= count;
    const LabeledBox &labeled = p.boxes[is_tag ? turn - count : turn];
    Ring ring = {*(is_tag ? &labeled.tag : &labeled.outer), labeled.inner};
    if (is_tag) ring.inner = {};
    return ring;
}

// 0 background .. 255 text, at a pixel of the tag.
__device__ inline uint32_t coverage_at(const Parameters &p, const LabeledBox &labeled, uint32_t x, uint32_t y) {
    // Left of the text this wraps around to a great number.
    const uint32_t column = x - (labeled.tag.left + p.glyph_width / 2);
    const uint32_t letter = column / p.glyph_width;
    if (letter >= labeled.text_len) return 0;
    const uint32_t glyph = p.text[labeled.text_start + letter];
    return p.coverage[(glyph * p.glyph_height + (y - labeled.tag.top)) * p.glyph_width + column % p.glyph_width];
}

__device__ inline uint8_t blend(uint8_t background, uint8_t text, uint32_t coverage) {
    return (background * (255 - coverage) + text * coverage + 127) / 255;
}

// A part in cells.
struct Cells {
    uint32_t left, top, width, count;
};

// Cells first..last of a part of box `number`.
template <typename Format, uint32_t FIRST>
__device__ inline void paint(const Parameters &p, uint32_t count, uint32_t number, const LabeledBox &labeled, const Rect &part,
                             const Cells &cells, uint32_t first, uint32_t last) {
    constexpr uint32_t CELL = Format::CELL;
    const uint32_t left = cells.left, top = cells.top, width = cells.width;
    // Cells of the thread with the most: a side of a usual box has one or two for each.
    const uint32_t most = (last - first) / THREADS + 1;
    const Rect piece = {left * CELL, (top + first / width) * CELL, (left + width) * CELL, (top + last / width + 1) * CELL};

    uint32_t xs[CELLS], ys[CELLS];
#pragma unroll
    for (uint32_t i = 0; i < CELLS; i++) {
        if (i == most) break;
        const uint32_t cell = first + i * THREADS + threadIdx.x;
        xs[i] = (left + cell % width) * CELL;
        ys[i] = (top + cell / width) * CELL;
    }

    // A bit for each pixel of each cell that a later box touches.
    uint32_t covered = 0;
    __shared__ Ring rings[THREADS * LOOKS];
    __shared__ uint32_t found;
    const bool is_tag = FIRST == TAG || blockIdx.y == TAG;
    const uint32_t turn = number + (is_tag ? count : 0);
    for (uint32_t next = turn + 1; next < 2 * count; next += THREADS * LOOKS) {
        if (threadIdx.x == 0) found = 0;
        // A bit for each look. The few that are near are read once more, from the cache, so that no thread must hold them all.
        uint32_t near = 0;
#pragma unroll
        for (uint32_t i = 0; i < LOOKS; i++) {
            const uint32_t at = next + i * THREADS + threadIdx.x;
            const Ring ring = ring_of(p, count, min(at, 2 * count - 1));
            if (at < 2 * count && meets(ring.outer, piece) && !lies_in(piece, ring.inner)) near |= 1u << i;
        }
        __syncthreads();
        for (; near; near &= near - 1) {
            const uint32_t at = next + (__ffs(near) - 1) * THREADS + threadIdx.x;
            rings[atomicAdd(&found, 1)] = ring_of(p, count, at);
        }
        __syncthreads();
        for (uint32_t r = 0; r < found; r++) {
            const Ring ring = rings[r];
#pragma unroll
            for (uint32_t i = 0; i < CELLS; i++) {
                if (i == most) break;
                // Most cells of a piece are beyond the ring or in its hole, which takes less to see than where each pixel is.
                const Rect cell = {xs[i], ys[i], xs[i] + CELL, ys[i] + CELL};
                if (!meets(ring.outer, cell) || lies_in(cell, ring.inner)) continue;
#pragma unroll
                for (uint32_t k = 0; k < CELL * CELL; k++) {
                    const uint32_t x = xs[i] + k % CELL, y = ys[i] + k / CELL;
                    if (holds(ring.outer, x, y) && !holds(ring.inner, x, y)) covered |= 1u << (i * 4 + k);
                }
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (uint32_t i = 0; i < CELLS; i++) {
        if (first + i * THREADS + threadIdx.x > last) break;
        const uint32_t hidden = covered >> (i * 4) & 15;
        if (CELL > 1 && hidden == 0) Format::chroma(p, xs[i] / CELL, ys[i] / CELL, labeled.color);
        for (uint32_t k = 0; k < CELL * CELL; k++) {
            const uint32_t x = xs[i] + k % CELL, y = ys[i] + k / CELL;
            if (!holds(part, x, y) || hidden >> k & 1) continue;
            Sample sample = labeled.color;
            if (is_tag) {
                const uint32_t coverage = coverage_at(p, labeled, x, y);
#pragma unroll
                for (uint32_t c = 0; c < 4; c++) sample.parts[c] = blend(sample.parts[c], labeled.text_color.parts[c], coverage);
            }
            Format::pixel(p, x, y, sample);
        }
    }
}

template <typename Format, uint32_t FIRST>
__device__ inline void overlay(const Parameters &p) {
    constexpr uint32_t CELL = Format::CELL;
    // The first box is loaded together with their number, though it may be beyond.
    LabeledBox labeled = p.boxes[blockIdx.x];
    const uint32_t count = *p.count;
    for (uint32_t number = blockIdx.x; number < count; number += gridDim.x) {
        if (number != blockIdx.x) labeled = p.boxes[number];
        const Rect part = part_of(labeled, FIRST == TAG ? TAG : blockIdx.y);
        // An empty rectangle at an odd position would have cells.
        if (is_empty(part)) continue;
        Cells cells = {part.left / CELL, part.top / CELL};
        cells.width = (part.right + CELL - 1) / CELL - cells.left;
        cells.count = ((part.bottom + CELL - 1) / CELL - cells.top) * cells.width;
        for (uint32_t first = blockIdx.z * PIECE; first < cells.count; first += gridDim.z * PIECE)
            paint<Format, FIRST>(p, count, number, labeled, part, cells, first, min(first + PIECE, cells.count) - 1);
    }
}
