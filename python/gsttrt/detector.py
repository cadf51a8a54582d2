# SPDX-License-Identifier: MPL-2.0
"""Images in, results out."""

from __future__ import annotations

import ctypes
import logging
import operator
import os
import re
from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, c_uint32, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Sequence, cast, overload

import numpy

from . import _device, _images
from ._batches import WrongImage, in_batches, run_later
from ._library import ELSEWHERE, Frame, Handle, Option, Warnings, library, named_as_in_python, texts, told
from .errors import Error, InputError, NotFoundError, SettingsError
from .result import Result

if TYPE_CHECKING:
    from typing import Literal

    from typing_extensions import Unpack

    from ._images import ImageLike
    from ._options import Backend, DetectorOptions, Path, Size


LOG = logging.getLogger("gsttrt")
# So many batches of images that are there already are given to the library at once. On a GPU it goes from one to the next by itself.
AT_ONCE = 8
# Sizes of images whose size of the model's input is remembered.
MOST_SIZES = 1024
# How an error of the library begins that is about one frame of several.
OF_FRAME = re.compile(r"frames\[(\d+)\]: ")


def open_session(model: Path, input_size: Size | None, options: Mapping[str, Option | None]) -> Handle:
    """Loads a model."""
    try:
        path = os.fsencode(model)
    except TypeError as error:
        raise InputError(f"An object of type {type(model).__name__} is no model. Give the path of an ONNX file or an engine.") from error
    if b"\0" in path:
        raise NotFoundError(f"There is no model file {os.fspath(model)!r}: no path contains a zero byte.")
    given, session = {**options, "input_size": size_text(input_size)}, c_void_p()
    with named_as_in_python():
        library.check(library.session_open(path, texts(given), ctypes.byref(session)))
    return Handle(session, library.session_close)


def size_text(size: Size | None) -> str | None:
    if size is None or isinstance(size, str):
        return size
    sides = (size, size) if isinstance(size, (int, numpy.integer)) else size
    try:
        width, height = map(operator.index, sides)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"input_size is {size!r}. Give (width, height) in whole pixels, or one number for a square.") from error
    return f"{width}x{height}"


def dimensions(tensor: c_void_p) -> tuple[int, ...]:
    return tuple(library.tensor_info_dim(tensor, axis) for axis in range(library.tensor_info_rank(tensor)))


