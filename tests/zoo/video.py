# SPDX-License-Identifier: MPL-2.0
# Compares the boxes of our program with those of Ultralytics' own predict, on videos: from the decoder's YUV to the boxes.
#
#   python tests/zoo/video.py FOLDER --detect PROGRAM [--only sample|fresh]
#
# `sample`: the committed clip and network; once more by way of the frames that videoconvert gives in BGR, which both sides get, so
# that neither decoder nor chroma makes a difference. `fresh`: a network that is trained here for some minutes on rendered scenes, and
# clips that are rendered here, so that nothing can be fitted to them; the network is kept in FOLDER. A box is
# reproduced where ours has the same class and overlaps it by the IoU of the row; each box is used once, the best overlaps first.
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np

# Ultralytics would look for updates, install packages by itself and write to the home directory.
os.environ.update(YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false", YOLO_VERBOSE="false")
# Threads that wait do not spin, which on a busy machine takes many times longer.
os.environ.update(OMP_WAIT_POLICY="passive")

from compare import overlaps

TESTS = Path(__file__).resolve().parent.parent
SAMPLE = TESTS / "data/sample.mp4"
THRESHOLDS = {"conf": 0.25, "iou": 0.45}  # the defaults of trtnms
SIDE = 160  # of the fresh network's input
SCENES, EPOCHS = 256, 14
NAMES = ("disc", "box", "triangle")
CLIPS = (("wide", 854, 470), ("tall", 480, 854), ("high", 1280, 720))  # width, height
PARTS, FRAMES = 4, 12  # scenes of a clip, and their frames


def predict(model, frames, **more):
    """Ultralytics' boxes of each frame: rows of x1, y1, x2, y2, score, class."""
    # One at a time, as they come from a video.
    results = (result for frame in frames for result in model.predict(frame, stream=True, verbose=False, device="cpu", **THRESHOLDS, **more))
    return [result.boxes.data.numpy() for result in results]


def detect(program, video, model, folder, *options):
    """The same of our program."""
    answer = folder / f"{Path(video).stem}-{Path(model).stem}.jsonl"
    command = [program, video, model, "--backend", "cpu", "--no-video", "--json", answer, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    frames = []
    for line in answer.read_text().splitlines():
        boxes = [
            (box["x"], box["y"], box["x"] + box["w"], box["y"] + box["h"], box["confidence"], box["class-id"])
            for box in json.loads(line)["detections"]
        ]
        frames.append(np.array(boxes, np.float64).reshape(-1, 6))
    return frames


def convert(video, to):
    """Writes the frames as GStreamer decodes them and videoconvert converts them to BGR."""
    line = f"filesrc location={video} ! decodebin ! videoconvert ! video/x-raw,format=BGR ! matroskamux ! filesink location={to}"
    subprocess.run(["gst-launch-1.0", "-q", *line.split()], check=True)


def raw_frames(video, width, height):
    """The frames of such a file. Their rows have a multiple of 4 bytes."""
    command = ["gst-launch-1.0", "-q", *f"filesrc location={video} ! matroskademux ! fdsink".split()]
    size = width * height * 3
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        while len(data := process.stdout.read(size)) == size:
            yield np.frombuffer(data, np.uint8).reshape(height, width, 3)


def reproduced(reference, ours, least=0.5):
    """The overlap of each reference box with the box of ours that it is paired with; 0 where there is none."""
    if len(reference) != len(ours):
        sys.exit(f"video: Ultralytics has {len(reference)} frames, we have {len(ours)}")
    best = []
    for wanted, found in zip(reference, ours):
        pairs = []
        for i, box in enumerate(wanted):
            same = found[:, 5] == box[5]
            iou = overlaps(box[:4], found[:, :4]) if len(found) else np.zeros(0)
            pairs += [(-iou[j], i, j) for j in np.nonzero(same & (iou >= least))[0]]
        taken, used, overlap = set(), set(), np.zeros(len(wanted))
        for negative, i, j in sorted(pairs):
            if i not in taken and j not in used:
                taken.add(i)
                used.add(j)
                overlap[i] = -negative
        best.append(overlap)
    return np.concatenate(best)


HEADINGS = ("case", "reference", "ours", ">= 0.5", ">= 0.9", ">= 0.95", ">= 0.99", "bar", "")
COLUMNS = "{:34} {:>9} {:>6} {:>7} {:>7} {:>7} {:>7} {:>5}  {}"


def judge(name, reference, ours, bar):
    """One line of the table; whether enough boxes are reproduced at 0.99."""
    best = reproduced(reference, ours)
    shares = [100 * float((best >= level).mean()) for level in (0.5, 0.9, 0.95, 0.99)]
    ok = len(best) > 100 and shares[-1] >= bar
    count = sum(len(boxes) for boxes in ours)
    print(COLUMNS.format(name, len(best), count, *(f"{share:.2f}" for share in shares), bar, "ok" if ok else "FAILED"), flush=True)
    return ok


def sample(program, folder):
    """The committed clip and network."""
    from ultralytics import YOLO

    file = TESTS / "models/shapes-v8.onnx"
    model = YOLO(file, task="detect")
    ours = detect(program, SAMPLE, file, folder)
    yield judge("sample, file", predict(model, [str(SAMPLE)]), ours, 97)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        bgr = Path(temporary) / "bgr.mkv"
        convert(SAMPLE, bgr)
        yield judge("sample, by way of BGR", predict(model, raw_frames(bgr, 640, 360)), detect(program, bgr, file, folder), 99)


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


def fresh(program, folder):
    """A network and clips made here. Its input is open, so both sides run the smallest rectangle for each clip."""
    from ultralytics import YOLO

    network = folder / "fresh.onnx"
    if not network.exists():
        started = time.monotonic()
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            train(Path(temporary)).rename(network)
        print(f"video: trained in {time.monotonic() - started:.0f} s", flush=True)
    reference, ours = [], []
    for number, (name, width, height) in enumerate(CLIPS):
        clip = folder / f"{name}.mp4"
        for part in range(PARTS):
            film(clip, width, height, [77, number, part])
            # Without its own imgsz Ultralytics runs open inputs at 640, for any file.
            reference += predict(YOLO(network, task="detect"), [str(clip)], imgsz=SIDE)
            ours += detect(program, clip, network, folder)
    yield judge("fresh network and clips", reference, ours, 90)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--detect", required=True, metavar="PROGRAM")
    parser.add_argument("--only", choices=("sample", "fresh"))
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print(COLUMNS.format(*HEADINGS))
    cases = [case for case in (sample, fresh) if asked.only in (None, case.__name__)]
    results = [ok for case in cases for ok in case(asked.detect, folder)]
    print(f"video: {sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
