#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Renders a clip of moving discs and boxes, of figures with limbs, of shapes at any angle, or of rooms with their depth, as H.264
# in MP4, and its ground truth as JSON.
# Needs python3-numpy and gst-launch-1.0 with x264enc, h264parse and mp4mux.
#
# The committed sample (640x360, 10 s):
#   python3 tests/data/render.py --out tests/data/sample.mp4 --truth tests/data/sample.json
# A larger clip for a test:
#   python3 tests/data/render.py --width 1920 --height 1080 --frames 150 --seed 2 \
#       --kbps 6000 --out /tmp/hd.mp4 --truth /tmp/hd.json
# The committed sample of figures (640x360, 2 s), scored by score_pose.py:
#   python3 tests/data/render.py --task pose --frames 60 --objects 4 --kbps 1000 \
#       --out tests/data/pose.mp4 --truth tests/data/pose.json
# The committed samples of masks and rotated boxes (480x270, 40 scenes), and of classes (320x240, 100 scenes), scored by
# score_shapes.py:
#   python3 tests/data/render.py --task shapes --width 480 --height 270 --frames 120 --cut 3 --objects 6 --kbps 1500 \
#       --out tests/data/shapes.mp4 --truth tests/data/shapes.json
#   python3 tests/data/render.py --task classes --width 320 --height 240 --frames 200 --cut 2 --kbps 400 \
#       --out tests/data/classes.mp4 --truth tests/data/classes.json
# The committed sample of depths (320x180, 20 rooms), scored by ../maps_clips.rs, as shapes.mp4 is for maps of classes:
#   python3 tests/data/render.py --task depth --width 320 --height 180 --frames 60 --cut 3 --objects 5 --kbps 1000 \
#       --out tests/data/rooms.mp4 --truth tests/data/rooms.json
#
# Ground truth: {"width","height","fps","frames":[[{"class_id","label","x","y","w","h",
# "ignore"}, ...], ...]}, pixels of the frame; figures have "keypoints": [[x, y, visibility], ...]
# besides, shapes their "angle", "corners" and mask as the plugin's JSON has them.  What `ignore` means is described in
# ../models/scenes.py, ../models/figures.py and ../models/shapes.py, whose renderers this uses.  A frame of a room is
# {"horizon", "wall", "objects": [{"class_id", "label", "depth", mask}, ...]}: ../models/rooms.py says how depths follow of these.

import argparse
import functools
import json
import math
import os
import subprocess
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import figures
import rooms
import scenes
import shapes


class Mover:
    """A shape on its way: it bounces off the edges, or leaves and comes back opposite."""

    def __init__(self, rng, shape, width, height, unit):
        self.shape, self.size, self.sides = shape, (width, height), (shape.w, shape.h)
        self.bounces = rng.random() < 0.6
        angle, speed = rng.uniform(0, 2 * math.pi), rng.uniform(25, 110) * unit
        self.start = (shape.cx, shape.cy)
        self.velocity = (speed * math.cos(angle), speed * math.sin(angle))

    def move(self, seconds):
        """Puts the shape where it is after some seconds; no state, so no drift."""
        self.shape.cx, self.shape.cy = (
            self.along(start, velocity * seconds, length, side)
            for start, velocity, length, side in zip(
                self.start, self.velocity, self.size, self.sides))

    def along(self, start, way, length, side):
        if self.bounces:
            # Centres stay side/2 - 15 % off the edges: bouncing objects dip out a little.
            low, high = side * 0.35, length - side * 0.35
            phase = (start - low + way) % (2 * (high - low))
            return low + min(phase, 2 * (high - low) - phase)
        span = length + 1.3 * side
        return (start + 0.65 * side + way) % span - 0.65 * side


class Spinner(Mover):
    """A shape that turns on its way."""

    def __init__(self, rng, shape, width, height, unit):
        super().__init__(rng, shape, width, height, unit)
        self.sides = (shape.length, shape.length)
        self.angle, self.turning = shape.angle, rng.uniform(-1.5, 1.5)

    def move(self, seconds):
        super().move(seconds)
        self.shape.turn(self.angle + self.turning * seconds)


