// overlay_plan: detections -> marks and the glyphs of their texts.
//   in    found: how many, then each, best first, as nms.cu writes them; names of classes as glyphs
//   out   `limit` marks, *count of them for the detections, the weakest first; what shows nothing is empty, and so are the
//         others; texts `text_stride` glyphs apart
//   grid  a thread for each of `limit` detections
//   math  that of src/vision/geometry.rs, and of src/vision/overlay/plan.rs and color.rs, which are the twin
//   face  src/cuda/kernels/overlay.rs, which mirrors PlanParameters
//
// overlay_*: marks on a frame, in place.
//   in    marks [*count], glyphs of their texts, coverage [glyph][height][width] of the font
//   io    planes of a frame, rows `strides` bytes apart
//   grid  y is the part of a mark: four sides, then the tag; blocks of x, no more than there is room for marks, share the
//         marks, and those of z the pieces of a part, of PIECE cells each, for how many there are is known on the GPU only
//   math  no mark reads the frame, and every sample takes the value of the last mark that touches it. A block writes the
//         samples of its part that no later mark touches: so each is written by its last mark, whatever runs when, and those
//         that two sides of one mark share take the same value from both.
//   face  src/cuda/kernels/overlay.rs, which mirrors Parameters; the twin is src/vision/overlay/paint.rs
#include "common.cuh"

inline constexpr uint32_t THREADS = 128;
inline constexpr uint32_t CELLS = 8; // of a thread
inline constexpr uint32_t PIECE = THREADS * CELLS;
inline constexpr uint32_t TAG = 4;

struct alignas(16) Rect {
    uint32_t left, top, right, bottom;
};

// Bytes of a pixel in memory order, or Y, U, V.
struct Sample {
    uint8_t parts[4];
};

struct Mark {
    Rect outer, inner, tag;
    Sample paper, ink;
    uint32_t text_start, text_len;
};

struct Parameters {
    uint8_t *planes[3];
    const uint32_t *count;
    const Mark *marks;
    const uint16_t *text;
    const uint8_t *coverage;
    uint32_t strides[3];
    uint32_t glyph_width, glyph_height;
};

struct Detection {
    float x1, y1, x2, y2, score;
    uint32_t cls, anchor;
};

struct Found {
    uint32_t count;
    uint32_t unused[3];
    Detection detections[1]; // [limit]
};

struct PlanParameters {
    const Found *found;
    uint32_t *count;
    Mark *marks;
    uint16_t *text;
    const uint16_t *names; // of each class `name_stride`: how many glyphs, none where it has no name, then these
    uint32_t limit;
    uint32_t name_count, name_stride;
    uint32_t text_stride;
    uint32_t room; // glyphs that fit in a tag; 0 for no tags
    uint32_t line;
    uint32_t glyph_width, glyph_height;
    uint32_t width, height; // of the frame
    uint32_t in_tensor; // boxes are in pixels of the tensor, from which these lead to the frame
    float left, top, scale_x, scale_y;
    // Colours: where red, green and blue lie in a pixel, or else Y'CbCr.
    uint32_t is_rgb;
    uint32_t red, green, blue;
    uint32_t is_gray;
    float kr, kb, black, luma_range, chroma_range;
};

__device__ inline bool is_empty(const Rect &rect) { return rect.left >= rect.right || rect.top >= rect.bottom; }

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
__device__ inline uint8_t *at(const Parameters &p, uint32_t plane, uint32_t x, uint32_t y, uint32_t bytes) {
    return p.planes[plane] + uint64_t(y) * p.strides[plane] + uint64_t(x) * bytes;
}

// A format: pixels along a side of a cell, which is what chroma has one sample for; how a pixel is stored, and chroma.

template <uint32_t BYTES>
struct Packed {
    static constexpr uint32_t CELL = 1;
    __device__ static void pixel(const Parameters &p, uint32_t x, uint32_t y, const Sample &sample) {
        uint8_t *to = at(p, 0, x, y, BYTES);
        for (uint32_t i = 0; i < BYTES; i++) to[i] = sample.parts[i];
    }
    __device__ static void chroma(const Parameters &, uint32_t, uint32_t, const Sample &) {}
};

