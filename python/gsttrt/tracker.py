# SPDX-License-Identifier: MPL-2.0
"""Ids that stay the same from frame to frame."""

from __future__ import annotations

import ctypes
from ctypes import c_void_p
from numbers import Real
from typing import TYPE_CHECKING, Any, Sequence, cast

import numpy

from ._library import Handle, library, named_as_in_python, texts
from .errors import InputError
from .result import Result

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import TypeAlias, Unpack

    from ._options import TrackerOptions
    from .result import Floats

    Vectors: TypeAlias = "NDArray[Any] | Sequence[ArrayLike | None]"

NANOSECONDS = 1_000_000_000
# A frame in three years.
SLOWEST = 1e-8


def is_number(given: object) -> bool:
    return isinstance(given, Real)


def rows_of(vectors: Vectors, count: int) -> Floats:
    """A row of numbers for each of so many objects, of zeros for None."""
    try:
        given = [None if row is None else numpy.asarray(row, numpy.float32) for row in vectors]
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"vectors are no rows of numbers: {error}. Give one row for each object.") from error
    shapes = {row.shape for row in given if row is not None}
    if len(given) != count or len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
        shown = ", ".join(map(str, sorted(shapes)))
        raise InputError(f"vectors has {len(given)} rows of the shapes {shown}, and there are {count} objects. Give one row of equally many numbers for each.")
    rows = numpy.zeros((count, next(iter(shapes), (0,))[0]), numpy.float32)
    for at, row in enumerate(given):
        if row is not None:
            rows[at] = row
    return rows


class Tracker:
    """Gives the objects of one stream's frames ids, as trttrack does.

    >>> tracker = Tracker("bytetrack", fps=25)
    >>> for frame in frames:
    ...     result = tracker.update(detector(frame))
    ...     result.track_id

    tracker: "bytetrack", "ocsort", "botsort-iou" or "iou"; with vectors "botsort" or "deepocsort"; with them or without "boosttrack".
    fps: frames a second, where update() is not told the time of a frame.
    options: any other property of trttrack, with _ for -, such as track_thresh=0.6, lost_after=2_000_000_000 (nanoseconds).

    A detector with a low score_threshold, such as 0.1, lets faint objects keep their ids.
    """

    def __init__(self, tracker: str | None = None, *, fps: float = 30.0, **options: Unpack[TrackerOptions]) -> None:
        if not is_number(fps) or not SLOWEST <= fps < NANOSECONDS:
            raise InputError(f"fps is {fps!r}. Give the frames a second, such as 30.")
        handle, given = c_void_p(), {"tracker": tracker, **cast(Any, options)}
        with named_as_in_python():
            library.check(library.tracker_new(texts(given), ctypes.byref(handle)))
        self._handle = Handle(handle, library.tracker_free)
        self._duration = round(NANOSECONDS / fps)
        self._next = 0

    def update(self, result: Result, time: float | None = None, vectors: Vectors | None = None) -> Result:
        """Sets result.track_id, and returns the result. Call it once for each frame, in their order, also where nothing was found.

        time: of the frame in seconds; by default result.time, and without that, one frame after the last.
        vectors: what each object looks like, an array of (objects, numbers), or a list with None for objects whose looks are not known,
        which are followed by their boxes alone. All are of one model. "botsort", "deepocsort" and "boosttrack" compare them, and the others ignore them.
        """
        if not isinstance(result, Result):
            raise InputError(f"An object of type {type(result).__name__} is no result. Give what a Detector returns for one image.")
        if result._handle is None:
            raise InputError("These are copied, pickled or selected objects. Give the tracker the whole result, and copy or select then.")
        time = result.time if time is None else time
        if time is not None and not (is_number(time) and 0 <= time < 2**33):
            raise InputError(f"time is {time!r}. Give the seconds since the beginning.")
        now = self._next if time is None else round(time * NANOSECONDS)
        given = self._handle.value, result._value, now, self._duration
        if vectors is None:
            library.check(library.tracker_update(*given))
        else:
            rows = rows_of(vectors, len(result))
            library.check(library.tracker_update_with_vectors(*given, rows.ctypes.data, rows.shape[1]))
        self._next = now + self._duration
        result.track_id = result._numbers(library.results_track_id, numpy.int64)
        return result

    def reset(self) -> None:
        """Ends all tracks, as after a seek. No id is given twice."""
        library.check(library.tracker_reset(self._handle.value))
