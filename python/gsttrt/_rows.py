# SPDX-License-Identifier: MPL-2.0
"""Results of videos as tables of Arrow: a row for each object, frame or track. The names are those of messages, with _ for -."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple

import numpy
import pyarrow

from ._library import MAP, VECTOR
from .errors import SettingsError

if TYPE_CHECKING:
    from .result import Result

TEXT, NUMBER, COUNT, FLOAT, SECONDS = pyarrow.string(), pyarrow.int64(), pyarrow.int32(), pyarrow.float32(), pyarrow.float64()
FLOATS, TEXTS, COUNTS = pyarrow.list_(FLOAT), pyarrow.list_(TEXT), pyarrow.list_(COUNT)

OBJECT = {
    "label": TEXT,
    "class_id": COUNT,
    "confidence": FLOAT,
    "x": FLOAT,
    "y": FLOAT,
    "w": FLOAT,
    "h": FLOAT,
    "track_id": NUMBER,
    "angle": FLOAT,
    "corners": FLOATS,
    "keypoints": FLOATS,
    "mask_x": COUNT,
    "mask_y": COUNT,
    "mask_width": COUNT,
    "mask_height": COUNT,
    "mask_counts": TEXT,
    "attributes": TEXTS,
    "attribute_class_ids": COUNTS,
    "attribute_confidences": FLOATS,
    "vector": FLOATS,
}
FRAME = {"source": TEXT, "frame": NUMBER, "time": SECONDS, "width": COUNT, "height": COUNT}
TRACK = {
    "source": TEXT,
    "track_id": NUMBER,
    "label": TEXT,
    "class_id": COUNT,
    "first_frame": NUMBER,
    "last_frame": NUMBER,
    "first_time": SECONDS,
    "last_time": SECONDS,
    "frames": NUMBER,
    "mean_confidence": FLOAT,
    "best_frame": NUMBER,
    "best_time": SECONDS,
    "confidence": FLOAT,
    "x": FLOAT,
    "y": FLOAT,
    "w": FLOAT,
    "h": FLOAT,
    "width": COUNT,
    "height": COUNT,
    "attributes": TEXTS,
    "attribute_class_ids": COUNTS,
    "attribute_confidences": FLOATS,
}
# The error of a video stands in a row of its own.
ERROR = {"error": TEXT}

SCHEMAS = {
    "objects": pyarrow.schema({**FRAME, **OBJECT, **ERROR}),
    "frames": pyarrow.schema({**FRAME, "count": COUNT, "objects": pyarrow.list_(pyarrow.struct(OBJECT)), **ERROR}),
    "tracks": pyarrow.schema({**TRACK, **ERROR}),
}
NO_COLUMN = "This model gives a map for each frame, for which rows have no column. Use gsttrt.detect(…)."
# Frames that are kept as arrays of their own before they become a table.
TOGETHER = 512


def columns_of(result: Result) -> dict[str, Any]:
    """The objects of a frame, column by column; of a classifier its classes, of a reader its text, and of a model of vectors its vector, which
    have no box. None where there is nothing."""
    if result._kinds == MAP:
        raise SettingsError(NO_COLUMN)
    if result.probs is not None:
        return {"label": result.probs.names, "class_id": result.probs.class_id, "confidence": result.probs.confidence}
    if result.text is not None:
        found = 1 if result.text else 0
        return {"label": [result.text] * found, "class_id": [None] * found, "confidence": [result.text_confidence] * found}
    if result._kinds & VECTOR:
        # Some pictures have none, such as black ones.
        vectors = [] if result.vector is None else [result.vector]
        nothing = [None] * len(vectors)
        return {"label": nothing, "class_id": nothing, "confidence": nothing, "vector": vectors}
    left, top, right, bottom = result.xyxy.T
    columns: dict[str, Any] = {
        "label": result.names,
        "class_id": result.class_id,
        "confidence": result.confidence,
        "x": left,
        "y": top,
        "w": right - left,
        "h": bottom - top,
    }
    if result.track_id is not None:
        columns["track_id"] = [each or None for each in result.track_id.tolist()]
    if result.angle is not None:
        columns["angle"] = result.angle
    for name, points in (("corners", result.corners), ("keypoints", result.keypoints)):
        if points is not None:
            columns[name] = [each.ravel() for each in points]
    if result._parts is not None:
        fields = result.json()
        for name in OBJECT:
            if name.startswith("mask_"):
                columns[name] = [each.get(name.replace("_", "-")) for each in fields]
    return columns


class FrameColumns(NamedTuple):
    """A frame with the columns of its objects."""

    frame: int
    time: float | None
    width: int
    height: int
    found: int
    columns: dict[str, Any]


class ObjectRows:
    """A row for each object of a video."""

    schema = SCHEMAS["objects"]

    def __init__(self) -> None:
        self.waiting: list[FrameColumns] = []
        self.done: list[pyarrow.Table] = []

    def add(self, frame: int, result: Result) -> None:
        columns = columns_of(result)
        self.waiting.append(FrameColumns(frame, result.time, result.width, result.height, len(columns["label"]), columns))
        if len(self.waiting) == TOGETHER:
            self.gather()

    def gather(self) -> None:
        """Makes a table of what waits, which needs less memory."""
        if self.waiting:
            self.done.append(self.table(self.waiting))
            self.waiting = []

    def table(self, seen: list[FrameColumns]) -> pyarrow.Table:
        counts = [each.found for each in seen]
        columns = {
            name: pyarrow.array(repeated(seen, name, counts), self.schema.field(name).type) for name in ("frame", "time", "width", "height")
        }
        return with_schema({**columns, **objects(seen)}, self.schema, sum(counts))

    def tables(self, source: str, error: str | None) -> Iterator[pyarrow.Table]:
        """All rows of the video, and one for its error. At least one table comes, which may be empty."""
        self.gather()
        last = [] if error is None else [with_schema({"error": pyarrow.array([error], TEXT)}, self.schema, 1)]
        for table in self.done + last or [self.schema.empty_table()]:
            yield table.set_column(0, "source", pyarrow.repeat(pyarrow.scalar(source, TEXT), len(table)))


class FrameRows(ObjectRows):
    """A row for each frame of a video, with a list of its objects."""

    schema = SCHEMAS["frames"]

    def table(self, seen: list[FrameColumns]) -> pyarrow.Table:
        columns = {
            name: pyarrow.array([getattr(each, name) for each in seen], self.schema.field(name).type)
            for name in ("frame", "time", "width", "height")
        }
        columns["count"] = pyarrow.array([each.found for each in seen], COUNT)
        found = objects(seen)
        total = sum(each.found for each in seen)
        values = [found[name] if name in found else pyarrow.nulls(total, kind) for name, kind in OBJECT.items()]
        structs = pyarrow.StructArray.from_arrays(values, fields=list(pyarrow.struct(OBJECT)))
        offsets = numpy.cumsum([0, *(each.found for each in seen)]).astype(numpy.int32)
        return with_schema({**columns, "objects": pyarrow.ListArray.from_arrays(pyarrow.array(offsets), structs)}, self.schema, len(seen))


def repeated(seen: list[FrameColumns], name: str, counts: list[int]) -> list[Any]:
    return [getattr(each, name) for each, count in zip(seen, counts) for _ in range(count)]


def objects(seen: list[FrameColumns]) -> dict[str, pyarrow.Array]:
    """The columns of all objects, one below the other. All frames of a video that have objects have the same ones; of a model that sees
    clips, frames with which none ends have others."""
    seen = [each for each in seen if each.found] or seen[:1]
    columns = {}
    for name in seen[0].columns:
        kind = OBJECT[name]
        values = [each.columns[name] for each in seen]
        if isinstance(values[0], numpy.ndarray):
            columns[name] = pyarrow.array(numpy.concatenate(values), kind)
        else:
            columns[name] = pyarrow.array([value for part in values for value in part], kind)
    return columns


def with_schema(columns: dict[str, pyarrow.Array], schema: pyarrow.Schema, rows: int) -> pyarrow.Table:
    return pyarrow.table([columns[field.name] if field.name in columns else pyarrow.nulls(rows, field.type) for field in schema], schema)


class TrackSummary:
    """What is kept of a track while its video is read."""

    def __init__(self, first: dict[str, Any]) -> None:
        self.first, self.last, self.best = first, first, first
        self.labels: Counter[tuple[int, str]] = Counter()
        self.confidence = 0.0

    def add(self, seen: dict[str, Any]) -> None:
        self.last = seen
        self.labels[seen["class_id"], seen["label"]] += 1
        self.confidence += seen["confidence"]
        if seen["confidence"] > self.best["confidence"]:
            self.best = seen

    def row(self, number: int) -> dict[str, Any]:
        # Of two that are as frequent, the one that came first.
        [((class_id, label), _)] = self.labels.most_common(1)
        frames = sum(self.labels.values())
        best = {name: self.best[name] for name in ("confidence", "x", "y", "w", "h", "width", "height")}
        return {
            "track_id": number,
            "label": label,
            "class_id": class_id,
            "first_frame": self.first["frame"],
            "last_frame": self.last["frame"],
            "first_time": self.first["time"],
            "last_time": self.last["time"],
            "frames": frames,
            "mean_confidence": self.confidence / frames,
            "best_frame": self.best["frame"],
            "best_time": self.best["time"],
            **best,
        }


class TrackRows:
    """A row for each track of a video. Objects without an id are left out."""

    schema = SCHEMAS["tracks"]

    def __init__(self) -> None:
        self.tracks: dict[int, TrackSummary] = {}

    def add(self, frame: int, result: Result) -> None:
        columns = columns_of(result)
        shared = {"frame": frame, "time": result.time, "width": result.width, "height": result.height}
        names = ("class_id", "label", "confidence", "x", "y", "w", "h")
        for index, number in enumerate(columns.get("track_id", [])):
            if number is not None:
                seen = {**shared, **{name: plain(columns[name][index]) for name in names}}
                if number not in self.tracks:
                    self.tracks[number] = TrackSummary(seen)
                self.tracks[number].add(seen)

    def tables(self, source: str, error: str | None) -> Iterator[pyarrow.Table]:
        rows = [{"source": source, **track.row(number)} for number, track in sorted(self.tracks.items())]
        yield pyarrow.Table.from_pylist(rows + ([] if error is None else [{"source": source, "error": error}]), self.schema)


def plain(value: Any) -> Any:
    """A number of Python for one of NumPy."""
    return value.item() if isinstance(value, numpy.generic) else value


ROWS: dict[str, type[Any]] = {"objects": ObjectRows, "frames": FrameRows, "tracks": TrackRows}