class Walker(Mover):
    """A figure on its way: limbs swing, arms rise and fall, and it turns."""

    def __init__(self, rng, figure, width, height, unit):
        super().__init__(rng, figure, width, height, unit)
        self.base = figures.random_pose(rng) * 0.5
        self.swing, self.wave = rng.uniform(0.3, 0.7), rng.uniform(0.0, 1.0, 2)
        self.pace, self.phase = rng.uniform(4, 7), rng.uniform(0, 2 * math.pi)
        self.yaw, self.turning = figure.yaw, rng.uniform(-0.8, 0.8)

    def move(self, seconds):
        super().move(seconds)
        beat = math.sin(self.pace * seconds + self.phase)
        pose = self.base.copy()
        for side, sign in ((0, 1), (1, -1)):
            pose[4 + 3 * side:6 + 3 * side] += (-sign * self.swing * beat,
                                                self.wave[side] * (1 + math.sin(1.7 * seconds + self.phase + side)))
            pose[10 + 3 * side] += sign * self.swing * beat
            pose[12 + 3 * side] += self.swing * (1 - sign * beat) / 2
        self.shape.pose, self.shape.yaw = pose, self.yaw + self.turning * seconds


class Backdrop:
    """A textured picture larger than the frame, panned slowly and changing in brightness."""

    def __init__(self, rng, width, height, unit, fps):
        self.width, self.height, self.fps = width, height, fps
        self.margin = max(8, round(24 * unit))
        big = (height + 2 * self.margin, width + 2 * self.margin)
        picture = scenes.background(rng, *big, unit=unit, strength=0.6)
        # Room at both ends, so that the change of brightness never clips.
        self.picture = np.clip(picture, 12, 243).astype(np.uint8)
        self.mean = self.picture[::8, ::8].reshape(-1, 3).mean(0)

    def frame(self, number):
        seconds = number / self.fps
        x = round(self.margin * (1 + math.sin(seconds * 0.31)))
        y = round(self.margin * (1 + math.cos(seconds * 0.23)))
        # In steps of one grey level, by integer addition: fast, and kind to the encoder.
        shift = round(10 * math.sin(seconds * 0.5))
        view = self.picture[y:y + self.height, x:x + self.width]
        return view + np.uint8(shift) if shift >= 0 else view - np.uint8(-shift)


