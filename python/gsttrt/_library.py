# SPDX-License-Identifier: MPL-2.0
"""libgsttrt-1.0 by ctypes: the functions of gsttrt.h, their errors, and handles that free themselves."""

from __future__ import annotations

import ctypes
import difflib
import itertools
import os
import re
import sys
import threading
import warnings
from contextlib import contextmanager
from ctypes import c_char_p, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Union

import numpy

from ._options import OF_TRACKER, AllOptions
from .errors import BY_STATUS, Error, InputError, LibraryError, SettingsError

FOLDER = Path(__file__).resolve().parent / "lib"
NAME = "libgsttrt-1.so.0"

# Flags of gst_trt_results_kinds.
ROTATED_BOXES, KEYPOINTS, MASKS, FRAME_CLASSES, MAP, VECTOR, TEXT = 1, 2, 4, 8, 16, 32, 64
# Flags of GstTrtFrame.color: gray values of images fill the whole range.
FULL_RANGE = 4

Option = Union[str, int, float, bool, "os.PathLike[str]", Iterable[Any], Mapping[str, Any]]


class Frame(ctypes.Structure):
    """GstTrtFrame"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("format", c_char_p),
        ("width", c_uint32),
        ("height", c_uint32),
        ("color", c_uint32),
        ("reserved", c_uint32),
        ("planes", c_void_p * 3),
        ("strides", c_size_t * 3),
        ("bytes", c_size_t * 3),
    ]


# Each with what it returns, and its arguments. Handles are numbers and not addresses, and fit in a pointer.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "last_error": (c_char_p,),
    "session_open": (c_int, c_char_p, c_void_p, c_void_p),
    "session_close": (None, c_void_p),
    "session_backend": (c_char_p, c_void_p),
    "session_reason": (c_char_p, c_void_p),
    "session_warning": (c_char_p, c_void_p, c_size_t),
    "session_note": (c_char_p, c_void_p, c_size_t),
    "session_batch_size": (c_size_t, c_void_p),
    "session_input_size": (c_int, c_void_p, c_uint32, c_uint32, c_void_p, c_void_p),
    "session_begin_clip": (c_int, c_void_p),
    "session_class_count": (c_size_t, c_void_p),
    "session_class_label": (c_char_p, c_void_p, c_uint32),
    "session_input": (c_void_p, c_void_p),
    "session_output_count": (c_size_t, c_void_p),
    "session_output": (c_void_p, c_void_p, c_size_t),
    "session_run": (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_size_t),
    "session_detect": (c_int, c_void_p, c_void_p, c_void_p),
    "session_detect_device": (c_int, c_void_p, c_void_p, c_void_p, c_void_p),
    "session_detect_batch": (c_int, c_void_p, c_void_p, c_size_t, c_void_p),
    "session_detect_device_batch": (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p),
    "tensor_info_name": (c_char_p, c_void_p),
    "tensor_info_type": (c_int, c_void_p),
    "tensor_info_rank": (c_size_t, c_void_p),
    "tensor_info_dim": (c_int64, c_void_p, c_size_t),
    "results_free": (None, c_void_p),
    "results_kinds": (c_uint32, c_void_p),
    "results_count": (c_size_t, c_void_p),
    "results_label": (c_char_p, c_void_p, c_size_t),
    "results_objects": (c_int, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p),
    "results_angle": (c_float, c_void_p, c_size_t),
    "results_corners": (c_int, c_void_p, c_size_t, c_void_p),
    "results_keypoint_count": (c_size_t, c_void_p),
    "results_keypoint_name": (c_char_p, c_void_p, c_size_t),
    "results_keypoint": (c_int, c_void_p, c_size_t, c_size_t, c_void_p),
    "results_mask": (c_void_p, c_void_p, c_size_t, c_void_p),
    "results_json": (c_char_p, c_void_p, c_size_t),
    "results_draw": (c_int, c_void_p, c_void_p, c_void_p, c_size_t),
    "results_frame_class_count": (c_size_t, c_void_p),
    "results_frame_class_label": (c_char_p, c_void_p, c_size_t),
    "results_frame_class_id": (c_uint32, c_void_p, c_size_t),
    "results_frame_class_confidence": (c_float, c_void_p, c_size_t),
    "results_frame_class_json": (c_char_p, c_void_p, c_size_t),
    "results_vector": (c_void_p, c_void_p, c_void_p),
    "results_text": (c_char_p, c_void_p, c_void_p),
    "results_map": (c_void_p, c_void_p, c_void_p),
    "results_map_json": (c_char_p, c_void_p),
    "results_track_id": (c_uint64, c_void_p, c_size_t),
    "tracker_new": (c_int, c_void_p, c_void_p),
    "tracker_free": (None, c_void_p),
    "tracker_reset": (c_int, c_void_p),
    "tracker_update": (c_int, c_void_p, c_void_p, c_uint64, c_uint64),
    "tracker_update_with_vectors": (c_int, c_void_p, c_void_p, c_uint64, c_uint64, c_void_p, c_size_t),
}


class Library:
    """The functions, without their prefix gst_trt_."""

    def __init__(self, path: str) -> None:
        try:
            library = ctypes.CDLL(path)
            for name, (returned, *arguments) in FUNCTIONS.items():
                function = getattr(library, "gst_trt_" + name)
                function.restype, function.argtypes = returned, arguments
                setattr(self, name, function)
        except (OSError, AttributeError) as error:
            raise LibraryError(
                f"Cannot load {path}: {error}. Install the wheel of gsttrt for this machine, or set GSTTRT_LIBRARY to "
                f"the file {NAME} of this version."
            ) from error

    def __getattr__(self, name: str) -> Any:  # for type checkers: all attributes are set above
        raise AttributeError(name)

    def error(self, status: int) -> Error:
        """The exception for a status, with the text of this thread's last error."""
        return BY_STATUS.get(status, Error)(self.last_error().decode())

    def check(self, status: int) -> None:
        if status != 0:
            raise self.error(status)


