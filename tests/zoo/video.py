# Compares the boxes of our program with those of Ultralytics' own predict, on videos: from the decoder's YUV to the boxes.
#
#   python tests/zoo/video.py FOLDER --detect PROGRAM [--only sample|fresh]
#
# `sample`: the committed clip and network; once more by way of the frames that videoconvert gives in BGR, which both sides get, so
# that neither decoder nor chroma makes a difference. `fresh`: a network that is trained here for some minutes on rendered scenes, and
# clips that are rendered here, so that nothing can be fitted to them; they, and the network, are kept in FOLDER. A box is
# reproduced where ours has the same class and overlaps it by the IoU of the row; each box is used once, the best overlaps first.
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

from compare import overlaps

TESTS = Path(__file__).resolve().parent.parent
SAMPLE = TESTS / "data/sample.mp4"
THRESHOLDS = {"conf": 0.25, "iou": 0.45}  # the defaults of trtnms
SIDE = 192  # of the fresh network's input
SCENES, EPOCHS = 320, 16
CLIPS = {"wide": (854, 480, 31), "tall": (480, 854, 32), "hd": (1280, 720, 33)}  # width, height, seed
FRAMES = 40


def predict(model, frames):
    """Ultralytics' boxes of each frame: rows of x1, y1, x2, y2, score, class."""
    # One at a time, as they come from a video.
    results = (result for frame in frames for result in model.predict(frame, stream=True, verbose=False, device="cpu", **THRESHOLDS))
    return [result.boxes.data.numpy() for result in results]


def detect(program, video, model, folder, *options):
    """The same of our program."""
    answer = folder / f"{Path(video).stem}-{Path(model).stem}.jsonl"
    command = [program, video, model, "--backend", "cpu", "--no-video", "--json", answer, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    frames = []
    for line in answer.read_text().splitlines():
        boxes = [
            (box["x"], box["y"], box["x"] + box["w"], box["y"] + box["h"], box["confidence"], box["class_id"])
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


def train(folder):
    """A network that saw nothing but scenes of this run, exported with a fixed and with a dynamic input."""
    import cv2
    from ultralytics import YOLO
    from ultralytics.models.yolo.detect import DetectionTrainer

    sys.path.insert(0, str(TESTS / "models"))
    import scenes

    for split, count in (("train", SCENES), ("val", 16)):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        for number in range(count):
            image, boxes = scenes.training_sample([7, len(split), number])
            image = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
            cv2.imwrite(str(folder / f"images/{split}/{number}.png"), cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
            seen = [box for box in boxes if box[0] and not box[1]]
            lines = [f"{int(box[2])} " + " ".join(f"{v / scenes.NET:.6f}" for v in box[3:]) + "\n" for box in seen]
            (folder / f"labels/{split}/{number}.txt").write_text("".join(lines))
    names = "".join(f"  {i}: {name}\n" for i, name in enumerate(scenes.CLASSES))
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames:\n{names}")
    class Trainer(DetectionTrainer):
        def read_results_csv(self):
            """Copied into the file of weights only, and would want another package."""
            return {}

    model = YOLO("yolov8n.yaml", task="detect")
    model.train(
        trainer=Trainer,
        data=str(folder / "data.yaml"), imgsz=SIDE, epochs=EPOCHS, batch=16, device="cpu", workers=2, seed=3, deterministic=True,
        val=False, plots=False, verbose=False, pretrained=False, amp=False, project=str(folder), name="run", exist_ok=True,
        optimizer="AdamW", lr0=0.002, mosaic=0.0, warmup_epochs=1.0,
    )
    trained = YOLO(folder / "run/weights/last.pt")
    for name, dynamic in (("fresh", False), ("fresh-dynamic", True)):
        made = Path(trained.export(format="onnx", imgsz=SIDE, dynamic=dynamic, simplify=True, verbose=False))
        made.rename(folder / f"{name}.onnx")


def fresh(program, folder):
    """A network and clips made here."""
    from ultralytics import YOLO

    started = time.monotonic()
    network = folder / "fresh.onnx"
    if not network.exists():
        train(folder)
        print(f"video: trained in {time.monotonic() - started:.0f} s", flush=True)
    for name, (width, height, seed) in CLIPS.items():
        clip = folder / f"{name}.mp4"
        if not clip.exists():
            size = ["--width", str(width), "--height", str(height), "--frames", str(FRAMES), "--seed", str(seed)]
            script = [sys.executable, TESTS / "data/render.py", *size, "--out", clip, "--truth", folder / f"{name}.json"]
            subprocess.run(script, check=True, stdout=subprocess.DEVNULL)
        yield judge(f"fresh, {name}", predict(YOLO(network, task="detect"), [str(clip)]), detect(program, clip, network, folder), 90)


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