def make_movers(rng, count, backdrop, unit):
    """Objects of both classes, large ones first so that they lie below the small ones."""
    sizes = np.exp(np.linspace(math.log(130), math.log(18), count))
    movers, shapes = [], []
    for index, size in enumerate(sizes):
        class_id = (index + index // 2) % 2
        w, h = scenes.random_size(rng, class_id, unit, size * 0.9, size * 1.1)
        h, w = min(h, 0.7 * backdrop.height), min(w, 0.7 * backdrop.width)
        if class_id == scenes.DISC:
            w = h = min(w, h)
        for _ in range(200):
            cx, cy = rng.uniform(0, 1, 2) * (backdrop.width, backdrop.height)
            shape = scenes.Shape(class_id, cx, cy, w, h)
            if scenes.overlap(shape, shapes) < 0.1:
                break
        # Different colours: where two of one colour overlap, their edges could not be seen.
        shapes.append(shape.paint(rng, backdrop.mean, 60.0, [s.colour for s in shapes]))
        movers.append(Mover(rng, shape, backdrop.width, backdrop.height, unit))
    return movers


def make_walkers(rng, count, backdrop, unit):
    """Figures, large ones first."""
    walkers, placed = [], []
    for size in np.exp(np.linspace(math.log(0.62), math.log(0.3), count)) * backdrop.height:
        figure = figures.Figure(rng, size, backdrop.mean, 60.0)
        figure.w, figure.h = 0.55 * size, 1.05 * size
        for _ in range(200):
            figure.cx, figure.cy = rng.uniform(0.1, 0.9, 2) * (backdrop.width, backdrop.height)
            if scenes.overlap(figure, placed) < 0.1:
                break
        placed.append(figure)
        walkers.append(Walker(rng, figure, backdrop.width, backdrop.height, unit))
    return walkers


def make_spinners(rng, count, backdrop, unit):
    """Shapes of all classes, large ones first."""
    unit *= scenes.NET / shapes.SIDE  # of the pixels of those networks' input
    spinners, placed = [], []
    for index, size in enumerate(np.exp(np.linspace(math.log(110), math.log(28), count))):
        shape = shapes.random_rotated(rng, index % len(shapes.LABELS), unit, size * 0.9, size * 1.1)
        for _ in range(200):
            shape.cx, shape.cy = rng.uniform(0.05, 0.95, 2) * (backdrop.width, backdrop.height)
            if scenes.overlap(shape, placed) < 0.1:
                break
        placed.append(shape.paint(rng, backdrop.mean, 60.0, [s.colour for s in placed]))
        spinners.append(Spinner(rng, shape, backdrop.width, backdrop.height, unit))
    return spinners


def make_single(rng, _count, backdrop, unit):
    """One shape that stands about the middle and turns."""
    shape, = shapes.single(rng, backdrop.width, backdrop.height, unit)
    return [Spinner(rng, shape.paint(rng, backdrop.mean, 50.0), backdrop.width, backdrop.height, 0.0)]


# How the moving objects of a task are made, and the function that gives their ground truth.
TASKS = {"detect": (make_movers, scenes.ground_truth), "pose": (make_walkers, figures.ground_truth),
         "shapes": (make_spinners, shapes.ground_truth), "classes": (make_single, scenes.ground_truth)}


def render_room(options, rng, frames):
    """A room in which shapes move sideways and away; as render_scene."""
    room = rooms.Room(rng, options.width, options.height)
    standing = room.shapes(rng, options.objects)
    # In widths of the frame and in metres, each second.
    moving = [(shape, rng.uniform(-0.1, 0.1), rng.uniform(0.0, 0.5)) for shape in standing]
    for number in range(frames):
        # The wall is behind all of them, and the farthest come first.
        standing.sort(key=lambda shape: -shape.depth)
        canvas, _, owner = room.render(standing)
        yield (canvas + 0.5).astype(np.uint8), room.ground_truth(standing, owner)
        for shape, aside, away in moving:
            shape.place += aside / options.fps
            shape.depth = min(shape.depth + away / options.fps, room.wall - 0.5)
            shape.stand(room)


def render(options):
    """Yields each frame (uint8 RGB) with its ground truth."""
    cut = options.cut or options.frames
    for number, start in enumerate(range(0, options.frames, cut)):
        # 1 and 2 are the seeds of the training.
        rng = np.random.default_rng([3, options.seed, number] if number else [3, options.seed])
        scene = render_room if options.task == "depth" else render_scene
        yield from scene(options, rng, min(cut, options.frames - start))


def render_scene(options, rng, frames):
    make, ground_truth = TASKS[options.task]
    if ground_truth is scenes.ground_truth:
        ground_truth = functools.partial(ground_truth, net=options.net)
    width, height = options.width, options.height
    unit = 1 / scenes.letterbox_geometry(width, height, options.net)[0]
    backdrop = Backdrop(rng, width, height, unit, options.fps)
    movers = make(rng, options.objects, backdrop, unit)
    owner = np.zeros((height, width), np.int16)
    for number in range(frames):
        frame = backdrop.frame(number)
        owner[:] = 0
        for index, mover in enumerate(movers):
            mover.move(number / options.fps)
            mover.shape.draw(frame, owner, index)
        yield frame, ground_truth([m.shape for m in movers], owner)


def encoder(options):
    """gst-launch-1.0 that takes raw RGB frames on its standard input."""
    colorimetry = "bt709" if options.height >= 720 else "bt601"
    pipeline = (
        f"fdsrc fd=0 blocksize={options.width * options.height * 3} ! "
        f"rawvideoparse format=rgb width={options.width} height={options.height} "
        f"framerate={options.fps}/1 ! videoconvert ! "
        f"video/x-raw,format=I420,colorimetry={colorimetry} ! "
        f"x264enc bitrate={options.kbps} speed-preset={options.preset} key-int-max=60 "
        f"bframes={options.bframes} ! video/x-h264,profile=high ! h264parse ! mp4mux ! "
        f"filesink location={options.out}")
    return subprocess.Popen(["gst-launch-1.0", "-q", *pipeline.split()], stdin=subprocess.PIPE)


def rounded(value):
    if isinstance(value, list):
        return [rounded(v) for v in value]
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return round(value, 2) if isinstance(value, float) else value


def parse_options():
    parser = argparse.ArgumentParser(description="Renders a clip and its ground truth.")
    parser.add_argument("--task", choices=(*TASKS, "depth"), default="detect")
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--height", type=int, default=360)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--fps", type=int, default=30)
    parser.add_argument("--cut", type=int, help="frames after which another scene begins (default: none does)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--objects", type=int, default=8)
    parser.add_argument("--net", type=int, default=scenes.NET,
                        help="side of the input that objects are made for; larger ones make them smaller (default: %(default)s)")
    parser.add_argument("--kbps", type=int, default=800, help="bit rate of the video")
    parser.add_argument("--preset", default="medium", help="speed preset of x264enc")
    parser.add_argument("--bframes", type=int, default=2)
    parser.add_argument("--out", required=True, help="the MP4 file")
    parser.add_argument("--truth", required=True, help="the JSON file")
    return parser.parse_args()


def main():
    options = parse_options()
    if options.width % 2 or options.height % 2:
        raise SystemExit("width and height must be even: the video is 4:2:0")
    process, frames = encoder(options), []
    for frame, truth in render(options):
        process.stdin.write(frame.tobytes())
        frames.append(rounded(truth))
    process.stdin.close()
    if process.wait():
        raise SystemExit("encoding failed")
    with open(options.truth, "w") as file:
        json.dump({"width": options.width, "height": options.height, "fps": options.fps,
                   "frames": frames}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
