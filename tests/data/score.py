#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Scores detections against the ground truth of a rendered clip (see render.py).
# Python's standard library only.
#
#   python3 tests/data/score.py tests/data/sample.json detections.jsonl \
#       --min-precision 0.98 --min-recall 0.98 --min-iou 0.85
#
# The detections are JSON lines, one object a frame:
#   {"stream-time":ns, "frame":n, "width":W, "height":H, "held":false,
#    "detections":[{"label","class-id","confidence","x","y","w","h"}, ...]}
#
# Rules: within a frame the detections are taken by falling confidence; each is matched
# with the free object of its class with the largest overlap, if their IoU is at least --iou.
# Objects marked `ignore` are never missed; a detection without a match of which at least
# half lies in an ignored object counts neither way.  Objects of frames that the file does
# not mention count as missed, unless --only-present is given.
# Exit status: 0, or 1 when a figure is below its minimum, or 2 for unusable input.

import argparse
import json
import sys


def corners(box):
    return box["x"], box["y"], box["x"] + box["w"], box["y"] + box["h"]


def intersection(a, b):
    ax0, ay0, ax1, ay1 = corners(a)
    bx0, by0, bx1, by1 = corners(b)
    return max(0.0, min(ax1, bx1) - max(ax0, bx0)) * max(0.0, min(ay1, by1) - max(ay0, by0))


def iou(a, b):
    inter = intersection(a, b)
    union = a["w"] * a["h"] + b["w"] * b["h"] - inter
    return inter / union if union > 0 else 0.0


def on_ignored(detection, ignored):
    area = detection["w"] * detection["h"]
    return any(area > 0 and intersection(detection, t) >= 0.5 * area for t in ignored)


def match_pairs(detections, truth, threshold, similarity=iou):
    """Matches as (detection, object, similarity), the unmatched detections, the missed objects."""
    free = [t for t in truth if not t["ignore"]]
    ignored = [t for t in truth if t["ignore"]]
    pairs, false = [], []
    for d in sorted(detections, key=lambda d: -d["confidence"]):
        own = [(similarity(d, t), i) for i, t in enumerate(free) if t["class_id"] == d["class-id"]]
        best, index = max(own, default=(0.0, -1))
        if index >= 0 and best >= threshold:
            pairs.append((d, free.pop(index), best))
        elif not on_ignored(d, ignored):
            false.append(d)
    return pairs, false, free


def scale_of(detection, sx, sy):
    """A detection with its box, and its keypoints if it has any as a list of points, in other pixels."""
    moved = dict(detection, x=detection["x"] * sx, y=detection["y"] * sy,
                 w=detection["w"] * sx, h=detection["h"] * sy)
    if "keypoints" in detection:
        numbers, dims = detection["keypoints"], detection["keypoint-dims"]
        points = [numbers[at:at + dims] for at in range(0, len(numbers), dims)]
        moved["keypoints"] = [[x * sx, y * sy, *rest] for x, y, *rest in points]
    return moved


def scaled(detections, line, truth):
    """Detections in the pixels of the ground truth, should the frame have been resized."""
    sx = truth["width"] / line.get("width", truth["width"])
    sy = truth["height"] / line.get("height", truth["height"])
    return [scale_of(d, sx, sy) for d in detections]


def read_lines(path, truth):
    """{frame number: line}; without a frame number, by the stream time."""
    lines = {}
    with (sys.stdin if path == "-" else open(path, encoding="utf-8")) as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            line = json.loads(text)
            index = line.get("frame")
            if index is None:
                index = round(line["stream-time"] * truth["fps"] / 1e9)
            if index in lines or not 0 <= index < len(truth["frames"]):
                raise ValueError(f"line {number}: frame {index} is unknown or came twice")
            lines[index] = line
    return lines


def read_detections(path, truth):
    return {index: scaled(line["detections"], line, truth) for index, line in read_lines(path, truth).items()}


