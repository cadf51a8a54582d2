#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""gst-trt serve with many RTSP sources, one of which is killed and started again from time to time.

  tests/bench/serve.py [seconds=600] [sources=24] [every=10] [interval=30] [fps=5] [program=target/release/gst-trt]

Each source has a server process of its own, of the sample clip at that rate and 320x180, so killing one is what a camera does that loses its
power. After `every` seconds the next one is killed, and started again a second later. It says how long sources took to come back; how many frames
were lost, by what the program says it dropped and by gaps between the times of results, each by cause: at the start, of sources that came back, and of
those that played meanwhile; memory, threads and open files after the first minute and at the end; and what it costs to read /metrics. `interval` is that of trtinfer: on a CPU it
decides what the model costs. The status is 1 if a bar is missed.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SERVER = ROOT / "gst-trt/tests/common/rtsp_server.py"
PYTHON = "/usr/bin/python3"  # Debian's, for which the bindings are installed
HTTP = 18190
FIRST_PORT = 18600
BACKOFF = 2.0


def clip(folder, fps):
    """A small copy of the sample clip."""
    target = folder / "clip.mp4"
    line = (
        f"filesrc location={ROOT}/tests/data/sample.mp4 ! decodebin ! videorate ! videoscale ! videoconvert"
        f" ! video/x-raw,width=320,height=180,framerate={fps}/1 ! x264enc key-int-max={fps} bframes=0 ! h264parse ! mp4mux ! filesink location={target}"
    )
    subprocess.run(["gst-launch-1.0", "-q", *line.split()], check=True)
    return target


def serve_clip(number, target):
    command = [PYTHON, str(SERVER), str(FIRST_PORT + number), str(target), "live"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.readline()
    return process


def configuration(folder, sources, interval):
    text = f'[[model]]\nname = "shapes"\nfile = "{ROOT}/tests/models/shapes.onnx"\nbackend = "cpu"\ninfer = "interval={interval} threads=1"\n\n'
    text += f'[track]\n\n[[publish]]\nlocation = "{folder}/{{source}}.jsonl"\nadd-empty-results = true\n\n'
    text += f'[http]\nlisten = "127.0.0.1:{HTTP}"\n\n'
    for number in range(sources):
        text += f'[[source]]\nname = "s{number}"\naddress = "rtspt://127.0.0.1:{FIRST_PORT + number}/live"\n'
        text += f"timeout = 20\nbackoff-min = 0.2\nbackoff-max = {BACKOFF}\n\n"
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return file


def status():
    with urllib.request.urlopen(f"http://127.0.0.1:{HTTP}/sources", timeout=10) as answer:
        found = json.load(answer)
    return {source["name"]: source for source in (found["sources"] if isinstance(found, dict) else found)}


def wait_for(condition, seconds):
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        if condition():
            return time.monotonic() - begun
        time.sleep(0.05)
    return None


def size(process):
    proc = pathlib.Path(f"/proc/{process.pid}")
    fields = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["Threads"]), len(list((proc / "fd").iterdir()))


def reading_metrics(process, times=200):
    """Milliseconds of a core that one reading takes, by the processor time of the thread that answers."""
    def spent():
        tasks = pathlib.Path(f"/proc/{process.pid}/task").iterdir()
        return next(int((task / "schedstat").read_text().split()[0]) for task in tasks if (task / "comm").read_text() == "http\n")

    before = spent()
    for _ in range(times):
        with urllib.request.urlopen(f"http://127.0.0.1:{HTTP}/metrics", timeout=10) as answer:
            length = len(answer.read())
    return (spent() - before) / times / 1e6, length


def gaps(file, fps):
    """Frames missing between the stream times of lines: those of the first second of each run, which begins with frame 0, and later ones."""
    connecting, playing, last = 0, 0, None
    for line in file.read_text(encoding="utf-8").splitlines():
        frame = json.loads(line)
        now = (frame["frame"], frame["stream-time"])
        if last is not None and now[0] == last[0] + 1 and now[1] is not None and last[1] is not None:
            lost = max(0, round((now[1] - last[1]) * fps / 1e9) - 1)
            connecting, playing = (connecting + lost, playing) if now[0] <= fps else (connecting, playing + lost)
        last = now
    return connecting, playing


