#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Frames per second of the whole chain on the CPU, compared with what users would write or run instead, from file to objects.

  tests/bench/peers.py [--rounds 5] [--threads 1 2] [--clip CLIP] [--venv FOLDER] [--gstreamer FOLDER] [--programs NAME,…] [--json FILE]
      [MODEL...]

  gst-trt       `gst-trt detect --no-video`, with the ONNX Runtime of the others
  int8          the same with an INT8 copy of the model by gst-trt quantize, which is compared with it
  openvino      the same with backend=openvino, in what the CPU prefers: by the package openvino, else by what tests/openvino/fetch.sh fetches
  openvino-fp32 the same with precision=fp32
  rten          the same with backend=rten, which needs nothing
  ultralytics   `YOLO(model).predict(clip, stream=True)`
  ultralytics-openvino, ultralytics-openvino-fp32
                the same with its own export for OpenVINO, in what the CPU prefers and in FP32   (of YOLO11n alone)
  opencv        VideoCapture, letterbox, ONNX Runtime, NMSBoxes
  opencv-dnn    the same with OpenCV's own networks
  gstreamer     onnxinference ! yolov8tensordec, all optimisations, in a folder with Debian sid as tests/compat.sh makes it

All, or with --programs those in addition to gst-trt, on the same cores, in turns; figures are medians over the rounds of frames for each second between the first and the last
frame's results, so that starting and loading do not count. Ratios are medians of ratios within a round.

What is missing is left out, and SKIP says what that is. The packages are those of --venv, a virtual environment; without it those that
tests/zoo/run.sh installs. `pip install openvino` there adds what has OpenVINO in its name. They run as programs of their own. Without MODEL:
YOLO11n's architecture at 640x640 with random weights, by Ultralytics' export or, without that package, by tests/bench/yolo.py; and our own
yolov8-shaped model. Programs print a line for each frame, which is counted when it arrives. --json has a line for each model and number of
threads.
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
# What each of ours must have of the frames of others. What a CPU prefers has 16 bits where it has AMX.
WITHOUT_AMX = {"ultralytics": 1.15, "opencv": 1.1, "ultralytics-openvino-fp32": 1.05}
WITH_AMX = {"ultralytics": 2.0, "opencv": 1.8, "ultralytics-openvino": 1.15}
BARS = {"gst-trt": {"ultralytics": 1.5, "opencv": 1.15, "gstreamer": 1.1}, "int8": {"gst-trt": 2.0}, "openvino-fp32": WITHOUT_AMX}
OURS = ("gst-trt", "int8", "openvino", "openvino-fp32", "rten")
# What they import.
NEEDS = {
    "ultralytics": ("ultralytics", "onnxruntime"), "opencv": ("cv2", "numpy", "onnxruntime"), "opencv-dnn": ("cv2", "numpy", "onnx"),
    "ultralytics-openvino": ("ultralytics", "openvino"), "ultralytics-openvino-fp32": ("ultralytics", "openvino"), "int8": ("onnxruntime",),
}
OFFLINE = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false"}


def skip(name, why):
    print(f"SKIP {name}: {why}", flush=True)


class Packages:
    """A virtual environment, and what is in it."""

    def __init__(self, venv):
        self.python = venv / "bin/python"
        self.site = next(iter(sorted(venv.glob("lib/python3*/site-packages"))), None)

    def has(self, *names):
        return self.site is not None and all((self.site / name).exists() for name in names)

    def missing(self, name):
        """Why a program cannot be run; None where it can."""
        lacks = [package for package in NEEDS.get(name, ()) if not self.has(package)]
        return f"{', '.join(lacks)} is not in {self.python.parent.parent}" if lacks else None

    def onnx_runtime(self):
        """The library that the Python loops import; else tests/onnxruntime/fetch.sh's, which may be another version."""
        found = sorted(self.site.glob("onnxruntime/capi/libonnxruntime.so*")) if self.site else []
        found = found or sorted((CACHE / "onnxruntime").glob("*/libonnxruntime.so*"), key=lambda path: path.parent.stat().st_mtime)
        return found[-1] if found else None

    def openvino(self):
        """The folder of its libraries."""
        return self.site / "openvino/libs" if self.has("openvino/libs") else OPENVINO if OPENVINO.is_dir() else None

    def export(self, suffix, options):
        """Ultralytics' own export of a network that was never trained, at 640x640: its path. The same random numbers, the same weights."""
        path = CACHE / "peers" / f"yolo11n-640{suffix}"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            script = f"import torch, ultralytics; torch.manual_seed(1); ultralytics.YOLO('yolo11n.yaml').export(imgsz=640, {options})"
            done = subprocess.run([self.python, "-W", "ignore", "-c", script], cwd=path.parent, env={**os.environ, **OFFLINE},
                                  capture_output=True, text=True, check=False)
            made = path.parent / f"yolo11n{suffix}"
            if done.returncode or not made.exists():
                raise OSError(f"Ultralytics' export has failed: {' '.join(done.stderr.split())[-200:]}")
            made.rename(path)
        return path

    def yolo11n(self):
        if self.has("ultralytics", "torch"):
            return self.export(".onnx", "format='onnx'")
        path = CACHE / "peers" / "yolo11n-shape-640.onnx"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            python = self.python if self.has("onnx", "numpy") else sys.executable
            command = [python, Path(__file__).with_name("yolo.py"), path, "--version", "11", "--size", "n", "--f32"]
            subprocess.run(command, check=True)
        return path


