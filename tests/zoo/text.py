# SPDX-License-Identifier: MPL-2.0
# Reads rendered lines of text with RapidOCR and with our elements, and compares texts and speeds. Run by text.sh.
#
#   python tests/zoo/text.py [--pictures 200] [--backend onnxruntime] [--det FILE --cls FILE --rec FILE] [--show]
#   python tests/zoo/text.py --folder FOLDER [--fit] [...]     the pictures in a folder, and their texts alone
#
# Both have the same files and settings; ours are read from RapidOCR's configuration, as docs/tasks/text.md has them. Pictures have a size
# that both detectors take as it is. Frames are in memory or in raw files, so that no decoder counts. RapidOCR's time is that of its calls;
# ours is from the results of the first frame to those of the last one.
#
# Pictures of a folder have any size. The detector has the input that RapidOCR gives it; RapidOCR stretches a picture to that, and our
# elements keep its aspect. With --fit pictures are scaled to that size before both see them.
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 1280, 736  # multiples of 32, the shorter side that RapidOCR leaves as it is
ROWS = 5  # lines of a picture
SEED = 2026
EQUAL, FASTER = 0.99, 2.0  # the bars
LONGEST = 4096  # the longer side of a detector's input
WORDS = """ability bridge camera dwell engine frame gallery harbour inlet jacket kernel ladder market number object plate quiet
river signal tensor upper vector window yellow zone North South East West Gate Exit Platform Room Open Closed Total Price Invoice""".split()
OPENCV_FONTS = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_COMPLEX, cv2.FONT_HERSHEY_TRIPLEX)


@dataclass
class Line:
    """A line that was read: left, top, right and bottom of the box around it, and the text."""

    box: tuple
    text: str


def words(chance):
    """Some words, numbers and signs, short or long."""
    def one():
        kind = chance.random()
        if kind < 0.65:
            return chance.choice(WORDS)
        if kind < 0.8:
            return f"{chance.randint(1, 99999)}"
        if kind < 0.9:
            return "".join(chance.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(2)) + f"-{chance.randint(100, 9999)}"
        return f"{chance.randint(1, 28):02}.{chance.randint(1, 12):02}.20{chance.randint(10, 29)}"

    return " ".join(one() for _ in range(chance.randint(1, 6)))


def rendered(chance, text):
    """The text as a picture of its own, dark on white, and as large as it is."""
    size = chance.randint(24, 52)
    if chance.random() < 0.3:
        font, scale, thick = chance.choice(OPENCV_FONTS), size / 30, 1 + size // 24
        (width, height), below = cv2.getTextSize(text, font, scale, thick)
        picture = np.full((height + below + 12, width + 12), 255, np.uint8)
        cv2.putText(picture, text, (6, 6 + height), font, scale, 0, thick, cv2.LINE_AA)
        return picture
    font = ImageFont.load_default(size)
    left, top, right, bottom = font.getbbox(text)
    picture = Image.new("L", (int(right - left) + 12, int(bottom - top) + 12), 255)
    ImageDraw.Draw(picture).text((6 - left, 6 - top), text, font=font, fill=0)
    return np.asarray(picture)


def picture(number):
    """A picture with some lines, a few of them turned a little or upside down, as BGR, and their texts."""
    chance = random.Random(SEED * 1000 + number)
    paper = np.array([chance.randint(190, 255) for _ in range(3)], float)
    ink = np.array([chance.randint(0, 90) for _ in range(3)], float)
    frame = np.empty((HEIGHT, WIDTH, 3), float)
    frame[:] = paper
    texts = []
    for row in range(ROWS):
        if chance.random() < 0.15:
            continue
        texts.append(words(chance))
        cover = 1 - rendered(chance, texts[-1]).astype(float) / 255
        limit = WIDTH - 60
        if cover.shape[1] > limit:
            cover = cover[:, :limit]
        if chance.random() < 0.2:
            angle = chance.uniform(-3, 3)
            height, width = cover.shape
            sine, cosine = abs(np.sin(np.radians(angle))), abs(np.cos(np.radians(angle)))
            wide, high = int(width * cosine + height * sine) + 2, int(width * sine + height * cosine) + 2
            turn = cv2.getRotationMatrix2D((width / 2, height / 2), angle, 1)
            turn[:, 2] += (wide - width) / 2, (high - height) / 2
            cover = cv2.warpAffine(cover, turn, (wide, high))
        if chance.random() < 0.1:
            cover = cover[::-1, ::-1]
        room = HEIGHT // ROWS
        cover = cover[: room - 8, : WIDTH - 20]
        height, width = cover.shape
        x, y = chance.randint(10, WIDTH - width - 10), row * room + chance.randint(4, room - height - 4)
        part = frame[y : y + height, x : x + width]
        part += (ink - part) * cover[:, :, None]
    noise = np.random.default_rng(SEED * 1000 + number).normal(0, 2, frame.shape)
    return np.clip(frame + noise, 0, 255).round().astype(np.uint8), texts


