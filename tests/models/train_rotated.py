#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Trains the network of rotated boxes on synthetic scenes and writes it as ONNX, as Ultralytics'
# exports of rotated boxes are: output0 [1,8,1344], three classes and the angle.
#
# Train (a GPU, 16 cores and the seconds given; needs PyTorch, numpy and onnx):
#   python3 tests/models/train_rotated.py train --device cuda --seconds 200 --out tests/models
# Write the model of some weights that a training saved (same needs, no GPU):
#   python3 tests/models/train_rotated.py export --from shapes-obb.npz --out tests/models
# AP50 of rotated boxes on scenes it never saw (needs numpy and onnxruntime):
#   python3 tests/models/train_rotated.py evaluate tests/models/shapes-obb.onnx

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import score_shapes
import training
from shapes import MAX_SHAPES, SIDE, SIZES, Rotated, training_sample

CONFIDENCE, IOU, LIMIT = 0.05, 0.45, 300


def entry_of(class_id, box):
    """A rotated box cx, cy, w, h, angle as score_shapes.py reads it."""
    corners = Rotated(int(class_id), *map(float, box)).corners()
    (x0, y0), (x1, y1) = corners.min(0), corners.max(0)
    return {"class_id": int(class_id), "class-id": int(class_id), "x": x0, "y": y0, "w": x1 - x0, "h": y1 - y0,
            "corners": corners.ravel().tolist()}


def truth_of(rows):
    """Targets of a scene -> objects as score_shapes.py reads them."""
    return [entry_of(row[2], row[7:12]) | {"ignore": bool(row[1])} for row in rows if row[0]]


def detections_of(output):
    """Output of an image -> detections as score_shapes.py reads them."""
    scores = output[4:-1]
    classes, rows = np.nonzero(scores >= CONFIDENCE)
    kept = []
    for index in np.argsort(-scores[classes, rows], kind="stable")[:LIMIT]:
        class_id, row = classes[index], rows[index]
        entry = entry_of(class_id, (*output[:4, row], output[-1, row])) | {"confidence": float(scores[class_id, row])}
        own = (other for other in kept if other["class-id"] == class_id)
        if all(score_shapes.rotated_iou(entry, other) <= IOU for other in own):
            kept.append(entry)
    return kept


class RotatedBoxes(training.Task):
    name, merit = "shapes-obb", ("AP50", "mean IoU")
    sample = staticmethod(training_sample)

    def network(self):
        from rotated import RotatedNetwork
        return RotatedNetwork()

    def start(self, device):
        from anchor_free import Grid
        self.grid = Grid(SIDE, device)

    def scenes(self, device):
        from device_scenes import Scenes
        return Scenes(SIDE, MAX_SHAPES, SIZES, False, device)

    def vary(self, images, targets):
        from device_scenes import flipped
        return flipped(images, *targets)

    def losses(self, raw, targets):
        from rotated import loss_of
        return loss_of(raw, targets[0], self.grid)

    def results(self, raw):
        import torch
        from rotated import decode
        boxes, scores = decode(raw, self.grid)
        output = torch.cat([boxes[..., :4], scores, boxes[..., 4:]], -1)
        return [[rows] for rows in output.transpose(1, 2).cpu().numpy()]

    def measure(self, outputs, targets):
        frames = ((detections_of(*own), truth_of(rows)) for own, rows in zip(outputs, targets[0]))
        return score_shapes.measure(frames, score_shapes.rotated_iou)


if __name__ == "__main__":
    training.main(RotatedBoxes(), "Trains, exports and evaluates the network of rotated boxes.", batch=128, scenes=40000)
