# SPDX-License-Identifier: MPL-2.0
"""Frames of videos, with GStreamer, and of image files."""

from __future__ import annotations

import glob
import os
import re
from collections import deque
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Iterator, Sequence
from urllib.parse import unquote, urlsplit

import numpy

from . import _images, _whole
from ._options import OF_TRACKER
from ._redact import redacted
from .detector import Detector
from .errors import Error, InputError, LibraryError, NotFoundError, ReadError, SettingsError
from .result import Result
from .tracker import Tracker

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from ._options import AllOptions

    Source = str | os.PathLike[str]

IMAGES = {".jpg", ".jpeg", ".jpe", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pnm", ".jp2"}
# How addresses of streams begin that do not wait for their reader, such as those of rtspt, too.
LIVE = ("rtsp", "rtp:", "udp:", "srt:", "rist:", "rtmp", "v4l2:")

PIPELINE = (
    "uridecodebin name=source ! videoconvert ! video/x-raw,format=BGR ! videoflip video-direction=auto ! appsink name=out sync=false "
    "enable-last-sample=false"
)
# For a live stream that is faster than the model: the newest frame.
NEWEST = " max-buffers=1 drop=true"
# Else decoding is at most so far ahead.
AHEAD = " max-buffers=4"


def detect(
    source: Source | int | Sequence[Source],
    model: Source | Detector,
    *,
    tracker: str | Tracker | None = None,
    **options: Unpack[AllOptions],
) -> Iterator[tuple[NDArray[numpy.uint8], Result]]:
    """The frames of a video, or images, and what the model finds in each.

    >>> for frame, result in gsttrt.detect("a.mp4", "yolo11n.onnx", classes=["person"]):
    ...     print(result.time, result.xyxy)

    source: a video, an address such as rtsp://camera/stream, or 0 for the first camera, which GStreamer with its Python bindings reads, or
        OpenCV where these are missing; or an image, a folder of images, a pattern such as "photos/*.jpg", or a list of images, which
        Pillow reads. Videos of phones are turned upright. Where the model is slower than a live stream, GStreamer skips frames. OpenCV
        skips none, so results come later and later.
    model: as of Detector, or a Detector.
    tracker: "bytetrack" and so on as of Tracker, or a Tracker: then results have track_id.
    options: as of Detector. With batch_size=8, frames of files and images are run 8 at once; those of live streams one by one.

    Frames are (height, width, 3) uint8, in the order blue, green, red. What is wrong with source or model is raised here, what is wrong
    with a frame when it is read.
    """
    frames = open_source(source)
    given: dict[str, Any] = {name.replace("-", "_"): value for name, value in options.items()}
    if wrong := OF_TRACKER.intersection(given):
        name = sorted(wrong)[0]
        raise SettingsError(f'{name} is an option of the tracker. Give tracker=gsttrt.Tracker("bytetrack", {name}={given[name]!r}).')
    detector = model if isinstance(model, Detector) else Detector(model, **given)
    if options and detector is model:
        raise InputError(f"There is a detector already, which does not take {', '.join(options)}. Give these options to Detector().")
    following = Tracker(tracker) if isinstance(tracker, str) else tracker
    if following is not None and not isinstance(following, Tracker):
        raise InputError(f'An object of type {type(tracker).__name__} is no tracker. Give "bytetrack", or a Tracker.')
    # A frame of a live stream does not wait for others.
    return results(frames, detector, following, 1 if is_live(source) else detector.batch_size)


def results(
    frames: Iterator[Any], detector: Detector, tracker: Tracker | None, together: int
) -> Iterator[tuple[NDArray[numpy.uint8], Result]]:
    waiting: deque[tuple[NDArray[numpy.uint8], float | None]] = deque()

    def images() -> Iterator[NDArray[numpy.uint8]]:
        for frame in frames:
            waiting.append(frame)
            yield frame[0]

    detector._begin_clip()
    for result in detector._in_batches(images(), "bgr", together, goes_ahead=True):
        frame, result.time = waiting.popleft()
        yield frame, tracker.update(result) if tracker else result


def is_live(source: Source | int | Sequence[Source]) -> bool:
    """Whether it does not wait for its reader."""
    return isinstance(source, int) or (isinstance(source, str) and "://" in source and source.lower().startswith(LIVE))


def open_source(
    source: Source | int | Sequence[Source], timeout: float | None = None
) -> Iterator[tuple[NDArray[numpy.uint8], float | None]]:
    """Frames with their times in seconds; images have none. A video that gives none for so many seconds is an error."""
    if isinstance(source, int):
        return camera(source)
    if not isinstance(source, (str, os.PathLike)):
        try:
            paths = [Path(each) for each in source]
        except TypeError as error:
            raise InputError(
                f"An object of type {type(source).__name__} is no source. Give a path, an address, a list of paths of images, or the "
                "number of a camera. A Detector takes arrays."
            ) from error
        return read_images(paths)
    text = os.fspath(source)
    if not text:
        raise InputError("The source is empty. Give a path or an address.")
    if "://" in text:
        return to_the_end(text, play(text, NEWEST if is_live(text) else AHEAD, timeout))
    try:
        return of_files(text, timeout)
    except Error:
        raise
    except OSError as error:
        raise ReadError(f"Cannot read {text}: {error.strerror}. Check the path, and who may read it.") from error


def of_files(text: str, timeout: float | None) -> Iterator[tuple[NDArray[numpy.uint8], float | None]]:
    path = Path(text)
    if path.is_dir():
        return read_images(images_in(path))
    if not path.exists() and any(each in text for each in "*?["):
        matching = sorted((Path(each) for each in glob.glob(text, recursive=True)), key=by_number)
        images = [each for each in matching if each.suffix.lower() in IMAGES]
        if not images:
            raise NotFoundError(f"No image matches {text}. Check the path.")
        return read_images(images)
    if not path.exists():
        raise NotFoundError(f"There is no file {text}. Check the path.")
    if path.suffix.lower() in IMAGES:
        return read_images([path])
    uri = path.resolve().as_uri()
    return to_the_end(uri, play(uri, AHEAD, timeout))


def to_the_end(uri: str, frames: Iterator[tuple[NDArray[numpy.uint8], float | None]]) -> Iterator[tuple[NDArray[numpy.uint8], float | None]]:
    """The frames, and an error at the end of a file that is cut off there."""
    path = path_of(uri)
    try:
        yield from frames
    except ReadError as error:
        # Demuxers do not tell this: without its index, an MP4 has no streams for them.
        if path is not None and (missing := _whole.missing(path)):
            raise ReadError(f"{str(error).removesuffix('.')}. The file is cut off: {missing}. Copy or record it again.") from error
        raise
    if path is not None and (missing := _whole.missing(path)):
        raise ReadError(f"Cannot read {redacted(uri)} to its end: {missing}.")


def path_of(uri: str) -> str | None:
    """The path of an address of a file, whose bytes may be any."""
    return unquote(urlsplit(uri).path, errors="surrogateescape") if uri.lower().startswith("file://") else None


def camera(number: int) -> Iterator[tuple[NDArray[numpy.uint8], float | None]]:
    device = f"/dev/video{number}"
    if not os.path.exists(device):
        there = sorted(glob.glob("/dev/video*"))
        raise NotFoundError(f"There is no camera {device}: there is {', '.join(there) if there else 'none'}. Check that it is plugged in.")
    return play(f"v4l2://{device}", NEWEST)


def by_number(path: Path) -> list[Any]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name) if part]


