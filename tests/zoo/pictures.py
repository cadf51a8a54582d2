# SPDX-License-Identifier: MPL-2.0
# The deterministic pictures of the zoo, and Ultralytics' letterbox in OpenCV.
#
# Imported by the programs of this folder; not run by itself.
import cv2
import numpy as np

PAD = 114


def picture(width, height, seed=0):
    """An RGB picture, always the same for the same arguments: noise at several scales, with shapes on it."""
    random = np.random.default_rng((seed, width, height))
    image = np.zeros((height, width, 3), np.float32)
    for cells in (3, 9, 31):
        noise = random.random((cells, cells, 3), np.float32)
        image += cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    image = np.clip(image / 3 * 255, 0, 255).astype(np.uint8)
    for _ in range(12):
        colour = [int(c) for c in random.integers(0, 256, 3)]
        x, y = int(random.integers(0, width)), int(random.integers(0, height))
        size = int(random.integers(10, height // 3))
        if random.random() < 0.5:
            cv2.rectangle(image, (x, y), (x + size, y + size // 2), colour, -1)
        else:
            cv2.circle(image, (x, y), size // 2, colour, -1)
    return image


def save(image, folder):
    """Writes an RGB picture without loss, and returns its path."""
    path = folder / f"{image.shape[1]}x{image.shape[0]}.png"
    cv2.imwrite(str(path), cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    return path


def placement(frame, size, stretched=False):
    """Where a picture of `frame` (width, height) lies in an input of `size`: (x, y, width, height)."""
    if stretched:
        return 0, 0, *size
    ratio = min(size[0] / frame[0], size[1] / frame[1])
    width, height = round(frame[0] * ratio), round(frame[1] * ratio)
    # An odd remainder goes to the right and to the bottom.
    return round((size[0] - width) / 2 - 0.1), round((size[1] - height) / 2 - 0.1), width, height


def rectangle(frame, size, stride):
    """Ultralytics' `rect`: the smallest input (width, height) of whole strides in which a picture is as large as in `size`."""
    _, _, *scaled = placement(frame, size)
    return tuple(-(-side // stride) * stride for side in scaled)


def tensor(image, size, place):
    """The [1,3,H,W] input in 0..1: bilinear, without antialiasing, on a field of grey.

    Ultralytics rounds the resized picture to whole bytes; our element keeps the fractions, so they are kept here too. The random
    networks of the zoo would turn that half step into some thousandths of a score.
    """
    x, y, width, height = place
    canvas = np.full((size[1], size[0], 3), PAD, np.float32)
    if (width, height) != (image.shape[1], image.shape[0]):
        image = cv2.resize(image.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR)
    canvas[y : y + height, x : x + width] = image
    return np.ascontiguousarray(canvas.transpose(2, 0, 1)[None] / np.float32(255))
