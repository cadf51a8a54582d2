# SPDX-License-Identifier: MPL-2.0
# Boxes of a picture, how far two of them may be apart, and what a comparison gives.
#
# Imported by the programs of this folder; not run by itself. Needs numpy only.
from dataclasses import dataclass, field

import numpy as np

SHAPES = ((640, 360), (405, 720))  # width, height of the test pictures: a downscale by 2 or 1, and an odd portrait one
IOU_THRESHOLD = 0.45
ENOUGH = 12  # fewer undoubted boxes than this would make an agreement worthless

CERTAIN, DOUBTFUL, GONE = "certain", "doubtful", "gone"


@dataclass
class Tolerance:
    """How far our answer may be from the reference; half precision is coarser by its nature.

    `score` and `iou` bound the difference of a pair of boxes. `order` is how near two scores must be for their order to be open,
    and `edge` how near an overlap must be to the IoU threshold for its side to be open; they are smaller, or nothing would be
    certain.
    """

    score: float
    iou: float
    order: float
    edge: float
    point: float  # pixels of the frame that a keypoint may be off
    visibility: float
    corner: float  # pixels of the frame that the corner of a rotated box may be off
    mask: float  # minimum IoU of a pair of masks, over the pixels that are surely in or out
    zero: float  # how near to 0 a pixel's sum must be for its side to be open, as a part of the sum of its terms' magnitudes
    share: float  # of the probability of a class of the whole picture


FULL = Tolerance(score=5e-3, iou=0.98, order=5e-4, edge=0.005, point=0.5, visibility=1e-3, corner=0.1, mask=0.995, zero=1e-4, share=1e-4)
HALF = Tolerance(score=2e-2, iou=0.90, order=4e-3, edge=0.02, point=4.0, visibility=2e-2, corner=4.0, mask=0.9, zero=1e-2, share=2e-3)


@dataclass
class Boxes:
    """Candidates in frame pixels: corners [N,4], scores [N], classes [N], the anchor each came from, and its standing.

    Those of a pose model have points [N,K,3], x, y and visibility. Those that are rotated have rotated [N,5], centre, size and angle in
    input pixels, and then quads [N,4,2], their corners on the frame. Those of a segmentation model have masks [N,H,W], pictures of the frame, and say
    which of their pixels are open [N,H,W], since rounding decides.
    """

    corners: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
    anchors: np.ndarray
    standing: list = field(default_factory=list)
    points: np.ndarray | None = None
    rotated: np.ndarray | None = None
    quads: np.ndarray | None = None
    masks: np.ndarray | None = None
    open_pixels: np.ndarray | None = None

    def __len__(self):
        return len(self.scores)

    def take(self, which):
        extra = {name: getattr(self, name) for name in ("points", "rotated", "quads", "masks", "open_pixels")}
        given = (self.corners[which], self.scores[which], self.classes[which], self.anchors[which])
        return Boxes(*given, **{name: None if part is None else part[which] for name, part in extra.items()})


def describe(boxes, index):
    corners = " ".join(f"{v:.1f}" for v in boxes.corners[index])
    standing = f" {boxes.standing[index]}" if boxes.standing else ""
    return f"class {boxes.classes[index]} score {boxes.scores[index]:.4f} [{corners}]{standing}"


@dataclass
class Result:
    """One line of the table."""

    name: str
    case: str
    layout: str = ""
    candidates: int = 0
    certain: int = 0
    doubtful: int = 0
    found: int = 0
    worst_iou: float = 1.0
    worst_score: float = 0.0
    worst_point: float = 0.0  # of keypoints, or of corners
    worst_mask: float = 1.0
    masks: int = 0  # how many were compared
    seconds: float = 0.0
    faults: list = field(default_factory=list)


def overlaps(one, many):
    """IoU of one box with many."""
    low, high = np.maximum(one[:2], many[:, :2]), np.minimum(one[2:], many[:, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=1)
    areas = (many[:, 2:] - many[:, :2]).prod(axis=1)
    union = (one[2:] - one[:2]).prod() + areas - shared
    return shared / np.maximum(union, 1e-9)