def model_files(asked):
    """Detector, classifier and reader in the package, which brings them or downloads them with its first instance."""
    import rapidocr

    folder = Path(rapidocr.__file__).parent
    given = {kind: getattr(asked, kind) for kind in ("det", "cls", "rec")}

    def find():
        all_files = sorted(folder.rglob("*.onnx"))
        return {kind: [Path(given[kind])] if given[kind] else [file for file in all_files if f"_{kind}" in file.stem] for kind in given}

    files = find()
    if not all(files.values()):
        rapidocr.RapidOCR()
        files = find()
    for kind, found in files.items():
        if len(found) != 1:
            sys.exit(f"zoo: {len(found)} files may be {kind}: {[str(file) for file in found]}. Name one by --{kind}.")
    return {kind: found[0] for kind, found in files.items()}


def engine_of(files, threads):
    """RapidOCR with these files."""
    from rapidocr import RapidOCR

    params = {f"{kind.capitalize()}.model_path": str(file) for kind, file in files.items()}
    params["EngineConfig.onnxruntime.intra_op_num_threads"] = threads
    return RapidOCR(params=params)


def detector_size(frame, det):
    """Width and height of the input that RapidOCR gives its detector for a frame."""
    if det.limit_type != "min":
        sys.exit(f"zoo: limit_type of RapidOCR is {det.limit_type!r}, and this script knows 'min' alone")
    height, width = frame.shape[:2]
    factor = max(det.limit_side_len / min(width, height), 1.0)
    return tuple(round(int(side * factor) / 32) * 32 for side in (width, height))


def left_out(frame, cfg):
    """Why a picture is not compared, if so."""
    height, width = frame.shape[:2]
    if max(width, height) > cfg.Global.max_side_len:
        return f"it is larger than {cfg.Global.max_side_len} pixels, and RapidOCR makes it smaller first"
    if height <= cfg.Global.min_height or width / height > cfg.Global.width_height_ratio:
        return "it is a line of its own, and RapidOCR pads it first"
    if max(detector_size(frame, cfg.Det)) > LONGEST:
        return f"it is so narrow that the input of the detector is longer than {LONGEST} pixels"
    return None


def pictures_of(folder, cfg, fits):
    """The pictures of a folder by their names, as BGR. What is left out is said."""
    frames = {}
    for file in sorted(file for file in folder.iterdir() if file.is_file()):
        frame = cv2.imread(str(file), cv2.IMREAD_COLOR)
        why = "it is no picture that OpenCV reads" if frame is None else left_out(frame, cfg)
        if why is None and fits:
            frame = cv2.resize(frame, detector_size(frame, cfg.Det))
            why = left_out(frame, cfg)
        if why:
            print(f"zoo: {file.name} is left out: {why}")
        else:
            frames[file.name] = frame
    return frames


def read_by_rapidocr(engine, frames):
    """The lines of each frame, and frames per second."""
    engine(frames[0])  # the first call makes ready
    lines, took = [], 0.0
    for frame in frames:
        started = time.perf_counter()
        found = engine(frame)
        took += time.perf_counter() - started
        boxes, texts = getattr(found, "boxes", None), getattr(found, "txts", None)
        pairs = [] if boxes is None or texts is None else zip(np.asarray(boxes), texts)
        lines.append([Line((*box.min(axis=0), *box.max(axis=0)), text) for box, text in pairs])
    return lines, len(frames) / took


