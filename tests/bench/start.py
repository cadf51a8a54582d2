#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""The time from the start of gst-trt to its first boxes, and next to it that of decoding alone to its first frame.

  tests/bench/start.py [PROGRAM [CLIP [MODEL [OPTION…]]]]

The defaults are target/release/gst-trt, the sample clip and model, and --backend rten of the options of gst-trt detect. An engine must be in the
cache before. Both run alternately; figures are medians. The bar is for what a user waits for: all of the time to the first boxes, by the clock: 0.30 s
with TensorRT, 0.15 s without. Decoding alone is gst-launch-1.0 with the same decoder. The processor time is that of all threads up
to then, which other programs on the machine change less than the clock.
"""

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ROUNDS = 15
BAR_S = {"cpu": 0.15, "gpu": 0.30}


def processor_time():
    """Of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_to(command, is_first):
    """Until a line of its output is the one that counts, by the clock and by the processor."""
    begun, used = time.perf_counter(), processor_time()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for line in process.stdout:
            if is_first(line):
                taken = time.perf_counter() - begun
                process.kill()
                process.wait()
                return taken, processor_time() - used
    sys.exit(f"{command[0]} ended before its first frame")


def main():
    given = sys.argv[1:]
    defaults = ["target/release/gst-trt", "tests/data/sample.mp4", "tests/models/shapes.onnx"]
    program, clip, model = (given[i] if i < len(given) else str(ROOT / default) for i, default in enumerate(defaults))
    options = given[3:] or ["--backend", "rten"]
    detect = [program, "detect", clip, "--model", model, *options, "--no-video", "--json", "-"]
    bar = BAR_S["gpu" if "tensorrt" in options else "cpu"]
    decode = ["gst-launch-1.0", "-v", "filesrc", f"location={clip}", "!", "decodebin", "!", "identity", "silent=false", "!", "fakesink"]
    boxes, frames = [], []
    for _ in range(ROUNDS):
        boxes.append(seconds_to(detect, lambda line: b'"detections"' in line))
        frames.append(seconds_to(decode, lambda line: b"chain" in line))
    boxes_after = {}
    for column, what in enumerate(("clock", "processor")):
        first, decoded = (statistics.median(run[column] for run in runs) for runs in (boxes, frames))
        boxes_after[what] = first
        print(f"by the {what}: first boxes after {first:.3f} s, a first decoded frame after {decoded:.3f} s: {first - decoded:.3f} s beyond")
    print(f"{boxes_after['clock']:.3f} s to the first boxes [bar: {bar:.2f} s by the clock]")
    sys.exit(boxes_after["clock"] > bar)


main()
