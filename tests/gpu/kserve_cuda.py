#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""A model on a server of another process, with tensors that stay on the GPU: tests/gpu/kserve_cuda.py KEY=VALUE…

The server is a test program of the core, which computes with TensorRT. gst-trt finds the same boxes by it as without a server, with
shared memory of the GPU and of the host, one request at a time and several; fps of each are printed.

  program   a script that runs gst-trt
  server    a script that runs the test program of the core
  clip      a video
  model     an ONNX file
  infer     properties of trtinfer for TensorRT
  folder    for what is made here"""
import json
import os
import pathlib
import subprocess
import sys

READY = "The server is at "
# What is added for each way, the first of which all others are compared with.
WAYS = {
    "TensorRT": None,
    "cuda": "shared-memory=cuda parallel-runs=1",
    "cuda, 4 requests": "shared-memory=cuda parallel-runs=4",
    "on": "shared-memory=on parallel-runs=1",
    "on, 4 requests": "shared-memory=on parallel-runs=4",
    "off": "shared-memory=off parallel-runs=1",
}

given = dict(word.split("=", 1) for word in sys.argv[1:])
folder = pathlib.Path(given["folder"])
folder.mkdir(parents=True, exist_ok=True)


def serve():
    """The server, and its address."""
    environment = dict(os.environ, KSERVE_MODEL=given["model"], TRT_PROPERTIES=given["infer"])
    command = [given["server"], "--exact", "kserve_gpu::serve", "--nocapture"]
    server = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    said = []
    for line in server.stdout:
        if line.startswith(READY):
            return server, line[len(READY):].strip()
        said.append(line)
    raise SystemExit(f"The server has ended: {''.join(said)[-2000:]}")


def detect(name, model, backend, infer):
    """Boxes of a clip, in a file, and frames a second of the program's chain."""
    boxes = folder / f"{name.replace(' ', '-').replace(',', '')}.jsonl"
    command = [given["program"], "detect", given["clip"], "--model", model, "--backend", backend, "--no-video", "--json", str(boxes),
               "--infer", infer]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {(done.stdout + done.stderr)[-2000:]}")
    fps = [line.split()[-1] for line in (done.stdout + done.stderr).splitlines() if line.split()[:1] == ["fps"]]
    return boxes, fps[0] if fps else "?"


def bench(model, backend, infer):
    """Pictures a second and milliseconds of the model alone, on tensors where the backend has them."""
    command = [given["program"], "bench", model, "--backend", backend, "--model-only", "--json", "--infer", infer]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["backends"][0]["model"]
    return found["throughput"], found.get("compute-ms", found["latency-ms"])["median"]


def main():
    server, address = serve()
    boxes, figures, differing = {}, [], []
    try:
        for name, infer in WAYS.items():
            model, backend, infer = (address, "kserve", infer) if infer else (given["model"], "tensorrt", given["infer"])
            boxes[name], fps = detect(name, model, backend, infer)
            own = "" if "parallel-runs=4" in infer else "; model alone {:.0f}/s, {:.2f} ms".format(
                *bench(model, backend, infer.replace("parallel-runs=1", "")))
            print(f"{name:<18} {fps:>8} fps{own}", flush=True)
            figures.append(f"{name} {fps}")
            first = next(iter(boxes.values()))
            compare = [sys.executable, "tests/gpu/compare_boxes.py", str(first), str(boxes[name]), "--min-iou", "0.98", "--max-score", "1e-3"]
            compared = subprocess.run(compare, capture_output=True, text=True, check=False)
            if compared.returncode:
                differing.append(name)
                print(compared.stdout[-1000:], compared.stderr[-1000:])
    finally:
        server.stdin.close()
        status = server.wait()
    if status or differing:
        raise SystemExit(f"server: status {status}; boxes differ: {', '.join(differing) or 'none'}")
    print(f"the same boxes; fps: {', '.join(figures)}")


if __name__ == "__main__":
    main()
