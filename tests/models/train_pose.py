#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Trains the pose network on synthetic figures and writes it as ONNX, as Ultralytics' pose
# exports are: output0 [1,56,2100], one class, 17 keypoints.
#
# Train (a GPU, 16 cores and the seconds given; needs PyTorch, numpy and onnx):
#   python3 tests/models/train_pose.py train --seconds 420 --out tests/models
# Write the model of some weights that a training saved (same needs, no GPU):
#   python3 tests/models/train_pose.py export --from figures-pose.npz --out tests/models
# AP50 by OKS on scenes it never saw (needs numpy and onnxruntime):
#   python3 tests/models/train_pose.py evaluate tests/models/figures-pose.onnx

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import detect
import score
import score_pose
import training
from figures import COUNT, LABEL, SIDE, training_sample


def truth_of(rows):
    """Rows of training_sample -> objects as score_pose.py reads them."""
    return [{"class_id": 0, "label": LABEL, "ignore": bool(r[1]), "x": r[2] - r[4] / 2, "y": r[3] - r[5] / 2,
             "w": r[4], "h": r[5], "keypoints": r[6:].reshape(COUNT, 3).tolist()}
            for r in rows.astype(float) if r[0] > 0]


def detections_of(output):
    """output0 of an image -> detections as score_pose.py reads them."""
    found = detect.from_poses(output.T, 0.01)
    entries = detect.entries_of(found, found[:, :4], found[:, 6:].reshape(len(found), COUNT, 3), (LABEL,))
    return [score.scale_of(entry, 1, 1) for entry in entries]


class Poses(training.Task):
    name, merit = "figures-pose", ("AP50", "mean OKS")
    sample = staticmethod(training_sample)

    def network(self):
        from pose import PoseNetwork
        return PoseNetwork()

    def start(self, device):
        from anchor_free import Grid
        self.grid = Grid(SIDE, device)

    def losses(self, raw, targets):
        from pose import pose_loss
        return pose_loss(raw, targets[0], self.grid)

    def results(self, raw):
        from pose import decode
        return [[rows.T] for rows in decode(raw, self.grid).cpu().numpy()]

    def measure(self, outputs, targets):
        return score_pose.measure([(detections_of(*own), truth_of(rows)) for own, rows in zip(outputs, targets[0])])


if __name__ == "__main__":
    training.main(Poses(), "Trains, exports and evaluates the pose network.")
