#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""gst-trt serve for hours, with cameras, brokers, disks, models and clients that fail by a plan.

  python3 tests/bench/endure [--seconds 7200] [--cameras 24] [--faults 420] [--seed 1] [--fps 10] [--program gst-trt]
      [--model FILE] [--backend cpu] [--batch 1] [--infer PROPERTIES] [--recorded 2] [--report FILE.md] [--json FILE.json] [--journal FILE]

Cameras are an RTSP server in this program (rtsp_cameras.py), brokers are mosquitto and redis-server where they are installed, and the disk of
the recordings is a small tmpfs where that may be mounted. All the time it is checked that a camera without a fault has a result at
each frame, 0.2 s late at most; that one with a fault is back within its backoff and 2 s, or what notices it; that results of a run are
whole and in order; that HTTP answers as it should; at the end, that recordings are whole, and that memory, threads and files did not grow.
With the same seed the plan is the same. The report is a page; exit status 1 where something does not hold.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager

from cameras import Camera, Clip, start
from plan import KINDS, plan
from service import Broker, Disk, Service, free_port
from watch import BACK, SLACK, Sizes, Watch

ROOT = pathlib.Path(__file__).resolve().parents[3]
SIZES = ((320, 180), (240, 136))
FLAT = 1.02
STOP = 5.0  # seconds for SIGTERM


def make_clip(folder, size, fps):
    target = folder / f"{size[0]}.mp4"
    line = (
        f"filesrc location={ROOT}/tests/data/sample.mp4 ! decodebin ! videorate ! videoscale ! videoconvert"
        f" ! video/x-raw,width={size[0]},height={size[1]},framerate={fps}/1 ! x264enc key-int-max={fps} bframes=0 speed-preset=veryfast"
        f" ! h264parse ! mp4mux ! filesink location={target}"
    )
    subprocess.run(["gst-launch-1.0", "-q", *line.split()], check=True)
    return Clip(target)


class Lives:
    """The processes that the service has been."""

    def __init__(self, service):
        self.service, self.sizes, self.ends, self.begun = service, None, [], 0.0

    def begin(self):
        self.service.start()
        self.sizes, self.begun = Sizes(), time.time()

    def end(self, how):
        self.ends.append(how)


class World:
    """All that a fault can reach."""

    def __init__(self, options, folder, cameras, port):
        self.cameras = cameras
        self.random = random.Random(options.seed)
        mqtt, redis = free_port(), free_port()
        (folder / "mosquitto.conf").write_text(f"listener {mqtt} 127.0.0.1\nallow_anonymous true\n")
        self.mqtt = Broker(["mosquitto", "-c", str(folder / "mosquitto.conf")])
        self.redis = Broker(["redis-server", "--port", str(redis), "--save", "", "--bind", "127.0.0.1", "--maxmemory", "32mb", "--maxmemory-policy", "allkeys-random"])
        self.mqtt, self.redis = (broker if broker.is_installed else None for broker in (self.mqtt, self.redis))
        self.disk = Disk(folder / "recordings")
        addresses = {camera.name: f"rtspt://127.0.0.1:{port}/{camera.name}" for camera in cameras}
        self.service = Service(options, folder, addresses, self.disk, mqtt if self.mqtt else None, redis if self.redis else None)
        self.watch = Watch(self.service.results, cameras, 1 / options.fps, options.backoff, options.timeout)
        self.lives = Lives(self.service)
        self.model, self.kind = 0, ""
        self.violations = []

    def now(self):
        return time.monotonic()

    @contextmanager
    def disturbed(self, *cameras):
        with self.watch.disturbed([camera.name for camera in cameras], self.kind):
            yield

    async def ask(self, path, method="GET", body=None, expect=(200,)):
        try:
            status, text = await asyncio.to_thread(self.service.ask, path, method, body)
        except OSError as error:
            status, text = None, str(error)
        if status not in expect:
            self.violations.append(f"{method} {path} answers {status}: {text[:200]}")

    async def all_run(self, limit=120):
        until = time.monotonic() + limit
        while time.monotonic() < until:
            try:
                if await asyncio.to_thread(self.service.running) == set(self.service.addresses):
                    return
            except OSError:
                pass  # it has only begun
            await asyncio.sleep(0.2)
        self.violations.append(f"not all sources run {limit} s after the start")


async def observe(world):
    seen = 0.0
    while True:
        world.watch.look()
        world.violations += [f"{name}: no result for 10 s" for name in world.watch.stuck(time.time()) if f"{name}: no result for 10 s" not in world.violations]
        if time.time() - seen > 5:
            seen = time.time()
            try:
                world.lives.sizes.add(await asyncio.to_thread(world.service.size))
            except (OSError, KeyError):
                pass  # between two lives: one that has just ended has no size
        await asyncio.sleep(0.25)


