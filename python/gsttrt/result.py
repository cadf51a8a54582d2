# SPDX-License-Identifier: MPL-2.0
"""What a model found in an image, as arrays."""

from __future__ import annotations

import ctypes
import json
from collections import Counter
from ctypes import c_uint32
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from ._library import FRAME_CLASSES, KEYPOINTS, MAP, MASKS, ROTATED_BOXES, Handle, library

if TYPE_CHECKING:
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
    """What a model found in an image: n objects, in order of descending confidence; or the classes of the whole image; or a map.

    Coordinates are in pixels of the image: x to the right, y down, 0, 0 is the corner of the left upper pixel.
    What the model does not give is None. Where it gives it and found nothing, arrays have a first dimension of 0.
    """

    def __init__(self, handle: Handle, width: int, height: int) -> None:
        self._handle = handle
        self.width, self.height = width, height
        """The image's size in pixels."""
        self.time: float | None = None
        """The time of the frame in its video in seconds; None for images."""
        self.track_id: Integers | None = None
        """(n,) int64: set by Tracker.update: the same from frame to frame, from 1 on, and 0 for objects without one."""
        value = handle.value
        self._kinds: int = library.results_kinds(value)
        count: int = library.results_count(value)
        self._count = count
        boxes = numpy.empty((count, 4), numpy.float32)
        for index in range(count):
            library.check(library.results_box(value, index, boxes.ctypes.data + 16 * index))
        boxes[:, 2:] += boxes[:, :2]
        self.xyxy: Floats = boxes
        """(n, 4) float32: left, top, right, bottom, inside the image. Of rotated boxes, the upright boxes around them."""
        self.confidence: Floats = self._numbers(library.results_confidence, numpy.float32)
        """(n,) float32, 0..1"""
        self.class_id: Integers = self._numbers(library.results_class_id, numpy.int64)
        """(n,) int64"""

    def _numbers(self, function: Any, dtype: Any) -> NDArray[Any]:
        value = self._handle.value
        return numpy.fromiter((function(value, index) for index in range(self._count)), dtype, self._count)

    def __len__(self) -> int:
        """The number of objects."""
        return self._count

    @cached_property
    def names(self) -> list[str]:
        """n names of classes; of a class without a name, # and its id."""
        return [library.results_label(self._handle.value, index).decode() for index in range(self._count)]

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
        rectangle = (c_uint32 * 4)()
        address = library.results_mask(self._handle.value, self._index(index), rectangle)
        left, top, width, height = rectangle
        if not address and not self._kinds & MASKS:
            raise ValueError("The model gives no masks.")
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
        value = self._handle.value
        points = numpy.empty((self._count, library.results_keypoint_count(value), 3), numpy.float32)
        for index, keypoint in numpy.ndindex(points.shape[:2]):
            library.check(library.results_keypoint(value, index, keypoint, points[index, keypoint].ctypes.data))
        return points

    @cached_property
    def keypoint_names(self) -> list[str] | None:
        """k names; None if the model has none."""
        count = library.results_keypoint_count(self._handle.value)
        found = [library.results_keypoint_name(self._handle.value, keypoint) for keypoint in range(count)]
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
            library.check(library.results_corners(self._handle.value, index, corners[index].ctypes.data))
        return corners

    @cached_property
    def probs(self) -> Probs | None:
        """The classes of the whole image, of classifiers."""
        if not self._kinds & FRAME_CLASSES:
            return None
        value = self._handle.value
        ranks = range(library.results_frame_class_count(value))
        return Probs(
            numpy.array([library.results_frame_class_id(value, rank) for rank in ranks], numpy.int64),
            numpy.array([library.results_frame_class_confidence(value, rank) for rank in ranks], numpy.float32),
            [library.results_frame_class_label(value, rank).decode() for rank in ranks],
        )

    @cached_property
    def map(self) -> Map | None:
        """Of models for semantic segmentation and depth, and with the option mask_output="map" of models with masks."""
        if not self._kinds & MAP:
            return None
        size = (c_uint32 * 2)()
        address = library.results_map(self._handle.value, size)
        width, height = size
        values = numpy.ctypeslib.as_array((ctypes.c_uint16 * (width * height)).from_address(address))
        values = values.reshape(height, width).copy()
        fields = json.loads(library.results_map_json(self._handle.value))
        if fields["kind"] == "depth":
            span = fields["maximum"] - fields["minimum"]
            values = (fields["minimum"] + values * (span / 65535)).astype(numpy.float32)
        x, y, w, h = (fields[name] for name in "xywh")
        return Map(fields["kind"], values, numpy.array([x, y, x + w, y + h], numpy.float32))

    def json(self) -> list[dict[str, Any]]:
        """All fields of each object, those of a line of JSON by trtpublish and gst-trt."""
        return [json.loads(library.results_json(self._handle.value, index)) for index in range(self._count)]

    def to_supervision(self) -> supervision.Detections | supervision.Classifications:
        """Detections of the package supervision, with masks, ids of tracks, names (data["class_name"]) and rotated boxes where there
        are such; of classifiers, Classifications."""
        import supervision

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
        elif self._count or not self._kinds & MAP:
            found = ", ".join(f"{count} {name}" for name, count in Counter(self.names).items())
        else:
            found = "a map"
        return f"<Result {self.width}x{self.height}: {found or 'nothing'}>"
