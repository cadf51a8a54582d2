#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Trains the network of masks on synthetic scenes and writes it as ONNX, as Ultralytics'
# segmentation exports are: output0 [1,23,1344], three classes and 16 coefficients, and output1,
# the prototypes [1,16,64,64].
#
# Train (a GPU, 16 cores and the seconds given; needs PyTorch, numpy and onnx):
#   python3 tests/models/train_masks.py train --device cuda --seconds 200 --out tests/models
# Write the model of some weights that a training saved (same needs, no GPU):
#   python3 tests/models/train_masks.py export --from shapes-seg.npz --out tests/models
# AP50 of boxes' masks on scenes it never saw (needs numpy and onnxruntime):
#   python3 tests/models/train_masks.py evaluate tests/models/shapes-seg.onnx

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import detect
import run_lengths
import scenes
import score_shapes
import training
from shapes import LABELS, MAX_SHAPES, SIDE, SIZES, training_sample

FIRST = 4 + len(LABELS)  # of the coefficients


def entry_of(class_id, box):
    x0, y0, x1, y1 = map(float, box)
    return {"class_id": int(class_id), "class-id": int(class_id), "x": x0, "y": y0, "w": x1 - x0, "h": y1 - y0}


def truth_of(rows, owner):
    """Targets of a scene -> objects as score_shapes.py reads them."""
    truth = []
    for number, row in enumerate(rows, 1):
        if row[0] and (owner == number).any():
            box = (*(row[3:5] - row[5:7] / 2), *(row[3:5] + row[5:7] / 2))
            truth.append(entry_of(row[2], box) | {"ignore": bool(row[1])} | run_lengths.encode(owner == number))
    return truth


def detections_of(output, prototypes):
    """Outputs of an image -> detections as score_shapes.py reads them, with their masks in the pixels of the input."""
    rows = output.T
    found = detect.suppress(rows[:, :4], rows[:, 4:FIRST], 0.05, 0.45, rows[:, FIRST:])
    at = np.arange(SIDE) + 0.5
    entries = []
    for row in found:
        sums = np.tensordot(row[6:].astype(np.float32), prototypes, 1)
        mask = scenes.resize(sums[..., None], SIDE, SIDE)[..., 0] > 0
        in_x, in_y = ((at > row[i]) & (at < row[i + 2]) for i in (0, 1))
        mask &= in_y[:, None] & in_x
        if mask.any():
            entries.append(entry_of(row[5], row[:4]) | {"confidence": float(row[4])} | run_lengths.encode(mask))
    return entries


class Masks(training.Task):
    name, merit = "shapes-seg", ("AP50", "mean IoU")
    sample = staticmethod(training_sample)

    def network(self):
        from masks import MaskNetwork
        return MaskNetwork()

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
        from masks import loss_of
        return loss_of(*raw, *targets, self.grid)

    def results(self, raw):
        from masks import decode
        rows, prototypes = decode(raw[0], self.grid).transpose(1, 2).cpu().numpy(), raw[1].cpu().numpy()
        return list(zip(rows, prototypes))

    def measure(self, outputs, targets):
        frames = ((detections_of(*own), truth_of(*truth)) for own, truth in zip(outputs, zip(*targets)))
        return score_shapes.measure(frames, score_shapes.mask_iou)


if __name__ == "__main__":
    training.main(Masks(), "Trains, exports and evaluates the network of masks.", batch=128, scenes=40000)
