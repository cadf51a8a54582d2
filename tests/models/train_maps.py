#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Trains the networks of maps on synthetic scenes and writes them as ONNX: rooms-depth.onnx, depths in
# metres [1,1,32,32], and shapes-sem.onnx, logits of background, disc, box and star [1,4,64,64].
#
# The first word is the network.  Train (one core of a CPU and the seconds given; needs PyTorch, numpy and onnx):
#   python3 tests/models/train_maps.py semantic train --device cpu --workers 1 --steps 10 --first 128 --rate 3e-3 --seconds 480 --out tests/models
#   python3 tests/models/train_maps.py depth train --device cpu --workers 1 --steps 10 --first 192 --rate 2e-3 --batch 32 --seconds 600 --out tests/models
# Write the model of some weights that a training saved (same needs):
#   python3 tests/models/train_maps.py depth export --from rooms-depth.npz --out tests/models
# Figures on scenes it never saw (needs numpy and onnxruntime):
#   python3 tests/models/train_maps.py depth evaluate tests/models/rooms-depth.onnx
#
# Both begin with weights of shapes-seg.onnx.

import os
import sys

import numpy as np

import rooms
import scenes
import shapes
import training

PART, GRID = 160, 16  # of the scenes of classes, in the training
BODY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes-seg.onnx")


def convolutions(path):
    """Weights and biases of a model's convolutions, in their order."""
    import onnx
    from onnx import numpy_helper
    graph = onnx.load(path).graph
    weights = {weight.name: weight for weight in graph.initializer}
    return [[numpy_helper.to_array(weights[name]).copy() for name in node.input[1:]] for node in graph.node if node.op_type == "Conv"]


def full_size(output, side):
    """An output [channels, h, w] in the size of the input, as the plugin scales it: [side, side, channels]."""
    return scenes.resize(output.transpose(1, 2, 0), side, side)


def class_sample(seed):
    """The letterboxed image, and the class of each of its pixels; 0 is the background."""
    image, rows, owner = shapes.training_sample(seed)
    return image, np.concatenate([[0], rows[:, 2] + 1]).astype(np.uint8)[owner]


class Maps(training.Task):
    def network(self):
        network = self.kind()
        network.begin_with(convolutions(BODY))
        return network

    def results(self, raw):
        return [[output] for output in raw.cpu().numpy()]

    def vary(self, images, targets):
        import torch
        if torch.rand(()) < 0.5:
            images, targets = images.flip(3), [targets[0].flip(2)]
        return images, targets


class Semantic(Maps):
    name, merit = "shapes-sem", ("mIoU",)
    sample = staticmethod(class_sample)

    @property
    def kind(self):
        from maps import ClassNetwork
        return ClassNetwork

    def vary(self, images, targets):
        import torch
        images, (classes,) = super().vary(images, targets)
        if torch.rand(()) < 0.5:
            images, classes = images.transpose(2, 3), classes.transpose(1, 2)
        # A part of each scene, which costs a part of the time.
        top, left = torch.randint(0, (shapes.SIDE - PART) // GRID + 1, (2,)).mul(GRID).tolist()
        return images[:, :, top:top + PART, left:left + PART], [classes[:, top:top + PART, left:left + PART]]

    def losses(self, raw, targets):
        import torch.nn.functional as F
        from maps import full_size
        # Few pixels belong to objects.
        weight = raw.new_tensor([1.0] + [2.0] * len(shapes.LABELS))
        loss = F.cross_entropy(full_size(raw), targets[0].long(), weight)
        return loss, loss

    def measure(self, outputs, targets):
        count = 1 + len(shapes.LABELS)
        pairs = np.zeros((count, count))
        for (output,), truth in zip(outputs, targets[0]):
            np.add.at(pairs, (truth.ravel(), full_size(output, shapes.SIDE).argmax(2).ravel()), 1)
        shared = pairs.diagonal()
        each = shared / np.maximum(pairs.sum(0) + pairs.sum(1) - shared, 1)
        return {"mIoU": float(each.mean()), "pixels": float(shared.sum() / pairs.sum())}


class Depth(Maps):
    name, merit = "rooms-depth", ("delta<1.25",)
    sample = staticmethod(rooms.training_sample)

    @property
    def kind(self):
        from maps import DepthNetwork
        return DepthNetwork

    def losses(self, raw, targets):
        from maps import full_size
        loss = (full_size(raw)[:, 0].log() - targets[0].float().log()).abs().mean()
        return loss, loss

    def measure(self, outputs, targets):
        found = np.stack([full_size(output, rooms.SIDE)[..., 0] for output, in outputs])
        truth = targets[0].astype(np.float32)
        ratio = np.maximum(found / truth, truth / found)
        return {"abs-rel": float((np.abs(found - truth) / truth).mean()), "delta<1.25": float((ratio < 1.25).mean())}


if __name__ == "__main__":
    tasks = {"semantic": Semantic, "depth": Depth}
    if len(sys.argv) < 2 or sys.argv[1] not in tasks:
        raise SystemExit("train_maps.py: the first word is semantic or depth")
    training.main(tasks[sys.argv.pop(1)](), "Trains, exports and evaluates the networks of maps.", batch=24, scenes=2560)
