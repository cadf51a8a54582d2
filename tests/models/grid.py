# SPDX-License-Identifier: MPL-2.0
# The cells and anchors of which the networks' rows are made, and the order of the rows.  numpy only.

import numpy as np

from scenes import CLASSES, NET

STRIDES = (8, 16, 32)
# Side of the square anchors, three a stride; steps of 1.5 suit boxes of up to 1:4.
ANCHORS = ((12, 18, 27), (40, 58, 84), (120, 175, 260))
FIELDS = 5 + len(CLASSES)
ROWS = sum(3 * (NET // s) ** 2 for s in STRIDES)


def cells(side):
    """Centre [cells,2] and stride [cells,1] of the cells of all scales, in the order of the outputs."""
    centre, strides = [], []
    for stride in STRIDES:
        n = side // stride
        iy, ix = np.mgrid[0:n, 0:n]
        centre.append((np.stack([ix, iy], -1).reshape(-1, 2) + 0.5) * stride)
        strides.append(np.full((n * n, 1), stride))
    return np.concatenate(centre), np.concatenate(strides)
