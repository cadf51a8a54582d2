# SPDX-License-Identifier: MPL-2.0
"""Gold tensors of Ultralytics' letterbox, made by OpenCV: python tests/gold/letterbox.py

Needs opencv-python-headless==5.0.0 and numpy==2.4.6. Writes, next to itself, letterbox/NAME.frame (RGB, height × width × 3
bytes; or the planes of NV12 or I420, which cv2.cvtColor turns into RGB) and letterbox/NAME.tensor (RGB, after cv2.resize
INTER_LINEAR and cv2.copyMakeBorder with 114), and letterbox/index.txt, a line for each case:
NAME format fit frame_width frame_height tensor_width tensor_height.
"""

from pathlib import Path

import cv2

from scenes import scene, yuv_scene

FROM_YUV = {"NV12": cv2.COLOR_YUV2RGB_NV12, "I420": cv2.COLOR_YUV2RGB_I420}
CASES = [  # fit, frame (w, h), tensor (w, h)
    ("letterbox", (160, 90), (64, 64)),
    ("letterbox", (37, 61), (96, 64)),
    ("letterbox", (31, 17), (96, 96)),
    ("letterbox", (90, 90), (30, 30)),
    ("letterbox", (7, 3), (33, 32)),
    ("letterbox-top-left", (101, 67), (64, 64)),
    ("letterbox-top-left", (20, 45), (72, 96)),
    ("stretch", (96, 54), (48, 27)),
    ("stretch", (83, 90), (96, 40)),
    ("stretch", (13, 11), (50, 77)),
    ("stretch", (1, 1), (5, 4)),
]
YUV_CASES = [  # the same; OpenCV wants even sizes
    ("letterbox", (160, 90), (64, 64)),
    ("letterbox", (96, 96), (96, 96)),
    ("letterbox", (48, 80), (64, 96)),
    ("letterbox-top-left", (34, 18), (72, 96)),
    ("stretch", (70, 42), (48, 27)),
    ("stretch", (2, 2), (5, 4)),
]


def letterbox(frame, fit, width, height):
    """As ultralytics.data.augment.LetterBox with auto=False, center=(fit is letterbox), scale_fill=(fit is stretch)."""
    rows, columns = frame.shape[:2]
    if fit == "stretch":
        return cv2.resize(frame, (width, height), interpolation=cv2.INTER_LINEAR)
    ratio = min(height / rows, width / columns)
    scaled = max(round(columns * ratio), 1), max(round(rows * ratio), 1)
    if (columns, rows) != scaled:
        frame = cv2.resize(frame, scaled, interpolation=cv2.INTER_LINEAR)
    across, down = width - scaled[0], height - scaled[1]
    left, top = (across // 2, down // 2) if fit == "letterbox" else (0, 0)
    border = top, down - top, left, across - left
    return cv2.copyMakeBorder(frame, *border, cv2.BORDER_CONSTANT, value=(114, 114, 114))


folder = Path(__file__).parent / "letterbox"
folder.mkdir(exist_ok=True)
index = []
cases = [("RGB", *case) for case in CASES] + [(pixels, *case) for pixels in FROM_YUV for case in YUV_CASES]
for i, (pixels, fit, (frame_width, frame_height), (width, height)) in enumerate(cases):
    if pixels == "RGB":
        frame = rgb = scene(frame_width, frame_height, i)
    else:
        frame = yuv_scene(frame_width, frame_height, pixels, i)
        rgb = cv2.cvtColor(frame, FROM_YUV[pixels])
    tensor = letterbox(rgb, fit, width, height)
    assert tensor.shape == (height, width, 3)
    (folder / f"{i:02}.frame").write_bytes(frame.tobytes())
    (folder / f"{i:02}.tensor").write_bytes(tensor.tobytes())
    index.append(f"{i:02} {pixels} {fit} {frame_width} {frame_height} {width} {height}\n")
(folder / "index.txt").write_text("".join(index))
