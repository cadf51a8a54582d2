# SPDX-License-Identifier: MPL-2.0
"""Ids that stay the same from frame to frame."""

from __future__ import annotations

import ctypes
from ctypes import c_void_p

import numpy

from ._library import Handle, Option, library, texts
from .errors import InputError
from .result import Result

NANOSECONDS = 1_000_000_000


class Tracker:
    """Gives the objects of one stream's frames ids, as trttrack does.

    >>> tracker = Tracker("bytetrack", fps=25)
    >>> for frame in frames:
    ...     result = tracker.update(detector(frame))
    ...     result.track_id

    tracker: "bytetrack", "ocsort", "botsort-iou" or "iou".
    fps: frames a second, where update() is not told the time of a frame.
    options: any other property of trttrack, with _ for -, such as track_thresh=0.6, lost_after=2_000_000_000 (nanoseconds).

    A detector with a low score_threshold, such as 0.1, lets faint objects keep their ids.
    """

    def __init__(self, tracker: str | None = None, *, fps: float = 30.0, **options: Option | None) -> None:
        if not 0 < fps < NANOSECONDS:
            raise InputError(f"fps is {fps}. Give the frames a second, such as 30.")
        handle = c_void_p()
        library.check(library.tracker_new(texts({"tracker": tracker, **options}), ctypes.byref(handle)))
        self._handle = Handle(handle, library.tracker_free)
        self._duration = round(NANOSECONDS / fps)
        self._next = 0

    def update(self, result: Result, time: float | None = None) -> Result:
        """Sets result.track_id, and returns the result. Call it once for each frame, in their order, also where nothing was found.

        time: of the frame in seconds; by default result.time, and without that, one frame after the last.
        """
        time = result.time if time is None else time
        if time is not None and not 0 <= time < 2**33:
            raise InputError(f"time is {time}. Give the seconds since the beginning.")
        now = self._next if time is None else round(time * NANOSECONDS)
        library.check(library.tracker_update(self._handle.value, result._handle.value, now, self._duration))
        self._next = now + self._duration
        result.track_id = result._numbers(library.results_track_id, numpy.int64)
        return result

    def reset(self) -> None:
        """Ends all tracks, as after a seek. No id is given twice."""
        library.check(library.tracker_reset(self._handle.value))
