# SPDX-License-Identifier: MPL-2.0
# Compares the boxes of our program with boxes decoded, in plain numpy, from what ONNX Runtime puts out for the same pictures.
#
#   python tests/zoo/compare.py OUTDIR... --detect PROGRAM [--only NAME...] [--half] [--keep DIR] [--timeout SECONDS]
#
# OUTDIR holds what export.py made. PROGRAM is called as
#   PROGRAM PICTURE MODEL --json OUT --no-video --nms "score-threshold=T ..." [--infer "input-size=WxH"]
# and must write one JSON line a frame. reference.py has what it is compared with,
# classes.py the same for classifiers. Nothing here is shared with the Rust code: the decode below is written from the exporter's documentation, so an
# error has to be made twice to go unseen. Ends with status 1 if any model fails.
#
# Two runtimes never agree to the last bit, so a detection that stands on a knife's edge (a score next to another score, an overlap
# next to the IoU threshold) may legitimately come or go. `judge` separates those: they may be in our answer, the others must be.
import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import classes
from boxes import ENOUGH, SHAPES, Result
from matching import COLUMNS, HEADINGS, check_frame, check_masks, match, show
from pictures import picture, save
from program import ask, ours, suppression
from reference import PICTURES, Model, reference_of


def compare(model, program, frame, size, infer_properties, folder, timeout):
    """Runs both sides on one picture."""
    result = Result(model.name, f"{frame[0]}x{frame[1]} in {size[0]}x{size[1]}")
    for seed in PICTURES:
        image = picture(*frame, seed)
        threshold, reference = reference_of(result, model, image, size)
        if result.certain >= ENOUGH:
            break
    png = save(image, folder)

    started = time.monotonic()
    done, frames = ask(program, model.path, png, folder, timeout, suppression(threshold), infer_properties)
    result.seconds = time.monotonic() - started
    if done.returncode != 0 or not frames:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        result.faults.append(f"status {done.returncode}, {len(frames)} frames: {' / '.join(last)}")
        return result
    check_frame(result, frames[0], frame, model.labels)
    found = ours(frames[0])
    result.found = len(found)
    match(result, reference, found, model.tolerance)
    check_masks(result, reference)
    if result.certain < ENOUGH:
        result.faults.append(f"only {result.certain} undoubted boxes: that tests nothing")
    return result


def load(folders, only, half=False):
    """The models in the folders, or those of them that were named."""
    models = []
    for folder in folders:
        for path in sorted(folder.glob("*.onnx")):
            if not only or path.stem in only:
                models.append(Model(path, json.loads(path.with_suffix(".json").read_text()), half))
    return models


def run(program, folder, timeout, model):
    """All results of one model; what goes wrong on the way is a fault, not the end of the run."""
    folder = folder / model.name
    folder.mkdir(exist_ok=True)
    try:
        if model.task == "classify":
            return [classes.compare(model, program, frame, folder, timeout) for frame in SHAPES]
        return [
            compare(model, program, frame, size, properties, folder, timeout)
            for frame in SHAPES
            for size, properties in model.input_sizes(frame)
        ]
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        return [Result(model.name, "", faults=[f"{type(error).__name__}: {error}"])]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path, metavar="OUTDIR")
    parser.add_argument("--detect", required=True, metavar="PROGRAM")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--half", action="store_true", help="PROGRAM computes in half precision: wider tolerances throughout")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the picture and the answer of each model here")
    parser.add_argument("--timeout", type=float, default=300, help="seconds our program may take (an engine build takes minutes)")
    asked = parser.parse_args()
    models = load(asked.folders, asked.only, asked.half)
    if not models:
        sys.exit(f"compare: no models in {', '.join(map(str, asked.folders))}")
    print(COLUMNS.format(*HEADINGS))
    failed = passed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        # As many models at the same time as there are processors.
        pool = ProcessPoolExecutor(len(os.sched_getaffinity(0)))
        cases = pool.map(partial(run, asked.detect, folder, asked.timeout), models)
        if not asked.only:
            inputs = [classes.compare_input(asked.detect, frame, folder, asked.timeout) for frame in SHAPES]
            cases = itertools.chain([inputs], cases)
        for results in cases:
            for result in results:
                show(result)
            bad = any(result.faults for result in results)
            failed, passed = failed + bad, passed + (not bad)
    print(f"zoo: {passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
