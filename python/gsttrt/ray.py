# SPDX-License-Identifier: MPL-2.0
"""Archives of videos by Ray Data: rows of Arrow, on one machine or on many.

>>> import gsttrt.ray
>>> found = gsttrt.ray.detect("archive/", "yolo11n.onnx")
>>> found.write_parquet("found")

Ray places the workers, starts those again that die, and shows the progress. Each worker keeps its model.
"""

from __future__ import annotations

import argparse
import glob
import os
import shlex
import socket
import sys
import warnings
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Union, cast

import numpy

from ._images import VIDEOS
from ._library import MAP, input_files, warn
from ._options import OF_TRACKER, PATHS
from ._redact import redacted
from .detector import Detector
from .errors import DeviceLostError, Error, InputError, LibraryError, NotFoundError, ReadError, RunError, SettingsError
from .result import Result
from .tracker import Tracker
from .video import IMAGES, by_number, is_live, open_source, path_of, require_reader, results

try:
    import pyarrow
    import ray
    import ray.data
    from pyarrow import dataset, fs, parquet
    from ray.exceptions import RayError, RayTaskError

    from . import _rows
except ImportError as missing:
    why = f'Ray Data is not installed: {missing}. Use pip install "ray[data]>=2.60".'
    if __name__ == "__main__":
        sys.exit(f"Error: {why}")
    raise LibraryError(why) from missing

if TYPE_CHECKING:
    from typing import Literal

    from typing_extensions import TypeAlias, Unpack

    from ._options import AllOptions

Source: TypeAlias = "Union[str, os.PathLike[str]]"

# Of one video by one worker: where the process ends each time, such as in a decoder, the next ones are not tried for it.
ATTEMPTS = 3
# More files are several in a block, which keeps the lists of the driver short.
BLOCKS = 20_000
# Where there is a GPU: several workers on one, since each of them also decodes.
SHARE = 0.25
# Backends for which a GPU would be kept in vain.
ON_CPU = ("cpu", "rten")
# So many rows of Parquet in a file, if there are as many.
ROWS_A_FILE = 100_000
SHOWN = 20
# An actor that Ray starts again.
LASTING = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
WAITING = 10.0  # seconds before a user is told what is waited for

# Paths of files may be any bytes.
ITEM = pyarrow.schema({"number": pyarrow.int64(), "address": pyarrow.binary(), "error": pyarrow.string()})


class Work(NamedTuple):
    """What each worker does, as it is sent to it."""

    model: str
    options: dict[str, Any]
    rows: str
    tracker: str | Callable[[], Tracker] | None
    timeout: float

    def detector(self) -> Detector:
        return Detector(self.model, **self.options)

    def new_tracker(self) -> Tracker | None:
        return Tracker(self.tracker) if isinstance(self.tracker, str) else self.tracker and self.tracker()

    def is_on_server(self) -> bool:
        return bool("://" in self.model or self.options.get("backend") == "kserve")

    def may_take_gpu(self) -> bool:
        if self.is_on_server():
            return bool(self.options.get("shared_memory") == "cuda")
        return self.options.get("backend") not in ON_CPU


