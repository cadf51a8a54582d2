# SPDX-License-Identifier: MPL-2.0
# What ONNX Runtime puts out for a picture, decoded in plain numpy: the boxes that compare.py expects of our program.
#
# Imported by compare.py, classes.py, prompts.py and video.py; not run by itself. Rotated boxes are suppressed, scaled and cut into corners by
# Ultralytics itself, and masks are made by it.
import ast
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from boxes import CERTAIN, DOUBTFUL, ENOUGH, FULL, GONE, HALF, IOU_THRESHOLD, Boxes, overlaps
from pictures import placement, rectangle, tensor

# How many candidates the score threshold may leave; the later ones are tried where too few boxes survive suppression.
CANDIDATES = ((40, 120), (120, 300), (300, 700))
# Seeds of pictures that export.py shows no model, tried in turn where all of these leave too few: how the random networks' scores
# lie is a matter of PyTorch's rounding, which is another on another kind of CPU.
PICTURES = range(8)


@dataclass
class Model:
    """An exported file, and what export.py wrote down about it."""

    path: Path
    facts: dict
    half: bool = False  # PROGRAM computes in half precision for any file
    others: dict = field(default_factory=dict)  # what inputs other than the picture are given, by their names

    @property
    def name(self):
        return self.path.stem

    @property
    def task(self):
        return self.facts["metadata"]["task"]

    @property
    def labels(self):
        return ast.literal_eval(self.facts["metadata"]["names"])

    @property
    def stretched(self):
        return self.facts["stamp"]["row"]["yaml"].startswith("rtdetr")

    @property
    def tolerance(self):
        return HALF if self.half or "half" in self.facts["stamp"]["row"]["arguments"] else FULL

    def input_sizes(self, frame):
        """(width, height) of the input, and what --infer must say for it; a dynamic model is run at several."""
        *_, height, width = self.facts["inputs"][0]["shape"]
        if isinstance(height, int):
            return [((width, height), None)]
        height, width = ast.literal_eval(self.facts["metadata"]["imgsz"])
        smallest = rectangle(frame, (width, height), int(self.facts["metadata"]["stride"]))
        return [(smallest, None)] + [(size, "input-size={}x{}".format(*size)) for size in ((width, height), (448, 256))]


# ---------------------------------------------------------------- the reference's inference


def widened(path):
    """The file with its numbers of half precision in full: ONNX Runtime rounds what it computes in half precision otherwise on each
    kind of processor, by pixels. Files without any stay as they are."""
    model = onnx.load(path)
    half, full = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT

    def widen(tensor):
        if tensor.data_type == half:
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name))

    for tensor in model.graph.initializer:
        widen(tensor)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == half:
                attribute.i = full
            if attribute.HasField("t"):
                widen(attribute.t)
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == half:
            value.type.tensor_type.elem_type = full
    del model.graph.value_info[:]
    return model.SerializeToString()


