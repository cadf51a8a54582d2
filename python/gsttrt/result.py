# SPDX-License-Identifier: MPL-2.0
"""What a model found in an image, as arrays."""

from __future__ import annotations

import ctypes
import io
import json
import os
from collections import Counter
from ctypes import c_float, c_size_t, c_uint32, c_void_p
from functools import cached_property
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Sequence

import numpy

from ._images import Image, of_array, on_host
from ._library import FRAME_CLASSES, KEYPOINTS, MAP, MASKS, ROTATED_BOXES, TEXT, VECTOR, Handle, library
from .errors import Error, InputError, LibraryError, ReadError

if TYPE_CHECKING:
    import pandas
    import supervision
    from numpy.typing import NDArray

    Floats = NDArray[numpy.float32]
    Integers = NDArray[numpy.int64]


class Probs(NamedTuple):
    """The k best classes of a whole image, the most probable first: those above score_threshold, at most top_k (5 by default)."""

    class_id: Integers
    """(k,) int64"""
    confidence: Floats
    """(k,) float32, 0..1"""
    names: list[str]
    """k names"""


class Map(NamedTuple):
    """A value for each pixel of an image, in the resolution of the model's input."""

    kind: str
    """"classes": ids of classes, 65535 for none; "depth"; "objects": 1 for the first object, 0 for none."""
    values: NDArray[Any]
    """(h, w) uint16; of depths float32, in the model's unit"""
    xyxy: Floats
    """(4,) float32: the part of the image that the map covers, in pixels of the image"""


