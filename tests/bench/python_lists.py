#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""What Detector of the Python package makes of lists of images, next to the engine alone.

  tests/bench/python_lists.py program=gst-trt library=libgsttrt-1.so.0 model=yolov8s.onnx [batch=16] [lists=1,16,1000] [kinds=numpy,cuda]
      [side=640] [objects=20] [infer="precision=fp16 engine-cache=…"] [backend=tensorrt] [duration=3] [seconds=3] [repeats=3]
      [ultralytics=torch,tensorrt] [name=yolov8s] [folder=FOLDER] [json=FILE]

First gst-trt bench tells what the engine gives in batches of that size with nothing around it; it builds the engine if need be. Then
detector(list) runs with lists of so many images: arrays of NumPy, and tensors of PyTorch on the GPU. The boxes of each result are read. The
score threshold is such that an image has about `objects` of them, as random weights know nothing. An image must have the same boxes in each list.

Where the package ultralytics is installed, its predict runs on lists of `batch` arrays with a network of that name and random weights, in 16
bits: by PyTorch, and by TensorRT where Python has that. With those it finds next to nothing, which is in its favour.

A line for each list; medians of the repeats. Needs NumPy, and for the GPU PyTorch.
"""

import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import time

from arguments import options_of
from most_sources import engine_alone

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
DEFAULTS = {
    "program": "gst-trt", "library": "", "model": "", "batch": "16", "lists": "1,16,1000", "kinds": "numpy,cuda", "side": "640", "objects": "20", "infer": "",
    "backend": "tensorrt", "duration": "3", "seconds": "3", "repeats": "3", "ultralytics": "torch,tensorrt", "name": "yolov8s", "folder": "", "json": "",
}
# Different images; longer lists have them several times.
IMAGES = 64


def is_here(package):
    return importlib.util.find_spec(package) is not None


def detector_of(options, **more):
    import gsttrt

    words = dict(word.partition("=")[::2] for word in options["infer"].split())
    given = {name.replace("-", "_"): value for name, value in words.items()}
    return gsttrt.Detector(options["model"], backend=options["backend"], batch_size=int(options["batch"]), **{**given, **more})


def threshold_for(options, images):
    """With which an image has about so many objects."""
    wanted = int(options["objects"])
    with detector_of(options, score_threshold=0.001, iou_threshold=0.45) as detector:
        scores = sorted(float(result.confidence[min(wanted, len(result)) - 1]) for result in detector(images[:8]) if len(result))
    return scores[len(scores) // 2] if scores else 0.25


def pictures(side):
    """Patches of random colours with a little noise."""
    import numpy

    random = numpy.random.default_rng(1)
    coarse = random.integers(0, 256, (IMAGES, 16, 16, 3), numpy.uint8)
    large = coarse.repeat(-(-side // 16), axis=1).repeat(-(-side // 16), axis=2)[:, :side, :side]
    return list(numpy.ascontiguousarray(large ^ random.integers(0, 16, large.shape, numpy.uint8)))


def times(work, options):
    """How long it takes: the median of the repeats."""
    for _ in range(2):
        work()
    found = []
    for _ in range(int(options["repeats"])):
        runs, begun = 0, time.perf_counter()
        while not runs or time.perf_counter() < begun + float(options["seconds"]):
            work()
            runs += 1
        found.append((time.perf_counter() - begun) / runs)
    return sorted(found)[len(found) // 2]


def is_same(one, other):
    """Whether results are those of the same image: in other batches numbers may differ in their last digits."""
    import numpy

    return abs(len(one) - len(other)) <= 1 + len(one) // 10 and all(
        numpy.abs(other.xyxy - box).max(axis=1).min(initial=numpy.inf) < 2 for box in one.xyxy[: min(len(one), len(other)) // 2]
    )


def ours(options, engine):
    given = pictures(int(options["side"]))
    threshold = threshold_for(options, given)
    rows = []
    with detector_of(options, score_threshold=threshold, iou_threshold=0.45) as detector:
        known = [detector(image) for image in given]
        for kind in options["kinds"].split(","):
            images = given
            if kind == "cuda":
                import torch

                images = [torch.from_numpy(image).cuda() for image in given]
                torch.cuda.synchronize()
            for count in map(int, options["lists"].split(",")):
                some = [images[index % len(images)] for index in range(count)]
                results = detector(some)
                wrong = [index for index, result in enumerate(results) if not is_same(known[index % len(known)], result)]
                # Of boxes with nearly the same score another one may be kept in another batch.
                if len(results) != count or len(wrong) > max(1, count // 10):
                    sys.exit(f"A list of {count}, {kind}: {len(results)} results, those of {wrong[:9]} are others than of the images alone.")

                def work():
                    for result in detector(some):
                        result.xyxy, result.confidence, result.class_id

                fps = count / times(work, options)
                row = {"row": "python", "model": options["model"], "backend": detector.backend, "batch": detector.batch_size, "kind": kind, "list": count,
                       "objects": sum(map(len, results)) / count, "side": int(options["side"]), "fps": fps, "engine_fps": engine, "of_engine": fps / engine}
                print(f"{kind:>6}, lists of {count:>4}: {fps:.0f} images/s, {row['of_engine']:.2f} of the engine; {row['objects']:.1f} objects each", flush=True)
                rows.append(row)
    return rows


def theirs(options, folder):
    """Ultralytics' predict."""
    if not is_here("ultralytics"):
        print("The package ultralytics is not installed, so it is left out.", flush=True)
        return []
    import torch
    import ultralytics

    batch, device, rows = int(options["batch"]), 0 if torch.cuda.is_available() else "cpu", []
    images = pictures(int(options["side"]))[:batch]
    for way in filter(None, options["ultralytics"].split(",")):
        if way == "tensorrt" and not (is_here("tensorrt") and device == 0):
            print("Python has no TensorRT, so Ultralytics runs by PyTorch only.", flush=True)
            continue
        model = ultralytics.YOLO(f"{options['name']}.yaml")
        if way == "tensorrt":
            os.chdir(folder)  # where it writes its files
            model = ultralytics.YOLO(model.export(format="engine", half=True, batch=batch, imgsz=640, device=device, verbose=False), task="detect")
        predict = {"imgsz": 640, "batch": batch, "half": device == 0, "device": device, "conf": 0.25, "iou": 0.45, "verbose": False}
        fps = batch / times(lambda: model.predict(images, **predict), options)
        rows.append({"row": "python_ultralytics", "model": options["name"], "way": way, "batch": batch, "fps": fps, "ultralytics": ultralytics.__version__,
                     "torch": torch.__version__})
        print(f"Ultralytics by {way}, lists of {batch:>4}: {fps:.0f} images/s", flush=True)
    return rows


def main():
    options = options_of(DEFAULTS, __doc__)
    folder = pathlib.Path(options["folder"] or tempfile.mkdtemp(prefix="python-lists-"))
    folder.mkdir(parents=True, exist_ok=True)
    json_file = pathlib.Path(options["json"]).absolute() if options["json"] else None
    if options["library"]:
        os.environ["GSTTRT_LIBRARY"] = options["library"]
        sys.path.insert(0, str(PACKAGE))
    if not is_here("torch"):
        print("Python has no PyTorch, so there are no tensors on the GPU.", flush=True)
        options["kinds"] = "numpy"
    engine, run_ms = engine_alone(options)
    print(f"The engine alone: {engine:.0f} images/s, {run_ms:.2f} ms a run of {options['batch']}", flush=True)
    rows = ours(options, engine) + theirs(options, folder)
    if json_file:
        json_file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
