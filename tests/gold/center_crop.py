# SPDX-License-Identifier: MPL-2.0
"""Gold tensors of torchvision's Resize and CenterCrop, made by Pillow: python tests/gold/center_crop.py

Needs pillow==13.0.0 and numpy==2.4.6; other versions of the last years give the same. torchvision resizes PIL images with
Image.resize and BILINEAR, which is antialiased, and cuts the middle out; sizes and offsets here follow its rules. Writes, next to
itself, center-crop/NAME.frame (RGB, or the planes of NV12 or I420) and center-crop/NAME.tensor (RGB), and center-crop/index.txt,
a line for each case: NAME format fit frame_width frame_height tensor_width tensor_height shortest_edge.
"""

from pathlib import Path

import numpy as np
from PIL import Image

from scenes import scene, yuv_scene

CASES = [  # frame (w, h), tensor side, edge of Resize
    ((160, 90), 32, 32),
    ((90, 160), 32, 37),
    ((321, 240), 56, 64),
    ((37, 61), 64, 64),
    ((64, 64), 64, 64),
    ((48, 48), 24, 28),
    ((7, 3), 33, 33),
    ((1, 1), 5, 5),
]
YUV_CASES = [((160, 90), 32, 32), ((48, 80), 40, 45), ((322, 240), 56, 64), ((34, 18), 48, 48)]


def to_rgb(frame, pixels, width, height):
    """BT.601 in limited range, each pixel with the chroma of its block, rounded to bytes."""
    flat = frame.ravel().astype(np.float64)
    luma, chroma = flat[:width * height].reshape(height, width), flat[width * height:]
    if pixels == "NV12":
        u, v = chroma.reshape(height // 2, width // 2, 2).transpose(2, 0, 1)
    else:
        u, v = chroma.reshape(2, height // 2, width // 2)
    u, v = (plane.repeat(2, 0).repeat(2, 1) - 128 for plane in (u, v))
    luma, gain = (luma - 16) * 255 / 219, 255 / 224
    kr, kb = 0.299, 0.114
    red, blue = luma + 2 * (1 - kr) * gain * v, luma + 2 * (1 - kb) * gain * u
    green = (luma - kr * red - kb * blue) / (1 - kr - kb)
    return np.stack([red, green, blue], axis=-1).round().clip(0, 255).astype(np.uint8)


def center_crop(rgb, side, edge):
    image = Image.fromarray(rgb)
    width, height = image.size
    short, long = min(width, height), max(width, height)
    scaled = int(edge * long / short)
    size = (edge, scaled) if width <= height else (scaled, edge)
    image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (int(round((length - side) / 2.0)) for length in size)
    return np.asarray(image.crop((left, top, left + side, top + side)))


folder = Path(__file__).parent / "center-crop"
folder.mkdir(exist_ok=True)
index = []
cases = [("RGB", *case) for case in CASES] + [(pixels, *case) for pixels in ("NV12", "I420") for case in YUV_CASES]
for i, (pixels, (frame_width, frame_height), side, edge) in enumerate(cases):
    if pixels == "RGB":
        frame = rgb = scene(frame_width, frame_height, i)
    else:
        frame = yuv_scene(frame_width, frame_height, pixels, i)
        rgb = to_rgb(frame, pixels, frame_width, frame_height)
    tensor = center_crop(rgb, side, edge)
    assert tensor.shape == (side, side, 3)
    (folder / f"{i:02}.frame").write_bytes(frame.tobytes())
    (folder / f"{i:02}.tensor").write_bytes(tensor.tobytes())
    index.append(f"{i:02} {pixels} center-crop {frame_width} {frame_height} {side} {side} {edge}\n")
(folder / "index.txt").write_text("".join(index))
