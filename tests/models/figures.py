#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Synthetic scenes of figures with limbs: the renderer behind the training data of the pose
# network (train_pose.py) and behind the sample clip (../data/render.py --task pose).
# numpy only.  Backgrounds, camera and codec are those of scenes.py.
#
# Look at some scenes (writes a PPM contact sheet that any image viewer opens):
#   python3 tests/models/figures.py --seed 1 --out /tmp/figures.ppm
#
# A figure is a skeleton in three dimensions, seen from any side and painted as bars with
# round ends, the far ones first.  The arm and the leg on its left are always the lighter ones, so that
# left and right can be distinguished from the back too.
#
# Ground truth, as every test of this project understands it:
#   - the box of a figure is its full extent (hidden parts too) clipped to the frame;
#   - keypoints are the 17 of COCO: x, y in pixels of the frame and a visibility,
#     2 = seen, 1 = hidden by something inside the frame, 0 = outside the frame (x = y = 0);
#   - a figure is marked `ignore` when less than MIN_VISIBLE of its area can be seen, when
#     fewer than MIN_KEYPOINTS of its keypoints lie in the frame, or when the longer side
#     of its box is shorter than MIN_LENGTH pixels of the network's input.

import argparse
import math

import numpy as np

import scenes
from scenes import MIN_VISIBLE, contrast, pick_colour

LABEL = "figure"
SIDE = 320  # of the network's square input
KEYPOINTS = ("nose", "left_eye", "right_eye", "left_ear", "right_ear", "left_shoulder", "right_shoulder",
             "left_elbow", "right_elbow", "left_wrist", "right_wrist", "left_hip", "right_hip",
             "left_knee", "right_knee", "left_ankle", "right_ankle")
COUNT = len(KEYPOINTS)
EDGES = ((15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8),
         (7, 9), (8, 10), (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6))
MIN_KEYPOINTS = 6
MIN_LENGTH = 24.0
MAX_FIGURES = 8
HEIGHT = 1.7  # of a figure that stands upright, in units of its skeleton
OCCLUDER = -2  # its entry in the map of owners is one more

# Which painted parts show a keypoint.  Parts: 0 torso, 1 head, 2 nose, 3 and 4 eyes, 5 and 6 ears,
# 7 and 8 upper arms, 9 and 10 forearms, 11 and 12 thighs, 13 and 14 shins.
PARTS = 15
SHOWN_BY = ((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), (1, 5), (1, 6), (0, 7), (0, 8), (7, 9), (8, 10), (9,), (10,),
            (0, 11), (0, 12), (11, 13), (12, 14), (13,), (14,))
SHOWN = np.zeros((COUNT, PARTS), bool)
for _keypoint, _parts in enumerate(SHOWN_BY):
    SHOWN[_keypoint, list(_parts)] = True

# Angles of a pose, in radians: lean forward and sideways, turn and nod of the head, then for
# the left and the right arm: swing forward, raise sideways, elbow; and leg: swing, raise, knee.
ANGLES = 4 + 2 * 3 + 2 * 3


# ------------------------------------------------------------------- skeleton

def random_pose(rng):
    """Standing, walking or anything a puppet could do."""
    pose = np.zeros(ANGLES)
    pose[:4] = rng.normal(0, (0.15, 0.1, 0.4, 0.15))
    kind = rng.integers(0, 3)
    for side in (0, 1):
        arm, leg = pose[4 + 3 * side:7 + 3 * side], pose[10 + 3 * side:13 + 3 * side]
        if kind == 0:
            arm[:] = rng.normal(0, 0.2), abs(rng.normal(0.15, 0.15)), abs(rng.normal(0.1, 0.3))
            leg[:] = rng.normal(0, 0.1), abs(rng.normal(0.05, 0.1)), abs(rng.normal(0, 0.1))
        elif kind == 1:
            stride = rng.uniform(0.2, 0.7) * (1 if side else -1)
            arm[:] = -stride, rng.uniform(0, 0.3), rng.uniform(0, 1.4)
            leg[:] = stride, rng.uniform(0, 0.1), rng.uniform(0, 0.9)
        else:
            arm[:] = rng.uniform(-0.7, 1.6), rng.uniform(0, 2.8), rng.uniform(0, 2.0)
            leg[:] = rng.uniform(-0.4, 1.3), rng.uniform(0, 0.8), rng.uniform(0, 1.6)
    return pose


