#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""gst-trt serve with many sources that share a model: a clip in a loop at its own pace, or a camera by RTSP.

  tests/bench/serve_sources.py program=gst-trt clip=camera.mp4 model=yolov8s.onnx [sources=16] [seconds=30] [settle=10] [settle-limit=0] [fps=30]
      [batch=16] [backend=tensorrt] [infer="engine-cache=…"] [gpus=1] [rtsp=false] [sync=true] [track=false]
      [limit=480] [json=FILE] [journal=FILE]

It says, for the time after `settle` seconds in which all sources ran: frames a second of each source, the least and the median; frames that
were dropped; latency from the decoder and, with RTSP, from the camera to results; processors in use; memory of the GPUs beyond what they had before, and of
the process, at the beginning and at the end; and the CUDA contexts of the process, by the log of GStreamer's CUDA library. `gpus` is how
many GPUs are in use, all of the machine where there are several, 0 for a run on the CPU, which is for trying out this script. Exit status 1 where a bar is missed: a context for each
GPU in use, 29.5 frames a second of 30 of each source, and an end with status 0 that leaves nothing behind. Latencies are those of the last
1,024 frames of each source: after less than 35 s some are of its start.

With `settle-limit` it begins when what piled up at the start is gone, after so many seconds at the latest, and `settle` seconds at the soonest:
the mean latency of the newest results, which is what sums and counts of the service have grown by in 2 s, has stayed within a quarter of itself,
or within 5 ms, over three looks. It measures for 35 s or more then, so that no latency is of the time before. With `track` objects get ids.
Needs nothing but Python, and for rtsp=true the GStreamer elements that read it.
"""

import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from arguments import options_of

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SERVER = ROOT / "tests/bench/rtsp_cameras.py"
FPS_SHARE = 29.5 / 30
CAMERAS_OF_A_SERVER = 16
QUANTILES = {"0.5": "p50", "0.95": "p95", "0.99": "p99"}
VERDICTS = {True: "computes what the file says", False: "computes something else than the file says", None: "was not verified"}
EACH = 10.0  # seconds between two looks at memory
NEWEST = 2.0  # seconds between two looks at the latency of the newest results
LOOKS, LIKE, LIKE_MS = 3, 0.25, 5.0  # so many of them that are so near each other are a steady state
KEPT = 1024  # latencies of a source that the service keeps
DEFAULTS = {
    "program": "gst-trt", "clip": str(ROOT / "tests/data/sample.mp4"), "model": str(ROOT / "tests/models/shapes.onnx"), "sources": "16",
    "seconds": "30", "settle": "10", "settle-limit": "0", "fps": "30", "batch": "16", "backend": "tensorrt", "infer": "", "gpus": "1", "rtsp": "false", "sync": "true",
    "track": "false", "limit": "480", "json": "", "journal": "",
}
SAMPLE = re.compile(r'^gst_trt_(\w+?)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="([^"]*)"')
CREATED = re.compile(r"Created CUDA context (0x[0-9a-f]+) with device-id (\d+)")
DESTROYED = re.compile(r"Destroying CUDA context (0x[0-9a-f]+)")


def quoted(text):
    return json.dumps(str(text), ensure_ascii=False)


def configuration(options, addresses, port):
    text = 'gpus = "all"\n\n' if int(options["gpus"]) > 1 else ""
    text += (
        f'[[model]]\nname = "model"\nfile = {quoted(options["model"])}\nbackend = {quoted(options["backend"])}\n'
        f'batch-size = {options["batch"]}\ninfer = {quoted(options["infer"])}\n\n[http]\nlisten = "127.0.0.1:{port}"\n\n'
    )
    text += "[track]\n\n" if options["track"] == "true" else ""
    for number, address in enumerate(addresses):
        pace = "" if "://" in address else f"loop = true\nsync = {options['sync']}\n"
        text += f'[[source]]\nname = "s{number}"\naddress = {quoted(address)}\n{pace}\n'
    return text


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def metrics(port):
    """Samples by family: a list of labels and value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    found = {}
    for name, labels, value in (match.groups() for match in map(SAMPLE.match, text.splitlines()) if match):
        found.setdefault(name, []).append((dict(LABEL.findall(labels or "")), float(value)))
    return found


