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


def run_later(run: Callable[[list[One]], list[Found]]) -> Callable[[list[One]], Callable[[], list[Found]]]:
    """Runs images when their results are asked for."""
    return lambda images: lambda: run(images)


class Batches(Generic[One, Found]):
    """Images that wait for others of their kind, and results that wait for those of earlier images.

    `start` begins to run images, and what it returns gives their results. With `goes_ahead` those are asked for when the next images have
    been started.
    """

    def __init__(
        self, size: int, kind: Callable[[One], Hashable], start: Callable[[list[One]], Callable[[], list[Found]]], goes_ahead: bool
    ) -> None:
        self.size, self.kind, self.start, self.goes_ahead = size, kind, start, goes_ahead
        # By kind, with the numbers of the images.
        self.waiting: dict[Hashable, dict[int, One]] = {}
        # The images that run, with their kind, and what gives their results.
        self.running: tuple[Hashable, dict[int, One], Callable[[], list[Found]]] | None = None
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

    def held_up(self) -> int:
        """How many images were read since the one whose result comes next, but for those that run."""
        return self.read - self.due - (len(self.running[1]) if self.running else 0)

    def run_oldest(self) -> None:
        """Runs the images of the kind whose oldest one waits longest."""
        self.run_all(min(self.waiting, key=lambda kind: min(self.waiting[kind])))

    def run_all(self, kind: Hashable) -> None:
        """Runs the images of a kind together."""
        images = self.waiting.pop(kind)
        try:
            finish = self.start(list(images.values()))
        except Exception as error:
            self.fail(min(images), error)
            return
        self.take_over()
        self.running = kind, images, finish
        if not self.goes_ahead:
            self.take_over()

    def take_over(self) -> None:
        """Takes the results of the images that run."""
        if self.running is None:
            return
        (kind, images, finish), self.running = self.running, None
        indices = list(images)
        try:
            self.found.update(zip(indices, finish()))
        except WrongImage as wrong:
            index = indices[wrong.index]
            if before := {each: images[each] for each in indices[: wrong.index]}:
                self.waiting[kind] = {**before, **self.waiting.get(kind, {})}
            self.fail(index, wrong.kind(f"images[{index}]: {wrong.cause}"))
        except Exception as error:
            self.fail(indices[0], error)

    def ready(self) -> Iterator[Found]:
        """The results that may come now."""
        while self.due in self.found:
            self.due += 1
            yield self.found.pop(self.due - 1)


def in_batches(
    images: Iterator[One],
    size: int,
    kind: Callable[[One], Hashable],
    start: Callable[[list[One]], Callable[[], list[Found]]],
    goes_ahead: bool = False,
) -> Iterator[Found]:
    """What is found in each image, in their order. `start` gets `size` images of one kind, or fewer where no more of them come soon; see
    `Batches`.

    An error, of an image or of what gives them, comes after the results of those before it.
    """
    batches = Batches(size, kind, start, goes_ahead)
    while batches.failed is None:
        try:
            batches.add(next(images))
        except StopIteration:
            break
        except Exception as error:
            batches.fail(batches.read, error)
        yield from batches.ready()
        if batches.waiting and batches.held_up() >= AHEAD * size:
            batches.run_oldest()
            yield from batches.ready()
    while batches.waiting or batches.running:
        if batches.waiting:
            batches.run_oldest()
        else:
            batches.take_over()
        yield from batches.ready()
    if batches.failed is not None:
        raise batches.failed[1]