def infer(model, values):
    """The outputs as float32, without the batch axis."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # compare.py shares the processors out
    session = onnxruntime.InferenceSession(widened(model.path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return [output[0].astype(np.float32) for output in session.run(None, {name: values.astype(np.float32), **model.others})]


# ---------------------------------------------------------------- reading the raw output


def layout_of(model, raw):
    """Which of the four things an Ultralytics detector may put out this is, by the export and the shape."""
    if model.task == "pose":
        return "pose rows" if raw.shape[0] == 300 else "pose columns"
    if model.task == "obb":
        return "obb rows" if raw.shape[0] == 300 else "obb columns"
    if model.task == "segment":
        return "mask rows" if raw.shape[0] == 300 else "mask columns"
    if model.stretched:
        return "rtdetr rows" if raw.shape[1] == 6 else "rtdetr classes"
    return "final rows" if raw.shape[1] == 6 and raw.shape[0] == 300 else "channels first"


def corners_of(centred):
    """cx,cy,w,h -> x1,y1,x2,y2."""
    middle, half = centred[:, :2], centred[:, 2:4] / 2
    return np.concatenate([middle - half, middle + half], axis=1)


def decode(raw, layout, size, order):
    """All candidates in input pixels. Where two classes of an anchor score alike within `order`, both are put forward."""
    if layout in ("final rows", "rtdetr rows"):
        corners, scores, classes = raw[:, :4], raw[:, 4], raw[:, 5].round().astype(int)
        if layout == "rtdetr rows":
            corners = corners_of(corners) * np.tile(size, 2)
        return Boxes(corners, scores, classes, np.arange(len(raw)))
    table = raw.T if layout == "channels first" else raw
    corners = corners_of(table[:, :4])
    if layout == "rtdetr classes":
        corners = corners * np.tile(size, 2)
    scores = table[:, 4:]
    anchors, classes = np.nonzero(scores >= scores.max(axis=1, keepdims=True) - order)
    best = scores[anchors, classes]
    return Boxes(corners[anchors], best, classes, anchors)


def decode_pose(raw, layout, model):
    """The same of a pose model, with its keypoints."""
    count, numbers = ast.literal_eval(model.facts["metadata"]["kpt_shape"])
    if layout == "pose rows":
        boxes = decode(raw[:, :6], "final rows", None, None)
        points = raw[:, 6:]
    else:
        boxes = decode(raw[: -count * numbers], "channels first", None, model.tolerance.order)
        points = raw[-count * numbers :].T
    boxes.points = points[boxes.anchors].reshape(-1, count, numbers)
    return boxes


def decode_turned(raw, layout, model):
    """The same of a model of rotated boxes, whose last number is the angle; the corners are those before they are rotated."""
    if layout == "obb rows":
        corners, scores, classes = corners_of(raw[:, :4]), raw[:, 4], raw[:, 5].round().astype(int)
        boxes, table = Boxes(corners, scores, classes, np.arange(len(raw))), raw
    else:
        boxes, table = decode(raw[:-1], "channels first", None, model.tolerance.order), raw.T
    boxes.rotated = np.concatenate([table[:, :4], table[:, -1:]], axis=1)[boxes.anchors]
    return boxes


def decode_masks(raw, layout, model, prototypes):
    """The same of a segmentation model; the masks are the coefficients yet."""
    count = len(prototypes)
    if layout == "mask rows":
        boxes, table = decode(raw[:, :6], "final rows", None, None), raw[:, 6:]
    else:
        boxes, table = decode(raw[:-count], "channels first", None, model.tolerance.order), raw[-count:].T
    boxes.masks = table[boxes.anchors]
    return boxes


def masks_to_frame(boxes, prototypes, size, place, frame, tolerance):
    """Turns coefficients into masks on the frame, by Ultralytics' own program; a pixel of the frame is where its middle is in the input."""
    import torch
    from torch.nn.functional import interpolate
    from ultralytics.utils import ops

    prototypes, weights = torch.from_numpy(prototypes.copy()), torch.from_numpy(boxes.masks.copy())
    masks = ops.process_mask(prototypes, weights, torch.from_numpy(boxes.corners.astype(np.float32)), size[::-1], upsample=True)

    def sums(weights, prototypes):
        at_prototypes = torch.einsum("nk,khw->nhw", weights, prototypes)
        return interpolate(at_prototypes[None], size[::-1], mode="bilinear")[0]

    near_zero = sums(weights, prototypes).abs() < tolerance.zero * sums(weights.abs(), prototypes.abs())
    x, y, width, height = place
    columns, rows = ((np.arange(frame[i]) + 0.5) * (width, height)[i] / frame[i] + (x, y)[i] for i in range(2))

    def on_frame(pictures):
        return pictures.numpy().astype(bool)[:, rows.astype(int)][:, :, columns.astype(int)]

    boxes.masks, boxes.open_pixels = on_frame(masks), on_frame(near_zero)


