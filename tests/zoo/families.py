# SPDX-License-Identifier: MPL-2.0
# Records what other packages make of the outputs of networks: rows made here by a seed, read by each package's own post-processing. No
# weights are needed. Run by families.sh, which installs the packages.
#
#   python tests/zoo/families.py FILE
#
# | family | who reads it |
# |---|---|
# | YuNet, SCRFD, RetinaFace | faces.py |
# | PicoDet | rapid-layout: PPPostProcess |
# | DBNet | rapidocr: DBPostProcess |
# | Faster R-CNN by torchvision | torchvision: RoIHeads, GeneralizedRCNNTransform |
# | OpenVINO's detection_out | openvino: the operation DetectionOutput makes the rows; read as its documentation says |
# | NanoDet, NanoDet-Plus | no package: the formulas of nanodet/model/head, with torchvision's batched_nms as there |
# | RTMDet | mmdet needs mmcv, which has no wheels: the formulas of rtmdet_head.py, with torchvision's batched_nms |
# | pytorch-YOLOv4 | no package: the formulas of tool/utils.py |
# | YOLOv7 --end2end --max-wh | no package: the formulas of ONNX_ORT in models/experimental.py, with ONNX Runtime's NonMaxSuppression |
# | mmdeploy | mmdeploy needs mmcv: rows are final, and a label below 0 is padding |
# | Anomalib | its post-processor needs lightning: the formulas of post_processing/post_processor.py |
import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import faces
import rows
from absent import absent
from rows import LEAST, OVERLAP, SIDE, STRIDES, chosen, firsts, record, record_objects, rounded

BINS = 8  # numbers of the distribution of a distance
FOUR_STRIDES = (8, 16, 32, 64)
MAX_WH = 4096  # how far YOLOv7 moves the boxes of a class away from those of the one before
TEXT_SIDE = 1920  # of a map of text
FINE = 64  # parts of a pixel that its corners are rounded to
ANOMALY_SIDE = 16


# ---------------------------------------------------------------- what families have in common


def scores_of(random, count):
    """No two are the same, some are too low, and none is at the edge."""
    return random.permutation(np.setdiff1d(np.arange(90, 250), [LEAST * 256]))[:count] / 256


def scored(random, places, anchors, classes):
    """Each place with a class and a score. The one next to a place has its class."""
    kinds = {}
    for (level, place), score in zip(places, scores_of(random, len(places))):
        kind = kinds.get((level, place - anchors), int(random.integers(classes)))
        kinds[level, place] = kind
        yield level, place, kind, score