def by_source(found, family):
    return {labels["source"]: value for labels, value in found.get(family, [])}


def quantiles(port, name):
    """Milliseconds: of each quantile the median of the sources, and the most."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/sources", timeout=20) as answer:
        sources = json.load(answer)
    values = {}
    for summary in (source.get(name) for source in sources):
        for quantile, key in QUANTILES.items() if summary else ():
            values.setdefault(quantile, []).append(summary[key] * 1e3)
    return {quantile: (statistics.median(each), max(each)) for quantile, each in values.items()}


def sums(found):
    """Seconds and frames of all results so far, from the camera where that is known of any, else from the decoder."""
    for family in ("camera_latency_seconds", "latency_seconds"):
        frames = sum(value for _, value in found.get(f"{family}_count", []))
        if frames:
            return family, sum(value for _, value in found.get(f"{family}_sum", [])), frames
    return None, 0.0, 0.0


def is_steady(means):
    last = means[-LOOKS:]
    return len(last) == LOOKS and max(last) - min(last) <= max(LIKE * min(last), LIKE_MS)


def settle(options, port):
    """Waits until latencies stay. Whether they do, how long that took, and the means in milliseconds."""
    begun, least, most = time.monotonic(), float(options["settle"]), float(options["settle-limit"])
    if most <= 0:
        time.sleep(least)
        return {"steady": None, "settled": least, "means_ms": []}
    means, before = [], sums(metrics(port))
    while True:
        time.sleep(NEWEST)
        after = sums(metrics(port))
        if after[0] == before[0] and after[2] > before[2]:
            means.append((after[1] - before[1]) / (after[2] - before[2]) * 1e3)
        before, passed = after, time.monotonic() - begun
        if passed >= least and is_steady(means) or passed >= max(least, most):
            steady = is_steady(means)
            newest = f"{means[-1]:.0f} ms" if means else "not known"
            print(f"{'steady' if steady else 'not steady'} after {passed:.1f} s, the newest results' mean latency is {newest}", flush=True)
            return {"steady": steady, "settled": passed, "means_ms": [round(mean, 1) for mean in means]}


def model_state(port):
    """What the service says of its model: whether its engine was compared with the file, and how many frames its runs had."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/models", timeout=20) as answer:
        return json.load(answer)[0]


def frames_of_a_run(before, after):
    """The mean since then; None where frames are not run together."""
    counts = [state.get("batches") or {} for state in (before, after)]
    frames, runs = (counts[1].get(key, 0) - counts[0].get(key, 0) for key in ("frames", "runs"))
    return frames / runs if runs else None


