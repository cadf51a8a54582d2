#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""What Ultralytics' predict does of a network of theirs with random weights, as its users call it.

    ultralytics_chain.py NAME [--frames FILE] [--width 1920] [--height 1080] [--batch 16] [--seconds 4] [--repeats 3] [--device 0]

NAME is one of a network's description in the package, such as yolo11n. Frames are those of a file, one dense NV12 frame after
the other, or else noise. In its favour they are BGR in host memory before its time begins, where predict wants them, so nothing
is decoded. Weights are f16 on a GPU. With random weights it finds next to nothing, so suppression takes it no time.

Prints one line of JSON: medians of the repeats. Needs the packages ultralytics and opencv-python-headless.
"""

import argparse
import json
import sys
import time

import cv2
import numpy as np
import torch
import ultralytics


def frames_of(options):
    height, width = options.height, options.width
    if options.frames:
        frames = np.fromfile(options.frames, np.uint8).reshape(-1, height * 3 // 2, width)
        frames = [cv2.cvtColor(frame, cv2.COLOR_YUV2BGR_NV12) for frame in frames]
    else:
        frames = list(np.random.default_rng(1).integers(0, 256, (4, height, width, 3), np.uint8))
    return [frames[i % len(frames)] for i in range(options.batch)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--frames")
    parser.add_argument("--width", type=int, default=1920)
    parser.add_argument("--height", type=int, default=1080)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="0")
    options = parser.parse_args()

    model = ultralytics.YOLO(f"{options.name}.yaml")
    frames = frames_of(options)
    is_half = options.device != "cpu"

    def step():
        model.predict(frames, imgsz=640, batch=options.batch, half=is_half, device=options.device, conf=0.25, iou=0.45, verbose=False)

    for _ in range(3):
        step()
    figures = []
    for _ in range(options.repeats):
        count, begun = 0, time.perf_counter()
        while time.perf_counter() < begun + options.seconds:
            step()
            count += options.batch
        figures.append(count / (time.perf_counter() - begun))
    print(json.dumps({"row": "ultralytics", "model": options.name, "device": options.device, "ultralytics": ultralytics.__version__,
                      "torch": torch.__version__, "batch": options.batch, "fps": float(np.median(figures))}))


if __name__ == "__main__":
    sys.exit(main())
