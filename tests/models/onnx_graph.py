# SPDX-License-Identifier: MPL-2.0
# ONNX side of the test detector: a small graph builder, the head's decoding, the
# metadata, and the three other models made from shapes.onnx.  Needs numpy and the onnx
# package only (no PyTorch).  Not run by itself; see train.py:
#   python3 tests/models/train.py export --from tests/models/shapes.onnx
#
# The graph is written node by node instead of by an exporter, so that it holds only
# plain operators of opset 17 and the same weights give the same bytes.

import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from grid import ANCHORS, FIELDS, ROWS, STRIDES, cells
from scenes import CLASSES, NET

OPSET = 17
E2E_ROWS = 300
E2E_SCORE = 0.01
E2E_IOU = 0.45


# ------------------------------------------------------------------- builder

class Graph:
    """Collects nodes and weights; every method returns the name of its result."""

    def __init__(self):
        self.nodes, self.weights, self.count = [], [], 0

    def constant(self, array, name=None):
        name = name or f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, kind, *inputs, outputs=1, name=None, **attributes):
        inputs = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        names = [name] if name else [f"t{self.count + i}" for i in range(outputs)]
        self.count += outputs
        self.nodes.append(helper.make_node(kind, inputs, names, f"{kind}_{self.count}", **attributes))
        return names[0] if len(names) == 1 else names

    def conv(self, x, weight, bias, stride, relu):
        pad = weight.shape[2] // 2
        x = self.op("Conv", x, weight, bias, kernel_shape=weight.shape[2:],
                    strides=[stride] * 2, pads=[pad] * 4)
        return self.op("Relu", x) if relu else x

    def double(self, x):
        scales = np.array([1, 1, 2, 2], np.float32)
        return self.op("Resize", x, "", scales, mode="nearest", nearest_mode="floor",
                       coordinate_transformation_mode="asymmetric")

    def pool(self, x, size):
        return self.op("MaxPool", x, kernel_shape=[size] * 2, strides=[1, 1],
                       pads=[size // 2] * 4)

    def decode(self, maps):
        """Raw head maps [1,21,ny,nx] -> output0 [1,16128,7] in pixels and probabilities."""
        rows = []
        for x, stride, anchors in zip(maps, STRIDES, ANCHORS):
            n = NET // stride
            x = self.op("Reshape", x, np.array([1, 3, FIELDS, n, n]))
            x = self.op("Sigmoid", self.op("Transpose", x, perm=[0, 1, 3, 4, 2]))
            xy, wh, scores = self.op("Split", x, np.array([2, 2, FIELDS - 4]), axis=4, outputs=3)
            iy, ix = np.mgrid[0:n, 0:n]
            corner = (np.stack([ix, iy], -1)[None, None] - 0.5) * stride
            xy = self.op("Mul", xy, np.array(2 * stride, np.float32))
            xy = self.op("Add", xy, corner.astype(np.float32))
            sides = 4 * np.array(anchors, np.float32).reshape(1, 3, 1, 1, 1)
            wh = self.op("Mul", self.op("Mul", wh, wh), sides)
            row = self.op("Concat", xy, wh, scores, axis=4)
            rows.append(self.op("Reshape", row, np.array([1, 3 * n * n, FIELDS])))
        return self.op("Concat", *rows, axis=1, name="output0")

    def rows_of(self, maps, parts):
        """Raw head maps [1,sum(parts),n,n] -> the parts of all cells' rows, each [1,part,cells]."""
        flat = [self.op("Reshape", x, np.array([1, sum(parts), -1])) for x in maps]
        return self.op("Split", self.op("Concat", *flat, axis=2), np.array(parts), axis=1, outputs=len(parts))

    def decode_sides(self, raw, side, unit):
        """Logarithms of lengths, in units of strides -> pixels."""
        stride = cells(side)[1].T[None].astype(np.float32)
        clipped = self.op("Clip", raw, np.array(-4, np.float32), np.array(4, np.float32))
        return self.op("Mul", self.op("Exp", clipped), stride * np.float32(unit))

    def decode_reach(self, before, after, side, unit):
        """How far a box reaches from its cell's centre to the left and the top, to the right and the bottom -> centre, size."""
        before, after = (self.decode_sides(x, side, unit) for x in (before, after))
        shift = self.op("Mul", self.op("Sub", after, before), np.array(0.5, np.float32))
        centre = cells(side)[0].T[None].astype(np.float32)
        return self.op("Add", shift, centre), self.op("Add", before, after)

    def decode_pose(self, maps, side, box_unit, point_unit, keypoints):
        """Raw head maps [1,5+3*keypoints,n,n] -> output0 [1,5+3*keypoints,cells]: as Ultralytics' pose exports."""
        before, after, score, points = self.rows_of(maps, [2, 2, 1, 3 * keypoints])
        centre, stride = (a.T[None, None].astype(np.float32) for a in cells(side))
        points = self.op("Reshape", points, np.array([1, keypoints, 3, -1]))
        places, seen = self.op("Split", points, np.array([2, 1]), axis=2, outputs=2)
        places = self.op("Mul", places, stride * np.float32(point_unit))
        places = self.op("Add", places, centre)
        points = self.op("Concat", places, self.op("Sigmoid", seen), axis=2)
        return self.op("Concat", *self.decode_reach(before, after, side, box_unit), self.op("Sigmoid", score),
                       self.op("Reshape", points, np.array([1, 3 * keypoints, -1])), axis=1, name="output0")

    def decode_masks(self, maps, prototypes, side, box_unit, classes, coefficients):
        """Raw head maps -> output0 [1,4+classes+coefficients,cells] as Ultralytics' segmentation exports; output1 are the prototypes."""
        before, after, scores, own = self.rows_of(maps, [2, 2, classes, coefficients])
        self.op("Identity", prototypes, name="output1")
        return self.op("Concat", *self.decode_reach(before, after, side, box_unit), self.op("Sigmoid", scores), own,
                       axis=1, name="output0")

    def decode_rotated(self, maps, side, box_unit, place_unit, classes):
        """Raw head maps -> output0 [1,4+classes+1,cells] as Ultralytics' exports of rotated boxes; the angle is from a sine and a cosine."""
        place, sides, scores, cosine, sine = self.rows_of(maps, [2, 2, classes, 1, 1])
        centre, stride = (a.T[None].astype(np.float32) for a in cells(side))
        place = self.op("Add", self.op("Mul", place, stride * np.float32(place_unit)), centre)
        # Of the doubled angle, which has no jump: half of it is the arc tangent of sine / (length + cosine).
        square = self.op("Add", self.op("Mul", cosine, cosine), self.op("Mul", sine, sine))
        below = self.op("Add", self.op("Add", self.op("Sqrt", square), cosine), np.array(1e-6, np.float32))
        return self.op("Concat", place, self.decode_sides(sides, side, box_unit), self.op("Sigmoid", scores),
                       self.op("Atan", self.op("Div", sine, below)), axis=1, name="output0")

    def finish(self, shape, float_type=TensorProto.FLOAT, side=NET, **others):
        """The model with input `images` and output `output0`, and outputs that are named with their shapes."""
        image = helper.make_tensor_value_info("images", float_type, [1, 3, side, side])
        outputs = [helper.make_tensor_value_info(*output) for output in (
            ("output0", float_type, shape), *((name, float_type, dims) for name, dims in others.items()))]
        graph = helper.make_graph(self.nodes, "shapes", [image], outputs, self.weights)
        model = helper.make_model(graph, producer_name="shapes", ir_version=8,
                                  opset_imports=[helper.make_opsetid("", OPSET)])
        onnx.checker.check_model(model, full_check=True)
        return model


def continued(model):
    """A Graph that starts with the nodes of a model; `rows` stands for its old output."""
    g = Graph()
    g.nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    g.weights = list(model.graph.initializer)
    g.count = 1000  # clear of the names in use
    g.nodes[-1].output[0] = "rows"
    return g


# ------------------------------------------------------------------ variants

def tag(model, side=NET, task_entries=None, **arguments):
    """Adds metadata the way the Ultralytics exporter writes it; `task_entries` replace those of the detector."""
    end2end = arguments.pop("end2end", False)
    args = {"batch": 1, "half": False, "dynamic": False, "simplify": True, "nms": end2end}
    args.update(arguments)
    entries = {
        "description": "Detector of synthetic discs and boxes, for tests",
        "author": "gst-plugin-trt",
        "version": "1.0.0",
        "license": "MPL-2.0",
        "stride": str(STRIDES[-1]),
        "task": "detect",
        "batch": "1",
        "imgsz": str([side, side]),
        "names": str(dict(enumerate(CLASSES))),
        "args": str(args),
        "end2end": str(end2end),
    } | (task_entries or {})
    helper.set_model_props(model, entries)
    return model


def boxes_and_scores(g):
    """Splits rows [1,N,7] into boxes [1,N,4] and scores [1,N,2] = objectness x class."""
    parts = np.array([4, 1, len(CLASSES)])
    boxes, objectness, classes = g.op("Split", "rows", parts, axis=2, outputs=3)
    return boxes, g.op("Mul", objectness, classes)


def make_v8(model):
    """Rows as columns, without objectness: [1, 4 + classes, N]."""
    g = continued(model)
    merged = g.op("Concat", *boxes_and_scores(g), axis=2)
    g.op("Transpose", merged, perm=[0, 2, 1], name="output0")
    return tag(g.finish([1, 4 + len(CLASSES), ROWS]))


def make_e2e(model):
    """[1,300,6] = x1,y1,x2,y2,score,class: NMS inside, best first, padded with zeros."""
    g = continued(model)
    boxes, scores = boxes_and_scores(g)
    scores = g.op("Transpose", scores, perm=[0, 2, 1])
    picked = g.op("NonMaxSuppression", boxes, scores, np.array([E2E_ROWS]),
                  np.array([E2E_IOU], np.float32), np.array([E2E_SCORE], np.float32),
                  center_point_box=1)  # [n,3] = batch, class, row
    score = g.op("Unsqueeze", g.op("GatherND", scores, picked), np.array([1]))
    _, class_id, row = g.op("Split", picked, np.array([1, 1, 1]), axis=1, outputs=3)
    row = g.op("Squeeze", row, np.array([1]))
    flat = g.op("Squeeze", boxes, np.array([0]))
    centre, size = g.op("Split", g.op("Gather", flat, row, axis=0), np.array([2, 2]),
                        axis=1, outputs=2)
    half = g.op("Mul", size, np.array(0.5, np.float32))
    found = g.op("Concat", g.op("Sub", centre, half), g.op("Add", centre, half), score,
                 g.op("Cast", class_id, to=TensorProto.FLOAT), axis=1)
    # Padding first lets TopK find its 300 rows even when nothing was detected.
    found = g.op("Concat", found, np.zeros((E2E_ROWS, 6), np.float32), axis=0)
    score = g.op("Gather", found, np.array(4), axis=1)
    _, order = g.op("TopK", score, np.array([E2E_ROWS]), axis=0, outputs=2)
    best = g.op("Gather", found, order, axis=0)
    g.op("Unsqueeze", best, np.array([0]), name="output0")
    return tag(g.finish([1, E2E_ROWS, 6]), end2end=True)


def make_f16(model):
    """Input, weights and output in half precision."""
    g = continued(model)
    g.nodes[-1].output[0] = "output0"
    # Resize takes its scales as f32 for any type of its data.
    keep = {n.input[2] for n in g.nodes if n.op_type == "Resize"}
    for index, weight in enumerate(g.weights):
        if weight.data_type == TensorProto.FLOAT and weight.name not in keep:
            half = numpy_helper.to_array(weight).astype(np.float16)
            g.weights[index] = numpy_helper.from_array(half, weight.name)
    return tag(g.finish([1, ROWS, FIELDS], TensorProto.FLOAT16), half=True)


def make_resized(model, side):
    """The same network for a square input of another size, a multiple of the largest stride."""
    if side % STRIDES[-1]:
        raise SystemExit(f"The side must be a multiple of {STRIDES[-1]}.")
    g = continued(model)
    g.nodes[-1].output[0] = "output0"
    # Only the head knows the size: shapes of its maps, [1,3,7,n,n] and [1,3nn,7], and corners of their cells, [1,1,n,n,2].
    for old, stride in ((NET // stride, stride) for stride in STRIDES):
        n = side // stride
        for index, weight in enumerate(g.weights):
            array = numpy_helper.to_array(weight)
            if array.shape == (1, 1, old, old, 2):
                iy, ix = np.mgrid[0:n, 0:n]
                array = ((np.stack([ix, iy], -1)[None, None] - 0.5) * stride).astype(array.dtype)
            elif array.dtype == np.int64 and array.tolist() == [1, 3, FIELDS, old, old]:
                array = np.array([1, 3, FIELDS, n, n])
            elif array.dtype == np.int64 and array.tolist() == [1, 3 * old * old, FIELDS]:
                array = np.array([1, 3 * n * n, FIELDS])
            else:
                continue
            g.weights[index] = numpy_helper.from_array(array, weight.name)
    rows = sum(3 * (side // stride) ** 2 for stride in STRIDES)
    float_type = model.graph.input[0].type.tensor_type.elem_type
    resized = g.finish([1, rows, FIELDS], float_type, side)
    return tag(resized, side, half=float_type == TensorProto.FLOAT16)


def export_variants(source):
    """Writes the three other models next to shapes.onnx."""
    model = onnx.load(source)
    stem = os.path.splitext(source)[0]
    for suffix, make in (("-f16", make_f16), ("-v8", make_v8), ("-e2e", make_e2e)):
        onnx.save(make(model), stem + suffix + ".onnx")
    return stem


def resize(source, side, target, names=None):
    """With other names of its classes, too, if there are any."""
    model = make_resized(onnx.load(source), side)
    for entry in model.metadata_props:
        if names and entry.key == "names":
            entry.value = str(dict(enumerate(names)))
    onnx.save(model, target)


def count_work(model):
    """Number of convolution weights and multiply-accumulates."""
    inferred = onnx.shape_inference.infer_shapes(model)
    sizes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
             for v in inferred.graph.value_info}
    weights = {w.name: w.dims for w in model.graph.initializer}
    parameters = macs = 0
    for node in model.graph.node:
        if node.op_type == "Conv":
            kernel = int(np.prod(weights[node.input[1]]))
            parameters += kernel + weights[node.input[1]][0]
            macs += kernel * int(np.prod(sizes[node.output[0]][2:]))
    return parameters, macs
