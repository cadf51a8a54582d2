#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""HOTA and IDF1 of the trackers on crowds whose numbers are known, by TrackEval, compared with the papers' own programs on the same detections.

    pip install numpy scipy filterpy trackeval
    CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo bench --profile dev --bench track --no-run     # prints where the program lies
    tests/track/crowds.py PROGRAM ByteTrack OC_SORT BoostTrack    # the folders of tests/gold/tracks.py; without them, ours alone

At the end there is a line for each tracker that compares vectors: changes of numbers in the scenes with vectors, against the same detections without
them. Exit status 1 where vectors save less than 60 % of them.
"""

import collections
import pathlib
import random
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "gold"))
import numpy as np
import tracks as gold
from scipy.optimize import linear_sum_assignment
from trackeval.metrics import CLEAR, HOTA, Identity


class Scene(gold.Crowd):
    """A crowd with what a detector finds of it, and the truth."""

    def __init__(self, seed, count, dropped=0.04, doubled=0.02, shake=0.0, speed=6.0):
        super().__init__(seed, count, speed)
        self.dropped, self.doubled, self.shake = dropped, doubled, shake
        self.camera = [0.0, 0.0]

    def frame(self):
        r = self.random
        self.camera = [0.7 * at + r.gauss(0, self.shake) for at in self.camera]
        boxes = [(n, *(e + self.camera[i % 2] for i, e in enumerate(box))) for n, *box in self.step()]
        truth, found = [], []
        for at, (number, *box) in enumerate(boxes):
            hidden = max([gold.cover(box, other[1:]) for other in boxes[at + 1:]], default=0.0)
            # What nothing is seen of is no truth.
            if hidden < 0.9:
                truth.append((number, *box))
            if r.random() < self.dropped or hidden > 0.75:
                continue
            score = min(0.97, max(0.05, r.gauss(0.85, 0.08) - 0.9 * hidden))
            for copy in range(2 if r.random() < self.doubled else 1):
                w, h = box[2] - box[0], box[3] - box[1]
                edges = [round(edge + r.gauss(0, 0.02) * side, 1) for edge, side in zip(box, (w, h, w, h))]
                found.append((*edges, gold.not_on_edge(round(score * (0.6 if copy else 1.0), 3)), *self.look(number, hidden)))
        r.shuffle(found)
        return truth, found

    def look(self, number, hidden):
        """The vector of an object; none in most scenes."""
        return ()


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


class LookAlikes(Scene):
    """A crowd of pairs that look alike: their vectors have a cosine of about 0.6, and two vectors of one object one of 0.9, less where another
    object hides a part of it."""

    def __init__(self, seed, count, dims=128):
        super().__init__(seed, count)
        self.normal = np.random.default_rng(seed).standard_normal
        shared = np.repeat(unit(self.normal(((count + 1) // 2, dims))), 2, axis=0)[:count]
        self.looks = unit(0.6**0.5 * shared + 0.4**0.5 * unit(self.normal((count, dims))))

    def look(self, number, hidden):
        noise = min(1.0, 0.1 + hidden / 2)
        own = self.looks[number]
        return unit((1 - noise) ** 0.5 * own + noise**0.5 * unit(self.normal(own.shape))).round(4).tolist()


class Crossing:
    """Pairs that walk through each other; all is seen as it is."""

    def __init__(self, pairs=10):
        self.pairs, self.at = pairs, 0

    def frame(self):
        self.at += 1
        truth = []
        for pair in range(self.pairs):
            for side in (0, 1):
                way = (4 + pair * 0.3) * self.at % 2600
                x = (way if way < 1300 else 2600 - way) + 200
                x = 1700 - x if side else x
                y = 120 + pair * 95 + side * 8
                truth.append((2 * pair + side, x - 20, y - 40, x + 20, y + 40))
        return truth, [(*box, 0.9) for _, *box in truth]


SCENES = {
    "crossing": (Crossing(), 1000),
    "5 objects": (Scene(11, 5), 600),
    "20 objects": (Scene(12, 20), 300),
    "60 objects": (Scene(13, 60), 150),
    "300 objects": (Scene(14, 300), 60),
    "camera shakes": (Scene(15, 30, shake=5.0), 200),
    "a fifth dropped, a tenth doubled": (Scene(16, 30, dropped=0.2, doubled=0.1), 200),
    "slow": (Scene(17, 30, speed=2.0), 300),
}
# Scenes in which objects have vectors.
LOOKS = {
    "20 objects with vectors": (LookAlikes(18, 20), 300),
    "60 objects with vectors": (LookAlikes(19, 60), 150),
}
KINDS = ["bytetrack", "ocsort", "botsort-iou", "iou", "boosttrack"]
KINDS_OF_LOOKS = [*KINDS, "botsort", "deepocsort"]
# Those that compare vectors.
LOOKING = ["boosttrack", "botsort", "deepocsort"]
# The authors' programs do not find lost objects by distance.
AS_IN_PAPERS = ["bytetrack", "ocsort", "boosttrack", "botsort-iou", "botsort", "deepocsort"]
PAPERS = "reassociate=false"
# The share of the changes of numbers that vectors save.
SAVED = 0.6


def ours(program, kind, frames, interval=1, *options):
    lines = []
    for number, (_, found) in enumerate(frames):
        lines += [" ".join(map(str, (number, *row))) for row in found] or [str(number)]
    thresh = "0.6" if kind in ("ocsort", "deepocsort") else "0.5"
    command = [program, "run", str(interval), f"tracker={kind}", f"track-thresh={thresh}", *options]
    said = subprocess.run(command, input="\n".join(lines), text=True, capture_output=True, check=True).stdout
    tracks = [[] for _ in frames]
    for line in said.splitlines():
        frame, number, *box = line.split()
        tracks[int(frame)].append((int(number), *map(float, box)))
    return tracks


def theirs(run, folder, frames):
    detections = [[row[:5] for row in found] for _, found in frames]
    return [[(i, *found[n][:4]) for n, i in ids.items()] for found, ids in zip(detections, run(folder, detections))]


def bound(frames, interval, camera):
    """What a tracker that sees each `interval`-th frame can reach, if it knows the true number and box of all that was detected:
    until the next of these frames, boxes move as they did since the last one. What has come or turned meanwhile is in no detection.
    `camera` has the positions that it knows of the camera, which stays where it was in the last of these frames."""
    shown, moving = [], []
    for number, (truth, found) in enumerate(frames):
        if number % interval:
            shown.append([(n, *(at + way * (number % interval))) for n, at, way in moving])
            continue
        before = {n: np.array(box) for n, *box in frames[number - interval][0]} if number else {}
        rows, moving = [], []
        overlaps = gold.ious([box for _, *box in truth], [row[:4] for row in found])
        for at, row in zip(*linear_sum_assignment(-overlaps)):
            if overlaps[at, row] >= 0.5:
                n, *box = truth[at]
                box = np.array(box)
                rows.append((n, *found[row][:4]))
                moved = box - before[n] - np.tile(camera[number] - camera[number - interval], 2) if n in before else 0 * box
                moving.append((n, box, moved / interval))
        shown.append(rows)
    return shown


METRICS = HOTA(), CLEAR({"PRINT_CONFIG": False}), Identity({"PRINT_CONFIG": False})


def score(frames, tracks):
    """What TrackEval's metrics make of a scene."""
    truth_ids = sorted({n for truth, _ in frames for n, *_ in truth})
    track_ids = sorted({n for rows in tracks for n, *_ in rows})
    place = [{n: at for at, n in enumerate(ids)} for ids in (truth_ids, track_ids)]
    data = {"gt_ids": [], "tracker_ids": [], "similarity_scores": []}
    for (truth, _), rows in zip(frames, tracks):
        data["gt_ids"].append(np.array([place[0][n] for n, *_ in truth], int))
        data["tracker_ids"].append(np.array([place[1][n] for n, *_ in rows], int))
        data["similarity_scores"].append(gold.ious([box for _, *box in truth], [box for _, *box in rows]))
    data |= {
        "num_timesteps": len(frames), "num_gt_ids": len(truth_ids), "num_tracker_ids": len(track_ids),
        "num_gt_dets": sum(map(len, data["gt_ids"])), "num_tracker_dets": sum(map(len, data["tracker_ids"])),
    }
    return [metric.eval_sequence(data) for metric in METRICS]


