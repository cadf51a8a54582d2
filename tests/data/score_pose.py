#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Scores poses against the ground truth of a clip of figures (render.py --task pose).
# Python's standard library only.
#
#   python3 tests/data/score_pose.py tests/data/pose.json detections.jsonl \
#       --min-ap 0.95 --min-oks 0.8 --max-error 4
#
# The detections are JSON lines as score.py reads them; each detection has
# "keypoints": [x, y, visibility, x, ...] and "keypoint-dims": 3 besides.  The rules of matching are those of score.py, by object
# keypoint similarity (OKS) instead of IoU: the mean over the labelled keypoints (visibility
# above 0 in the truth) of exp(-d² / (2·area·(2·sigma)²)), with COCO's sigmas, and AREA_SHARE
# of the box as the area.
# Exit status: 0, or 1 when a figure is worse than its limit, or 2 for unusable input.

import argparse
import json
import math
import sys

import score

SIGMAS = (.026, .025, .025, .035, .035, .079, .079, .072, .072, .062, .062, .107, .107, .087, .087, .089, .089)
AREA_SHARE = 0.53  # there is no mask; a figure fills about this much of its box


def oks(detection, truth):
    area = AREA_SHARE * truth["w"] * truth["h"]
    parts = [math.exp(-((x - tx) ** 2 + (y - ty) ** 2) / (2 * area * (2 * sigma) ** 2))
             for (x, y, *_), (tx, ty, v), sigma in zip(detection["keypoints"], truth["keypoints"], SIGMAS) if v > 0]
    return sum(parts) / len(parts) if parts else 0.0


def measure(frames, sure=0.25):
    """Figures over pairs (detections, truth) of frames: AP50 from all detections, the others from the sure ones."""
    figures, pairs = score.precision_and_recall(frames, oks, sure)
    errors, seen = [], []
    for detection, own, _ in pairs:
        for (x, y, v), (tx, ty, tv) in zip(detection["keypoints"], own["keypoints"]):
            if tv > 0:
                errors.append(math.hypot(x - tx, y - ty))
            seen.append((v >= 0.5) == (tv > 1))
    similarities = [similarity for *_, similarity in pairs]
    return figures | {"mean OKS": score.mean(similarities), "mean error": score.mean(errors), "visibility": score.mean(seen)}


def parse_options():
    parser = argparse.ArgumentParser(description="Scores poses against ground truth.")
    parser.add_argument("truth")
    parser.add_argument("detections", help="JSON lines, or - for stdin")
    parser.add_argument("--min-ap", type=float, default=0.0, help="average precision at an OKS of 0.5")
    parser.add_argument("--min-oks", type=float, default=0.0, help="mean OKS of the hits")
    parser.add_argument("--max-error", type=float, default=math.inf, help="mean distance of keypoints in pixels")
    parser.add_argument("--min-visibility", type=float, default=0.0, help="minimum share of correct visibilities")
    return parser.parse_args()


def main():
    options = parse_options()
    try:
        with open(options.truth, encoding="utf-8") as file:
            truth = json.load(file)
        frames = score.read_detections(options.detections, truth)
        result = measure([(frames.get(i, []), objects) for i, objects in enumerate(truth["frames"])])
    except (OSError, ValueError, KeyError) as error:
        print(f"score_pose.py: {error}", file=sys.stderr)
        return 2
    print(f"frames {len(frames)} of {len(truth['frames'])}")
    failed = False
    for name, value in result.items():
        low, high = {"AP50": (options.min_ap, math.inf), "mean OKS": (options.min_oks, math.inf),
                     "mean error": (0.0, options.max_error),
                     "visibility": (options.min_visibility, math.inf)}.get(name, (0.0, math.inf))
        # Without a hit there is no error to speak of, so none is low enough.
        worse = not low <= value <= high or (name == "mean error" and result["recall"] == 0 and high < math.inf)
        failed |= worse
        print(f"{name} {value:.4f}" + (f"  OUTSIDE {low} to {high}" if worse else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
