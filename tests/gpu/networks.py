#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Verifies the engines that TensorRT makes of a folder of networks (tests/zoo/batches.py), in batches of 1 to 16 pictures.

    networks.py PROGRAM FOLDER OUT.jsonl [--infer PROPERTIES] [--backend tensorrt] [--jobs 4] [--batch 16] [--only NAME…]

Each is built with precision=auto and with precision=fp16. auto has to give results that are the model's, or to refuse it; where fp16
gives them too, auto must have 0.95 of its pictures a second. A line a network; exit status 1 where that does not hold.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROUNDS, SPEED = 3, 0.95


def size_of(network):
    """What the file leaves open."""
    return ["input-size=320x320"] if network.stem.startswith("yolo") else []


def properties(asked, network, precision):
    return " ".join([asked.infer, *([f"precision={precision}"] if asked.backend == "tensorrt" else []), f"batch-size={asked.batch}", *size_of(network)])


def verified(asked, network, precision):
    begun = time.monotonic()
    words = [asked.program, "verify", network, "--backend", asked.backend, "--json", "--infer", properties(asked, network, precision)]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    try:
        verdict = json.loads(done.stdout)
    except ValueError:
        verdict = {"passed": False, "error": (done.stderr.strip() or f"status {done.returncode}")[-400:]}
    warnings = [line for line in done.stderr.splitlines() if "computes something else" in line]
    return {"network": network.stem, "asked": precision, "seconds": round(time.monotonic() - begun, 1), "warnings": warnings, **verdict}


def speed(asked, network, precision):
    words = [asked.program, "bench", network, "--backend", asked.backend, "--model-only", "--duration", "1", "--json", "--infer",
             properties(asked, network, precision)]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)["backends"][0]["model"]["throughput"]
    except (ValueError, LookupError):
        return None


def words_of(row):
    if "error" in row:
        return "error: " + row["error"].replace("\n", " ")[-160:]
    worst = max((output["error"] for output in row["outputs"] if isinstance(output["error"], float)), default=None)
    figure = "" if worst is None else f" {100 * worst:.2f} %"
    results = row["results"] and f" {row['results']['found']}/{row['results']['sought']}" or ""
    return ("right" if row["passed"] else "wrong") + figure + results + (f" ({row['repair']})" if row["repair"] else "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--infer", default="")
    parser.add_argument("--backend", default="tensorrt")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--only", nargs="+", default=[])
    asked = parser.parse_args()
    networks = sorted((path for path in asked.folder.glob("*.onnx") if not asked.only or path.stem in asked.only),
                      key=lambda path: -path.stat().st_size)
    pairs = [(network, precision) for precision in ("auto", "fp16") for network in networks]
    # Engines are made at the same time; what they do in a second is measured one by one, when nothing else runs.
    found = {}
    with ThreadPoolExecutor(asked.jobs) as pool, asked.out.open("w") as out:
        for row in (done.result() for done in as_completed([pool.submit(verified, asked, *pair) for pair in pairs])):
            found[row["network"], row["asked"]] = row
            print(f"{row['network']:<16} {row['asked']:<5} {row['seconds']:6.1f} s, verified in "
                  f"{row.get('milliseconds', 0) / 1e3:5.1f} s  {words_of(row)}", flush=True)
            out.write(json.dumps(row) + "\n")
            out.flush()
    failed = 0
    for network in networks:
        auto, half = found[network.stem, "auto"], found[network.stem, "fp16"]
        refused = "No engine of" in auto.get("error", "")
        if not auto["passed"] and not refused:
            failed += 1
            print(f"FAIL {network.stem}: {words_of(auto)}")
        if auto["passed"] and (half["passed"] or auto.get("repair")):
            rates = [[speed(asked, network, precision) for precision in ("auto", "fp16")] for _ in range(ROUNDS)]
            if any(None in pair for pair in rates):
                failed += 1
                print(f"FAIL {network.stem}: gst-trt bench")
                continue
            a, h = (statistics.median(column) for column in zip(*rates))
            slow = half["passed"] and a / h < SPEED
            failed += slow
            print(f"{'FAIL' if slow else '    '} {network.stem:<16} {a:7.0f} pictures a second, fp16 {h:7.0f}: {a / h:.2f}"
                  f"{'' if half['passed'] else ', which is wrong'}", flush=True)
    right = sum(found[network.stem, "auto"]["passed"] for network in networks)
    print(f"{right} of {len(networks)} networks are right with precision=auto, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
