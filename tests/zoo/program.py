# SPDX-License-Identifier: MPL-2.0
# Asks our program what it finds in a picture.
#
# Imported by the programs of this folder; not run by itself. Needs numpy only.
import json
import subprocess
import time

import numpy as np

from boxes import IOU_THRESHOLD, Boxes

AS_THEY_ARE = "class-scores=probabilities"


def ask(program, path, png, folder, timeout, nms, infer_properties=None, options=()):
    """Runs our program on one picture, with further options; returns the completed process and its frames."""
    out = folder / "boxes.jsonl"
    out.unlink(missing_ok=True)
    command = [program, "detect", str(png), "--model", str(path), "--json", str(out), "--no-video", "--nms", nms, *options]
    if infer_properties:
        command += ["--infer", infer_properties]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)
    frames = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return done, frames


def answer(result, program, path, png, folder, timeout, count, properties="", options=()):
    """Our program's confidence in each of so many classes of a picture, in their order as it gives them; none is a fault."""
    started = time.monotonic()
    nms = f"score-threshold=0 top-k={count} {properties}"
    done, frames = ask(program, path, png, folder, timeout, nms, options=options)
    result.seconds = time.monotonic() - started
    found = frames[0].get("classes", []) if done.returncode == 0 and frames else []
    result.found = result.candidates = result.certain = len(found)
    if len(found) != count:
        result.faults.append(f"status {done.returncode}, {len(found)} classes of {count}: {done.stderr.strip()[-300:]!r}")
        return []
    return found


def mask_of(detection, shape):
    """The picture of a mask: COCO's compressed run lengths of a rectangle, column by column."""
    counts, text, at = [], detection["mask-counts"].encode(), 0
    while at < len(text):
        value = shift = 0
        while True:
            code = text[at] - 48
            at += 1
            value |= (code & 0x1F) << shift
            shift += 5
            if not code & 0x20:
                break
        if code & 0x10:
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
    x, y, width, height = (detection[f"mask-{side}"] for side in ("x", "y", "width", "height"))
    mask = np.zeros(shape, bool)
    pixels = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    mask[y : y + height, x : x + width] = pixels.reshape(width, height).T
    return mask


def suppression(threshold):
    return f"score-threshold={threshold:.6f} iou-threshold={IOU_THRESHOLD} max-detections=300"


def ours(frame):
    """The detections of one of our JSON lines as Boxes."""
    found = frame["detections"]
    table = np.array([[d["x"], d["y"], d["w"], d["h"], d["confidence"], d["class-id"]] for d in found], np.float64).reshape(-1, 6)
    corners = np.concatenate([table[:, :2], table[:, :2] + table[:, 2:4]], axis=1)
    boxes = Boxes(corners, table[:, 4], table[:, 5].astype(int), np.arange(len(table)))
    if found and "keypoints" in found[0]:
        boxes.points = np.array([np.reshape(d["keypoints"], (-1, d["keypoint-dims"])) for d in found])
    if any("mask-counts" in d for d in found):
        boxes.masks = np.array([mask_of(d, (frame["height"], frame["width"])) for d in found])
    if found and "corners" in found[0]:
        boxes.quads = np.array([np.reshape(d["corners"], (4, 2)) for d in found])
    return boxes