def direction(swing, raised, side):
    """Unit vector of a limb that hangs down when both angles are zero."""
    return np.array([side * math.sin(raised), math.cos(raised) * math.cos(swing),
                     math.cos(raised) * math.sin(swing)])


def turn(points, axis, angle):
    """Points rotated about an axis: 0 = x, 1 = y, 2 = z."""
    a, b = [i for i in range(3) if i != axis]
    c, s = math.cos(angle), math.sin(angle)
    out = points.copy()
    out[:, a], out[:, b] = c * points[:, a] - s * points[:, b], s * points[:, a] + c * points[:, b]
    return out


def skeleton(pose, build):
    """The 17 keypoints and the centre of the head: x to the figure's left, y down, z forward."""
    arm, leg, shoulder, hip = build[:4]
    head = np.array([[0, 0.02, 0.13], [0.055, -0.025, 0.11], [-0.055, -0.025, 0.11],
                     [0.13, 0, 0], [-0.13, 0, 0], [0, 0, 0]])
    head = turn(turn(head, 0, pose[3]), 1, pose[2]) + (0, -0.72, 0.02)
    upper = np.concatenate([head, [[shoulder, -0.5, 0], [-shoulder, -0.5, 0]]])
    upper = turn(turn(upper, 0, pose[0]), 2, pose[1])
    points = np.zeros((COUNT + 1, 3))
    points[:5], points[COUNT], points[5:7] = upper[:5], upper[5], upper[6:8]
    points[11:13] = (hip, 0, 0), (-hip, 0, 0)
    for side in (0, 1):
        sign = 1 - 2 * side
        swing, raised, bend = pose[4 + 3 * side:7 + 3 * side]
        points[7 + side] = points[5 + side] + 0.29 * arm * direction(swing, raised, sign)
        points[9 + side] = points[7 + side] + 0.27 * arm * direction(swing + bend, raised * 0.9, sign)
        swing, raised, bend = pose[10 + 3 * side:13 + 3 * side]
        points[13 + side] = points[11 + side] + 0.42 * leg * direction(swing, raised, sign)
        points[15 + side] = points[13 + side] + 0.40 * leg * direction(swing - bend, raised, sign)
    return points


# -------------------------------------------------------------------- figures