async def fault(world, name, share, seconds, done):
    where, _, function = KINDS[name]
    if where == "camera":
        healthy = [camera for camera in world.cameras if not world.watch.may_be_late(camera.name, time.time() - 1, time.time())]
        if not healthy:
            done[name, "left out"] += 1
            return
        given = (healthy[int(share * len(healthy))], seconds)
    else:
        given = (seconds,)
    before = world.service.starts
    world.kind = name
    try:
        happened = await function(world, *given)
    except OSError as error:
        world.violations.append(f"{name}: {error}")
        happened = None
    done[name, "left out" if happened is False else "done"] += 1
    if world.service.process.poll() is not None and world.service.starts == before:
        world.violations.append(f"{name}: the service has ended with status {world.service.process.returncode}")
        world.lives.begin()
        await world.all_run()


def is_whole(recording):
    """Whether the boxes of an MP4 file reach to its end, and its tables are there."""
    data, at, kinds = recording.read_bytes(), 0, set()
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        if size == 1:
            size = struct.unpack_from(">Q", data, at + 8)[0]
        if size < 8:
            return False
        kinds.add(kind)
        at += size
    return at == len(data) and b"moov" in kinds


async def run(options, folder):
    clips = [make_clip(folder, size, options.fps) for size in SIZES]
    cameras = [Camera(f"c{number:02}", clips, options.seed) for number in range(options.cameras)]
    world = World(options, folder, cameras, await start(cameras, options.fps))
    for broker in (world.mqtt, world.redis):
        if broker:
            broker.start()
    world.service.write()
    done, begun = Counter(), time.monotonic()
    try:
        with world.disturbed(*cameras):
            world.lives.begin()
            await world.all_run()
        observer = asyncio.create_task(observe(world))
        # Faults of cameras go on side by side; those of the service come one after the other, in the order of the plan.
        running, one_by_one, began = [], asyncio.Lock(), time.monotonic()

        async def in_turn(*given):
            async with one_by_one:
                if time.monotonic() > began + options.seconds:
                    done[given[0], "left out"] += 1  # those before it took longer than planned
                    return
                await fault(world, *given, done)

        for at, name, share, seconds in plan(options.seed, options.seconds, options.faults):
            # What is not watched is not known: an error of the observer ends the run at once.
            await asyncio.wait([observer], timeout=max(0.0, began + at - time.monotonic()))
            if observer.done():
                observer.result()
            running.append(asyncio.create_task(in_turn(name, share, seconds)))
            print(f"{time.monotonic() - began:7.1f} s  {name}, {seconds} s", flush=True)
        faults = asyncio.gather(*running)
        await asyncio.wait([observer, faults], return_when=asyncio.FIRST_COMPLETED)
        if observer.done():
            observer.result()
        faults.result()
        await asyncio.wait([observer], timeout=max(options.timeout + options.backoff + BACK, began + options.seconds - time.monotonic()))
        if observer.done():
            observer.result()
        observer.cancel()
        world.watch.look()
        metrics = world.service.metrics()
        status, seconds = await asyncio.to_thread(world.service.terminate)
        world.lives.end((status, seconds))
        recordings = [path for path in world.disk.folder.glob("*.mp4")]
        broken = [path.name for path in recordings if not is_whole(path)]
        return judge(options, world, done, metrics, broken, len(recordings), time.monotonic() - begun)
    finally:
        if world.service.process and world.service.process.poll() is None:
            world.service.kill()
        for broker in (world.mqtt, world.redis):
            if broker:
                broker.go_on()
                broker.kill()
        world.disk.close()


def judge(options, world, done, metrics, broken, recordings, seconds):
    """Figures with their bars, as rows of name, value, bar and whether it is kept."""
    watch, rows = world.watch, []

    def row(name, value, bar, is_kept):
        rows.append({"name": name, "value": value, "bar": bar, "kept": bool(is_kept)})

    kinds = {name for name, what in done if what == "done"}
    stopped = [end for end in world.lives.ends if end is not None]
    growth = world.lives.sizes.growth()
    back = {kind: (max(values), len(values)) for kind, values in sorted(watch.back.items())}
    limit = options.backoff + BACK
    row("faults, of kinds", f"{sum(count for (_, what), count in done.items() if what == 'done')}, {len(kinds)}", "as planned", kinds)
    row("results", watch.results, "", watch.results)
    row("longest gap of a healthy camera, beyond its frame's time", f"{watch.longest:.3f} s", f"≤ {SLACK} s", watch.longest <= SLACK)
    row("… that its camera itself sent late, which is not counted", f"{watch.longest_sent_late:.3f} s", "", True)
    row("longest until a camera was back", f"{max((most for most, _ in back.values()), default=0):.2f} s", f"≤ {options.timeout + limit:g} s", all(most <= options.timeout + limit for most, _ in back.values()))
    row("… that had hung up or was gone", f"{max((back[kind][0] for kind in ('camera hangs up', 'camera is gone') if kind in back), default=0):.2f} s", f"≤ {limit:g} s", all(back[kind][0] <= limit for kind in ("camera hangs up", "camera is gone") if kind in back))
    row("recordings, not whole", f"{recordings}, {len(broken)}", "0 not whole", not broken)
    row("SIGTERM: status, seconds", ", ".join(f"{status}, {took:.1f}" for status, took in stopped), f"0, ≤ {STOP:g}", all(status == 0 and took <= STOP for status, took in stopped))
    if growth:
        for name, figures in zip(("memory, MiB", "threads", "open files", "memory of the GPU, MiB", "memory that is not of files, MiB", "heap in use, MiB"), growth):
            if figures["after"]:
                row(f"{name}: early, at the end", f"{figures['before']:.0f}, {figures['after']:.0f}", f"≤ {FLAT}", figures["ratio"] <= FLAT)
    row("other checks that failed", len(world.violations) + len(watch.violations), "0", not world.violations and not watch.violations)
    published = {family: sum(metrics.get(f"gst_trt_{family}", {}).values()) for family in ("frames_total", "published_total", "publish_dropped_total", "dropped_frames_total", "restarts_total")}
    return {
        "command": shlex.join(["python3", "tests/bench/endure", *sys.argv[1:]]),
        "seed": options.seed,
        "seconds": round(seconds),
        "cores": os.cpu_count(),
        "rows": rows,
        "back": {kind: {"longest": round(most, 2), "times": count} for kind, (most, count) in back.items()},
        "faults": {name: done[name, "done"] for name in sorted(KINDS)},
        "left out": {name: done[name, "left out"] for name in sorted(KINDS) if done[name, "left out"]},
        "last life": published,
        "sizes": [[round(figure) for figure in size] for size in world.lives.sizes.rows],
        "violations": (world.violations + watch.violations)[:1000],
        "kinds of violations": Counter("a late result" if "no result for" in text else "another" for text in world.violations + watch.violations),
        "broken": broken,
    }


