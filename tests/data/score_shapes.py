#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Scores masks, rotated boxes or classes against the ground truth of a clip of shapes (render.py
# --task shapes or classes).  Python's standard library only.
#
#   python3 tests/data/score_shapes.py masks tests/data/shapes.json detections.jsonl --min-ap 0.95
#   python3 tests/data/score_shapes.py rotated tests/data/shapes.json detections.jsonl --min-ap 0.95
#   python3 tests/data/score_shapes.py classes tests/data/classes.json detections.jsonl --min-top1 0.98
#
# The detections are JSON lines as the plugin writes them.  The rules of matching are those of
# score.py, by the IoU of masks or of rotated boxes; AP50 is over the detections of all classes.
# Exit status: 0, or 1 when a figure is below its minimum, or 2 for unusable input.

import argparse
import json
import sys

import run_lengths
import score


def mask_iou(detection, truth):
    a, b = (entry.get("columns") or entry.setdefault("columns", run_lengths.columns(entry)) for entry in (detection, truth))
    count = lambda values: sum(bin(value).count("1") for value in values)
    shared = count(a[x] & b[x] for x in a.keys() & b.keys())
    return shared / max(count(a.values()) + count(b.values()) - shared, 1)


def area_of(points):
    """Of a polygon; negative if it runs the other way round."""
    return sum(ax * by - bx * ay for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1])) / 2


def cut(points, a, b):
    """The part of a polygon that lies on the left of the line from a to b (Sutherland and Hodgman)."""
    side = lambda p: (b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0])
    kept = []
    for p, q in zip(points, points[1:] + points[:1]):
        at, to = side(p), side(q)
        if at >= 0:
            kept.append(p)
        if at * to < 0:
            share = at / (at - to)
            kept.append((p[0] + share * (q[0] - p[0]), p[1] + share * (q[1] - p[1])))
    return kept


def polygon_of(entry):
    """The corners of a rotated box, in the direction in which its area is positive."""
    numbers = entry["corners"]
    points = [tuple(numbers[at:at + 2]) for at in range(0, 8, 2)]
    return points if area_of(points) >= 0 else points[::-1]


def rotated_iou(detection, truth):
    if score.intersection(around(detection), around(truth)) == 0:
        return 0.0
    a, b = polygon_of(detection), polygon_of(truth)
    shared = a
    for p, q in zip(b, b[1:] + b[:1]):
        shared = cut(shared, p, q)
    overlap = area_of(shared) if shared else 0.0
    return overlap / max(area_of(a) + area_of(b) - overlap, 1e-9)


def around(entry):
    xs, ys = entry["corners"][::2], entry["corners"][1::2]
    return {"x": min(xs), "y": min(ys), "w": max(xs) - min(xs), "h": max(ys) - min(ys)}


def measure(frames, similarity):
    """Figures over pairs (detections, truth) of frames."""
    figures, pairs = score.precision_and_recall(frames, similarity)
    return figures | {"mean IoU": score.mean([iou for *_, iou in pairs])}


def measure_classes(frames, truth):
    """Share of the frames whose best class is that of the truth."""
    classes = (frames.get(i, {}).get("classes") for i in range(len(truth)))
    best = [own[0]["class-id"] if own else None for own in classes]
    return {"top-1": score.mean([own == entry["class_id"] for own, entry in zip(best, truth)])}


def parse_options():
    parser = argparse.ArgumentParser(description="Scores masks, rotated boxes or classes against ground truth.")
    parser.add_argument("task", choices=("masks", "rotated", "classes"))
    parser.add_argument("truth")
    parser.add_argument("detections", help="JSON lines, or - for stdin")
    parser.add_argument("--min-ap", type=float, default=0.0, help="average precision at an IoU of 0.5")
    parser.add_argument("--min-iou", type=float, default=0.0, help="mean IoU of the hits")
    parser.add_argument("--min-top1", type=float, default=0.0, help="share of the frames with the right class")
    return parser.parse_args()


def main():
    options = parse_options()
    try:
        with open(options.truth, encoding="utf-8") as file:
            truth = json.load(file)
        if options.task == "classes":
            frames = score.read_lines(options.detections, truth)
            result = measure_classes(frames, [objects[0] for objects in truth["frames"]])
        else:
            frames = score.read_detections(options.detections, truth)
            similarity = mask_iou if options.task == "masks" else rotated_iou
            result = measure([(frames.get(i, []), objects) for i, objects in enumerate(truth["frames"])], similarity)
    except (OSError, ValueError, KeyError) as error:
        print(f"score_shapes.py: {error}", file=sys.stderr)
        return 2
    print(f"frames {len(frames)} of {len(truth['frames'])}")
    least = {"AP50": options.min_ap, "mean IoU": options.min_iou, "top-1": options.min_top1}
    low = {name for name, value in result.items() if value < least.get(name, 0.0)}
    for name, value in result.items():
        print(f"{name} {value:.4f}" + (f"  BELOW {least[name]}" if name in low else ""))
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