def detect(packages, backend, prepare=lambda clip, model: model, infer=""):
    """By OpenVINO only where that is the backend."""
    openvino = packages.openvino() if backend == "openvino" else "/nonexistent"
    runtime = packages.onnx_runtime()

    def command(clip, model, _):
        line = [PROGRAM, "detect", clip, "--model", prepare(clip, model), "--no-video", "--json", "-", "--backend", backend]
        return [*line, "--infer", infer], {"ORT_DYLIB_PATH": str(runtime or "/nonexistent"), "INTEL_OPENVINO_DIR": str(openvino)}

    return command, b"{"


def quantized(packages):
    """An INT8 copy, which has seen frames of the clip."""

    def prepare(clip, model):
        path = CACHE / "peers" / f"{Path(model).stem}-int8.onnx"
        if not path.exists():
            with tempfile.TemporaryDirectory() as folder:
                frames = f"filesrc location={clip} ! decodebin ! videorate ! video/x-raw,framerate=3/1 ! videoconvert ! jpegenc"
                line = f"{frames} ! multifilesink location={folder}/%03d.jpg"
                subprocess.run(["gst-launch-1.0", "--quiet", *line.split()], check=True)
                images = sorted(Path(folder).glob("*.jpg"))
                options = ["--output", path, "--python", packages.python]
                subprocess.run([PROGRAM, "quantize", model, *images, *options], check=True)
        return path

    return prepare


def loop(packages, name, prepare=lambda model: model):
    def command(clip, model, threads):
        return [packages.python, "-W", "ignore", LOOPS, name, clip, prepare(model), str(threads)], {"OMP_NUM_THREADS": str(threads)}

    return command, b"frame"


def model_info(packages, model):
    """What onnxinference wants to know of the tensors, by its own words."""
    script = (
        "import json, onnxruntime, sys; s = onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider']);"
        "print(json.dumps([s.get_inputs()[0].name, s.get_inputs()[0].shape, s.get_outputs()[0].name, s.get_outputs()[0].shape]))"
    )
    told = subprocess.run([packages.python, "-c", script, model], check=True, capture_output=True, text=True).stdout
    source, taken, output, given = json.loads(told)

    def shape(dims):
        return ",".join(str(size) for size in dims)

    return (
        "[modelinfo]\nversion=1.0\ngroup-id=yolo-v8-out\n\n"
        f"[{source}]\nid=yolo-v8-in\ntype=float32\ndims={shape(taken)}\ndir=input\nranges=0.0,1.0;0.0,1.0;0.0,1.0\n\n"
        f"[{output}]\nid=yolo-v8-out\ntype=float32\ndims={shape(given)}\ndir=output\ndims-order=col-major\n"
    )


def gstreamer(packages, folder):
    """In the folder, which has a later GStreamer than this machine."""

    def command(clip, model, _):
        lent = folder / "tmp" / "peers"
        lent.mkdir(parents=True, exist_ok=True)
        for path in (clip, model):
            shutil.copy(path, lent)
        (lent / f"{Path(model).name}.modelinfo").write_text(model_info(packages, model))
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


