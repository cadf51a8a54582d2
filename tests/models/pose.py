# SPDX-License-Identifier: MPL-2.0
# The pose network in PyTorch: the detector's backbone and neck (network.py) with heads
# without anchors, one row a cell, and its loss.  Not run by itself; train_pose.py trains it
# and writes it as ONNX.
#
# A row: how far the box reaches left, up, right and down of the cell's centre (logarithms),
# the score (logit), and x, y (from the cell's centre) and visibility (logit) of each keypoint.

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from figures import COUNT, LABEL, SIDE
from network import Chain, Conv, Pyramid, iou_terms
from onnx_graph import STRIDES, Graph, cells, tag
from score_pose import AREA_SHARE, SIGMAS

BOX_UNIT, POINT_UNIT = 2.0, 4.0  # strides that stand for 1 in a raw row
ROW = 5 + 3 * COUNT
ROWS = sum((SIDE // s) ** 2 for s in STRIDES)
# Longer sides of the boxes each scale answers for, in pixels of the input; neighbours share some.
REACH = ((0.0, 100.0), (60.0, 200.0), (130.0, 1e9))
CANDIDATES = 9  # rows that answer for a figure


# ------------------------------------------------------------------- network

class Head(nn.Module):
    """Box and score straight from the map; keypoints after one more convolution."""

    def __init__(self, channels):
        super().__init__()
        self.box = nn.Conv2d(channels, 5, 1)
        self.branch = Chain(Conv(channels, 48, 3))
        self.points = nn.Conv2d(48, 3 * COUNT, 1)
        nn.init.constant_(self.box.bias, 0.0)
        nn.init.constant_(self.box.bias[4:], -5.0)  # nearly no cell holds a figure

    def forward(self, x):
        points = self.branch(x)
        # Half precision is too coarse for positions.
        with torch.autocast(x.device.type, enabled=False):
            return torch.cat([self.box(x.float()), self.points(points.float())], 1)

    def emit(self, g, x):
        plain = lambda conv, x: g.conv(x, conv.weight.detach().numpy(), conv.bias.detach().numpy(), 1, False)
        return g.op("Concat", plain(self.box, x), plain(self.points, self.branch.emit(g, x)), axis=1)


class PoseNetwork(Pyramid):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(Head(c) for c in self.CHANNELS)

    def forward(self, x):
        maps = [head(q) for head, q in zip(self.heads, super().forward(x))]
        return torch.cat([m.flatten(2) for m in maps], 2).transpose(1, 2)  # [batch, cells, ROW]

    def to_onnx(self):
        """Of a network on the CPU."""
        g = Graph()
        maps = [head.emit(g, q) for head, q in zip(self.heads, self.emit(g, "images"))]
        g.decode_pose(maps, SIDE, BOX_UNIT, POINT_UNIT, COUNT)
        return tag(g.finish([1, ROW, ROWS], side=SIDE), SIDE, {
            "description": "Poses of synthetic figures, for tests", "task": "pose",
            "names": str({0: LABEL}), "kpt_shape": str([COUNT, 3])})


# ------------------------------------------------------------------ decoding

class Grid:
    """Centre and stride of each row."""

    def __init__(self, device):
        self.centre, self.stride = (torch.tensor(a, dtype=torch.float32, device=device) for a in cells(SIDE))
        low, high = (torch.tensor([r[i] for r in REACH], device=device) for i in range(2))
        scale = (self.stride[:, 0] / STRIDES[0]).log2().long()
        self.low, self.high = low[scale], high[scale]


def decode_boxes(raw, grid):
    reach = raw.clamp(-4, 4).exp() * BOX_UNIT * grid.stride
    before, after = reach[..., :2], reach[..., 2:]
    return torch.cat([grid.centre + (after - before) / 2, before + after], -1)


def decode(raw, grid):
    """[batch, cells, ROW]: box cx, cy, w, h, score, keypoints; as output0, but rows come first."""
    points = raw[..., 5:].unflatten(-1, (COUNT, 3))
    places = points[..., :2] * (POINT_UNIT * grid.stride[..., None]) + grid.centre[..., None, :]
    points = torch.cat([places, points[..., 2:].sigmoid()], -1)
    return torch.cat([decode_boxes(raw[..., :4], grid), raw[..., 4:5].sigmoid(), points.flatten(-2)], -1)


# ---------------------------------------------------------------------- loss

def assign(scores, boxes, targets, grid):
    """Which rows answer for which figure: [batch, figures, cells] and the rows that count neither way.

    A row may answer when its centre lies in the figure's box, and its scale suits the size.  Of those the
    CANDIDATES with the best product of score and IoU do; a row wanted twice takes the closer box.
    """
    half = targets[..., 4:6] / 2
    offset = (grid.centre - targets[:, :, None, 2:4]).abs()
    longer = targets[..., 4:6].amax(-1, keepdim=True)
    may = (offset < half[:, :, None]).all(-1) & (longer >= grid.low) & (longer < grid.high)
    may &= targets[..., 0:1] > 0
    iou = iou_terms(boxes[:, None], targets[:, :, None, 2:6])[0].clamp(min=1e-4)
    merit = torch.where(may, scores[:, None].sqrt() * iou ** 4, -1.0)
    best = merit.topk(CANDIDATES, -1).indices
    chosen = torch.zeros_like(may).scatter_(-1, best, True) & may
    winner = torch.where(chosen, iou, -1.0).argmax(1, keepdim=True)
    chosen &= torch.zeros_like(may).scatter_(1, winner, True)
    ignored = targets[..., 1:2] > 0
    neither = (may & ignored).any(1) & ~(chosen & ~ignored).any(1)
    return chosen & ~ignored, neither, iou, merit


def distances(points, wanted, area):
    """Squared distance of keypoints in the units of OKS: the similarity of each is exp(-it)."""
    sigmas = torch.tensor(SIGMAS, device=points.device)
    square = ((points[..., :2] - wanted[..., :2]) ** 2).sum(-1)
    return square / (2 * area[..., None] * (2 * sigmas) ** 2)


def pose_loss(raw, targets, grid):
    """Box, score, position and visibility loss of a batch; targets as training_sample makes them."""
    decoded = decode(raw, grid)
    with torch.no_grad():
        chosen, neither, iou, merit = assign(decoded[..., 4], decoded[..., :4], targets, grid)
    batch, figure, row = chosen.nonzero(as_tuple=True)
    own, wanted = decoded[batch, row], targets[batch, figure]

    exact, complete = iou_terms(own[:, :4], wanted[:, 2:6])
    points, truth = own[:, 5:].unflatten(-1, (COUNT, 3)), wanted[:, 6:].unflatten(-1, (COUNT, 3))
    labelled, seen = (truth[..., 2] > 0).float(), (truth[..., 2] > 1).float()
    many = labelled.sum(-1).clamp(min=1)
    apart = distances(points, truth, AREA_SHARE * wanted[:, 4:6].prod(-1).clamp(min=16))
    similarity = ((-apart).exp() * labelled).sum(-1) / many
    # The similarity alone has no slope far away; the logarithm has.
    place = (1 - (-apart).exp() + 0.5 * torch.log1p((apart + 1e-4).sqrt())) * labelled
    place = place.sum(-1) / many

    # A row should be as sure as its pose is good, and surest for the best of a figure's rows.
    quality = (exact.detach().clamp(0, 1) + similarity.detach()) / 2
    top = merit.where(chosen, torch.zeros_like(merit)).amax(-1).clamp(min=1e-9)
    sure = quality * (merit[batch, figure, row] / top[batch, figure])
    target = torch.zeros_like(decoded[..., 4])
    target[batch, row] = sure
    total = sure.sum().clamp(min=1)
    score = F.binary_cross_entropy_with_logits(raw[..., 4], target, reduction="none")
    score = (score * (~neither).float()).sum() / total

    weight = sure.clamp(min=0.05)
    box = ((1 - complete) * weight).sum() / total
    place = (place * weight).sum() / total
    logits = raw[batch, row, 5:].unflatten(-1, (COUNT, 3))[..., 2]
    visible = F.binary_cross_entropy_with_logits(logits, seen, reduction="none").mean(-1)
    visible = (visible * weight).sum() / total
    return 2 * box + score + 4 * place + 0.5 * visible, box, score, place, visible