def images_in(folder: Path) -> list[Path]:
    """In the order of the numbers in their names."""

    images = sorted((path for path in folder.iterdir() if path.suffix.lower() in IMAGES), key=by_number)
    if not images:
        raise NotFoundError(f"There is no image in the folder {folder}: none ends in {', '.join(sorted(IMAGES))}.")
    return images


def read_images(paths: list[Path]) -> Iterator[tuple[NDArray[numpy.uint8], None]]:
    for path in paths:
        yield numpy.ascontiguousarray(_images.load(path)[..., ::-1]), None


def gstreamer() -> Any:
    """The module Gst, initialised."""
    try:
        import gi

        gi.require_version("Gst", "1.0")
        from gi.repository import Gst  # pyright: ignore[reportAttributeAccessIssue]
    except (ImportError, ValueError) as error:
        raise LibraryError(
            f"Videos are read by GStreamer, whose Python bindings are not here: {error}. On Debian and Ubuntu: apt install python3-gi "
            "gir1.2-gstreamer-1.0 gstreamer1.0-libav gstreamer1.0-plugins-good, with /usr/bin/python3 or a virtual environment of it with "
            "--system-site-packages. In any other Python: pip install opencv-python-headless."
        ) from error
    Gst.init(None)
    return Gst


def play(uri: str, limit: str, timeout: float | None = None) -> Iterator[tuple[NDArray[numpy.uint8], float | None]]:
    try:
        Gst = gstreamer()
    except LibraryError as missing:
        return by_opencv(uri, missing, timeout)
    try:
        pipeline = Gst.parse_launch(PIPELINE + limit)
    except Exception as error:  # GLib.Error, where an element is missing
        raise LibraryError(f"GStreamer cannot read videos here: {error}. Install its base and good plugins.") from error
    source = pipeline.get_by_name("source")
    source.set_property("uri", uri)
    # Of an MP4 that is read from its beginning to its end only, as from a server, qtdemux of GStreamer 1.22 loses the last frames.
    source.set_property("download", limit == AHEAD)
    if limit == AHEAD:
        read_whole(Gst, source)
    return pull(Gst, pipeline, uri, timeout)


