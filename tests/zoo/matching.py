# SPDX-License-Identifier: MPL-2.0
# Compares what our program found with a reference, and shows the result.
#
# Imported by the programs of this folder; not run by itself. Needs numpy only.
import sys

import numpy as np

from boxes import CERTAIN, FULL, GONE, describe, overlaps

PIXELS = 1 / 255  # what a value of the input may be off: torchvision resizes bytes, and rounds after each of two passes


def match(result, reference, found, tolerance):
    """Pairs both sides, best overlap first, and writes every box without a partner into the faults."""
    pairs = []
    for index in range(len(reference)):
        if reference.standing[index] == GONE:
            continue
        overlap = overlaps(reference.corners[index], found.corners)
        apart = np.abs(found.scores - reference.scores[index])
        fits = (found.classes == reference.classes[index]) & (overlap >= tolerance.iou) & (apart <= tolerance.score)
        pairs += [(reference.standing[index] != CERTAIN, -overlap[j], apart[j], index, int(j)) for j in np.nonzero(fits)[0]]
    taken_reference, taken_found = set(), set()
    for _, overlap, apart, index, j in sorted(pairs):
        if index in taken_reference or j in taken_found:
            continue
        taken_reference.add(index)
        taken_found.add(j)
        result.worst_iou = min(result.worst_iou, -overlap)
        result.worst_score = max(result.worst_score, apart)
        compare_points(result, reference, index, found, j, tolerance)
        compare_quads(result, reference, index, found, j, tolerance)
        compare_masks(result, reference, index, found, j, tolerance)
    for index in range(len(reference)):
        if reference.standing[index] == CERTAIN and index not in taken_reference:
            result.faults.append(f"we miss {describe(reference, index)}; nearest of ours: {nearest(reference, index, found)}")
    for j in range(len(found)):
        if j not in taken_found:
            result.faults.append(f"only we have {describe(found, j)}; nearest reference: {nearest(found, j, reference)}")


def compare_points(result, reference, index, found, j, tolerance):
    """The keypoints of a pair of boxes must be the same, as far as the boxes are surely of one anchor."""
    if reference.points is None:
        return
    if found.points is None:
        result.faults.append("we give no keypoints")
        return
    apart = np.abs(found.points[j] - reference.points[index])
    result.worst_point = max(result.worst_point, float(apart[:, :2].max()))
    if apart[:, :2].max() > tolerance.point or apart[:, 2:].max(initial=0) > tolerance.visibility:
        at = int(apart.max(axis=1).argmax())
        result.faults.append(f"keypoint {at} of {describe(reference, index)}: {found.points[j][at]}, not {reference.points[index][at]}")


def compare_quads(result, reference, index, found, j, tolerance):
    """The same of the corners of rotated boxes, which may begin at any of them."""
    if reference.quads is None:
        return
    if found.quads is None:
        result.faults.append("we give no corners")
        return
    wanted, given = reference.quads[index], found.quads[j]
    apart = min(np.linalg.norm(np.roll(given, turns, axis=0) - wanted, axis=1).max() for turns in range(4))
    result.worst_point = max(result.worst_point, float(apart))
    if apart > tolerance.corner:
        result.faults.append(f"corners of {describe(reference, index)}: {given.tolist()}, not {wanted.tolist()}")


def compare_masks(result, reference, index, found, j, tolerance):
    """The same of masks, where the box is surely of that anchor and at least half of the mask is surely in it."""
    if reference.masks is None or reference.standing[index] != CERTAIN:
        return
    if found.masks is None:
        result.faults.append("we give no masks")
        return
    closed = ~reference.open_pixels[index]
    wanted, given = reference.masks[index] & closed, found.masks[j] & closed
    if wanted.sum() < reference.masks[index].sum() / 2:
        return
    result.masks += 1
    overlap = float((wanted & given).sum() / (wanted | given).sum())
    result.worst_mask = min(result.worst_mask, overlap)
    if overlap < tolerance.mask:
        result.faults.append(f"mask of {describe(reference, index)}: IoU {overlap:.4f}, {int((wanted ^ given).sum())} pixels differ")


def check_masks(result, reference):
    """Enough of the masks must have been compared."""
    if reference.masks is not None and result.masks < result.certain / 2:
        result.faults.append(f"only {result.masks} masks could be compared")


