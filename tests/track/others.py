#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""HOTA, IDF1 and changes of numbers of our trackers and of those of packages, on the same detections and vectors, by TrackEval.

    tests/track/others.py PROGRAM PACKAGE=PYTHON… [--scene WORD] [--sequences FOLDER]

PROGRAM is as for crowds.py. PYTHON is that of a venv that has the package, which runs there as a program of its own (followers.py): boxmot,
trackers, norfair, deep-sort-realtime. README.md says how to make them. Scenes are those of crowds.py; `--scene` takes only those with the word
in their names. `--sequences` is the folder `data` of the package motmetrics, which has TUD-Campus and TUD-Stadtmitte: the truth, and boxes
without scores that a tracker gave, which are taken for detections of a score of 0.9.

At the end there is a line for each tracker that boxmot has too. Exit status 1 where our HOTA is lower by more than 0.3.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

import crowds

TRACKERS = {
    "boxmot": ["bytetrack", "ocsort", "botsort", "deepocsort", "boosttrack", "hybridsort", "occluboost", "strongsort"],
    "trackers": ["sort", "bytetrack", "ocsort", "botsort", "cbiou"],
    "norfair": ["iou", "iou-reid"],
    "deep-sort-realtime": ["deepsort"],
}
# Those that are nothing without vectors.
LOOKING = [("boxmot", "strongsort"), ("norfair", "iou-reid")]
# Ours with the same name, without and with vectors.
SAME = {
    "bytetrack": ("bytetrack", "bytetrack"), "ocsort": ("ocsort", "ocsort"), "botsort": ("botsort-iou", "botsort"),
    "deepocsort": (None, "deepocsort"), "boosttrack": ("boosttrack", "boosttrack"),
}
LESS = 0.3  # points of HOTA that a tracker of ours may have less
SIZE = (1920, 1080)
LIMIT = 3600  # seconds that a package may take for a scene
SEQUENCES = {"TUD-Campus": (640, 480), "TUD-Stadtmitte": (640, 480)}


def boxes(path):
    """Rows of number, left, top, right and bottom by their frames, of a file as MOTChallenge has them."""
    rows = {}
    for line in path.read_text().split():
        frame, number, x, y, width, height, confidence = map(float, line.split(",")[:7])
        # Truth with a confidence of 0 does not count.
        if confidence != 0:
            rows.setdefault(int(frame), []).append((int(number), x, y, x + width, y + height))
    return rows


def sequence(folder):
    truth, found = boxes(folder / "gt.txt"), boxes(folder / "test.txt")
    return [(truth.get(frame, []), [(*box, 0.9) for _, *box in found.get(frame, [])]) for frame in range(1, max(truth | found) + 1)]


def scenes(asked):
    """Frames and size of each scene: the truth, and rows of what is found."""
    for name, (scene, length) in (crowds.SCENES | crowds.LOOKS).items():
        if asked.scene in name:
            yield name, [scene.frame() for _ in range(length)], SIZE
    for name, size in SEQUENCES.items() if asked.sequences else ():
        if asked.scene in name:
            yield name, sequence(asked.sequences / name), size


def theirs(python, package, tracker, frames, size, has_vectors):
    """The tracks of a package's tracker, and seconds of all frames with its start."""
    scene = {
        "size": size, "rows": [[row[:5] for row in found] for _, found in frames],
        "vectors": [[row[5:] for row in found] for _, found in frames] if has_vectors else None,
    }
    command = [python, "-W", "ignore", str(pathlib.Path(__file__).with_name("followers.py")), package, tracker]
    begun = time.monotonic()
    done = subprocess.run(command, input=json.dumps(scene), text=True, capture_output=True, timeout=LIMIT)
    if done.returncode != 0:
        sys.exit(f"{tracker} of {package} ended with status {done.returncode}: {done.stderr[-2000:]}")
    pairs = json.loads(done.stdout)
    tracks = [[(number, *found[at][:4]) for number, at in of] for (_, found), of in zip(frames, pairs)]
    return tracks, time.monotonic() - begun


def verdicts(hotas):
    """A line for each tracker that both have, of scenes without vectors, with them, and of sequences. Whether all keep to the bar."""
    print("\n| tracker | scenes | ours | boxmot's | HOTA more | bar | |\n" + "|---" * 7 + "|")
    are_enough = True
    for (group, name), of in sorted(hotas.items()):
        own = SAME.get(name.removesuffix(" of boxmot"), (None, None))[group == "with vectors"]
        mine = hotas.get((group, own))
        if not name.endswith(" of boxmot") or not mine:
            continue
        ours, other = (100 * crowds.combined(scores)[0]["HOTA"].mean() for scores in (mine, of))
        is_enough = ours - other >= -LESS
        are_enough &= bool(is_enough)
        print(f"| {own} | {group} | {ours:.1f} | {other:.1f} | {ours - other:+.1f} | ≥ {-LESS} | {'PASS' if is_enough else 'FAIL'} |")
    return are_enough


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("packages", nargs="+", metavar="PACKAGE=PYTHON")
    parser.add_argument("--scene", default="", metavar="WORD")
    parser.add_argument("--sequences", type=pathlib.Path, metavar="FOLDER")
    asked = parser.parse_args()
    pythons = dict(package.split("=", 1) for package in asked.packages if "=" in package)
    if len(pythons) < len(asked.packages) or not pythons.keys() <= TRACKERS.keys():
        parser.error(f"Give PACKAGE=PYTHON, with one of {', '.join(TRACKERS)}")
    print("| scene | tracker | HOTA | DetA | AssA | LocA | IDF1 | changes of numbers per 1,000 frames | recall |\n" + "|---" * 9 + "|")
    hotas, seconds = {}, {}
    for name, frames, size in scenes(asked):
        has_vectors = any(len(row) > 5 for _, found in frames for row in found)
        group = "sequences" if name in SEQUENCES else "with vectors" if has_vectors else "without vectors"
        runs = {kind: crowds.ours(asked.program, kind, frames) for kind in (crowds.KINDS_OF_LOOKS if has_vectors else crowds.KINDS)}
        for package, python in pythons.items():
            for tracker in TRACKERS[package]:
                if has_vectors or (package, tracker) not in LOOKING:
                    kind = f"{tracker} of {package}"
                    runs[kind], took = theirs(python, package, tracker, frames, size, has_vectors)
                    seconds[kind] = seconds.get(kind, 0) + took
        for kind, tracks in runs.items():
            scores = crowds.score(frames, tracks)
            crowds.show(name, kind, scores, len(frames))
            hotas.setdefault((group, kind), []).append(scores)
        sys.stdout.flush()
    for kind, took in seconds.items():
        print(f"{kind}: {took:.0f} s", file=sys.stderr)
    return not verdicts(hotas)


if __name__ == "__main__":
    sys.exit(main())