def size(shape):
    _, height, width = shape
    return f"{width}x{height}"


def elements(files, cfg, backend, threads, frame):
    """Our part of the launch line, with RapidOCR's settings: a stage has a queue behind it, so that stages run at the same time.

    Each run has one thread then. Lines take the longest, so several batches of them run at the same time.
    """
    det, cls, rec = cfg.Det, cfg.Cls, cfg.Rec
    width, height = detector_size(frame, det)
    infer = f"backend={backend} threads=1"
    crops = "trtpreprocess regions=objects align=line min-object-size=4 max-objects=1000"
    means = ",".join(str(value) for value in det.mean)
    stds = ",".join(str(value) for value in det.std)
    dilation = "true" if det.use_dilation else "false"
    queue = "queue max-size-buffers=3 max-size-bytes=0 max-size-time=0"
    return " ! ".join(
        [
            f"trtpreprocess mean={means} std={stds}",
            f"trtinfer model-file={files['det']} input-size={width}x{height} {infer}",
            f"trtnms layout=text-detect draw=false map-threshold={det.thresh} score-threshold={det.box_thresh} "
            f"unclip-ratio={det.unclip_ratio} use-dilation={dilation} max-detections={det.max_candidates}",
            queue,
            crops,
            f"trtinfer model-file={files['cls']} input-size={size(cls.cls_image_shape)} batch-size={cls.cls_batch_num} {infer}",
            f"trtnms layout=text-orientation draw=false score-threshold={cls.cls_thresh}",
            queue,
            crops,
            f"trtinfer model-file={files['rec']} input-size={size(rec.rec_img_shape)} max-input-width=2304 "
            f"batch-size={rec.rec_batch_num} {infer} parallel-runs={threads}",
            f"trtnms draw=false score-threshold={cfg.Global.text_score}",
        ]
    )


def raw(frame):
    """The bytes of a frame in GStreamer's BGR, whose rows have a multiple of 4 bytes."""
    rows = frame.reshape(frame.shape[0], -1)
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4))).tobytes()


def read_by_us(files, frames, cfg, backend, threads, folder):
    """The lines of each frame, all of which have one size, and frames per second."""
    for number, frame in enumerate(frames):
        (folder / f"{number:04}.bgr").write_bytes(raw(frame))
    height, width = frames[0].shape[:2]
    caps = f"video/x-raw,format=BGR,width={width},height={height},framerate=30/1"
    source = f"multifilesrc location={folder}/%04d.bgr start-index=0 stop-index={len(frames) - 1} caps={caps}"
    sink = "trtpublish location=- add-empty-results=true max-queued=100000 ! fakesink sync=false"
    line = f"{source} ! {elements(files, cfg, backend, threads, frames[0])} ! {sink}"
    command = ["gst-launch-1.0", "-q", *line.split()]
    lines, first, last = [], None, None
    # What it says goes into a file: a pipe that nobody reads meanwhile is full some time, and all wait.
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        for text in process.stdout:
            last = time.perf_counter()
            first = first or last
            frame = json.loads(text)
            found = []
            for detection in frame["detections"]:
                if detection.get("attributes"):
                    box = (detection["x"], detection["y"], detection["x"] + detection["w"], detection["y"] + detection["h"])
                    found.append(Line(box, detection["attributes"][-1]["label"]))
            lines.append(found)
        process.wait()
        errors.seek(0)
        said = errors.read()
    if process.returncode != 0 or len(lines) != len(frames):
        sys.exit(f"zoo: {len(lines)} of {len(frames)} frames, status {process.returncode}: {said[-2000:]}\n{line}")
    return lines, (len(lines) - 1) / max(last - first, 1e-9)


def overlap(a, b):
    """Intersection over union."""
    across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(across, 0) * max(down, 0)
    area = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return both / max(sum(area) - both, 1e-9)