class Result:
    """What a model found in an image: n objects, in order of descending confidence; or the classes of the whole image; or its text; or a vector; or a map.

    Coordinates are in pixels of the image: x to the right, y down, 0, 0 is the corner of the left upper pixel.
    What the model does not give is None. Where it gives it and found nothing, arrays have a first dimension of 0.

    result[0], result[2:5] and result[result.confidence > 0.5] are results with these objects only; iteration gives them one by one.
    Results can be copied, pickled, and sent to other processes.
    """

    _handle: Handle | None = None
    _image: Image | None = None
    _drawn: Integers | None = None
    _original: Handle | None = None

    def __init__(self, handle: Handle, image: Image) -> None:
        self._handle = handle
        # A result keeps no memory of a GPU.
        self._image = None if image.is_on_gpu else image
        self.width, self.height = image.width, image.height
        """The image's size in pixels."""
        self.time: float | None = None
        """The time of the frame in its video in seconds; None for images."""
        self.track_id: Integers | None = None
        """(n,) int64: set by Tracker.update: the same from frame to frame, from 1 on, and 0 for objects without one."""
        value = handle.value
        self._kinds: int = library.results_kinds(value)
        count: int = library.results_count(value)
        self._count = count
        boxes, confidence = numpy.empty((count, 4), numpy.float32), numpy.empty(count, numpy.float32)
        class_id = numpy.empty(count, numpy.uint32)
        library.check(library.results_objects(value, count, boxes.ctypes.data, confidence.ctypes.data, class_id.ctypes.data))
        boxes[:, 2:] += boxes[:, :2]
        self.xyxy: Floats = boxes
        """(n, 4) float32: left, top, right, bottom, inside the image. Of rotated boxes, the upright boxes around them."""
        self.confidence: Floats = confidence
        """(n,) float32, 0..1"""
        self.class_id: Integers = class_id.astype(numpy.int64)
        """(n,) int64"""

    @property
    def _value(self) -> c_void_p:
        assert self._handle is not None, "all of a copy is in arrays"
        return self._handle.value

    def _numbers(self, function: Any, dtype: Any) -> NDArray[Any]:
        value = self._value
        return numpy.fromiter((function(value, index) for index in range(self._count)), dtype, self._count)

    def __len__(self) -> int:
        """The number of objects."""
        return self._count

    def __iter__(self) -> Iterator[Result]:
        """A result for each object."""
        return (self[index] for index in range(self._count))

    def __getitem__(self, which: int | slice | Sequence[int] | NDArray[Any]) -> Result:
        """The objects with that index, slice, list of indices, or mask of n bool."""
        if isinstance(which, (int, numpy.integer)) and not isinstance(which, bool):
            which = [self._index(int(which))]
        try:
            if not isinstance(which, slice):
                which = numpy.asarray(which)
                which = which.astype(numpy.int64) if not which.size and which.dtype != bool else which
            chosen = numpy.arange(self._count)[which]
        except IndexError as error:
            raise IndexError(f"{error}. There are {self._count} objects.") from error
        if chosen.ndim != 1:
            raise IndexError(f"Choose objects with one index, not one of {chosen.ndim} dimensions.")
        state = self.__getstate__()
        for name in PER_OBJECT:
            values = state[name]
            if values is not None:
                state[name] = values[chosen] if isinstance(values, numpy.ndarray) else [values[index] for index in chosen]
        found = Result.__new__(Result)
        found.__setstate__({**state, "_count": len(chosen)})
        # To draw them.
        found._original, found._image = self._original or self._handle, self._image
        found._drawn = chosen if self._drawn is None else self._drawn[chosen]
        return found

    def __getstate__(self) -> dict[str, Any]:
        """All that the library keeps, as arrays."""
        lazy = {name: getattr(self, name) for name in LAZY}
        return {**{name: value for name, value in self.__dict__.items() if name not in NOT_KEPT}, **lazy}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @cached_property
    def names(self) -> list[str]:
        """n names of classes; of a class without a name, # and its id."""
        return [library.results_label(self._value, index).decode() for index in range(self._count)]

    @cached_property
    def masks(self) -> NDArray[numpy.bool_] | None:
        """(n, height, width) bool: the pixels of each object. It is made when it is asked for; for many objects in large images mask()
        needs less memory."""
        if not self._kinds & MASKS:
            return None
        masks = numpy.zeros((self._count, self.height, self.width), bool)
        for index in range(self._count):
            left, top, mask = self.mask(index)
            height, width = mask.shape
            masks[index, top : top + height, left : left + width] = mask
        return masks

    def mask(self, index: int) -> tuple[int, int, NDArray[numpy.bool_]]:
        """Left, top and (h, w) bool: the pixels of one object in a rectangle, outside which none belongs to it."""
        index = self._index(index)
        if self._parts is None:
            raise InputError("The model gives no masks. Use one for segmentation.")
        return self._parts[index]

    @cached_property
    def _parts(self) -> list[tuple[int, int, NDArray[numpy.bool_]]] | None:
        """mask() of each object."""
        return [self._part(index) for index in range(self._count)] if self._kinds & MASKS else None

    def _part(self, index: int) -> tuple[int, int, NDArray[numpy.bool_]]:
        rectangle = (c_uint32 * 4)()
        address = library.results_mask(self._value, index, rectangle)
        left, top, width, height = rectangle
        if not width * height:
            return left, top, numpy.zeros((height, width), bool)
        pixels = numpy.ctypeslib.as_array((ctypes.c_uint8 * (width * height)).from_address(address))
        return left, top, pixels.reshape(height, width) != 0

    def _index(self, index: int) -> int:
        if not -self._count <= index < self._count:
            raise IndexError(f"There is no object {index}: {self._count} were found.")
        return index % self._count

    @cached_property
    def keypoints(self) -> Floats | None:
        """(n, k, 3) float32: x, y, and visibility in 0..1, NaN if the model does not tell it."""
        if not self._kinds & KEYPOINTS:
            return None
        value = self._value
        points = numpy.empty((self._count, library.results_keypoint_count(value), 3), numpy.float32)
        for index, keypoint in numpy.ndindex(points.shape[:2]):
            library.check(library.results_keypoint(value, index, keypoint, points[index, keypoint].ctypes.data))
        return points

    @cached_property
    def keypoint_names(self) -> list[str] | None:
        """k names; None if the model has none."""
        count = library.results_keypoint_count(self._value)
        found = [library.results_keypoint_name(self._value, keypoint) for keypoint in range(count)]
        return [name.decode() for name in found] if found and all(found) else None

    @cached_property
    def angle(self) -> Floats | None:
        """(n,) float32: the rotation of each box about its centre in radians, clockwise in the image, from 0 to below pi/2."""
        return self._numbers(library.results_angle, numpy.float32) if self._kinds & ROTATED_BOXES else None

    @cached_property
    def corners(self) -> Floats | None:
        """(n, 4, 2) float32: x and y of the corners of each rotated box, in order around it. They may lie beyond the image."""
        if not self._kinds & ROTATED_BOXES:
            return None
        corners = numpy.empty((self._count, 4, 2), numpy.float32)
        for index in range(self._count):
            library.check(library.results_corners(self._value, index, corners[index].ctypes.data))
        return corners

    @cached_property
    def probs(self) -> Probs | None:
        """The classes of the whole image, of classifiers."""
        if not self._kinds & FRAME_CLASSES:
            return None
        value = self._value
        ranks = range(library.results_frame_class_count(value))
        return Probs(
            numpy.array([library.results_frame_class_id(value, rank) for rank in ranks], numpy.int64),
            numpy.array([library.results_frame_class_confidence(value, rank) for rank in ranks], numpy.float32),
            [library.results_frame_class_label(value, rank).decode() for rank in ranks],
        )

    @cached_property
    def vector(self) -> Floats | None:
        """(d,) float32: of the whole image, of models that give vectors. Its length is 1: `one.vector @ other.vector` is near 1 for images of the
        same. None if the model's numbers make none: one is not finite, or all are 0."""
        if not self._kinds & VECTOR:
            return None
        count = c_size_t(0)
        address = library.results_vector(self._value, ctypes.byref(count))
        if not address:
            return None
        return numpy.ctypeslib.as_array((ctypes.c_float * count.value).from_address(address)).copy()

    @cached_property
    def _text(self) -> tuple[str, float] | None:
        if not self._kinds & TEXT:
            return None
        confidence = c_float(0)
        text: bytes = library.results_text(self._value, ctypes.byref(confidence))
        return text.decode(), confidence.value

    @property
    def text(self) -> str | None:
        """The text of the whole image, of models that read text; empty if nothing was read."""
        return self._text[0] if self._text else None

    @property
    def text_confidence(self) -> float | None:
        """The mean probability of its characters: 0..1."""
        return self._text[1] if self._text else None

    @cached_property
    def map(self) -> Map | None:
        """Of models for semantic segmentation and depth, and with the option mask_output="map" of models with masks."""
        if not self._kinds & MAP:
            return None
        size = (c_uint32 * 2)()
        address = library.results_map(self._value, size)
        width, height = size
        values = numpy.ctypeslib.as_array((ctypes.c_uint16 * (width * height)).from_address(address))
        values = values.reshape(height, width).copy()
        fields = json.loads(library.results_map_json(self._value))
        if fields["kind"] == "depth":
            span = fields["maximum"] - fields["minimum"]
            values = (fields["minimum"] + values * (span / 65535)).astype(numpy.float32)
        x, y, w, h = (fields[name] for name in "xywh")
        return Map(fields["kind"], values, numpy.array([x, y, x + w, y + h], numpy.float32))

    @cached_property
    def _fields(self) -> list[dict[str, Any]]:
        return [json.loads(library.results_json(self._value, index)) for index in range(self._count)]

    @cached_property
    def _classes(self) -> list[dict[str, Any]] | None:
        """The fields of the classes of the whole image."""
        if not self._kinds & FRAME_CLASSES:
            return None
        ranks = range(library.results_frame_class_count(self._value))
        return [json.loads(library.results_frame_class_json(self._value, rank)) for rank in ranks]

    @cached_property
    def _maps(self) -> list[dict[str, Any]] | None:
        """The fields of the map."""
        fields = library.results_map_json(self._value) if self._kinds & MAP else None
        return [json.loads(fields)] if fields else None

    def json(self) -> list[dict[str, Any]]:
        """All fields of each object, those of a line of JSON by trtpublish and gst-trt. to_json() gives text."""
        ids = [0] * self._count if self.track_id is None else self.track_id.tolist()
        return [{**fields, "track-id": each} if each else dict(fields) for fields, each in zip(self._fields, ids)]

    def to_json(self, frame: int = 0) -> str:
        """A line of JSON as trtpublish and `gst-trt detect --json` write them: "detections", "classes" and "maps", with "stream-time" in
        nanoseconds, null for images.

        frame: its number.
        """
        line: dict[str, Any] = {
            "stream-time": None if self.time is None else round(self.time * 1e9),
            "frame": frame,
            "width": self.width,
            "height": self.height,
            "held": False,
            "detections": [rounded(fields) for fields in self.json()],
        }
        if self._classes is not None:
            line["classes"] = [rounded(fields) for fields in self._classes]
        if self._maps is not None:
            line["maps"] = self._maps
        return json.dumps(line, ensure_ascii=False)

    def plot(self, image: NDArray[numpy.uint8] | None = None) -> NDArray[numpy.uint8]:
        """A copy of the image with boxes, masks, keypoints, names and ids, as the elements draw them: (height, width, 3) uint8, in the order
        blue, green, red.

        image: to draw on, in that order; by default the one in which the objects were found, as it is in memory now.
        """
        handle = self._handle or self._original
        if handle is None:
            raise InputError("A result that was copied or pickled cannot be drawn. Draw the original.")
        canvas = in_bgr(self._image) if image is None else numpy.array(on_host(image), order="C")
        if canvas is None:
            raise InputError("The image was on the GPU. Give it as an array in the host's memory: plot(image).")
        if canvas.shape != (self.height, self.width, 3) or canvas.dtype != numpy.uint8:
            raise InputError(
                f"The image has the shape {canvas.shape} and the type {canvas.dtype}, and ({self.height}, {self.width}, 3) of uint8 is "
                "needed."
            )
        frame = of_array(canvas, "bgr").frame()
        # NULL draws all, so that none needs an address too.
        count = 0 if self._drawn is None else len(self._drawn)
        chosen = None if self._drawn is None else (c_size_t * (count or 1))(*self._drawn.tolist())
        library.check(library.results_draw(handle.value, ctypes.byref(frame), chosen, count))
        return canvas

    def _picture(self, image: NDArray[numpy.uint8] | None) -> Any:
        """plot() as an image of Pillow."""
        try:
            from PIL import Image as pillow
        except ImportError as error:
            raise LibraryError("Pillow, which writes images, is not installed. Use pip install pillow, or plot().") from error
        return pillow.fromarray(numpy.ascontiguousarray(self.plot(image)[..., ::-1]))

    def save(self, path: str | os.PathLike[str], image: NDArray[numpy.uint8] | None = None) -> None:
        """Writes plot() to an image file, whose ending tells the format."""
        picture = self._picture(image)
        try:
            picture.save(path)
        except (OSError, ValueError) as error:
            raise ReadError(
                f"Cannot write {os.fspath(path)}: {error}. Give a path in a folder that exists, with an ending such as .jpg or .png."
            ) from error

    def show(self, image: NDArray[numpy.uint8] | None = None) -> None:
        """Opens plot() in the system's viewer of images."""
        self._picture(image).show()

    def _repr_png_(self) -> bytes | None:
        """What notebooks show; nothing where it cannot be drawn."""
        written = io.BytesIO()
        try:
            self._picture(None).save(written, "PNG")
        except Error:
            return None
        return written.getvalue()

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each object, with the fields of json(); of classifiers, for each class."""
        try:
            import pandas
        except ImportError as error:
            raise LibraryError("pandas, which makes tables, is not installed. Use pip install pandas, or json().") from error
        if probs := self.probs:
            return pandas.DataFrame({"label": probs.names, "class-id": probs.class_id, "confidence": probs.confidence})
        rows = self.json()
        return pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=["label", "class-id", "confidence", *"xywh"])

    def to_supervision(self) -> supervision.Detections | supervision.Classifications:
        """Detections of the package supervision, with masks, ids of tracks, names (data["class_name"]) and rotated boxes where there
        are such; of classifiers, Classifications."""
        if self.map is not None and self.map.kind != "objects":
            raise InputError(f"supervision has nothing for a map of {self.map.kind}. Use result.map.values.")
        try:
            import supervision
        except ImportError as error:
            raise LibraryError("The package supervision is not installed. Use pip install supervision.") from error

        if self.probs is not None:
            return supervision.Classifications(class_id=self.probs.class_id, confidence=self.probs.confidence)
        data: dict[str, Any] = {"class_name": numpy.array(self.names, dtype=numpy.str_)}
        if self.corners is not None:
            data["xyxyxyxy"] = self.corners  # supervision's ORIENTED_BOX_COORDINATES
        return supervision.Detections(
            xyxy=self.xyxy,
            mask=self.masks,
            confidence=self.confidence,
            class_id=self.class_id,
            tracker_id=self.track_id,
            data=data,
        )

    def __repr__(self) -> str:
        if self.probs is not None:
            found = ", ".join(f"{name} {score:.2f}" for name, score in zip(self.probs.names, self.probs.confidence))
        elif self.vector is not None:
            found = f"a vector of {len(self.vector)} numbers"
        elif self.text is not None:
            found = f"the text {self.text!r}" if self.text else ""
        elif self._count or not self._kinds & MAP:
            found = ", ".join(f"{count} {name}" for name, count in Counter(self.names).items())
        else:
            found = "a map"
        return f"<Result {self.width}x{self.height}: {found or 'nothing'}>"


def in_bgr(image: Image | None) -> NDArray[numpy.uint8] | None:
    """A copy."""
    if image is None:
        return None
    pixels: NDArray[numpy.uint8] = image.owner
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    pixels = numpy.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[..., :3]
    return numpy.array(pixels[..., ::-1] if image.format.startswith("RGB") else pixels, order="C")


# Decimal places in lines of JSON, as trtpublish has them.
DIGITS = {"confidence": 6, "x": 3, "y": 3, "w": 3, "h": 3, "angle": 6, "corners": 4, "keypoints": 4}


def rounded(fields: dict[str, Any]) -> dict[str, Any]:
    def each(value: Any, digits: int) -> Any:
        return [round(number, digits) for number in value] if isinstance(value, list) else round(value, digits)

    return {name: each(value, DIGITS[name]) if name in DIGITS else value for name, value in fields.items()}


# What is asked of the library when it is needed first.
LAZY = ("names", "_parts", "keypoints", "keypoint_names", "angle", "corners", "probs", "vector", "_text", "map", "_fields", "_classes", "_maps")
# What has an entry for each object.
PER_OBJECT = ("xyxy", "confidence", "class_id", "track_id", "names", "_parts", "keypoints", "angle", "corners", "_fields")
# Of this process only, or made of the others.
NOT_KEPT = ("_handle", "_image", "_original", "_drawn", "masks")