class Figure:
    """One figure: where its hips are, how large it is, its pose and its colours."""

    def __init__(self, rng, size, backdrop, least=35.0):
        self.size, self.cx, self.cy = size, 0.0, 0.0
        self.pose = random_pose(rng)
        # Half of the figures face the viewer more or less, the others look anywhere.
        self.yaw = rng.uniform(-0.9, 0.9) if rng.random() < 0.5 else rng.uniform(-math.pi, math.pi)
        self.pitch, self.roll = rng.normal(0, (0.12, 0.15))
        self.build = [*rng.uniform(0.9, 1.12, 2), rng.uniform(0.16, 0.22), rng.uniform(0.08, 0.12)]
        self.girth = rng.uniform(0.75, 1.3)
        self.colours = paint(rng, backdrop, least)
        self.outline = rng.uniform(0.1, 0.25) if rng.random() < 0.3 else 0.0
        self.outline_colour = rng.uniform(0, 60, 3).astype(np.float32)

    def joints(self):
        """[18, 3]: keypoints and the head's centre in frame pixels; z grows towards the viewer."""
        points = turn(skeleton(self.pose, self.build), 1, -self.yaw)
        points = turn(turn(points, 0, self.pitch), 2, self.roll) * (self.size / HEIGHT)
        return points + (self.cx, self.cy, 0)

    def bars(self, points):
        """(depth, part, start, end, radius at the start, radius at the end), far ones first."""
        unit = self.size / HEIGHT
        thin, bars = self.girth * unit, []
        add = lambda part, p, q, r, s, nearer=0.0: bars.append(
            ((p[2] + q[2]) / 2 + nearer * unit, part, p[:2], q[:2], r, s))
        chest, pelvis, head = points[5:7].mean(0), points[11:13].mean(0), points[COUNT]
        depth = (chest[2] + pelvis[2]) / 2
        for p, q, r, s in ((chest, pelvis, 0.09, 0.08), (points[5], points[11], 0.06, 0.06),
                           (points[6], points[12], 0.06, 0.06), (points[5], points[6], 0.06, 0.06),
                           (chest, (chest + head) / 2, 0.05, 0.05)):
            bars.append((depth, 0, p[:2], q[:2], r * thin, s * thin))
        add(1, head, head, 0.13 * unit, 0.13 * unit)
        # What lies on the head's far half is hidden by it.
        add(2, points[0], points[0], 0.028 * unit, 0.028 * unit, 0.01)
        for side in (0, 1):
            add(3 + side, points[1 + side], points[1 + side], 0.024 * unit, 0.024 * unit)
            add(5 + side, points[3 + side], points[3 + side], 0.035 * unit, 0.035 * unit)
            add(7 + side, points[5 + side], points[7 + side], 0.055 * thin, 0.045 * thin)
            add(9 + side, points[7 + side], points[9 + side], 0.045 * thin, 0.04 * thin)
            # Thighs start inside the torso; it covers their ends.
            add(11 + side, points[11 + side], points[13 + side], 0.07 * thin, 0.055 * thin)
            add(13 + side, points[13 + side], points[15 + side], 0.055 * thin, 0.045 * thin)
        return sorted(bars, key=lambda bar: bar[0])

    def extent(self):
        """Box x0, y0, x1, y1 of all that is painted."""
        bars = self.bars(self.joints())
        ends = np.array([[*p, r] for _, _, a, b, ra, rb in bars for p, r in ((a, ra), (b, rb))])
        return (*(ends[:, :2] - ends[:, 2:]).min(0), *(ends[:, :2] + ends[:, 2:]).max(0))

    def draw(self, canvas, owner, index):
        """Blends the figure into the canvas, and enters its parts into the map of visible owners.

        Leaves behind what truth_of() needs: joints, box and full area."""
        self.points = self.joints()
        self.box = self.extent()
        left, top = math.floor(self.box[0]) - 1, math.floor(self.box[1]) - 1
        width, height = math.ceil(self.box[2]) + 1 - left, math.ceil(self.box[3]) + 1 - top
        # Painted by itself first, colours times opacity, so that its full area is known.
        paint = np.zeros((height, width, 3), np.float32)
        opacity, parts = np.zeros((height, width, 1), np.float32), np.full((height, width), -1, np.int16)
        for _, part, p, q, r, s in self.bars(self.points):
            self.draw_bar((paint, opacity, parts), (left, top), part, p, q, r, s)
        self.area = np.count_nonzero(parts >= 0)
        x0, y0 = max(left, 0), max(top, 0)
        x1, y1 = min(left + width, canvas.shape[1]), min(top + height, canvas.shape[0])
        if x0 >= x1 or y0 >= y1:
            return
        own = np.s_[y0 - top:y1 - top, x0 - left:x1 - left]
        area = canvas[y0:y1, x0:x1]
        mixed = area * (1 - opacity[own]) + paint[own]
        area[:] = mixed + 0.5 if canvas.dtype == np.uint8 else mixed
        seen = parts[own] >= 0
        owner[y0:y1, x0:x1][seen] = index * PARTS + parts[own][seen] + 1

    def draw_bar(self, layers, corner, part, p, q, r, s):
        paint, opacity, parts = layers
        reach = max(r, s) + 1
        p, q = p - corner, q - corner
        x0, y0 = np.maximum(np.floor(np.minimum(p, q) - reach).astype(int), 0)
        x1, y1 = np.ceil(np.maximum(p, q) + reach).astype(int)
        xs = np.arange(x0, min(x1, parts.shape[1]), dtype=np.float32)[None, :] + 0.5
        ys = np.arange(y0, min(y1, parts.shape[0]), dtype=np.float32)[:, None] + 0.5
        distance = scenes.capsule_distance(xs, ys, p, q - p + 1e-6, r, s)
        mask = np.clip(0.5 - distance, 0, 1)[..., None]
        colour = self.colours[part]
        if self.outline and part not in (2, 3, 4):
            inner = np.clip(0.5 - distance - max(0.7, self.outline * r), 0, 1)[..., None]
            colour = self.outline_colour + inner * (colour - self.outline_colour)
        own = np.s_[y0:y0 + len(ys), x0:x0 + xs.shape[1]]
        paint[own] += mask * (colour - paint[own])
        opacity[own] += mask * (1 - opacity[own])
        parts[own][mask[..., 0] > 0.5] = part


