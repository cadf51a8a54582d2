# SPDX-License-Identifier: MPL-2.0
"""Images one after the other, run several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Generic, Hashable, Iterator, TypeVar

if TYPE_CHECKING:
    from .errors import Error

One = TypeVar("One")
Found = TypeVar("Found")

# So many batches are read at most before the oldest image is run, where images of several kinds take turns.
AHEAD = 4


class WrongImage(Exception):
    """One image of several cannot be used."""

    def __init__(self, index: int, kind: type[Error], cause: str) -> None:
        self.index, self.kind, self.cause = index, kind, cause


class Batches(Generic[One, Found]):
    """Images that wait for others of their kind, and results that wait for those of earlier images."""

    def __init__(self, size: int, kind: Callable[[One], Hashable], run: Callable[[list[One]], list[Found]]) -> None:
        self.size, self.kind, self.run = size, kind, run
        # By kind, with the numbers of the images.
        self.waiting: dict[Hashable, dict[int, One]] = {}
        self.found: dict[int, Found] = {}
        # The number of the image whose result comes next, and the one behind the last that was read.
        self.due = self.read = 0
        # Of which no result comes, nor of those behind it.
        self.failed: tuple[int, Exception] | None = None

    def fail(self, index: int, error: Exception) -> None:
        """Nothing behind this one is wanted any more."""
        if self.failed is None or index < self.failed[0]:
            self.failed = index, error
            kept = {kind: {each: one for each, one in images.items() if each < index} for kind, images in self.waiting.items()}
            self.waiting = {kind: images for kind, images in kept.items() if images}

    def add(self, image: One) -> None:
        kind = self.kind(image)
        images = self.waiting.setdefault(kind, {})
        images[self.read] = image
        self.read += 1
        if len(images) == self.size:
            self.run_all(kind)

    def run_oldest(self) -> None:
        """Runs the images of the kind whose oldest one waits longest."""
        self.run_all(min(self.waiting, key=lambda kind: min(self.waiting[kind])))

    def run_all(self, kind: Hashable) -> None:
        """Runs the images of a kind together."""
        images = self.waiting.pop(kind)
        indices = list(images)
        try:
            self.found.update(zip(indices, self.run(list(images.values()))))
        except WrongImage as wrong:
            index = indices[wrong.index]
            if before := {each: images[each] for each in indices[: wrong.index]}:
                self.waiting[kind] = before
            self.fail(index, wrong.kind(f"images[{index}]: {wrong.cause}"))
        except Exception as error:
            self.fail(indices[0], error)

    def ready(self) -> Iterator[Found]:
        """The results that may come now."""
        while self.due in self.found:
            self.due += 1
            yield self.found.pop(self.due - 1)


def in_batches(
    images: Iterator[One], size: int, kind: Callable[[One], Hashable], run: Callable[[list[One]], list[Found]]
) -> Iterator[Found]:
    """What `run` finds in each image, in their order. It gets `size` images of one kind, or fewer where no more of them come soon.

    An error, of an image or of what gives them, comes after the results of those before it.
    """
    batches = Batches(size, kind, run)
    while batches.failed is None:
        try:
            batches.add(next(images))
        except StopIteration:
            break
        except Exception as error:
            batches.fail(batches.read, error)
        yield from batches.ready()
        if batches.waiting and batches.read - batches.due >= AHEAD * size:
            batches.run_oldest()
            yield from batches.ready()
    while batches.waiting:
        batches.run_oldest()
        yield from batches.ready()
    if batches.failed is not None:
        raise batches.failed[1]
