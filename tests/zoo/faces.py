#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Records what other packages make of the outputs of face detectors: rows made here, read by OpenCV's FaceDetectorYN (YuNet), by the package
# scrfd (SCRFD, after InsightFace), and by the formulas of Pytorch_Retinaface in numpy (RetinaFace). No weights are needed: models give the
# same outputs for each picture.
#
#   pip install numpy onnx onnxruntime opencv-python-headless scrfd
#   tests/zoo/faces.py > core/src/heads/tests/faces.txt
#
# A line “row” has an output, a row of it, and its numbers; all others are 0. A line “face” has what the package finds: corners, score, points.
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE = 640
STRIDES = (8, 16, 32)
LEAST, OVERLAP = 0.5, 0.4
PRIORS = (16, 32, 64, 128, 256, 512)


def model(outputs, path):
    """A model that gives these outputs whatever it sees."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["input"], ["pooled"]),
        helper.make_node("ReduceSum", ["pooled", "channels"], ["sum"], keepdims=1),
        helper.make_node("Mul", ["sum", "zero"], ["nothing4"]),
        helper.make_node("Reshape", ["nothing4", "shape"], ["nothing"]),
    ]
    weights = [
        numpy_helper.from_array(np.array([1]), "channels"),
        numpy_helper.from_array(np.zeros(1, np.float32), "zero"),
        numpy_helper.from_array(np.array([1, 1, 1]), "shape"),
    ]
    infos = []
    for name, values in outputs.items():
        weights.append(numpy_helper.from_array(values, name + "_value"))
        nodes.append(helper.make_node("Add", [name + "_value", "nothing"], [name]))
        infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, values.shape))
    picture = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, SIDE, SIDE])
    graph = helper.make_graph(nodes, "faces", [picture], infos, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    made.ir_version = 8
    onnx.checker.check_model(made)
    onnx.save(made, path)


def rounded(values):
    """Numbers that a few digits write exactly as f32."""
    return np.round(np.asarray(values) * 256).astype(np.float32) / np.float32(256)


def chosen(random, anchors, count):
    """Rows of each stride, some of them next to each other so that boxes overlap."""
    rows = []
    for level, stride in enumerate(STRIDES):
        cells = SIDE // stride
        places = sorted(random.choice(cells * cells * anchors, count, replace=False).tolist())
        rows += [(level, place) for place in places + [places[0] + anchors]]
    return rows


def by_stride(widths, anchors):
    return {
        f"{name}_{stride}": np.zeros((1, (SIDE // stride) ** 2 * anchors, width), np.float32)
        for name, width in widths
        for stride in STRIDES
    }


def record(name, outputs, faces):
    print(f"model {name}")
    for output, values in outputs.items():
        print("output", output, *values.shape)
        for row in np.flatnonzero(np.any(values[0] != 0, axis=1)):
            print("row", row, *(f"{number:.9g}" for number in values[0, row]))
    for face in sorted(faces, key=lambda face: -face[4]):
        print("face", *(f"{number:.9g}" for number in face))
    print(f"{name}: {len(faces)} faces", file=sys.stderr)


def yunet(random, folder):
    import cv2

    outputs = by_stride((("cls", 1), ("obj", 1), ("bbox", 4), ("kps", 10)), 1)
    for level, row in chosen(random, 1, 6):
        stride = STRIDES[level]
        outputs[f"cls_{stride}"][0, row] = rounded(random.uniform(0.3, 1.2))
        outputs[f"obj_{stride}"][0, row] = rounded(random.uniform(0.3, 1.2))
        outputs[f"bbox_{stride}"][0, row] = rounded([*random.uniform(-0.5, 1.5, 2), *random.uniform(0.5, 2, 2)])
        outputs[f"kps_{stride}"][0, row] = rounded(random.uniform(-3, 3, 10))
    path = str(folder / "yunet.onnx")
    model(outputs, path)
    detector = cv2.FaceDetectorYN.create(path, "", (SIDE, SIDE), LEAST, OVERLAP, 5000)
    _, found = detector.detect(np.zeros((SIDE, SIDE, 3), np.uint8))
    faces = [[x, y, x + w, y + h, *rest[10:], *rest[:10]] for x, y, w, h, *rest in found.astype(np.float64).tolist()]
    record("yunet", outputs, faces)


def scrfd(random, folder):
    import onnxruntime
    from PIL import Image
    from scrfd.base import SCRFDBase
    from scrfd.schemas import Threshold

    outputs = by_stride((("score", 1), ("bbox", 4), ("kps", 10)), 2)
    for level, row in chosen(random, 2, 6):
        stride = STRIDES[level]
        outputs[f"score_{stride}"][0, row] = rounded(random.uniform(0.3, 1))
        outputs[f"bbox_{stride}"][0, row] = rounded(random.uniform(0.5, 4, 4))
        outputs[f"kps_{stride}"][0, row] = rounded(random.uniform(-3, 3, 10))
    path = str(folder / "scrfd.onnx")
    model(outputs, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = SCRFDBase(session).detect(Image.new("RGB", (SIDE, SIDE)), Threshold(probability=LEAST, nms=OVERLAP))
    points = found.keypoints.reshape(len(found.bboxes), 10)
    record("scrfd", outputs, np.concatenate([found.bboxes, points], axis=1).astype(np.float64).tolist())


def retinaface(random, _folder):
    # Square priors, as PriorBox makes them, in parts of the input.
    priors = []
    for level, stride in enumerate(STRIDES):
        for y in range(SIDE // stride):
            for x in range(SIDE // stride):
                for side in PRIORS[2 * level : 2 * level + 2]:
                    priors.append([(x + 0.5) * stride / SIDE, (y + 0.5) * stride / SIDE, side / SIDE, side / SIDE])
    priors = np.array(priors)
    firsts = np.cumsum([0] + [2 * (SIDE // stride) ** 2 for stride in STRIDES])
    outputs = {name: np.zeros((1, len(priors), width), np.float32) for name, width in (("loc", 4), ("conf", 2), ("landms", 10))}
    for level, place in chosen(random, 2, 6):
        row, score = firsts[level] + place, rounded(random.uniform(0.3, 1))
        outputs["conf"][0, row] = 1 - score, score
        outputs["loc"][0, row] = rounded(random.uniform(-0.5, 0.5, 4))
        outputs["landms"][0, row] = rounded(random.uniform(-4, 4, 10))
    loc, conf, landms = (values[0].astype(np.float64) for values in outputs.values())
    centers = priors[:, :2] + loc[:, :2] * 0.1 * priors[:, 2:]
    sizes = priors[:, 2:] * np.exp(loc[:, 2:] * 0.2)
    boxes = np.concatenate([centers - sizes / 2, centers + sizes / 2], axis=1) * SIDE
    points = (priors[:, None, :2] + landms.reshape(-1, 5, 2) * 0.1 * priors[:, None, 2:]).reshape(-1, 10) * SIDE
    kept = []
    for row in sorted(np.flatnonzero(conf[:, 1] > LEAST), key=lambda row: -conf[row, 1]):
        if all(overlap(boxes[row], boxes[other]) <= OVERLAP for other in kept):
            kept.append(row)
    record("retinaface", outputs, [[*boxes[row], conf[row, 1], *points[row]] for row in kept])


def overlap(a, b):
    width, height = (min(a[2 + i], b[2 + i]) - max(a[i], b[i]) for i in (0, 1))
    both = max(width, 0) * max(height, 0)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


with tempfile.TemporaryDirectory() as folder:
    for seed, family in enumerate((yunet, scrfd, retinaface)):
        family(np.random.default_rng(seed), Path(folder))
