# SPDX-License-Identifier: MPL-2.0
# The classifier in PyTorch: the detector's backbone (network.py), the mean of its coarsest map,
# and scores.  Not run by itself; train_classes.py trains it and writes it as ONNX.

import torch
from torch import nn

from network import Backbone
from shapes import CROP, LABELS


class Classifier(Backbone):
    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(80, len(LABELS))

    def forward(self, x):
        """Logits [batch, classes]."""
        coarsest = super().forward(x)[-1]
        with torch.autocast(x.device.type, enabled=False):
            return self.scores(coarsest.float().mean((2, 3)))

    def to_onnx(self):
        """Of a network on the CPU."""
        from onnx_graph import Graph, tag
        g = Graph()
        coarsest = self.emit(g, "images")[-1]
        mean = g.op("Flatten", g.op("GlobalAveragePool", coarsest))
        logits = g.op("Gemm", mean, self.scores.weight.detach().numpy(), self.scores.bias.detach().numpy(), transB=1)
        g.op("Softmax", logits, axis=1, name="output0")
        return tag(g.finish([1, len(LABELS)], side=CROP), CROP, {
            "description": "Classes of synthetic discs, boxes and stars, for tests", "task": "classify",
            "names": str(dict(enumerate(LABELS)))})