def light_and_dark(rng, backdrop, least):
    """Colours of a left and a right limb: the left one's mean is clearly above the other's."""
    best, best_margin = None, -1e9
    for _ in range(60):
        left, right = rng.uniform(0, 255, (2, 3)).astype(np.float32)
        step = left.mean() - right.mean()
        margin = min(step - 70, contrast(left, backdrop) - least, contrast(right, backdrop) - least)
        if margin > best_margin:
            best, best_margin = (left, right), margin
        if margin >= 0:
            break
    return best


def paint(rng, backdrop, least):
    """One colour for each part."""
    arms = light_and_dark(rng, backdrop, least)
    legs = light_and_dark(rng, backdrop, least) if rng.random() < 0.5 else arms
    torso = pick_colour(rng, [backdrop, *arms, *legs], least)
    head = pick_colour(rng, [backdrop], least)
    nose, eye = pick_colour(rng, [head], 60.0), pick_colour(rng, [head], 90.0)
    ear = pick_colour(rng, [backdrop, head], least)
    return [torso, head, nose, eye, eye, ear, ear, *arms, *arms, *legs, *legs]


# --------------------------------------------------------------- ground truth

def keypoints_of(figure, owner, index):
    """[17, 3]: x, y, visibility."""
    height, width = owner.shape
    points = figure.points[:COUNT]
    found = np.zeros((COUNT, 3))
    inside = (points[:, 0] >= 0) & (points[:, 1] >= 0) & (points[:, 0] < width) & (points[:, 1] < height)
    found[inside, :2] = points[inside, :2]
    found[inside, 2] = 1
    for k in np.nonzero(inside)[0]:
        part = int(owner[int(points[k, 1]), int(points[k, 0])]) - 1 - index * PARTS
        seen = 0 <= part < PARTS and SHOWN[k, part]
        if k < 5:  # on the near half of the head
            seen = seen and points[k, 2] > figure.points[COUNT, 2] - 0.03 * figure.size / HEIGHT
        found[k, 2] += bool(seen)
    return found


def ground_truth(figures, owner):
    """One dict a figure that reaches into the frame; see the rules at the top."""
    height, width = owner.shape
    scale = scenes.letterbox_geometry(width, height, SIDE)[0]
    truth = []
    for index, figure in enumerate(figures):
        x0, x1 = max(figure.box[0], 0.0), min(figure.box[2], float(width))
        y0, y1 = max(figure.box[1], 0.0), min(figure.box[3], float(height))
        if x1 <= x0 or y1 <= y0:
            continue
        region = owner[int(y0):math.ceil(y1), int(x0):math.ceil(x1)]
        seen = np.count_nonzero((region > index * PARTS) & (region <= (index + 1) * PARTS))
        if not seen:
            continue
        keypoints = keypoints_of(figure, owner, index)
        ignore = (seen < MIN_VISIBLE * figure.area or max(x1 - x0, y1 - y0) * scale < MIN_LENGTH
                  or np.count_nonzero(keypoints[:, 2]) < MIN_KEYPOINTS)
        truth.append({"class_id": 0, "label": LABEL, "x": float(x0), "y": float(y0),
                      "w": float(x1 - x0), "h": float(y1 - y0), "ignore": bool(ignore),
                      "keypoints": [[float(x), float(y), int(v)] for x, y, v in keypoints]})
    return truth


# ------------------------------------------------------------ training scenes

def overlap(box, others):
    """Largest share of the smaller of two boxes that the other one covers."""
    worst = 0.0
    area = lambda b: (b[2] - b[0]) * (b[3] - b[1])
    for o in others:
        dx, dy = min(box[2], o[2]) - max(box[0], o[0]), min(box[3], o[3]) - max(box[1], o[1])
        if dx > 0 and dy > 0:
            worst = max(worst, dx * dy / min(area(box), area(o)))
    return worst


def place(rng, figure, width, height, others):
    """Moves a figure to a position mostly clear of the others, sometimes cut by an edge; False if none is found."""
    x0, y0, x1, y1 = figure.extent()
    tolerated = 0.5 if rng.random() < 0.4 else 0.1
    reach = rng.choice([-0.5, 0.25], p=[0.7, 0.3])  # inside the frame, or past its edge
    for _ in range(8):
        cx, cy = (rng.uniform(min(-reach * s, n / 2), max(n + reach * s, n / 2))
                  for n, s in ((width, x1 - x0), (height, y1 - y0)))
        dx, dy = cx - (x0 + x1) / 2, cy - (y0 + y1) / 2
        if overlap((x0 + dx, y0 + dy, x1 + dx, y1 + dy), others) <= tolerated:
            figure.cx, figure.cy = figure.cx + dx, figure.cy + dy
            return True
    return False


