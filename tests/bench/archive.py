#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""An archive of short videos: gst-trt detect --parquet on all of them, and in the same run what the decoder does alone.

  tests/bench/archive.py program=gst-trt launch=gst-launch-1.0 model=yolo11n.onnx clips=hd.mp4,camera.mp4 [videos=1000] [ways=1x8,1x16]
      [rounds=1] [rows=objects] [detect="…"] [infer="engine-cache=…"] [backend=tensorrt] [decoder=nvh264dec] [folder=FOLDER] [logs=FOLDER] [json=FILE]
      [build=300] [limit=200] [bound=500]

The videos are hard links to the clips, in turn: H.264 in MP4, of one size. A way is so many processes, each of which reads so many videos at
the same time (--at-once), and makes a table of its own; `detect` has further options of gst-trt detect. The decoder alone gets the same frames in
as many processes and streams, and easier: elementary streams, one after the other, so that it is not started again for each video. Times are from the start of the first process to the end of
the last one, loading the model and its engine included; the engine is built before. Ratios are medians of ratios within a round.

Each step says when it begins and how long it took, and one that runs says every 10 s what its log ends with. The engine has `build` seconds. Each
run after it has `limit` seconds, and all of them together end at `bound` seconds after the start: what runs then is killed, and what was measured
until then is told and written. The programs' logs go to `logs`.

That nothing is missing is checked: each process ends with status 0 and has had all frames, and its table has no error (by the package
pyarrow, where it is here; with rows=frames also that it has each video). Exit status 1 where that does not hold, or 0.9 of the decoder alone is not reached. Needs Python, and GStreamer's
elements multifilesrc, qtdemux and h264parse.
"""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

from arguments import options_of
from rtsp_cameras import boxes

BAR = 0.9
EACH = 1.0  # seconds between two looks at the GPU
DEFAULTS = {
    "program": "gst-trt", "launch": "gst-launch-1.0", "model": "", "clips": "", "videos": "1000", "ways": "1x8,1x16", "rounds": "1", "rows": "objects",
    "detect": "", "infer": "", "backend": "tensorrt", "decoder": "nvh264dec", "folder": "", "logs": "",
    "json": "", "build": "300", "limit": "200", "bound": "500",
}
BEGUN = time.monotonic()
TELL = 10.0  # seconds between two lines of a step that runs
FRAMES = re.compile(r"^frames +(\d+)$", re.M)


class TooLong(Exception):
    """A step has not ended within its time."""


def say(text):
    print(f"{time.monotonic() - BEGUN:7.1f} s  {text}", flush=True)


def time_left(options, seconds):
    """Of so many seconds, those until all has to be over."""
    left = min(float(seconds), BEGUN + float(options["bound"]) - time.monotonic())
    if left <= 0:
        raise TooLong(f"the {options['bound']} s of all steps are over")
    return left


def frames_of(clip):
    """By the file's table of samples."""
    found = boxes(pathlib.Path(clip).read_bytes(), {})
    return struct.unpack_from(">I", found[b"stsz"], 8)[0]


def stream_of(options, clip, folder):
    """The clip without its container."""
    file = folder / f"{pathlib.Path(clip).stem}.h264"
    line = f"filesrc location={clip} ! qtdemux ! h264parse ! video/x-h264,stream-format=byte-stream,alignment=au ! filesink location={file}"
    try:
        subprocess.run([options["launch"], "-q", *line.split()], check=True, timeout=time_left(options, options["limit"]))
    except subprocess.TimeoutExpired:
        raise TooLong(f"taking the stream out of {clip} has not ended") from None
    return file


def link(source, target):
    try:
        os.link(source, target)
    except OSError:  # of another file system
        shutil.copy(source, target)


class Archive:
    def __init__(self, options, folder):
        clips = options["clips"].split(",")
        count = int(options["videos"])
        streams = [stream_of(options, clip, folder) for clip in clips]
        self.pattern = folder / "streams" / "%05d.h264"
        self.videos = [folder / "videos" / f"{number:05}.mp4" for number in range(count)]
        for name in ("videos", "streams"):
            (folder / name).mkdir()
        for number, video in enumerate(self.videos):
            link(clips[number % len(clips)], video)
            link(streams[number % len(clips)], str(self.pattern) % number)
        lengths = [frames_of(clip) for clip in clips]
        self.lengths = [lengths[number % len(clips)] for number in range(count)]

