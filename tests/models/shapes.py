#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Synthetic scenes of discs, boxes and stars at any angle, with their masks, rotated boxes and
# classes: the training data of train_masks.py, train_rotated.py and train_classes.py, and the
# objects of the clips of ../data/render.py.  Backgrounds, codec and letterbox are those of
# scenes.py.  numpy only.
#
# Look at some scenes (writes a PPM contact sheet that any image viewer opens):
#   python3 tests/models/shapes.py --seed 1 --out /tmp/shapes.ppm
#   python3 tests/models/shapes.py --task classes --out /tmp/classes.ppm
#
# Ground truth besides what scenes.py says:
#   - a mask is what can be seen of an object, so the masks of a frame share no pixel;
#   - a rotated box is the full extent along the object's own axes, hidden parts too, not cut
#     at the frame; its width is the longer side, its angle that of the width, clockwise.

import argparse
import math
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import figures
import run_lengths
import scenes
from scenes import BOX, DISC

LABELS = (*scenes.CLASSES, "star")
STAR = 2
SIDE = 256  # of the inputs of the networks of masks and rotated boxes
CROP = 128  # of the input of the network of classes
MAX_SHAPES = 8
SIZES = (22.0, 130.0)  # of the longer sides, in pixels of the input
SHARES = (0.3, 0.9)  # of the shorter side of the frame, for the shape of a classifier's scene
INNER = 0.45 * math.sqrt(0.5)  # where the arms of a star meet, in halves of its sides
# The longer side of an object is at least so much longer than the other: its angle can be seen.
LEAST_STRETCH, GREATEST_STRETCH = 1.35, 3.0


# ------------------------------------------------------------------- objects

class Rotated(scenes.Shape):
    """An ellipse, a box or a star with four arms; `w` and `h` are the sides of the upright box around it."""

    LABELS = LABELS

    def __init__(self, class_id, cx, cy, length, breadth, angle):
        super().__init__(class_id, cx, cy, 0.0, 0.0)
        self.length, self.breadth = length, breadth
        self.turn(angle)

    def turn(self, angle):
        self.angle = angle
        cos, sin = abs(math.cos(angle)), abs(math.sin(angle))
        a, b = self.length, self.breadth
        if self.class_id == BOX:
            self.w, self.h = a * cos + b * sin, a * sin + b * cos
        elif self.class_id == STAR:
            self.w, self.h = max(a * cos, b * sin), max(a * sin, b * cos)
        else:
            self.w, self.h = math.hypot(a * cos, b * sin), math.hypot(a * sin, b * cos)

    def paint(self, rng, backdrop, least=45.0, others=()):
        # Large enough for any angle.
        self.w = self.h = math.hypot(self.length, self.breadth)
        super().paint(rng, backdrop, least, others)
        self.turn(self.angle)
        return self

    def thickness(self):
        return self.breadth

    def area(self):
        share = {DISC: math.pi / 4, BOX: 1.0, STAR: INNER}[self.class_id]
        return self.length * self.breadth * share

    def extent(self):
        return self.cx - self.w / 2, self.cy - self.h / 2, self.cx + self.w / 2, self.cy + self.h / 2

    def corners(self):
        """Of the rotated box, [4, 2], in order around it."""
        along = np.array([math.cos(self.angle), math.sin(self.angle)]) * self.length / 2
        across = np.array([-math.sin(self.angle), math.cos(self.angle)]) * self.breadth / 2
        return np.array([self.cx, self.cy]) + [along + across, -along + across, -along - across, along - across]

    def coverage(self, ys, xs, shrink=0.0):
        """Covered fraction of each pixel of the grid ys x xs, by the signed distance of its centre."""
        cos, sin = np.float32(math.cos(self.angle)), np.float32(math.sin(self.angle))
        dx, dy = (xs + 0.5 - self.cx)[None, :], (ys + 0.5 - self.cy)[:, None]
        u, v = np.abs(dx * cos + dy * sin), np.abs(dy * cos - dx * sin)
        a, b = max(self.length / 2, 0.1), max(self.breadth / 2, 0.1)
        if self.class_id == BOX:
            distance = np.maximum(u - a, v - b)
        elif self.class_id == STAR:
            distance = np.minimum(beyond(u, v, a, b), beyond(v, u, b, a))
        else:
            near = np.hypot(u / a, v / b)
            distance = near * (near - 1) / np.maximum(np.hypot(u / (a * a), v / (b * b)), 1e-6)
        return np.clip(0.5 - distance - shrink, 0, 1)