def occlude(rng, canvas, owner, unit):
    """A disc or a box in front of everything."""
    height, width = canvas.shape[:2]
    class_id = int(rng.integers(0, 2))
    w, h = scenes.random_size(rng, class_id, unit, 12.0, 60.0)
    shape = scenes.Shape(class_id, rng.uniform(0, width), rng.uniform(0, height), w, h)
    shape.paint(rng, scenes.mean_colour(canvas, shape), 30.0).draw(canvas, owner, OCCLUDER)


def random_scene(rng):
    """One frame (uint8 RGB of any size) and its ground truth."""
    width, height = scenes.random_frame_size(rng, SIDE)
    unit = 1 / scenes.letterbox_geometry(width, height, SIDE)[0]
    canvas = scenes.background(rng, height, width, unit, rng.uniform(0.3, 1.1))
    backdrop = canvas[::8, ::8].reshape(-1, 3).mean(0)
    owner = np.zeros((height, width), np.int16)
    figures, boxes = [], []
    for _ in range(0 if rng.random() < 0.04 else rng.integers(1, MAX_FIGURES)):
        size = math.exp(rng.uniform(math.log(40), math.log(280))) * unit
        figure = Figure(rng, size, backdrop)
        if place(rng, figure, width, height, boxes):
            figures.append(figure)
            boxes.append(figure.extent())
    if rng.random() < 0.7:  # small ones on top, so that few are hidden for good
        figures.sort(key=lambda figure: -figure.size)
    for index, figure in enumerate(figures):
        figure.draw(canvas, owner, index)
    for _ in range(rng.integers(1, 4) if rng.random() < 0.4 else 0):
        occlude(rng, canvas, owner, unit)
    canvas = scenes.degrade(rng, canvas, unit)
    if rng.random() < 0.75:
        canvas = scenes.codec(rng, canvas)
    return (canvas + 0.5).astype(np.uint8), ground_truth(figures, owner)


def to_input(truth, geometry):
    """Ground truth of a frame in pixels of the network's letterboxed input."""
    scale, left, top = geometry
    return [dict(t, x=t["x"] * scale + left, y=t["y"] * scale + top, w=t["w"] * scale, h=t["h"] * scale,
                 keypoints=[[x * scale + left, y * scale + top, v] if v else [0.0, 0.0, 0]
                            for x, y, v in t["keypoints"]]) for t in truth]


FIELDS = 6 + 3 * COUNT


def training_sample(seed):
    """Letterboxed image and rows [valid, ignore, cx, cy, w, h, 17 times x, y, visibility] in its pixels."""
    frame, truth = random_scene(np.random.default_rng(seed))
    image, geometry = scenes.letterbox(frame, SIDE)
    rows = np.zeros((MAX_FIGURES, FIELDS), np.float32)
    for row, t in zip(rows, to_input(truth, geometry)):
        row[:6] = 1, t["ignore"], t["x"] + t["w"] / 2, t["y"] + t["h"] / 2, t["w"], t["h"]
        row[6:] = np.ravel(t["keypoints"])
    return image, rows


# --------------------------------------------------------------- contact sheet

def draw_skeleton(image, row):
    """The box, lines between labelled keypoints, and a dot for each: white when seen, black when hidden."""
    scenes.outline_boxes(image, [[1, row[1], 1, *row[2:6]]], SIDE)
    points = row[6:].reshape(COUNT, 3)
    for a, b in EDGES:
        if points[a, 2] and points[b, 2]:
            steps = np.linspace(points[a, :2], points[b, :2], 80).astype(int).clip(0, SIDE - 1)
            image[steps[:, 1], steps[:, 0]] = 255, 255, 0
    for x, y, v in points:
        if v:
            image[int(y):int(y) + 2, int(x):int(x) + 2] = 255 if v == 2 else 0


def main():
    parser = argparse.ArgumentParser(description="Writes a contact sheet of scenes as PPM.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=3)
    parser.add_argument("--columns", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="without boxes and skeletons")
    parser.add_argument("--out", default="figures.ppm")
    options = parser.parse_args()

    def sample(row, column):
        image, rows = training_sample([options.seed, row, column])
        for figure in rows[rows[:, 0] > 0] if not options.plain else ():
            draw_skeleton(image, figure)
        return image

    scenes.write_sheet(sample, options)


if __name__ == "__main__":
    main()
