// SPDX-License-Identifier: MPL-2.0
// Frames with skeletons or rotated boxes: strokes, and the tags that lie above them. src/image/overlay/kernel.rs launches both.
//
// strokes_*: lines with round ends on a frame, in place.
//   in    strokes [*count * each]
//   io    planes of a frame
//   grid  a block for each tile of TILE_WIDTH x TILE_HEIGHT cells, a thread for each cell
//   math  integers; every sample takes the value of the last stroke that touches it: the search starts at the last one
//   Reference implementation: src/image/overlay/strokes.rs.
// tags_*: tags of all boxes without their outlines, as in paint.cuh.
#include "paint.cuh"

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
inline constexpr uint32_t FULL_WARP_MASK = 0xffffffff;

using int64_t = long long;

// As Stroke::touches of the reference implementation.
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
        const uint32_t bits = __ballot_sync(FULL_WARP_MASK, is_near);
        __syncthreads(); // the previous strokes are no longer used
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
                if (open >> k & 1) Format::pixel(p, x + k % CELL, y + k / CELL, stroke.color);
                open &= ~(1u << k);
            }
            if (any && chroma_open) {
                Format::chroma(p, x / CELL, y / CELL, stroke.color);
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

extern "C" __global__ void __launch_bounds__(THREADS) tags_nv12(const __grid_constant__ Parameters p) { overlay<Nv12, TAG>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) tags_p010(const __grid_constant__ Parameters p) { overlay<P010, TAG>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) tags_i420(const __grid_constant__ Parameters p) { overlay<I420, TAG>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) tags_packed1(const __grid_constant__ Parameters p) { overlay<Packed<1>, TAG>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) tags_packed3(const __grid_constant__ Parameters p) { overlay<Packed<3>, TAG>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) tags_packed4(const __grid_constant__ Parameters p) { overlay<Packed<4>, TAG>(p); }