INTRODUCTION = """\
# Hours of faults

`gst-trt serve` runs {cameras} cameras by RTSP, with a tracker, zones, recordings and brokers, while faults happen at random times, by a
plan: cameras, packets, brokers, disks, models, HTTP clients, the configuration, and the process itself. All the time it is checked that

- a camera without a fault has a result for each frame, at most 0.2 s late; what the camera itself sent late is not counted;
- a camera with a fault is back within the wait between two attempts and 2 s, after what notices the fault;
- results are whole and in order, and HTTP answers as it should;
- at the end, recordings are whole, and memory, threads and open files are what they were.

The same seed gives the same plan. This page is what the last long run wrote: {minutes:.0f} minutes on {cores} cores. Bold: the bar was missed.
Of memory, threads and files it is how many times the early figure the end may have.

```sh
{command} --report hours.md
```
"""


SHOWN = 20  # of what did not hold


def page(report):
    words = {word.split()[0]: word.split()[1:] for word in report["command"].split(" --")[1:]}
    command = re.sub(r" --(json|report|journal) \S+", "", report["command"])
    lines = [
        INTRODUCTION.format(cameras=words.get("cameras", ["24"])[0], minutes=report["seconds"] / 60, cores=report["cores"], command=command),
        "| figure | seen | bar |", "|---|---|---|",
        *(f"| {row['name']} | {'' if row['kept'] else '**'}{row['value']}{'' if row['kept'] else '**'} | {row['bar']} |" for row in report["rows"]), "",
        "| fault | times | longest until back |", "|---|---|---|",
        *(f"| {name} | {count} | {report['back'][name]['longest']} s |" if name in report["back"] else f"| {name} | {count} | |" for name, count in report["faults"].items()), "",
    ]
    if report["left out"]:
        lines += ["Left out, because this machine cannot do them, no camera was free, or those before took too long: " + ", ".join(f"{name} ({count})" for name, count in report["left out"].items()) + ".", ""]
    if report["violations"]:
        shown = report["violations"][:SHOWN]
        count = sum(report["kinds of violations"].values())
        lines += ["What did not hold:", "", *(f"- {text}" for text in shown), *[f"- {count - len(shown)} more"] * (count > len(shown)), ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="endure")
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--cameras", type=int, default=24)
    parser.add_argument("--faults", type=int, default=420)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fps", type=int, default=10)
    parser.add_argument("--program", default=str(ROOT / "target/release/gst-trt"))
    parser.add_argument("--model", default=str(ROOT / "tests/models/shapes-320.onnx"))
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--infer", default="interval=5 threads=1 parallel-runs=2")
    parser.add_argument("--recorded", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=5.0)
    parser.add_argument("--backoff", type=float, default=2.0)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--journal", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="endure-") as folder:
        try:
            report = asyncio.run(run(options, pathlib.Path(folder)))
        finally:
            journal = (pathlib.Path(folder) / "journal").read_text(encoding="utf-8", errors="replace")
            if options.journal:
                options.journal.write_text(journal, encoding="utf-8")
    if panics := re.findall(r"panicked at [^\n]*", journal):
        report["violations"] += panics
        report["rows"][-1]["kept"] = False
    text = page(report)
    print(text)
    for path, content in ((options.report, text), (options.json, json.dumps(report, indent=1))):
        if path:
            path.write_text(content, encoding="utf-8")
    sys.exit(not all(row["kept"] for row in report["rows"]))


if __name__ == "__main__":
    main()