def detect(
    sources: Source | Iterable[Source],
    model: Source,
    *,
    rows: Literal["objects", "frames", "tracks"] = "objects",
    tracker: str | Callable[[], Tracker] | None = None,
    num_gpus: float | None = None,
    num_cpus: float | None = None,
    concurrency: int | tuple[int, int] | None = None,
    timeout: float = 120.0,
    **options: Unpack[AllOptions],
) -> ray.data.Dataset:
    """What a model finds in many videos, as a dataset of Ray Data.

    sources: a video, an address such as https://host/a.mp4, a folder (its videos, and those in the folders in it), a pattern such as
        "archive/**/*.mp4", or a list of such. Images are read where a pattern or a list names them. A file that is named twice is read
        once. Files must be there for each worker, by the same path.
    model: the path of an ONNX file or a TensorRT engine, or the address of a model on a server, such as grpc://host:8001/model.
    rows: "objects", "frames" or "tracks". The columns are those of schema(rows).
    tracker: "bytetrack" and so on as of Tracker, or what makes one: lambda: gsttrt.Tracker("ocsort", lost_after=2_000_000_000). For tracks it is
        "bytetrack" if nothing else is given.
    num_gpus: of each worker, such as 0.25; by default 0.25 where the cluster has a GPU, else 0. For a model on a server 0, unless
        shared_memory="cuda".
    num_cpus: of each worker; by default what leaves one CPU of each machine to Ray's other tasks, such as writing.
    concurrency: how many workers; (1, 8) for as many as Ray finds room for; by default as many as there are CPUs, or room on GPUs.
    timeout: seconds without a frame after which a video counts as unreadable.
    options: as of Detector. On the CPU each worker has one thread, if threads does not say more.

    A video that cannot be read is a row with its error, after the rows of what could be read of it; error is null in all other rows. A
    worker that dies is started again and repeats its video; no row comes twice. A video whose worker has died three times is a row with an
    error too.

    What is wrong with model and options is raised here, and where no video can be read: a worker tries both first.
    """
    work = work_of(model, rows, tracker, timeout, dict(options))
    check_workers(num_gpus, num_cpus, concurrency)
    items = list(expanded(sources))
    if not items:
        return ray.data.from_arrow(schema(rows).empty_table())
    if not ray.is_initialized():
        ray.init()
    if num_gpus is None and not work.may_take_gpu():
        num_gpus = 0.0
    workers, resources = placed(num_gpus, num_cpus, concurrency, len(items))
    if not resources["num_gpus"] and not work.is_on_server():
        work.options.setdefault("threads", max(round(num_cpus or 1), 1))
    has_videos = any(Path(item["address"]).suffix.lower() not in IMAGES for item in items if item["error"] is None)
    try_worker(work, has_videos, resources)
    minimum, maximum = workers if isinstance(workers, tuple) else (workers, workers)
    # One at a time, so that no video waits behind a long one while another worker has nothing to do.
    pool = ray.data.ActorPoolStrategy(min_size=minimum, max_size=maximum, max_tasks_in_flight_per_actor=1)
    tables = [table_of(part) for part in parts(items, -(-len(items) // BLOCKS))]
    found = ray.data.from_arrow(tables).map_batches(
        Worker,
        fn_constructor_args=(work, ray.remote(**LASTING)(Attempts).remote()),
        batch_size=1,
        batch_format="pyarrow",
        compute=pool,
        **resources,
    )
    # Long videos give no rows for hours, and `timeout` is for those that hang.
    if hasattr(found.context, "execution_no_progress_timeout_s"):
        found.context.execution_no_progress_timeout_s = -1
    return found


def schema(rows: Literal["objects", "frames", "tracks"] = "objects") -> pyarrow.Schema:
    """The columns of rows, with their types."""
    if rows not in _rows.SCHEMAS:
        raise SettingsError(f'rows is {rows!r}. Use "objects", "frames" or "tracks".')
    return _rows.SCHEMAS[rows]


def work_of(
    model: Source, rows: Any, tracker: str | Callable[[], Tracker] | None, timeout: float, options: dict[str, Any]
) -> Work:
    """What is given, checked as far as no model is needed."""
    schema(rows)
    if not isinstance(model, (str, os.PathLike)):
        raise InputError(f"An object of type {type(model).__name__} is no path of a model. Each worker loads its own: give the file.")
    if isinstance(tracker, Tracker):
        raise InputError("A tracker follows the objects of one video. Give its name, or what makes one: lambda: gsttrt.Tracker(…).")
    if wrong := OF_TRACKER.intersection(options):
        name = sorted(wrong)[0]
        raise SettingsError(f"{name} is an option of the tracker. Give tracker=lambda: gsttrt.Tracker({tracker!r}, {name}={options[name]!r}).")
    if not timeout > 0:
        raise SettingsError(f"timeout is {timeout!r}. Give the seconds without a frame after which a video is given up, such as 120.")
    # A worker has another working folder, on other machines at least.
    paths: dict[str, Any] = {name: os.path.abspath(value) for name, value in options.items() if name in PATHS and value is not None}
    values = options.get("input_values")
    if values is not None and not isinstance(values, str):
        paths["input_values"] = {name: os.path.abspath(file) for name, file in input_files(values).items()}
    if rows == "tracks" and tracker is None:
        tracker = "bytetrack"
    path = os.fspath(model)
    return Work(path if "://" in path else os.path.abspath(path), {**options, **paths}, rows, tracker, timeout)


# ------------------------------------------------------------------------------------------- sources


def expanded(sources: Source | Iterable[Source]) -> Iterator[dict[str, Any]]:
    """An item for each file, in the order given; what cannot be expanded is one that has an error."""
    known = set()
    for given in [sources] if isinstance(sources, (str, os.PathLike)) else sources:
        if not isinstance(given, (str, os.PathLike)):
            raise InputError(f"An object of type {type(given).__name__} is no source. Give paths and addresses of videos.")
        for address, error in files_of(os.fspath(given)):
            if address not in known:
                known.add(address)
                yield {"number": len(known), "address": address, "error": error}


def files_of(source: str) -> Iterator[tuple[str, str | None]]:
    if is_live(source):
        raise InputError(f"{redacted(source)} is a live stream, which has no end. Give videos; gst-trt serve is for cameras.")
    source = path_of(source) or source
    if not source:
        raise InputError("A source is empty. Give paths and addresses of videos.")
    if "://" in source:
        yield source, None
    elif os.path.isdir(source):
        yield from videos_in(source)
    elif any(each in source for each in "*?[") and not os.path.exists(source):
        # One that matches nothing stays as it is, and is an error like any file that is not there.
        found = sorted(glob.glob(source, recursive=True), key=lambda path: by_number(Path(path))) or [source]
        files = [path for path in found if not os.path.isdir(path)]
        yield from ((os.path.abspath(path), None) for path in files)
        how = f"Give '{source.rstrip('/')}/**/*.mp4' for the videos in them."
        if not files:
            yield os.path.abspath(source), f"The pattern {source} finds folders and no file. {how}"
        elif len(files) < len(found) and "**" not in source.split("/"):
            warn(f"The pattern {source} finds folders, too, which are left out. {how}")
    else:
        yield os.path.abspath(source), None


def videos_in(folder: str) -> Iterator[tuple[str, str | None]]:
    """Those of the folders in it too, by their endings, in the order of numbers in their names."""
    count = 0
    unreadable: list[OSError] = []
    for parent, folders, names in os.walk(folder, onerror=unreadable.append):
        folders.sort(key=lambda name: by_number(Path(name)))
        for path in sorted((Path(parent, name) for name in names), key=by_number):
            if path.suffix.lower() in VIDEOS:
                count += 1
                yield os.path.abspath(path), None
    for error in unreadable:
        yield os.path.abspath(error.filename), f"Cannot read the folder {error.filename}: {error.strerror}."
    if not count and not unreadable:
        yield os.path.abspath(folder), f"There is no video in the folder {folder}: none ends in {', '.join(sorted(VIDEOS))}."


def parts(items: list[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def table_of(items: list[dict[str, Any]]) -> pyarrow.Table:
    rows = [{**item, "address": os.fsencode(item["address"]), "error": item["error"] and as_text(item["error"])} for item in items]
    return pyarrow.Table.from_pylist(rows, ITEM)


def as_text(text: str) -> str:
    """Without what is no UTF-8 in a path: its bytes are written by their numbers, as gst-trt does."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


# ------------------------------------------------------------------------------------------- resources


def check_workers(num_gpus: float | None, num_cpus: float | None, concurrency: int | tuple[int, int] | None) -> None:
    for name, part in (("num_gpus", num_gpus), ("num_cpus", num_cpus)):
        if part is not None and not part >= 0:
            raise SettingsError(f"{name} is {part!r}. Give what each worker takes, such as 0.25; or leave it out.")
    least, most = concurrency if isinstance(concurrency, tuple) else (concurrency, concurrency)
    if least is not None and most is not None and not 1 <= least <= most:
        raise SettingsError(f"The number of workers is {concurrency!r}. Give it as 4, or as the least and the most; or leave it out.")


def placed(
    num_gpus: float | None, num_cpus: float | None, concurrency: int | tuple[int, int] | None, files: int
) -> tuple[int | tuple[int, int], dict[str, float]]:
    """How many workers, and what each of them takes."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cpus, gpus = (sum(node.get(name, 0.0) for node in nodes) for name in ("CPU", "GPU"))
    if num_gpus is None:
        num_gpus = SHARE if gpus else 0.0
    if concurrency is None:
        # Where there is no room yet, an autoscaler makes it.
        room = (gpus / num_gpus if num_gpus else cpus / max(num_cpus or 1.0, 1.0)) or 1
        concurrency = max(1, min(int(room), files))
    most = concurrency[1] if isinstance(concurrency, tuple) else concurrency
    if num_cpus is None:
        # If workers took all, Ray could write nothing, and would wait forever.
        left = max(cpus - sum(1 for node in nodes if node.get("CPU", 0.0)), 0.0)
        num_cpus = min(1.0, int(left / most * 1000) / 1000)
    return concurrency, {"num_gpus": num_gpus, "num_cpus": num_cpus}


def try_worker(work: Work, has_videos: bool, resources: dict[str, float]) -> None:
    """Loads the model once, where a worker would, and what reads videos."""
    trial = ray.remote(load).options(**resources).remote(work, has_videos)
    if not ray.wait([trial], timeout=WAITING)[0]:
        wanted = " and ".join(f"{value:g} {name[4:-1].upper()}" for name, value in resources.items() if value)
        print(f"Waiting for the model, which is loaded where {wanted or 'there is room'} is free.", file=sys.stderr)
    try:
        is_map = ray.get(trial)
    except RayError as error:
        if isinstance(error, RayTaskError) and isinstance(error.cause, Error):
            raise error.cause from None
        raise RunError(
            f"No worker of Ray can load the model {work.model}: {error}. Each machine needs the package gsttrt, and the model by that path."
        ) from error
    if is_map:
        raise SettingsError(_rows.NO_COLUMN)


def load(work: Work, has_videos: bool) -> bool:
    """Whether the model finds no objects, but a map."""
    work.new_tracker()
    if has_videos:
        require_reader()
    with work.detector() as detector:
        return detector(numpy.zeros((64, 64, 3), numpy.uint8))._kinds == MAP


# ------------------------------------------------------------------------------------------- workers


class Attempts:
    """Counts how often workers have begun a file that they have not finished."""

    def __init__(self) -> None:
        self.begun: Counter[tuple[str, int]] = Counter()

    def begin(self, worker: str, number: int) -> int:
        self.begun[worker, number] += 1
        return self.begun[worker, number]

    def end(self, worker: str, number: int) -> None:
        self.begun.pop((worker, number), None)


class Worker:
    """An actor with its model. Ray keeps its name if it is started again."""

    def __init__(self, work: Work, attempts: Any) -> None:
        self.work, self.attempts = work, attempts
        self.name: str = ray.get_runtime_context().get_actor_id()
        self.detector = work.detector()

    def __call__(self, items: pyarrow.Table) -> Iterator[pyarrow.Table]:
        for item in items.to_pylist():
            yield from self.tables(item["number"], os.fsdecode(item["address"]), item["error"])

    def tables(self, number: int, address: str, error: str | None) -> Iterator[pyarrow.Table]:
        """The rows of a file, when it is finished: a worker that dies before that leaves none."""
        rows = _rows.ROWS[self.work.rows]()
        begun: int = ray.get(self.attempts.begin.remote(self.name, number))
        if error is None and begun > ATTEMPTS:
            error = f"The process that read it has died {ATTEMPTS} times. Ray's logs of this worker say of what."
        if error is None:
            error = self.read(address, rows)
        yield from rows.tables(as_text(redacted(address)), error and as_text(error))
        self.attempts.end.remote(self.name, number)

    def read(self, address: str, rows: Any) -> str | None:
        """Adds what is found, and returns why not all of it could be read."""
        try:
            tracker, frames = self.work.new_tracker(), open_source(address, self.work.timeout)
            count = 0
            with closing(cast(Any, results(frames, self.detector, tracker, self.detector.batch_size))) as found:
                for _, result in found:
                    rows.add(count, cast(Result, result))
                    count += 1
            if not count:
                raise ReadError(f"There is no frame in {redacted(address)}. Check that it is a whole video.")
        except DeviceLostError as lost:
            # A new process can use the GPU again, and Ray starts one.
            print(lost, file=sys.stderr, flush=True)
            os._exit(1)
        except Error as failure:
            return redacted(str(failure))
        except Exception as failure:
            return f"{type(failure).__name__}: {redacted(str(failure))}"
        return None


# ------------------------------------------------------------------------------------------- the command


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m gsttrt.ray",
        description="Detects in many videos with Ray, and writes Parquet.",
        epilog="@videos.txt stands for the lines of that file.",
    )
    parser.add_argument("sources", nargs="+", metavar="VIDEO", help="a video, an address, a folder of videos, or a pattern in quotes")
    parser.add_argument("--model", required=True, help="an ONNX file or a TensorRT engine")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="a folder for Parquet files, which is empty or not there")
    parser.add_argument("--rows", choices=sorted(_rows.SCHEMAS), default="objects", help="a row for each of these (default: objects)")
    parser.add_argument("--track", metavar="TRACKER", help="bytetrack, ocsort, botsort-iou, iou or boosttrack; of tracks bytetrack is the default")
    parser.add_argument("--num-gpus", type=float, metavar="PART", help="of each worker (default: 0.25 where there is a GPU, else 0)")
    parser.add_argument("--num-cpus", type=float, metavar="PART", help="of each worker")
    parser.add_argument("--workers", type=int, metavar="COUNT", help="(default: as many as there are CPUs, or room on GPUs)")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="without a frame; then a video counts as unreadable")
    parser.add_argument("--address", help="of a Ray cluster, such as auto (default: RAY_ADDRESS, else this machine)")
    parser.add_argument("--options", default="", metavar="TEXT", help='of the model, such as "score-threshold=0.5 classes=person,car"')
    given = parser.parse_args(arguments)
    warnings.showwarning = lambda message, *_, **__: print(f"Warning: {message}", file=sys.stderr)
    try:
        return write(given)
    except (Error, RayError, ConnectionError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def write(given: argparse.Namespace) -> int:
    options: dict[str, Any] = {}
    try:
        given_options = shlex.split(given.options)
    except ValueError as error:
        raise SettingsError(f"--options {given.options!r} cannot be read: {error}. Close each quotation mark, and write \\\\ for a backslash.") from error
    for option in given_options:
        name, equals, value = option.partition("=")
        if not equals:
            raise SettingsError(f"The option {option!r} has no value. Write name=value, such as score-threshold=0.5.")
        name = name.replace("-", "_")
        if name in ("sources", "model", *(detect.__kwdefaults__ or ())):
            raise SettingsError(f"{name} is no option of the model. The command has one for it: python -m gsttrt.ray --help")
        options[name] = value
    sources = list(listed(given.sources))
    if not sources:
        raise InputError("The list of sources is empty.")
    out = given.out if "://" in given.out else os.path.abspath(given.out)
    require_empty(out)
    if not ray.is_initialized():
        require_cluster(given.address or os.environ.get("RAY_ADDRESS", ""))
        ray.init(address=given.address)
    found = detect(
        sources,
        given.model,
        rows=given.rows,
        tracker=given.track,
        num_gpus=given.num_gpus,
        num_cpus=given.num_cpus,
        concurrency=given.workers,
        timeout=given.timeout,
        **options,
    )
    found.write_parquet(out, min_rows_per_file=ROWS_A_FILE)
    return report(out, schema(given.rows))


def listed(sources: list[str]) -> Iterator[str]:
    """The sources, and for @videos.txt the lines of that file, as gst-trt reads it."""
    for source in sources:
        if not source.startswith("@") or os.path.exists(source):
            yield source
            continue
        try:
            lines = Path(source[1:]).read_bytes().split(b"\n")
        except OSError as error:
            raise ReadError(f"Cannot read the list of sources {source[1:]}: {error.strerror}.") from error
        yield from (os.fsdecode(line.strip()) for line in lines if line.strip())


def require_empty(out: str) -> None:
    try:
        files, folder = fs.FileSystem.from_uri(out)
        there = files.get_file_info(folder).is_file or files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"Cannot write to {redacted(out)}: {error}") from error
    if there:
        raise InputError(f"There is something in {redacted(out)} already, and rows would stand there twice. Give another folder.")


def require_cluster(address: str) -> None:
    """Ray itself would try an address for minutes at which nobody answers."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), WAITING).close()
        except OSError as error:
            raise NotFoundError(f"There is no Ray at {address}: {error}. Start it with: ray start --head") from error


def report(out: str, columns: pyarrow.Schema) -> int:
    """Says what was written, and what could not be read."""
    files, folder = fs.FileSystem.from_uri(out)
    files.create_dir(folder)
    if not any(file.is_file for file in files.get_file_info(fs.FileSelector(folder))):
        # Ray writes no file without rows, and what reads the folder wants columns.
        parquet.write_table(columns.empty_table(), f"{folder}/empty.parquet", filesystem=files)
    written = dataset.dataset(folder, columns, "parquet", files)
    errors = written.to_table(["source", "error"], filter=dataset.field("error").is_valid()).sort_by("source")
    failed = errors.to_pylist()
    print(f"{written.count_rows() - len(failed)} rows are in {out}.")
    for row in failed[:SHOWN]:
        print(f"{row['source']}: {row['error']}", file=sys.stderr)
    if len(failed) > SHOWN:
        print(f"… and {len(failed) - SHOWN} more: the rows whose error is not null.", file=sys.stderr)
    if failed:
        print(f"Error: {len(failed)} of the videos could not be read, or not to their end.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    # Workers look for the module by its name.
    from gsttrt.ray import main as command

    sys.exit(command())
