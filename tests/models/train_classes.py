#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Trains the classifier on synthetic scenes of one shape and writes it as ONNX, as Ultralytics'
# classifiers are: output0 [1,3], probabilities.
#
# Train (a GPU, 16 cores and the seconds given; needs PyTorch, numpy and onnx):
#   python3 tests/models/train_classes.py train --device cuda --seconds 200 --out tests/models
# Write the model of some weights that a training saved (same needs, no GPU):
#   python3 tests/models/train_classes.py export --from shapes-cls.npz --out tests/models
# Share of right classes on scenes it never saw (needs numpy and onnxruntime):
#   python3 tests/models/train_classes.py evaluate tests/models/shapes-cls.onnx

import numpy as np

import shapes
import training


class Classes(training.Task):
    name, merit = "shapes-cls", ("top-1",)
    sample = staticmethod(shapes.class_sample)

    def network(self):
        from classes import Classifier
        return Classifier()

    def scenes(self, device):
        from device_scenes import Scenes
        lengths = (shapes.CROP * share for share in shapes.SHARES)
        return Scenes(shapes.CROP, 1, tuple(lengths), True, device)

    def losses(self, raw, targets):
        import torch.nn.functional as F
        loss = F.cross_entropy(raw, targets[0], label_smoothing=0.02)
        return loss, loss

    def results(self, raw):
        return [[row] for row in raw.softmax(-1).cpu().numpy()]

    def measure(self, outputs, targets):
        best = np.array([scores.ravel().argmax() for scores, in outputs])
        return {"top-1": float((best == targets[0]).mean())}


if __name__ == "__main__":
    training.main(Classes(), "Trains, exports and evaluates the classifier.", batch=256, scenes=100000)
