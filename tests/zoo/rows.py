# SPDX-License-Identifier: MPL-2.0
# Outputs that are made of random rows, and the file that has them together with what a package finds in them.
#
# Imported by families.py and faces.py; not run by itself. Needs numpy only.
import sys

import numpy as np

SIDE = 640  # of the input
STRIDES = (8, 16, 32)
LEAST, OVERLAP = 0.5, 0.4  # the least score, and the greatest IoU of two objects

written = []  # the lines of the file: packages print what they like


def rounded(values, parts=256):
    """Numbers that a few digits write exactly as f32."""
    return np.round(np.asarray(values) * parts).astype(np.float32) / np.float32(parts)


def chosen(random, anchors, count, strides=STRIDES):
    """Rows of each stride, some of them next to each other so that boxes overlap."""
    rows = []
    for level, stride in enumerate(strides):
        cells = SIDE // stride
        places = sorted(random.choice(cells * cells * anchors, count, replace=False).tolist())
        rows += [(level, place) for place in places + [places[0] + anchors]]
    return rows


def firsts(anchors, strides=STRIDES):
    """The number of the first row of each stride, and of all rows."""
    return np.cumsum([0] + [anchors * (SIDE // stride) ** 2 for stride in strides])


def write(*parts):
    written.append(" ".join(part if isinstance(part, str) else f"{part:.9g}" for part in parts))


def record(name, outputs, lines):
    """Writes a model. A line of it is a word and numbers. Of an output there is the number that most elements have, and where the others
    are, counted from its first element on."""
    write("model", name)
    for output, values in outputs.items():
        kinds, counts = np.unique(values, return_counts=True)
        usual = kinds[counts.argmax()]
        write("output", output, {"float32": "f32", "int64": "i64"}[str(values.dtype)], usual, *values.shape)
        flat = values.ravel()
        places = np.flatnonzero(flat != usual)
        for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1):
            if len(run):
                write("values", *run[:1], *flat[run])
    for line in lines:
        write(*line)
    print(f"{name}: {len(lines)} lines", file=sys.stderr)


def record_objects(name, outputs, objects):
    """The same of objects, the best first: left, top, right, bottom, score, class, and x and y of each point."""
    record(name, outputs, [("object", *found) for found in sorted(objects, key=lambda found: -found[4])])
