# SPDX-License-Identifier: MPL-2.0
"""Objects, masks, poses, rotated boxes and classes by ONNX models and TensorRT engines, on NumPy and CUDA arrays.

>>> import gsttrt
>>> detector = gsttrt.Detector("yolo11n.onnx")
>>> result = detector(image)  # an array (height, width, 3) of uint8, as OpenCV reads it
>>> result.xyxy, result.confidence, result.class_id, result.names

The results are those of the GStreamer elements trtpreprocess ! trtinfer ! trtnms. GStreamer is needed for videos only:

>>> for frame, result in gsttrt.detect("a.mp4", "yolo11n.onnx"):
...     ...
"""

from importlib.metadata import PackageNotFoundError, version

from ._library import FOLDER
from .detector import Detector
from .errors import (
    Bug,
    DeviceLostError,
    Error,
    InputError,
    LibraryError,
    ModelError,
    NotFoundError,
    ReadError,
    RunError,
    SettingsError,
)
from .result import Map, Probs, Result
from .session import Session, TensorInfo
from .tracker import Tracker
from .video import detect

try:
    __version__ = version("gsttrt")
except PackageNotFoundError:  # the folder of the source
    __version__ = "0"

__all__ = [
    "Bug",
    "Detector",
    "DeviceLostError",
    "Error",
    "InputError",
    "LibraryError",
    "Map",
    "ModelError",
    "NotFoundError",
    "Probs",
    "ReadError",
    "Result",
    "RunError",
    "Session",
    "SettingsError",
    "TensorInfo",
    "Tracker",
    "detect",
    "plugin_path",
]


def plugin_path() -> str:
    """The folder of the GStreamer plugin in this package, for GST_PLUGIN_PATH."""
    folder = FOLDER / "gstreamer-1.0"
    if not folder.is_dir():
        raise LibraryError(f"This installation has no GStreamer plugin: {folder} is not there. Install the wheel of gsttrt.")
    return str(folder)