def find() -> str:
    """GSTTRT_LIBRARY, or the library in this package, or that of the system."""
    inside = FOLDER / NAME
    return os.environ.get("GSTTRT_LIBRARY") or (str(inside) if inside.exists() else NAME)


# The library looks for TensorRT, OpenVINO and ONNX Runtime of pip in this environment, also if no shell has activated it.
if sys.prefix != sys.base_prefix:
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)
library = Library(find())


class Handle:
    """A handle of the library, freed with this object."""

    __slots__ = ("_value", "_free", "_is_freed")

    def __init__(self, value: c_void_p, free: Callable[[c_void_p], None]) -> None:
        self._value, self._free, self._is_freed = value, free, False

    @property
    def value(self) -> c_void_p:
        if self._is_freed:
            raise InputError("This model is closed already. Load it again.")
        return self._value

    def __reduce__(self) -> str:
        raise TypeError("A model or a tracker belongs to its process and cannot be copied or pickled. Make one in each process.")

    def free(self) -> None:
        """The library ignores the second time."""
        self._is_freed = True
        self._free(self._value)

    def __del__(self) -> None:
        # An object that was never initialised has nothing to free.
        if hasattr(self, "_free"):
            self._free(self._value)


# What other packages call the options.
ELSEWHERE = {
    "conf": "score_threshold",
    "conf_thres": "score_threshold",
    "confidence": "score_threshold",
    "threshold": "score_threshold",
    "iou": "iou_threshold",
    "iou_thres": "iou_threshold",
    "imgsz": "input_size",
    "img_size": "input_size",
    "device": "backend or cuda_device_id",
    "device_id": "cuda_device_id",
    "half": 'precision="fp16"',
    "int8": 'precision="int8"',
    "max_det": "max_detections",
    "agnostic_nms": "class_agnostic",
    "names": "label_file",
    "labels": "label_file",
    "fp16": 'precision="fp16"',
    "nms_threshold": "iou_threshold",
    "nms_thresh": "iou_threshold",
    "size": "input_size",
    "task": "layout",
    "retina_masks": 'mask_output="objects"',
    "workers": "threads",
    "stream": "detector.batch(images), which gives one result after the other",
    "verbose": 'logging.getLogger("gsttrt").setLevel(level)',
    "save": "result.save(path)",
    "show": "result.show()",
    "tracker": "gsttrt.detect(source, model, tracker=name)",
    "color": "detector(image, color=name)",
}
NO_OPTION = re.compile(r"There is no option “(.*?)”\. Use (.*?)\.?$", re.S)