struct Nv12 {
    static constexpr uint32_t CELL = 2;
    __device__ static void pixel(const Parameters &p, uint32_t x, uint32_t y, const Sample &sample) {
        Packed<1>::pixel(p, x, y, sample);
    }
    __device__ static void chroma(const Parameters &p, uint32_t x, uint32_t y, const Sample &sample) {
        uint8_t *to = at(p, 1, x, y, 2);
        to[0] = sample.parts[1];
        to[1] = sample.parts[2];
    }
};

// The words' upper bytes.
struct P010 {
    static constexpr uint32_t CELL = 2;
    __device__ static void pixel(const Parameters &p, uint32_t x, uint32_t y, const Sample &sample) {
        *reinterpret_cast<uint16_t *>(at(p, 0, x, y, 2)) = sample.parts[0] << 8;
    }
    __device__ static void chroma(const Parameters &p, uint32_t x, uint32_t y, const Sample &sample) {
        uint16_t *to = reinterpret_cast<uint16_t *>(at(p, 1, x, y, 4));
        to[0] = sample.parts[1] << 8;
        to[1] = sample.parts[2] << 8;
    }
};

struct I420 {
    static constexpr uint32_t CELL = 2;
    __device__ static void pixel(const Parameters &p, uint32_t x, uint32_t y, const Sample &sample) {
        Packed<1>::pixel(p, x, y, sample);
    }
    __device__ static void chroma(const Parameters &p, uint32_t x, uint32_t y, const Sample &sample) {
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
    const uint32_t turn = number + (blockIdx.y == TAG ? count : 0);
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
            if (blockIdx.y == TAG) {
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
        const Rect part = part_of(mark, blockIdx.y);
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

// ---------------------------------------------------------------------------- the plan

// Keeps what is not a number, which fminf and fmaxf would not.
__device__ inline float clamp(float value, float least, float most) {
    return value < least ? least : value > most ? most : value;
}

struct Box {
    float x1, y1, x2, y2;
};

__device__ inline bool is_valid(const Box &box) {
    constexpr float MOST = 3.402823466e38f;
    const float width = box.x2 - box.x1, height = box.y2 - box.y1;
    return width > 0 && height > 0 && width <= MOST && height <= MOST;
}

// As Letterbox::to_frame.
__device__ inline Box to_frame(const PlanParameters &p, const Box &box) {
    const float width = p.width, height = p.height;
    return {clamp((box.x1 - p.left) * p.scale_x, 0, width), clamp((box.y1 - p.top) * p.scale_y, 0, height),
            clamp((box.x2 - p.left) * p.scale_x, 0, width), clamp((box.y2 - p.top) * p.scale_y, 0, height)};
}

// Of one axis: outer start, inner start, inner end, outer end.
struct Edges {
    uint32_t start, inner_start, inner_end, end;
};

__device__ inline Edges edges(float from, float to, uint32_t line, uint32_t size) {
    constexpr int32_t FAR = 1 << 24;
    const auto edge = [](float position) { return int32_t(fminf(fmaxf(roundf(position), -FAR), FAR)); };
    const auto within = [&](int32_t edge) { return uint32_t(min(max(edge, 0), int32_t(min(size, uint32_t(FAR))))); };
    const int32_t start = edge(from), end = max(edge(to), start + 1);
    const int32_t inner_start = min(start + int32_t(line), end), inner_end = max(end - int32_t(line), inner_start);
    return {within(start), within(inner_start), within(inner_end), within(end)};
}

struct Rgb {
    uint32_t r, g, b;
};

// As class_color.
__device__ inline Rgb color_of(uint32_t cls) {
    constexpr uint32_t GOLDEN = 0x9E3779B9, START = 0x94000000, LOW = 88, HIGH = 255;
    const uint64_t turn = uint32_t(cls * GOLDEN + START);
    const uint32_t step = 6 * turn >> 24, slope = (HIGH - LOW) * (step % 256) / 256;
    const uint32_t rise = LOW + slope, fall = HIGH - slope;
    switch (step / 256) {
        case 0: return {HIGH, rise, LOW};
        case 1: return {fall, HIGH, LOW};
        case 2: return {LOW, HIGH, rise};
        case 3: return {LOW, fall, HIGH};
        case 4: return {rise, LOW, HIGH};
        default: return {HIGH, LOW, fall};
    }
}

__device__ inline Rgb ink_on(const Rgb &color) {
    const uint32_t luma = (299 * color.r + 587 * color.g + 114 * color.b) / 1000, ink = luma < 128 ? 255 : 0;
    return {ink, ink, ink};
}

// As sample of color.rs.
__device__ inline Sample sample(const PlanParameters &p, const Rgb &color) {
    Sample sample = {{255, 255, 255, 255}};
    if (p.is_rgb) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (i == p.red) sample.parts[i] = color.r;
            if (i == p.green) sample.parts[i] = color.g;
            if (i == p.blue) sample.parts[i] = color.b;
        }
        return sample;
    }
    const auto byte = [](float value) { return uint8_t(fminf(fmaxf(roundf(value), 0), 255)); };
    const float r = color.r / 255.0f, g = color.g / 255.0f, b = color.b / 255.0f;
    const float luma = (p.kr * r + (1.0f - p.kr - p.kb) * g) + p.kb * b;
    sample.parts[0] = byte(p.black + p.luma_range * luma);
    if (!p.is_gray) {
        sample.parts[1] = byte(128.0f + p.chroma_range * (b - luma) / (2.0f - 2.0f * p.kb));
        sample.parts[2] = byte(128.0f + p.chroma_range * (r - luma) / (2.0f - 2.0f * p.kr));
    }
    return sample;
}

// Glyphs up to as many as there is room for.
struct Text {
    uint16_t *to;
    uint32_t room, length;

