#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""The most sources that gst-trt serve takes with one model, with a tracker, and which share of the engine alone that is.

  tests/bench/most_sources.py program=gst-trt clip=camera.mp4 model=rtdetr-r50.onnx [sources=1,8,16,24,32] [share=0.9] [tries=1]
      [p95=50] [fps=30] [batch=16] [infer="engine-cache=…"] [backend=tensorrt] [gpus=1] [rtsp=false] [track=true]
      [settle=5] [settle-limit=45] [seconds=20] [duration=3] [limit=300] [bound=500] [folder=FOLDER] [json=FILE]

First gst-trt bench tells what the engine gives in batches of that size with nothing around it. Then tests/bench/serve_sources.py runs with
each number of sources, the least first, and with as many as are `share` of the engine. Once one of them has too few frames, numbers
between that and the one before are tried, `tries` times. So many sources are enough if each has 29.5 of 30 frames a second; the most
with 95 % of their results within `p95` milliseconds are told apart. Those are from the camera where it says when frames were captured
(rtsp=true), else from the decoder. A number of sources is measured when what piled up at its start is gone, after `settle-limit` seconds at
the latest, as serve_sources.py says, and then for 35 s or more; "not steady" is said of one where it is not.

No number is begun once `bound` seconds are over. A line for each number, then one for the model; exit status 1 where not even the first
number is enough, something does not run, or as many as are `share` of the engine were not measured, since that time was over or fewer were
too many. Needs nothing but Python.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

from arguments import options_of

HERE = pathlib.Path(__file__).resolve().parent
SERVE = HERE / "serve_sources.py"
SHARE_OF_FPS = 29.5 / 30
DEFAULTS = {
    "program": "gst-trt", "clip": "", "model": "", "sources": "1,8,16,24,32", "share": "0.9", "tries": "1", "p95": "50", "fps": "30", "batch": "16",
    "infer": "", "backend": "tensorrt", "gpus": "1", "rtsp": "false", "track": "true", "settle": "5", "settle-limit": "45", "seconds": "20", "duration": "3", "limit": "300",
    "bound": "500", "folder": "", "json": "",
}
# What serve_sources.py takes as it is here.
PASSED = ("program", "clip", "model", "fps", "batch", "infer", "backend", "gpus", "rtsp", "track", "settle", "settle-limit", "seconds", "limit")


