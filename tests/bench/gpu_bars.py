#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Judges what tests/bench/gpu.sh has measured: one line for each figure, with its ceiling or rival and the bar.

    gpu_bars.py FOLDER OUT.json

FOLDER has lines of JSON in *.jsonl, and what the bench gpu_kernels printed in kernels.log. A bar that nothing was measured for is said
to be open. Exit status 1 where a bar is missed. Needs nothing but Python.
"""

import glob
import json
import os
import re
import sys

RATIO_16, RATIO_1, CPU, CPU_BEYOND, GRAPH = 0.95, 0.90, 0.10, 0.25, 1.15
# What 16 live streams add to p99 of the engine alone, and to that of as many engines at that pace, in microseconds.
ADDED_US, ADDED_TO_ALL_US = {"yolov8s": 400, "small": 1000, "segment": 1000}, {"yolov8s": 150}
# One stream with batches of 16 to decoding alone; a chain with masks to decoding and the engine at the same time; threads of a stream.
OF_DECODING, OF_BOTH, THREADS = 0.97, 1.0, 3
# Batches that wait where it pays, to the best fixed time: frames a second of files, and p95 of live streams.
AUTO_FPS, AUTO_P95 = 0.97, 1.0
# Microseconds, where a kernel that does nothing takes 4.8; and percents of the copy bandwidth.
PREPROCESS_US, PREPROCESS_SHARE, OVERLAY_US = 6.0, 75, 25
NMS_US = {(100, "60 objects"): 14, (100, "anywhere"): 14, (2000, "60 objects"): 25, (16128, "anywhere"): 100}
SHARED_FPS, SHARED_MEMORY, POOL_HITS = 1.5, 1 / 10, 0.99
TORCH_FPS, TORCH_CPU, TORCHVISION, EFFICIENTNMS = 2, 1 / 2, 5, 1.5
SAHI_FPS, SAHI_RECALL = 4, 0.9
SECOND, SECOND_ONCE, REID, BYTES = 0.90, 0.97, 0.95, 16 << 10
SWAP_GAP_MS, SWAP_MIB, PROMPT_MS = 100, 0, 5
SERVE_FPS, SERVE_MS, SERVE_MIB, FLAT = 29.5 / 30, {"0.5": 12, "0.95": 25, "0.99": 40}, {64: 9 << 10, 128: 16 << 10}, 1.02
GALLERY_US = 100
OF_SHARE_MS, OF_DECODER = {"0.5": 30, "0.95": 60, "0.99": 90}, 0.9
# A shorter list has nothing to run while its results are read.
PYTHON_OF_ENGINE, LONG_LIST = 0.9, 1000
MODELS = {"small": "shapes", "yolov8s": "yolov8s", "segment": "yolov8n-seg"}


class Table:
    def __init__(self):
        self.lines = []

    def add(self, what, ours, other, ratio, minimum=None, maximum=None):
        """A figure next to another one. With a bar its ratio, or what it is itself if there is no other, must keep to it."""
        value = ours if ratio is None else ratio
        if minimum is None and maximum is None:
            verdict, bar = "", ""
        else:
            verdict = "PASS" if (value >= minimum if maximum is None else value <= maximum) else "FAIL"
            bar = f"≥ {minimum:g}" if maximum is None else f"≤ {maximum:g}"
        self.lines.append({"what": what, "ours": ours, "other": other, "ratio": ratio, "bar": bar, "verdict": verdict})

    def open(self, what):
        self.lines.append({"what": what, "ours": None, "other": None, "ratio": None, "bar": "", "verdict": "open"})

    def show(self):
        def text(value):
            return "" if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"

        print(f"{'':<6}{'':<66}{'ours':>9}{'other':>9}{'ratio':>8}  bar")
        for line in self.lines:
            print(f"{line['verdict']:<6}{line['what']:<66}{text(line['ours']):>9}{text(line['other']):>9}"
                  f"{text(line['ratio']):>8}  {line['bar']}")


def read(folder):
    lines = []
    for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            lines += [{"file": os.path.basename(path), **json.loads(line)} for line in file]
    return lines


def of(lines, row, **wanted):
    return [line for line in lines if line["row"] == row and all(line.get(key) == value for key, value in wanted.items())]


def stem(line):
    return os.path.splitext(os.path.basename(line["model"]))[0]


def engines(table, lines, name, file):
    for line in (line for line in of(lines, "engine") if stem(line) == file and "cuda-graph=on" in line["properties"]):
        off = [other for other in of(lines, "engine", batch=line["batch"])
               if stem(other) == file and "cuda-graph=off" in other["properties"]]
        table.add(f"{name}: engine alone, batch {line['batch']}, fps", line["fps"], None, None)
        if off:
            # The bar is for the engine whose launching takes as long as its work.
            minimum = GRAPH if name == "small" and line["batch"] == 1 else None
            what = f"{name}: a run by CUDA graph, and without, batch {line['batch']}, µs"
            table.add(what, line["p50_us"], off[-1]["p50_us"], off[-1]["p50_us"] / line["p50_us"], minimum)


def kind_of(line):
    return f"one model, batch {line['batch']}" if line["shared"] else "a model each"


def is_automatic(line):
    """Whether batches wait only where that pays, which is the default. Lines of former measurements do not tell."""
    return line.get("batch_timeout") == -1


def together(table, lines, line, what, minimum):
    """A chain with batches, next to decoding and the engine at the same time without our elements."""
    if not line["shared"]:
        return
    both = [other for other in of(lines, "together", streams=line["streams"], batch=line["batch"]) if stem(other) == stem(line)]
    if both:
        table.add(what + "fps, of decoding and the engine at once", line["fps"], both[-1]["fps"], line["fps"] / both[-1]["fps"], minimum)
    elif minimum is not None:
        table.open(what + "decoding and the engine at once")


def chains(table, lines, name, file):
    others = ("gpus", "second", "reid", "sahi", "nets", "waits", "many")
    rows = [line for line in of(lines, "chain", decoded=False) if stem(line) == file and not line["file"].startswith(others)]
    if not rows:
        table.open(f"{name}: the whole pipeline")
    for line in rows:
        streams, batch = line["streams"], line["batch"]
        what = f"{name}, {streams} streams, {kind_of(line)}: "
        minimum = {1: RATIO_1, 16: RATIO_16}.get(streams)
        table.add(what + "fps, of ceiling", line["fps"], min(line["decode_fps"], line["engine_fps"]), line["of_ceiling"], minimum)
        table.add(what + "CPU s per 1000 in our elements", line["cpu_ours_s_per_1000"], None, None,
                  maximum=CPU if streams == 16 else None)
        if streams == 1 and line["shared"] and batch == 16:
            # With masks the engine may be the slower one.
            is_judged = name != "segment" and is_automatic(line)
            table.add(what + "fps, of decoding alone", line["fps"], line["decode_fps"], line["fps"] / line["decode_fps"],
                      OF_DECODING if is_judged else None)
        together(table, lines, line, what, OF_BOTH if name == "segment" and streams == 16 and batch == 16 else None)
        # The driver's and the decoders' threads do more while the GPU is busy than where nothing but decoding is done.
        table.add(what + "CPU s per 1000 beyond decoding", line["cpu_beyond_decode_s_per_1000"], line["cpu_s_per_1000"], None,
                  maximum=CPU_BEYOND if streams == 16 else None)
        table.add(what + "buffers that pools had", line["pool_hits"], None, None, minimum=POOL_HITS)
        if line["live_p99_us"] is None:
            if line["live"]:
                table.open(what + f"live, {line['live']} fps are not kept")
            continue
        table.add(what + "live p50, p99, µs", line["live_p50_us"], line["live_p99_us"], None)
        # In batches frames wait for each other, so there it is no more than a figure.
        is_judged = streams == 16 and batch == 1
        table.add(what + "p99 added to the engine's, µs", line["added_p99_us"], None, None, maximum=ADDED_US[name] if is_judged else None)
        if line["added_to_all_p99_us"] is not None:
            table.add(what + "p99 added to that of as many engines, µs", line["added_to_all_p99_us"], line["engines_live_p99_us"], None,
                      maximum=ADDED_TO_ALL_US.get(name) if is_judged else None)
    return rows


def waits(table, lines):
    """Batches that wait where it pays, next to those that wait for fixed times."""
    rows = [line for line in of(lines, "chain", shared=True) if line["file"].startswith("waits")]
    if not rows:
        table.open("batches that wait where it pays")
    for line in filter(is_automatic, rows):
        like = [other for other in rows if all(other[key] == line[key] for key in ("model", "streams", "batch"))]
        fixed = [other for other in like if not is_automatic(other)]
        what = f"{stem(line)}, {line['streams']} streams, batch {line['batch']}: "
        if line["streams"] == 1:
            table.add(what + "fps, of decoding alone", line["fps"], line["decode_fps"], line["fps"] / line["decode_fps"], OF_DECODING)
        if not fixed:
            table.open(what + "against fixed times")
            continue
        best = max(other["fps"] for other in fixed)
        table.add(what + "fps, and the best with a fixed time", line["fps"], best, line["fps"] / best, AUTO_FPS)
        times = [other["live_p95_us"] for other in fixed if other["live_p95_us"] is not None]
        if times and line["live_p95_us"] is not None:
            table.add(what + "live p95, µs, and the least with a fixed time", line["live_p95_us"], min(times), line["live_p95_us"] / min(times),
                      maximum=AUTO_P95 if line["streams"] == 64 else None)
        elif line["live"]:
            table.open(what + f"live, {line['live']} fps are not kept")


def many(table, lines):
    """Hundreds of streams in one process."""
    rows = [line for line in of(lines, "chain", shared=True) if line["file"].startswith("many")]
    if not rows:
        table.open("200 streams in one process")
    for line in rows:
        what = f"{stem(line)}, {line['streams']} streams, {kind_of(line)}: "
        table.add(what + "fps, of ceiling", line["fps"], min(line["decode_fps"], line["engine_fps"]), line["of_ceiling"])
        table.add(what + "CUDA contexts", line["cuda_contexts"], None, None, maximum=1)
        table.add(what + "threads, to streams", line["threads"], line["streams"], line["threads"] / line["streams"], maximum=THREADS)
        table.add(what + "CPU s per 1000 in our elements", line["cpu_ours_s_per_1000"], None, None, maximum=CPU)
        table.add(what + "CPU s per 1000 beyond decoding", line["cpu_beyond_decode_s_per_1000"], line["cpu_s_per_1000"], None)


def sharing(table, rows, name):
    own = of(rows, "chain", streams=16, shared=False)
    shared = of(rows, "chain", streams=16, shared=True, batch=16)
    what = f"{name}, 16 streams: one model with batch 16, and 16 models, "
    if not own or not shared:
        table.open(what + "fps and engine MiB")
        return
    own, shared = own[-1], shared[-1]
    minimum, maximum = (SHARED_FPS, SHARED_MEMORY) if name == "yolov8s" else (None, None)
    table.add(what + "fps", shared["fps"], own["fps"], shared["fps"] / own["fps"], minimum)
    if own["engines_mib"] > 0:
        table.add(what + "engine MiB", shared["engines_mib"], own["engines_mib"],
                  shared["engines_mib"] / own["engines_mib"], maximum=maximum)
        all_of = [line["engines_mib"] + line["room_mib"] for line in (shared, own)]
        table.add(what + "with what they work in, MiB", *all_of, all_of[0] / all_of[1], maximum=maximum)


def second(table, lines):
    rows = [line for line in of(lines, "second") if not line["file"].startswith("reid")]
    if not rows:
        table.open("a second model on the objects of the first")
    for line in rows:
        streams, interval = line["streams"], line["reclassify_interval"]
        is_judged = streams == 16
        how = {0: "once each", 1: "at each frame"}.get(interval, f"every {interval} frames")
        what = f"second model, {streams} streams, objects {how}: "
        table.add(what + "objects, and pictures a frame", line["objects"], line["pictures"], None)
        table.add(what + "bytes a frame between host and GPU", sum(line["bytes_to_and_from_gpu"]), None, None, maximum=BYTES)
        if interval == 0:
            table.add(what + "fps, and without it", line["fps"], line["plain_fps"], line["of_plain"],
                      SECOND_ONCE if is_judged else None)
        else:
            table.add(what + "fps, of ceiling", line["fps"], min(line["decode_fps"], line["engines_fps"]), line["of_ceiling"],
                      SECOND if is_judged else None)
            if not line["pictures"]:
                table.open(what + "the first model finds none")
                continue
            # One GPU that does both has no bar at this.
            other = min(line["plain_fps"], line["second_pictures_per_s"] / line["pictures"])
            table.add(what + "fps, of the slower of both models", line["fps"], other, line["fps"] / other)


def reid(table, lines):
    rows = [line for line in of(lines, "second") if line["file"].startswith("reid")]
    if not rows:
        table.open("vectors of the first model's objects")
    for line in rows:
        what = f"ReID, {line['streams']} streams, each new object: "
        table.add(what + "objects, and pictures a frame", line["objects"], line["pictures"], None)
        table.add(what + "bytes a frame between host and GPU", sum(line["bytes_to_and_from_gpu"]), None, None)
        if not line["pictures"]:
            table.open(what + "the first model finds none")
            continue
        table.add(what + "fps, and without it", line["fps"], line["plain_fps"], line["of_plain"], REID if line["streams"] == 16 else None)


def nets(table, lines):
    chains = [line for line in of(lines, "chain") if line["file"].startswith("nets-")]
    if not chains:
        table.open("YOLOv8 and YOLO11 in FP16 and INT8")
    for line in chains:
        precision = re.search(r"precision=(\w+)", line["properties"])[1].upper()
        kind = f"one model, batch {line['batch']}" if line["shared"] else "a model each"
        what = f"{stem(line)}, {precision}, {line['streams']} streams, {kind}: "
        table.add(what + "fps, of ceiling", line["fps"], min(line["decode_fps"], line["engine_fps"]), line["of_ceiling"])
        if line["live_p99_us"] is not None:
            table.add(what + "live p50, p99, µs", line["live_p50_us"], line["live_p99_us"], None)
        rivals = [("PyTorch", other) for other in of(lines, "torch") if other["file"].startswith("nets-") and stem(other) == stem(line)]
        rivals += [("Ultralytics' predict", other) for other in of(lines, "ultralytics", model=stem(line))]
        for name, other in rivals if line["streams"] == 16 and line["shared"] else ():
            table.add(what + f"fps, and {name}, batch {other['batch']}", line["fps"], other["fps"], line["fps"] / other["fps"])


def swap(table, lines):
    rows = of(lines, "swap")
    if not rows:
        table.open("the model swapped while streams play")
    for line in rows:
        kind = f"one model, batch {line['batch']}" if line["shared"] else "a model each"
        what = f"{line['swaps']} swaps, {line['streams']} streams, {kind}, {line['live'] or 'flat out'}: "
        table.add(what + "frames lost or doubled", line["lost"] + line["doubled"], line["frames"], None, maximum=0)
        table.add(what + "longest gap, and without swaps, ms", line["gap_swap_p50_max_ms"][1], line["gap_quiet_p50_max_ms"][1], None,
                  maximum=SWAP_GAP_MS)
        table.add(what + "fps during swaps, and with the slower model", line["fps_swapping"], min(line["fps_quiet"]), None)
        table.add(what + "load, p50 and maximum, ms", *line["load_p50_max_ms"], None)
        first, last = line["first_gpu_mib_heap_kib_threads_files"], line["last_gpu_mib_heap_kib_threads_files"]
        for i, (name, maximum) in enumerate({"MiB on the GPU": SWAP_MIB, "KiB on the heap": None, "threads": None,
                                             "files": None}.items()):
            table.add(what + f"{name} more, of", last[i] - first[i], first[i], None, maximum=maximum)


def prompts(table, lines):
    rows = of(lines, "prompts")
    if not rows:
        table.open("words changed while streams play")
    for line in rows:
        what = f"words changed {line['swaps']} times, {line['streams']} streams, {line['live'] or 'flat out'}: "
        table.add(what + "frames lost or doubled", line["lost"] + line["doubled"], line["frames"], None, maximum=0)
        median, most = line["first_p50_max_ms"]
        # Flat out a frame waits until the decoders have filled its batch.
        table.add(what + "first frame with them, maximum and p50, ms", most, median, None, maximum=PROMPT_MS if line["live"] else None)
        table.add(what + "longest gap, and without changes, ms", line["gap_swap_p50_max_ms"][1], line["gap_quiet_p50_max_ms"][1], None)


def gpus(table, lines):
    for two in of(lines, "chain", gpus=2):
        for one in of(lines, "chain", gpus=1, file="gpus-1.jsonl", shared=two["shared"], batch=two["batch"]):
            kind = f"one model each, batch {two['batch']}" if two["shared"] else "a model for each stream"
            what = f"two GPUs with {two['streams']} streams, and one with {one['streams']}, {kind}, fps"
            table.add(what, two["fps"], one["fps"], two["fps"] / one["fps"])


def torch(table, lines, rows, name, file):
    theirs = [line for line in of(lines, "torch") if stem(line) == file and not line["file"].startswith("nets")]
    # PyTorch's frames are in GPU memory already. Ours were so too, or had to be decoded.
    both = {"": [line for line in of(lines, "chain", decoded=True, streams=16) if stem(line) == file],
            ", which decodes": of(rows, "chain", streams=16)}
    if not theirs:
        table.open(f"{name}: against the PyTorch chain")
        return
    for which, chains in both.items():
        if not chains:
            table.open(f"{name}: ours{which}, against the PyTorch chain")
            continue
        ours = max(chains, key=lambda line: line["fps"])
        for line in theirs:
            kind = f"batch {line['batch']}" + (f", staged by {line['staged']}" if line["staged"] else "")
            kind += "" if line["of_a_clip"] else ", on noise"
            what = f"{name}, 16 streams: best of ours{which}, and PyTorch, {kind}, "
            table.add(what + "fps", ours["fps"], line["fps"], ours["fps"] / line["fps"], TORCH_FPS)
            table.add(what + "CPU s", ours["cpu_s_per_1000"], line["cpu_s_per_1000"],
                      ours["cpu_s_per_1000"] / line["cpu_s_per_1000"], maximum=TORCH_CPU)


def sahi(table, lines):
    theirs = of(lines, "sahi")
    chains = [line for line in of(lines, "chain", shared=True) if line["file"].startswith("sahi")]
    pairs = [(line, ours) for line in theirs for ours in chains
             if stem(ours) == stem(line) and ours["batch"] == line["pictures"]]
    if not pairs:
        table.open("slices of a 4K clip against SAHI")
    for line in theirs:
        what = f"SAHI, {line['pictures']} pictures a frame, "
        ways = {(way["batch"], way["merged_by"]): way["fps"] for way in line["ways"]}
        for (batch, merged_by), fps in ways.items():
            table.add(f"{what}batch {batch}, merged by {merged_by}, fps", None, fps, None)
        # What finds nothing has little to merge.
        if "recall" in line:
            table.add(what + "recall", line["recall"], None, None, SAHI_RECALL)
    for line, ours in pairs:
        # SAHI's frames are in host memory, as RGB, before its time begins. Noise is other work than our clip: no bar.
        which = "" if ours["decoded"] else ", which decodes"
        clip, minimum = ("", SAHI_FPS) if line["of_a_clip"] else (", on noise", None)
        what = f"slices, {ours['streams']} streams: ours{which}, and SAHI{clip}, fps"
        table.add(what, ours["fps"], line["fps"], ours["fps"] / line["fps"], minimum)


def nms(table, lines):
    rows = of(lines, "nms")
    if not rows:
        table.open("decoding and NMS against torchvision and EfficientNMS")
    for line in rows:
        table.add(f"NMS of {line['candidates']}, {line['kind']}: ours, µs", line["ours_us"], None, None,
                  maximum=NMS_US.get((line["candidates"], line["kind"])))
        judged = line["candidates"] in (100, 1000, 5000)
        for rival, minimum in (("torchvision", TORCHVISION), ("efficientnms", EFFICIENTNMS)):
            what = f"NMS of {line['candidates']}, {line['kind']}: ours, and {rival}, µs"
            time = line[f"{rival}_us"]
            if time is None:
                table.open(what)
            else:
                table.add(what, line["ours_us"], time, time / line["ours_us"], minimum if judged else None)


def kernels(table, folder):
    """Kernels, with one that does nothing in the same run. Returns how long preprocessing takes, by the number of frames."""
    try:
        with open(os.path.join(folder, "kernels.log"), encoding="utf-8") as file:
            said = file.read()
    except FileNotFoundError:
        said = ""
    idle = re.search(r"(?m)^a kernel that does nothing, in 400 blocks +([\d.]+)", said)
    made = re.search(r"(?im)^nv12 to f16 1x3x640x640 nchw rgb.*MB +([\d.]+) +([\d.]+) +(\d+)%", said)
    drawn = re.search(r"(?im)^300 boxes with labels on nv12 +([\d.]+)", said)
    nothing = float(idle[1]) if idle else None
    if made:
        table.add("preprocess, one frame, and a kernel that does nothing, µs", float(made[1]), nothing, None, maximum=PREPROCESS_US)
        table.add("preprocess, 32 frames, % of the copy bandwidth", float(made[3]), None, None, minimum=PREPROCESS_SHARE)
    else:
        table.open("preprocess, one frame and 32")
    if drawn:
        table.add("300 boxes drawn, and a kernel that does nothing, µs", float(drawn[1]), nothing, None, maximum=OVERLAY_US)
    else:
        table.open("300 boxes drawn")
    return {1: float(made[1]), 32: float(made[2])} if made else {}


def preprocess(table, lines, folder):
    ours = kernels(table, folder)
    rows = of(lines, "preprocess", side=640)
    if not ours or not rows:
        table.open("preprocess against PyTorch and CV-CUDA")
        return
    for line in rows:
        what = f"preprocess, {line['frames']} frames: ours, and {line['way']}, µs"
        if "failed" in line:
            table.open(f"{what}: {line['failed']}"[:120])
        else:
            table.add(what, ours[line["frames"]], line["us"], line["us"] / ours[line["frames"]])


def gallery(table, lines):
    rows = of(lines, "gallery")
    if not rows:
        table.open("objects compared with a gallery")
    for line in rows:
        is_judged = (line["vectors"], line["dims"], line["objects"]) == (100_000, 512, 20)
        what = f"{line['objects']} objects, gallery of {line['vectors']} vectors of {line['dims']}: "
        table.add(what + "µs on the GPU, and a copy of it there", line["gpu_us"], line["copy_us"], None,
                  maximum=GALLERY_US if is_judged else None)
        table.add(what + "µs from the call, and of a core", line["call_us"], line["cpu_ms"] * 1e3, line["call_us"] / (line["cpu_ms"] * 1e3))


def serve(table, lines):
    rows = of(lines, "serve")
    if not rows:
        table.open("gst-trt serve with many sources")
    for line in sorted(rows, key=lambda line: line["sources"]):
        what = f"serve, {line['sources']} {'cameras' if line['rtsp'] else 'files'}: "
        table.add(what + "fps of the slowest, to its own", line["fps_least"], line["fps"], line["fps_least"] / line["fps"], minimum=SERVE_FPS)
        if not line["gpus"]:
            continue
        table.add(what + "CUDA contexts, to GPUs", len(line["contexts"]), line["gpus"], len(line["contexts"]) / line["gpus"], maximum=1)
        for quantile, (middle, _) in line["latency_ms"].items():
            bar = SERVE_MS.get(quantile) if line["sources"] <= 64 else None
            table.add(what + f"decoder to result, ms, quantile {quantile}", middle, None, None, maximum=bar)
        for quantile, (middle, _) in line["camera_ms"].items():
            table.add(what + f"camera to result, ms, quantile {quantile}", middle, None, None)
        sizes = [(at, max(gpus)) for at, gpus, _ in line["sizes"]]
        last = sizes[-1][1]
        table.add(what + "GPU memory, MiB", last, None, None, maximum=SERVE_MIB.get(line["sources"]))
        if settled := next((size for at, size in sizes[:-1] if at >= 60), None):
            table.add(what + "GPU memory, MiB, to that after its first minute", last, settled, last / settled, maximum=FLAT)


def most(table, lines):
    rows = of(lines, "most")
    if not rows:
        table.open("the most sources of gst-trt serve with RT-DETR-R50, YOLO11 and YOLOv8")
    for line in rows:
        what = f"{stem(line)}, {'cameras' if line['rtsp'] else 'files'}{' with a tracker' if line['track'] else ''}: "
        table.add(what + "engine alone, pictures/s, and ms of a run", line["engine_fps"], line["engine_run_ms"], None)
        wanted = line["of_share"]
        if wanted and all(run["sources"] != wanted for run in line["runs"]):
            # That number is what the bars are for, so without it they are missed.
            table.add(what + f"{wanted} sources, {line['share']:g} of the engine, were measured", 0, None, None, minimum=1)
        for run in line["runs"]:
            number = f"{run['sources']} sources, "
            # With that share of the engine there is room for all of them.
            is_judged = run["sources"] == wanted
            table.add(what + number + "fps of the slowest, to its own", run["fps_least"], 30, run["fps_least"] / 30, SERVE_FPS if is_judged else None)
            table.add(what + number + "fps of all, of the engine", run["fps"], line["engine_fps"], run["of_engine"])
            # From the decoder on it takes less, so that says nothing of the bars for cameras.
            is_of_cameras = line["rtsp"] and run["from"] == "camera"
            for quantile, time in run["ms"].items():
                table.add(what + number + f"{run['from']} to result, ms, quantile {quantile}", time, None, None,
                          maximum=OF_SHARE_MS.get(quantile) if is_judged and is_of_cameras else None)
            if is_judged and not is_of_cameras:
                table.open(what + number + "camera to result")
        table.add(what + "the most with 29.5 fps each", line["most"], None, None)
        table.add(what + f"the most with p95 within {line['p95_bar_ms']:g} ms, too", line["most_soon"], None, None)
        if line["failure"]:
            table.open(f"{what}{line['failure']}"[:120])


def archive(table, lines):
    rows = of(lines, "archive")
    if not rows:
        table.open("an archive of short videos")
    best = max(rows, key=lambda line: line["fps"], default=None)
    for line in rows:
        what = f"{line['videos']} videos, {line['processes']}x{line['at_once']} at the same time: "
        table.add(what + "fps, of the decoder alone", line["fps"], line["decoder_fps"], line["of_decoder"], OF_DECODER if line is best else None)
        table.add(what + "videos an hour, and seconds", line["videos_an_hour"], line["seconds"], None)


def python(table, lines):
    rows = [line for line in of(lines, "python") if line["backend"] == "tensorrt"]
    if not rows:
        table.open("lists of images in Python, of the engine alone")
    for line in rows:
        what = f"Python, lists of {line['list']}, {line['kind']}, batch {line['batch']}: "
        minimum = PYTHON_OF_ENGINE if line["list"] >= LONG_LIST else None
        table.add(what + "images/s, of the engine", line["fps"], line["engine_fps"], line["of_engine"], minimum)
        for other in of(lines, "python_ultralytics", batch=line["batch"]) if line["kind"] == "numpy" and line["list"] >= line["batch"] else ():
            table.add(what + f"images/s, and Ultralytics by {other['way']}", line["fps"], other["fps"], line["fps"] / other["fps"])


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__.strip())
    folder, out = sys.argv[1:]
    lines, table = read(folder), Table()
    for line in (line for line in of(lines, "decode") if line["file"].startswith("decode")):
        table.add(f"decoding alone, {line['streams']} streams, fps", line["fps"], None, None)
    for name, file in MODELS.items():
        engines(table, lines, name, file)
        rows = chains(table, lines, name, file)
        sharing(table, rows, name)
        torch(table, lines, rows, name, file)
    nets(table, lines)
    waits(table, lines)
    many(table, lines)
    second(table, lines)
    reid(table, lines)
    swap(table, lines)
    prompts(table, lines)
    serve(table, lines)
    most(table, lines)
    archive(table, lines)
    python(table, lines)
    gpus(table, lines)
    sahi(table, lines)
    nms(table, lines)
    preprocess(table, lines, folder)
    gallery(table, lines)
    for line in of(lines, "soak"):
        table.add(f"soak, {line.get('kind', 'detect')}: {line['said']}", float(line["passed"]), None, None, minimum=1)
    for line in of(lines, "failed"):
        table.add(f"{line['file']}, {line['what']}: {line['error']}"[:120], 0, None, None, minimum=1)
    table.show()
    verdicts = [line["verdict"] for line in table.lines]
    print(f"{verdicts.count('PASS')} bars kept, {verdicts.count('FAIL')} missed, {verdicts.count('open')} open; all of it in {out}")
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"bars": table.lines, "figures": lines}, file, ensure_ascii=False, indent=1)
    return "FAIL" in verdicts


if __name__ == "__main__":
    sys.exit(main())
