# SPDX-License-Identifier: MPL-2.0
# Compares the boxes of our program with boxes decoded, in plain numpy, from what ONNX Runtime puts out for the same pictures.
#
#   python tests/zoo/compare.py OUTDIR... --detect PROGRAM [--only NAME...] [--half] [--keep DIR] [--timeout SECONDS]
#
# OUTDIR holds what export.py made. PROGRAM is called as
#   PROGRAM PICTURE MODEL --json OUT --no-video --nms "score-threshold=T ..." [--infer "input-size=WxH"]
# and must write one JSON line a frame. reference.py has what it is compared with,
# classes.py the same for classifiers. Nothing here is shared with the Rust code: the decode below is written from the exporter's documentation, so an
# error has to be made twice to go unseen. Ends with status 1 if any model fails.
#
# Two runtimes never agree to the last bit, so a detection that stands on a knife's edge (a score next to another score, an overlap
# next to the IoU threshold) may legitimately come or go. `judge` separates those: they may be in our answer, the others must be.
import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

import classes
from pictures import picture, save
from program import ask, ours, suppression
from reference import CERTAIN, ENOUGH, GONE, PICTURES, Model, Result, describe, overlaps, reference_of

SHAPES = ((640, 360), (405, 720))  # width, height of the test pictures: a downscale by 2 or 1, and an odd portrait one


def match(result, reference, found, tolerance):
    """Pairs both sides, best overlap first, and writes every box without a partner into the faults."""
    pairs = []
    for index in range(len(reference)):
        if reference.standing[index] == GONE:
            continue
        overlap = overlaps(reference.corners[index], found.corners)
        apart = np.abs(found.scores - reference.scores[index])
        fits = (found.classes == reference.classes[index]) & (overlap >= tolerance.iou) & (apart <= tolerance.score)
        pairs += [(reference.standing[index] != CERTAIN, -overlap[j], apart[j], index, int(j)) for j in np.nonzero(fits)[0]]
    taken_reference, taken_found = set(), set()
    for _, overlap, apart, index, j in sorted(pairs):
        if index in taken_reference or j in taken_found:
            continue
        taken_reference.add(index)
        taken_found.add(j)
        result.worst_iou = min(result.worst_iou, -overlap)
        result.worst_score = max(result.worst_score, apart)
        compare_points(result, reference, index, found, j, tolerance)
        compare_quads(result, reference, index, found, j, tolerance)
        compare_masks(result, reference, index, found, j, tolerance)
    for index in range(len(reference)):
        if reference.standing[index] == CERTAIN and index not in taken_reference:
            result.faults.append(f"we miss {describe(reference, index)}; nearest of ours: {nearest(reference, index, found)}")
    for j in range(len(found)):
        if j not in taken_found:
            result.faults.append(f"only we have {describe(found, j)}; nearest reference: {nearest(found, j, reference)}")


def compare_points(result, reference, index, found, j, tolerance):
    """The keypoints of a pair of boxes must be the same, as far as the boxes are surely of one anchor."""
    if reference.points is None:
        return
    if found.points is None:
        result.faults.append("we give no keypoints")
        return
    apart = np.abs(found.points[j] - reference.points[index])
    result.worst_point = max(result.worst_point, float(apart[:, :2].max()))
    if apart[:, :2].max() > tolerance.point or apart[:, 2:].max(initial=0) > tolerance.visibility:
        at = int(apart.max(axis=1).argmax())
        result.faults.append(f"keypoint {at} of {describe(reference, index)}: {found.points[j][at]}, not {reference.points[index][at]}")


def compare_quads(result, reference, index, found, j, tolerance):
    """The same of the corners of rotated boxes, which may begin at any of them."""
    if reference.quads is None:
        return
    if found.quads is None:
        result.faults.append("we give no corners")
        return
    wanted, given = reference.quads[index], found.quads[j]
    apart = min(np.linalg.norm(np.roll(given, turns, axis=0) - wanted, axis=1).max() for turns in range(4))
    result.worst_point = max(result.worst_point, float(apart))
    if apart > tolerance.corner:
        result.faults.append(f"corners of {describe(reference, index)}: {given.tolist()}, not {wanted.tolist()}")


def compare_masks(result, reference, index, found, j, tolerance):
    """The same of masks, where the box is surely of that anchor and at least half of the mask is surely in it."""
    if reference.masks is None or reference.standing[index] != CERTAIN:
        return
    if found.masks is None:
        result.faults.append("we give no masks")
        return
    closed = ~reference.open_pixels[index]
    wanted, given = reference.masks[index] & closed, found.masks[j] & closed
    if wanted.sum() < reference.masks[index].sum() / 2:
        return
    result.masks += 1
    overlap = float((wanted & given).sum() / (wanted | given).sum())
    result.worst_mask = min(result.worst_mask, overlap)
    if overlap < tolerance.mask:
        result.faults.append(f"mask of {describe(reference, index)}: IoU {overlap:.4f}, {int((wanted ^ given).sum())} pixels differ")


