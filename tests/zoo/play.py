#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Plays the recordings of other packages to our program: models that have the signatures of theirs and give the recorded outputs, for the
# pictures that these are of. What it makes of them must be what the packages made of them, and it must have given the model what they give.
#
#   tests/zoo/play.py PROGRAM [--backend BACKEND] [--infer PROPERTIES] [--only NAME...] [--first] [--jobs COUNT]
#
# Takes seconds, and needs Python with numpy, and GStreamer. record.py makes the recordings, as tests/zoo/run.sh calls it where versions
# change. Ends with status 1 if any model fails.
import argparse
import ast
import functools
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import clips
import graph
import recording
from boxes import CERTAIN, DOUBTFUL, FULL, GONE, Boxes, Result
from mapped import ask_for_map, match_map
from matching import COLUMNS, HEADINGS, check_frame, check_masks, match, match_classes, match_fine_masks, match_input, show
from program import AS_THEY_ARE, answer, ask, ours, suppression

HERE = Path(__file__).resolve().parent
STANDINGS = (CERTAIN, DOUBTFUL, GONE)


class Case:
    """One run of our program, as it was recorded."""

    def __init__(self, about, signature, arrays, folder):
        self.about, self.signature, self.arrays, self.folder = about, signature, arrays, folder
        self.frame, self.size = tuple(about["frame"]), tuple(about["size"])
        self.png = folder / "{}x{}-{}.png".format(*self.frame, about["seed"])
        # Classes without a name have their number.
        self.labels = {at: f"#{at}" for at in range(1000)} | ast.literal_eval(signature["metadata"].get("names", "{}"))

    def model(self, is_checked):
        """The bytes of a model for this case."""
        if self.about["kind"] == "input":
            return graph.echo(self.signature)
        outputs = {}
        for tensor in self.signature["outputs"]:
            name = tensor["name"]
            values = self.arrays[f"out {name}"]
            step = self.about["steps"].get(name)
            outputs[name] = values if step is None else values * np.float32(step)
        sides = {name: np.array(values) for name, values in self.about["sides"].items()}
        return graph.network(self.signature, self.size, outputs, self.arrays["seen"], self.about["tolerance"], sides, is_checked)

    def expected(self):
        names = ("points", "quads", "masks", "open_pixels")
        parts = (self.arrays[name] for name in ("corners", "scores", "classes"))
        boxes = Boxes(*parts, np.arange(len(self.arrays["scores"])), **{name: self.arrays.get(name) for name in names})
        boxes.standing = [STANDINGS[index] for index in self.arrays["standing"]]
        return boxes

    def run(self, asked, work, name, is_checked=True):
        """What came of it."""
        kind, about = self.about["kind"], self.about
        result = Result(name, "{}x{} in {}x{}".format(*self.frame, *self.size), about.get("layout", "map"))
        work = Path(tempfile.mkdtemp(dir=work))
        path = work / f"{name}.onnx"
        path.write_bytes(self.model(is_checked))
        options = options_of(asked, about.get("infer"))
        where = (asked.program, path, self.png, work, asked.timeout)
        if kind == "map":
            given = ask_for_map(result, *where, about["preprocess"], about["nms"], options)
            match_map(result, self.arrays["wanted"], self.size, given, about["classes"], self.arrays.get("ramp"))
        elif kind == "input":
            wanted = self.arrays["wanted"]
            match_input(result, wanted, answer(result, *where, len(wanted), AS_THEY_ARE, options))
        elif kind == "classes":
            wanted = self.arrays["out " + self.signature["outputs"][0]["name"]][0].astype(np.float32)
            match_classes(result, wanted, self.labels, answer(result, *where, len(wanted), options=options), FULL)
        else:
            self.compare_boxes(result, where, options, kind == "fine boxes")
        return result

    def compare_boxes(self, result, where, options, are_masks_fine):
        boxes, started = self.expected(), time.monotonic()
        result.candidates = len(boxes)
        result.certain, result.doubtful = boxes.standing.count(CERTAIN), boxes.standing.count(DOUBTFUL)
        done, frames = ask(*where, suppression(self.about["threshold"]), options=options)
        result.seconds = time.monotonic() - started
        if done.returncode != 0 or len(frames) != 1:
            result.faults.append(f"status {done.returncode}, {len(frames)} frames: {done.stderr.strip()[-300:]}")
            return
        check_frame(result, frames[0], self.frame, self.labels)
        found = ours(frames[0])
        result.found = len(found)
        match(result, boxes, found, FULL)
        check_masks(result, boxes)
        if are_masks_fine:
            match_fine_masks(result, boxes, (self.arrays["at_frame"], self.arrays["at_detail"]), found)


