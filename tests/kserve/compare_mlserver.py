#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Compares what our program finds by a real MLServer with what it finds by itself: compare_mlserver.py PROGRAM FOLDER

MLServer passes no names on and knows no shared memory. It is killed at the end. Ends with status 1 if anything differs."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import onnxruntime

from comparing import ROOT, check, end, lines, refused

MODELS = ("shapes-320", "shapes-v8")
CLIP = "sample"
LABELS = ("disc", "box")
TYPES = {"tensor(float)": "FP32"}
LIMIT = 120  # seconds, far more than it takes


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def settings(name):
    """Of a model."""
    file = ROOT / "tests" / "models" / f"{name}.onnx"
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    tensors = lambda all: [{"name": one.name, "datatype": TYPES[one.type], "shape": one.shape} for one in all]  # noqa: E731
    return {"name": name, "implementation": "onnx_runtime.OnnxModel", "inputs": tensors(session.get_inputs()),
            "outputs": tensors(session.get_outputs()), "parameters": {"uri": str(file)}}


class MlServer:
    """Runs as long as the `with` block, or until it is killed."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.http, self.grpc, self.metrics = free_port(), free_port(), free_port()
        for name in MODELS:
            (self.folder / name).mkdir(parents=True)
            (self.folder / name / "model-settings.json").write_text(json.dumps(settings(name)), encoding="utf-8")
        own = {"host": "127.0.0.1", "http_port": self.http, "grpc_port": self.grpc, "metrics_port": self.metrics, "parallel_workers": 0}
        (self.folder / "settings.json").write_text(json.dumps(own), encoding="utf-8")
        self.log = self.folder / "log"

    def __enter__(self):
        command = [str(pathlib.Path(sys.executable).parent / "mlserver"), "start", str(self.folder)]
        environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).resolve().parent)}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + LIMIT
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"MLServer does not start:\n{self.log.read_text()[-3000:]}")
            threading.Event().wait(0.1)
        return self

    def is_ready(self):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.http}/v2/health/ready", timeout=5).status == 200
        except OSError:
            return False

    def address(self, name):
        return f"grpc://127.0.0.1:{self.grpc}/{name}"

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __exit__(self, *_):
        self.kill()


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    labels = folder / "labels.txt"
    labels.write_text("\n".join(LABELS) + "\n", encoding="utf-8")
    library = f"ort-library={pathlib.Path(onnxruntime.__file__).parent / 'capi'}"
    with MlServer(folder / "mlserver") as server:
        for name in MODELS:
            named = ("--labels", str(labels))
            own = lines(program, ROOT / "tests" / "models" / f"{name}.onnx", CLIP, *named, "--backend", "onnxruntime", infer=library)
            check(f"MLServer: {name}", own, lines(program, server.address(name), CLIP, *named))
            check(f"MLServer: {name}, 4 requests", own, lines(program, server.address(name), CLIP, *named, infer="parallel-runs=4"))
        address = server.address(MODELS[0])
        refused("nowhere", "does not serve the model nowhere", lambda: lines(program, server.address("nowhere"), CLIP))
        refused("HTTP", "Servers have a port of their own for gRPC",
                lambda: lines(program, f"grpc://127.0.0.1:{server.http}/{MODELS[0]}", CLIP))
        refused("shared memory", "does not have the extension system_shared_memory", lambda: lines(program, address, CLIP, infer="shared-memory=on"))
        server.kill()
        refused("no server", "There is no answer of a server", lambda: lines(program, address, CLIP))
    end()


if __name__ == "__main__":
    main()