def match_fine_masks(result, boxes, masks, found):
    """Masks of random weights are mostly edge. They must be as the package has them at our detail, `fine`; the table has the worst IoU with
    those that it has at the size of the frame."""
    if found.masks is None:
        result.faults.append("we give no masks")
        return
    at_frame, at_detail = masks
    for index in np.nonzero(np.array(boxes.standing) == CERTAIN)[0]:
        # Scores agree to five digits: the nearest of that class is the same object.
        apart = np.abs(found.scores - boxes.scores[index]) + (found.classes != boxes.classes[index])
        given = found.masks[int(apart.argmin())]
        result.worst_mask = min(result.worst_mask, iou(at_frame[index], given))
        overlap = iou(at_detail[index], given)
        if overlap < FULL.mask:
            result.faults.append(f"mask of {describe(boxes, index)}: IoU {overlap:.4f}")


def iou(one, other):
    return float((one & other).sum() / max((one | other).sum(), 1))


def nearest(boxes, index, others):
    """The box most similar of the other side, to see at a glance what is different."""
    if not len(others):
        return "none"
    overlap = overlaps(boxes.corners[index], others.corners)
    likeness = overlap + (others.classes == boxes.classes[index]) - np.abs(others.scores - boxes.scores[index])
    best = int(likeness.argmax())
    return f"{describe(others, best)} IoU {overlap[best]:.3f}"


def match_classes(result, wanted, labels, found, tolerance):
    """Probabilities of all classes of a picture. Of nearly equal classes either may be the best."""
    for given in found:
        apart = abs(given["confidence"] - float(wanted[given["class-id"]]))
        result.worst_score = max(result.worst_score, apart)
        if apart > tolerance.share:
            result.faults.append(f"class {given['class-id']}: {given['confidence']:.5f}, not {wanted[given['class-id']]:.5f}")
        if given["label"] != labels[given["class-id"]]:
            result.faults.append(f"label of class {given['class-id']} is {given['label']!r}")
    if found and float(wanted.max()) - float(wanted[found[0]["class-id"]]) > tolerance.order:
        result.faults.append(f"the best class is {int(wanted.argmax())}, not {found[0]['class-id']}")
    if float(wanted.max() - wanted.min()) < 10 * tolerance.share:
        result.faults.append("all classes are alike: that tests nothing")


def match_input(result, wanted, found):
    """Values of the input, which a model gives as those of classes."""
    values = {given["class-id"]: given["confidence"] for given in found}
    result.worst_score = max((abs(value - float(wanted[at])) for at, value in values.items()), default=0.0)
    if result.worst_score > PIXELS:
        result.faults.append(f"a value is off by {result.worst_score * 255:.2f} of 255")


def check_frame(result, line, frame, labels):
    """The frame's size and every label."""
    if (line["width"], line["height"]) != frame:
        result.faults.append(f"frame is {line['width']}x{line['height']}, not {frame[0]}x{frame[1]}")
    for detection in line["detections"]:
        wanted = labels.get(detection["class-id"])
        if detection["label"] != wanted:
            result.faults.append(f"label of class {detection['class-id']} is {detection['label']!r}, not {wanted!r}")
            return


HEADINGS = (
    "model", "case", "layout", "candidates", "certain", "doubtful", "ours", "worst IoU", "worst score", "worst point", "worst mask", "s", ""
)
COLUMNS = "{:24} {:22} {:15} {:>10} {:>8} {:>9} {:>5} {:>9} {:>11} {:>11} {:>10} {:>7}  {}"


def show(result):
    """One line of the table, and the first faults below it."""
    verdict = "FAILED" if result.faults else "ok"
    numbers = (result.candidates, result.certain, result.doubtful, result.found)
    worst = (f"{result.worst_iou:.4f}", f"{result.worst_score:.6f}", f"{result.worst_point:.3f}", f"{result.worst_mask:.4f}", f"{result.seconds:.1f}")
    print(COLUMNS.format(result.name, result.case, result.layout, *numbers, *worst, verdict))
    for fault in result.faults[:4]:
        print(f"    {fault}")
    if len(result.faults) > 4:
        print(f"    and {len(result.faults) - 4} more", flush=True)
    sys.stdout.flush()
