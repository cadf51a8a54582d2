# SPDX-License-Identifier: MPL-2.0
# The network of masks in PyTorch: the detector's backbone and neck (network.py), heads without
# anchors (anchor_free.py), prototypes of which masks are sums, and its loss.  Not run by itself;
# train_masks.py trains it and writes it as ONNX.
#
# A row: how far the box reaches left, up, right and down of the cell's centre (logarithms), the
# scores (logits) of the classes, and the coefficients of the mask.

import torch
import torch.nn.functional as F
from torch import nn

from anchor_free import BOX_UNIT, AnchorFree, Answers, decode_reach, emit_plain, inside, scores_of_class
from network import Chain, Conv, Pyramid, iou_terms
from shapes import LABELS, SIDE

COEFFICIENTS = 16
FIRST = 4 + len(LABELS)  # of a row's coefficients
ROW = FIRST + COEFFICIENTS
STRIDE = 4  # of the prototypes
MASKS = 1024  # of a batch's answers, so many that are picked at random learn their masks


class MaskNetwork(AnchorFree):
    def __init__(self):
        super().__init__(len(LABELS), 32, COEFFICIENTS)
        self.before, self.after = Chain(Conv(self.CHANNELS[0], 32, 3)), Chain(Conv(32, 32, 3))
        self.prototypes = nn.Conv2d(32, COEFFICIENTS, 1)

    def forward(self, x):
        """Raw rows and prototypes [batch, COEFFICIENTS, h, w]."""
        levels = Pyramid.forward(self, x)
        finest, rows = self.after(self._double(self.before(levels[0]))), self.rows(levels)
        with torch.autocast(x.device.type, enabled=False):
            return rows, self.prototypes(finest.float())

    def to_onnx(self):
        """Of a network on the CPU."""
        from onnx_graph import Graph, cells, tag
        g = Graph()
        levels = self.emit(g, "images")
        finest = self.after.emit(g, g.double(self.before.emit(g, levels[0])))
        prototypes = emit_plain(g, self.prototypes, finest)
        g.decode_masks(self.emit_rows(g, levels), prototypes, SIDE, BOX_UNIT, len(LABELS), COEFFICIENTS)
        model = g.finish([1, ROW, len(cells(SIDE)[0])], side=SIDE, output1=[1, COEFFICIENTS, SIDE // STRIDE, SIDE // STRIDE])
        return tag(model, SIDE, {"description": "Masks of synthetic discs, boxes and stars, for tests", "task": "segment",
                                 "names": str(dict(enumerate(LABELS)))})


def decode(raw, grid):
    """[batch, cells, ROW]: box cx, cy, w, h, scores, coefficients; as output0, but rows come first."""
    return torch.cat([decode_reach(raw, grid), raw[..., 4:FIRST].sigmoid(), raw[..., FIRST:]], -1)


# ---------------------------------------------------------------------- loss

def mask_loss(coefficients, prototypes, covered, boxes):
    """Cross entropy of each mask within its box and a pixel around it; `covered` is the share of each pixel that the object has."""
    logits = torch.einsum("nk,nkhw->nhw", coefficients, prototypes)
    loss = F.binary_cross_entropy_with_logits(logits, covered, reduction="none")
    places = (torch.arange(logits.shape[-1], device=logits.device) + 0.5) * STRIDE
    half = boxes[:, 2:] / 2 + STRIDE
    in_x, in_y = ((places - boxes[:, i, None]).abs() < half[:, i, None] for i in range(2))
    near = (in_y[:, :, None] & in_x[:, None]).float()
    return (loss * near).sum((1, 2)) / near.sum((1, 2)).clamp(min=1)


def loss_of(raw, prototypes, targets, owner, grid):
    """Box, score and mask loss of a batch; targets as shapes.training_sample makes them."""
    decoded = decode(raw, grid)
    upright, classes = targets[..., 3:7], targets[..., 2].long()
    with torch.no_grad():
        may = inside(upright, grid) & grid.suits(upright[..., 2:].amax(-1))
        iou = iou_terms(decoded[:, None, :, :4], upright[:, :, None])[0]
        answers = Answers(may, iou, scores_of_class(decoded[..., 4:FIRST], classes), targets[..., 0], targets[..., 1])
    wanted = upright[answers.batch, answers.object]
    exact, complete = iou_terms(decoded[answers.batch, answers.row, :4], wanted)
    quality = exact.detach().clamp(0, 1)
    score, sure, total = answers.score_loss(raw[..., 4:FIRST], quality, classes[answers.batch, answers.object])
    box = ((1 - complete) * sure.clamp(min=0.05)).sum() / total

    pick = torch.randperm(len(sure), device=sure.device)[:MASKS]
    batch, row = answers.batch[pick], answers.row[pick]
    shown = (owner[batch] == answers.object[pick, None, None] + 1).to(prototypes.dtype)
    covered = F.avg_pool2d(shown[:, None], STRIDE)[:, 0]
    mask = mask_loss(raw[batch, row, FIRST:], prototypes[batch], covered, wanted[pick])
    mask = mask.mean() if len(pick) else raw.sum() * 0
    return 2 * box + score + 4 * mask, box, score, mask
