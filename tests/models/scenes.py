#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Synthetic scenes of discs and boxes: the one renderer behind the training data
# (train.py) and behind the sample clip (../data/render.py).  numpy only.
#
# Look at some scenes (writes a PPM contact sheet that any image viewer opens):
#   python3 tests/models/scenes.py --seed 1 --out /tmp/scenes.ppm
#
# Ground truth, as every test of this project understands it:
#   - the box of an object is its full extent (hidden parts too) clipped to the frame;
#   - an object is marked `ignore` when less than MIN_VISIBLE of its area can be seen
#     (the rest lies outside the frame or under other objects), or when a side of its
#     box is shorter than MIN_SIDE pixels of the network's input;
#   - lines, triangles, stripes and textures belong to the background.

import argparse
import math

import numpy as np

CLASSES = ("disc", "box")
DISC, BOX = 0, 1
NET = 512  # side of the network's square input
PAD = 114  # grey value of the letterbox' borders
MIN_VISIBLE = 0.5
MIN_SIDE = 6.0

_TILE = None


# ---------------------------------------------------------------- resampling

def _taps(count, size, step, offset=0.0):
    """Indices and weights of a bilinear filter at pixel centres, edges clamped."""
    pos = np.clip((np.arange(count) + 0.5) * step - 0.5 + offset, 0, size - 1)
    low = np.floor(pos).astype(np.intp)
    return low, np.minimum(low + 1, size - 1), (pos - low).astype(np.float32)


def resize(image, height, width, step_y=None, step_x=None):
    """Plain bilinear interpolation (no low-pass filter), as the inference does it."""
    rows, cols = image.shape[:2]
    y0, y1, fy = _taps(height, rows, step_y or rows / height)
    x0, x1, fx = _taps(width, cols, step_x or cols / width)
    fy, fx = fy[:, None, None], fx[None, :, None]
    image = image[y0] * (1 - fy) + image[y1] * fy
    return image[:, x0] * (1 - fx) + image[:, x1] * fx


def letterbox_geometry(width, height, net=NET):
    """Scale, size of the scaled frame, left and top border."""
    scale = min(net / width, net / height)
    new_w, new_h = max(1, round(width * scale)), max(1, round(height * scale))
    return scale, new_w, new_h, (net - new_w) // 2, (net - new_h) // 2


def letterbox(frame, net=NET):
    """uint8 RGB frame of any size -> uint8 [net, net, 3] and its geometry."""
    height, width = frame.shape[:2]
    scale, new_w, new_h, left, top = letterbox_geometry(width, height, net)
    out = np.full((net, net, 3), PAD, np.uint8)
    inner = resize(frame, new_h, new_w, 1 / scale, 1 / scale)
    out[top:top + new_h, left:left + new_w] = np.clip(inner + 0.5, 0, 255)
    return out, (scale, left, top)


# ------------------------------------------------------------------ textures

