#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Synthetic rooms with the true depth of each pixel: a floor, a wall behind it, and discs, boxes and
# stars that stand on the floor; the training data of `train_maps.py train depth` and of the clips of
# ../data/render.py --task depth.  Colours, textures and the codec are those of scenes.py.  numpy only.
#
# Look at some rooms, each above its depth (writes a PPM contact sheet that any image viewer opens):
#   python3 tests/models/rooms.py --seed 1 --out /tmp/rooms.ppm
#
# The camera looks straight ahead, at EYE metres above the floor, with a focal length of FOCUS times the
# frame's height.  So a depth of z metres has its floor at FOCUS * height * EYE / z pixels below the horizon,
# and what is s metres high there is FOCUS * height * s / z pixels high.  Depths are those along the
# direction of view.  Haze grows with the depth, and tiles of the floor are TILE metres wide.

import argparse
import math
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import run_lengths
import scenes
import shapes

SIDE = 128  # of the network's input: it gets the whole frame, stretched
EYE, FOCUS, TILE = 1.6, 0.9, 1.0
NEAREST = 2.6  # of the shapes; metres
LEAST_HAZE, GREATEST_HAZE = 0.02, 0.1  # for each metre
MAX_SHAPES = 6


class Standing(shapes.Rotated):
    """A shape that faces the camera and stands on the floor at a depth; its longer side is `size` metres."""

    def __init__(self, rng, class_id, depth):
        self.depth, self.size, self.place = depth, rng.uniform(0.6, 1.4), rng.uniform(-0.5, 0.5)
        self.share = 1 / rng.uniform(shapes.LEAST_STRETCH, 2.2)
        super().__init__(class_id, 0.0, 0.0, 1.0, self.share, math.pi / 2 * rng.integers(0, 2))

    def stand(self, room):
        """Where it is in the frame of a room."""
        scale = room.focus / self.depth
        self.length, self.breadth = self.size * scale, self.size * self.share * scale
        self.turn(self.angle)
        self.cx, self.cy = (0.5 + self.place) * room.width, room.horizon + EYE * scale - self.h / 2
        return self


class Room:
    """Floor, wall and haze of one scene."""

    def __init__(self, rng, width, height):
        self.width, self.height, self.focus = width, height, FOCUS * height
        self.horizon, self.wall = height * rng.uniform(0.15, 0.4), rng.uniform(8.0, 16.0)
        self.depth = depth_of_room(width, height, self.horizon, self.wall)
        self.haze, self.thickness = rng.uniform(60, 220, 3).astype(np.float32), rng.uniform(LEAST_HAZE, GREATEST_HAZE)
        self.canvas = scenes.background(rng, height, width, width / SIDE, rng.uniform(0.2, 0.8))
        self._lay_floor(rng)

    def _lay_floor(self, rng):
        is_floor = self.depth[:, 0] < self.wall
        depth = self.depth[is_floor]
        floor = scenes.background(rng, len(depth), self.width, self.width / SIDE, rng.uniform(0.1, 0.4), distractors=False)
        across = (np.arange(self.width) + 0.5 - self.width / 2) * depth / self.focus
        tiles = (np.floor(across / TILE) + np.floor(depth / TILE)) % 2 - 0.5
        # Of tiles that are thinner than some pixels the mean is left.
        thin = self.focus * EYE * TILE / depth ** 2
        floor += (tiles * np.clip(thin / 3 - 0.5, 0, 1) * rng.uniform(0, 70))[..., None]
        self.canvas[is_floor] = floor

    def shapes(self, rng, count):
        """Some shapes, painted; the farthest first."""
        depths = sorted(np.exp(rng.uniform(math.log(NEAREST), math.log(self.wall - 0.5), count)), reverse=True)
        standing = [Standing(rng, int(rng.integers(0, len(shapes.LABELS))), depth).stand(self) for depth in depths]
        for shape in standing:
            shape.paint(rng, scenes.mean_colour(self.canvas, shape), rng.uniform(35, 60))
        return standing

    def render(self, standing):
        """The frame (float32), the depth of each pixel, and the map of owners."""
        canvas, depth = self.canvas.copy(), self.depth.copy()
        owner = np.zeros(depth.shape, np.int16)
        for index, shape in enumerate(standing):
            shape.draw(canvas, owner, index)
            depth[owner == index + 1] = shape.depth
        canvas += (self.haze - canvas) * (1 - np.exp(-self.thickness * depth))[..., None]
        return canvas, depth, owner

    def ground_truth(self, standing, owner):
        """What depth_of_room needs, and of what stands in front of that the depth and the mask, as the plugin's JSON has them."""
        objects = [{"class_id": shape.class_id, "label": shape.LABELS[shape.class_id], "depth": shape.depth}
                   | run_lengths.encode(owner == number)
                   for number, shape in enumerate(standing, 1) if (owner == number).any()]
        return {"horizon": self.horizon, "wall": self.wall, "objects": objects}


def depth_of_room(width, height, horizon, wall):
    """The depth of each pixel of a room in which nothing stands."""
    below = np.maximum(np.arange(height, dtype=np.float32) + 0.5 - horizon, 1e-3)
    rows = np.minimum(FOCUS * height * EYE / below, wall).astype(np.float32)
    return np.repeat(rows[:, None], width, 1)


def training_sample(seed):
    """The stretched image, and the depth of each of its pixels in metres."""
    rng = np.random.default_rng(seed)
    width, height = scenes.random_frame_size(rng, SIDE)
    room = Room(rng, width, height)
    canvas, depth, _ = room.render(room.shapes(rng, int(rng.integers(0, MAX_SHAPES + 1))))
    canvas = scenes.degrade(rng, canvas, width / SIDE)
    if rng.random() < 0.75:
        canvas = scenes.codec(rng, canvas)
    image = scenes.resize((canvas + 0.5).astype(np.uint8), SIDE, SIDE)
    rows, columns = (((np.arange(SIDE) + 0.5) * length / SIDE).astype(int) for length in depth.shape)
    return np.clip(image + 0.5, 0, 255).astype(np.uint8), depth[rows][:, columns].astype(np.float16)


def main():
    parser = argparse.ArgumentParser(description="Writes a contact sheet of rooms and their depths as PPM.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=3)
    parser.add_argument("--columns", type=int, default=6)
    parser.add_argument("--out", default="rooms.ppm")
    options = parser.parse_args()

    def sample(row, column):
        image, depth = training_sample([options.seed, row, column])
        grey = (255 * (1 - depth.astype(np.float32) / 16)).astype(np.uint8)
        return np.concatenate([image, grey[..., None].repeat(3, 2)])

    scenes.write_sheet(sample, options)


if __name__ == "__main__":
    main()