def score(truth, frames, threshold, only_present, verbose):
    """Counts over the whole clip."""
    ious, false, missed = [], 0, 0
    for index, objects in enumerate(truth["frames"]):
        if only_present and index not in frames:
            continue
        good, wrong, lost = match_pairs(frames.get(index, []), objects, threshold)
        ious += [similarity for _, _, similarity in good]
        false += len(wrong)
        missed += len(lost)
        if verbose:
            for kind, items in (("false", wrong), ("missed", lost)):
                for item in items:
                    print(f"frame {index}: {kind} {item['label']} at " + ", ".join(
                        f"{item[k]:.1f}" for k in "xywh"))
    hits = len(ious)
    return {"hits": hits, "false": false, "missed": missed,
            "precision": hits / (hits + false) if hits + false else 0.0,
            "recall": hits / (hits + missed) if hits + missed else 0.0,
            "mean_iou": sum(ious) / hits if hits else 0.0}


def average_precision(marks, objects):
    """Area under the precision envelope over recall; marks = (confidence, hit) of each detection that counts."""
    curve, hits = [], 0
    for number, (_, hit) in enumerate(sorted(marks, key=lambda mark: -mark[0]), 1):
        hits += hit
        curve.append((hits / objects if objects else 0.0, hits / number))
    area, best, above = 0.0, 0.0, curve[-1][0] if curve else 0.0
    for recall, precision in reversed(curve):
        area += (above - recall) * best
        best, above = max(best, precision), recall
    return area + above * best


def precision_and_recall(frames, similarity, sure=0.25, threshold=0.5):
    """Figures over pairs (detections, truth) of frames, and the matches of match_pairs: AP50 from all detections, the others from the sure ones."""
    marks, objects, sure_pairs, false = [], 0, [], 0
    for detections, truth in frames:
        pairs, wrong, missed = match_pairs(detections, truth, threshold, similarity)
        objects += len(pairs) + len(missed)
        marks += [(d["confidence"], 1) for d, _, _ in pairs] + [(d["confidence"], 0) for d in wrong]
        pairs, wrong, _ = match_pairs([d for d in detections if d["confidence"] >= sure], truth, threshold, similarity)
        sure_pairs += pairs
        false += len(wrong)
    hits = len(sure_pairs)
    return {"AP50": average_precision(marks, objects), "precision": hits / (hits + false) if hits + false else 0.0,
            "recall": hits / objects if objects else 0.0}, sure_pairs


def mean(values):
    return sum(values) / len(values) if values else 0.0


def parse_options():
    parser = argparse.ArgumentParser(description="Scores detections against ground truth.")
    parser.add_argument("truth")
    parser.add_argument("detections", help="JSON lines, or - for stdin")
    parser.add_argument("--iou", type=float, default=0.5)
    parser.add_argument("--min-precision", type=float, default=0.0)
    parser.add_argument("--min-recall", type=float, default=0.0)
    parser.add_argument("--min-iou", type=float, default=0.0)
    parser.add_argument("--only-present", action="store_true",
                        help="leave out frames the detections do not mention")
    parser.add_argument("--verbose", action="store_true", help="list every mistake")
    return parser.parse_args()


def main():
    options = parse_options()
    try:
        with open(options.truth, encoding="utf-8") as file:
            truth = json.load(file)
        frames = read_detections(options.detections, truth)
    except (OSError, ValueError, KeyError) as error:
        print(f"score.py: {error}", file=sys.stderr)
        return 2
    result = score(truth, frames, options.iou, options.only_present, options.verbose)
    print(f"frames {len(frames)} of {len(truth['frames'])}, hits {result['hits']}, "
          f"false {result['false']}, missed {result['missed']}")
    failed = False
    for name, least in (("precision", options.min_precision), ("recall", options.min_recall),
                        ("mean_iou", options.min_iou)):
        low = result[name] < least
        failed |= low
        print(f"{name} {result[name]:.4f}" + (f"  BELOW {least}" if low else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
