#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""The time from the start of gst-trt to its first boxes, beside that of decoding alone to its first frame.

  tests/bench/start.py [PROGRAM [CLIP [MODEL]]]     default: target/release/gst-trt, the sample clip and model

Both run alternately; figures are medians. Decoding alone is gst-launch-1.0 with the same decoder.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ROUNDS = 15
BAR_S = 0.5


def seconds_to(command, is_first):
    """Until a line of its output is the one that counts."""
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for line in process.stdout:
            if is_first(line):
                taken = time.perf_counter() - begun
                process.kill()
                return taken
    sys.exit(f"{command[0]} ended before its first frame")


def main():
    given = sys.argv[1:]
    defaults = ["target/release/gst-trt", "tests/data/sample.mp4", "tests/models/shapes.onnx"]
    program, clip, model = (given[i] if i < len(given) else str(ROOT / default) for i, default in enumerate(defaults))
    detect = [program, "detect", clip, "--model", model, "--backend", "cpu", "--no-video", "--json", "-"]
    decode = ["gst-launch-1.0", "-v", "filesrc", f"location={clip}", "!", "decodebin", "!", "identity", "silent=false", "!", "fakesink"]
    boxes, frames = [], []
    for _ in range(ROUNDS):
        boxes.append(seconds_to(detect, lambda line: b'"detections"' in line))
        frames.append(seconds_to(decode, lambda line: b"chain" in line))
    boxes, frames = statistics.median(boxes), statistics.median(frames)
    print(f"first boxes after {boxes:.3f} s, a first decoded frame after {frames:.3f} s: {boxes - frames:.3f} s beyond  [bar: {BAR_S} s]")
    sys.exit(boxes - frames > BAR_S)


main()