def combined(scores):
    """Of several scenes together, each object and each box with the same weight, as TrackEval combines sequences."""
    return [metric.combine_sequences(dict(enumerate(of))) for metric, of in zip(METRICS, zip(*scores))]


def show(scene, kind, scores, frames):
    """HOTA and its parts DetA, AssA and LocA, IDF1, changes of numbers per 1,000 frames, recall."""
    hota, clear, identity = scores
    parts = " | ".join(f"{100 * hota[part].mean():.1f}" for part in ("HOTA", "DetA", "AssA", "LocA"))
    print(f"| {scene} | {kind} | {parts} | {100 * identity['IDF1']:.1f} | {1000 * clear['IDSW'] / frames:.0f} | {100 * clear['CLR_Re']:.1f} |")


def spared(switches):
    """A line for each tracker: changes of numbers in the scenes with vectors, with and without these, by `switches` of tracker, settings and
    whether it had vectors. Whether all keep to the bar."""
    print("\n| tracker | settings | changes of numbers with vectors | without | saved | bar | |\n" + "|---" * 7 + "|")
    are_enough = True
    for kind in LOOKING:
        for settings in ("defaults", PAPERS):
            looking, blind = (switches[kind, settings, has_vectors] for has_vectors in (True, False))
            # With nothing to save there is nothing that vectors could show.
            share = 1 - looking / blind if blind else float("nan")
            is_enough = share >= SAVED
            are_enough &= is_enough
            verdict = "PASS" if is_enough else "FAIL"
            print(f"| {kind} | {settings} | {looking} | {blind} | {100 * share:.1f} % | ≥ {100 * SAVED:.0f} % | {verdict} |")
    return are_enough


