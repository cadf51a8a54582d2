#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""An archive of short videos with Ray: whether its rows are those of one process where a worker is killed, and how it scales.

  tests/bench/ray_archive.py [videos=200] [workers=4] [seconds=4] [nodes=2] [rounds=3]

It needs the package gsttrt and Ray (python/requirements-ray.txt), and makes the videos from the sample clip: parts of it, each encoded
in another size and quality. First one process reads all. Then as many workers as are asked for do, and one of them is killed when a
fourth of the videos is done. Then a worker for each processor is timed against a process for each without Ray, which share the videos,
in turn, from the first row to the last: loading is left out. rounds=0 leaves it out. The status is 1 where rows differ, or where the
workers do not reach 0.9 of the processes in the median of the rounds.
"""

import multiprocessing
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
import ray
from ray.cluster_utils import Cluster

import gsttrt
import gsttrt.ray

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "tests/models/shapes-320.onnx"
OPTIONS = {"backend": "rten", "threads": 1}
FPS = 15
BAR = 0.9


class Reports:
    """Makes trackers, and leaves the process id of each worker in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self):
        (self.folder / str(os.getpid())).touch()
        return gsttrt.Tracker("iou")


def make(folder, videos, seconds):
    """Videos that have different frames."""
    for number in range(videos):
        width = 320 + 16 * (number % 5)
        line = (
            f"filesrc location={ROOT}/tests/data/sample.mp4 ! decodebin ! videorate ! videoscale ! videoconvert"
            f" ! video/x-raw,width={width},height=192,framerate={FPS}/1 ! videoflip method={number % 2 * 4} ! identity eos-after={seconds * FPS + number % 7}"
            f" ! x264enc speed-preset=ultrafast quantizer={20 + number % 11} pass=quant ! h264parse ! mp4mux ! filesink location={folder}/{number}.mp4"
        )
        subprocess.run(["gst-launch-1.0", "-q", *line.split()], check=True)
    return [str(folder / f"{number}.mp4") for number in range(videos)]


def one_process(paths):
    """Rows, and the seconds when the first video is done and when the last one is."""
    detector = gsttrt.Detector(MODEL, **OPTIONS)
    rows, ends = [], []
    for path in paths:
        for frame, (_, result) in enumerate(gsttrt.detect(path, detector, tracker="iou")):
            ids = [int(each) or None for each in result.track_id]
            for box, name, confidence, track in zip(result.xyxy, result.names, result.confidence, ids):
                rows.append((path, frame, result.time, name, float(confidence), float(box[0]), float(box[1]), track))
        ends.append(time.monotonic())
    return sorted(rows, key=str), ends


def kill(pid):
    """Whether there was such a process: a worker may have ended by itself."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def by_ray(paths, workers, pids, kill_after=None):
    """Rows, and the seconds when each video is done."""
    found = gsttrt.ray.detect(paths, MODEL, rows="objects", tracker=Reports(pids), concurrency=workers, **OPTIONS)
    rows, done, ends, killed = [], set(), [], False
    for batch in found.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        ends.append(time.monotonic())
        for row in batch.to_pylist():
            assert row["error"] is None, row
            done.add(row["source"])
            rows.append(tuple(row[name] for name in ("source", "frame", "time", "label", "confidence", "x", "y", "track_id")))
        if kill_after and len(done) >= kill_after and not killed:
            killed = any(kill(int(file.name)) for file in pids.iterdir())
    assert bool(kill_after) == killed
    return sorted(rows, key=str), ends


def by_processes(paths, count):
    """The same of so many processes that know nothing of each other."""
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as processes:
        found = list(processes.map(one_process, (paths[at::count] for at in range(count))))
    return sorted((row for rows, _ in found for row in rows), key=str), [end for _, ends in found for end in ends]


def rate(ends):
    """Videos a second, from the first that is done on."""
    return (len(ends) - 1) / (max(ends) - min(ends))


def scales(paths, wanted, folder, rounds):
    cpus, ratios = len(os.sched_getaffinity(0)), []
    for number in range(rounds):
        pids = folder / f"round-{number}"
        pids.mkdir()
        measured = [by_processes(paths, cpus), by_ray(paths, cpus, pids)]
        without, with_ray = (rate(ends) for _, ends in measured)
        ratios.append(with_ray / without)
        equal = all(rows == wanted for rows, _ in measured)
        print(f"{cpus} workers: {with_ray:.2f} videos/s, {ratios[-1]:.2f} of as many processes without Ray, rows {'equal' if equal else 'DIFFERENT'}", flush=True)
        if not equal:
            return False
    print(f"median of {rounds} rounds: {statistics.median(ratios):.2f}, on {cpus} processors")
    return statistics.median(ratios) >= BAR


def main():
    given = dict(each.split("=") for each in sys.argv[1:])
    defaults = {"videos": 200, "workers": 4, "seconds": 4, "nodes": 2, "rounds": 3}
    videos, workers, seconds, nodes, rounds = (int(given.get(name, value)) for name, value in defaults.items())
    with tempfile.TemporaryDirectory(prefix="ray") as text:
        folder = pathlib.Path(text)
        os.environ["RAY_TMPDIR"] = text
        for name in ("ray", "videos", "killed"):
            (folder / name).mkdir()
        paths = make(folder / "videos", videos, seconds)
        wanted, ends = one_process(paths)
        print(f"one process: {len(wanted)} rows of {videos} videos, {rate(ends):.2f} videos/s", flush=True)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 << 20})
        for _ in range(nodes):
            cluster.add_node(num_cpus=max(workers // nodes, 1) + 1, object_store_memory=100 << 20)
        ray.init(address=cluster.address)
        ray.data.DataContext.get_current().enable_progress_bars = False
        killed, _ = by_ray(paths, workers, folder / "killed", kill_after=videos // 4)
        print(f"{workers} workers, one killed: {len(killed)} rows, {'equal' if killed == wanted else 'DIFFERENT'}", flush=True)
        passed = killed == wanted and (not rounds or scales(paths, wanted, folder, rounds))
        ray.shutdown()
        cluster.shutdown()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