def choose_threshold(scores, minimum, maximum):
    """A score threshold in the middle of the widest gap that leaves between `minimum` and `maximum` candidates."""
    ranked = np.sort(scores)[::-1]
    low, high = min(minimum, len(ranked) // 3), min(maximum, len(ranked) - 1)
    gaps = ranked[low - 1 : high - 1] - ranked[low:high]
    at = low + int(gaps.argmax())
    return float((ranked[at - 1] + ranked[at]) / 2)


def best_per_anchor(boxes):
    """The scores of the best class of every anchor: what a threshold is compared with."""
    best = np.full(boxes.anchors.max() + 1, -1.0, np.float32)
    np.maximum.at(best, boxes.anchors, boxes.scores)
    return best


# ---------------------------------------------------------------- suppression with doubt


def judge(boxes, threshold, tolerance, suppress):
    """The boxes that reach the threshold, by falling score, each with its standing: certain, doubtful or gone.

    Ordinary class-aware greedy suppression, except that a box is only surely gone if a sure, surely better box overlaps it surely
    enough. A decision that could go the other way within the tolerated differences is doubtful.
    """
    boxes = boxes.take(boxes.scores >= threshold - tolerance.order)
    boxes = boxes.take(np.lexsort((boxes.anchors, -boxes.scores)))
    rivals = np.bincount(boxes.anchors)[boxes.anchors] > 1  # another class of this anchor scores alike
    boxes.standing = [DOUBTFUL] * len(boxes)
    for this in range(len(boxes)):
        near_threshold = boxes.scores[this] < threshold + tolerance.order
        standing = DOUBTFUL if near_threshold or rivals[this] else CERTAIN
        if suppress:
            standing = stand_against_better(boxes, this, standing, tolerance)
        boxes.standing[this] = standing
    return boxes


def stand_against_better(boxes, this, standing, tolerance):
    """The standing of one box given the boxes that come, or might come, before it."""
    overlap = overlaps(boxes.corners[this], boxes.corners)
    others = (boxes.classes == boxes.classes[this]) & (boxes.anchors != boxes.anchors[this])
    for other in np.nonzero(others & (overlap > IOU_THRESHOLD - tolerance.edge))[0]:
        if boxes.scores[other] < boxes.scores[this] - tolerance.order or boxes.standing[other] == GONE:
            continue
        surely_better = boxes.scores[other] > boxes.scores[this] + tolerance.order
        surely_over = overlap[other] > IOU_THRESHOLD + tolerance.edge
        if boxes.standing[other] == CERTAIN and surely_better and surely_over:
            return GONE
        standing = DOUBTFUL
    return standing


def judge_turned(result, model, raw, boxes, threshold, tolerance):
    """The same of rotated boxes, by Ultralytics' own overlaps: any better one drops a box, dropped itself or not."""
    import torch
    from ultralytics.utils.metrics import batch_probiou
    from ultralytics.utils.nms import non_max_suppression

    boxes = boxes.take(boxes.scores >= threshold - tolerance.order)
    boxes = boxes.take(np.lexsort((boxes.anchors, -boxes.scores)))
    rivals = np.bincount(boxes.anchors)[boxes.anchors] > 1
    doubt = (boxes.scores < threshold + tolerance.order) | rivals
    gone = np.zeros(len(boxes), bool)
    if result.layout == "obb columns":
        rotated = torch.from_numpy(boxes.rotated)
        alike = batch_probiou(rotated, rotated).numpy()
        same = boxes.classes[:, None] == boxes.classes
        ahead = boxes.scores[:, None] - boxes.scores
        apart = boxes.anchors[:, None] != boxes.anchors
        gone = (same & apart & (ahead > tolerance.order) & (alike > IOU_THRESHOLD + tolerance.edge)).any(axis=0)
        doubt |= (same & apart & (ahead > -tolerance.order) & (alike > IOU_THRESHOLD - tolerance.edge)).any(axis=0)
        given, count = torch.from_numpy(raw)[None], len(model.labels)
        limits = {"max_det": 300, "max_time_img": 600}
        _, kept = non_max_suppression(given, threshold, IOU_THRESHOLD, nc=count, rotated=True, return_idxs=True, **limits)
        kept = np.isin(boxes.anchors, kept[0].numpy())
        if (kept & gone & ~rivals).any() or (~kept & ~gone & ~doubt).any():
            result.faults.append("Ultralytics keeps other boxes than its overlaps say")
    boxes.standing = [GONE if lost else DOUBTFUL if open else CERTAIN for lost, open in zip(gone, doubt)]
    return boxes


def turned_to_frame(boxes, size, frame):
    """Corners on the frame as Ultralytics has them, and the upright boxes around them."""
    import torch
    from ultralytics.utils import ops

    rotated = torch.from_numpy(boxes.rotated).clone()
    rotated[:, :4] = ops.scale_boxes(size[::-1], rotated[:, :4], frame[::-1], xywh=True)
    boxes.quads = ops.xywhr2xyxyxyxy(rotated).numpy()
    around = np.concatenate([boxes.quads.min(axis=1), boxes.quads.max(axis=1)], axis=1)
    boxes.corners = np.clip(around, 0, np.tile(frame, 2))


def to_frame(corners, place, frame):
    """Input pixels -> frame pixels, clipped to the frame."""
    x, y, width, height = place
    scale = np.array([frame[0] / width, frame[1] / height] * 2)
    if (width, height) != frame and abs(scale[0] / scale[1] - 1) < 0.05:
        scale[:] = scale.min()  # a letterbox has one ratio; the rounding of its sides is not part of it
    return np.clip((corners - np.array([x, y, x, y])) * scale, 0, np.tile(frame, 2))


def pardon_slivers(boxes):
    """Boxes of which the frame shows less than a pixel, because they lie in the padding, need not be reported."""
    sides = (boxes.corners[:, 2:] - boxes.corners[:, :2]).min(axis=1)
    for index in np.nonzero(sides < 1)[0]:
        boxes.standing[index] = DOUBTFUL if boxes.standing[index] == CERTAIN else boxes.standing[index]


def pardon_empty_masks(boxes):
    """Ultralytics and we drop objects of whose masks nothing is on the frame; with hardly more, rounding decides."""
    areas = boxes.masks.sum(axis=(1, 2))
    for index in np.nonzero(areas < 4)[0]:
        boxes.standing[index] = GONE if areas[index] == 0 and boxes.standing[index] == GONE else DOUBTFUL


def values_of(model, image, size):
    """The input that the exporter has the picture in."""
    dtype = np.float16 if model.facts["inputs"][0]["dtype"] == "FLOAT16" else np.float32
    return tensor(image, size, placement((image.shape[1], image.shape[0]), size, model.stretched)).astype(dtype)


def reference_of(result, model, image, size):
    """What ONNX Runtime finds in the picture: the score threshold that leaves enough, and the boxes."""
    return reading(result, model, infer(model, values_of(model, image, size)), (image.shape[1], image.shape[0]), size)


def reading(result, model, outputs, frame, size, threshold=None):
    """The same of outputs that there are already; a score threshold may be given."""
    place = placement(frame, size, model.stretched)
    raw, *others = outputs
    result.layout = layout_of(model, raw)
    if model.task == "pose":
        boxes = decode_pose(raw, result.layout, model)
    elif model.task == "obb":
        boxes = decode_turned(raw, result.layout, model)
    elif model.task == "segment":
        boxes = decode_masks(raw, result.layout, model, others[0])
    else:
        boxes = decode(raw, result.layout, size, model.tolerance.order)
    thresholds = (choose_threshold(best_per_anchor(boxes), *limits) for limits in CANDIDATES) if threshold is None else [threshold]
    for threshold in thresholds:
        if boxes.rotated is not None:
            reference = judge_turned(result, model, raw, boxes, threshold, model.tolerance)
            turned_to_frame(reference, size, frame)
        else:
            suppress = result.layout in ("channels first", "pose columns", "mask columns")
            reference = judge(boxes, threshold, model.tolerance, suppress)
            if reference.masks is not None:
                masks_to_frame(reference, others[0], size, place, frame, model.tolerance)
                pardon_empty_masks(reference)
            reference.corners = to_frame(reference.corners, place, frame)
        if reference.points is not None:
            twice = np.tile(reference.points[:, :, :2], 2).reshape(-1, 4)
            reference.points[:, :, :2] = to_frame(twice, place, frame)[:, :2].reshape(reference.points[:, :, :2].shape)
        pardon_slivers(reference)
        result.candidates = len(reference)
        result.certain, result.doubtful = reference.standing.count(CERTAIN), reference.standing.count(DOUBTFUL)
        if result.certain >= ENOUGH:
            break
    return threshold, reference
