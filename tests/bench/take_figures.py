#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Puts figures that were measured into tests/bench/figures.json, each in its group, and makes the pages of it (figures.py).

    tests/bench/take_figures.py --machine h200 [--date 2026-11-30] --command COMMAND FILE…

FILE has lines of JSON: those of the rows rtdetr, serve_nets and archive of tests/bench/gpu.sh, in WORK/bench, or of tests/bench/peers.py --json.
Figures of the same kind that were there are replaced, all others stay as they are. Commit what it writes.
"""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parent
FIGURES = BENCH / "figures.json"
SOURCES, ARCHIVE, PEERS = "Sources of a service, with a tracker", "An archive of videos", "Engines of the CPU, against other programs"
NAMES = {"rtdetr-r50": "RT-DETR-R50"}
PROGRAMS = {
    "openvino": "gst-trt detect with OpenVINO", "openvino-fp32": "gst-trt detect with OpenVINO, precision=fp32", "gst-trt": "gst-trt detect with ONNX Runtime",
    "rten": "gst-trt detect with rten, which needs nothing", "int8": "gst-trt detect with ONNX Runtime, an INT8 copy", "ultralytics": "Ultralytics' predict with ONNX Runtime",
    "ultralytics-openvino": "Ultralytics' predict with its export for OpenVINO", "ultralytics-openvino-fp32": "The same in FP32",
    "opencv": "A loop of OpenCV and ONNX Runtime in Python", "opencv-dnn": "OpenCV's own networks in a Python loop",
    "gstreamer": "GStreamer 1.28's onnxinference and yolov8tensordec",
}
AGAINST = {"opencv": "a loop of OpenCV and ONNX Runtime", "ultralytics-openvino-fp32": "Ultralytics' predict with its export for OpenVINO, in FP32"}
# As peers.py has them.
PEER_BARS = {
    "openvino": {"ultralytics": 2.0, "opencv": 1.8, "ultralytics-openvino": 1.15},
    "openvino-fp32": {"ultralytics": 1.15, "opencv": 1.1, "ultralytics-openvino-fp32": 1.05},
}
OF_SHARE_MS = {"0.5": 30, "0.95": 60, "0.99": 90}


def stem(row):
    return pathlib.Path(row["model"]).stem


def name_of(row):
    name = stem(row)
    return NAMES.get(name, re.sub("^yolo", "YOLO", name))


def limited(figure, limit, of):
    """With what a stage does alone; in words where more was measured, by chance."""
    limit = round(limit)
    if figure["value"] <= limit:
        return {**figure, "limit": limit, "limit-of": f"{of} gives"}
    return {**figure, "figure": f"{figure['figure']} ({of} gave {limit:,})"}


def most(row):
    """Of one model: the most sources, the share of the engine, and each number."""
    of, name = f"most-{stem(row)}", name_of(row)
    cameras = "cameras by RTSP" if row["rtsp"] else "clips at their own pace"
    unverified = any(run["verified"] is not True for run in row["runs"])
    what = f"gst-trt serve with a tracker, {name}, batches of {row['batch']}{', not verified' if unverified else ', verified'}, {cameras}, 1080p H.264"
    best = next((run for run in row["runs"] if run["sources"] == row["most"]), None)
    yield {"id": of, "figure": f"{what}: the most sources with 29.5 of 30 frames a second each; those with 95 % of results within {row['p95_bar_ms']:g} ms, too",
           "value": f"{row['most']}, {row['most_soon']}", "unit": "sources", "target": "none"}
    if best:
        share = {"id": f"{of}-share", "figure": f"… frames a second of all {row['most']}", "value": round(best["fps"]), "unit": "fps",
                 "target": f"≥ {row['share']:g} of the engine" if row["share"] else "none"}
        share = limited(share, row["engine_fps"], "the engine alone")
        # A whole number of sources may be just below it.
        yield {**share, "missed": True} if row["most"] < row["of_share"] else share
    for run in row["runs"]:
        times = run["ms"]
        judged = run["sources"] == row["of_share"]
        shown = ", ".join(f"{times[quantile]:.1f}" for quantile in ("0.5", "0.95", "0.99"))
        late = any(times[quantile] > bar for quantile, bar in OF_SHARE_MS.items())
        line = {"id": f"{of}-{run['sources']}", "figure": f"… {run['sources']} source{'s' if run['sources'] > 1 else ''}: frames a second of the slowest; from {run['from']} to results, median, 95th, 99th "
                "percentile", "value": f"{run['fps_least']:.2f}; {shown}", "unit": "ms", "target": "≥ 29.5; ≤ 30, 60, 90" if judged else "none"}
        yield {**line, "missed": True} if judged and (late or not run["is_kept"]) else line


def archive(rows):
    """Of the way that was the fastest."""
    row = max(rows, key=lambda row: row["fps"])
    each = row["frames"] / row["videos"]
    yield {"id": "archive", "figure": f"{row['videos']:,} videos, 1080p H.264, {each:.0f} frames each, by gst-trt detect --parquet with {name_of(row)}, {row['processes']} "
           f"process{'es' if row['processes'] > 1 else ''} with {row['at_once']} at the same time, one GPU: minutes for all of them; videos an hour", "value": f"{row['seconds'] / 60:.1f}; {row['videos_an_hour']:,.0f}", "unit": "", "target": "none"}
    share = {"id": "archive-share", "figure": "… frames a second", "value": round(row["fps"]), "unit": "fps", "target": "≥ 0.9 of NVDEC"}
    share = limited(share, row["decoder_fps"], "NVDEC alone with as many streams")
    yield {**share, "missed": True} if row["of_decoder"] < 0.9 else share


def peers(rows):
    """YOLO11n's, a value for each number of cores."""
    rows = sorted((row for row in rows if row["model"].startswith("yolo11n")), key=lambda row: row["threads"])
    if not rows:
        return
    cores = ", ".join(f"{row['threads']} core{'s' if row['threads'] > 1 else ''}" for row in rows)
    cpu = ", ".join([rows[0]["cpu"], *(rows[0]["types"] or ["no BF16"])])
    for number, program in enumerate(name for name in PROGRAMS if all(name in row["fps"] for row in rows)):
        of = f" from file to objects, YOLO11n at 640x640, {cores} of a {cpu}: frames a second" if not number else ""
        yield {"id": f"cpu-{program}", "figure": PROGRAMS[program] + of, "value": ", ".join(f"{row['fps'][program][0]:.1f}" for row in rows), "unit": "fps", "target": "none"}
    for ours, bars in PEER_BARS.items():
        for theirs, bar in bars.items():
            ratios = [row["ratios"].get(ours, {}).get(theirs) for row in rows]
            if None in ratios:
                continue
            judged = ours != "openvino" or "amx_bf16" in rows[0]["types"]
            line = {"id": f"cpu-{ours}-to-{theirs}", "figure": f"{PROGRAMS[ours]} against {AGAINST.get(theirs, PROGRAMS[theirs])}",
                    "value": ", ".join(f"{ratio:.2f}" for ratio in ratios), "unit": "times its fps", "target": f"≥ {bar}" if judged else "none"}
            yield {**line, "missed": True} if judged and min(ratios) < bar else line


