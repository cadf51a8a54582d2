#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Frames per second of the whole chain on the CPU, compared with what users would write or run instead, from file to objects.

  tests/bench/peers.py [--rounds 5] [--threads 1 2] [--clip CLIP] [--gstreamer FOLDER] [--programs NAME,…] [MODEL...]

  gst-trt       `gst-trt detect --no-video`, with the ONNX Runtime of the others
  int8          the same with an INT8 copy of the model by gst-trt quantize, which is compared with it
  openvino      the same with backend=openvino, in what the CPU prefers; left out where tests/openvino/fetch.sh has not been run
  openvino-fp32 the same with precision=fp32
  rten          the same with backend=rten, which needs nothing
  ultralytics   `YOLO(model).predict(clip, stream=True)`
  opencv        VideoCapture, letterbox, ONNX Runtime, NMSBoxes
  opencv-dnn    the same with OpenCV's own networks
  gstreamer     onnxinference ! yolov8tensordec, all optimisations, in a folder with Debian sid as tests/compat.sh makes it;
                left out without --gstreamer

All, or with --programs those in addition to gst-trt, on the same cores, in turns; figures are medians over the rounds of frames for each second between the first and the last
frame's results, so that starting and loading do not count. Ratios are medians of ratios within a round.

The packages are those of tests/zoo/run.sh, which must have been run. Without MODEL: YOLO11n's architecture at 640x640 with random
weights, and our own yolov8-shaped model. Programs print a line for each frame, which is counted when it arrives.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gst-plugin-trt"
VENV = CACHE / "zoo" / "venv"
PROGRAM = ROOT / "target" / "release" / "gst-trt"
OPENVINO = CACHE / "openvino" / "openvino-2026.4.0"
LOOPS = Path(__file__).with_name("peers") / "loops.py"
BARS = {"ultralytics": 1.5, "opencv": 1.15, "gstreamer": 1.1}
OURS = {"int8": 2.0, "openvino": None, "openvino-fp32": None}  # against FP32 by ONNX Runtime


def random_yolo11n():
    """Ultralytics' own export of a network that was never trained, at 640x640."""
    path = CACHE / "peers" / "yolo11n-640.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        script = "import torch, ultralytics; torch.manual_seed(1); ultralytics.YOLO('yolo11n.yaml').export(format='onnx', imgsz=640)"
        environment = {**os.environ, "YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false"}
        subprocess.run([VENV / "bin/python", "-W", "ignore", "-c", script], check=True, cwd=path.parent, env=environment)
        (path.parent / "yolo11n.onnx").rename(path)
    return path


def onnx_runtime():
    """The library of the package that the Python loops import."""
    found = sorted(VENV.glob("lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so*"))
    return found[0] if found else sys.exit(f"there is no ONNX Runtime in {VENV}; run tests/zoo/run.sh first")


def detect(backend, prepare=lambda clip, model: model, infer=""):
    """By OpenVINO only where that is the backend."""
    openvino = OPENVINO if backend == "openvino" else "/nonexistent"

    def command(clip, model, _):
        line = [PROGRAM, "detect", clip, "--model", prepare(clip, model), "--no-video", "--json", "-", "--backend", backend]
        return [*line, "--infer", infer], {"ORT_DYLIB_PATH": str(onnx_runtime()), "INTEL_OPENVINO_DIR": str(openvino)}

    return command, b"{"


def quantized(clip, model):
    """An INT8 copy, which has seen frames of the clip."""
    path = CACHE / "peers" / f"{Path(model).stem}-int8.onnx"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            frames = f"filesrc location={clip} ! decodebin ! videorate ! video/x-raw,framerate=3/1 ! videoconvert ! jpegenc"
            line = f"{frames} ! multifilesink location={folder}/%03d.jpg"
            subprocess.run(["gst-launch-1.0", "--quiet", *line.split()], check=True)
            images = sorted(Path(folder).glob("*.jpg"))
            options = ["--output", path, "--python", VENV / "bin/python"]
            subprocess.run([PROGRAM, "quantize", model, *images, *options], check=True)
    return path


def loop(name):
    def command(clip, model, threads):
        return [VENV / "bin/python", "-W", "ignore", LOOPS, name, clip, model, str(threads)], {"OMP_NUM_THREADS": str(threads)}

    return command, b"frame"