def read_whole(Gst: Any, source: Any) -> None:
    """qtdemux jumps to an MP4's tables. Of a server that gives no parts of files, nothing is read before the file is here to its end."""
    gives_parts = False

    def hear(_pad: Any, info: Any) -> Any:
        nonlocal gives_parts
        headers = info.get_event().get_structure()
        if headers and headers.get_name() == "http-headers":
            answer = headers.get_value("response-headers")
            units = [answer.get_value(name) for name in map(answer.nth_field_name, range(answer.n_fields())) if name.lower() == "accept-ranges"]
            gives_parts = any(str(unit).strip().lower() == "bytes" for unit in units)
        return Gst.PadProbeReturn.OK

    def added(_source: Any, _bin: Any, element: Any) -> None:
        kind = element.get_factory().get_name() if element.get_factory() else ""
        if kind == "souphttpsrc":
            element.get_static_pad("src").add_probe(Gst.PadProbeType.EVENT_DOWNSTREAM, hear)
        elif kind == "downloadbuffer" and not gives_parts:
            output = element.get_static_pad("src")
            hold = output.add_probe(Gst.PadProbeType.BLOCK | Gst.PadProbeType.PULL, lambda _pad, _info: Gst.PadProbeReturn.OK)

            def end(_pad: Any, info: Any) -> Any:
                if info.get_event().type != Gst.EventType.EOS:
                    return Gst.PadProbeReturn.OK
                output.remove_probe(hold)
                return Gst.PadProbeReturn.REMOVE

            element.get_static_pad("sink").add_probe(Gst.PadProbeType.EVENT_DOWNSTREAM, end)

    source.connect("deep-element-added", added)


def require_reader() -> None:
    """Raises what is missing, where no video can be read."""
    try:
        gstreamer()
    except LibraryError as missing:
        opencv(missing)


def opencv(missing: LibraryError) -> Any:
    """The module cv2, or the error that GStreamer has given."""
    try:
        import cv2
    except ImportError:
        raise missing from None
    if not hasattr(cv2, "VideoCapture"):
        raise missing
    return cv2


def by_opencv(uri: str, missing: LibraryError, timeout: float | None) -> Iterator[tuple[NDArray[numpy.uint8], float | None]]:
    """For Pythons without GStreamer's bindings, such as those of conda, pyenv and uv."""
    cv2 = opencv(missing)
    path = path_of(uri)
    if path is not None and not os.path.exists(path):
        raise NotFoundError(f"There is no file {path}. Check the path.")
    return frames_of(cv2, uri, uri.removeprefix("v4l2://") if path is None else path, timeout)