class Drops:
    """What the program says it dropped until all run, of sources that came back since the last look, and of those that played."""

    def __init__(self):
        self.before, self.start, self.back, self.playing = Counter(), Counter(), Counter(), Counter()

    def look(self, seen, count_return=None):
        for name, source in seen.items():
            counts = self.start if count_return is None else self.back if name == count_return else self.playing
            counts[name] += source["dropped"] - self.before[name]
            self.before[name] = source["dropped"]


def main():
    options = {"seconds": "600", "sources": "24", "every": "10", "interval": "30", "fps": "5", "program": str(ROOT / "target/release/gst-trt")}
    options.update(argument.split("=", 1) for argument in sys.argv[1:])
    seconds, sources, every, interval, fps = (int(options[name]) for name in ("seconds", "sources", "every", "interval", "fps"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        target = clip(folder, fps)
        servers = [serve_clip(number, target) for number in range(sources)]
        with open(folder / "journal", "w", encoding="utf-8") as journal:
            program = subprocess.Popen([options["program"], "serve", str(configuration(folder, sources, interval))], stderr=journal)
        try:
            run(program, servers, target, seconds, every, fps, folder)
        finally:
            program.kill()
            for server in servers:
                server.kill()


def named(counts):
    """The sum, and the sources that it is of."""
    sources = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    return f"{counts.total()}" + (f" ({sources})" if sources else "")


def run(program, servers, target, seconds, every, fps, folder):
    def all_run():
        try:
            return all(source["state"] == "running" for source in status().values())
        except OSError:
            return False

    started = wait_for(all_run, 300)
    if started is None:
        sys.exit(f"not all sources run after 300 s: {status()}")
    print(f"{len(servers)} sources run after {started:.1f} s", flush=True)
    cost, length = reading_metrics(program)
    print(f"/metrics: {length} bytes in {cost:.2f} ms: {cost / 10:.2f} % of a core, read each second  [bar: 1 %]", flush=True)
    drops = Drops()
    time.sleep(2)
    drops.look(status())
    begun, back, sizes, number = time.monotonic(), [], [], 0
    while time.monotonic() - begun < seconds:
        next_one = time.monotonic() + every
        name = f"s{number % len(servers)}"
        servers[number % len(servers)].kill()
        servers[number % len(servers)].wait()
        wait_for(lambda: status()[name]["state"] != "running", 20)
        time.sleep(1)
        servers[number % len(servers)] = serve_clip(number % len(servers), target)
        back.append(wait_for(lambda: status()[name]["state"] == "running", 30))
        number += 1
        sizes.append((time.monotonic() - begun, *size(program)))
        time.sleep(max(0, next_one - time.monotonic()))
        drops.look(status(), count_return=name)
    seen = status()
    program.terminate()
    ended = program.wait(60)
    connecting, playing = (sum(lost) for lost in zip(*(gaps(file, fps) for file in folder.glob("s*.jsonl"))))
    after = [entry for entry in sizes if entry[0] >= 60] or sizes
    (_, memory, threads, files), (_, last_memory, last_threads, last_files) = after[0], after[-1]
    returned = [seconds for seconds in back if seconds is not None]
    print(f"killed {number}, back {len(returned)}: median {statistics.median(returned):.2f} s, longest {max(returned):.2f} s  [bar: {BACKOFF} s of backoff, and the start]")
    print(f"frames {sum(source['frames'] for source in seen.values())}, restarts {sum(source['restarts'] for source in seen.values())}; status at the end {ended}")
    print(f"at the start: dropped {named(drops.start)}")
    print(f"of sources that came back: dropped {named(drops.back)}; missing in the first second of all runs {connecting}")
    print(f"of sources that played: dropped {named(drops.playing)}; missing {playing}  [bar: 0]")
    print(f"memory {memory:.0f} MiB after the first minute, {last_memory:.0f} MiB at the end; threads {threads}, {last_threads}; files {files}, {last_files}", flush=True)
    good = len(returned) == number and drops.playing.total() == 0 and playing == 0 and ended == 0
    sys.exit(not (good and last_memory < memory * 1.05 and last_threads <= threads + 10))


main()