def gpu_memory():
    """MiB in use, of each GPU."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [int(line) for line in said.split() if line.isdigit()]


def resident(group):
    """MiB of the program, which may have a shell around it: the largest process of the group."""
    largest = 0
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            if os.getpgid(int(status.parent.name)) == group:
                fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
                largest = max(largest, int(fields.get("VmRSS", "0 kB").split()[0]))
        except (OSError, ValueError):
            pass  # it has ended
    return largest / 1024


def processor(group):
    """Seconds of a processor that the processes of the group have taken."""
    ticks = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if os.getpgid(int(stat.parent.name)) == group:
                # The name before may hold anything, spaces too.
                user, system = stat.read_text().rpartition(")")[2].split()[11:13]
                ticks += int(user) + int(system)
        except (OSError, ValueError):
            pass  # it has ended
    return ticks / os.sysconf("SC_CLK_TCK")


def contexts(journal):
    """The devices of contexts that were made and are there; and how many were made. nvcodec makes one for each GPU when it is loaded
    to see what that can decode, and destroys it."""
    alive, made = {}, 0
    for line in journal.read_text(encoding="utf-8", errors="replace").splitlines():
        if created := CREATED.search(line):
            alive[created[1]] = int(created[2])
            made += 1
        elif destroyed := DESTROYED.search(line):
            alive.pop(destroyed[1], None)
    return sorted(alive.values()), made


def wait_until_all_run(port, program, sources, limit, journal):
    begun = time.monotonic()
    while time.monotonic() - begun < limit:
        if program.poll() is not None:
            sys.exit(f"gst-trt serve has ended with status {program.returncode}: {tail(journal)}")
        try:
            found = metrics(port)
            if any(value for _, value in found.get("model_failed", [])):
                sys.exit(f"the model cannot be loaded: {tail(journal)}")
            states = found.get("source_state", [])
            if sum(value for labels, value in states if labels["state"] == "running") == sources:
                return time.monotonic() - begun
        except (OSError, urllib.error.URLError):
            pass  # it has only begun
        time.sleep(0.5)
    sys.exit(f"not all of {sources} sources run after {limit} s: {tail(journal)}")


def tail(journal):
    lines = [line for line in journal.read_text(encoding="utf-8", errors="replace").splitlines() if "cudacontext" not in line]
    return " | ".join(lines[-5:])


def cameras(options, sources):
    # More than one, for Python uses one core.
    servers, addresses = [], []
    for first in range(0, sources, CAMERAS_OF_A_SERVER):
        server = subprocess.Popen([sys.executable, str(SERVER), "0", options["clip"]], stdout=subprocess.PIPE, text=True)
        servers.append(server)
        port = server.stdout.readline().strip()
        if not port.isdigit():
            sys.exit("The RTSP server does not start, see above.")
        addresses += [f"rtspt://127.0.0.1:{port}/{number}" for number in range(first, min(first + CAMERAS_OF_A_SERVER, sources))]
    return servers, addresses


def measure(options, port, program, journal):
    sources, seconds = int(options["sources"]), float(options["seconds"])
    started = wait_until_all_run(port, program, sources, float(options["limit"]), journal)
    print(f"{sources} sources run after {started:.1f} s", flush=True)
    settled = settle(options, port)
    if settled["steady"] is not None:
        seconds = max(seconds, KEPT / float(options["fps"]) + 1)
    model, before, begun, spent = model_state(port), metrics(port), time.monotonic(), processor(program.pid)
    sizes = []
    while (at := time.monotonic() - begun) < seconds:
        sizes.append([round(at, 1), gpu_memory(), resident(program.pid)])
        time.sleep(max(0.0, begun + min(len(sizes) * EACH, seconds) - time.monotonic()))
    sizes.append([round(time.monotonic() - begun, 1), gpu_memory(), resident(program.pid)])
    after, passed, model_after = metrics(port), time.monotonic() - begun, model_state(port)
    cores = (processor(program.pid) - spent) / passed
    frames = [by_source(found, "frames_total") for found in (before, after)]
    rates = sorted((frames[1][name] - frames[0].get(name, 0)) / passed for name in frames[1])
    devices, made = contexts(journal)
    return {
        "row": "serve", "sources": sources, "rtsp": options["rtsp"] == "true", "model": options["model"], "gpus": int(options["gpus"]),
        "batch": int(options["batch"]), "track": options["track"] == "true",
        "verified": model_after.get("verified"), "frames_of_a_run": frames_of_a_run(model, model_after),
        "fps": float(options["fps"]), "fps_least": rates[0], "fps_median": statistics.median(rates), "seconds": passed,
        "dropped": sum(by_source(after, "dropped_frames_total").values()) - sum(by_source(before, "dropped_frames_total").values()),
        "restarts": sum(by_source(after, "restarts_total").values()), "started": started,
        "latency_ms": quantiles(port, "latency"), "camera_ms": quantiles(port, "latency-from-camera"),
        **settled, "cores": cores, "cores_here": len(os.sched_getaffinity(0)), "sizes": sizes,
        "contexts": devices, "contexts_made": made, "contexts_seen": sum(value for _, value in after.get("cuda_contexts", [])),
    }


def say(found, idle):
    print(f"frames a second of each source: least {found['fps_least']:.2f}, median {found['fps_median']:.2f}; "
          f"dropped {found['dropped']:.0f}, restarts {found['restarts']:.0f}  [bar: least ≥ {found['fps'] * FPS_SHARE:.1f}]")
    for name, key in (("decoder", "latency_ms"), ("camera", "camera_ms")):
        if each := found[key]:
            text = ", ".join(f"p{float(quantile) * 100:.0f} {middle:.1f} ({most:.1f})" for quantile, (middle, most) in each.items())
            print(f"from {name} to results, ms, the median of the sources (the most): {text}")
    together = found["frames_of_a_run"]
    print(f"frames of a run, the mean: {together:.1f} of {found['batch']}; " if together else "", end="")
    print(f"its engine {VERDICTS[found['verified']]}")
    print(f"processors: {found['cores']:.2f} of {found['cores_here']}")
    # What the start still fills is not growth, so a long run has a third reading after its first minute.
    at = sorted({0, next((place for place, size in enumerate(found["sizes"]) if size[0] >= 60), 0), len(found["sizes"]) - 1})
    each = "; ".join(f"at {seconds:.0f} s GPUs {[now - was for now, was in zip(gpus, idle)]}, process {host:.0f}"
                     for seconds, gpus, host in (found["sizes"][place] for place in at))
    print(f"memory, MiB: {each}")
    print(f"CUDA contexts: of the devices {found['contexts']}, {found['contexts_made']} made with those of nvcodec's own look at the GPUs, "
          f"{found['contexts_seen']:.0f} seen by our elements  [bar: one for each of {found['gpus']} GPUs]")
    left = "".join(f"; {line}" for line in found["left"])
    print(f"ended {found['ended']:.1f} s after SIGTERM with status {found['status']}{left}  [bar: status 0, nothing left behind]")


def is_good(found):
    once = len(found["contexts"]) == found["gpus"] == len(set(found["contexts"])) and found["contexts_seen"] == found["gpus"]
    ended = found["status"] == 0 and not found["left"]
    return once and ended and found["fps_least"] >= found["fps"] * FPS_SHARE and found["restarts"] == 0


def main():
    options = options_of(DEFAULTS, __doc__)
    idle, port = gpu_memory(), free_port()
    with tempfile.TemporaryDirectory(dir=os.environ.get("SERVE_TMP")) as name:
        folder = pathlib.Path(name)
        journal = pathlib.Path(options["journal"] or folder / "journal")
        servers, addresses = [], [str(pathlib.Path(options["clip"]).resolve())] * int(options["sources"])
        program = None
        try:
            if options["rtsp"] == "true":
                servers, addresses = cameras(options, int(options["sources"]))
            file = folder / "serve.toml"
            file.write_text(configuration(options, addresses, port), encoding="utf-8")
            environment = {**os.environ, "GST_DEBUG": "cudacontext:6", "GST_DEBUG_NO_COLOR": "1"}
            with open(journal, "wb") as log:
                program = subprocess.Popen([options["program"], "serve", str(file)], stdout=subprocess.DEVNULL, stderr=log,
                                           env=environment, start_new_session=True)
            found = measure(options, port, program, journal)
            asked = time.monotonic()
            os.killpg(program.pid, signal.SIGTERM)
            found["status"] = program.wait(60)
            found["ended"] = time.monotonic() - asked
            found["left"] = [line for line in journal.read_text(encoding="utf-8", errors="replace").splitlines() if "Left behind" in line]
        finally:
            if program and program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
            for server in servers:
                server.kill()
    say(found, idle)
    if options["json"]:
        pathlib.Path(options["json"]).write_text(json.dumps(found) + "\n", encoding="utf-8")
    good = is_good(found)
    least, devices = found["fps_least"], len(found["contexts"])
    print(f"{'kept' if good else 'missed'}: {found['sources']} sources, least {least:.2f} fps, {devices} contexts")
    sys.exit(not good)


main()
