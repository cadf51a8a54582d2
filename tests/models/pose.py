# SPDX-License-Identifier: MPL-2.0
# The pose network in PyTorch: the detector's backbone and neck (network.py), heads without
# anchors (anchor_free.py), and its loss.  Not run by itself; train_pose.py trains it and writes
# it as ONNX.
#
# A row: how far the box reaches left, up, right and down of the cell's centre (logarithms),
# the score (logit), and x, y (from the cell's centre) and visibility (logit) of each keypoint.

import torch
import torch.nn.functional as F

from anchor_free import BOX_UNIT, AnchorFree, Answers, decode_reach, inside
from figures import COUNT, LABEL, SIDE
from network import iou_terms
from score_pose import AREA_SHARE, SIGMAS

POINT_UNIT = 4.0  # strides that stand for 1 in a raw row
ROW = 5 + 3 * COUNT


class PoseNetwork(AnchorFree):
    def __init__(self):
        super().__init__(1, 48, 3 * COUNT)

    def to_onnx(self):
        """Of a network on the CPU."""
        from onnx_graph import Graph, cells, tag
        g = Graph()
        maps = self.emit_rows(g, self.emit(g, "images"))
        g.decode_pose(maps, SIDE, BOX_UNIT, POINT_UNIT, COUNT)
        return tag(g.finish([1, ROW, len(cells(SIDE)[0])], side=SIDE), SIDE, {
            "description": "Poses of synthetic figures, for tests", "task": "pose",
            "names": str({0: LABEL}), "kpt_shape": str([COUNT, 3])})


def decode(raw, grid):
    """[batch, cells, ROW]: box cx, cy, w, h, score, keypoints; as output0, but rows come first."""
    points = raw[..., 5:].unflatten(-1, (COUNT, 3))
    places = points[..., :2] * (POINT_UNIT * grid.stride[..., None]) + grid.centre[..., None, :]
    points = torch.cat([places, points[..., 2:].sigmoid()], -1)
    return torch.cat([decode_reach(raw, grid), raw[..., 4:5].sigmoid(), points.flatten(-2)], -1)


# ---------------------------------------------------------------------- loss

def assign(decoded, targets, grid):
    longer = targets[..., 4:6].amax(-1)
    may = inside(targets[..., 2:6], grid) & grid.suits(longer)
    iou = iou_terms(decoded[:, None, :, :4], targets[:, :, None, 2:6])[0]
    return Answers(may, iou, decoded[:, None, :, 4], targets[..., 0], targets[..., 1])


def distances(points, wanted, area):
    """Squared distance of keypoints in the units of OKS: the similarity of each is exp(-it)."""
    sigmas = torch.tensor(SIGMAS, device=points.device)
    square = ((points[..., :2] - wanted[..., :2]) ** 2).sum(-1)
    return square / (2 * area[..., None] * (2 * sigmas) ** 2)


def pose_loss(raw, targets, grid):
    """Box, score, position and visibility loss of a batch; targets as training_sample makes them."""
    decoded = decode(raw, grid)
    with torch.no_grad():
        answers = assign(decoded, targets, grid)
    own, wanted = decoded[answers.batch, answers.row], targets[answers.batch, answers.object]

    exact, complete = iou_terms(own[:, :4], wanted[:, 2:6])
    points, truth = own[:, 5:].unflatten(-1, (COUNT, 3)), wanted[:, 6:].unflatten(-1, (COUNT, 3))
    labelled, seen = (truth[..., 2] > 0).float(), (truth[..., 2] > 1).float()
    many = labelled.sum(-1).clamp(min=1)
    apart = distances(points, truth, AREA_SHARE * wanted[:, 4:6].prod(-1).clamp(min=16))
    similarity = ((-apart).exp() * labelled).sum(-1) / many
    # The similarity alone has no slope far away; the logarithm has.
    place = (1 - (-apart).exp() + 0.5 * torch.log1p((apart + 1e-4).sqrt())) * labelled
    place = place.sum(-1) / many

    quality = (exact.detach().clamp(0, 1) + similarity.detach()) / 2
    score, sure, total = answers.score_loss(raw[..., 4:5], quality, 0)
    weight = sure.clamp(min=0.05)
    box = ((1 - complete) * weight).sum() / total
    place = (place * weight).sum() / total
    logits = raw[answers.batch, answers.row, 5:].unflatten(-1, (COUNT, 3))[..., 2]
    visible = F.binary_cross_entropy_with_logits(logits, seen, reduction="none").mean(-1)
    visible = (visible * weight).sum() / total
    return 2 * box + score + 4 * place + 0.5 * visible, box, score, place, visible
