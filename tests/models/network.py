# SPDX-License-Identifier: MPL-2.0
# The test detector in PyTorch: a small YOLOv5-style network (convolution, batch norm,
# ReLU; three scales with three anchors each) and its loss.  Not run by itself; train.py
# trains it and writes it as ONNX.  The pose network (pose.py) has the same backbone and neck.

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from grid import ANCHORS, FIELDS, ROWS, STRIDES
from scenes import CLASSES, NET

# Added to the objectness (before the sigmoid) at export, so that precision and recall are
# about equal at the usual threshold of 0.25; without it that point lies near 0.4.
OBJECTNESS_SHIFT = -0.75


# ------------------------------------------------------------------- network
# Every block can also write itself into an ONNX graph: emit(graph, name) -> name.

class Conv(nn.Module):
    def __init__(self, inputs, outputs, size=1, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03)
        self.stride = stride

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)), inplace=True)

    def emit(self, g, x):
        """Batch norm is folded into the convolution."""
        n = self.norm
        gain = (n.weight / torch.sqrt(n.running_var + n.eps)).detach()
        weight = self.conv.weight.detach() * gain[:, None, None, None]
        bias = n.bias.detach() - n.running_mean * gain
        return g.conv(x, weight.cpu().numpy(), bias.cpu().numpy(), self.stride, True)


