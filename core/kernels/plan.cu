// SPDX-License-Identifier: MPL-2.0
// plan_strokes: detections and their keypoints -> strokes for strokes.cu
//   in    found and keypoints [found][points][dims]; edges: pairs of points that lines join
//   out   of each of `limit` objects its lines, then its points, the weakest object first; invisible ones have width 0
//   grid  a thread for each stroke
//   math  that of src/image/keypoints.rs and src/image/overlay/strokes.rs, the reference implementation
// plan_outlines: rotated detections -> strokes for strokes.cu
//   in    found
//   out   of each of `limit` objects its four sides, the weakest object first; invisible ones have width 0
//   grid  a thread for each side
//   math  that of src/image/rotated.rs and src/image/overlay/strokes.rs, the reference implementation
// plan_boxes, and plan_rotated_boxes where boxes may be rotated: detections -> labelled boxes for overlay.cu, and the glyphs of their texts.
//   in    found: the count, then each detection, best first; names of classes as glyphs
//   out   `limit` boxes, *count of them for the detections, the weakest first; invisible ones are empty, and so are the
//         others; texts `text_stride` glyphs apart
//   grid  a warp for each of `limit` detections, and a lane for each glyph
//   math  that of src/image/geometry.rs, and of src/image/overlay/plan.rs and color.rs, the reference implementation
//   launched by src/image/overlay/kernel.rs, which mirrors Parameters
#include "boxes.cuh"
#include "overlay.cuh"
#include "rotated.cuh"

inline constexpr uint32_t WARP = 32;

