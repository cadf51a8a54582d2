#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Writes tests/gold/tracks: detections of moving crowds, and the tracks that the papers' own programs make of them.

    git clone https://github.com/ifzhang/ByteTrack && git clone https://github.com/noahcao/OC_SORT
    pip install numpy scipy filterpy
    tests/gold/tracks.py ByteTrack OC_SORT

Both programs are MIT-licensed. They are read from their folders and run as they are, but for these lines:

* ByteTrack: `removed_stracks` is extended before it is subtracted from the lost tracks, else a track whose time is up can be matched
  once more. Boxes have no extra pixel (`cython_bbox` adds one). `np.float` is `float`.
* LAPJV is SciPy's assignment of the matrix that `lap` extends by the cost limit.
"""

import pathlib
import random
import sys
import types

import filterpy.stats  # before there is a module called torch
import numpy as np
from scipy.optimize import linear_sum_assignment

HERE = pathlib.Path(__file__).parent / "tracks"
WIDTH, HEIGHT = 1920, 1080


class Crowd:
    """Boxes that move, hide each other, leave and come back."""

    def __init__(self, seed, count, speed=6.0):
        self.random = random.Random(seed)
        self.objects = [self.new(speed) for _ in range(count)]

    def new(self, speed):
        r = self.random
        height = r.uniform(30, 150)
        return {
            "x": r.uniform(0, WIDTH), "y": r.uniform(0, HEIGHT), "w": height * r.uniform(0.35, 0.6), "h": height,
            "vx": r.gauss(0, speed), "vy": r.gauss(0, speed / 2), "away": 0,
        }

    def step(self):
        """The objects in the frame as (object, left, top, right, bottom), the nearest last."""
        r = self.random
        seen = []
        for number, o in enumerate(self.objects):
            o["vx"] += r.gauss(0, 0.3)
            o["vy"] += r.gauss(0, 0.15)
            o["x"] += o["vx"]
            o["y"] += o["vy"]
            if o["away"]:
                o["away"] -= 1
                continue
            out = not (-o["w"] / 4 < o["x"] < WIDTH + o["w"] / 4 and 0 < o["y"] < HEIGHT)
            if out:
                # It turns, out of sight for a while.
                o["vx"], o["vy"] = (WIDTH / 2 - o["x"]) / 300, (HEIGHT / 2 - o["y"]) / 300
                o["away"] = r.randrange(2, 25)
                continue
            seen.append((number, o["x"] - o["w"] / 2, o["y"] - o["h"], o["x"] + o["w"] / 2, o["y"]))
        return sorted(seen, key=lambda box: box[4])

    def detections(self):
        """What a detector makes of it: (left, top, right, bottom, score)."""
        r = self.random
        boxes = self.step()
        found = []
        for at, (_, *box) in enumerate(boxes):
            hidden = max([cover(box, other[1:]) for other in boxes[at + 1:]], default=0.0)
            if r.random() < 0.04 or hidden > 0.75:
                continue
            score = min(0.97, max(0.05, r.gauss(0.85, 0.08) - 0.9 * hidden))
            for copy in range(2 if r.random() < 0.02 else 1):
                w, h = box[2] - box[0], box[3] - box[1]
                noise = [r.gauss(0, 0.02) * side for side in (w, h, w, h)]
                edges = [round(edge + by, 1) for edge, by in zip(box, noise)]
                found.append((*edges, not_on_edge(round(score * (0.6 if copy else 1.0), 3))))
        for _ in range(len(boxes) // 25):
            x, y, w, h = r.uniform(0, WIDTH), r.uniform(0, HEIGHT), r.uniform(20, 90), r.uniform(20, 150)
            found.append((*(round(e, 1) for e in (x, y, x + w, y + h)), not_on_edge(round(r.uniform(0.1, 0.7), 3))))
        r.shuffle(found)
        return found


def not_on_edge(score):
    """The programs differ in what they do with a score that is just a threshold."""
    return score + 0.001 if score in (0.1, 0.5, 0.6) else score


def cover(box, by):
    w = min(box[2], by[2]) - max(box[0], by[0])
    h = min(box[3], by[3]) - max(box[1], by[1])
    return max(w, 0) * max(h, 0) / ((box[2] - box[0]) * (box[3] - box[1]))


def ious(a, b):
    a, b = np.asarray(a, float).reshape(-1, 4), np.asarray(b, float).reshape(-1, 4)
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = np.clip(high - low, 0, None).prod(2)
    area = lambda boxes: (boxes[:, 2:] - boxes[:, :2]).prod(1)
    return inter / (area(a)[:, None] + area(b)[None] - inter)


def lapjv(cost, extend_cost=True, cost_limit=np.inf):
    rows, columns = cost.shape
    if np.isfinite(cost_limit):
        whole = np.full((rows + columns, rows + columns), cost_limit / 2)
        whole[rows:, columns:] = 0
        whole[:rows, :columns] = cost
    else:
        whole = cost
    x, y = np.full(rows, -1), np.full(columns, -1)
    for i, j in zip(*linear_sum_assignment(whole)):
        if i < rows and j < columns:
            x[i], y[j] = j, i
    return 0.0, x, y


def module(name, **names):
    made = sys.modules[name] = types.ModuleType(name)
    made.__dict__.update(names)
    return made


def load(name, path, *changes):
    text = path.read_text().replace("np.float)", "float)")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    made = module(name)
    made.__package__ = name.rpartition(".")[0]
    exec(compile(text, str(path), "exec"), made.__dict__)
    return made


def byte_tracker(folder):
    tracker = folder / "yolox" / "tracker"
    functional = module("torch.nn.functional")
    module("torch.nn", functional=functional)
    module("torch", nn=sys.modules["torch.nn"], Tensor=type("Tensor", (), {}))
    module("cv2")
    module("lap", lapjv=lapjv)
    module("cython_bbox", bbox_overlaps=ious)
    module("yolox").__path__ = []
    package = module("yolox.tracker")
    package.__path__ = []
    for name in ("kalman_filter", "matching", "basetrack"):
        setattr(package, name, load(f"yolox.tracker.{name}", tracker / f"{name}.py"))
    late = "        self.removed_stracks.extend(removed_stracks)\n"
    subtract = "        self.lost_stracks = sub_stracks(self.lost_stracks, self.removed_stracks)\n"
    made = load(
        "yolox.tracker.byte_tracker", tracker / "byte_tracker.py",
        (subtract + late, late + subtract),
        ("zip(dets, scores_keep)]", "zip(dets, scores_keep)]\n            for s, n in zip(detections, np.where(remain_inds)[0]): s.number = n"),
        ("zip(dets_second, scores_second)]", "zip(dets_second, scores_second)]\n            for s, n in zip(detections_second, np.where(inds_second)[0]): s.number = n"),
        ("        self.score = new_track.score", "        self.score, self.number = new_track.score, new_track.number"),
    )
    args = types.SimpleNamespace(track_thresh=0.5, track_buffer=30, match_thresh=0.8, mot20=False)
    return made.BYTETracker(args)


def bytetrack(folder, frames):
    tracker = byte_tracker(folder)
    for found in frames:
        boxes = np.array(found, float).reshape(-1, 5)
        tracks = tracker.update(boxes, (HEIGHT, WIDTH), (HEIGHT, WIDTH))
        yield {int(track.number): track.track_id for track in tracks}


def ocsort(folder, frames):
    tracker_folder = folder / "trackers" / "ocsort_tracker"
    module("lap", lapjv=lapjv)
    module("ocsort").__path__ = []
    for name in ("association", "kalmanfilter"):
        load(f"ocsort.{name}", tracker_folder / f"{name}.py")
    made = load("ocsort.ocsort", tracker_folder / "ocsort.py")
    tracker = made.OCSort(0.6, max_age=30, min_hits=3, iou_threshold=0.3, delta_t=3, inertia=0.2)
    for found in frames:
        boxes = np.array(found, float).reshape(-1, 5)
        # It gives back the boxes that were seen, in frame 1 but for rounding.
        rows = tracker.update(boxes, (HEIGHT, WIDTH), (HEIGHT, WIDTH))
        yield {int(abs(boxes[:, :4] - row[:4]).sum(1).argmin()): int(row[4]) for row in rows}


def boosttrack(folder, frames):
    """BoostTrack++ as its authors have it by default, without pixels: no motion of a camera, no vectors. MIT-licensed, github.com/vukasin-stanojevic/BoostTrack.
    Shapes are compared as the paper says (`s_sim_corr`), and each track tells which detection it was seen with."""
    module("lap", lapjv=lapjv)
    module("cv2")
    module("tracker").__path__ = []
    module("tracker.embedding", EmbeddingComputer=None)
    module("tracker.ecc", ECC=None)
    settings = load("default_settings", folder / "default_settings.py")
    settings.GeneralSettings.values |= {"use_ecc": False, "use_embedding": False}
    settings.BoostTrackSettings.values["s_sim_corr"] = True
    for name in ("assoc", "kalmanfilter"):
        load(f"tracker.{name}", folder / "tracker" / f"{name}.py")
    begin, see = "        self.kf = KalmanFilter(self.bbox_to_z_func(bbox))\n", "        self.kf.update(self.bbox_to_z_func(bbox), score)\n"
    number = "        self.number = bbox[5]\n"
    made = load(
        "tracker.boost_track", folder / "tracker" / "boost_track.py",
        (begin, begin + number), (see, see + number), ("[trk.get_confidence()])).reshape", "[trk.number])).reshape"),
    )
    tracker = made.BoostTrack()
    size = types.SimpleNamespace(shape=(1, 3, HEIGHT, WIDTH)), types.SimpleNamespace(shape=(HEIGHT, WIDTH, 3))
    for found in frames:
        boxes = np.array([(*row, number) for number, row in enumerate(found)], float).reshape(-1, 6)
        rows = tracker.update(boxes[boxes[:, 4] > 0.1], *size, "crowd")
        yield {int(row[5]): int(row[4]) for row in rows}


SCENES = [("5", 1, 5, 240), ("20", 2, 20, 150), ("60", 3, 60, 80), ("300", 4, 300, 30)]


def main():
    byte_folder, oc_folder = map(pathlib.Path, sys.argv[1:3])
    HERE.mkdir(exist_ok=True)
    for name, seed, count, length in SCENES:
        crowd = Crowd(seed, count)
        frames = [crowd.detections() for _ in range(length)]
        ids = list(zip(bytetrack(byte_folder, frames), ocsort(oc_folder, frames)))
        lines = ["# frame left top right bottom score, ids of ByteTrack and OC-SORT; see tracks.py"]
        for frame, (found, (byte, oc)) in enumerate(zip(frames, ids)):
            for number, row in enumerate(found):
                values = " ".join(f"{value:g}" if value < 1000 else f"{value:.1f}" for value in row[:4])
                lines.append(f"{frame} {values} {row[4]:.3f} {byte.get(number, 0)} {oc.get(number, 0)}")
            if not found:
                lines.append(f"{frame}")
        (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")
        print(name, len(lines), len({i for byte, _ in ids for i in byte.values()}), len({i for _, oc in ids for i in oc.values()}))


if __name__ == "__main__":
    main()