def beyond(u, v, a, b):
    """Signed distance to the line from the tip of a star's arm, (a, 0), to where it meets the next, (a, b) x INNER."""
    du, dv = (INNER - 1) * a, INNER * b
    return ((u - a) * dv - v * du) / math.hypot(du, dv)


def random_rotated(rng, class_id, unit, smallest, largest):
    """A shape at the origin; limits of its longer side in pixels of the network's input."""
    length = math.exp(rng.uniform(math.log(smallest), math.log(largest)))
    stretch = math.exp(rng.uniform(math.log(LEAST_STRETCH), math.log(GREATEST_STRETCH)))
    # A thin star would hardly be there.
    breadth = max(length / stretch, min(length / LEAST_STRETCH, 20.0 if class_id == STAR else 10.0))
    return Rotated(class_id, 0.0, 0.0, length * unit, breadth * unit, rng.uniform(0, math.pi))


def ground_truth(shapes, owner):
    """That of scenes.py, with the rotated box and the mask as the plugin's JSON has them."""
    truth = []
    for number, shape in enumerate(shapes, 1):
        if t := scenes.truth_of(shape, number, owner):
            turned = {"angle": shape.angle % math.pi, "corners": shape.corners().ravel().tolist()}
            truth.append(t | turned | run_lengths.encode(owner == number))
    return truth


# -------------------------------------------------------------- training scenes

def compose(rng, side, shapes_of):
    """A frame with the shapes that `shapes_of(rng, width, height, unit)` gives, those shapes, and the map of their owners."""
    width, height = scenes.random_frame_size(rng, side)
    unit = 1 / scenes.letterbox_geometry(width, height, side)[0]
    canvas = scenes.background(rng, height, width, unit, rng.uniform(0.3, 1.1))
    owner = np.zeros((height, width), np.int16)
    shapes = shapes_of(rng, width, height, unit)
    for index, shape in enumerate(shapes):
        shape.paint(rng, scenes.mean_colour(canvas, shape), rng.uniform(35, 60))
        shape.draw(canvas, owner, index)
    canvas = scenes.degrade(rng, canvas, unit)
    if rng.random() < 0.75:
        canvas = scenes.codec(rng, canvas)
    return (canvas + 0.5).astype(np.uint8), shapes, owner


def scattered(rng, width, height, unit):
    """Some shapes that hide each other at times."""
    shapes, boxes = [], []
    for _ in range(0 if rng.random() < 0.04 else rng.integers(1, MAX_SHAPES + 1)):
        shape = random_rotated(rng, int(rng.integers(0, len(LABELS))), unit, *SIZES)
        if figures.place(rng, shape, width, height, boxes):
            shapes.append(shape)
            boxes.append(shape.extent())
    if rng.random() < 0.8:  # small ones on top, so that few are hidden for good
        shapes.sort(key=Rotated.area, reverse=True)
    return shapes


FIELDS = 12


def training_sample(seed):
    """Letterboxed image, rows in its pixels, and the number of the row that each of its pixels shows, or 0.

    A row is [valid, ignore, class, upright box: cx, cy, w, h; rotated box: cx, cy, w, h, angle].
    """
    frame, shapes, owner = compose(np.random.default_rng(seed), SIDE, scattered)
    image, (scale, left, top) = scenes.letterbox(frame, SIDE)
    rows = np.zeros((MAX_SHAPES, FIELDS), np.float32)
    offset = np.array([left, top])
    for number, shape in enumerate(shapes, 1):
        if t := scenes.truth_of(shape, number, owner):
            corner, size = np.array([t["x"], t["y"]]), np.array([t["w"], t["h"]])
            centre = np.array([shape.cx, shape.cy])
            rows[number - 1] = (1, t["ignore"], t["class_id"], *((corner + size / 2) * scale + offset), *(size * scale),
                                *(centre * scale + offset), shape.length * scale, shape.breadth * scale, shape.angle % math.pi)
    return image, rows, letterboxed(owner, scale, left, top)


