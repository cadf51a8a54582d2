# SPDX-License-Identifier: MPL-2.0
"""Archives on a cluster of Ray with several nodes, each of which has its own processes on this machine."""

import functools
import http.server
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest
from conftest import TESTS, clip, model

import gsttrt
from gsttrt.video import open_source

os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
ray = pytest.importorskip("ray", reason="Ray is not installed: python/requirements-ray.txt")

import faulty  # noqa: E402
import pyarrow  # noqa: E402
import pyarrow.parquet  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

import gsttrt.ray  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

# Ray Data writes so much that the report of a failed test could not be read.
logging.getLogger("ray.data").setLevel(logging.WARNING)
NODE = {"object_store_memory": 80 << 20, "include_dashboard": False}
OPTIONS = {"backend": "rten", "threads": 1}
IDS = {"tracker": "iou", **OPTIONS}


@pytest.fixture(scope="module")
def cluster():
    # Short, since the path of a socket has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        os.environ["RAY_TMPDIR"] = folder
        (Path(folder) / "ray").mkdir()
        nodes = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 1})
        for _ in range(2):
            nodes.add_node(num_cpus=2, **NODE)
        ray.init(address=nodes.address, log_to_driver=True)
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield nodes
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """Short videos, in two folders that have files of the same names."""
    folder = tmp_path_factory.mktemp("archive")
    for place, clips in (("hall", ("sample", "shapes", "pose")), ("yard", ("shapes", "rooms", "sample"))):
        (folder / place).mkdir()
        for number, name in enumerate(clips):
            video = folder / place / f"{number}.mp4"
            line = f"filesrc location={clip(name)} ! qtdemux ! h264parse ! identity eos-after={number + 4} ! mp4mux ! filesink location={video}"
            subprocess.run(["gst-launch-1.0", "-q", *line.split()], check=True)
    (folder / "hall/notes.txt").write_text("no video")
    return folder


@pytest.fixture(scope="module")
def wanted(archive) -> list:
    """What one process finds, with ids."""
    return objects_of_one_process(sorted(archive.rglob("*.mp4")), tracker="iou")


def objects_of_one_process(videos: list, **options) -> list:
    detector = gsttrt.Detector(model("shapes"), **OPTIONS)
    found = []
    for video in videos:
        for frame, (_, result) in enumerate(gsttrt.detect(video, detector, **options)):
            for index in range(len(result)):
                left, top, right, bottom = result.xyxy[index]
                track = None if result.track_id is None else int(result.track_id[index]) or None
                place = (float(left), float(top), float(right - left), float(bottom - top))
                about = (result.names[index], int(result.class_id[index]), float(result.confidence[index]))
                found.append((str(video), frame, result.time, result.width, result.height, *about, *place, track))
    assert len(found) > 20
    return sorted(found, key=str)


COLUMNS = ("source", "frame", "time", "width", "height", "label", "class_id", "confidence", "x", "y", "w", "h", "track_id")


def split(dataset) -> tuple:
    """Objects as above, and errors by source."""
    rows = dataset if isinstance(dataset, list) else dataset.take_all()
    errors = {row["source"]: row["error"] for row in rows if row["error"] is not None}
    assert len(errors) == sum(row["error"] is not None for row in rows), "one error of a video"
    assert all(row["frame"] is None and row["label"] is None for row in rows if row["error"] is not None)
    return sorted((tuple(row[name] for name in COLUMNS) for row in rows if row["error"] is None), key=str), errors


def detect(sources, **options):
    return gsttrt.ray.detect(sources, model("shapes"), **{"concurrency": 2, **IDS, **options})


def test_objects_are_those_of_one_process(cluster, archive, wanted):
    found = detect(archive)
    assert found.schema().base_schema.equals(gsttrt.ray.schema())
    assert split(found) == (wanted, {})
    assert found.materialize().to_arrow_refs() and gsttrt.ray.schema().field("x").type == pyarrow.float32()