def frames_of(cv2: Any, uri: str, name: str, timeout: float | None) -> Iterator[tuple[NDArray[numpy.uint8], float | None]]:
    limits: list[Any] = []
    if timeout is not None:
        milliseconds = int(min(max(1000 * timeout, 1), 2**31 - 1))
        limits = [cv2.CAP_ANY, [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, milliseconds, cv2.CAP_PROP_READ_TIMEOUT_MSEC, milliseconds]]
    capture = cv2.VideoCapture(name, *limits)
    try:
        if not capture.isOpened():
            raise ReadError(f"Cannot read {redacted(uri)}: OpenCV does not open it. Check that it is a whole video, or the address.")
        count, time = 0, 0.0
        while True:
            since = monotonic()
            is_read, frame = capture.read()
            if not is_read:
                break
            count, time = count + 1, max(capture.get(cv2.CAP_PROP_POS_MSEC), 0.0) / 1000
            yield frame, time
        # It does not tell an end from a failure.
        if timeout is not None and monotonic() - since >= timeout:
            raise silent(uri, timeout)
        # Of some formats the number of frames is one of a steady rate, for as long as the sound lasts.
        wanted, reached = capture.get(cv2.CAP_PROP_FRAME_COUNT), max(count, time * capture.get(cv2.CAP_PROP_FPS))
        if wanted - reached > max(10, wanted / 10):
            came = f"{count} of {wanted:.0f} frames came"
            raise ReadError(f"Cannot read {redacted(uri)} to its end: {came}. Check that it is a whole video, or the address.")
    finally:
        capture.release()


def silent(uri: str, timeout: float) -> ReadError:
    return ReadError(f"Cannot read {redacted(uri)}: no frame came for {timeout:g} s. Check what stores or sends it.")


def pull(Gst: Any, pipeline: Any, uri: str, timeout: float | None) -> Iterator[tuple[NDArray[numpy.uint8], float | None]]:
    out, bus = pipeline.get_by_name("out"), pipeline.get_bus()
    try:
        pipeline.set_state(Gst.State.PLAYING)
        since = monotonic()
        failure: Any = None
        while True:
            # An appsink does not tell errors, the bus does. Frames from before one wait in the appsink.
            failure = failure or bus.pop_filtered(Gst.MessageType.ERROR)
            sample = out.emit("try-pull-sample", 0 if failure else Gst.SECOND // 10)
            if sample:
                yield picture(Gst, sample)
                since = monotonic()
            elif failure:
                raise ReadError(f"Cannot read {redacted(uri)}: {failure.parse_error()[0].message}")
            elif out.get_property("eos"):
                return
            elif timeout is not None and monotonic() - since > timeout:
                raise silent(uri, timeout)
    finally:
        # uridecodebin of GStreamer 1.22 fails a change that meets it while it finds out what it decodes; the next one goes on from there.
        any(pipeline.set_state(Gst.State.NULL) != Gst.StateChangeReturn.FAILURE for _ in range(3))


def picture(Gst: Any, sample: Any) -> tuple[NDArray[numpy.uint8], float | None]:
    """A copy of a frame in BGR, and its time in the video."""
    structure, buffer = sample.get_caps().get_structure(0), sample.get_buffer()
    width, height = structure.get_value("width"), structure.get_value("height")
    mapped, info = buffer.map(Gst.MapFlags.READ)
    if not mapped:
        raise ReadError("A frame of the video cannot be mapped.")
    try:
        # GStreamer pads rows to 4 bytes.
        rows = numpy.frombuffer(info.data, numpy.uint8).reshape(height, -1)
        frame = rows[:, : width * 3].reshape(height, width, 3).copy()
    finally:
        buffer.unmap(info)
    time = sample.get_segment().to_stream_time(Gst.Format.TIME, buffer.pts)
    return frame, None if time == Gst.CLOCK_TIME_NONE else time / Gst.SECOND