def parts_of(numbers, count):
    """As many parts, which follow each other; fewer where there are fewer numbers."""
    edges = [numbers.start + len(numbers) * part // count for part in range(count + 1)]
    return [range(first, end) for first, end in zip(edges, edges[1:]) if end > first]


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Busy:
    """Per cent of the GPU and of its decoders, looked at now and then; None without nvidia-smi."""

    COMMAND = ("nvidia-smi", "--query-gpu=utilization.gpu,utilization.decoder", "--format=csv,noheader,nounits", "--id=0")

    def __enter__(self):
        self.over, self.seen = threading.Event(), []
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while not self.over.wait(EACH):
            try:
                said = subprocess.run(self.COMMAND, capture_output=True, text=True, timeout=10, check=True).stdout
                self.seen.append([float(number) for number in said.split(",")])
            except (OSError, ValueError, subprocess.SubprocessError):
                return

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def mean(self):
        return [statistics.mean(column) for column in zip(*self.seen)] or [None, None]


def end_of(log, most):
    """The end of what was written to it, in one line."""
    return " ".join(log.read_text(encoding="utf-8", errors="replace")[-most:].split())


def wait_for(running, logs, what, limit):
    """Their statuses. Those that are not over in time are killed."""
    begun = told = time.monotonic()
    while any(process.poll() is None for process in running):
        now = time.monotonic()
        going_on = [log for process, log in zip(running, logs) if process.poll() is None]
        if now - begun > limit and going_on:
            raise TooLong(f"{what} has not ended within {limit:.0f} s, {len(going_on)} of {len(running)} processes run: {end_of(going_on[0], 600)}")
        if now - told > TELL and going_on:
            told = now
            say(f"  {what}: {now - begun:.0f} of {limit:.0f} s, {len(going_on)} of {len(running)} processes run: {end_of(going_on[0], 160)}")
        time.sleep(0.02)
    return [process.returncode for process in running]


def timed(commands, logs, what, limit):
    """Runs them at the same time. Seconds until all have ended, of the clock and of processors."""
    say(f"{what} begins, for at most {limit:.0f} s")
    begun, spent = time.monotonic(), processor_seconds()
    running = []
    try:
        with Busy() as busy:
            for command, log in zip(commands, logs):
                with open(log, "wb") as file:
                    running.append(subprocess.Popen(list(map(str, command)), stdout=file, stderr=subprocess.STDOUT))
            statuses = wait_for(running, logs, what, limit)
            passed = time.monotonic() - begun
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(statuses):
        broken, status = next((log, status) for log, status in zip(logs, statuses) if status)
        sys.exit(f"{what}: {commands[0][0]} ended with status {status}: {end_of(broken, 600)}")
    say(f"{what} took {passed:.1f} s")
    gpu, decoder = busy.mean()
    return {"seconds": passed, "processor_seconds": processor_seconds() - spent, "gpu_busy": gpu, "decoder_busy": decoder}


def decoder_alone(options, archive, parts, at_once, logs):
    caps = "caps=video/x-h264,stream-format=byte-stream"
    commands = []
    for part in parts:
        lines = [f"multifilesrc location={archive.pattern} index={numbers[0]} stop-index={numbers[-1]} {caps} ! h264parse "
                 f"! {options['decoder']} ! fakesink sync=false" for numbers in parts_of(part, at_once)]
        commands.append([options["launch"], "-q", *" ".join(lines).split()])
    what = f"{options['decoder'].split()[0]} alone {len(parts)}x{at_once}"
    names = [logs / f"decode-{len(parts)}x{at_once}-{part}.log" for part in range(len(parts))]
    return timed(commands, names, what, time_left(options, options["limit"]))


def detect(options, archive, parts, at_once, folder, name, limit):
    """`name` is that of the logs, whose folder it has with it."""
    commands, logs, tables = [], [], []
    for part, numbers in enumerate(parts):
        names, table = folder / f"part-{part}.txt", folder / f"part-{part}.parquet"
        names.write_text("".join(f"{archive.videos[number]}\n" for number in numbers))
        table.unlink(missing_ok=True)
        commands.append([options["program"], "detect", f"@{names}", "--model", options["model"], "--backend", options["backend"],
                         "--parquet", table, "--rows", options["rows"], "--at-once", at_once, "--infer", options["infer"], *options["detect"].split()])
        logs.append(name.with_name(f"{name.name}-{part}.log"))
        tables.append(table)
    found = timed(commands, logs, f"gst-trt detect, {name.name}", limit)
    frames = sum(int(number) for log in logs for number in FRAMES.findall(log.read_text(errors="replace")))
    wanted = sum(archive.lengths[number] for numbers in parts for number in numbers)
    if frames != wanted:
        sys.exit(f"gst-trt detect has had {frames} of {wanted} frames: {logs[0].read_text(errors='replace')[-600:]}")
    return {**found, "rows": rows_of(options, tables, sum(map(len, parts)))}


def rows_of(options, tables, videos):
    """How many there are, none of them with an error; None without the package. Of frames, each video must have some."""
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        return None
    rows, sources = 0, set()
    for path in tables:
        table = pyarrow.parquet.read_table(path, columns=["source", "error"])
        rows += table.num_rows
        sources |= set(pyarrow.compute.unique(table["source"]).to_pylist())
        if errors := pyarrow.compute.unique(table["error"].drop_null()).to_pylist():
            sys.exit(f"{path} has errors: {errors[:3]}")
    if options["rows"] == "frames" and len(sources) != videos:
        sys.exit(f"The tables have rows of {len(sources)} of {videos} videos.")
    return rows


def measure(options, archive, way, folder, logs):
    """What was measured of a way; None where not even one round was. And why no more was."""
    processes, at_once = map(int, way.split("x"))
    frames, videos = sum(archive.lengths), len(archive.videos)
    parts, rounds, failure = parts_of(range(videos), processes), [], None
    try:
        for _ in range(int(options["rounds"])):
            alone = decoder_alone(options, archive, parts, at_once, logs)
            say(f"{way}: {options['decoder']} alone {frames / alone['seconds']:.0f} frames/s")
            ours = detect(options, archive, parts, at_once, folder, logs / f"detect-{way}", time_left(options, options["limit"]))
            rounds.append((alone, ours))
            say(f"{way}: {options['decoder']} alone {frames / alone['seconds']:.0f} frames/s ({alone['seconds']:.1f} s), "
                f"gst-trt detect {frames / ours['seconds']:.0f} ({ours['seconds']:.1f} s, {ours['processor_seconds']:.0f} s of processors, rows {ours['rows']}): "
                f"{alone['seconds'] / ours['seconds']:.3f}; GPU and decoders busy: {percent(alone)}, with detection {percent(ours)}")
    except TooLong as problem:
        failure = f"{way}: {problem}"
    if not rounds:
        return None, failure
    seconds = statistics.median(ours["seconds"] for _, ours in rounds)
    return {
        "row": "archive", "model": options["model"], "processes": processes, "at_once": at_once, "videos": videos, "frames": frames, "decoder": options["decoder"],
        "detect": options["detect"], "infer": options["infer"], "rounds": len(rounds), "cores_here": len(os.sched_getaffinity(0)),
        "decoder_fps": statistics.median(frames / alone["seconds"] for alone, _ in rounds), "fps": frames / seconds, "seconds": seconds,
        "of_decoder": statistics.median(alone["seconds"] / ours["seconds"] for alone, ours in rounds),
        "videos_an_hour": videos / seconds * 3600, "each": rounds,
    }, failure


def percent(found):
    return ", ".join("not known" if found[key] is None else f"{found[key]:.0f} %" for key in ("gpu_busy", "decoder_busy"))


def main():
    options = options_of(DEFAULTS, __doc__)
    if not options["model"] or not options["clips"]:
        sys.exit(__doc__.strip())
    found, failure = [], None
    # So that the folder is removed, and what runs is killed, when the time-out of the caller comes first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    with tempfile.TemporaryDirectory(dir=options["folder"] or None, prefix="archive-") as name:
        folder = pathlib.Path(name)
        logs = pathlib.Path(options["logs"] or name)
        logs.mkdir(parents=True, exist_ok=True)
        try:
            archive = Archive(options, folder)
            say(f"{len(archive.videos)} videos are there, {sum(archive.lengths)} frames")
            # The engine, and the caches of what is read once.
            detect(options, archive, [range(1)], 1, folder, logs / "engine", time_left(options, options["build"]))
        except TooLong as problem:
            sys.exit(f"Nothing was measured: {problem}")
        for way in options["ways"].split(","):
            line, failure = measure(options, archive, way, folder, logs)
            found += [line] if line else []
            if options["json"]:
                pathlib.Path(options["json"]).write_text("".join(json.dumps(line) + "\n" for line in found), encoding="utf-8")
            if failure:
                say(failure)
                break
    if not found:
        sys.exit(f"Nothing was measured: {failure}")
    best = max(found, key=lambda line: line["fps"])
    print(f"{best['videos']} videos in {best['seconds']:.1f} s in {best['processes']}x{best['at_once']} at the same time, {best['videos_an_hour']:.0f} an hour, "
          f"{best['of_decoder']:.3f} of {best['decoder']} alone [bar: {BAR}]", flush=True)
    sys.exit(bool(failure) or best["of_decoder"] < BAR)


if __name__ == "__main__":
    main()
