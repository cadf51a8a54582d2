# SPDX-License-Identifier: MPL-2.0
# Compares what our program finds in videos with what Ultralytics' own predict finds: from the decoder's YUV to the results.
#
#   python tests/zoo/video.py FOLDER --detect PROGRAM [--only CASE...]
#
# `detect`: the committed clip and network; once more by way of the frames that videoconvert gives in BGR, which both sides get, so
# that neither decoder nor chroma makes a difference. `fresh`: a network that is trained here for some minutes on rendered scenes, and
# clips that are rendered here, so that nothing can be fitted to them; the network is kept in FOLDER. `pose`, `segment`, `obb`,
# `classify`: the committed clips and networks of those tasks. An object is reproduced where ours has the same class and is as similar
# to it as the row asks; each object is used once, the most similar ones first.
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

# Ultralytics would look for updates, install packages by itself and write to the home directory.
os.environ.update(YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false", YOLO_VERBOSE="false")
# Threads that wait do not spin, which on a busy machine takes many times longer.
os.environ.update(OMP_WAIT_POLICY="passive")

from clips import COLUMNS, HEADINGS, TASKS, detect, files_of, judge, sides_of
from fresh import SIDE, film, train
from pictures import placement

import run_lengths  # it is in the folder of clips.py's scores

THRESHOLDS = {"conf": 0.25, "iou": 0.45}  # the defaults of trtnms
CLIPS = (("wide", 854, 470), ("tall", 480, 854), ("high", 1280, 720))  # width, height
PARTS = 4  # scenes of a clip
CPU = "--backend", "cpu"


# ---------------------------------------------------------------- both sides


def predict(network, task, frames, **more):
    """Ultralytics' objects of each frame, as our JSON lines have them; of a classifier the classes."""
    from ultralytics import YOLO

    model = YOLO(network, task=task)
    # One at a time, as they come from a video.
    results = (result for frame in frames for result in model.predict(frame, stream=True, verbose=False, device="cpu", **THRESHOLDS, **more))
    return [objects_of(result) for result in results]


def objects_of(result):
    """Ultralytics' results of a frame."""
    if result.probs is not None:
        shares = result.probs.data.numpy()
        return [{"class-id": int(best), "confidence": float(shares[best])} for best in np.argsort(-shares)]
    if result.obb is not None:
        corners = result.obb.xyxyxyxy.numpy().reshape(-1, 8)
        boxes = [(c[::2].min(), c[1::2].min(), c[::2].max(), c[1::2].max()) for c in corners]
        numbers = zip(boxes, result.obb.conf.tolist(), result.obb.cls.tolist())
        return [box_of(*own) | {"corners": c.tolist()} for own, c in zip(numbers, corners)]
    found = [box_of(row[:4], row[4], row[5]) for row in result.boxes.data.tolist()]
    if result.keypoints is not None and found:
        return [box | {"keypoints": points} for box, points in zip(found, result.keypoints.data.tolist())]
    if result.masks is not None:
        frame = result.orig_shape[::-1]
        masks = (mask_on_frame(mask, frame) for mask in result.masks.data.numpy().astype(bool))
        return [box | run_lengths.encode(mask) for box, mask in zip(found, masks) if mask.any()]
    return found


def box_of(corners, confidence, class_id):
    x0, y0, x1, y1 = map(float, corners)
    return {"class-id": int(class_id), "confidence": float(confidence), "x": x0, "y": y0, "w": x1 - x0, "h": y1 - y0}


def mask_on_frame(mask, frame):
    """A mask of the input's pixels in those of the frame: a pixel of the frame is where its middle is in the input."""
    x, y, width, height = placement(frame, mask.shape[::-1])
    columns, rows = ((np.arange(frame[i]) + 0.5) * (width, height)[i] / frame[i] + (x, y)[i] for i in range(2))
    return mask[rows.astype(int)][:, columns.astype(int)]


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


# ---------------------------------------------------------------- the cases


def task_case(task, clip, network, *similarities):
    """The committed clip and network of a task. Each similarity comes with the level of its rows and their bars: by way of the file, of BGR."""

    def case(program, folder):
        video, file = files_of(clip, network)
        width, height = (json.loads(video.with_suffix(".json").read_text())[side] for side in ("width", "height"))
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            bgr = Path(temporary) / "bgr.mkv"
            convert(video, bgr)
            ways = (
                ("file", predict(file, task, [str(video)]), detect(program, video, file, folder, *CPU)),
                ("by way of BGR", predict(file, task, raw_frames(bgr, width, height)), detect(program, bgr, file, folder, *CPU)),
            )
        for number, (way, *sides) in enumerate(ways):
            reference, ours = sides_of(task, *sides)
            for similarity, level, *bars in similarities:
                yield judge(f"{task}, {way}", reference, ours, bars[number], level, similarity)

    case.__name__ = task
    return case


def fresh(program, folder):
    """A network and clips made here. Its input is open, so both sides run the smallest rectangle for each clip."""
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
            reference += predict(network, "detect", [str(clip)], imgsz=SIDE)
            ours += detect(program, clip, network, folder, *CPU)
    yield judge("fresh network and clips", reference, ours, 90, 0.99)


CASES = (
    *(task_case(*task) for task in TASKS),
    fresh,
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--detect", required=True, metavar="PROGRAM")
    parser.add_argument("--only", nargs="+", metavar="CASE", choices=[case.__name__ for case in CASES])
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print(COLUMNS.format(*HEADINGS))
    results = [ok for case in CASES if not asked.only or case.__name__ in asked.only for ok in case(asked.detect, folder)]
    print(f"video: {sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