struct Parameters {
    const Results *found;
    uint32_t *count;
    LabeledBox *boxes;
    uint16_t *text;
    const uint16_t *names; // of each class `name_stride`: the count of glyphs, 0 if it has no name, then these
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

static_assert(sizeof(Parameters) == 144, "mirrored in overlay.rs");

// Keeps NaN, which fminf and fmaxf would not.
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
__device__ inline Box to_frame(const Parameters &p, const Box &box) {
    const float width = p.width, height = p.height;
    return {clamp((box.x1 - p.left) * p.scale_x, 0, width), clamp((box.y1 - p.top) * p.scale_y, 0, height),
            clamp((box.x2 - p.left) * p.scale_x, 0, width), clamp((box.y2 - p.top) * p.scale_y, 0, height)};
}

// The part inside the frame of the smallest upright box around a rotated one.
__device__ inline Box hull_in_frame(const Parameters &p, const Corners &corners) {
    Box hull = {corners.x[0], corners.y[0], corners.x[0], corners.y[0]};
#pragma unroll
    for (uint32_t i = 1; i < 4; i++) {
        hull = {fminf(hull.x1, corners.x[i]), fminf(hull.y1, corners.y[i]), fmaxf(hull.x2, corners.x[i]),
                fmaxf(hull.y2, corners.y[i])};
    }
    const float width = p.width, height = p.height;
    return {clamp(hull.x1, 0, width), clamp(hull.y1, 0, height), clamp(hull.x2, 0, width), clamp(hull.y2, 0, height)};
}

// The shape of a detection: an upright box; or a rotated one, and then `box` is the upright one around it.
struct Shape {
    Box box;
    bool is_seen, is_turned;
    Corners corners;
};

// As Instances::map_to_frame, where boxes are in pixels of the tensor, and plan_boxes of plan.rs.
template <bool ROTATED>
__device__ inline Shape shape_of(const Parameters &p, const Candidate &detection) {
    Shape shape = {{detection.x1, detection.y1, detection.x2, detection.y2}};
    shape.is_turned = ROTATED && detection.angle != 0;
    bool is_of_frame = true;
    if (ROTATED && (p.in_tensor || shape.is_turned)) {
        Turned turned = {detection.x1, detection.y1, detection.x2, detection.y2, detection.angle};
        if (p.in_tensor) {
            const float x = (turned.x() - p.left) * p.scale_x, y = (turned.y() - p.top) * p.scale_y;
            turned = regular(around(x, y, turned.width() * p.scale_x, turned.height() * p.scale_y, turned.angle));
            shape.is_turned = turned.angle != 0;
            shape.box = {turned.x1, turned.y1, turned.x2, turned.y2};
        }
        shape.corners = corners_of(turned);
        const Box hull = hull_in_frame(p, shape.corners);
        is_of_frame = is_valid(hull);
        if (shape.is_turned) shape.box = hull;
    } else if (p.in_tensor) {
        shape.box = to_frame(p, shape.box);
    }
    shape.is_seen = is_of_frame && is_valid(shape.box);
    return shape;
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

__device__ inline Rgb text_color_on(const Rgb &color) {
    const uint32_t luma = (299 * color.r + 587 * color.g + 114 * color.b) / 1000, text = luma < 128 ? 255 : 0;
    return {text, text, text};
}

// As sample of color.rs.
__device__ inline Sample sample(const Parameters &p, const Rgb &color) {
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

// The name of a class, in a warp.
struct Name {
    const uint16_t *glyphs;
    uint32_t length; // 0 if it has none
    uint16_t mine;   // the glyph of the lane's number, which is loaded together with the length

    __device__ inline Name(const Parameters &p, uint32_t cls, uint32_t lane)
        : glyphs(p.names + uint64_t(cls) * p.name_stride + 1), length(0), mine(0) {
        if (cls >= p.name_count) return;
        length = __ldg(glyphs - 1);
        if (lane + 1 < p.name_stride) mine = __ldg(glyphs + lane);
    }
    __device__ inline uint16_t glyph(uint32_t i, uint32_t lane) const { return i == lane ? mine : __ldg(glyphs + i); }
};

__device__ inline uint16_t glyph_of(char letter) { return letter - ' '; }

// A number in decimal digits.
struct Decimal {
    uint32_t number, length;

    __device__ inline explicit Decimal(uint32_t number) : number(number), length(1) {
        for (uint32_t rest = number; rest > 9; rest /= 10) length++;
    }
    __device__ inline uint16_t glyph(uint32_t i) const {
        uint32_t rest = number;
        for (uint32_t behind = length - 1 - i; behind; behind--) rest /= 10;
        return glyph_of('0' + rest % 10);
    }
};

// "person 87%", or "#7 87%", as much of it as there is room for. Each lane of a warp writes glyphs. Returns how many there are.
__device__ inline uint32_t describe(const Parameters &p, const Candidate &detection, const Name &name, uint32_t lane, uint16_t *to) {
    const Decimal cls(detection.cls), percent(roundf(fminf(fmaxf(detection.score, 0.0f), 1.0f) * 100.0f));
    const uint32_t before = name.length ? name.length : 1 + cls.length; // the space
    const uint32_t length = min(before + 1 + percent.length + 1, p.room);
    for (uint32_t i = lane; i < length; i += WARP) {
        const uint32_t behind = i - before - 1; // of what follows the space; before it this wraps around to a great number
        if (i < before) {
            to[i] = name.length ? name.glyph(i, lane) : i == 0 ? glyph_of('#') : cls.glyph(i - 1);
        } else if (i == before) {
            to[i] = glyph_of(' ');
        } else {
            to[i] = behind < percent.length ? percent.glyph(behind) : glyph_of('%');
        }
    }
    return length;
}

// Above the box, or in its corner where there is no room; moved left or up to stay in the frame.
__device__ inline Rect tag_of(const Parameters &p, const Rect &outer, uint32_t length) {
    if (length == 0) return {};
    const uint32_t width = length * p.glyph_width + p.glyph_width / 2 * 2, height = p.glyph_height;
    const uint32_t left = min(outer.left, p.width - width);
    const uint32_t top = outer.top >= height ? outer.top - height : min(outer.top, p.height - height);
    return {left, top, left + width, top + height};
}

template <bool ROTATED>
__device__ inline void plan_box(const Parameters &p) {
    const uint32_t i = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (i >= p.limit) return;
    // Both are loaded together, though there may be no such detection.
    const uint32_t count = min(p.found->count, p.limit);
    const Candidate detection = p.found->detections[i];
    if (i == 0 && lane == 0) *p.count = count;
    if (i >= count) {
        if (lane == 0) p.boxes[i] = {};
        return;
    }
    const Name name(p, detection.cls, lane);
    const Shape shape = shape_of<ROTATED>(p, detection);
    const Box &box = shape.box;
    const Edges x = edges(box.x1, box.x2, p.line, p.width), y = edges(box.y1, box.y2, p.line, p.height);
    const uint32_t number = count - 1 - i;
    LabeledBox labeled = {};
    labeled.outer = {x.start, y.start, x.end, y.end};
    if (!shape.is_seen || is_empty(labeled.outer)) {
        if (lane == 0) p.boxes[number] = {};
        return;
    }
    // The outline of a rotated box is strokes.
    if (shape.is_turned) labeled.inner = labeled.outer;
    else labeled.inner = {x.inner_start, y.inner_start, x.inner_end, y.inner_end};
    const Rgb color = color_of(detection.cls);
    labeled.color = sample(p, color);
    labeled.text_color = sample(p, text_color_on(color));
    labeled.text_start = number * p.text_stride;
    labeled.text_len = describe(p, detection, name, lane, p.text + labeled.text_start);
    labeled.tag = tag_of(p, labeled.outer, labeled.text_len);
    if (lane == 0) p.boxes[number] = labeled;
}

extern "C" __global__ void __launch_bounds__(THREADS) plan_boxes(const __grid_constant__ Parameters p) { plan_box<false>(p); }
extern "C" __global__ void __launch_bounds__(THREADS) plan_rotated_boxes(const __grid_constant__ Parameters p) { plan_box<true>(p); }

struct StrokeParameters {
    Parameters plan;
    const float *keypoints;
    Stroke *strokes;
    const uint16_t *edges;
    uint32_t edge_count, point_count;
    uint32_t dims;
    uint32_t line, point; // widths
    uint32_t unused;
};

static_assert(sizeof(StrokeParameters) == 192, "mirrored in overlay.rs");

__device__ inline bool is_number(float value) {
    return value - value == 0;
}

// The pixel of a point, if it is visible: as Keypoints::map_to_frame and place of strokes.rs.
__device__ inline bool place(const StrokeParameters &p, const float *points, uint32_t number, int32_t &x, int32_t &y) {
    constexpr float VISIBLE = 0.25f;
    const float *point = points + number * p.dims;
    float across = point[0], down = point[1];
    const float visibility = p.dims > 2 ? point[2] : 1.0f;
    const float width = p.plan.width, height = p.plan.height;
    if (p.plan.in_tensor) {
        if (!is_number(across) || !is_number(down) || !is_number(visibility)) return false;
        across = clamp((across - p.plan.left) * p.plan.scale_x, 0, width);
        down = clamp((down - p.plan.top) * p.plan.scale_y, 0, height);
    }
    if (!(across > 0 && across < width && down > 0 && down < height && visibility >= VISIBLE)) return false;
    x = int32_t(across);
    y = int32_t(down);
    return true;
}

extern "C" __global__ void __launch_bounds__(THREADS) plan_strokes(const __grid_constant__ StrokeParameters p) {
    const uint32_t each = p.edge_count + p.point_count, thread = blockIdx.x * THREADS + threadIdx.x;
    const uint32_t object = thread / each, number = thread % each;
    const uint32_t count = min(p.plan.found->count, p.plan.limit);
    if (object >= count) return;
    const Candidate candidate = p.plan.found->detections[object];
    Box box = {candidate.x1, candidate.y1, candidate.x2, candidate.y2};
    if (p.plan.in_tensor) box = to_frame(p.plan, box);
    const bool is_edge = number < p.edge_count;
    const uint32_t from = is_edge ? p.edges[number * 2] : number - p.edge_count;
    const uint32_t to = is_edge ? p.edges[number * 2 + 1] : from;
    const float *points = p.keypoints + uint64_t(object) * p.point_count * p.dims;
    Stroke stroke = {};
    if (is_valid(box) && place(p, points, from, stroke.from_x, stroke.from_y) && place(p, points, to, stroke.to_x, stroke.to_y)) {
        stroke.width = is_edge ? p.line : p.point;
        stroke.color = sample(p.plan, color_of(is_edge ? candidate.cls : from));
    }
    p.strokes[(count - 1 - object) * each + number] = stroke;
}

struct OutlineParameters {
    Parameters plan;
    Stroke *strokes;
    uint32_t line; // width
    uint32_t unused;
};

static_assert(sizeof(OutlineParameters) == 160, "mirrored in overlay.rs");

// The part of a line that may be visible, as seen of strokes.rs.
__device__ inline bool seen(const float (&from)[2], const float (&to)[2], const uint32_t (&sizes)[2], int32_t (&start_at)[2],
                            int32_t (&end_at)[2]) {
    constexpr float MARGIN = 256;
    float start = 0, end = 1;
#pragma unroll
    for (uint32_t axis = 0; axis < 2; axis++) {
        const float low = -MARGIN, high = sizes[axis] + MARGIN, along = to[axis] - from[axis];
        if (!is_number(along)) return false;
        if (along == 0) {
            if (!(low <= from[axis] && from[axis] <= high)) return false;
            continue;
        }
        const float a = (low - from[axis]) / along, b = (high - from[axis]) / along;
        start = fmaxf(start, fminf(a, b));
        end = fminf(end, fmaxf(a, b));
    }
    if (!(start <= end)) return false;
#pragma unroll
    for (uint32_t axis = 0; axis < 2; axis++) {
        const float low = -MARGIN, high = sizes[axis] + MARGIN, along = to[axis] - from[axis];
        start_at[axis] = int32_t(floorf(clamp(from[axis] + along * start, low, high)));
        end_at[axis] = int32_t(floorf(clamp(end == 1 ? to[axis] : from[axis] + along * end, low, high)));
    }
    return true;
}

extern "C" __global__ void __launch_bounds__(THREADS) plan_outlines(const __grid_constant__ OutlineParameters p) {
    const uint32_t thread = blockIdx.x * THREADS + threadIdx.x, object = thread / 4, side = thread % 4;
    const uint32_t count = min(p.plan.found->count, p.plan.limit);
    if (object >= count) return;
    const Candidate candidate = p.plan.found->detections[object];
    const Shape shape = shape_of<true>(p.plan, candidate);
    const uint32_t next = (side + 1) % 4;
    const float from[2] = {shape.corners.x[side], shape.corners.y[side]}, to[2] = {shape.corners.x[next], shape.corners.y[next]};
    const uint32_t sizes[2] = {p.plan.width, p.plan.height};
    const Edges x = edges(shape.box.x1, shape.box.x2, 1, p.plan.width), y = edges(shape.box.y1, shape.box.y2, 1, p.plan.height);
    int32_t start_at[2], end_at[2];
    Stroke stroke = {};
    if (shape.is_seen && shape.is_turned && !is_empty({x.start, y.start, x.end, y.end}) && seen(from, to, sizes, start_at, end_at)) {
        stroke = {start_at[0], start_at[1], end_at[0], end_at[1], p.line, sample(p.plan, color_of(candidate.cls))};
    }
    p.strokes[(count - 1 - object) * 4 + side] = stroke;
}
