# SPDX-License-Identifier: MPL-2.0
"""Frames that gold tensors are made of. A change here changes them all."""

import numpy as np


def scene(width, height, seed):
    """Smooth ramps, hard edges and noise, so that a wrong phase or a wrong edge shows."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    ramps = np.stack([255 * x / max(width - 1, 1), 255 * y / max(height - 1, 1), 127 * (np.sin(x / 3) + 1)], axis=-1)
    frame = np.where((x // 5 + y // 4)[..., None] % 3 == 0, rng.integers(0, 256, (height, width, 3)), ramps)
    return frame.astype(np.uint8)


def yuv_scene(width, height, pixels, seed):
    """Planes as cv2.cvtColor takes them, one above the other; all colours are inside RGB, with steps from sample to sample."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    luma = np.where((x // 5 + y // 4) % 3 == 0, rng.integers(90, 160, (height, width)), 90 + 70 * x // max(width - 1, 1))
    u, v = rng.integers(108, 149, (2, height // 2, width // 2))
    chroma = np.stack([u, v], axis=-1) if pixels == "NV12" else np.stack([u, v])
    return np.concatenate([luma.ravel(), chroma.ravel()]).astype(np.uint8).reshape(height * 3 // 2, width)
