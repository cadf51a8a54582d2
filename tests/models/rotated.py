# SPDX-License-Identifier: MPL-2.0
# The network of rotated boxes in PyTorch: the detector's backbone and neck (network.py), heads
# without anchors (anchor_free.py), and its loss.  Not run by itself; train_rotated.py trains it
# and writes it as ONNX.
#
# A row: x, y of the centre (from the cell's), width and height (logarithms), the scores (logits)
# of the classes, and cosine and sine of the doubled angle, not normalised.

import torch
from torch import nn

from anchor_free import BOX_UNIT, AnchorFree, Answers, decode_sides, scores_of_class
from shapes import LABELS, SIDE

PLACE_UNIT = 2.0  # strides that stand for 1 in a raw row
TURN = 4 + len(LABELS)  # where the cosine stands


class RotatedNetwork(AnchorFree):
    def __init__(self):
        super().__init__(len(LABELS), 32, 2)
        for head in self.heads:
            nn.init.constant_(head.rest.bias, 0.1)  # no angle at all would have no slope

    def to_onnx(self):
        """Of a network on the CPU."""
        from onnx_graph import Graph, cells, tag
        g = Graph()
        maps = self.emit_rows(g, self.emit(g, "images"))
        g.decode_rotated(maps, SIDE, BOX_UNIT, PLACE_UNIT, len(LABELS))
        return tag(g.finish([1, TURN + 1, len(cells(SIDE)[0])], side=SIDE), SIDE, {
            "description": "Rotated boxes of synthetic discs, boxes and stars, for tests", "task": "obb",
            "names": str(dict(enumerate(LABELS)))})


def decode(raw, grid):
    """Boxes [batch, cells, cx, cy, w, h, angle] and scores."""
    centre = raw[..., :2] * (PLACE_UNIT * grid.stride) + grid.centre
    angle = torch.atan2(raw[..., TURN + 1], raw[..., TURN])[..., None] / 2
    return torch.cat([centre, decode_sides(raw[..., 2:4], grid), angle], -1), raw[..., 4:TURN].sigmoid()


# ---------------------------------------------------------------------- loss

def covariance(boxes):
    """Of the Gaussian that stands for a rotated box: of x with x, y with y, x with y."""
    across, along = boxes[..., 2] ** 2 / 12, boxes[..., 3] ** 2 / 12
    mean, half = (across + along) / 2, (across - along) / 2
    return mean + half * torch.cos(2 * boxes[..., 4]), mean - half * torch.cos(2 * boxes[..., 4]), half * torch.sin(2 * boxes[..., 4])


def bhattacharyya(a, b):
    """Distance of the Gaussians of two boxes; ProbIoU (Murrugarra-Llerena et al., 2022) is 1 - sqrt(1 - exp(-it))."""
    (ax, ay, axy), (bx, by, bxy) = covariance(a), covariance(b)
    sx, sy, sxy = ax + bx, ay + by, axy + bxy
    dx, dy = a[..., 0] - b[..., 0], a[..., 1] - b[..., 1]
    joint = (sx * sy - sxy ** 2).clamp(min=1e-6)
    apart = (sy * dx ** 2 - 2 * sxy * dx * dy + sx * dy ** 2) / (4 * joint)
    own = ((ax * ay - axy ** 2).clamp(min=1e-6) * (bx * by - bxy ** 2).clamp(min=1e-6)).sqrt()
    return (apart + torch.log(joint / (4 * own)) / 2).clamp(min=0)


def hellinger(distance):
    return (1 - (-distance).exp() + 1e-6).sqrt()


def inside(targets, grid):
    """Whether the centre of a row lies in a rotated box: [batch, objects, cells]."""
    offset = grid.centre - targets[..., None, :2]
    cos, sin = targets[..., 4:5].cos(), targets[..., 4:5].sin()
    u, v = offset[..., 0] * cos + offset[..., 1] * sin, offset[..., 1] * cos - offset[..., 0] * sin
    return (u.abs() < targets[..., 2:3] / 2) & (v.abs() < targets[..., 3:4] / 2)


def loss_of(raw, targets, grid):
    """Box, score and angle loss of a batch; targets as shapes.training_sample makes them."""
    boxes, scores = decode(raw, grid)
    rotated, classes = targets[..., 7:12], targets[..., 2].long()
    with torch.no_grad():
        may = inside(rotated, grid) & grid.suits(rotated[..., 2])
        alike = 1 - hellinger(bhattacharyya(boxes[:, None], rotated[:, :, None]))
        answers = Answers(may, alike, scores_of_class(scores, classes), targets[..., 0], targets[..., 1])
    own, wanted = boxes[answers.batch, answers.row], rotated[answers.batch, answers.object]
    distance = bhattacharyya(own, wanted)
    apart = hellinger(distance)
    quality = (1 - apart.detach()).clamp(0, 1)
    score, sure, total = answers.score_loss(raw[..., 4:TURN], quality, classes[answers.batch, answers.object])
    weight = sure.clamp(min=0.05)
    # ProbIoU has no slope far away; the logarithm of the distance has.
    box = ((apart + 0.25 * torch.log1p(distance)) * weight).sum() / total
    turn = ((1 - torch.cos(2 * (own[:, 4] - wanted[:, 4]))) * weight).sum() / total
    return 3 * box + score + turn, box, score, turn