def cases_of(path):
    """The description of a recording, and its cases."""
    about, arrays = recording.read(path)
    cases = []
    for number, own in enumerate(about.get("cases", [])):
        start = f"{number} "
        parts = {key.removeprefix(start): values for key, values in arrays.items() if key.startswith(start)}
        cases.append(Case(own, about["signature"], parts, path.parent))
    return about, cases


def play_clip(asked, work, about):
    """Objects of a committed clip, by the committed network itself."""
    task, clip, network, wanted = about["task"], about["clip"], about["network"], about["objects"]
    result = Result(about["model"], f"{clip}.mp4", f"{network}.onnx")
    if about["hash"] != clips.hash_of(clip, network):
        result.faults.append("the clip or the network is another than was recorded: run tests/zoo/run.sh")
    started = time.monotonic()
    options = ["--frames", str(len(wanted)), *options_of(asked)]
    reference, found = clips.sides_of(task, wanted, clips.detect(asked.program, *clips.files_of(clip, network), Path(work), *options))
    result.seconds, result.found = time.monotonic() - started, sum(map(len, found))
    (similarities,) = (row[3:] for row in clips.TASKS if row[:3] == (task, clip, network))
    for similarity, level, bar, _ in similarities:
        result.candidates, shares = clips.shares_of(reference, found, similarity)
        result.certain = result.candidates
        if not clips.is_enough(result.candidates, shares, bar, level):
            result.faults.append(f"{similarity.__name__}: {shares[level]:.2f} % at {level} or more, not {bar} %")
    return result


def options_of(asked, further=None):
    """For our program."""
    infer = " ".join(filter(None, (asked.infer, further)))
    return [*(["--backend", asked.backend] if asked.backend else []), *(["--infer", infer] if infer else [])]


def play(asked, work, path):
    """All results of one model; what goes wrong on the way is a fault, not the end of the run."""
    try:
        about, cases = cases_of(path)
        results = [play_clip(asked, work, about)] if "clip" in about else []
        for case in cases[:1] if asked.first else cases:
            result = case.run(asked, work, about["model"])
            if result.faults and case.about["kind"] != "input" and not case.run(asked, work, about["model"], is_checked=False).faults:
                result.faults = ["what the model is given is not what the package gives it; with that, the results are right", *result.faults[:1]]
            results.append(result)
        results[0].faults += outdated(about["versions"])
        if recording.is_of_another_row(about["model"], about):
            results[0].faults.append("its row in export.py is another now: run tests/zoo/run.sh")
        return results
    except Exception as error:
        return [Result(path.stem, "", faults=[f"{type(error).__name__}: {error}"])]


@functools.cache
def required():
    """The versions of each package in the files for pip."""
    found = {}
    for path in HERE.glob("requirements*.txt"):
        for name, version in re.findall(r"(?m)^([A-Za-z0-9_.-]+)==([^;\s]+)", path.read_text()):
            found.setdefault(name, set()).add(version)
    return found


def outdated(versions):
    """Recordings are of the versions that are required now."""
    for name, version in versions.items():
        if version not in required().get(name, ()):
            yield f"recorded with {name} {version}, which requirements*.txt do not have any more: run tests/zoo/run.sh"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("--backend")
    parser.add_argument("--infer", default="", metavar="PROPERTIES", help="further properties of trtinfer")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--first", action="store_true", help="one case of each model")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="COUNT")
    parser.add_argument("--timeout", type=float, default=300, help="seconds our program may take (an engine build takes some)")
    parser.add_argument("--recorded", type=Path, default=HERE / recording.FOLDER, metavar="FOLDER")
    asked = parser.parse_args()
    started = time.monotonic()
    paths = [path for path in asked.recorded.glob("*.rec") if not asked.only or path.stem in asked.only]
    if not paths:
        sys.exit(f"play: there are no recordings in {asked.recorded}")
    # The largest first, so that no processor waits for them at the end.
    paths.sort(key=lambda path: -path.stat().st_size)
    print(COLUMNS.format(*HEADINGS))
    failed = cases = 0
    with tempfile.TemporaryDirectory() as work, ProcessPoolExecutor(asked.jobs) as pool:
        for results in sorted(pool.map(functools.partial(play, asked, work), paths), key=lambda results: results[0].name):
            for result in results:
                show(result)
            failed, cases = failed + any(result.faults for result in results), cases + len(results)
    failed_there = failed
    for name in sorted(set(recording.ROWS) - {path.stem for path in asked.recorded.glob("*.rec")}):
        print(f"{name} of export.py is not recorded: run tests/zoo/run.sh")
        failed += 1
    print(f"zoo: {len(paths) - failed_there} passed, {failed} failed; {cases} cases in {time.monotonic() - started:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