def compare(theirs, ours, names, show):
    """Lines that both have with the same text, and all lines that one of them has."""
    equal = total = 0
    for name, wanted, found in zip(names, theirs, ours):
        rest = list(found)
        for line in wanted:
            total += 1
            best = max(rest, key=lambda other: overlap(line.box, other.box), default=None)
            if best is None or overlap(line.box, best.box) < 0.5:
                other = None
            else:
                rest.remove(best)
                other = best.text
            equal += other == line.text
            if show and other != line.text:
                print(f"  {name}: RapidOCR {line.text!r}, here {other!r}")
        total += len(rest)
        if show:
            for line in rest:
                print(f"  {name}: only here {line.text!r}")
    return equal, total


def right(read, written):
    """How many lines have a text that was written there."""
    count = 0
    for lines, texts in zip(read, written):
        rest = list(texts)
        for line in lines:
            if line.text in rest:
                rest.remove(line.text)
                count += 1
    return count


def said_of(equal, total):
    """The share of equal texts, which is printed."""
    share = equal / max(total, 1)
    print(f"zoo: equal texts {equal} of {total}, {100 * share:.2f} % (at least {100 * EQUAL:.0f} %)")
    return share


def compare_folder(asked, files, engine, threads):
    """Whether enough lines of the pictures of a folder are equal. A pipeline reads each, as pictures have sizes of their own."""
    frames = pictures_of(asked.folder, engine.cfg, asked.fit)
    if not frames:
        sys.exit(f"zoo: {asked.folder} has no picture to read")
    theirs, _ = read_by_rapidocr(engine, list(frames.values()))
    ours = []
    for frame in frames.values():
        with tempfile.TemporaryDirectory() as folder:
            ours += read_by_us(files, [frame], engine.cfg, asked.backend, threads, Path(folder))[0]
    equal, total = compare(theirs, ours, frames, asked.show)
    print(f"zoo: {len(frames)} pictures of a folder, {sum(map(len, theirs))} lines by RapidOCR, {sum(map(len, ours))} here")
    return said_of(equal, total) >= EQUAL and total > 0


def compare_rendered(asked, files, engine, threads):
    """Whether enough lines of rendered pictures are equal, and we are fast enough."""
    frames, written = zip(*(picture(number) for number in range(asked.pictures)))
    theirs, their_speed = read_by_rapidocr(engine, frames)
    with tempfile.TemporaryDirectory() as folder:
        ours, our_speed = read_by_us(files, frames, engine.cfg, asked.backend, threads, Path(folder))
    equal, total = compare(theirs, ours, range(len(frames)), asked.show)
    factor = our_speed / their_speed
    print(f"zoo: {len(frames)} pictures, {sum(map(len, theirs))} lines by RapidOCR, {sum(map(len, ours))} here, on {threads} cores")
    share = said_of(equal, total)
    print(f"zoo: as it was written: RapidOCR {right(theirs, written)}, here {right(ours, written)} of {sum(map(len, written))}")
    print(f"zoo: RapidOCR {their_speed:.2f} fps, here {our_speed:.2f} fps, {factor:.2f} times (at least {FASTER:.0f})")
    return share >= EQUAL and factor >= FASTER and total > 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="read the pictures that are in it, in place of rendered ones")
    parser.add_argument("--fit", action="store_true", help="with --folder: scale pictures to the detector's input first")
    parser.add_argument("--backend", default="onnxruntime")
    parser.add_argument("--show", action="store_true", help="the lines that differ")
    for kind in ("det", "cls", "rec"):
        parser.add_argument(f"--{kind}", type=Path, metavar="FILE")
    asked = parser.parse_args()
    if asked.folder and not asked.folder.is_dir():
        parser.error(f"--folder: {asked.folder} is no folder")
    threads = len(os.sched_getaffinity(0))
    cv2.setNumThreads(threads)
    files = model_files(asked)
    engine = engine_of(files, threads)
    are_equal = (compare_folder if asked.folder else compare_rendered)(asked, files, engine, threads)
    sys.exit(0 if are_equal else 1)


if __name__ == "__main__":
    main()