def letterboxed(owner, scale, left, top):
    """The map of owners in pixels of the network's input: for each pixel that of its centre."""
    places = []
    for length, start in zip(owner.shape, (top, left)):
        at = np.floor((np.arange(SIDE) + 0.5 - start) / scale).astype(int)
        places.append((np.clip(at, 0, length - 1), (at >= 0) & (at < length)))
    (rows, in_rows), (columns, in_columns) = places
    return (owner[rows][:, columns] * (in_rows[:, None] & in_columns)).astype(np.uint8)


def single(rng, width, height, unit):
    """One shape about the middle of the frame, as large as its shorter side allows."""
    short = min(width, height)
    shape = random_rotated(rng, int(rng.integers(0, len(LABELS))), 1.0, *(share * short for share in SHARES))
    shape.cx, shape.cy = (length / 2 + rng.uniform(-0.2, 0.2) * (short - shape.length) for length in (width, height))
    return [shape]


def class_sample(seed):
    """The image of a classifier, as the plugin makes it, and the class of what it shows."""
    frame, (shape,), _ = compose(np.random.default_rng(seed), CROP, single)
    return center_crop(frame, CROP), np.int64(shape.class_id)


def center_crop(frame, side):
    """The shorter edge scaled to `side` by a triangle filter that averages, and the middle of that: uint8 [side, side, 3]."""
    frame, short = frame.astype(np.float32), min(frame.shape[:2])
    for axis in (0, 1):
        size = frame.shape[axis]
        scaled = side if size == short else int(side * size / short)
        frame = np.moveaxis(np.tensordot(filter_of(size, scaled, side), frame, (1, axis)), 0, axis)
    return np.clip(frame + 0.5, 0, 255).astype(np.uint8)


def filter_of(size, scaled, side):
    """Weights [side, size] of the middle `side` of the `scaled` pixels made from `size`."""
    step = size / scaled
    at = (np.arange(side) + round((scaled - side) / 2) + 0.5) * step
    weights = np.clip(1 - np.abs(np.arange(size) + 0.5 - at[:, None]) / max(step, 1.0), 0, None)
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


# --------------------------------------------------------------- contact sheet

COLOURS = np.array([(255, 0, 0), (0, 255, 0), (255, 255, 0)])


def show_truth(image, rows, owner):
    """Tints the masks and draws the rotated boxes."""
    for number, row in enumerate(rows, 1):
        if row[0]:
            colour = np.array((128, 128, 128)) if row[1] else COLOURS[int(row[2])]
            image[owner == number] = image[owner == number] // 2 + colour // 2
            corners = Rotated(int(row[2]), *row[7:]).corners()
            for a, b in zip(corners, np.roll(corners, 1, 0)):
                steps = np.linspace(a, b, 200).astype(int).clip(0, SIDE - 1)
                image[steps[:, 1], steps[:, 0]] = colour


def main():
    parser = argparse.ArgumentParser(description="Writes a contact sheet of scenes as PPM.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=3)
    parser.add_argument("--columns", type=int, default=6)
    parser.add_argument("--task", choices=("shapes", "classes"), default="shapes")
    parser.add_argument("--plain", action="store_true", help="without the ground truth")
    parser.add_argument("--out", default="shapes.ppm")
    options = parser.parse_args()

    def sample(row, column):
        seed = [options.seed, row, column]
        if options.task == "classes":
            return class_sample(seed)[0]
        image, rows, owner = training_sample(seed)
        if not options.plain:
            show_truth(image, rows, owner)
        return image

    scenes.write_sheet(sample, options)


if __name__ == "__main__":
    main()
