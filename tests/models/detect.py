#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Reference detector in Python: decodes a clip with gst-launch-1.0, letterboxes with
# numpy, runs one of the models with onnxruntime, and writes JSON lines as
# ../data/score.py reads them.  Needs numpy and onnxruntime.
#
#   python3 tests/models/detect.py tests/data/sample.mp4 --model tests/models/shapes.onnx \
#       --out /tmp/detections.jsonl
#   python3 tests/data/score.py tests/data/sample.json /tmp/detections.jsonl
#
# The models' kind (rows, v8, e2e, pose) is recognised by the shape of the output.

import argparse
import json
import subprocess
import time

import numpy as np

import figures
from scenes import CLASSES, letterbox

POSE_FIELDS = 5 + 3 * figures.COUNT


def iou_with(box, others):
    """IoU of one box x0,y0,x1,y1 with many."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    inter = np.clip(high - low, 0, None).prod(1)
    area = lambda b: (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])
    return inter / (area(box) + area(others) - inter + 1e-9)


def nms(boxes, scores, classes, threshold=0.45, limit=300):
    """Class-aware greedy suppression; returns the indices kept, best first."""
    order, kept = np.argsort(-scores, kind="stable"), []
    while order.size and len(kept) < limit:
        best, order = order[0], order[1:]
        kept.append(best)
        close = iou_with(boxes[best], boxes[order]) > threshold
        order = order[~(close & (classes[order] == classes[best]))]
    return np.array(kept, dtype=int)


def from_rows(rows, confidence, iou=0.45):
    """output0 [16128,7] -> [n,6] = x0,y0,x1,y1,score,class."""
    scores = rows[:, 4:5] * rows[:, 5:]
    return suppress(rows[:, :4], scores, confidence, iou)


def suppress(boxes, scores, confidence, iou, extra=None):
    """Rows that are left: corners, score, class and what `extra` has for them."""
    rows, classes = np.nonzero(scores >= confidence)
    best = scores[rows, classes]
    centre, half = boxes[rows, :2], boxes[rows, 2:] / 2
    corners = np.concatenate([centre - half, centre + half], 1)
    kept = nms(corners, best, classes, iou)
    parts = [corners, best[:, None], classes[:, None]] + ([] if extra is None else [extra[rows]])
    return np.concatenate(parts, 1)[kept]


def from_poses(rows, confidence, iou=0.45):
    """Rows of a pose model [n,56] -> [m,6+51]: after the class x, y, visibility of each keypoint."""
    return suppress(rows[:, :4], rows[:, 4:5], confidence, iou, rows[:, 5:])


def postprocess(output, confidence, iou=0.45):
    """Any of the output layouts -> [n,6], poses [n,6+51], in pixels of the network's input."""
    output = output[0].astype(np.float32)
    if output.shape[0] == POSE_FIELDS:
        return from_poses(output.T, confidence, iou)
    if output.shape[1] == 6:
        return output[output[:, 4] >= confidence]
    if output.shape[0] == 4 + len(CLASSES):
        return suppress(output[:4].T, output[4:].T, confidence, iou)
    return from_rows(output, confidence, iou)


def to_frame(found, geometry, width, height):
    """Boxes of the network's input -> boxes of the frame, clipped to it."""
    scale, left, top = geometry
    boxes = (found[:, :4] - (left, top, left, top)) / scale
    return np.clip(boxes, 0, (width, height, width, height))


def read_clip(path):
    """Yields the frames of a clip as uint8 RGB arrays."""
    # Width and height come first, from the same decoder, since a pipe carries no caps.
    command = ["gst-launch-1.0", "-q", "filesrc", f"location={path}", "!", "decodebin", "!",
               "videoconvert", "!", "video/x-raw,format=RGB", "!", "pnmenc", "!", "fdsink"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    while process.stdout.readline().strip() == b"P6":
        line = process.stdout.readline()
        while line.startswith(b"#"):
            line = process.stdout.readline()
        width, height = map(int, line.split())
        process.stdout.readline()
        data = process.stdout.read(width * height * 3)
        yield np.frombuffer(data, np.uint8).reshape(height, width, 3)
    if process.wait():
        raise SystemExit("decoding failed")


class Model:
    def __init__(self, path, threads=2):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"])
        image = self.session.get_inputs()[0]
        half, self.side = image.type == "tensor(float16)", image.shape[3]
        self.type = np.float16 if half else np.float32

    def __call__(self, image):
        """uint8 [side,side,3] -> output0."""
        return self.run(image)[0]

    def outputs(self, image):
        """The same of all outputs, without the batch axis."""
        return [output[0] for output in self.run(image)]

    def run(self, image):
        x = (image.transpose(2, 0, 1)[None] / np.float32(255)).astype(self.type)
        return self.session.run(None, {"images": np.ascontiguousarray(x)})


def entries_of(found, boxes, points, labels):
    """Detections as JSON has them; `points` is [n,17,3], or [n,0,3] without keypoints."""
    entries = []
    for row, b, own in zip(found, boxes, points):
        class_id = int(row[5])
        entries.append({"label": labels[class_id], "class-id": class_id, "confidence": round(float(row[4]), 4),
                        "x": round(float(b[0]), 2), "y": round(float(b[1]), 2),
                        "w": round(float(b[2] - b[0]), 2), "h": round(float(b[3] - b[1]), 2)})
        if len(own):
            entries[-1]["keypoints"] = [round(float(number), 4) for point in own for number in point]
            entries[-1]["keypoint-dims"] = 3
    return entries


def detections_of(frame, model, confidence):
    height, width = frame.shape[:2]
    image, geometry = letterbox(frame, model.side)
    found = postprocess(model(image), confidence)
    scale, left, top = geometry
    points = found[:, 6:].reshape(len(found), (found.shape[1] - 6) // 3, 3)
    if points.size:
        points = (points - (left, top, 0)) / (scale, scale, 1)
    boxes = to_frame(found, geometry, width, height)
    return entries_of(found, boxes, points, (figures.LABEL,) if points.size else CLASSES)


def main():
    parser = argparse.ArgumentParser(description="Runs a model over a clip.")
    parser.add_argument("clip")
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--confidence", type=float, default=0.25)
    parser.add_argument("--fps", type=float, default=30)
    options = parser.parse_args()
    model, started, number = Model(options.model), time.time(), 0
    with open(options.out, "w") as file:
        for number, frame in enumerate(read_clip(options.clip)):
            found = detections_of(frame, model, options.confidence)
            json.dump({"stream-time": round(number / options.fps * 1e9), "frame": number,
                       "width": frame.shape[1], "height": frame.shape[0],
                       "detections": found}, file)
            file.write("\n")
    print(f"{number + 1} frames in {time.time() - started:.1f} s")


if __name__ == "__main__":
    main()