def test_the_program_without_ray_writes_the_same_tables(cluster, archive, wanted, tmp_path):
    programs = [TESTS.parent / "target" / profile / "gst-trt" for profile in ("dist", "release", "debug")]
    program = next((each for each in programs if each.exists()), None)
    if program is None:
        pytest.skip("there is no gst-trt in target/; cargo build makes it")
    shutil.copytree(archive, tmp_path / "archive")
    (tmp_path / "archive/words.mp4").write_text("hello")
    for rows in ("objects", "frames", "tracks"):
        command = [program, "detect", "archive/**/*.mp4", "--model", model("shapes"), "--backend", "rten", "--track=iou"]
        ran = subprocess.run([*command, "--parquet", rows, "--rows", rows], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 1 and "words.mp4" in ran.stderr, ran.stderr
        table = pyarrow.parquet.read_table(tmp_path / rows)
        assert table.schema.equals(gsttrt.ray.schema(rows)), rows
        errors = [row["source"] for row in table.to_pylist() if row["error"] is not None]
        assert errors == [str(tmp_path / "archive/words.mp4")]
    table = pyarrow.parquet.read_table(tmp_path / "objects")
    found = [(row[0].replace(str(tmp_path / "archive"), str(archive)), *row[1:]) for row in split(table.to_pylist())[0]]
    # The package makes RGB of each frame first: boxes differ by a pixel at most, and what is faint may be missing in one of them.
    for some, others in ((found, wanted), (wanted, found)):
        for row in some:
            same = [other for other in others if other[:7] == row[:7] and other[8:12] == pytest.approx(row[8:12], abs=2)]
            assert same or row[7] < 0.35, row


def test_frames_have_lists_of_objects(cluster, archive, wanted):
    frames = detect(archive, rows="frames").take_all()
    assert {(row["source"], row["frame"]) for row in frames} >= {each[:2] for each in wanted}
    counted = {str(video): sum(1 for _ in open_source(video)) for video in archive.rglob("*.mp4")}
    assert Counter(row["source"] for row in frames) == counted and sum(counted.values()) > 18
    assert len({(row["source"], row["frame"]) for row in frames}) == len(frames)
    shared = ("source", "frame", "time", "width", "height")
    flat = [{**{name: row[name] for name in shared}, **each, "error": None} for row in frames for each in row["objects"]]
    assert split(flat) == (wanted, {}) and all(row["count"] == len(row["objects"]) for row in frames)


def test_tracks_are_summaries_of_objects(cluster, archive, wanted):
    tracks = detect(archive, rows="tracks", concurrency=(1, 2)).take_all()
    seen = {}
    for each in wanted:
        if each[-1] is not None:
            seen.setdefault((each[0], each[-1]), []).append(dict(zip(COLUMNS, each)))
    assert len(tracks) == len(seen) > 6
    for track in tracks:
        objects = sorted(seen[track["source"], track["track_id"]], key=lambda each: each["frame"])
        best = max(objects, key=lambda each: each["confidence"])
        assert (track["first_frame"], track["last_frame"], track["frames"]) == (objects[0]["frame"], objects[-1]["frame"], len(objects))
        assert (track["first_time"], track["last_time"]) == (objects[0]["time"], objects[-1]["time"])
        assert all(track[name] == best[name] for name in ("confidence", "x", "y", "w", "h", "width", "height"))
        assert (track["best_frame"], track["best_time"]) == (best["frame"], best["time"])
        assert track["label"] in {each["label"] for each in objects} and track["error"] is None
        assert track["mean_confidence"] == pytest.approx(sum(each["confidence"] for each in objects) / len(objects), abs=1e-5)


def test_a_worker_that_dies_leaves_no_trace(cluster, archive, wanted, tmp_path):
    everything = ["disc", "box"]
    for stage, options in (
        ("loading", {"classes": faulty.Classes(tmp_path / "loading", everything)}),
        ("within", {"tracker": faulty.DiesWithin(tmp_path / "within")}),
        ("between", {"tracker": faulty.DiesBetween(tmp_path / "between")}),
        ("lost", {"tracker": faulty.LosesTheGpu(tmp_path / "lost")}),
    ):
        found = split(detect(archive, **options))
        assert (tmp_path / stage).exists() and found == (wanted, {}), stage


def test_a_worker_that_dies_while_its_rows_are_fetched_leaves_no_trace(cluster, archive, wanted, tmp_path):
    context = ray.data.DataContext.get_current()
    before, context.target_max_block_size = context.target_max_block_size, 500
    try:
        # The rows of each video are many blocks.
        found = detect(archive, tracker=faulty.Reports(tmp_path))
    finally:
        context.target_max_block_size = before
    rows, killed = [], []
    for batch in found.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        rows += batch.to_pylist()
        if not killed:
            killed = [int(each.name) for each in tmp_path.iterdir()]
            for process in killed:
                os.kill(process, signal.SIGKILL)
    assert killed and len(list(tmp_path.iterdir())) > len(killed) and split(rows) == (wanted, {})


def test_a_video_may_take_longer_than_ray_waits(cluster, archive, wanted):
    context = ray.data.DataContext.get_current()
    before, context.execution_no_progress_timeout_s = context.execution_no_progress_timeout_s, 0.001
    try:
        found = detect(archive).filter(lambda row: row["label"] is not None)
    finally:
        context.execution_no_progress_timeout_s = before
    assert split(found) == (wanted, {})


def test_a_node_that_dies_leaves_no_trace(cluster, archive, wanted):
    node = cluster.add_node(num_cpus=2, **NODE)
    rows = []
    for batch in detect(archive, concurrency=3).iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        rows += batch.to_pylist()
        if node in cluster.worker_nodes:
            cluster.remove_node(node, allow_graceful=False)
    assert split(rows) == (wanted, {})


def test_a_video_that_ends_each_worker_is_listed(cluster, archive, wanted, tmp_path):
    shutil.copy(clip("classes"), tmp_path / "deadly.mp4")
    found, errors = split(detect([tmp_path, archive], tracker=faulty.dies_of_classes))
    assert found == wanted and list(errors) == [str(tmp_path / "deadly.mp4")]
    assert "has died 3 times" in errors[str(tmp_path / "deadly.mp4")]
    found, errors = split(detect([tmp_path, archive], tracker=faulty.fails_at_classes))
    assert found == wanted and errors[str(tmp_path / "deadly.mp4")] == "IndexError: list index out of range"


@pytest.fixture
def silent():
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def web(archive):
    """The address of a server of the archive's files."""
    handler = functools.partial(Quiet, directory=str(archive))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_what_cannot_be_read_is_listed(cluster, archive, wanted, tmp_path, silent, web):
    bad = {name: tmp_path / name for name in ("words.mp4", "empty.mp4", "none.mp4", "sound.mp4", "cut.mkv", "folder.mp4", "[1].mp4")}
    bad["words.mp4"].write_text("hello")
    bad["empty.mp4"].write_bytes(b"")
    bad["folder.mp4"].mkdir()
    sound = f"audiotestsrc num-buffers=20 ! lamemp3enc ! mp4mux ! filesink location={bad['sound.mp4']}"
    line = f"filesrc location={clip('shapes')} ! qtdemux ! h264parse ! matroskamux ! filesink location={tmp_path}/whole.mkv"
    for launch in (sound, line):
        subprocess.run(["gst-launch-1.0", "-q", *launch.split()], check=True)
    bad["cut.mkv"].write_bytes((tmp_path / "whole.mkv").read_bytes()[:300])
    secret = f"http://me:hunter2@{silent}/a.mp4?id=7&token=hunter2"
    gone = f"http://me:hunter2@{web}/gone.mp4?X-Amz-Signature=hunter2"
    sources = [*bad.values(), secret, gone, *archive.rglob("*.mp4"), archive / "hall", str(archive / "yard/*.mp4"), *bad.values()]
    found, errors = split(detect(sources, timeout=3))
    assert found == wanted, "each once, though some are named three times"
    shown = [f"http://***@{silent}/a.mp4?id=7&token=***", f"http://***@{web}/gone.mp4?X-Amz-Signature=***"]
    assert sorted(errors) == sorted([*map(str, bad.values()), *shown])
    assert "hunter2" not in str(errors)
    assert errors[str(bad["none.mp4"])] == f"There is no file {bad['none.mp4']}. Check the path."
    assert "no video in the folder" in errors[str(bad["folder.mp4"])]
    assert "no frame came for 3 s" in errors[shown[0]] and "Cannot read" in errors[shown[1]], errors
    for name in ("words.mp4", "empty.mp4", "sound.mp4", "cut.mkv"):
        assert errors[str(bad[name])], name


def test_names_of_files_may_be_any_bytes(cluster, archive, wanted, tmp_path):
    shutil.copy(archive / "hall/1.mp4", tmp_path / os.fsdecode(b"caf\xe9.mp4"))
    (tmp_path / "\u24600101.mp4").write_text("no video")
    found, errors = split(detect(tmp_path))
    named = [(f"{tmp_path}/caf\\xe9.mp4", *each[1:]) for each in wanted if each[0] == str(archive / "hall/1.mp4")]
    assert found == named and named and list(errors) == [f"{tmp_path}/\u24600101.mp4"]


def test_a_video_that_is_cut_off_is_listed(cluster, tmp_path):
    line = f"filesrc location={clip('shapes')} ! qtdemux ! h264parse ! mp4mux faststart=true ! filesink location={tmp_path}/whole.mp4"
    subprocess.run(["gst-launch-1.0", "-q", *line.split()], check=True)
    data = (tmp_path / "whole.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(data[: len(data) // 2])
    found, errors = split(detect(tmp_path / "cut.mp4"))
    assert found and f"to its end: {len(data) // 2} of {len(data)} bytes are there" in errors[str(tmp_path / "cut.mp4")]


def test_addresses_are_read_as_files_are(cluster, archive, wanted, web):
    found, errors = split(detect([f"http://{web}/{place}/{number}.mp4" for place in ("hall", "yard") for number in range(3)]))
    named = [(each[0].replace(f"http://{web}", str(archive)), *each[1:]) for each in found]
    assert (sorted(named, key=str), errors) == (wanted, {})


def test_without_videos_there_are_columns_and_no_rows(cluster):
    for rows in ("objects", "frames", "tracks"):
        found = gsttrt.ray.detect([], model("shapes"), rows=rows)
        assert found.count() == 0 and found.schema().names == gsttrt.ray.schema(rows).names


def test_what_is_wrong_for_all_videos_is_one_error_at_once(cluster, tmp_path):
    many = [f"/none/{number}.mp4" for number in range(10_000)]
    (tmp_path / "bad.onnx").write_text("hello")
    with pytest.raises(gsttrt.NotFoundError, match="no model file .*/none.onnx"):
        gsttrt.ray.detect(many, "none.onnx", backend="rten")
    with pytest.raises(gsttrt.ModelError, match="bad.onnx"):
        gsttrt.ray.detect(many, tmp_path / "bad.onnx", backend="rten")
    with pytest.raises(gsttrt.SettingsError, match="There is no option score_thresold. Did you mean score_threshold"):
        detect(many, score_thresold=0.5)
    with pytest.raises(gsttrt.SettingsError, match="magic"):
        detect(many, tracker="magic")
    with pytest.raises(gsttrt.SettingsError, match="a map for each frame"):
        gsttrt.ray.detect(many, model("shapes-sem"), **OPTIONS)


def test_arguments_are_checked(tmp_path):
    for error, message, options in (
        (gsttrt.SettingsError, "rows is 'boxes'", {"rows": "boxes"}),
        (gsttrt.SettingsError, "timeout is 0", {"timeout": 0}),
        (gsttrt.SettingsError, "num_cpus is -1", {"num_cpus": -1}),
        (gsttrt.SettingsError, "num_gpus is nan", {"num_gpus": float("nan")}),
        (gsttrt.SettingsError, "number of workers is 0", {"concurrency": 0}),
        (gsttrt.SettingsError, r"number of workers is \(3, 2\)", {"concurrency": (3, 2)}),
        (gsttrt.SettingsError, r"tracker=lambda: gsttrt.Tracker\('iou', lost_after=5\)", {"tracker": "iou", "lost_after": 5}),
        (gsttrt.InputError, "objects of one video", {"tracker": gsttrt.Tracker("iou")}),
    ):
        with pytest.raises(error, match=message):
            gsttrt.ray.detect("a.mp4", "a.onnx", **options)
    for source in (5, [b"a.mp4"]):
        with pytest.raises((gsttrt.InputError, TypeError), match="no source|not iterable"):
            gsttrt.ray.detect(source, "a.onnx")
    with pytest.raises(gsttrt.InputError, match=r"rtsp://\*\*\*@camera/a is a live stream"):
        gsttrt.ray.detect("rtsp://me:secret@camera/a", "a.onnx")
    with pytest.raises(gsttrt.InputError, match="no path of a model"):
        gsttrt.ray.detect("a.mp4", gsttrt.Detector(model("shapes-cls"), **OPTIONS))


def test_what_reads_videos_is_tried_where_there_are_some(monkeypatch):
    for name in ("gi", "cv2"):
        monkeypatch.setitem(sys.modules, name, None)
    work = gsttrt.ray.work_of(model("shapes"), "objects", None, 120, OPTIONS)
    with pytest.raises(gsttrt.LibraryError, match="pip install opencv-python-headless"):
        gsttrt.ray.load(work, has_videos=True)
    assert not gsttrt.ray.load(work, has_videos=False)


def test_an_address_where_nobody_answers_is_an_error_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        gsttrt.ray.require_cluster(address)
    for given in (address, f"ray://{address}"):
        with pytest.raises(gsttrt.NotFoundError, match=f"There is no Ray at {given}: .* ray start --head"):
            gsttrt.ray.require_cluster(given)
    for given in ("", "auto", "local"):
        gsttrt.ray.require_cluster(given)


def test_folders_are_read_in_the_order_of_numbers(tmp_path, monkeypatch):
    for name in ("10.mp4", "9.MKV", "2026/b/1.webm", "2026/a.txt", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    addresses = [item["address"] for item in gsttrt.ray.expanded([".", "*.mp4", "./9.MKV", Path("10.mp4"), f"file://{tmp_path}/10.mp4", "**/*.txt"])]
    names = ["9.MKV", "10.mp4", "2026/b/1.webm", "notes.txt", "2026/a.txt"]
    assert sorted(addresses) == sorted(str(tmp_path / name) for name in names)
    assert addresses[:3] == [str(tmp_path / name) for name in names[:3]]


def test_folders_are_not_left_out_without_a_word(tmp_path, monkeypatch):
    for name in ("open/1.mp4", "closed/2.mp4"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = {item["address"]: item["error"] for item in gsttrt.ray.expanded(tmp_path)}
    monkeypatch.undo()
    refused = f"Cannot read the folder {tmp_path}/closed: Permission denied."
    assert found == {f"{tmp_path}/open/1.mp4": None, f"{tmp_path}/closed": refused}
    [item] = gsttrt.ray.expanded(f"{tmp_path}/*")
    assert item["error"] == f"The pattern {tmp_path}/* finds folders and no file. Give '{tmp_path}/*/**/*.mp4' for the videos in them."
    (tmp_path / "3.mp4").touch()
    with pytest.warns(UserWarning, match="finds folders, too, which are left out"):
        assert [item["address"] for item in gsttrt.ray.expanded(f"{tmp_path}/*")] == [f"{tmp_path}/3.mp4"]


def test_lists_of_sources_are_read_as_the_program_reads_them(tmp_path):
    (tmp_path / "list.txt").write_bytes(b"a.mp4\n\n  b c.mp4\r\ncaf\xe9.mp4")
    assert list(gsttrt.ray.listed([f"@{tmp_path}/list.txt", "d.mp4"])) == ["a.mp4", "b c.mp4", os.fsdecode(b"caf\xe9.mp4"), "d.mp4"]
    with pytest.raises(gsttrt.ReadError, match="Cannot read the list of sources none.txt: No such file"):
        list(gsttrt.ray.listed(["@none.txt"]))
    with pytest.raises(gsttrt.InputError, match="A source is empty"):
        list(gsttrt.ray.expanded([""]))


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    gsttrt.ray.require_empty(f"file://{tmp_path}")
    (tmp_path / "a.parquet").touch()
    for out in (str(tmp_path), f"file://{tmp_path}", f"{tmp_path}/a.parquet"):
        with pytest.raises(gsttrt.InputError, match=f"There is something in {out} already"):
            gsttrt.ray.require_empty(out)
    gsttrt.ray.require_empty(f"file://{tmp_path}/none")
    with pytest.raises(gsttrt.InputError, match="Cannot write to nowhere://a: "):
        gsttrt.ray.require_empty("nowhere://a")


def test_a_model_on_a_server_takes_neither_gpus_nor_threads(cluster, monkeypatch):
    def work(model, **options):
        return gsttrt.ray.work_of(model, "objects", None, 120, options)

    assert work("grpc://triton:8001/yolo11n").model == "grpc://triton:8001/yolo11n" and work("a.onnx").model == os.path.abspath("a.onnx")
    assert not any(each.may_take_gpu() for each in (work("grpc://triton/a"), work("a", backend="kserve"), work("a.onnx", backend="cpu")))
    assert all(each.may_take_gpu() for each in (work("grpc://triton/a", shared_memory="cuda"), work("a.onnx"), work("a.onnx", backend="auto")))
    tried = []
    monkeypatch.setattr(gsttrt.ray, "try_worker", lambda work, *_: tried.append(work))
    for each in ("grpc://triton/a", "a.onnx"):
        gsttrt.ray.detect("a.mp4", each, concurrency=1)
    assert [each.options for each in tried] == [{}, {"threads": 1}]


def test_workers_leave_room_for_writing(monkeypatch):
    def nodes(*resources):
        monkeypatch.setattr(gsttrt.ray.ray, "nodes", lambda: [{"Alive": True, "Resources": each} for each in resources])

    placed = gsttrt.ray.placed
    nodes({"CPU": 8.0})
    assert placed(None, None, None, 1000) == (8, {"num_gpus": 0.0, "num_cpus": 0.875})
    assert placed(None, None, None, 3) == (3, {"num_gpus": 0.0, "num_cpus": 1.0})
    assert placed(None, 2, None, 1000) == (4, {"num_gpus": 0.0, "num_cpus": 2})
    nodes({"CPU": 4.0}, {"CPU": 4.0}, {})
    assert placed(None, None, (1, 12), 1000) == ((1, 12), {"num_gpus": 0.0, "num_cpus": 0.5})
    nodes({"CPU": 1.0})
    assert placed(None, None, None, 1000) == (1, {"num_gpus": 0.0, "num_cpus": 0.0})
    nodes({"CPU": 16.0, "GPU": 2.0})
    assert placed(None, None, None, 1000) == (8, {"num_gpus": 0.25, "num_cpus": 1.0})
    assert placed(1, None, None, 1000) == (2, {"num_gpus": 1, "num_cpus": 1.0})
    nodes()
    assert placed(0.5, 1, 3, 1000) == (3, {"num_gpus": 0.5, "num_cpus": 1})


def test_what_the_page_shows_runs(cluster, archive, tmp_path, monkeypatch):
    page = (TESTS.parent / "docs/archives.md").read_text(encoding="utf-8").replace("/share", str(tmp_path))
    shutil.copytree(archive, tmp_path / "archive")
    shutil.copy(model("shapes"), tmp_path / "yolo11n.onnx")
    (tmp_path / "videos.txt").write_text("archive/hall/0.mp4\narchive/yard/0.mp4\n")
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, re.S) for line in block.splitlines() if line.startswith("python ")]
    outs = ["found", "tracks", "frames", str(tmp_path / "found")]
    assert [line.split("--out ")[1].split()[0] for line in lines] == outs
    for line, out in zip(lines, outs):
        shutil.rmtree(out, ignore_errors=True)
        # The model of the tests has other classes, and Ray runs already.
        command = line.replace("classes=person", "classes=disc").replace("--address auto", "").replace("python", f"'{sys.executable}'", 1)
        ran = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment)
        assert ran.returncode == 0 and f" rows are in {tmp_path}" in ran.stdout, f"{line}: {ran.stderr}"
        assert len(pyarrow.parquet.read_table(out)) > 0
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(code, "docs/archives.md", "exec"), {})
    assert set(pyarrow.parquet.read_table("found-tracks")["label"].to_pylist()) <= {"disc", "box", "star"}