def model_info(model):
    """What onnxinference wants to know of the tensors, by its own words."""
    script = (
        "import json, onnxruntime, sys; s = onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider']);"
        "print(json.dumps([s.get_inputs()[0].name, s.get_inputs()[0].shape, s.get_outputs()[0].name, s.get_outputs()[0].shape]))"
    )
    told = subprocess.run([VENV / "bin/python", "-c", script, model], check=True, capture_output=True, text=True).stdout
    source, taken, output, given = json.loads(told)

    def shape(dims):
        return ",".join(str(size) for size in dims)

    return (
        "[modelinfo]\nversion=1.0\ngroup-id=yolo-v8-out\n\n"
        f"[{source}]\nid=yolo-v8-in\ntype=float32\ndims={shape(taken)}\ndir=input\nranges=0.0,1.0;0.0,1.0;0.0,1.0\n\n"
        f"[{output}]\nid=yolo-v8-out\ntype=float32\ndims={shape(given)}\ndir=output\ndims-order=col-major\n"
    )


def gstreamer(folder):
    """In the folder, which has a later GStreamer than this machine."""

    def command(clip, model, _):
        lent = folder / "tmp" / "peers"
        lent.mkdir(parents=True, exist_ok=True)
        for path in (clip, model):
            shutil.copy(path, lent)
        (lent / f"{Path(model).name}.modelinfo").write_text(model_info(model))
        labels = lent / "labels.txt"
        labels.write_text("".join(f"class {index}\n" for index in range(80)))
        line = (
            f"filesrc location=/tmp/peers/{Path(clip).name} ! decodebin ! videoconvertscale ! video/x-raw,pixel-aspect-ratio=1/1 "
            f"! onnxinference model-file=/tmp/peers/{Path(model).name} optimization-level=enable-all "
            "! yolov8tensordec label-file=/tmp/peers/labels.txt class-confidence-threshold=0.25 box-confidence-threshold=0 "
            "iou-threshold=0.45 max-detections=300 ! identity silent=false ! fakesink"
        )
        return ["chroot", folder, "gst-launch-1.0", "-v", *line.split()], {}

    return command, b"chain"


def frames_per_second(command, mark, cores):
    """From the first to the last line with the mark."""
    arguments, environment = command
    arguments = ["taskset", "--cpu-list", ",".join(map(str, range(cores))), *map(str, arguments)]
    times = []
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **environment}
    ) as process:
        for line in process.stdout:
            if mark in line:
                times.append(time.perf_counter())
    if process.returncode or len(times) < 10:
        sys.exit(f"{arguments[3]} ended with {process.returncode} after {len(times)} frames: {' '.join(arguments)}")
    return (len(times) - 1) / (times[-1] - times[0])


def compare(clip, model, threads, rounds, chains):
    measured = {name: [] for name in chains}
    for _ in range(rounds):
        for name, (command, mark) in chains.items():
            measured[name].append(frames_per_second(command(clip, model, threads), mark, threads))
    print(f"\n{Path(model).name}, {threads} thread{'s' if threads > 1 else ''}")
    missed = 0
    for name, values in measured.items():
        ratio = statistics.median(ours / theirs for ours, theirs in zip(measured["gst-trt"], values))
        bar = BARS.get(name)
        shown = f"  gst-trt has {ratio:.2f} times its fps" if name != "gst-trt" else ""
        if name in OURS:
            ratio, bar = 1 / ratio, OURS[name]
            shown = f"  {ratio:.2f} times the fps of gst-trt"
        missed += bool(bar) and ratio < bar
        shown += f" [bar: {bar}]" if bar else ""
        print(f"  {name:12} {statistics.median(values):6.1f} fps ({min(values):.1f} to {max(values):.1f}){shown}", flush=True)
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--clip", default=str(ROOT / "tests/data/sample.mp4"))
    parser.add_argument("--gstreamer", type=Path, metavar="FOLDER")
    parser.add_argument("--programs", metavar="NAME,…")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    given = parser.parse_args()
    chains = {"gst-trt": detect("auto"), "int8": detect("auto", quantized), "rten": detect("rten")}
    if OPENVINO.is_dir():
        chains["openvino"] = detect("openvino")
        chains["openvino-fp32"] = detect("openvino", infer="precision=fp32")
    chains |= {name: loop(name) for name in ("ultralytics", "opencv", "opencv-dnn")}
    if given.gstreamer:
        chains["gstreamer"] = gstreamer(given.gstreamer)
    if given.programs:
        wanted = given.programs.split(",")
        if unknown := set(wanted) - set(chains):
            sys.exit(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(chains)}")
        chains = {name: chain for name, chain in chains.items() if name in ("gst-trt", *wanted)}
    models = given.models or [str(random_yolo11n()), str(ROOT / "tests/models/shapes-v8.onnx")]
    missed = sum(
        compare(given.clip, model, threads, given.rounds, chains) for model in models for threads in given.threads
    )
    sys.exit(bool(missed))


main()
