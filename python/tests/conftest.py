# SPDX-License-Identifier: MPL-2.0
import functools
import itertools
import json
import os
import subprocess
from pathlib import Path

import numpy
import pytest

import gsttrt

TESTS = Path(__file__).resolve().parents[2] / "tests"


def model(name: str) -> str:
    return str(TESTS / "models" / f"{name}.onnx")


def clip(name: str) -> str:
    return str(TESTS / "data" / f"{name}.mp4")


class OnGpu:
    """An array that says it is in GPU memory."""

    def __init__(self, shape, strides=None, typestr="|u1", stream=None):
        self.memory = numpy.zeros(shape, numpy.uint8)
        interface = {"shape": shape, "strides": strides, "typestr": typestr, "version": 3, "stream": stream}
        self.__cuda_array_interface__ = {**interface, "data": (self.memory.ctypes.data, False)}


@functools.cache
def pipeline(clip_name: str, model_name: str, frames: int, elements: str = "") -> list:
    """What the plugin in the wheel publishes of a clip's first frames, in BGR as detect() has them."""
    line = (
        f"filesrc location={clip(clip_name)} ! decodebin ! videoconvert ! video/x-raw,format=BGR ! identity eos-after={frames + 2} "
        f"! trtpreprocess ! trtinfer model-file={model(model_name)} backend=rten ! trtnms draw=false {elements} "
        "! trtpublish location=- add-empty-results=true ! fakesink"
    )
    environment = {**os.environ, "GST_PLUGIN_PATH": gsttrt.plugin_path()}
    run = subprocess.run(["gst-launch-1.0", "-q", *line.split()], env=environment, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(found) >= frames, run.stderr
    return found[:frames]  # after the end, frames that the decoder had may follow


def results(clip_name: str, model_name: str, frames: int, **options) -> list:
    """Frames and results of a clip's first frames."""
    return list(itertools.islice(gsttrt.detect(clip(clip_name), model(model_name), backend="rten", **options), frames))


@pytest.fixture(scope="session")
def detector() -> gsttrt.Detector:
    return gsttrt.Detector(model("shapes"), backend="rten")


@pytest.fixture(scope="session")
def short_clip(tmp_path_factory) -> Path:
    """The first frames of a clip, for what only has to be played to its end."""
    short = tmp_path_factory.mktemp("clip") / "short.mp4"
    cut = f"filesrc location={clip('classes')} ! qtdemux ! h264parse ! identity eos-after=6 ! mp4mux ! filesink location={short}"
    subprocess.run(["gst-launch-1.0", "-q", *cut.split()], check=True)
    return short


@pytest.fixture(scope="session")
def image():
    """The first frame of the sample clip."""
    return results("sample", "shapes", 1)[0][0]
