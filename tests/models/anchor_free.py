# SPDX-License-Identifier: MPL-2.0
# What the networks without anchors share, in PyTorch: heads with one row a cell, and which rows
# answer for which object.  Not run by itself; pose.py, masks.py and rotated.py have the rest.

import torch
import torch.nn.functional as F
from torch import nn

from grid import STRIDES, cells
from network import Chain, Conv, Pyramid

BOX_UNIT = 2.0  # strides that stand for 1 in a raw row
# Longer sides of the objects each scale answers for, in pixels of the input; neighbours share some.
REACH = ((0.0, 100.0), (60.0, 200.0), (130.0, 1e9))
CANDIDATES = 9  # rows that answer for an object


# ------------------------------------------------------------------- network

class Head(nn.Module):
    """Box and scores straight from the map; the rest of a row after one more convolution."""

    def __init__(self, channels, scores, width, rest):
        super().__init__()
        self.box = nn.Conv2d(channels, 4 + scores, 1)
        self.branch = Chain(Conv(channels, width, 3))
        self.rest = nn.Conv2d(width, rest, 1)
        nn.init.constant_(self.box.bias, 0.0)
        nn.init.constant_(self.box.bias[4:], -5.0)  # nearly no cell holds an object

    def forward(self, x):
        rest = self.branch(x)
        # Half precision is too coarse for positions.
        with torch.autocast(x.device.type, enabled=False):
            return torch.cat([self.box(x.float()), self.rest(rest.float())], 1)

    def emit(self, g, x):
        rest = emit_plain(g, self.rest, self.branch.emit(g, x))
        return g.op("Concat", emit_plain(g, self.box, x), rest, axis=1)


def emit_plain(g, conv, x):
    return g.conv(x, conv.weight.detach().numpy(), conv.bias.detach().numpy(), 1, False)


class AnchorFree(Pyramid):
    def __init__(self, scores, width, rest):
        super().__init__()
        self.heads = nn.ModuleList(Head(c, scores, width, rest) for c in self.CHANNELS)

    def rows(self, levels):
        """Maps of the neck -> raw rows [batch, cells, fields]."""
        maps = [head(q) for head, q in zip(self.heads, levels)]
        return torch.cat([m.flatten(2) for m in maps], 2).transpose(1, 2)

    def forward(self, x):
        return self.rows(super().forward(x))

    def emit_rows(self, g, levels):
        return [head.emit(g, q) for head, q in zip(self.heads, levels)]


class Grid:
    """Centre, stride and reach of each row."""

    def __init__(self, side, device):
        self.side = side
        self.centre, self.stride = (torch.tensor(a, dtype=torch.float32, device=device) for a in cells(side))
        low, high = (torch.tensor([r[i] for r in REACH], device=device) for i in range(2))
        scale = (self.stride[:, 0] / STRIDES[0]).log2().long()
        self.low, self.high = low[scale], high[scale]

    def suits(self, longer):
        """Which rows are of the scale that suits a length: [..., cells]."""
        return (longer[..., None] >= self.low) & (longer[..., None] < self.high)


def decode_sides(raw, grid):
    return raw.clamp(-4, 4).exp() * BOX_UNIT * grid.stride


def decode_reach(raw, grid):
    """How far a box reaches left, up, right and down of its cell's centre -> cx, cy, w, h."""
    before, after = decode_sides(raw[..., :2], grid), decode_sides(raw[..., 2:4], grid)
    return torch.cat([grid.centre + (after - before) / 2, before + after], -1)


# ---------------------------------------------------------------------- loss

def inside(targets, grid):
    """Whether the centre of a row lies in an upright box [..., cx, cy, w, h]: [..., cells]."""
    offset = (grid.centre - targets[..., None, :2]).abs()
    return (offset < targets[..., None, 2:] / 2).all(-1)


def scores_of_class(scores, classes):
    """Of each row for the class of each object: [batch, objects, cells]."""
    index = classes.long()[:, :, None].expand(-1, -1, scores.shape[1])
    return torch.gather(scores.transpose(1, 2), 1, index)


class Answers:
    """Which rows answer for which object, as indices `batch`, `object` and `row`, and the rows that count neither way.

    `may` says which rows may.  Of those the CANDIDATES with the best product of score and similarity do; a row
    wanted twice takes the object it is more similar to.  Arguments are [batch, objects, cells], and the standing
    [batch, objects] of the objects.
    """

    def __init__(self, may, similarity, scores, valid, ignored):
        similarity = similarity.clamp(min=1e-4)
        may = may & (valid[..., None] > 0)
        merit = torch.where(may, scores.sqrt() * similarity ** 4, -1.0)
        best = merit.topk(CANDIDATES, -1).indices
        chosen = torch.zeros_like(may).scatter_(-1, best, True) & may
        winner = torch.where(chosen, similarity, -1.0).argmax(1, keepdim=True)
        chosen &= torch.zeros_like(may).scatter_(1, winner, True)
        ignored = ignored[..., None] > 0
        self.neither = (may & ignored).any(1) & ~(chosen & ~ignored).any(1)
        self.chosen = chosen & ~ignored
        self.batch, self.object, self.row = self.chosen.nonzero(as_tuple=True)
        top = merit.where(self.chosen, torch.zeros_like(merit)).amax(-1).clamp(min=1e-9)
        self.share = merit[self.batch, self.object, self.row] / top[self.batch, self.object]

    def score_loss(self, logits, quality, classes):
        """Sum of the loss of scores, how sure each answer should be, and the sum of that.

        A row should be as sure as its answer is good, and surest for the best of an object's rows.
        """
        sure = quality * self.share
        wanted = torch.zeros_like(logits)
        wanted[self.batch, self.row, classes] = sure
        loss = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        total = sure.sum().clamp(min=1)
        return (loss * (~self.neither[..., None]).float()).sum() / total, sure, total