def frames_and_sides(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """How many frames an input of that shape has, and their height and width."""
    if len(shape) == 5:
        # As the library looks for the channels: 3, or else 1, before the frames, behind them, or last.
        at = next((axis for channels in (3, 1) for axis in (1, 2, 4) if shape[axis] == channels), 1)
        height, width = shape[2:4] if at == 4 else shape[3:5]
        return shape[2 if at == 1 else 1], height, width
    sides = shape[2:4] if shape[1:2] in ((1,), (3,), (4,)) else shape[1:3]
    height, width = sides if len(sides) == 2 else (64, 64)
    return 1, height, width


class Detector:
    """A model with its preprocessing and postprocessing.

    >>> detector = Detector("yolo11n.onnx", score_threshold=0.5)
    >>> result = detector(image)
    >>> result.xyxy, result.confidence, result.class_id

    model: an ONNX file, or a TensorRT engine. Engines contain code: load only files you trust. For a new ONNX file TensorRT builds
        an engine, which takes seconds to minutes, once.
    backend: "auto" (TensorRT if it is there and can run the model, else OpenVINO on x86 or ONNX Runtime if they are there, else rten,
        which is in this package), "tensorrt", "openvino", "onnxruntime", "rten", "kserve" for a server, or "cpu" for "auto" without
        TensorRT.
    score_threshold: 0..1; less certain objects are left out.
    iou_threshold: 0..1; of two boxes of a class that overlap more, the less certain one is left out.
    classes: names or ids of the classes that are wanted, such as ["person", "car"].
    label_file: a text file with a class name a line, for models without names.
    input_size: (width, height) in pixels, or one number for a square, for models that take any size.
    batch_size: how many images of a list are run at once, for models with a dynamic batch; by default as many as the model fixes, else 1.
        On a GPU more are faster; on the CPU they are not.
    options: any other option of trtinfer and trtnms, with _ for -, such as max_detections=10, class_thresholds={"car": 0.5},
        precision="fp16", execution_providers="openvino", threads=4.

    What is wrong with model and options is raised here: the model runs once on a black image. An option without effect is a warning,
    such as precision on the CPU or top_k of a model that is no classifier.

    A detector may be used by several threads; they take turns. To run in parallel, make a detector for each.
    """

    def __init__(
        self,
        model: Path,
        *,
        backend: Backend | None = None,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        classes: str | Sequence[str | int] | None = None,
        label_file: Path | None = None,
        input_size: Size | None = None,
        batch_size: int | None = None,
        **options: Unpack[DetectorOptions],
    ) -> None:
        if classes is not None and not isinstance(classes, str) and hasattr(classes, "__len__") and len(classes) == 0:
            raise SettingsError("classes is empty, so nothing could be found. Leave it out for all classes.")
        named: dict[str, Option | None] = {
            "backend": backend,
            "batch_size": batch_size,
            "score_threshold": score_threshold,
            "iou_threshold": iou_threshold,
            "classes": classes,
            "label_file": label_file,
        }
        given = {**named, **cast(Any, options)}
        self._session = open_session(model, input_size, given)
        session = self._session.value
        self._path = os.fspath(model)
        self._backend: str = library.session_backend(session).decode()
        reason = library.session_reason(session)
        self._reason = reason.decode() if reason else None
        count = library.session_class_count(session)
        self._names = {index: library.session_class_label(session, index).decode() for index in range(count)}
        self._input_shape = dimensions(library.session_input(session))
        self._batch_size: int = library.session_batch_size(session)
        self._input_sizes: dict[tuple[int, int], tuple[int, int]] = {}
        self._warnings = Warnings(self._session)
        step = next((value for name, value in given.items() if name.replace("-", "_") == "frame_step" and value is not None), 1)
        self._try(int(cast(Any, step)))
        self._notes = told(library.session_note, session)
        for text in self._notes:
            LOG.info(text)

    def _try(self, step: int) -> None:
        """Detects once, so that what does not fit the model is an error now, and the first image takes no longer than the second. With a
        model that sees clips, of every step-th image, that is at the end of a black clip, with which later images do not go on."""
        frames, height, width = frames_and_sides(self._input_shape)
        image = _images.of_array(numpy.zeros((height, width, 3), numpy.uint8), "bgr")
        try:
            with named_as_in_python():
                for _ in range((frames - 1) * step + 1):
                    self._run_one(image)
                self._begin_clip()
        except Error:
            self.close()
            raise

    def _begin_clip(self) -> None:
        """The frames of another video follow."""
        library.check(library.session_begin_clip(self._session.value))

    @property
    def backend(self) -> str:
        """What runs the model: "tensorrt", "openvino", "onnxruntime", "rten" or "kserve"."""
        return self._backend

    @property
    def reason(self) -> str | None:
        """Why backend="auto" did not take TensorRT."""
        return self._reason

    @property
    def names(self) -> dict[int, str]:
        """The names of all classes, by id; empty if neither the model nor label_file has any."""
        return dict(self._names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of the model's input."""
        return self._input_shape

    @property
    def notes(self) -> list[str]:
        """What is guessed because the model's file does not say it, such as its layout. The logger "gsttrt" has it too, as INFO."""
        return list(self._notes)

    @property
    def batch_size(self) -> int:
        """How many images of a list are run at once, at most."""
        return self._batch_size

    # A text is a sequence of texts too, but the path of one image.
    @overload
    def __call__(self, image: ImageLike, *, color: Literal["bgr", "rgb"] = ...) -> Result: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, image: Sequence[ImageLike], *, color: Literal["bgr", "rgb"] = ...) -> list[Result]: ...

    def __call__(self, image: Any, *, color: Literal["bgr", "rgb"] = "bgr", **options: Any) -> Result | list[Result]:
        """What the model finds.

        image: one of
            an array (height, width, 3) of uint8; (height, width, 4) with alpha, which is ignored; (height, width) of gray;
            a list of images: then a list of results comes back;
            an array on the GPU with DLPack or __cuda_array_interface__, such as a PyTorch tensor or a CuPy array: it is read in
            place, and the model must run on the GPU;
            the path of an image, or an image of Pillow, which must be installed.
        color: "bgr", the order of OpenCV's channels, or "rgb"; not used for paths and images of Pillow.

        The images of a list are run batch_size at once, and may have any sizes; batch() gives one result after the other.
        """
        for name in options:
            meant = f" Did you mean {ELSEWHERE[name]}?" if name in ELSEWHERE else ""
            raise SettingsError(f"detector(image) takes no option {name}.{meant} Options are given to Detector(model, …), once.")
        _images.check_color(color)
        if isinstance(image, Sequence) and not isinstance(image, (str, bytes, bytearray, memoryview)):
            return list(self.batch(image, color=color))
        return self._run_one(_images.read_one(image, color))

    def batch(self, images: Iterable[ImageLike], *, color: Literal["bgr", "rgb"] = "bgr") -> Iterator[Result]:
        """What the model finds in each of many images, in their order.

        >>> for path, result in zip(paths, detector.batch(paths)):
        ...     print(path, result.names)

        images: a list, an array (n, height, width, 3), or anything else that gives images, such as a generator. They are run batch_size
            at once, of those that come to the same size of the model's input, and no more are read than that needs: batch_size, or up
            to four times as many where these sizes differ. On a GPU with a batch_size above 1 the next ones are read while these are run.
        color: as of detector(image).

        An image that cannot be used is an error that names it, after the results of those before it.
        """
        _images.check_color(color)
        several, size, goes_ahead = _images.several(images), self._batch_size, True
        if isinstance(images, (list, tuple, numpy.ndarray)):
            if self._is_on_gpu and len(images) and _images.is_array(images[0]):
                size *= AT_ONCE
            goes_ahead = len(images) > size
        return self._in_batches(several, color, size, goes_ahead)

    @property
    def _is_on_gpu(self) -> bool:
        return self._backend == "tensorrt"

    def _in_batches(self, images: Iterator[Any], color: str, size: int, goes_ahead: bool) -> Iterator[Result]:
        """The results of images, of which the library gets `size` at once. On a GPU, with `goes_ahead`, it runs some while others are read."""
        read = (self._read(given, color, index) for index, given in enumerate(images))
        # One by one, each may lie where the former one was.
        if goes_ahead and size > 1 and self._is_on_gpu:
            return self._in_thread(read, size)
        return in_batches(read, size, self._kind, run_later(self._run))

    def _in_thread(self, images: Iterator[_images.Image], size: int) -> Iterator[Result]:
        """The library runs images in a thread of its own, without Python's lock. Here the next ones are read, and results are made."""
        with ThreadPoolExecutor(1, "gsttrt") as thread:

            def start(images: list[_images.Image]) -> Callable[[], list[Result]]:
                if images[0].stream == _device.PER_THREAD_STREAM:
                    return run_later(self._run)(images)
                found = thread.submit(self._detect, images)
                return lambda: self._made(found.result(), images)

            yield from in_batches(images, size, self._kind, start, goes_ahead=True)

    def _read(self, given: Any, color: str, index: int) -> _images.Image:
        try:
            return _images.read_one(given, color)
        except Error as error:
            raise type(error)(f"images[{index}]: {error}") from error

    def _kind(self, image: _images.Image) -> tuple[object, ...]:
        """What images that are run together have in common."""
        # Those on the GPU are ready on streams, of which a call knows one.
        return self._input_size(image.width, image.height), image.is_on_gpu, image.stream

    def _input_size(self, width: int, height: int) -> tuple[int, int]:
        """The size of the model's input for images of that size. It stays, and the library answers only when nothing runs."""
        known = self._input_sizes.get((width, height))
        if known is None:
            wide, high = c_uint32(), c_uint32()
            library.check(library.session_input_size(self._session.value, width, height, ctypes.byref(wide), ctypes.byref(high)))
            if len(self._input_sizes) == MOST_SIZES:
                self._input_sizes.clear()
            known = self._input_sizes[width, height] = wide.value, high.value
        return known

    def _run_one(self, image: _images.Image) -> Result:
        frame, found = image.frame(), c_void_p()
        arguments = (self._session.value, ctypes.byref(frame))
        if image.is_on_gpu:
            status = library.session_detect_device(*arguments, image.stream, ctypes.byref(found))
        else:
            status = library.session_detect(*arguments, ctypes.byref(found))
        library.check(status)
        return self._made([Handle(found, library.results_free)], [image])[0]

    def _run(self, images: list[_images.Image]) -> list[Result]:
        return self._made(self._detect(images), images)

    def _made(self, found: list[Handle], images: list[_images.Image]) -> list[Result]:
        """The results that the library has found in images."""
        self._warnings.tell()
        return [Result(handle, image) for handle, image in zip(found, images)]

    def _detect(self, images: list[_images.Image]) -> list[Handle]:
        """What is in images that are all on the host, or on one stream of the GPU."""
        frames, found = [image.frame() for image in images], (c_void_p * len(images))()
        pointers = (POINTER(Frame) * len(images))(*(ctypes.pointer(frame) for frame in frames))
        arguments = (self._session.value, pointers, len(images))
        if images[0].is_on_gpu:
            status = library.session_detect_device_batch(*arguments, images[0].stream, found)
        else:
            status = library.session_detect_batch(*arguments, found)
        try:
            library.check(status)
        except Error as error:
            if wrong := OF_FRAME.match(str(error)):
                raise WrongImage(int(wrong[1]), type(error), str(error)[wrong.end() :]) from None
            raise
        return [Handle(c_void_p(value), library.results_free) for value in found]

    def close(self) -> None:
        """Frees the model. Its results stay valid."""
        self._session.free()

    def __enter__(self) -> Detector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Detector {self._path}: {self._backend}, input {'x'.join(map(str, self._input_shape))}, {len(self._names)} classes>"
