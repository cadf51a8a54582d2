// SPDX-License-Identifier: MPL-2.0
// What plan.cu, overlay.cu and strokes.cu share: labelled boxes and strokes, as in src/image/overlay/plan.rs.
#pragma once

#include "common.cuh"

inline constexpr uint32_t THREADS = 128;

struct alignas(16) Rect {
    uint32_t left, top, right, bottom;
};

// Bytes of a pixel in memory order, or Y, U, V.
struct Sample {
    uint8_t parts[4];
};

struct LabeledBox {
    Rect outer, inner, tag;
    Sample color, text_color;
    uint32_t text_start, text_len;
};

static_assert(sizeof(LabeledBox) == 64, "mirrored by image::overlay::plan::LabeledBox");

// A line with round ends; a disc if both ends are the same point. A width of 0 draws nothing.
struct alignas(16) Stroke {
    int32_t from_x, from_y, to_x, to_y;
    uint32_t width;
    Sample color;
    uint32_t unused[2];
};

static_assert(sizeof(Stroke) == 32, "mirrored by image::overlay::strokes::Stroke");

__device__ inline bool is_empty(const Rect &rect) { return rect.left >= rect.right || rect.top >= rect.bottom; }