    __device__ inline void put(uint16_t glyph) {
        if (length < room) to[length++] = glyph;
    }
    __device__ inline void letter(char letter) { put(letter - ' '); }
    __device__ inline void number(uint32_t number) {
        uint32_t unit = 1;
        while (number / unit > 9) unit *= 10;
        for (; unit; unit /= 10) letter('0' + number / unit % 10);
    }
};

// "person 87%", or "#7 87%".
__device__ inline uint32_t describe(const PlanParameters &p, const Detection &detection, uint16_t *to) {
    Text text = {to, p.room, 0};
    const uint16_t *name = p.names + uint64_t(detection.cls) * p.name_stride;
    const uint32_t length = detection.cls < p.name_count ? __ldg(name) : 0;
    for (uint32_t i = 0; i < length; i++) text.put(__ldg(name + 1 + i));
    if (length == 0) {
        text.letter('#');
        text.number(detection.cls);
    }
    text.letter(' ');
    text.number(roundf(fminf(fmaxf(detection.score, 0.0f), 1.0f) * 100.0f));
    text.letter('%');
    return text.length;
}

// Above the box, or in its corner where there is no room; moved left or up as far as the frame demands.
__device__ inline Rect tag_of(const PlanParameters &p, const Rect &outer, uint32_t length) {
    if (length == 0) return {};
    const uint32_t width = length * p.glyph_width + p.glyph_width / 2 * 2, height = p.glyph_height;
    const uint32_t left = min(outer.left, p.width - width);
    const uint32_t top = outer.top >= height ? outer.top - height : min(outer.top, p.height - height);
    return {left, top, left + width, top + height};
}

extern "C" __global__ void __launch_bounds__(THREADS) overlay_plan(const __grid_constant__ PlanParameters p) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.limit) return;
    // Both are loaded together, though there may be no such detection.
    const uint32_t count = min(p.found->count, p.limit);
    const Detection detection = p.found->detections[i];
    if (i == 0) *p.count = count;
    if (i >= count) {
        p.marks[i] = {};
        return;
    }
    Box box = {detection.x1, detection.y1, detection.x2, detection.y2};
    if (p.in_tensor) box = to_frame(p, box);
    const Edges x = edges(box.x1, box.x2, p.line, p.width), y = edges(box.y1, box.y2, p.line, p.height);
    const uint32_t number = count - 1 - i;
    Mark mark = {};
    mark.outer = {x.start, y.start, x.end, y.end};
    if (!is_valid(box) || is_empty(mark.outer)) {
        p.marks[number] = {};
        return;
    }
    mark.inner = {x.inner_start, y.inner_start, x.inner_end, y.inner_end};
    const Rgb color = color_of(detection.cls);
    mark.paper = sample(p, color);
    mark.ink = sample(p, ink_on(color));
    mark.text_start = number * p.text_stride;
    mark.text_len = describe(p, detection, p.text + mark.text_start);
    mark.tag = tag_of(p, mark.outer, mark.text_len);
    p.marks[number] = mark;
}
