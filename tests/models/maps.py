# SPDX-License-Identifier: MPL-2.0
# The networks of maps in PyTorch.  That of classes is the one of masks (masks.py) with another end;
# that of depths, which is smaller, has the first two scales of the same backbone (network.py) and a
# way up from them.  Not run by itself; train_maps.py trains them and writes them as ONNX.

import math

import torch
import torch.nn.functional as F
from torch import nn

from anchor_free import emit_plain
from network import Backbone, Chain, Context, Conv, Pyramid
from rooms import SIDE as ROOM
from shapes import LABELS, SIDE

STRIDE = 4  # of the maps
CLASSES = ("background", *LABELS)


def double(x):
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


def full_size(maps):
    """As the plugin scales them."""
    return F.interpolate(maps, scale_factor=float(STRIDE), mode="bilinear", align_corners=False)


class Continued:
    """Begins with the first convolutions of a trained model, which have its batch norms in them.

    Batch norms keep their statistics, in training too: the batches of a CPU are too small for others.
    """

    FREEZES = False  # whether those convolutions stay as they are

    def train(self, mode=True):
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def begun(self):
        """The parts whose weights are taken, in the order of that model."""
        raise NotImplementedError

    def begin_with(self, convolutions):
        """Takes weights and biases of convolutions."""
        own = [m for part in self.begun() for m in part.modules() if isinstance(m, Conv)]
        for module, (weight, bias) in zip(own, convolutions):
            module.conv.weight.data.copy_(torch.from_numpy(weight))
            module.norm.weight.data.fill_(math.sqrt(1 + module.norm.eps))
            module.norm.bias.data.copy_(torch.from_numpy(bias))
            module.requires_grad_(not self.FREEZES)


class ClassNetwork(Continued, Pyramid):
    """An image -> logits of the background and of the classes, at a quarter of its size."""

    FREEZES = True

    def __init__(self):
        super().__init__()
        self.before, self.after = Chain(Conv(self.CHANNELS[0], 32, 3)), Chain(Conv(32, 32, 3))
        self.whole, self.mixed = Conv(sum(self.CHANNELS), 24, 3), Conv(56, 32, 3)
        self.last = nn.Conv2d(32, len(CLASSES), 1)
        self.train()

    def begun(self):
        return (self.fine, self.mid, self.coarse, self.lateral5, self.down4, self.lateral4, self.down3, self.step4, self.up4,
                self.step5, self.up5, self.before, self.after)

    def forward(self, x):
        q3, q4, q5 = Pyramid.forward(self, x)
        whole = self.whole(torch.cat([q3, double(q4), double(double(q5))], 1))
        finest = self.after(double(self.before(q3)))
        return self.last(self.mixed(torch.cat([finest, double(whole)], 1)))

    def to_onnx(self):
        from onnx_graph import Graph, tag
        g = Graph()
        q3, q4, q5 = self.emit(g, "images")
        whole = self.whole.emit(g, g.op("Concat", q3, g.double(q4), g.double(g.double(q5)), axis=1))
        finest = self.after.emit(g, g.double(self.before.emit(g, q3)))
        logits = emit_plain(g, self.last, self.mixed.emit(g, g.op("Concat", finest, g.double(whole), axis=1)))
        g.op("Identity", logits, name="output0")
        return tag(g.finish([1, len(CLASSES), SIDE // STRIDE, SIDE // STRIDE], side=SIDE), SIDE, {
            "description": "Classes of the pixels of synthetic discs, boxes and stars, for tests", "task": "semantic",
            "names": str(dict(enumerate(CLASSES)))})


class DepthNetwork(Continued, nn.Module):
    """An image -> depths in metres, at a quarter of its size; the network itself has their logarithms."""

    def __init__(self):
        super().__init__()
        body = Backbone()
        self.fine, self.mid, self.context = body.fine, body.mid, Context(64)
        self.lateral, self.before, self.after = Conv(64, 48), Chain(Conv(96, 32, 3)), Chain(Conv(32, 32, 3))
        self.last = nn.Conv2d(32, 1, 1)
        nn.init.constant_(self.last.bias, math.log(6.0))
        self.train()

    def begun(self):
        return self.fine, self.mid

    def forward(self, x):
        finer = self.fine(x)
        coarser = self.lateral(self.context(self.mid(finer)))
        both = torch.cat([double(coarser), finer], 1)
        return self.last(self.after(double(self.before(both)))).clamp(0, 4).exp()

    def to_onnx(self):
        import numpy as np
        from onnx_graph import Graph, tag
        g = Graph()
        finer = self.fine.emit(g, "images")
        coarser = self.lateral.emit(g, self.context.emit(g, self.mid.emit(g, finer)))
        both = g.op("Concat", g.double(coarser), finer, axis=1)
        logarithms = emit_plain(g, self.last, self.after.emit(g, g.double(self.before.emit(g, both))))
        clipped = g.op("Clip", logarithms, np.array(0, np.float32), np.array(4, np.float32))
        g.op("Exp", clipped, name="output0")
        return tag(g.finish([1, 1, ROOM // STRIDE, ROOM // STRIDE], side=ROOM), ROOM, {
            "description": "Depth in metres of synthetic rooms, for tests", "task": "depth", "names": "{0: 'depth'}"})
