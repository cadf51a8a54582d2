# SPDX-License-Identifier: MPL-2.0
"""Gold masks of segmentation models, made by NumPy in f64: python tests/gold/masks.py

Needs numpy==2.4.6. The formula is that of Ultralytics' process_mask: coefficients times prototypes, bilinear to the size of the
model's input (the middles of pixels meet, as with align_corners=False), above 0, cut to the box. Writes, next to itself,
masks/NAME.prototypes (f32 [count][height][width]), masks/NAME.objects (f32 [objects][4 + count]: left, top, right, bottom,
coefficients), masks/NAME.masks (a byte for each pixel of the input of each object: 0, 1, or 2 where the sum is so near 0 that
rounding decides), and masks/index.txt, a line for each case:
NAME count width height input_width input_height objects.
"""

from pathlib import Path

import numpy as np

CASES = [  # count, prototypes (w, h), input (w, h), objects
    (8, (16, 16), (64, 64), 6),
    (4, (24, 10), (96, 40), 5),
    (3, (7, 5), (40, 33), 5),
    (2, (40, 40), (32, 32), 4),
    (5, (1, 1), (32, 32), 4),
    (1, (1, 9), (20, 36), 3),
]


def smooth(rng, count, width, height):
    """Waves of some directions and lengths, so that edges lie anywhere between pixels."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x * rng.uniform(0.1, 0.9) + y * rng.uniform(-0.9, 0.9) + rng.uniform(0, 6)) for _ in range(count)]
    return np.stack(waves).astype(np.float32)


def weights(size, to):
    """The matrix by which samples of a line become those of another length."""
    place = np.maximum((np.arange(to) + 0.5) * size / to - 0.5, 0)
    first = place.astype(int)
    matrix = np.zeros((to, size))
    for at in range(to):
        matrix[at, first[at]] += 1 - (place[at] - first[at])
        matrix[at, min(first[at] + 1, size - 1)] += place[at] - first[at]
    return matrix


def masks(prototypes, objects, width, height):
    boxes, coefficients = objects[:, :4], objects[:, 4:].astype(np.float64)
    sums = np.einsum("nk,khw->nhw", coefficients, prototypes.astype(np.float64))
    values = np.einsum("yh,nhw,xw->nyx", weights(prototypes.shape[1], height), sums, weights(prototypes.shape[2], width))
    y, x = np.mgrid[0:height, 0:width]
    left, top, right, bottom = (boxes[:, i, None, None] for i in range(4))
    inside = (x >= left) & (x < right) & (y >= top) & (y < bottom)
    found = np.where(np.abs(values) < 1e-4, 2, values > 0)
    return np.where(inside, found, 0).astype(np.uint8)


def main():
    folder = Path(__file__).with_suffix("")
    folder.mkdir(exist_ok=True)
    lines = []
    for number, (count, (width, height), (input_width, input_height), objects) in enumerate(CASES):
        rng = np.random.default_rng(number)
        prototypes = smooth(rng, count, width, height)
        corner = rng.uniform(-0.1, 0.7, (objects, 2))
        size = rng.uniform(0.2, 0.9, (objects, 2))
        boxes = np.concatenate([corner, corner + size], axis=1) * np.tile([input_width, input_height], 2)
        rows = np.concatenate([boxes, rng.normal(0, 1, (objects, count))], axis=1).astype(np.float32)
        name = f"{number:02}"
        prototypes.tofile(folder / f"{name}.prototypes")
        rows.tofile(folder / f"{name}.objects")
        masks(prototypes, rows, input_width, input_height).tofile(folder / f"{name}.masks")
        lines.append(f"{name} {count} {width} {height} {input_width} {input_height} {objects}\n")
    (folder / "index.txt").write_text("".join(lines))


main()