def processor():
    """Its name, and whether it multiplies matrices of 16 bits by itself."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name = next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "unknown")
    flags = set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())
    return name, [flag for flag in ("amx_bf16", "avx512_bf16") if flag in flags]


def compare(clip, model, threads, rounds, chains):
    measured = {name: [] for name in chains}
    for _ in range(rounds):
        for name, (command, mark) in chains.items():
            measured[name].append(frames_per_second(command(clip, model, threads), mark, threads))
    cpu, types = processor()
    bars = {**BARS, "openvino": WITH_AMX if "amx_bf16" in types else {}}
    print(f"\n{Path(model).name}, {threads} thread{'s' if threads > 1 else ''}, {cpu}{', '.join(['', *types])}")
    for name, values in measured.items():
        print(f"  {name:25} {statistics.median(values):6.1f} fps ({min(values):.1f} to {max(values):.1f})", flush=True)
    missed, ratios = 0, {}
    for ours in (name for name in OURS if name in measured):
        for theirs in (name for name in measured if name not in OURS or name == "gst-trt" != ours):
            ratio = statistics.median(mine / other for mine, other in zip(measured[ours], measured[theirs]))
            bar = bars.get(ours, {}).get(theirs)
            ratios.setdefault(ours, {})[theirs] = ratio
            missed += bool(bar) and ratio < bar
            print(f"  {ours} has {ratio:.2f} times the fps of {theirs}{f' [bar: {bar}]' if bar else ''}", flush=True)
    fps = {name: [statistics.median(values), min(values), max(values)] for name, values in measured.items()}
    row = {"row": "peers", "model": Path(model).name, "threads": threads, "rounds": rounds, "cpu": cpu, "types": types, "fps": fps, "ratios": ratios}
    return missed, row


def chains_of(packages, folder):
    """All of them, with None for those that are missing."""
    ort, openvino = packages.onnx_runtime(), packages.openvino()
    fetch = "run tests/openvino/fetch.sh, or pip install openvino in the virtual environment"
    why = {
        "gst-trt": None if ort else "there is no ONNX Runtime; run tests/onnxruntime/fetch.sh, or tests/zoo/run.sh",
        "openvino": None if openvino else fetch, "openvino-fp32": None if openvino else fetch, "gstreamer": None if folder else "--gstreamer names no folder",
    }
    chains = {
        "gst-trt": detect(packages, "onnxruntime"), "int8": detect(packages, "onnxruntime", quantized(packages)), "rten": detect(packages, "rten"),
        "openvino": detect(packages, "openvino"), "openvino-fp32": detect(packages, "openvino", infer="precision=fp32"),
        **{name: loop(packages, name) for name in ("ultralytics", "opencv", "opencv-dnn")},
        **{name: loop(packages, name, lambda _: packages.export("_openvino_model", "format='openvino'"))
           for name in ("ultralytics-openvino", "ultralytics-openvino-fp32")},
        "gstreamer": gstreamer(packages, folder),
    }
    return chains, {name: why.get(name) or packages.missing(name) for name in chains}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--clip", default=str(ROOT / "tests/data/sample.mp4"))
    parser.add_argument("--venv", type=Path, default=VENV, metavar="FOLDER")
    parser.add_argument("--gstreamer", type=Path, metavar="FOLDER")
    parser.add_argument("--programs", metavar="NAME,…")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    given = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"There is no {PROGRAM}; cargo build --release --package gst-trt")
    packages = Packages(given.venv.absolute())
    chains, lacks = chains_of(packages, given.gstreamer)
    wanted = set(given.programs.split(",")) if given.programs else set(chains)
    if unknown := wanted - set(chains):
        sys.exit(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(chains)}")
    for name in chains:
        if name in wanted and lacks[name]:
            skip(name, lacks[name])
    chains = {name: chain for name, chain in chains.items() if name in wanted | {"gst-trt"} and not lacks[name]}
    yolo11n = None if given.models else str(packages.yolo11n())
    missed, rows = 0, []
    for model in given.models or [yolo11n, str(ROOT / "tests/models/shapes-v8.onnx")]:
        of_model = dict(chains)
        for name in [name for name in chains if name.startswith("ultralytics-openvino")]:
            try:
                if model != yolo11n:
                    raise OSError("its export is of YOLO11n")
                packages.export("_openvino_model", "format='openvino'")
            except OSError as failure:
                skip(f"{name}, {Path(model).name}", failure)
                of_model.pop(name)
        for threads in given.threads:
            found, row = compare(given.clip, model, threads, given.rounds, of_model)
            missed += found
            rows.append(row)
    if given.json:
        given.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sys.exit(bool(missed))


main()