def engine_alone(options):
    """Pictures a second, and the median of a run in milliseconds. Of several GPUs it is one."""
    words = f"{options['infer']} batch-size={options['batch']}"
    command = [options["program"], "bench", options["model"], "--backend", options["backend"], "--model-only", "--duration", options["duration"],
               "--json", "--infer", words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        model = json.loads(done.stdout)["backends"][0]["model"]
    except (ValueError, LookupError):
        sys.exit(f"gst-trt bench does not tell what the engine gives: {done.stderr.strip()[-500:] or f'status {done.returncode}'}")
    return model["throughput"], model.get("compute-ms", model["latency-ms"])["median"]


def run(options, sources, folder):
    """What serve_sources.py has measured; a text where it did not come to that."""
    file = folder / f"{sources}.json"
    file.unlink(missing_ok=True)
    words = [f"{key}={options[key]}" for key in PASSED]
    command = [sys.executable, str(SERVE), *words, f"sources={sources}", f"json={file}", f"journal={folder / f'{sources}.journal'}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    (folder / f"{sources}.log").write_text(done.stdout, encoding="utf-8")
    if not file.exists():
        return " ".join(done.stdout.split())[-400:] or f"status {done.returncode}"
    return json.loads(file.read_text(encoding="utf-8"))


def latencies(found):
    """From where, and the medians of the sources, in milliseconds, by quantile."""
    which = "camera_ms" if found["camera_ms"] else "latency_ms"
    return which.removesuffix("_ms").replace("latency", "decoder"), {quantile: each[0] for quantile, each in found[which].items()}


def judged(options, found, engine):
    """What is kept of a number of sources."""
    begin, times = latencies(found)
    fps, enough = found["fps_median"] * found["sources"], float(options["fps"]) * SHARE_OF_FPS
    is_kept = found["fps_least"] >= enough and found["status"] == 0 and not found["left"] and found["restarts"] == 0
    return {
        "sources": found["sources"], "fps_least": found["fps_least"], "fps_median": found["fps_median"], "fps": fps, "of_engine": fps / engine,
        "from": begin, "ms": times, "latency_ms": found["latency_ms"], "camera_ms": found["camera_ms"], "dropped": found["dropped"],
        "frames_of_a_run": found["frames_of_a_run"], "cores": found["cores"], "cores_here": found["cores_here"], "verified": found["verified"],
        "gpu_mib": max(found["sizes"][-1][1], default=None), "contexts": found["contexts"],
        "steady": found["steady"], "settled": found["settled"], "means_ms": found["means_ms"],
        "is_kept": is_kept, "is_soon": is_kept and times.get("0.95", float("inf")) <= float(options["p95"]),
    }


def say(row):
    times = ", ".join(f"p{float(quantile) * 100:.0f} {time:.1f}" for quantile, time in row["ms"].items())
    together = f", {row['frames_of_a_run']:.1f} frames a run" if row["frames_of_a_run"] else ""
    settled = f", {'steady' if row['steady'] else 'not steady'} after {row['settled']:.0f} s" if row["steady"] is not None else ""
    verdict = "" if row["is_soon"] else ": late" if row["is_kept"] else ": too slow"
    print(f"{row['sources']:>5} sources: {row['fps_least']:.2f} frames/s of the slowest, {row['fps']:.0f} of all, {row['of_engine']:.2f} of the engine; "
          f"{row['from']} to results, ms: {times}; dropped {row['dropped']:.0f}{together}, processors {row['cores']:.1f}{settled}{verdict}", flush=True)


def next_number(rows, wanted, tries):
    """The least that was not tried; after one that is too much, one in between."""
    tried = {row["sources"]: row["is_kept"] for row in rows}
    too_many = min((number for number, is_kept in tried.items() if not is_kept), default=None)
    if too_many is None:
        return min((number for number in wanted if number not in tried), default=None)
    kept = max((number for number, is_kept in tried.items() if is_kept), default=0)
    # What was asked for counts before numbers in between.
    if asked := [number for number in wanted if kept < number < too_many and number not in tried]:
        return asked[0]
    between = (kept + too_many) // 2
    return between if kept and tries > 0 and between not in tried else None


def measure(options, folder, engine):
    begun, rows, tries = time.monotonic(), [], int(options["tries"])
    wanted = {int(number) for number in options["sources"].split(",") if number}
    of_share = int(float(options["share"]) * engine / float(options["fps"]))
    wanted = sorted(wanted | ({of_share} if of_share else set()))
    failure = None
    while (sources := next_number(rows, wanted, tries)) is not None:
        if time.monotonic() - begun > float(options["bound"]):
            failure = f"{options['bound']} s are over before {sources} sources were begun"
            break
        tries -= sources not in wanted
        found = run(options, sources, folder)
        if isinstance(found, str):
            failure = f"{sources} sources: {found}"
            break
        rows.append(judged(options, found, engine))
        say(rows[-1])
    return rows, of_share, failure


def main():
    options = options_of(DEFAULTS, __doc__)
    if not options["model"] or not options["clip"]:
        sys.exit(__doc__.strip())
    name, gpus = pathlib.Path(options["model"]).stem, max(int(options["gpus"]), 1)
    engine, run_ms = engine_alone(options)
    print(f"{name}: the engine alone gives {engine:.0f} pictures/s in batches of {options['batch']}, {run_ms:.2f} ms a run, "
          f"which is {engine / float(options['fps']):.1f} sources", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options["folder"] or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows, of_share, failure = measure(options, folder, engine * gpus)
    most, soon = (max((row["sources"] for row in rows if row[key]), default=0) for key in ("is_kept", "is_soon"))
    found = {
        "row": "most", "model": options["model"], "rtsp": options["rtsp"] == "true", "track": options["track"] == "true",
        "batch": int(options["batch"]), "gpus": gpus, "infer": options["infer"], "engine_fps": engine, "engine_run_ms": run_ms,
        "p95_bar_ms": float(options["p95"]), "most": most, "most_soon": soon, "of_share": of_share, "share": float(options["share"]),
        "runs": sorted(rows, key=lambda row: row["sources"]), "failure": failure,
    }
    if options["json"]:
        pathlib.Path(options["json"]).write_text(json.dumps(found) + "\n", encoding="utf-8")
    if failure:
        print(f"{name}: {failure}")
    best = next((row for row in rows if row["sources"] == most), None)
    of_engine = f", {best['of_engine']:.2f} of the engine" if best else ""
    print(f"{name}: {most} sources have 29.5 of 30 frames a second{of_engine}; {soon} of them p95 within {options['p95']} ms")
    is_reached = not of_share or any(row["sources"] == of_share for row in rows)
    if not is_reached:
        print(f"{name}: {of_share} sources, {options['share']} of the engine, were not measured")
    # Beyond that the time being over is no failure: it may be that more sources are enough.
    sys.exit(not most or not is_reached or bool(failure and "are over" not in failure))


if __name__ == "__main__":
    main()