class Residual(nn.Module):
    """1x1 to half the channels, 3x3 back, added to the input."""

    def __init__(self, channels):
        super().__init__()
        self.a, self.b = Conv(channels, channels // 2), Conv(channels // 2, channels, 3)

    def forward(self, x):
        return x + self.b(self.a(x))

    def emit(self, g, x):
        return g.op("Add", x, self.b.emit(g, self.a.emit(g, x)))


class Context(nn.Module):
    """Three chained 5x5 max pools give the coarsest scale a view of the whole frame."""

    def __init__(self, channels):
        super().__init__()
        self.a, self.b = Conv(channels, channels // 2), Conv(channels * 2, channels)

    def forward(self, x):
        parts = [self.a(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.b(torch.cat(parts, 1))

    def emit(self, g, x):
        parts = [self.a.emit(g, x)]
        for _ in range(3):
            parts.append(g.pool(parts[-1], 5))
        return self.b.emit(g, g.op("Concat", *parts, axis=1))


class Chain(nn.Sequential):
    def emit(self, g, x):
        for block in self:
            x = block.emit(g, x)
        return x


class Backbone(nn.Module):
    """An image -> maps of 48, 64 and 80 channels at strides 8, 16 and 32."""

    def __init__(self):
        super().__init__()
        self.fine = Chain(Conv(3, 16, 3, 2), Conv(16, 32, 3, 2), Residual(32), Residual(32),
                          Conv(32, 48, 3, 2), Residual(48), Residual(48), Residual(48))
        self.mid = Chain(Conv(48, 64, 3, 2), Residual(64), Residual(64))
        self.coarse = Chain(Conv(64, 80, 3, 2), Residual(80), Context(80))

    def forward(self, x):
        p3 = self.fine(x)
        p4 = self.mid(p3)
        return p3, p4, self.coarse(p4)

    def emit(self, g, x):
        p3 = self.fine.emit(g, x)
        p4 = self.mid.emit(g, p3)
        return p3, p4, self.coarse.emit(g, p4)


class Pyramid(Backbone):
    """Backbone and neck: an image -> maps of 48, 64 and 64 channels at strides 8, 16 and 32."""

    CHANNELS = (48, 64, 64)

    def __init__(self):
        super().__init__()
        # Down to the fine scale and up again, as in a path aggregation network.
        self.lateral5, self.lateral4 = Conv(80, 64), Conv(64, 48)
        self.down4 = Chain(Conv(128, 64), Residual(64))
        self.down3 = Chain(Conv(96, 48), Residual(48), Residual(48), Residual(48))
        self.step4, self.up4 = Conv(48, 48, 3, 2), Chain(Conv(96, 64), Residual(64))
        self.step5, self.up5 = Conv(64, 64, 3, 2), Chain(Conv(128, 64), Residual(64))

    def forward(self, x):
        p3, p4, p5 = super().forward(x)
        l5 = self.lateral5(p5)
        l4 = self.lateral4(self.down4(torch.cat([self._double(l5), p4], 1)))
        q3 = self.down3(torch.cat([self._double(l4), p3], 1))
        q4 = self.up4(torch.cat([self.step4(q3), l4], 1))
        q5 = self.up5(torch.cat([self.step5(q4), l5], 1))
        return q3, q4, q5

    @staticmethod
    def _double(x):
        return F.interpolate(x, scale_factor=2.0, mode="nearest")

    def emit(self, g, x):
        p3, p4, p5 = super().emit(g, x)
        l5 = self.lateral5.emit(g, p5)
        l4 = self.lateral4.emit(g, self.down4.emit(g, g.op("Concat", g.double(l5), p4, axis=1)))
        q3 = self.down3.emit(g, g.op("Concat", g.double(l4), p3, axis=1))
        q4 = self.up4.emit(g, g.op("Concat", self.step4.emit(g, q3), l4, axis=1))
        q5 = self.up5.emit(g, g.op("Concat", self.step5.emit(g, q4), l5, axis=1))
        return q3, q4, q5


class Detector(Pyramid):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(nn.Conv2d(c, 3 * FIELDS, 1) for c in self.CHANNELS)
        for head in self.heads:
            # Nearly no cell holds an object: start from a low objectness.
            head.bias.data.view(3, FIELDS)[:, 4] = -5.0

    def forward(self, x):
        return [head(q) for head, q in zip(self.heads, super().forward(x))]

    def emit(self, g, x):
        return [self._emit_head(g, q, head) for head, q in zip(self.heads, super().emit(g, x))]

    @staticmethod
    def _emit_head(g, q, head):
        """The head, its objectness shifted; this moves the scores, not their order."""
        bias = head.bias.detach().cpu().clone()
        bias.view(3, FIELDS)[:, 4] += OBJECTNESS_SHIFT
        return g.conv(q, head.weight.detach().cpu().numpy(), bias.numpy(), 1, False)

    def to_onnx(self):
        from onnx_graph import Graph, tag
        g = Graph()
        g.decode(self.emit(g, "images"))
        return tag(g.finish([1, ROWS, FIELDS]))


# ------------------------------------------------------------------ decoding

class Grid:
    """Offset, stride and anchor of each of the 16128 rows, in the order of output0."""

    def __init__(self, device):
        corner, stride, anchor = [], [], []
        for s, sides in zip(STRIDES, ANCHORS):
            n = NET // s
            iy, ix = np.mgrid[0:n, 0:n]
            for side in sides:
                corner.append(np.stack([ix, iy], -1).reshape(-1, 2))
                stride.append(np.full((n * n, 1), s))
                anchor.append(np.full((n * n, 1), side))
        self.corner, self.stride, self.anchor = (
            torch.tensor(np.concatenate(a), dtype=torch.float32, device=device)
            for a in (corner, stride, anchor))


def flatten(maps):
    """Raw maps -> [batch, 16128, 7] logits in float32."""
    rows = []
    for x in maps:
        b, _, ny, nx = x.shape
        x = x.float().view(b, 3, FIELDS, ny, nx).permute(0, 1, 3, 4, 2)
        rows.append(x.reshape(b, -1, FIELDS))
    return torch.cat(rows, 1)


def decode_boxes(logits, corner, stride, anchor):
    s = logits.sigmoid()
    return torch.cat([(s[..., :2] * 2 - 0.5 + corner) * stride, (s[..., 2:] * 2) ** 2 * anchor], -1)


def decode(logits, grid):
    boxes = decode_boxes(logits[..., :4], grid.corner, grid.stride, grid.anchor)
    return torch.cat([boxes, logits[..., 4:].sigmoid()], -1)


# ---------------------------------------------------------------------- loss

def iou_terms(a, b):
    """IoU and complete IoU of boxes cx,cy,w,h."""
    a0, a1 = a[..., :2] - a[..., 2:] / 2, a[..., :2] + a[..., 2:] / 2
    b0, b1 = b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2
    inter = (torch.minimum(a1, b1) - torch.maximum(a0, b0)).clamp(min=0).prod(-1)
    union = a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - inter + 1e-6
    iou = inter / union
    hull = torch.maximum(a1, b1) - torch.minimum(a0, b0)
    distance = ((a[..., :2] - b[..., :2]) ** 2).sum(-1) / ((hull ** 2).sum(-1) + 1e-6)
    angle = torch.atan(a[..., 2] / (a[..., 3] + 1e-6)) - torch.atan(b[..., 2] / (b[..., 3] + 1e-6))
    v = 4 / np.pi ** 2 * angle ** 2
    with torch.no_grad():
        alpha = v / (1 - iou + v + 1e-6)
    return iou, iou - distance - alpha * v


def candidates(targets, device):
    """Rows that answer for each object: [batch, objects, 9 anchors, 3 cells] and a mask.

    An anchor takes part when its side is within 2.2 of the box in both directions, or
    when it is the best of all; a cell takes part when it holds the centre or is the
    nearest neighbour of that cell in x or in y.
    """
    centre, size = targets[..., 3:5], targets[..., 5:7].clamp(min=1)
    sides = torch.tensor(ANCHORS, dtype=torch.float32, device=device).view(-1)
    ratio = size[:, :, None] / sides[:, None]
    worst = torch.maximum(ratio, 1 / ratio).amax(-1)  # [b, m, 9]
    fits = (worst < 2.2) | (worst <= worst.amin(-1, keepdim=True))
    fits &= targets[..., 0:1] > 0
    rows, masks, base = [], [], 0
    for index, stride in enumerate(STRIDES):
        n = NET // stride
        position = centre / stride
        cell = position.floor()
        side = torch.where(position - cell < 0.5, -1.0, 1.0)
        steps = torch.tensor([[0., 0.], [1., 0.], [0., 1.]], device=device)
        cells = cell[:, :, None] + steps * side[:, :, None]  # [b, m, 3, 2]
        inside = ((cells >= 0) & (cells < n)).all(-1)
        cells = cells.clamp(0, n - 1).long()
        flat = cells[..., 1] * n + cells[..., 0]
        for anchor in range(3):
            rows.append(base + anchor * n * n + flat)
            masks.append(inside & fits[:, :, index * 3 + anchor, None])
        base += 3 * n * n
    return torch.stack(rows, 2), torch.stack(masks, 2)


def detection_loss(logits, targets, grid):
    """Box, objectness and class loss of a batch; targets as training_sample makes them."""
    batch, objects = targets.shape[:2]
    rows, mask = candidates(targets, logits.device)
    per_object = rows.shape[2] * rows.shape[3]
    rows = rows.reshape(batch, -1)
    expand = lambda t: t[:, :, None].expand(-1, -1, per_object, *t.shape[2:]).reshape(
        batch, objects * per_object, *t.shape[2:])
    ignored = expand(targets[..., 1]) > 0
    mask = mask.reshape(batch, -1)
    positive = (mask & ~ignored).float()
    total = positive.sum().clamp(min=1)

    chosen = torch.gather(logits, 1, rows[..., None].expand(-1, -1, FIELDS))
    boxes = decode_boxes(chosen[..., :4], grid.corner[rows], grid.stride[rows], grid.anchor[rows])
    iou, ciou = iou_terms(boxes, expand(targets[..., 3:7]))
    box_loss = ((1 - ciou) * positive).sum() / total

    classes = F.one_hot(expand(targets[..., 2]).long(), len(CLASSES)).float()
    class_loss = F.binary_cross_entropy_with_logits(chosen[..., 5:], classes, reduction="none")
    class_loss = (class_loss.mean(-1) * positive).sum() / total

    # A row should be as sure as its box is good; then the best box survives the NMS.
    wanted = torch.zeros_like(logits[..., 4])
    wanted.scatter_reduce_(1, rows, iou.detach().clamp(0, 1) * positive, "amax")
    hidden = torch.zeros_like(wanted)
    hidden.scatter_reduce_(1, rows, (mask & ignored).float(), "amax")
    weight = 1 - hidden * (wanted == 0) * 1.0
    object_loss = F.binary_cross_entropy_with_logits(logits[..., 4], wanted, reduction="none")
    object_loss = (object_loss * weight).sum() / total
    return 5 * box_loss + object_loss + class_loss, box_loss, object_loss, class_loss