def boxes_of(random, count, side=SIDE):
    """Corners of boxes of many sizes, of which the last ones nearly repeat the first, and their classes of four."""
    middles, halves = random.uniform(0.2, 0.8, (count, 2)) * side, np.exp(random.uniform(np.log(12), np.log(100), (count, 2)))
    boxes, classes = np.concatenate([middles - halves, middles + halves], axis=1), random.integers(0, 4, count)
    again = boxes[: count // 4]
    repeats = again + random.uniform(-2, 2, again.shape)
    return rounded(np.concatenate([boxes, repeats])), np.concatenate([classes, classes[: len(again)]])


def cells(strides, offset):
    """Where distances of each row count from, and the pixels of its cell."""
    places = [
        [((x + offset) * stride, (y + offset) * stride, stride)]
        for stride in strides
        for y in range(SIDE // stride)
        for x in range(SIDE // stride)
    ]
    places = np.concatenate(places).astype(np.float64)
    return places[:, :2], places[:, 2:]


def suppressed(boxes, scores):
    """The best class of each row, and the rows that torchvision's batched_nms keeps."""
    import torch
    from torchvision.ops import batched_nms

    kinds, best = scores.argmax(axis=1), scores.max(axis=1)
    passed = np.flatnonzero(best > LEAST)
    kept = batched_nms(*(torch.from_numpy(values[passed]) for values in (boxes, best, kinds)), OVERLAP)
    return [[*boxes[row], best[row], kinds[row]] for row in passed[kept.numpy()]]


# ---------------------------------------------------------------- detectors


def picodet(random, _folder):
    from rapid_layout.model_handler.pp.post_process import PPPostProcess

    classes = 10
    widths = {"scores": classes, "boxes": 4 * BINS}
    outputs = {
        f"{part}_{stride}": np.zeros((1, (SIDE // stride) ** 2, width), np.float32)
        for part, width in widths.items()
        for stride in FOUR_STRIDES
    }
    for level, place, kind, score in scored(random, chosen(random, 1, 5, FOUR_STRIDES), 1, classes):
        of_classes, of_box = (outputs[f"{part}_{FOUR_STRIDES[level]}"][0, place] for part in widths)
        of_classes[:], of_box[:] = rounded(random.uniform(0, 0.25, classes)), rounded(random.uniform(-2, 4, 4 * BINS), 16)
        of_classes[kind] = score
    picture = np.zeros((1, 3, SIDE, SIDE), np.float32)
    reader = PPPostProcess(list(range(classes)), LEAST, OVERLAP)
    boxes, scores, kinds = reader((SIDE, SIDE), picture, list(outputs.values()))
    record_objects("picodet", outputs, [[*box, score, kind] for box, score, kind in zip(boxes, scores, kinds)])


def nanodet_of(name, random, strides, offset):
    """Of COCO's 80 classes, with the sigmoid in the graph."""
    classes = 80
    begins = firsts(1, strides)
    output = np.zeros((1, begins[-1], classes + 4 * BINS), np.float32)
    for level, place, kind, score in scored(random, chosen(random, 1, 5, strides), 1, classes):
        row = output[0, begins[level] + place]
        row[:classes], row[classes:] = rounded(random.uniform(0, 0.25, classes), 16), rounded(random.uniform(-2, 4, 4 * BINS), 16)
        row[kind] = score
    middles, sizes = cells(strides, offset)
    numbers = output[0].astype(np.float64)
    bins = numbers[:, classes:].reshape(-1, 4, BINS)
    weights = np.exp(bins - bins.max(axis=2, keepdims=True))
    distances = (weights / weights.sum(axis=2, keepdims=True)) @ np.arange(BINS) * sizes
    boxes = np.concatenate([middles - distances[:, :2], middles + distances[:, 2:]], axis=1).clip(0, SIDE)
    record_objects(name, {"output": output}, suppressed(boxes, numbers[:, :classes]))


def nanodet(random, _folder):
    nanodet_of("nanodet", random, STRIDES, 0.5)


def nanodet_plus(random, _folder):
    nanodet_of("nanodet-plus", random, FOUR_STRIDES, 0)


def rtmdet(random, _folder):
    classes = 6
    sides = [SIDE // stride for stride in STRIDES]
    logits = [np.full((1, classes, side, side), -20, np.float32) for side in sides]
    distances = [np.zeros((1, 4, side, side), np.float32) for side in sides]
    drawn = {}
    for level, place, kind, score in scored(random, chosen(random, 1, 6), 1, classes):
        logits[level][0, kind].ravel()[place] = rounded(np.log(score / (1 - score)))
        # Of two cells next to each other the boxes have one size, so that they overlap enough.
        drawn[level, place] = drawn.get((level, place - 1), random.uniform(0.5, 4, 4))
        distances[level].reshape(4, -1)[:, place] = rounded(drawn[level, place] * STRIDES[level])
    corners, _ = cells(STRIDES, 0)
    of_rows = lambda maps: np.concatenate([of_stride[0].reshape(of_stride.shape[1], -1).T for of_stride in maps]).astype(np.float64)
    edges, scores = of_rows(distances), 1 / (1 + np.exp(-of_rows(logits)))
    boxes = np.concatenate([corners - edges[:, :2], corners + edges[:, 2:]], axis=1)
    named = lambda part, maps: {f"{part}_{stride}": of_stride for stride, of_stride in zip(STRIDES, maps)}
    record_objects("rtmdet", named("cls", logits) | named("reg", distances), suppressed(boxes, scores))


def yolov4(random, _folder):
    classes = 4
    boxes, kinds = boxes_of(random, 24)
    places = np.sort(random.choice(firsts(3)[-1], len(boxes), replace=False))
    outputs = {
        "boxes": np.zeros((1, firsts(3)[-1], 1, 4), np.float32),
        "confs": np.zeros((1, firsts(3)[-1], classes), np.float32),
    }
    outputs["boxes"][0, places, 0] = boxes / np.float32(SIDE)
    outputs["confs"][0, places] = rounded(random.uniform(0, 0.25, (len(boxes), classes)))
    outputs["confs"][0, places, kinds] = scores_of(random, len(boxes))
    corners, scores = outputs["boxes"][0, :, 0].astype(np.float64) * SIDE, outputs["confs"][0].astype(np.float64)
    record_objects("yolov4", outputs, suppressed(corners, scores))


def yolov7(random, _folder):
    """The last operations of such a file."""
    import onnxruntime
    from onnx import TensorProto, helper

    boxes, kinds = boxes_of(random, 24)
    scores = scores_of(random, len(boxes)).astype(np.float32)
    kinds_of = {"boxes": TensorProto.FLOAT, "scores": TensorProto.FLOAT, "most": TensorProto.INT64}
    kinds_of |= {"overlap": TensorProto.FLOAT, "least": TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds_of.items()]
    selected = helper.make_tensor_value_info("selected", TensorProto.INT64, [None, 3])
    node = helper.make_node("NonMaxSuppression", list(kinds_of), ["selected"])
    graph = helper.make_graph([node], "end2end", inputs, [selected])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {
        "boxes": (boxes + kinds[:, None] * np.float32(MAX_WH))[None].astype(np.float32),
        "scores": scores[None, None],
        "most": np.array([100]),
        "overlap": np.array([OVERLAP], np.float32),
        "least": np.array([0.25], np.float32),
    }
    (kept,) = session.run(None, given)
    picture, row = kept[:, :1].astype(np.float32), kept[:, 2]
    output = np.concatenate([picture, boxes[row], kinds[row, None], scores[row, None]], axis=1).astype(np.float32)
    # What detections of YOLOv7 are by its README: number of the picture, corners, class, score.
    objects = [[*corners, score, kind] for _, *corners, kind, score in output.tolist() if score > LEAST]
    record_objects("yolov7-end-to-end", {"output": output}, objects)


def mmdeploy(random, _folder):
    boxes, kinds = boxes_of(random, 24)
    scores = np.sort(scores_of(random, len(boxes)))[::-1]
    outputs = {"dets": np.zeros((1, 100, 5), np.float32), "labels": np.full((1, 100), -1, np.int64)}
    outputs["dets"][0, : len(boxes)] = np.concatenate([boxes, scores[:, None]], axis=1)
    outputs["labels"][0, : len(boxes)] = kinds
    of_rows = zip(outputs["dets"][0].tolist(), outputs["labels"][0].tolist())
    record_objects("mmdeploy", outputs, [[*row, kind] for row, kind in of_rows if kind >= 0 and row[4] > LEAST])


def torchvision(random, _folder):
    import torch
    from torchvision.models.detection.roi_heads import RoIHeads
    from torchvision.models.detection.transform import GeneralizedRCNNTransform

    scaled, classes = 800, 6  # such networks scale the picture themselves; class 0 is the background
    heads = RoIHeads(None, None, None, 0.5, 0.5, 1, 0.5, None, 0.05, OVERLAP, 100)
    transform = GeneralizedRCNNTransform(scaled, scaled, [0, 0, 0], [1, 1, 1]).eval()
    boxes, kinds = boxes_of(random, 24, scaled)
    logits = random.normal(0, 1, (len(boxes), classes))
    logits[np.arange(len(boxes)), kinds + 1] += random.uniform(2, 6, len(boxes))
    moves = random.normal(0, 0.5, (len(boxes), classes * 4))
    given = [torch.tensor(values, dtype=torch.float32) for values in (logits, moves, boxes)]
    found = heads.postprocess_detections(given[0], given[1], [given[2]], [(scaled, scaled)])
    found = dict(zip(("boxes", "scores", "labels"), (of_pictures[0] for of_pictures in found)))
    found = transform.postprocess([found], [(scaled, scaled)], [(SIDE, SIDE)])[0]
    outputs = {name: found[name].numpy() for name in ("boxes", "labels", "scores")}
    of_rows = zip(*(outputs[name].tolist() for name in ("boxes", "scores", "labels")))
    record_objects("torchvision", outputs, [[*box, score, kind] for box, score, kind in of_rows if score > LEAST])


def openvino_ssd(random, _folder):
    with absent("openvino_telemetry"):
        import openvino
        from openvino import opset8

    classes = 5
    boxes, kinds = boxes_of(random, 24)
    logits = random.normal(0, 1, (len(boxes), classes))
    logits[np.arange(len(boxes)), kinds + 1] += random.uniform(2, 6, len(boxes))
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    variances = np.tile([0.1, 0.1, 0.2, 0.2], (len(boxes), 1))
    given = [random.normal(0, 0.3, boxes.shape).reshape(1, -1), scores.reshape(1, -1)]
    given = [values.astype(np.float32) for values in (*given, np.stack([(boxes / SIDE).ravel(), variances.ravel()])[None])]
    inputs = [opset8.parameter(list(values.shape), np.float32) for values in given]
    settings = {
        "background_label_id": 0,
        "top_k": 400,
        "keep_top_k": np.array([50], np.int32),
        "code_type": "caffe.PriorBoxParameter.CENTER_SIZE",
        "nms_threshold": OVERLAP,
        "confidence_threshold": 0.2,
        "normalized": True,
    }
    model = openvino.Model([opset8.detection_output(*inputs, settings)], inputs, "ssd")
    output = np.array(openvino.Core().compile_model(model, "CPU")(given)[0], np.float32)
    of_rows, objects = output.reshape(-1, 7), []
    for number, (picture, kind, score, *corners) in enumerate(of_rows.tolist()):
        if picture < 0:
            of_rows[number + 1 :] = 0  # nothing counts behind it
            break
        if score > LEAST:
            objects.append([*(corner * SIDE for corner in corners), score, kind])
    record_objects("openvino-ssd", {"detection_out": output}, objects)


# ---------------------------------------------------------------- maps


def text_detect(random, _folder):
    """A line “text” has the middle of a text, half its width and height, the direction of its width (about 1 long), and its probability:
    numbers that whoever draws it computes with exactly. A line “quad” has the corners of a box, whose pixels have their middles at whole
    numbers, and its score. RapidOCR rounds corners to pixels of the map when it lets a box grow, so that texts are large here."""
    from rapidocr.ch_ppocr_det.utils import DBPostProcess

    rows_of, columns_of = np.mgrid[:TEXT_SIDE, :TEXT_SIDE] + 0.5
    values, texts = np.zeros((TEXT_SIDE, TEXT_SIDE), np.float32), []
    for number, probability in enumerate(random.permutation(np.arange(140, 250, 20)) / 256):
        x, y = 960 * (number % 2) + 480 + random.integers(-4, 5) + 0.5, 640 * (number // 2) + 320.5
        half_width, half_height = random.integers(260, 320) + 0.25, random.integers(80, 96) + 0.25
        angle = 0 if number < 2 else random.uniform(-0.2, 0.2)
        cos, sin = (np.round(np.array([np.cos(angle), np.sin(angle)]) * 256) / 256).tolist()
        across, down = columns_of - x, rows_of - y
        along, beyond = across * cos + down * sin, down * cos - across * sin
        values[(np.abs(along) <= half_width) & (np.abs(beyond) <= half_height)] = probability
        texts.append(("text", x, y, half_width, half_height, cos, sin, probability))
    reader = DBPostProcess(thresh=0.3, box_thresh=0.6, max_candidates=1000, unclip_ratio=1.5, score_mode="fast")
    quads, scores = reader(values[None, None], (TEXT_SIDE * FINE, TEXT_SIDE * FINE))
    found = [("quad", *(np.asarray(quad, np.float64) / FINE).ravel(), score) for quad, score in zip(quads, scores)]
    record("text-detect", {}, [("side", TEXT_SIDE), *texts, *found])


def anomaly(random, _folder):
    """A line “picture” has whether the picture is an anomaly; one “mask” begins and ends the pixels of an anomaly, row by row."""
    least, most, threshold = 2.0, 18.0, 9.0  # of the scores of a validation
    normalised = lambda raw: np.clip((raw - np.float32(threshold)) / np.float32(most - least) + np.float32(0.5), 0, 1)
    places = np.arange(ANOMALY_SIDE) + 0.5
    # Of an anomaly, of a usual picture, and one at the threshold.
    for number, (height, score) in enumerate(((16.0, 15.0), (5.0, 6.0), (threshold + 1, threshold))):
        x, y = random.uniform(5, 11, 2)
        away = (places[None] - x) ** 2 + (places[:, None] - y) ** 2
        raw = rounded(height * np.exp(-away / 15) + random.uniform(0, 1, away.shape))
        raw[3, 5:9] = threshold
        values, of_picture = normalised(raw), normalised(np.array([score], np.float32))
        edges = np.flatnonzero(np.diff(np.concatenate([[False], (values > 0.5).ravel(), [False]])))
        masks = [("mask", *run) for run in edges.reshape(-1, 2)]
        outputs = {"anomaly_map": values[None, None].astype(np.float32), "pred_score": of_picture.astype(np.float32)}
        record(f"anomaly-{number}", outputs, [("picture", int(of_picture[0] > 0.5)), *masks])


# A seed is the place in this list.
FAMILIES = (
    *(faces.yunet, faces.scrfd, faces.retinaface),
    *(picodet, nanodet, nanodet_plus, rtmdet, yolov4, yolov7, mmdeploy, torchvision, openvino_ssd),
    *(text_detect, anomaly),
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for seed, family in enumerate(FAMILIES):
            family(np.random.default_rng(seed), Path(folder))
    asked.file.write_text("\n".join(rows.written) + "\n")
    print(f"zoo: {asked.file}: {asked.file.stat().st_size / 1e3:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
