# SPDX-License-Identifier: MPL-2.0
# The committed clips and networks of each task, and how our objects of a video are compared with a package's.
#
# Imported by play.py, record.py and video.py; not run by itself. Needs numpy only.
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "data"))
import score
import score_pose
import score_shapes


def detect(program, video, network, folder, *options):
    """Our program's objects of each frame; of a classifier the classes."""
    answer = folder / f"{Path(video).stem}-{Path(network).stem}.jsonl"
    command = [program, "detect", video, "--model", network, "--no-video", "--json", answer, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    lines = map(json.loads, answer.read_text().splitlines())
    return [line["classes"] if "classes" in line else [score.scale_of(own, 1, 1) for own in line["detections"]] for line in lines]


def reproduced(reference, ours, similarity, least=0.5):
    """The similarity of each reference object to the object of ours that it is paired with; 0 where there is none."""
    if len(reference) != len(ours):
        raise ValueError(f"Ultralytics has {len(reference)} frames, we have {len(ours)}")
    best = []
    for wanted, found in zip(reference, ours):
        pairs = ((similarity(w, f), i, j) for i, w in enumerate(wanted) for j, f in enumerate(found) if w["class-id"] == f["class-id"])
        taken, used, own = set(), set(), np.zeros(len(wanted))
        for alike, i, j in sorted((pair for pair in pairs if pair[0] >= least), key=lambda pair: -pair[0]):
            if i not in taken and j not in used:
                taken.add(i)
                used.add(j)
                own[i] = alike
        best.append(own)
    return np.concatenate(best)


LEVELS = (0.5, 0.9, 0.95, 0.97, 0.99)
HEADINGS = ("case", "similarity", "reference", "ours", *(f">= {level}" for level in LEVELS), "bar", "")
COLUMNS = "{:34} {:10} {:>9} {:>6}" + " {:>7}" * len(LEVELS) + " {:>12}  {}"


def shares_of(reference, ours, similarity):
    """How many objects there are, and how many per cent of them are reproduced at each level."""
    best = reproduced(reference, ours, similarity)
    return len(best), {at: 100 * float((best >= at).mean()) for at in LEVELS}


def is_enough(objects, shares, bar, level):
    """Whether so many per cent of the objects are reproduced at that level."""
    return objects > 100 and shares[level] >= bar


def judge(name, reference, ours, bar, level, similarity=score.iou):
    """One line of the table; whether enough is reproduced."""
    objects, shares = shares_of(reference, ours, similarity)
    ok = is_enough(objects, shares, bar, level)
    count = sum(map(len, ours))
    numbers = (objects, count, *(f"{share:.2f}" for share in shares.values()))
    print(COLUMNS.format(name, similarity.__name__, *numbers, f"{bar} at {level}", "ok" if ok else "FAILED"), flush=True)
    return ok


def confidence(wanted, found):
    """How near the probabilities of a class are."""
    return 1 - abs(wanted["confidence"] - found["confidence"])


def sides_of(task, reference, ours):
    """What is compared: of a classifier the best class."""
    return [[frame[:1] for frame in side] for side in (reference, ours)] if task == "classify" else [reference, ours]


def files_of(clip, network):
    return TESTS / f"data/{clip}.mp4", TESTS / f"models/{network}.onnx"


def hash_of(clip, network):
    """Of both files, which a recording is for."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in files_of(clip, network))).hexdigest()


# Task, clip, network; then each similarity with the level of its rows and their bars: by way of the file, of BGR.
TASKS = (
    ("detect", "sample", "shapes-v8", (score.iou, 0.99, 97, 99)),
    ("pose", "pose", "figures-pose", (score.iou, 0.95, 99, 99), (score_pose.oks, 0.95, 99, 99)),
    ("segment", "shapes", "shapes-seg", (score.iou, 0.95, 99, 99), (score_shapes.mask_iou, 0.97, 99, 99)),
    ("obb", "shapes", "shapes-obb", (score_shapes.rotated_iou, 0.95, 99, 99)),
    ("classify", "classes", "shapes-cls", (confidence, 0.95, 99, 99)),
)
MOST = 90  # frames of a clip that are recorded
