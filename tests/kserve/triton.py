# SPDX-License-Identifier: MPL-2.0
"""A Triton of its own for tests: the program in nvidia-pytriton, with a model repository of ONNX files for its Python backend."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import onnxruntime
import pytriton
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

HERE = pathlib.Path(__file__).resolve().parent
ROOT = pathlib.Path(pytriton.__file__).parent / "tritonserver"
TYPES = {"tensor(float)": "TYPE_FP32", "tensor(float16)": "TYPE_FP16", "tensor(int64)": "TYPE_INT64"}
LIMIT = 120  # seconds, far more than it takes


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def configure(repository, file, name, max_batch):
    """A folder of the repository for an ONNX file, with the metadata of that in its configuration."""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    config = model_config_pb2.ModelConfig(name=name, backend="python", max_batch_size=max_batch)
    for tensors, kind in ((session.get_inputs(), config.input), (session.get_outputs(), config.output)):
        for tensor in tensors:
            dims = tensor.shape[1:] if max_batch else tensor.shape
            kind.add(name=tensor.name, data_type=TYPES[tensor.type], dims=dims)
    if max_batch:
        config.dynamic_batching.max_queue_delay_microseconds = 1000
    packages = pathlib.Path(onnxruntime.__file__).parent.parent
    own = {"file": str(file), "packages": str(packages)}
    for key, value in {**session.get_modelmeta().custom_metadata_map, **own}.items():
        config.parameters[key].string_value = value
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(text_format.MessageToString(config), encoding="utf-8")
    shutil.copy(HERE / "model.py", folder / "1")


class Triton:
    """Runs as long as the `with` block, or until it is killed."""

    def __init__(self, folder, models, port=None, environment=()):
        """models: (ONNX file, name, max_batch_size), which is 0 for a fixed batch."""
        self.folder, self.port = pathlib.Path(folder), port or free_port()
        self.http = free_port()
        self.repository = self.folder / "repository"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.repository.mkdir(parents=True)
        for file, name, max_batch in models:
            configure(self.repository, pathlib.Path(file).resolve(), name, max_batch)
        self.backends = self.folder / "backends"
        shutil.copytree(ROOT / "backends", self.backends)
        version = "{}.{}".format(*sys.version_info)
        shutil.copy(ROOT / "python_backend_stubs" / version / "triton_python_backend_stub", self.backends / "python")
        self.environment = {**os.environ, **dict(environment)}
        libraries = [str(pathlib.Path(pytriton.__file__).parent.parent / "nvidia_pytriton.libs")]
        self.environment["LD_LIBRARY_PATH"] = os.pathsep.join(
            libraries + list(filter(None, [os.environ.get("LD_LIBRARY_PATH")])))
        self.log = self.folder / "triton.log"
        self.process = None
        self.counted = 0
        self.memory = f"triton-of-tests-{os.getpid()}-{self.port}-"

    def start(self):
        options = {"model-repository": self.repository, "backend-directory": self.backends, "grpc-port": self.port,
                   "http-port": self.http, "grpc-address": "127.0.0.1", "http-address": "127.0.0.1",
                   "allow-metrics": "false", "log-verbose": 0,
                   "backend-config": f"python,shm-region-prefix-name={self.memory}"}
        command = [str(ROOT / "bin" / "tritonserver"), *(f"--{name}={value}" for name, value in options.items())]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log,
                                            start_new_session=True)
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"Triton has ended:\n{self.log.read_text()[-3000:]}")
            if self.is_ready():
                return self
            threading.Event().wait(0.1)
        raise RuntimeError(f"Triton is not ready after {LIMIT} s:\n{self.log.read_text()[-3000:]}")

    def is_ready(self):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.http}/v2/health/ready", timeout=5).status == 200
        except OSError:
            return False

    def requests(self):
        """How many requests of all models were answered."""
        answer = urllib.request.urlopen(f"http://127.0.0.1:{self.http}/v2/models/stats", timeout=5).read()
        self.counted = sum(model["inference_stats"]["success"]["count"] for model in json.loads(answer)["model_stats"])
        return self.counted

    def address(self, name):
        return f"grpc://127.0.0.1:{self.port}/{name}"

    def kill(self):
        """With the processes of its models, which do not end by themselves while they hold an answer."""
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
            # What was killed has left it.
            for region in pathlib.Path("/dev/shm").glob(f"{self.memory}*"):
                region.unlink()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()