# Those that are called in another way in the library, where they are not parts of paths and other words.
HYPHENATED = {name.replace("_", "-"): name for name in AllOptions.__optional_keys__ | OF_TRACKER if "_" in name} | {"model-file": "model"}
OPTIONS = re.compile(rf"(?<![\w/.-])({'|'.join(sorted(HYPHENATED))})(?![\w/-]|\.\w)")


@contextmanager
def named_as_in_python() -> Iterator[None]:
    """Lets errors call options as they are called in Python."""
    try:
        yield
    except Error as error:
        text = str(error)
        if unknown := NO_OPTION.match(text):
            name = unknown[1].replace("-", "_")
            known = [each.replace("-", "_") for each in re.findall(r"[a-z][a-z0-9-]*", unknown[2])]
            near = ELSEWHERE.get(name) or next(iter(difflib.get_close_matches(name, known, 1)), None)
            meant = f" Did you mean {near}?" if near else ""
            text = f"There is no option {name}.{meant} The options are {', '.join(known)}."
        raise type(error)(renamed(text)) from None


def renamed(text: str) -> str:
    """A text of the library that calls options as they are called in Python, where there are no elements to set them on."""
    text = OPTIONS.sub(lambda option: HYPHENATED[option[1]], text)
    text = re.sub(r"\bOn trt[a-z]+, ([a-z])", lambda first: first[1].upper(), text)
    return re.sub(r" on trt[a-z]+( and trt[a-z]+)*\b", "", text)


def warn(text: str) -> None:
    """Warns of the line that called this package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and Path(frame.f_code.co_filename).parent == FOLDER.parent:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def told(of: Callable[[c_void_p, int], bytes | None], session: c_void_p, first: int = 0) -> list[str]:
    """What is to be told of a model that runs all the same, without the first ones."""
    found = (of(session, index) for index in itertools.count(first))
    return [renamed(text.decode()) for text in itertools.takewhile(lambda text: text is not None, found) if text]


class Warnings:
    """What is to be told of a model while it is used; each is told once."""

    def __init__(self, session: Handle) -> None:
        self.session, self.count, self.lock = session, 0, threading.Lock()

    def tell(self) -> None:
        """Warns of what is new, such as numbers that are not finite. The model may have been closed meanwhile."""
        while text := self.next():
            warn(text)

    def next(self) -> str | None:
        """What is to be told now; of several threads, one gets it."""
        with self.lock:
            new = told(library.session_warning, self.session._value, self.count)[:1]
            self.count += len(new)
        return new[0] if new else None


def texts(options: Mapping[str, Option | None]) -> Any:
    """Options as the library reads them: an array of texts such as `score-threshold=0.5`, with NULL at its end."""
    lines = [line(name.replace("_", "-"), value) for name, value in options.items() if value is not None]
    for each in lines:
        if "\0" in each:
            raise SettingsError(f"The option {each!r} contains a zero byte. Remove it.")
    return (c_char_p * (len(lines) + 1))(*(each.encode("utf-8", "surrogateescape") for each in lines), None)


def line(name: str, value: Option) -> str:
    if name != "input-values" or isinstance(value, str):
        return f"{name}={text(value)}"
    entries = ("=".join(re.sub(r"[,=\\]", r"\\\g<0>", part) for part in entry) for entry in input_files(value).items())
    return f"{name}={','.join(entries)}"


def input_files(files: Any) -> dict[str, str]:
    """The paths in input_values by the names of the inputs."""
    remedy = 'Write arrays to files by numpy.save, and give their paths, like {"txt_feats": "words.npy"}.'
    if not isinstance(files, Mapping):
        raise SettingsError(f"input_values is of type {type(files).__name__}. {remedy}")
    for name, file in files.items():
        if not isinstance(file, (str, os.PathLike)):
            raise SettingsError(f"input_values has an object of type {type(file).__name__} for {name}, and no path. {remedy}")
    return {name: os.fsdecode(file) for name, file in files.items()}


def text(value: Option) -> str:
    """The value of an option: `true` and `false`; lists with commas; `{"disc": 0.5}` as `disc=0.5`."""
    if isinstance(value, (bool, numpy.bool_)):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return ",".join(f"{name}={text(each)}" for name, each in value.items())
    if isinstance(value, Iterable):
        return ",".join(text(each) for each in value)
    return str(value)  # such as numpy's numbers