def noise_like(rng, height, width):
    """White noise of unit variance, cut from one fixed tile (drawing it again is slow)."""
    global _TILE
    if _TILE is None:
        _TILE = np.random.default_rng(99).standard_normal((701, 701, 3), np.float32)
    tile = np.roll(_TILE, rng.integers(0, 701, 2), (0, 1))
    repeat = (-(-height // 701), -(-width // 701), 1)
    return np.tile(tile, repeat)[:height, :width]


def cloud(rng, height, width, cells, channels=3):
    """Smooth random blobs, `cells` of them along the longer side."""
    long_side = max(height, width)
    rows, cols = (2 + int(cells * side / long_side) for side in (height, width))
    return resize(rng.standard_normal((rows, cols, channels), np.float32), height, width)


def stripes(rng, height, width, period):
    """Waves between -1 and 1 in a random direction; soft or hard flanks."""
    angle = rng.choice([0.0, 0.5, rng.uniform(0, 1)]) * math.pi
    y = np.arange(height, dtype=np.float32)[:, None] * math.sin(angle)
    x = np.arange(width, dtype=np.float32)[None, :] * math.cos(angle)
    wave = np.sin((x + y) * (2 * math.pi / period) + rng.uniform(0, 6.28))
    return np.clip(wave * rng.choice([1.0, 4.0]), -1, 1)[..., None]


def ramp(rng, height, width):
    """A plane rising from -1 to 1 across the area in a random direction."""
    angle = rng.uniform(0, 2 * math.pi)
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None] * math.sin(angle)
    x = np.linspace(-1, 1, width, dtype=np.float32)[None, :] * math.cos(angle)
    return (x + y)[..., None]


# ------------------------------------------------------------------- colours

def contrast(a, b):
    """How well two colours can be distinguished; brightness has the largest weight, as in YUV 4:2:0."""
    diff = np.asarray(a, np.float32) - np.asarray(b, np.float32)
    luma = float(diff @ np.array([0.299, 0.587, 0.114], np.float32))
    return abs(luma) + 0.35 * float(np.abs(diff - luma).max())


def pick_colour(rng, against, least):
    """A random colour that stands out from all in `against`, or the best of 60 tries."""
    best, best_margin = None, -1.0
    for _ in range(60):
        colour = rng.uniform(0, 255, 3).astype(np.float32)
        margin = min(contrast(colour, other) for other in against)
        if margin > best_margin:
            best, best_margin = colour, margin
        if margin >= least:
            break
    return best


# ------------------------------------------------------------------- objects

class Shape:
    """A disc or a box: where it is and how it is painted.  Sizes in frame pixels."""

    LABELS = CLASSES

    def __init__(self, class_id, cx, cy, w, h):
        self.class_id, self.cx, self.cy, self.w, self.h = class_id, cx, cy, w, h
        self.patch = self.colour = None
        self.outline, self.outline_colour = 0.0, None

    def paint(self, rng, backdrop, least=45.0, others=()):
        """Chooses the fill, at a safe contrast to the backdrop's mean and to other colours."""
        colour = self.colour = pick_colour(rng, [backdrop, *others], least)
        margin = contrast(colour, backdrop)
        height, width = math.ceil(self.h) + 4, math.ceil(self.w) + 4
        self.patch = np.empty((height, width, 3), np.float32)
        self.patch[:] = colour
        self.patch += fill_pattern(rng, height, width, margin)
        np.clip(self.patch, 0, 255, out=self.patch)
        side = self.thickness()
        if rng.random() < 0.4 and side > 8:
            self.outline = max(1.0, side * rng.uniform(0.03, 0.12))
            self.outline_colour = pick_colour(rng, [backdrop, colour], least)
        return self

    def thickness(self):
        return min(self.w, self.h)

    def area(self):
        full = self.w * self.h
        return full * math.pi / 4 if self.class_id == DISC else full

    def coverage(self, ys, xs, shrink=0.0):
        """Covered fraction of each pixel of the grid ys x xs: the anti-aliased mask."""
        half_w, half_h = self.w / 2 - shrink, self.h / 2 - shrink
        dx, dy = xs + 0.5 - self.cx, ys + 0.5 - self.cy
        if self.class_id == DISC:
            distance = np.sqrt(dx[None, :] ** 2 + dy[:, None] ** 2)
            return np.clip(half_w - distance + 0.5, 0, 1)
        in_x, in_y = (np.clip(np.minimum(d + 0.5, half) - np.maximum(d - 0.5, -half), 0, 1)
                      for d, half in ((dx, half_w), (dy, half_h)))
        return in_y[:, None] * in_x[None, :]

    def draw(self, canvas, owner, index):
        """Blends the object into the canvas and enters it into the map of visible owners."""
        left, top = math.floor(self.cx - self.w / 2) - 1, math.floor(self.cy - self.h / 2) - 1
        x0, y0 = max(left, 0), max(top, 0)
        x1 = min(math.ceil(self.cx + self.w / 2) + 1, canvas.shape[1])
        y1 = min(math.ceil(self.cy + self.h / 2) + 1, canvas.shape[0])
        if x0 >= x1 or y0 >= y1:
            return
        xs, ys = np.arange(x0, x1, dtype=np.float32), np.arange(y0, y1, dtype=np.float32)
        mask = self.coverage(ys, xs)
        # The pattern moves in whole pixels, only the edges in fractions of them.
        paint = self.patch[y0 - top:y1 - top, x0 - left:x1 - left]
        if self.outline:
            inner = self.coverage(ys, xs, self.outline)[..., None]
            paint = self.outline_colour + inner * (paint - self.outline_colour)
        area = canvas[y0:y1, x0:x1]
        mixed = area + mask[..., None] * (paint - area)
        area[:] = mixed + 0.5 if canvas.dtype == np.uint8 else mixed
        owner[y0:y1, x0:x1][mask > 0.5] = index + 1


def fill_pattern(rng, height, width, margin):
    """What is added to the flat colour of an object: never more than the margin allows."""
    kind = rng.integers(0, 4)
    amount = rng.uniform(0.2, 0.5) * margin
    if kind == 1:
        return ramp(rng, height, width) * amount
    if kind == 2:
        period = max(4.0, min(height, width) * rng.uniform(0.12, 0.5))
        return stripes(rng, height, width, period) * amount
    if kind == 3:
        fine = rng.random() < 0.5
        texture = noise_like(rng, height, width) if fine else cloud(rng, height, width, 6)
        return texture * (amount * 0.4)
    return np.float32(0)


def truth_of(shape, number, owner, net=NET):
    """Label, box and standing of the shape that has a number in the map of owners; None if nothing of it can be seen.

    `net` is the side of the input in which it must not be too small.
    """
    height, width = owner.shape
    x0, x1 = max(shape.cx - shape.w / 2, 0.0), min(shape.cx + shape.w / 2, float(width))
    y0, y1 = max(shape.cy - shape.h / 2, 0.0), min(shape.cy + shape.h / 2, float(height))
    if x1 <= x0 or y1 <= y0:
        return None
    region = owner[int(y0):math.ceil(y1), int(x0):math.ceil(x1)]
    visible = np.count_nonzero(region == number) / shape.area()
    if visible == 0:
        return None
    small = min(x1 - x0, y1 - y0) * letterbox_geometry(width, height, net)[0] < MIN_SIDE
    return {"class_id": shape.class_id, "label": shape.LABELS[shape.class_id],
            "x": x0, "y": y0, "w": x1 - x0, "h": y1 - y0,
            "ignore": bool(visible < MIN_VISIBLE or small)}


def ground_truth(shapes, owner, net=NET):
    """One dict an object that reaches into the frame; see the rules at the top."""
    return [t for number, s in enumerate(shapes, 1) if (t := truth_of(s, number, owner, net))]


# --------------------------------------------------------------- backgrounds

def background(rng, height, width, unit=1.0, strength=1.0, distractors=True):
    """float32 backdrop; `unit` = frame pixels in one pixel of the network's input."""
    canvas = np.empty((height, width, 3), np.float32)
    canvas[:] = rng.uniform(15, 240, 3)
    if rng.random() < 0.7:
        canvas += ramp(rng, height, width) * rng.uniform(-45, 45, 3).astype(np.float32) * strength
    if rng.random() < 0.7:
        channels = int(rng.choice([1, 3]))
        amount = rng.uniform(4, 28) * strength
        canvas += cloud(rng, height, width, rng.uniform(2, 24), channels) * np.float32(amount)
    if rng.random() < 0.35:
        period = rng.uniform(5, 90) * unit
        amount = rng.uniform(3, 22, 1 if rng.random() < 0.5 else 3) * strength
        canvas += stripes(rng, height, width, period) * amount.astype(np.float32)
    if rng.random() < 0.5:
        grain = max(1, round(rng.uniform(0.5, 3) * unit))
        noise = noise_like(rng, -(-height // grain), -(-width // grain))
        noise = noise.repeat(grain, 0).repeat(grain, 1) if grain > 1 else noise
        canvas += noise[:height, :width] * np.float32(rng.uniform(2, 14) * strength)
    if distractors and rng.random() < 0.75:
        for _ in range(rng.integers(1, 11)):
            draw_distractor(rng, canvas, unit)
    return np.clip(canvas, 0, 255, out=canvas)


def draw_distractor(rng, canvas, unit):
    """A line or a triangle, painted by its signed distance."""
    height, width = canvas.shape[:2]
    centre = rng.uniform(0, 1, 2) * (width, height)
    if rng.random() < 0.5:
        corners, distance = line_field(rng, centre, unit)
    else:
        corners, distance = triangle_field(rng, centre, unit)
    x0, y0 = np.maximum(np.floor(corners.min(0)).astype(int), 0)
    x1, y1 = np.minimum(np.ceil(corners.max(0)).astype(int), (width, height))
    if x0 >= x1 or y0 >= y1:
        return
    xs = np.arange(x0, x1, dtype=np.float32)[None, :] + 0.5
    ys = np.arange(y0, y1, dtype=np.float32)[:, None] + 0.5
    mask = np.clip(0.5 - distance(xs, ys), 0, 1)[..., None]
    area = canvas[y0:y1, x0:x1]
    area += mask * (rng.uniform(0, 255, 3).astype(np.float32) - area)


def line_field(rng, centre, unit):
    """A slanted bar with round ends, or a hairline in any direction; never a box."""
    thick = rng.uniform(0.8, 6) * unit
    # An upright bar of some thickness would be a box, so only thin ones may be upright.
    tilt = rng.uniform(0.2, 1.37) if thick > 2.5 * unit else rng.uniform(0, 1.57)
    angle = tilt + rng.integers(0, 2) * math.pi / 2
    along = np.array([math.cos(angle), math.sin(angle)]) * max(
        rng.uniform(15, 300) * unit, 5 * thick) / 2
    a, d = centre - along, 2 * along

    def distance(xs, ys):
        return capsule_distance(xs, ys, a, d, thick / 2, thick / 2)

    ends = np.array([a, a + d])
    return np.concatenate([ends - thick, ends + thick]), distance


def capsule_distance(xs, ys, a, d, start, end):
    """Signed distance to the bar with round ends from a to a + d; its radius goes from start to end."""
    t = np.clip(((xs - a[0]) * d[0] + (ys - a[1]) * d[1]) / (d @ d), 0, 1)
    return np.hypot(xs - a[0] - t * d[0], ys - a[1] - t * d[1]) - (start + t * (end - start))


def triangle_field(rng, centre, unit):
    size = math.exp(rng.uniform(math.log(8), math.log(160))) * unit
    turn, inner = rng.uniform(0, 6.28), rng.uniform(1.5, 2.6)
    angles = turn + np.array([0.0, inner, inner + rng.uniform(1.5, 2.6)])
    corners = centre + size / 2 * np.stack([np.cos(angles), np.sin(angles)], 1)

    def distance(xs, ys):
        worst = np.float32(-1e9)
        for p, q in zip(corners, np.roll(corners, -1, 0)):
            nx, ny = (q - p)[1], -(q - p)[0]
            length = math.hypot(nx, ny)
            worst = np.maximum(worst, ((xs - p[0]) * nx + (ys - p[1]) * ny) / length)
        return worst

    return np.concatenate([corners - 1, corners + 1]), distance


# ------------------------------------------------------------ camera and codec

def degrade(rng, canvas, unit):
    """Blur, brightness, contrast and sensor noise; float32 in and out."""
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        for axis in (0, 1):
            canvas = (canvas * 2 + np.roll(canvas, 1, axis) + np.roll(canvas, -1, axis)) / 4
    if rng.random() < 0.5:
        canvas = (canvas - 127) * np.float32(rng.uniform(0.6, 1.2)) + np.float32(
            127 + rng.uniform(-35, 35))
    if rng.random() < 0.4:
        sigma = rng.uniform(1, 10)
        canvas = canvas + noise_like(rng, *canvas.shape[:2]) * np.float32(sigma)
    return np.clip(canvas, 0, 255)


def _dct():
    k, n = np.mgrid[0:8, 0:8]
    basis = np.cos(math.pi * (2 * n + 1) * k / 16) * 0.5
    basis[0] *= math.sqrt(0.5)
    return basis.astype(np.float32)


DCT = _dct()


def quantise_blocks(plane, step):
    """Rounds the 8x8 DCT coefficients of a plane, as a block codec does."""
    height, width = plane.shape
    padded = np.pad(plane, ((0, -height % 8), (0, -width % 8)), "edge")
    rows, cols = padded.shape[0] // 8, padded.shape[1] // 8
    blocks = padded.reshape(rows, 8, cols, 8).transpose(0, 2, 1, 3)
    coefficients = DCT @ blocks @ DCT.T
    steps = np.full((8, 8), step, np.float32)
    steps[0, 0] = min(step, 8.0)  # prediction keeps the mean more exact than the rest
    scaled = coefficients / steps
    kept = np.trunc(np.abs(scaled) + 0.35) * np.sign(scaled) * steps
    blocks = DCT.T @ kept @ DCT
    return blocks.transpose(0, 2, 1, 3).reshape(padded.shape)[:height, :width]


def codec(rng, canvas):
    """What a trip through limited-range YUV 4:2:0 and a lossy codec leaves of a frame."""
    kr, kb = ((0.299, 0.114), (0.2126, 0.0722))[rng.integers(0, 2)]
    height, width = canvas.shape[0] // 2 * 2, canvas.shape[1] // 2 * 2
    r, g, b = (canvas[:height, :width, i] for i in range(3))
    luma = kr * r + (1 - kr - kb) * g + kb * b
    planes = []
    step = math.exp(rng.uniform(math.log(2), math.log(32)))
    lossy = rng.random() < 0.75
    y = np.round(luma * (219 / 255)) + 16
    planes.append(quantise_blocks(y, step) if lossy else y)
    for colour, weight in ((b, kb), (r, kr)):
        chroma = (colour - luma) * (224 / 255 / 2 / (1 - weight))
        half = chroma.reshape(height // 2, 2, width // 2, 2).mean((1, 3))
        half = quantise_blocks(half, step) if lossy else np.round(half)
        planes.append(half.repeat(2, 0).repeat(2, 1))
    y = np.round(planes[0] - 16) * (255 / 219)
    cb = np.round(planes[1]) * (2 * (1 - kb) * 255 / 224)
    cr = np.round(planes[2]) * (2 * (1 - kr) * 255 / 224)
    red, blue = y + cr, y + cb
    green = (y - kr * red - kb * blue) / (1 - kr - kb)
    out = canvas.copy()
    out[:height, :width] = np.clip(np.stack([red, green, blue], -1), 0, 255)
    return out


# -------------------------------------------------------------- training scenes

def random_frame_size(rng, net=NET):
    """Any aspect ratio, the common ones more often; mostly around the network's size."""
    aspect = float(rng.choice([16 / 9, 16 / 9, 4 / 3, 1.0, 3 / 4, 9 / 16,
                               math.exp(rng.uniform(-0.9, 0.9))]))
    low, high = [(320, 512), (512, 800), (512, 800), (800, 1280), (1280, 1920)][
        rng.choice(5, p=[0.25, 0.3, 0.2, 0.15, 0.1])]
    long_side = rng.uniform(low, high) * (net / NET)
    width, height = (long_side, long_side / aspect) if aspect >= 1 else (
        long_side * aspect, long_side)
    return max(64, round(width)), max(64, round(height))


def random_size(rng, class_id, unit, smallest=10.0, largest=256.0):
    """Width and height in frame pixels; limits in pixels of the network's input."""
    size = math.exp(rng.uniform(math.log(smallest), math.log(largest)))
    if class_id == DISC:
        return size * unit, size * unit
    stretch = math.exp(rng.uniform(-0.5, 0.5) * math.log(4))
    w, h = size * stretch, size / stretch
    grow = max(1.0, 0.9 * smallest / min(w, h))
    return w * grow * unit, h * grow * unit


def overlap(shape, others):
    """Largest share of a box that the given one hides, or the other way round."""
    worst = 0.0
    for o in others:
        dx = min(shape.cx + shape.w / 2, o.cx + o.w / 2) - max(shape.cx - shape.w / 2, o.cx - o.w / 2)
        dy = min(shape.cy + shape.h / 2, o.cy + o.h / 2) - max(shape.cy - shape.h / 2, o.cy - o.h / 2)
        if dx > 0 and dy > 0:
            worst = max(worst, dx * dy / min(shape.w * shape.h, o.w * o.h))
    return worst


def place(rng, width, height, unit, others):
    """A shape somewhere in the frame, mostly clear of the others, sometimes cut by an edge."""
    class_id = int(rng.integers(0, 2))
    if others and rng.random() < 0.25:
        return place_near(rng, class_id, unit, others[rng.integers(0, len(others))])
    w, h = random_size(rng, class_id, unit, 10.0, 300.0 if rng.random() < 0.2 else 160.0)
    tolerated = 2.0 if rng.random() < 0.5 else 0.15
    reach = rng.choice([-0.5, 0.4], p=[0.7, 0.3])  # inside the frame, or past its edge
    for _ in range(8):
        ranges = ((width, w), (height, h))
        cx, cy = (rng.uniform(min(-reach * s, n / 2), max(n + reach * s, n / 2)) for n, s in ranges)
        shape = Shape(class_id, cx, cy, w, h)
        if overlap(shape, others) <= tolerated:
            return shape
    return None


def place_near(rng, class_id, unit, host):
    """A smaller shape on another one or across its edge: what detectors confuse most often."""
    size = max(12.0, math.sqrt(host.w * host.h) / unit * rng.uniform(0.15, 0.8))
    w, h = random_size(rng, class_id, unit, size * 0.9, size * 1.1)
    return Shape(class_id, host.cx + rng.uniform(-0.6, 0.6) * host.w,
                 host.cy + rng.uniform(-0.6, 0.6) * host.h, w, h)


def mean_colour(canvas, shape):
    """Mean colour of what lies under a shape."""
    height, width = canvas.shape[:2]
    x0, x1 = (int(np.clip(v, 0, width - 1)) for v in (shape.cx - shape.w / 2, shape.cx + shape.w / 2))
    y0, y1 = (int(np.clip(v, 0, height - 1)) for v in (shape.cy - shape.h / 2, shape.cy + shape.h / 2))
    area = canvas[y0:y1 + 1:max(1, (y1 - y0) // 16), x0:x1 + 1:max(1, (x1 - x0) // 16)]
    return area.reshape(-1, 3).mean(0)


def random_scene(rng):
    """One frame (uint8 RGB of any size) and its ground truth."""
    width, height = random_frame_size(rng)
    unit = 1 / letterbox_geometry(width, height)[0]
    canvas = background(rng, height, width, unit, rng.uniform(0.3, 1.2))
    owner = np.zeros((height, width), np.int16)
    shapes = []
    for _ in range(0 if rng.random() < 0.04 else rng.integers(1, 15)):
        shape = place(rng, width, height, unit, shapes)
        if shape is not None:
            shapes.append(shape)
    if rng.random() < 0.7:  # small ones on top, so that few are hidden for good
        shapes.sort(key=Shape.area, reverse=True)
    for index, shape in enumerate(shapes):
        shape.paint(rng, mean_colour(canvas, shape), rng.uniform(30, 60))
        shape.draw(canvas, owner, index)
    canvas = degrade(rng, canvas, unit)
    if rng.random() < 0.75:
        canvas = codec(rng, canvas)
    return (canvas + 0.5).astype(np.uint8), ground_truth(shapes, owner)


MAX_OBJECTS = 16


def training_sample(seed):
    """Letterboxed image and rows [valid, ignore, class, cx, cy, w, h] in its pixels."""
    frame, truth = random_scene(np.random.default_rng(seed))
    image, (scale, left, top) = letterbox(frame)
    rows = np.zeros((MAX_OBJECTS, 7), np.float32)
    for row, t in zip(rows, truth):
        row[:] = (1, t["ignore"], t["class_id"],
                  (t["x"] + t["w"] / 2) * scale + left, (t["y"] + t["h"] / 2) * scale + top,
                  t["w"] * scale, t["h"] * scale)
    return image, rows


# --------------------------------------------------------------- contact sheet

def outline_boxes(image, rows, net=NET):
    for valid, ignore, class_id, cx, cy, w, h in rows:
        if valid:
            colour = (128, 128, 128) if ignore else ((255, 0, 0), (0, 255, 0))[int(class_id)]
            x0, y0, x1, y1 = (int(np.clip(v, 0, net - 1)) for v in
                              (cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2))
            image[y0, x0:x1], image[y1, x0:x1] = colour, colour
            image[y0:y1, x0], image[y0:y1, x1] = colour, colour


def write_sheet(sample, options):
    """Writes the images sample(row, column) in rows below each other."""
    lines = [np.concatenate([sample(row, column) for column in range(options.columns)], 1)
             for row in range(options.rows)]
    sheet = np.concatenate(lines, 0)
    with open(options.out, "wb") as file:
        file.write(b"P6 %d %d 255\n" % (sheet.shape[1], sheet.shape[0]) + sheet.tobytes())


def main():
    parser = argparse.ArgumentParser(description="Writes a contact sheet of scenes as PPM.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=3)
    parser.add_argument("--columns", type=int, default=4)
    parser.add_argument("--out", default="scenes.ppm")
    options = parser.parse_args()

    def sample(row, column):
        image, boxes = training_sample([options.seed, row, column])
        outline_boxes(image, boxes)
        return image

    write_sheet(sample, options)


if __name__ == "__main__":
    main()
