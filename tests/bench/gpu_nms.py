#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Decoding and suppression of [1,16128,7] f32 on the GPU: ours against torchvision's batched_nms with the same filtering, and
against TensorRT's EfficientNMS plugin.

    python3 tests/bench/gpu_nms.py PATH/OF/gpu_nms [--json FILE] [PROPERTY=VALUE…]

The first argument is the bench program that `cargo bench --no-run --bench gpu_nms` names; properties are those of trtinfer that
say where the full TensorRT is. Times are medians over many calls, from outputs in GPU memory to boxes on the host; all see the
same numbers, and ours must keep as many boxes as torchvision. What is not here to compare with is left out.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
import time

import numpy

try:
    import torch
    import torchvision
    if not torch.cuda.is_available():
        raise ImportError("PyTorch finds no GPU")
except ImportError as missing:
    torch = None
    print(f"torchvision is not measured: {missing}")

ROWS, SCORE, IOU, LIMIT, REPEATS = 16128, 0.25, 0.45, 300, 501
# Candidates and objects, with the most microseconds that ours may take.
BARS_US = {(100, 60): 14, (100, 0): 14, (2000, 60): 25, (ROWS, 0): 100}
CASES = [(candidates, objects) for candidates in (100, 1000, 2000, 5000) for objects in (60, 0)] + [(ROWS, 0)]


def head(candidates, objects, seed=5):
    """Rows of centre, size, objectness and two class scores, of which `candidates` reach SCORE.

    With `objects` they crowd around so many things, as a real head's do; without, they lie anywhere."""
    random = numpy.random.default_rng(seed)
    rows = numpy.zeros((ROWS, 7), numpy.float32)
    if objects:
        thing = random.integers(0, objects, ROWS)
        places, sizes = random.uniform(0, 512, (objects, 2)), random.uniform(20, 160, (objects, 2))
        rows[:, 2:4] = sizes[thing] * random.uniform(0.8, 1.2, (ROWS, 2))
        rows[:, 0:2] = places[thing] + sizes[thing] * random.uniform(-0.1, 0.1, (ROWS, 2))
    else:
        rows[:, 0:2] = random.uniform(0, 512, (ROWS, 2))
        rows[:, 2:4] = random.uniform(4, 40, (ROWS, 2))
    rows[:, 4:] = random.uniform(0.0, 0.2, (ROWS, 3))
    passing = random.choice(ROWS, candidates, replace=False)
    rows[passing, 4] = random.uniform(0.8, 1, candidates)
    best = random.integers(5, 7, candidates)
    rows[passing, best] = random.uniform(0.4, 1, candidates)
    return rows


def torchvision_way(prediction):
    """The usual lines of YOLOv5's repositories, for one picture, without their loop over the batch."""
    rows = prediction[0]
    rows = rows[rows[:, 4] >= SCORE]
    score, cls = (rows[:, 5:] * rows[:, 4:5]).max(1)
    passes = score >= SCORE
    rows, score, cls = rows[passes], score[passes], cls[passes]
    half = rows[:, 2:4] * 0.5
    boxes = torch.cat((rows[:, :2] - half, rows[:, :2] + half), 1)
    keep = torchvision.ops.batched_nms(boxes, score, cls, IOU)[:LIMIT]
    return torch.cat((boxes[keep], score[keep, None], cls[keep, None].float()), 1).cpu()


def by_torchvision(rows):
    """Median microseconds, and how many boxes are kept."""
    if torch is None:
        return None, None
    prediction = torch.from_numpy(rows)[None].cuda()
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        boxes = torchvision_way(prediction)
        times.append((time.perf_counter() - start) * 1e6)
    return sorted(times)[REPEATS // 2], len(boxes)


def by_program(program, rows, properties):
    """The same of ours and of the plugin."""
    with tempfile.NamedTemporaryFile(suffix=".head") as file:
        rows.tofile(file)
        file.flush()
        said = subprocess.run([program, file.name, *properties], check=True, capture_output=True, text=True).stdout
        found = {}
        for name, start in (("ours", re.escape(file.name)), ("plugin", "EfficientNMS_TRT")):
            line = re.search(rf"^{start} +([\d.]+) µs.*; (\d+) boxes$", said, re.M)
            found[name] = (float(line[1]), int(line[2])) if line else (None, None)
    if found["ours"][0] is None:
        raise SystemExit(said.strip())
    for line in said.splitlines():
        if "not measured" in line:
            print(f"  {line}")
    return found["ours"], found["plugin"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--json", type=argparse.FileType("w", encoding="utf-8"))
    parser.add_argument("properties", nargs="*")
    options = parser.parse_intermixed_args()
    failed = False
    print(f"{'candidates':<24}{'ours':>10}{'torchvision':>14}{'ratio':>8}{'EfficientNMS':>15}{'ratio':>8}{'boxes':>8}")
    for candidates, objects in CASES:
        kind = f"{objects} objects" if objects else "anywhere"
        rows = head(candidates, objects)
        theirs, wanted = by_torchvision(rows)
        (ours, kept), (plugin, plugin_kept) = by_program(options.program, rows, options.properties)
        times = {"torchvision": theirs, "efficientnms": plugin}
        ratios = {name: each and each / ours for name, each in times.items()}

        def shown(value, unit=""):
            return "-" if value is None else f"{value:.1f}{unit}"

        print(f"{f'{candidates} {kind}':<24}{shown(ours, ' µs'):>10}{shown(theirs, ' µs'):>14}{shown(ratios['torchvision']):>8}"
              f"{shown(plugin, ' µs'):>15}{shown(ratios['efficientnms']):>8}{kept:>8}", flush=True)
        if options.json:
            line = {"row": "nms", "candidates": candidates, "kind": kind, "ours_us": ours, "boxes": kept,
                    "torchvision_us": theirs, "torchvision_boxes": wanted, "efficientnms_us": plugin,
                    "efficientnms_boxes": plugin_kept}
            print(json.dumps(line), file=options.json, flush=True)
        if wanted not in (None, kept):
            print(f"  torchvision keeps {wanted} boxes")
            failed = True
        if plugin_kept not in (None, kept):
            print(f"  EfficientNMS keeps {plugin_kept} boxes")  # it looks at no more than 4,096 candidates
        bar = BARS_US.get((candidates, objects))
        if bar and ours > bar:
            print(f"  the bar is {bar} µs")
            failed = True
        if candidates == 2000 and theirs is not None and ratios["torchvision"] < 5:
            print("  the bar is a ratio of 5")
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
