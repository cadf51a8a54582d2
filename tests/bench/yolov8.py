#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Writes a model of YOLOv8's shape with random weights, for benchmarks: what it finds means nothing, its work is the same.

    yolov8.py OUT.onnx [--size n|s|m] [--masks | --classify] [--side 640] [--f32] [--batch 1]

80 classes; `images` [N,3,side,side] -> `output0` [N,84,side * side * 21 / 1024]; with --masks [N,116,...] and `output1`, prototypes of
masks [N,32,side / 4,side / 4]. With --classify it is a classifier of 224x224 with probabilities [N,1000], of size n with 0.4 GFLOPs a
picture, about as many as YOLO11n-cls. All are f16 unless --f32; a batch that is no number is open. The layers and their widths are those
of the published architecture. Needs numpy and the onnx package.
"""

import argparse
import math
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
from onnx_graph import OPSET, Graph  # noqa: E402  it is in that folder

CLASSES = 80
BINS = 16  # of the distribution that each side of a box is the mean of
STRIDES = (8, 16, 32)
PROTOTYPES = 32
KINDS, FEATURES = 1000, 1280  # of the classifier, and what its last layer sees
# Share of the depth, share of the width, the widest layer before that share is taken, and the gain with which layers keep their scale.
SIZES = {"n": (1 / 3, 0.25, 1024, 1.55), "s": (1 / 3, 0.5, 1024, 1.45), "m": (2 / 3, 0.75, 768, 1.475)}
# With these, in a frame of the 1080p clip that tests/gpu/pack.sh draws 100 to 350 of 8,400 rows are above a threshold of 0.25, which make
# 19 boxes of size s: as many as a trained model finds in a street.
CLASS_GAIN, CLASS_BIAS = 0.25, -6.3


class Network(Graph):
    def __init__(self, dtype, size):
        super().__init__()
        self.dtype, self.random, self.parameters = dtype, np.random.default_rng(8), 0
        depth, width, widest, self.gain = SIZES[size]
        self.depths = [round(full * depth) for full in (3, 6)]
        self.widths = [math.ceil(min(full, widest) * width / 8) * 8 for full in (64, 128, 256, 512, 1024)]

    def number(self, *values):
        return np.array(values[0] if len(values) == 1 else values, self.dtype)

    def plain(self, x, inputs, outputs, size=1, stride=1, gain=1.0, bias=0.0):
        scale = gain / math.sqrt(inputs * size * size)
        weight = self.random.normal(0.0, scale, (outputs, inputs, size, size)).astype(self.dtype)
        shift = np.full(outputs, bias, self.dtype)
        self.parameters += weight.size + shift.size
        return self.conv(x, weight, shift, stride, relu=False)

    def layer(self, x, inputs, outputs, size=1, stride=1):
        x = self.plain(x, inputs, outputs, size, stride, gain=self.gain)
        return self.op("Mul", x, self.op("Sigmoid", x))

    def split_and_merge(self, x, inputs, outputs, depth, add):
        """C2f: half of the channels pass, the rest goes through `depth` bottlenecks, and all meet again."""
        half = outputs // 2
        x = self.layer(x, inputs, outputs)
        parts = list(self.op("Split", x, np.array([half, half]), axis=1, outputs=2))
        for _ in range(depth):
            y = self.layer(self.layer(parts[-1], half, half, 3), half, half, 3)
            parts.append(self.op("Add", parts[-1], y) if add else y)
        return self.layer(self.op("Concat", *parts, axis=1), half * len(parts), outputs)

    def pyramid_pool(self, x, channels):
        parts = [self.layer(x, channels, channels // 2)]
        for _ in range(3):
            parts.append(self.pool(parts[-1], 5))
        return self.layer(self.op("Concat", *parts, axis=1), channels * 2, channels)

    def backbone(self, x):
        short, long = self.depths
        c1, c2, c3, c4, c5 = self.widths
        x = self.layer(x, 3, c1, 3, 2)
        x = self.split_and_merge(self.layer(x, c1, c2, 3, 2), c2, c2, short, True)
        p3 = self.split_and_merge(self.layer(x, c2, c3, 3, 2), c3, c3, long, True)
        p4 = self.split_and_merge(self.layer(p3, c3, c4, 3, 2), c4, c4, long, True)
        x = self.split_and_merge(self.layer(p4, c4, c5, 3, 2), c5, c5, short, True)
        return p3, p4, x

    def body(self, x):
        short = self.depths[0]
        _, _, c3, c4, c5 = self.widths
        p3, p4, x = self.backbone(x)
        p5 = self.pyramid_pool(x, c5)

        def join(a, b):
            return self.op("Concat", a, b, axis=1)

        n4 = self.split_and_merge(join(self.double(p5), p4), c5 + c4, c4, short, False)
        n3 = self.split_and_merge(join(self.double(n4), p3), c4 + c3, c3, short, False)
        m4 = self.split_and_merge(join(self.layer(n3, c3, c3, 3, 2), n4), c3 + c4, c4, short, False)
        m5 = self.split_and_merge(join(self.layer(m4, c4, c4, 3, 2), p5), c4 + c5, c5, short, False)
        return (n3, c3), (m4, c4), (m5, c5)

    def classes(self, x, channels):
        """Probabilities of what the whole picture shows."""
        x = self.op("GlobalAveragePool", self.layer(x, channels, FEATURES))
        x = self.plain(x, FEATURES, KINDS)
        self.op("Softmax", self.op("Flatten", x, axis=1), axis=1, name="output0")

    def prototypes(self, x, channels):
        """What masks are sums of, at a quarter of the input's size."""
        inner = self.widths[2]
        x = self.layer(x, channels, inner, 3)
        scale = 1 / math.sqrt(inner)
        weight = self.random.normal(0.0, scale, (inner, inner, 2, 2)).astype(self.dtype)
        self.parameters += weight.size
        x = self.op("ConvTranspose", x, weight, kernel_shape=[2, 2], strides=[2, 2])
        x = self.layer(self.layer(x, inner, inner, 3), inner, PROTOTYPES)
        self.op("Identity", x, name="output1")

    def coefficients(self, maps, batch, side):
        """Of each cell, how much of each prototype its mask has."""
        inner, parts = max(maps[0][1] // 4, PROTOTYPES), []
        for (x, channels), stride in zip(maps, STRIDES):
            x = self.layer(self.layer(x, channels, inner, 3), inner, inner, 3)
            x = self.plain(x, inner, PROTOTYPES)
            parts.append(self.op("Reshape", x, np.array([batch, PROTOTYPES, (side // stride) ** 2])))
        return self.op("Concat", *parts, axis=2)

    def head(self, maps, batch, side, has_masks):
        wide = max(maps[0][1], CLASSES)
        sides, scores, corners, steps = [], [], [], []
        for (x, channels), stride in zip(maps, STRIDES):
            cells = (side // stride) ** 2
            box = self.layer(self.layer(x, channels, 64, 3), 64, 64, 3)
            box = self.plain(box, 64, 4 * BINS)
            kind = self.layer(self.layer(x, channels, wide, 3), wide, wide, 3)
            kind = self.plain(kind, wide, CLASSES, gain=CLASS_GAIN, bias=CLASS_BIAS)
            sides.append(self.op("Reshape", box, np.array([batch, 4 * BINS, cells])))
            scores.append(self.op("Reshape", kind, np.array([batch, CLASSES, cells])))
            y, x = np.mgrid[0:side // stride, 0:side // stride]
            corners.append(np.stack([x.ravel() + 0.5, y.ravel() + 0.5]))
            steps.append(np.full(cells, stride))
        cells = sum(len(step) for step in steps)
        anchor = np.concatenate(corners, 1)[None].astype(self.dtype)
        step = np.concatenate(steps)[None, None].astype(self.dtype)

        box = self.op("Reshape", self.op("Concat", *sides, axis=2), np.array([batch, 4, BINS, cells]))
        box = self.op("Softmax", self.op("Transpose", box, perm=[0, 2, 1, 3]), axis=1)
        mean = np.arange(BINS, dtype=self.dtype).reshape(1, BINS, 1, 1)
        box = self.op("Reshape", self.op("Conv", box, mean, kernel_shape=[1, 1]), np.array([batch, 4, cells]))
        near, far = self.op("Split", box, np.array([2, 2]), axis=1, outputs=2)
        low, high = self.op("Sub", anchor, near), self.op("Add", anchor, far)
        centre = self.op("Mul", self.op("Add", low, high), self.number(0.5))
        box = self.op("Mul", self.op("Concat", centre, self.op("Sub", high, low), axis=1), step)
        score = self.op("Sigmoid", self.op("Concat", *scores, axis=2))
        parts = [box, score]
        if has_masks:
            self.prototypes(*maps[0])
            parts.append(self.coefficients(maps, batch, side))
        self.op("Concat", *parts, axis=1, name="output0")
        return [batch, 4 + CLASSES + has_masks * PROTOTYPES, cells]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--size", choices=SIZES, default="s")
    task = parser.add_mutually_exclusive_group()
    task.add_argument("--masks", action="store_true")
    task.add_argument("--classify", action="store_true")
    parser.add_argument("--side", type=int, help="of the input (default: 640, or 224 of a classifier)")
    parser.add_argument("--batch", default="1")
    parser.add_argument("--f32", action="store_true")
    options = parser.parse_args()
    options.side = options.side or (224 if options.classify else 640)
    if options.side % STRIDES[-1]:
        raise SystemExit(f"The side must be a multiple of {STRIDES[-1]}.")

    network = Network(np.float32 if options.f32 else np.float16, options.size)
    batch = int(options.batch) if options.batch.isdigit() else options.batch
    if options.classify:
        network.classes(network.backbone("images")[-1], network.widths[-1])
        shape = [batch, KINDS]
    else:
        # For a Reshape, -1 is what is left.
        shape = network.head(network.body("images"), batch if isinstance(batch, int) else -1, options.side,
                             options.masks)
        shape[0] = batch
    kind = TensorProto.FLOAT if options.f32 else TensorProto.FLOAT16
    image = helper.make_tensor_value_info("images", kind, [batch, 3, options.side, options.side])
    outputs = [helper.make_tensor_value_info("output0", kind, shape)]
    if options.masks:
        quarter = options.side // 4
        outputs.append(helper.make_tensor_value_info("output1", kind, [batch, PROTOTYPES, quarter, quarter]))
    graph = helper.make_graph(network.nodes, "random", [image], outputs, network.weights)
    model = helper.make_model(graph, producer_name="gst-plugin-trt", ir_version=8,
                              opset_imports=[helper.make_opsetid("", OPSET)])
    names = {i: f"class {i}" for i in range(KINDS if options.classify else CLASSES)}
    task = "classify" if options.classify else "segment" if options.masks else "detect"
    helper.set_model_props(model, {"task": task, "stride": "32", "names": str(names),
                                   "imgsz": str([options.side, options.side])})
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, options.out)
    print(f"{options.out}: {network.parameters / 1e6:.2f} million parameters, output {shape}")


if __name__ == "__main__":
    main()