def main():
    program, folders = sys.argv[1], [pathlib.Path(folder) for folder in sys.argv[2:5]]
    print("| scene | tracker | HOTA | DetA | AssA | LocA | IDF1 | changes of numbers per 1,000 frames | recall |\n" + "|---" * 9 + "|")
    of_all, switches = {}, collections.Counter()
    for name, (scene, length) in (SCENES | LOOKS).items():
        random.seed(0)
        frames, camera = [], []
        for _ in range(length):
            frames.append(scene.frame())
            camera.append(np.array(getattr(scene, "camera", (0, 0))))
        kinds = KINDS_OF_LOOKS if name in LOOKS else KINDS
        runs = {kind: ours(program, kind, frames) for kind in kinds}
        runs |= {f"{kind}, {PAPERS}": ours(program, kind, frames, 1, PAPERS) for kind in AS_IN_PAPERS if kind in kinds}
        runs |= {f"{kind}, interval=5": ours(program, kind, frames, 5) for kind in kinds}
        if name in LOOKS:
            blind = [(truth, [row[:5] for row in found]) for truth, found in frames]
            for kind in LOOKING:
                runs[f"{kind} without vectors"] = ours(program, kind, blind)
                runs[f"{kind} without vectors, {PAPERS}"] = ours(program, kind, blind, 1, PAPERS)
        runs["bound of interval=5"] = bound(frames, 5, 0 * np.array(camera))
        if np.any(camera):
            runs["bound that knows the camera"] = bound(frames, 5, camera)
        programs = {"ByteTrack": gold.bytetrack, "OC-SORT": gold.ocsort, "BoostTrack": gold.boosttrack}
        for (author, run), folder in zip(programs.items(), folders):
            runs[f"{author}'s program"] = theirs(run, folder, frames)
        for kind, tracks in runs.items():
            scores = score(frames, tracks)
            show(name, kind, scores, length)
            if name in SCENES:
                of_all.setdefault(kind, []).append(scores)
            else:
                tracker, _, settings = kind.partition(", ")
                plain = tracker.removesuffix(" without vectors")
                switches[plain, settings or "defaults", plain == tracker] += int(scores[1]["IDSW"])
    for kind, scores in of_all.items():
        if len(scores) == len(SCENES):
            show("all of them", kind, combined(scores), sum(length for _, length in SCENES.values()))
    return not spared(switches)


if __name__ == "__main__":
    sys.exit(main())
