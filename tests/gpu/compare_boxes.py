#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Compares the detections of two runs over the same clip, such as those of the GPU with those of the CPU.
#
#   python3 tests/gpu/compare_boxes.py reference.jsonl other.jsonl --min-iou 0.98 --max-score 1e-3 [--threshold 0.25]
#                    [--candidates reference.jsonl other.jsonl]
#   python3 tests/gpu/compare_boxes.py reference.jsonl other.jsonl --identical
#
# Both are JSON lines as gst-trt detect writes them. In every frame each box needs a partner of its class in the other run;
# pairs are made by falling IoU. A box without partner is forgiven only when its score lies within --max-score of --threshold,
# the runs' score-threshold: there the last bit decides. With --identical the lines themselves must be equal.
#
# Suppression keeps the best of boxes that overlap, and where two of them score the same but for the last digits, rounding decides
# which. --candidates names the same runs with iou-threshold=1.0, which suppresses nothing. Where a pair overlaps by less than
# --min-iou, the box that each run kept must then be among the other's candidates, as near and with as near a score; such pairs are
# counted. Without --candidates they are failures.
# Python's standard library only. Exit status: 0, 1 when they differ, 2 for unusable input.
import argparse
import json
import sys


def iou(a, b):
    width = min(a["x"] + a["w"], b["x"] + b["w"]) - max(a["x"], b["x"])
    height = min(a["y"] + a["h"], b["y"] + b["h"]) - max(a["y"], b["y"])
    shared = max(0.0, width) * max(0.0, height)
    union = a["w"] * a["h"] + b["w"] * b["h"] - shared
    return shared / union if union > 0 else 0.0


def pairs_of(ours, theirs):
    """[(IoU, box, box)] and what stays alone on each side."""
    near = [(iou(a, b), i, j) for i, a in enumerate(ours) for j, b in enumerate(theirs) if a["class-id"] == b["class-id"]]
    left, right, pairs = set(range(len(ours))), set(range(len(theirs))), []
    for overlap, i, j in sorted(near, reverse=True):
        if overlap > 0.5 and i in left and j in right:
            left.remove(i)
            right.remove(j)
            pairs.append((overlap, ours[i], theirs[j]))
    return pairs, [ours[i] for i in left], [theirs[j] for j in right]


def is_among(box, candidates, options):
    """Whether a box is one of these but for what a pair may differ by."""
    return any(box["class-id"] == other["class-id"] and iou(box, other) >= options.min_iou
               and abs(box["confidence"] - other["confidence"]) <= options.max_score for other in candidates)


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def parse_options():
    parser = argparse.ArgumentParser(description="Compares the detections of two runs.")
    parser.add_argument("reference")
    parser.add_argument("other")
    parser.add_argument("--min-iou", type=float, default=0.98)
    parser.add_argument("--max-score", type=float, default=1e-3, help="how far scores of a pair may lie apart")
    parser.add_argument("--threshold", type=float, default=0.25, help="the score-threshold of both runs")
    parser.add_argument("--candidates", nargs=2, metavar=("REFERENCE", "OTHER"))
    parser.add_argument("--identical", action="store_true")
    return parser.parse_args()


def main():
    options = parse_options()
    try:
        reference, other = read(options.reference), read(options.other)
        candidates = [read(path) for path in options.candidates or ()]
    except (OSError, ValueError) as error:
        print(f"compare_boxes.py: {error}", file=sys.stderr)
        return 2
    frames = {len(lines) for lines in (reference, other, *candidates)}
    if len(frames) != 1 or not reference:
        print(f"{len(reference)} frames in the one, {len(other)} in the other" + ", and others of candidates" * (len(frames) > 2))
        return 1
    if options.identical:
        differing = [i for i, lines in enumerate(zip(reference, other)) if lines[0] != lines[1]]
        boxes = sum(len(line["detections"]) for line in reference)
        where = f", first in frame {differing[0]}" if differing else ""
        print(f"{boxes} boxes in {len(reference)} frames, {len(differing)} frames differ{where}")
        return 1 if differing or not boxes else 0
    matched, least, apart, alone, forgiven, chosen = 0, 1.0, 0.0, 0, 0, 0
    for frame, (ours, theirs) in enumerate(zip(reference, other)):
        pairs, *rest = pairs_of(ours["detections"], theirs["detections"])
        matched += len(pairs)
        for overlap, a, b in pairs:
            if overlap < options.min_iou and candidates:
                of_ours, of_theirs = (lines[frame]["detections"] for lines in candidates)
                if is_among(a, of_theirs, options) and is_among(b, of_ours, options):
                    chosen += 1
                    continue
            least = min(least, overlap)
        apart = max([apart] + [abs(a["confidence"] - b["confidence"]) for _, a, b in pairs])
        for box in rest[0] + rest[1]:
            if box["confidence"] - options.threshold <= options.max_score:
                forgiven += 1
            else:
                alone += 1
    print(f"{matched} pairs in {len(reference)} frames, {alone} boxes alone, {forgiven} at the threshold, "
          + f"{chosen} chosen otherwise among equals, " * bool(candidates) + f"least IoU {least:.4f}, scores apart by at most {apart:.6f}")
    return 0 if matched and not alone and least >= options.min_iou and apart <= options.max_score else 1


if __name__ == "__main__":
    sys.exit(main())
