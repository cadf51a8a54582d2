#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""What keypoints, rotated boxes and masks cost compared with plain detection, on the GPU; masks against the usual formula in PyTorch too.

    python3 tests/bench/gpu_tasks.py PATH/OF/gpu_nms [--json FILE]

The first argument is the bench program that `cargo bench --no-run --bench gpu_nms` names. Masks are those of 50 objects. Both sides read [1,116,8400] and prototypes
[1,32,160,160] in f32, of a 640x640 input. Ours is the time of a frame with masks less that of the same boxes alone, first with masks
that stay on the GPU, then with masks on the host. The formula: coefficients times prototypes, bilinear to the input's size, above
zero, cut to the box. Times are medians.
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
    import torch.nn.functional
    if not torch.cuda.is_available():
        raise ImportError("PyTorch finds no GPU")
except ImportError as missing:
    torch = None
    print(f"PyTorch is not measured: {missing}")

ROWS, CLASSES, COEFFICIENTS, SIDE, INPUT, OBJECTS, REPEATS = 8400, 80, 32, 160, 640, 50, 201


def outputs(seed=9):
    """Objects of 60 to 200 pixels, each of a class of its own so that suppression keeps all, and prototypes as smooth as a model's."""
    random = numpy.random.default_rng(seed)
    rows = numpy.zeros((ROWS, 4 + CLASSES + COEFFICIENTS), numpy.float32)
    rows[:, :4] = (320, 320, 10, 10)
    for i, row in enumerate(random.choice(ROWS, OBJECTS, replace=False)):
        centre = (45 + 78 * (i % 8), 50 + 90 * (i // 8))
        rows[row, :4] = (*centre, *random.uniform(60, 200, 2))
        rows[row, 4 + i % CLASSES] = random.uniform(0.5, 0.9)
        rows[row, 4 + CLASSES:] = random.normal(0, 1, COEFFICIENTS)
    y, x = numpy.mgrid[0:SIDE, 0:SIDE] / SIDE
    waves = random.uniform(2, 30, (COEFFICIENTS, 3))
    prototypes = numpy.stack([numpy.sin(a * x + b * y + c) for a, b, c in waves]).astype(numpy.float32)
    return rows, prototypes


def by_torch(rows, prototypes):
    """Median microseconds for the masks of the kept boxes, on the GPU and on the host."""
    if torch is None:
        return None, None
    kept = rows[rows[:, 4:4 + CLASSES].max(1) >= 0.25]
    centre, size = kept[:, :2], kept[:, 2:4]
    boxes = torch.from_numpy(numpy.concatenate((centre - size / 2, centre + size / 2), 1).clip(0, INPUT)).cuda()
    coefficients = torch.from_numpy(kept[:, 4 + CLASSES:].copy()).cuda()
    prototypes = torch.from_numpy(prototypes).cuda()
    place = torch.arange(INPUT, device="cuda", dtype=boxes.dtype)

    def masks():
        sums = (coefficients @ prototypes.view(COEFFICIENTS, -1)).view(-1, SIDE, SIDE)
        full = torch.nn.functional.interpolate(sums[None], (INPUT, INPUT), mode="bilinear", align_corners=False)[0] > 0
        x1, y1, x2, y2 = boxes[:, :, None].unbind(1)
        columns, lines = (place >= x1) & (place < x2), (place >= y1) & (place < y2)
        return full & columns[:, None, :] & lines[:, :, None]

    medians = []
    for to_host in (False, True):
        times = []
        for _ in range(REPEATS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            found = masks()
            if to_host:
                found.cpu()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) * 1e6)
        medians.append(sorted(times)[REPEATS // 2])
    return medians


def by_program(program, rows, prototypes):
    """Median microseconds for the boxes alone, with masks on the GPU, and with masks on the host."""
    with tempfile.NamedTemporaryFile(suffix=".segment") as file:
        numpy.ascontiguousarray(rows.T).tofile(file)
        prototypes.tofile(file)
        file.flush()
        said = subprocess.run([program, file.name], check=True, capture_output=True, text=True).stdout
    times = []
    for what in ("boxes", "masks on the GPU", "masks on the host"):
        line = re.search(rf", {what} +([\d.]+) µs.*; (\d+) boxes$", said, re.M)
        if line is None:
            raise SystemExit(said.strip())
        if int(line[2]) != OBJECTS:
            raise SystemExit(f"{line[2]} objects are found, not {OBJECTS}")
        times.append(float(line[1]))
    return times


def by_task(program):
    """Median microseconds of keypoints and of rotated boxes, each with those of plain detection with as many classes."""
    said = subprocess.run([program, "tasks"], check=True, capture_output=True, text=True).stdout
    times = {what: float(time_us) for what, time_us in re.findall(r"^(.+), 50 pass, limit 300 +([\d.]+) µs", said, re.M)}
    return {"keypoints": (times["pose f32 56x8400"], times["yolov8 f32 5x8400"]),
            "rotated boxes": (times["obb f32 20x8400"], times["yolov8 f32 19x8400"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--json", type=argparse.FileType("w", encoding="utf-8"))
    options = parser.parse_args()
    rows, prototypes = outputs()
    boxes, on_gpu, on_host = by_program(options.program, rows, prototypes)
    torch_gpu, torch_host = by_torch(rows, prototypes)
    print(f"{OBJECTS} objects: boxes {boxes:.1f} µs, with masks on the GPU {on_gpu:.1f} µs, on the host {on_host:.1f} µs")
    failed = False
    tasks = by_task(options.program)
    for task, (time_us, plain_us) in tasks.items():
        more = time_us - plain_us
        print(f"{task}: {time_us:.1f} µs, {more:+.1f} µs compared with plain detection   [bar: 10 µs]")
        failed |= more > 10
    for name, ours, theirs, bar in (("GPU", on_gpu - boxes, torch_gpu, 40), ("host", on_host - boxes, torch_host, 80)):
        ratio = "" if theirs is None else f"; PyTorch {theirs:.1f} µs, {theirs / ours:.1f} times as long"
        print(f"masks on the {name}: {ours:.1f} µs{ratio}   [bar: {bar} µs, 10 times]")
        failed |= ours > bar or (theirs is not None and theirs < 10 * ours)
    if options.json:
        line = {"row": "tasks", "tasks_us": tasks, "objects": OBJECTS, "boxes_us": boxes, "gpu_us": on_gpu - boxes, "host_us": on_host - boxes,
                "torch_gpu_us": torch_gpu, "torch_host_us": torch_host}
        print(json.dumps(line), file=options.json)
    sys.exit(failed)


if __name__ == "__main__":
    main()
