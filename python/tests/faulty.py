# SPDX-License-Identifier: MPL-2.0
"""What ends a worker of Ray, at a moment that the test wants. Workers import it by its name."""

import itertools
import os
import signal
from pathlib import Path

import ray

import gsttrt

# Of this process.
FILES = itertools.count()


def is_worker() -> bool:
    """Not where the model is tried."""
    return ray.get_runtime_context().get_actor_id() is not None


def is_first(marker: Path) -> bool:
    """Whether nobody has been here before."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Classes:
    """Names of classes. The worker that reads them first, while it loads the model, dies."""

    def __init__(self, marker: Path, names: list) -> None:
        self.marker, self.names = marker, names

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self):
        if is_worker() and is_first(self.marker):
            die()
        return iter(self.names)


class Watched(gsttrt.Tracker):
    """A tracker that does something at a frame."""

    def __init__(self, at_frame) -> None:
        super().__init__("iou")
        self.at_frame, self.frames = at_frame, 0

    def update(self, result, time=None):
        self.frames += 1
        self.at_frame(self.frames, result)
        return super().update(result, time)


class DiesWithin:
    """Makes trackers. The first worker that comes to the third frame of a video dies."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __call__(self) -> gsttrt.Tracker:
        return Watched(self.at_frame)

    def at_frame(self, frame: int, result: gsttrt.Result) -> None:
        if frame == 3 and is_worker() and is_first(self.marker):
            self.end()

    def end(self) -> None:
        die()


class LosesTheGpu(DiesWithin):
    """The same with what the library says where a process can use the GPU no more."""

    def end(self) -> None:
        raise gsttrt.DeviceLostError("The GPU is lost to this process.")


class DiesBetween:
    """Makes trackers. The first worker that begins a second video dies."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __call__(self) -> gsttrt.Tracker:
        if is_worker() and next(FILES) == 1 and is_first(self.marker):
            die()
        return gsttrt.Tracker("iou")


class Reports:
    """Makes trackers. Each worker leaves its process id in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self) -> gsttrt.Tracker:
        if is_worker():
            (self.folder / str(os.getpid())).touch()
        return gsttrt.Tracker("iou")


def dies_of_classes() -> gsttrt.Tracker:
    """A tracker that ends each worker that comes to a frame of the clip of classes, which has its own height."""
    return Watched(lambda frame, result: die() if is_worker() and result.height == 240 else None)


def fails_at_classes() -> gsttrt.Tracker:
    """A tracker with a mistake in it that shows at these frames."""
    return Watched(lambda frame, result: [][frame] if is_worker() and result.height == 240 else None)