def nearest(boxes, index, others):
    """The box most similar of the other side, to see at a glance what is different."""
    if not len(others):
        return "none"
    overlap = overlaps(boxes.corners[index], others.corners)
    likeness = overlap + (others.classes == boxes.classes[index]) - np.abs(others.scores - boxes.scores[index])
    best = int(likeness.argmax())
    return f"{describe(others, best)} IoU {overlap[best]:.3f}"


def compare(model, program, frame, size, infer_properties, folder, timeout):
    """Runs both sides on one picture."""
    result = Result(model.name, f"{frame[0]}x{frame[1]} in {size[0]}x{size[1]}")
    for seed in PICTURES:
        image = picture(*frame, seed)
        threshold, reference = reference_of(result, model, image, size)
        if result.certain >= ENOUGH:
            break
    png = save(image, folder)

    started = time.monotonic()
    done, frames = ask(program, model.path, png, folder, timeout, suppression(threshold), infer_properties)
    result.seconds = time.monotonic() - started
    if done.returncode != 0 or not frames:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        result.faults.append(f"status {done.returncode}, {len(frames)} frames: {' / '.join(last)}")
        return result
    check_frame(result, frames[0], frame, model.labels)
    found = ours(frames[0])
    result.found = len(found)
    match(result, reference, found, model.tolerance)
    if reference.masks is not None and result.masks < result.certain / 2:
        result.faults.append(f"only {result.masks} masks could be compared")
    if result.certain < ENOUGH:
        result.faults.append(f"only {result.certain} undoubted boxes: that tests nothing")
    return result


def check_frame(result, line, frame, labels):
    """The frame's size and every label."""
    if (line["width"], line["height"]) != frame:
        result.faults.append(f"frame is {line['width']}x{line['height']}, not {frame[0]}x{frame[1]}")
    for detection in line["detections"]:
        wanted = labels.get(detection["class-id"])
        if detection["label"] != wanted:
            result.faults.append(f"label of class {detection['class-id']} is {detection['label']!r}, not {wanted!r}")
            return


def load(folders, only, half=False):
    """The models in the folders, or those of them that were named."""
    models = []
    for folder in folders:
        for path in sorted(folder.glob("*.onnx")):
            if not only or path.stem in only:
                models.append(Model(path, json.loads(path.with_suffix(".json").read_text()), half))
    return models


def run(program, folder, timeout, model):
    """All results of one model; what goes wrong on the way is a fault, not the end of the run."""
    folder = folder / model.name
    folder.mkdir(exist_ok=True)
    try:
        if model.task == "classify":
            return [classes.compare(model, program, frame, folder, timeout) for frame in SHAPES]
        return [
            compare(model, program, frame, size, properties, folder, timeout)
            for frame in SHAPES
            for size, properties in model.input_sizes(frame)
        ]
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        return [Result(model.name, "", faults=[f"{type(error).__name__}: {error}"])]


HEADINGS = (
    "model", "case", "layout", "candidates", "certain", "doubtful", "ours", "worst IoU", "worst score", "worst point", "worst mask", "s", ""
)
COLUMNS = "{:24} {:22} {:15} {:>10} {:>8} {:>9} {:>5} {:>9} {:>11} {:>11} {:>10} {:>7}  {}"


def show(result):
    """One line of the table, and the first faults below it."""
    verdict = "FAILED" if result.faults else "ok"
    numbers = (result.candidates, result.certain, result.doubtful, result.found)
    worst = (f"{result.worst_iou:.4f}", f"{result.worst_score:.6f}", f"{result.worst_point:.3f}", f"{result.worst_mask:.4f}", f"{result.seconds:.1f}")
    print(COLUMNS.format(result.name, result.case, result.layout, *numbers, *worst, verdict))
    for fault in result.faults[:4]:
        print(f"    {fault}")
    if len(result.faults) > 4:
        print(f"    and {len(result.faults) - 4} more", flush=True)
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path, metavar="OUTDIR")
    parser.add_argument("--detect", required=True, metavar="PROGRAM")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--half", action="store_true", help="PROGRAM computes in half precision: wider tolerances throughout")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the picture and the answer of each model here")
    parser.add_argument("--timeout", type=float, default=300, help="seconds our program may take (an engine build takes minutes)")
    asked = parser.parse_args()
    models = load(asked.folders, asked.only, asked.half)
    if not models:
        sys.exit(f"compare: no models in {', '.join(map(str, asked.folders))}")
    print(COLUMNS.format(*HEADINGS))
    failed = passed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        # As many models at the same time as there are processors.
        pool = ProcessPoolExecutor(len(os.sched_getaffinity(0)))
        cases = pool.map(partial(run, asked.detect, folder, asked.timeout), models)
        if not asked.only:
            inputs = [classes.compare_input(asked.detect, frame, folder, asked.timeout) for frame in SHAPES]
            cases = itertools.chain([inputs], cases)
        for results in cases:
            for result in results:
                show(result)
            bad = any(result.faults for result in results)
            failed, passed = failed + bad, passed + (not bad)
    print(f"zoo: {passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
