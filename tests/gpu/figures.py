#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Reads the figures of a row of tests/gpu/run.sh out of what counters and benches wrote.
#
#   python3 tests/gpu/figures.py per-frame CHAIN BASE SHORT LONG
#                                          bytes between host and GPU for a frame of CHAIN beyond those of BASE
#   python3 tests/gpu/figures.py known FOUND EXPECTED
#                                          whether the counter found exactly what is known to have been copied
#   python3 tests/gpu/figures.py download NAME SHORT LONG
#                                          whether one 1080p NV12 frame crosses for each
#   python3 tests/gpu/figures.py launches NAME SHORT LONG
#                                          kernels of a frame, the number alone
#   python3 tests/gpu/figures.py mapped NCU.csv FRAMES
#                                          bytes that our kernels move in the host's memory themselves
#   python3 tests/gpu/figures.py preprocess GPU_KERNELS.txt NCU.csv
#   python3 tests/gpu/figures.py sessions SESSION.txt
#   python3 tests/gpu/figures.py memory MEMORY.txt
#   python3 tests/gpu/figures.py gallery GALLERY.txt
#
# NAME, CHAIN and BASE stand for two runs, NAME-SHORT.copies and NAME-LONG.copies, of so many frames, so that what only the start
# costs falls out; tests/gpu/copies.c wrote them. Prints one line. Exit status: 0, or 1 where the row's bar is missed.
# Python's standard library only.
import csv
import json
import re
import statistics
import sys

FRAME = 1920 * 1080 * 3 // 2  # NV12
MAX_BYTES = 16 << 10  # bytes of a frame that may cross between host and GPU
OUR_KERNELS = ("preprocess", "decode", "rank", "suppress", "plan_marks", "overlay")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


# ---------------------------------------------------------------------- copies

class Runs:
    """What was counted in a short and in a long run."""

    def __init__(self, name, short, long):
        self.frames = int(short), int(long)
        # A first start scans plugins in a process of its own, which has a line of its own.
        self.short, self.long = (json.loads(read(f"{name}-{frames}.copies").splitlines()[-1]) for frames in self.frames)

    def rate(self, get):
        """For a frame, without what only the start costs."""
        short, long = self.frames
        return (get(self.long) - get(self.short)) / (long - short)


def crossing(counted):
    return counted["htod"]["bytes"] + counted["dtoh"]["bytes"]


def per_frame(chain, base, short, long):
    chain, base = Runs(chain, short, long), Runs(base, short, long)
    whole, lost = chain.rate(crossing), chain.long["lost"]
    ours = whole - base.rate(crossing)
    start = max(crossing(chain.short) - whole * int(short), 0)
    print(f"{ours:.0f} bytes a frame between decoder and sink (whole pipeline {whole:.0f}), "
          f"{chain.rate(lambda counted: counted['dtod']['bytes']) / 1e6:.2f} MB inside the GPU, "
          f"{chain.rate(lambda counted: counted['kernels']):.1f} kernels; {start / 1e6:.1f} MB at the start, "
          f"{chain.long['pinned_allocated']['bytes']} bytes pinned, {lost} records lost")
    return lost == 0 and ours <= MAX_BYTES and chain.long["kernels"] >= int(long)


def known(found, expected):
    found, expected = json.loads(read(found)), json.loads(read(expected))
    wrong = {key: (found[key], value) for key, value in expected.items() if found[key] != value}
    print(f"found, expected: {wrong}" if wrong else f"counted exactly: {expected}")
    return not wrong


def download(name, short, long):
    frame = Runs(name, short, long).rate(lambda counted: counted["dtoh"]["bytes"])
    print(f"{frame:.0f} bytes a frame by cudadownload, a frame has {FRAME}")
    return 0.99 < frame / FRAME < 1.06


def launches(name, short, long):
    print(round(Runs(name, short, long).rate(lambda counted: counted["kernels"])))
    return True


# ---------------------------------------------------------------------- ncu

def rows_of(path, metric):
    """Lines of ncu's CSV that are of this metric, a name's part: [id, …, kernel, …, metric, unit, value]."""
    with open(path, encoding="utf-8", newline="") as file:
        return [row for row in csv.reader(file) if len(row) > 10 and metric in row[-3]]


def value(row):
    return float(row[-1].replace(",", ""))