def figures_of(lines):
    """By group: what ids are replaced, and the figures."""
    found = {SOURCES: [], ARCHIVE: [], PEERS: []}
    models = {stem(row): row for row in lines if row["row"] == "most"}
    for row in models.values():
        found[SOURCES] += most(row)
    if rows := [row for row in lines if row["row"] == "archive"]:
        found[ARCHIVE] += archive(rows)
    found[PEERS] += peers([row for row in lines if row["row"] == "peers"])
    old = {SOURCES: tuple(f"most-{name}" for name in models), ARCHIVE: ("archive",), PEERS: ("cpu-",)}
    return {group: (old[group], figures) for group, figures in found.items() if figures}


def is_of(line, prefixes):
    """Whether the line has a figure of one of these: of the same id, or of one that goes on behind a hyphen."""
    match = re.search(r'"id": "([^"]*)", "figure"', line)
    return bool(match) and any(match[1] == prefix or match[1].startswith(prefix.rstrip("-") + "-") for prefix in prefixes)


def put(text, group, prefixes, figures):
    """Into the text, which has a line for each figure and keeps its form."""
    lines = text.split("\n")
    start = next((at for at, line in enumerate(lines) if f'"title": {json.dumps(group)}, "machine"' in line), None)
    if start is None:
        sys.exit(f"{FIGURES} has no group {group!r}.")
    begin = next(at for at in range(start, len(lines)) if lines[at].strip() == '"figures": [') + 1
    end = next(at for at in range(begin, len(lines)) if lines[at].strip() in ("]", "],"))
    kept = [line.rstrip().rstrip(",") for line in lines[begin:end] if not is_of(line, prefixes)]
    made = ["        { " + json.dumps(figure, ensure_ascii=False)[1:-1] + " }" for figure in figures]
    rows = kept + made
    return "\n".join(lines[:begin] + [row + "," for row in rows[:-1]] + rows[-1:] + lines[end:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", required=True)
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--command", required=True)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    given = parser.parse_args()
    text = FIGURES.read_text(encoding="utf-8")
    if given.machine not in json.loads(text)["machines"]:
        sys.exit(f"{FIGURES} knows no machine {given.machine}; add it to its machines.")
    lines = [json.loads(line) for file in given.files for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    found = figures_of([line for line in lines if line.get("row") in ("most", "archive", "peers")])
    if not found:
        sys.exit("There are no lines of the rows most, archive and peers.")
    common = {"machine": given.machine, "date": given.date, "command": given.command}
    for group, (prefixes, figures) in found.items():
        text = put(text, group, prefixes, [{**figure, **common} for figure in figures])
        print(f"{group}: {len(figures)} figures")
    json.loads(text)
    FIGURES.write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, BENCH / "figures.py"], check=True)


if __name__ == "__main__":
    main()