def test_the_command_writes_parquet(cluster, archive, wanted, tmp_path, capfd):
    (tmp_path / "list.txt").write_text(f"{archive}/yard\n{tmp_path}/none.mp4\n")
    command = [f"{archive}/hall", f"@{tmp_path}/list.txt", "--model", model("shapes"), "--out", str(tmp_path / "found"), "--track", "iou"]
    command += ["--workers", "2", "--options", "backend=rten threads=1"]
    assert gsttrt.ray.main(command) == 1
    told = capfd.readouterr()
    assert f"{len(wanted)} rows are in {tmp_path}/found" in told.out
    assert f"{tmp_path}/none.mp4: There is no file" in told.err and "Error: 1 of the videos could not be read" in told.err
    table = pyarrow.parquet.read_table(tmp_path / "found")
    assert split(table.to_pylist())[0] == wanted and table.schema.names == gsttrt.ray.schema().names
    assert len(list((tmp_path / "found").glob("*.parquet"))) == 1, "small tables are put together"
    assert gsttrt.ray.main(command) == 1
    assert "There is something in" in capfd.readouterr().err
    empty = [*command[1:2], "--model", model("shapes"), "--out", str(tmp_path / "empty"), "--options", "backend=rten score-threshold=0.999"]
    (tmp_path / "list.txt").write_text(f"{archive}/yard")
    assert gsttrt.ray.main(empty) == 0 and f"0 rows are in {tmp_path}/empty" in capfd.readouterr().out
    assert pyarrow.parquet.read_table(tmp_path / "empty").schema.names == gsttrt.ray.schema().names
    for taken in ("sources", "model", "num-cpus", "timeout"):
        assert gsttrt.ray.main([*command[:5], str(tmp_path / "other"), "--options", f"{taken}=5"]) == 1
        assert "is no option of the model" in capfd.readouterr().err
    assert gsttrt.ray.main([*command[:5], str(tmp_path / "other"), "--options", "threads"]) == 1
    assert "Write name=value" in capfd.readouterr().err
    for unclosed in ("classes='traffic light", "classes=car\\"):
        assert gsttrt.ray.main([*command[:5], str(tmp_path / "other"), "--options", unclosed]) == 1
        assert "Close each quotation mark" in capfd.readouterr().err