def mapped(path, frames):
    """ncu counts 32-byte sectors. Under it every launch of any kernel writes some; this minimum is not counted. TensorRT's kernels
    are counted separately."""
    counted = {}
    for row in rows_of(path, "sysmem"):
        launch = counted.setdefault(row[0], [row[4].split("(")[0], 0.0])
        launch[1] += 32 * value(row)
    always = min((moved for _, moved in counted.values()), default=0)
    ours, others = {}, 0
    for name, moved in counted.values():
        of_a_frame = (moved - always) / int(frames)
        if name.startswith(OUR_KERNELS):
            ours[name] = ours.get(name, 0) + of_a_frame
        else:
            others += of_a_frame
    frame = sum(ours.values())
    print(f"{frame:.0f} bytes a frame by our kernels in host memory: "
          + ", ".join(f"{name} {moved:.0f}" for name, moved in sorted(ours.items(), key=lambda item: -item[1]))
          + f"; {others:.0f} by those of TensorRT and the decoder ({len(counted)} launches of {frames} frames, {always:.0f} bytes each left out)")
    return bool(ours) and frame <= MAX_BYTES


# ---------------------------------------------------------------------- benches

def preprocess(bench, ncu):
    text = read(bench)
    line = re.search(r"(?im)^nv12 to f16 1x3x640x640 nchw rgb.*$", text).group()
    one, batch, share, in_a_row = map(float, re.search(r"MB\s+([\d.]+)\s+([\d.]+)\s+(\d+)%\s+([\d.]+)", line).groups())
    events = re.search(r"two events are ([\d.]+) µs apart", text).group(1)
    idle = re.search(r"(?m)^a kernel that does nothing, in 400 blocks\s+([\d.]+)", text).group(1)
    each = in_a_row / 32
    counted = [value(row) * {"ns": 1e-3, "us": 1}[row[-2]] for row in rows_of(ncu, "gpu__time_duration.sum")]
    kernel = statistics.median(counted) if counted else None
    by_ncu = f"{kernel:.2f} µs by ncu" if counted else "not counted by ncu"
    print(f"1080p NV12 to f16 1x3x640x640: {by_ncu}; {each:.2f} µs a frame of 32 launches in a row; one launch between two events "
          f"{one}, of a kernel that does nothing {idle}, and the events alone are {events} apart; 32 frames back to back {batch} µs, {share:.0f} % of the copy bandwidth")
    return max(kernel or 0, each, one) <= 6 and share >= 75


def sessions(bench):
    text = read(bench)

    def us(row):
        found = re.search(rf"(?m)^{row}.*?([\d.]+) µs", text)
        return float(found.group(1)) if found else None

    run, device = us("run:"), us("run_device:")
    awake, bare, enqueued = us("awake: run_device"), us("awake: the engine alone, in"), us("awake: the engine alone, by")
    beyond = "no engine file to compare with"
    if bare:
        beyond = (f"waited for awake {awake:.1f}, {awake - bare:.1f} µs beyond the engine in a CUDA graph, "
                  f"{awake - enqueued:.1f} beyond it by enqueueV3")
    print(f"run {run:.0f} µs, run_device {device:.0f} µs: {run / device:.2f}x; {beyond}")
    return run / device >= 1.25 and bare is not None and awake - bare <= 2


def memory(bench):
    text = read(bench)
    pools = max(float(ns) for ns in re.findall(r"pool.* ([\d.]+) ns", text))
    auto, faster = map(float, re.search(r"(?m)^upload=auto.*: ([\d.]+) µs, the faster one ([\d.]+) µs", text).groups())
    print(f"pools {pools:.0f} ns at most; upload=auto takes {auto:.0f} µs, the faster way {faster:.0f} µs")
    return pools <= 200 and auto <= faster * 1.1


def gallery(bench):
    rows = [json.loads(line) for line in read(bench).splitlines() if line.startswith("{")]
    row = next(row for row in rows if (row["vectors"], row["dims"], row["objects"]) == (100_000, 512, 20))
    print(f"{row['gpu_us']:.1f} µs on the GPU, {row['call_us']:.0f} µs from the call, {row['cpu_ms']:.1f} ms of a core; a copy of the gallery "
          f"within the GPU {row['copy_us']:.1f} µs; two events are {row['events_us']:.1f} µs apart, {row['idle_us']:.1f} with a kernel that does nothing")
    return row["gpu_us"] <= 100


ROWS = {"per-frame": per_frame, "known": known, "download": download, "launches": launches, "mapped": mapped,
        "preprocess": preprocess, "sessions": sessions, "memory": memory, "gallery": gallery}

if __name__ == "__main__":
    sys.exit(not ROWS[sys.argv[1]](*sys.argv[2:]))
