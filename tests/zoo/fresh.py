# SPDX-License-Identifier: MPL-2.0
# Scenes, clips and a detector that are made for each run, so that nothing can be fitted to them.
#
# Imported by video.py; not run by itself.
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np

SIDE = 160  # of the network's input
SCENES, EPOCHS = 256, 14
NAMES = ("disc", "box", "triangle")
FRAMES = 12  # of a clip


class Scene:
    """Coloured shapes that move over a soft background; all of it follows from the seed. Sides are relative to the picture's."""

    def __init__(self, seed, width, height):
        self.random, self.size = np.random.default_rng(seed), (width, height)
        coarse = self.random.integers(40, 216, (5, 7, 3)).astype(np.uint8)
        self.background = cv2.resize(coarse, self.size, interpolation=cv2.INTER_CUBIC)
        self.shapes = []
        for cell in self.random.permutation(6)[: self.random.integers(2, 5)]:
            # One to a cell of 3x2, so that none hides another.
            centre = (cell % 3 + 0.5) / 3, (cell // 3 + 0.5) / 2
            sides = self.random.uniform(0.14, 0.3), self.random.uniform(0.2, 0.44)
            colour = [int(value) for value in self.random.permutation([255, int(self.random.integers(0, 256)), 0])]
            self.shapes.append((int(self.random.integers(len(NAMES))), centre, sides, colour, self.random.uniform(0, 6.28)))

    def frame(self, time):
        """The picture, and a row of class, centre x, centre y, width, height for each shape."""
        picture, rows = self.background.copy(), []
        width, height = self.size
        for kind, (x, y), (across, down), colour, phase in self.shapes:
            x, y = x + 0.02 * np.cos(phase + 2 * time), y + 0.03 * np.sin(phase + 3 * time)
            corners = [((x + i * across / 2) * width, (y + j * down / 2) * height) for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
            if kind == 0:
                cv2.ellipse(picture, ((x * width, y * height), (across * width, down * height), 0), colour, -1, cv2.LINE_AA)
            else:
                top = [((corners[0][0] + corners[1][0]) / 2, corners[0][1])]
                points = corners if kind == 1 else top + corners[2:]
                cv2.fillPoly(picture, [np.round(np.array(points) * 16).astype(np.int32)], colour, cv2.LINE_AA, 4)
            rows.append((kind, x, y, across, down))
        return picture, rows


def train(folder):
    """Exports a network that has seen nothing but scenes of this run."""
    from ultralytics import YOLO
    from ultralytics.models.yolo.detect import DetectionTrainer

    class Trainer(DetectionTrainer):
        def read_results_csv(self):
            """Copied into the file of weights only, and would want another package."""
            return {}

    for split, seeds in (("train", range(SCENES)), ("val", range(10**6, 10**6 + 8))):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for seed in seeds:
            width, height = ((SIDE, SIDE * 9 // 16), (SIDE * 9 // 16, SIDE))[seed % 2]
            picture, rows = Scene(seed, width, height).frame(0)
            cv2.imwrite(str(folder / f"images/{split}/{seed}.png"), picture)
            lines = [" ".join(f"{value:.6f}" if i else f"{value}" for i, value in enumerate(row)) for row in rows]
            (folder / f"labels/{split}/{seed}.txt").write_text("\n".join(lines) + "\n")
    names = "".join(f"  {i}: {name}\n" for i, name in enumerate(NAMES))
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames:\n{names}")
    settings = {
        "imgsz": SIDE, "epochs": EPOCHS, "batch": 16, "workers": 0, "seed": 3, "device": "cpu", "amp": False, "pretrained": False,
        "optimizer": "AdamW", "lr0": 0.003, "warmup_epochs": 1.0, "mosaic": 0.0, "val": False, "plots": False, "verbose": False,
    }
    model = YOLO("yolov8n.yaml", task="detect")
    model.train(trainer=Trainer, data=str(folder / "data.yaml"), project=str(folder), name="run", **settings)
    made = YOLO(folder / "run/weights/last.pt").export(format="onnx", imgsz=SIDE, dynamic=True, verbose=False)
    return Path(made)


def film(path, width, height, seed):
    """Writes a clip of one scene, as the usual encoder makes it."""
    line = (
        f"fdsrc ! rawvideoparse format=bgrx width={width} height={height} framerate=25/1 ! videoconvert ! video/x-raw,format=I420 ! "
        f"x264enc bitrate=4000 ! h264parse ! mp4mux ! filesink location={path}"
    )
    scene = Scene(seed, width, height)
    with subprocess.Popen(["gst-launch-1.0", "-q", *line.split()], stdin=subprocess.PIPE) as process:
        for number in range(FRAMES):
            # With four bytes a pixel, rows need no padding.
            process.stdin.write(cv2.cvtColor(scene.frame(number / 25)[0], cv2.COLOR_BGR2BGRA).tobytes())
    if process.returncode:
        sys.exit(f"video: {path.name} cannot be encoded")
