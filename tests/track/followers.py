#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Follows detections with the trackers of a package, in that package's own venv. others.py starts it; it is not run by itself.

    PYTHON tests/track/followers.py PACKAGE TRACKER < frames.json > tracks.json

Standard input is `{"size": [width, height], "rows": [[[left, top, right, bottom, score], …], …], "vectors": [[[…], …], …] or null}`, a list
of rows for each frame. Standard output has the numbers of tracks and the rows that they were matched to, a list of pairs for each frame. What a
tracker foresees without a detection is left out, as trttrack leaves it out. Parameters are the package's defaults, with two exceptions. Trackers
that compare vectors do so in scenes that have some, and make none by a model of their own. And there are no pictures: a tracker that looks at
them for the camera's motion gets the same one in each frame.
"""

import json
import sys

import numpy as np


def boxmot(tracker, size):
    import torch
    from boxmot.structures import Boxes, Detections
    from boxmot.trackers import TrackerSpec, create_tracker

    always = ("strongsort",)  # compares vectors in any case
    never = ("bytetrack", "ocsort", "sfsort")
    still = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    made = []

    def follow(number, rows, vectors):
        if not made:
            options = () if tracker in always + never else (("use_embeddings", vectors is not None),)
            made.append(create_tracker(TrackerSpec(name=tracker, options=options)))
        values = torch.from_numpy(np.array(rows, np.float32).reshape(-1, 5))
        found = Detections(
            geometry=Boxes(values[:, :4].contiguous()), scores=values[:, 4].contiguous(),
            class_ids=torch.zeros(len(rows), dtype=torch.int64), sample_id=str(number),
            embeddings=None if vectors is None else torch.from_numpy(vectors),
        )
        tracks = made[0].update(found, still)
        return zip(tracks.track_ids.tolist(), tracks.detection_indices.tolist())

    return follow


def trackers(tracker, size):
    import supervision
    import trackers as package

    kinds = {
        "sort": package.SORTTracker, "bytetrack": package.ByteTrackTracker, "ocsort": package.OCSORTTracker, "botsort": package.BoTSORTTracker,
        "cbiou": package.CBIoUTracker,
    }
    following = kinds[tracker]()

    def follow(number, rows, vectors):
        values = np.array(rows, np.float32).reshape(-1, 5)
        found = supervision.Detections(
            xyxy=values[:, :4], confidence=values[:, 4], class_id=np.zeros(len(rows), int), data={"row": np.arange(len(rows))},
        )
        tracks = following.update(found)
        return zip(tracks.tracker_id.tolist(), tracks.data["row"].tolist()) if len(tracks) else []

    return follow


def norfair(tracker, size):
    from norfair import Detection, Tracker

    # The package has no defaults for what is similar: half of the boxes, and vectors nearer than those of two that look alike.
    of_looks = {"reid_distance_function": apart, "reid_distance_threshold": 0.25, "reid_hit_counter_max": 30} if tracker == "iou-reid" else {}
    following = Tracker("iou", 0.5, **of_looks)

    def follow(number, rows, vectors):
        found = [
            Detection(np.array([row[:2], row[2:4]]), np.full(2, row[4]), data=(number, at), embedding=None if vectors is None else vectors[at])
            for at, row in enumerate(rows)
        ]
        following.update(found)
        # One that has taken over what another had been may stand twice.
        seen = {one.last_detection.data: one.id for one in following.get_active_objects()}
        return [(ident, at) for (when, at), ident in seen.items() if when == number]

    return follow


def apart(one, other):
    """How little what two objects looked like last is alike: 1 less their cosine."""
    a, b = (thing.last_detection.embedding for thing in (one, other))
    return 1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


def deep_sort_realtime(tracker, size):
    from deep_sort_realtime.deepsort_tracker import DeepSort

    following = DeepSort(embedder=None)

    def follow(number, rows, vectors):
        found = [([row[0], row[1], row[2] - row[0], row[3] - row[1]], row[4], at) for at, row in enumerate(rows)]
        # Without vectors all look the same, and boxes alone count.
        tracks = following.update_tracks(found, embeds=np.ones((len(rows), 1)) if vectors is None else vectors)
        matched = [one for one in tracks if one.is_confirmed() and one.to_ltrb(orig=True, orig_strict=True) is not None]
        return [(one.track_id, one.get_det_class()) for one in matched]

    return follow


def main():
    package, tracker = sys.argv[1:3]
    # What packages print must not come between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    scene = json.load(sys.stdin)
    follow = {"boxmot": boxmot, "trackers": trackers, "norfair": norfair, "deep-sort-realtime": deep_sort_realtime}[package](tracker, scene["size"])
    dims = next((len(looks[0]) for looks in scene["vectors"] or [] if looks), 0)
    numbers, tracks = {}, []
    for number, rows in enumerate(scene["rows"]):
        vectors = np.array(scene["vectors"][number], np.float32).reshape(len(rows), dims) if scene["vectors"] else None
        # Some packages give what is of no track the number -1; numbers may be texts.
        found = [(str(ident), at) for ident, at in follow(number, rows, vectors) if at >= 0 and str(ident) != "-1"]
        tracks.append([(numbers.setdefault(ident, len(numbers)), at) for ident, at in found])
    json.dump(tracks, answers)


if __name__ == "__main__":
    main()
