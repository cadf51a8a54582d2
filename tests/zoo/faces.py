# SPDX-License-Identifier: MPL-2.0
# Face detectors, whose outputs are read by OpenCV's FaceDetectorYN (YuNet), by the package scrfd (SCRFD, after InsightFace), and by the
# formulas of Pytorch_Retinaface in numpy (RetinaFace). The first two are given models that give the same outputs for each picture.
#
# Imported by families.py; not run by itself.
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rows import LEAST, OVERLAP, SIDE, STRIDES, chosen, firsts, record_objects, rounded

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


def by_stride(widths, anchors):
    return {
        f"{name}_{stride}": np.zeros((1, (SIDE // stride) ** 2 * anchors, width), np.float32)
        for name, width in widths
        for stride in STRIDES
    }


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
    faces = [[x, y, x + w, y + h, rest[10], 0, *rest[:10]] for x, y, w, h, *rest in found.astype(np.float64).tolist()]
    record_objects("yunet", outputs, faces)


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
    boxes, classes = found.bboxes, np.zeros((len(points), 1))
    record_objects("scrfd", outputs, np.concatenate([boxes, classes, points], axis=1).astype(np.float64).tolist())


def retinaface(random, _folder):
    # Square priors, as PriorBox makes them, in parts of the input.
    priors = []
    for level, stride in enumerate(STRIDES):
        for y in range(SIDE // stride):
            for x in range(SIDE // stride):
                for side in PRIORS[2 * level : 2 * level + 2]:
                    priors.append([(x + 0.5) * stride / SIDE, (y + 0.5) * stride / SIDE, side / SIDE, side / SIDE])
    priors = np.array(priors)
    outputs = {name: np.zeros((1, len(priors), width), np.float32) for name, width in (("loc", 4), ("conf", 2), ("landms", 10))}
    for level, place in chosen(random, 2, 6):
        row, score = firsts(2)[level] + place, rounded(random.uniform(0.3, 1))
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
    record_objects("retinaface", outputs, [[*boxes[row], conf[row, 1], 0, *points[row]] for row in kept])


def overlap(a, b):
    width, height = (min(a[2 + i], b[2 + i]) - max(a[i], b[i]) for i in (0, 1))
    both = max(width, 0) * max(height, 0)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)
