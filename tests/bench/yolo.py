#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Writes a model of the shape of YOLOv8 or YOLO11 with random weights, for benchmarks: what it finds means nothing, its work is the same.

    yolo.py OUT.onnx [--version 8|11] [--size n|s|m] [--masks | --classify | --embed] [--side 640] [--f32] [--batch 1] [--int8 OUT.cache]

80 classes; `images` [N,3,side,side] -> `output0` [N,84,side * side * 21 / 1024]; with --masks [N,116,...] and `output1`, prototypes of
masks [N,32,side / 4,side / 4]. With --classify it is a classifier of 224x224 with probabilities [N,1000], and with --embed the same
network gives vectors [N,512] instead, as those of ReID do. All are f16 unless --f32; a batch that is no number is open. The layers and
their widths are those of the published architectures. --int8 writes a calibration table for TensorRT too, with the same range for each
tensor. Needs numpy and the onnx package.
"""

import argparse
import math
import os
import struct
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
DIMS = 512  # of a vector
# Share of the depth, share of the width, the widest layer before that share is taken, and the gain with which layers keep their scale.
SIZES = {
    8: {"n": (1 / 3, 0.25, 1024, 1.55), "s": (1 / 3, 0.5, 1024, 1.45), "m": (2 / 3, 0.75, 768, 1.475)},
    11: {"n": (1 / 2, 0.25, 1024, 1.537), "s": (1 / 2, 0.5, 1024, 1.46), "m": (1 / 2, 1.0, 512, 1.453)},
}
# Channels of a head of attention, and how many of them its keys have.
HEAD, KEY = 64, 32
# Of each tensor with --int8: activations are about as large as a normal distribution's.
RANGE = 8.0
# With these, in a frame of the 1080p clip that tests/gpu/pack.sh draws 100 to 350 of 8,400 rows are above a threshold of 0.25, which make
# 19 boxes of YOLOv8s: as many as a trained model finds in a street.
CLASS_GAIN, CLASS_BIAS = 0.25, -6.3


class Network(Graph):
    """YOLOv8's."""

    VERSION, DEPTHS = 8, (3, 6)

    def __init__(self, dtype, size, batch, side):
        super().__init__()
        self.dtype, self.random, self.parameters = dtype, np.random.default_rng(8), 0
        self.size, self.batch, self.side = size, batch, side
        depth, width, widest, self.gain = SIZES[self.VERSION][size]
        self.depths = [round(full * depth) for full in self.DEPTHS]
        self.widths = [math.ceil(min(full, widest) * width / 8) * 8 for full in (64, 128, 256, 512, 1024)]

    def number(self, *values):
        return np.array(values[0] if len(values) == 1 else values, self.dtype)

    def plain(self, x, inputs, outputs, size=1, stride=1, gain=1.0, bias=0.0):
        scale = gain / math.sqrt(inputs * size * size)
        weight = self.random.normal(0.0, scale, (outputs, inputs, size, size)).astype(self.dtype)
        shift = np.full(outputs, bias, self.dtype)
        self.parameters += weight.size + shift.size
        return self.conv(x, weight, shift, stride, relu=False)

    def each_channel(self, x, channels, size=3, gain=1.0):
        """A convolution of each channel by itself."""
        weight = self.random.normal(0.0, gain / size, (channels, 1, size, size)).astype(self.dtype)
        shift = np.zeros(channels, self.dtype)
        self.parameters += weight.size + shift.size
        return self.op("Conv", x, weight, shift, kernel_shape=[size] * 2, strides=[1, 1], pads=[size // 2] * 4, group=channels)

    def silu(self, x):
        return self.op("Mul", x, self.op("Sigmoid", x))

    def layer(self, x, inputs, outputs, size=1, stride=1):
        return self.silu(self.plain(x, inputs, outputs, size, stride, gain=self.gain))

    def halves(self, x, half):
        return list(self.op("Split", x, np.array([half, half]), axis=1, outputs=2))

    def bottleneck(self, x, channels, inner, add=True):
        y = self.layer(self.layer(x, channels, inner, 3), inner, channels, 3)
        return self.op("Add", x, y) if add else y

    def split_and_merge(self, x, inputs, outputs, depth, add):
        """C2f: half of the channels pass, the rest goes through `depth` bottlenecks, and all meet again."""
        half = outputs // 2
        parts = self.halves(self.layer(x, inputs, outputs), half)
        for _ in range(depth):
            parts.append(self.bottleneck(parts[-1], half, half, add))
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
        return (p3, c3), (p4, c4), x

    def deepest(self, x, channels):
        """What detectors have behind the backbone, and classifiers have not."""
        return self.pyramid_pool(x, channels)

    def body(self, x):
        _, _, c3, c4, c5 = self.widths
        (p3, p3_channels), (p4, p4_channels), p5 = self.backbone(x)
        p5 = self.deepest(p5, c5)

        def join(a, b):
            return self.op("Concat", a, b, axis=1)

        n4 = self.merge(join(self.double(p5), p4), c5 + p4_channels, c4)
        n3 = self.merge(join(self.double(n4), p3), c4 + p3_channels, c3)
        m4 = self.merge(join(self.layer(n3, c3, c3, 3, 2), n4), c3 + c4, c4)
        m5 = self.merge(join(self.layer(m4, c4, c4, 3, 2), p5), c4 + c5, c5, is_deep=True)
        return (n3, c3), (m4, c4), (m5, c5)

    def merge(self, x, inputs, outputs, is_deep=False):
        """A step of the neck, behind the backbone."""
        return self.split_and_merge(x, inputs, outputs, self.depths[0], False)

    def classes(self, x, channels):
        """Probabilities of what the whole picture shows."""
        x = self.op("GlobalAveragePool", self.layer(x, channels, FEATURES))
        x = self.plain(x, FEATURES, KINDS)
        self.op("Softmax", self.op("Flatten", x, axis=1), axis=1, name="output0")

    def vector(self, x, channels):
        """What the whole picture looks like."""
        x = self.op("Flatten", self.op("GlobalAveragePool", self.layer(x, channels, FEATURES)), axis=1)
        weight = self.random.normal(0.0, 1 / math.sqrt(FEATURES), (FEATURES, DIMS)).astype(self.dtype)
        shift = np.zeros(DIMS, self.dtype)
        self.parameters += weight.size + shift.size
        self.op("Gemm", x, weight, shift, name="output0")

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

    def coefficients(self, maps):
        """Of each cell, how much of each prototype its mask has."""
        inner, parts = max(maps[0][1] // 4, PROTOTYPES), []
        for (x, channels), stride in zip(maps, STRIDES):
            x = self.layer(self.layer(x, channels, inner, 3), inner, inner, 3)
            x = self.plain(x, inner, PROTOTYPES)
            parts.append(self.op("Reshape", x, np.array([self.batch, PROTOTYPES, (self.side // stride) ** 2])))
        return self.op("Concat", *parts, axis=2)

    def scores(self, x, channels, wide):
        return self.layer(self.layer(x, channels, wide, 3), wide, wide, 3)

    def head(self, maps, has_masks):
        batch, side, wide = self.batch, self.side, max(maps[0][1], CLASSES)
        sides, scores, corners, steps = [], [], [], []
        for (x, channels), stride in zip(maps, STRIDES):
            cells = (side // stride) ** 2
            box = self.layer(self.layer(x, channels, 64, 3), 64, 64, 3)
            box = self.plain(box, 64, 4 * BINS)
            kind = self.plain(self.scores(x, channels, wide), wide, CLASSES, gain=CLASS_GAIN, bias=CLASS_BIAS)
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
            parts.append(self.coefficients(maps))
        self.op("Concat", *parts, axis=1, name="output0")
        return [batch, 4 + CLASSES + has_masks * PROTOTYPES, cells]


class Network11(Network):
    """YOLO11's: smaller bottlenecks, attention behind the backbone, and scores by convolutions of single channels."""

    VERSION, DEPTHS = 11, (2, 2)

    def nested(self, x, channels):
        """C3k: two bottlenecks next to half of the channels."""
        inner = channels // 2
        y, z = self.layer(x, channels, inner), self.layer(x, channels, inner)
        for _ in range(2):
            y = self.bottleneck(y, inner, inner)
        return self.layer(self.op("Concat", y, z, axis=1), 2 * inner, channels)

    def split_and_merge_11(self, x, inputs, outputs, is_deep, share=0.5):
        """C3k2: C2f with bottlenecks that are narrower, or nested."""
        half = int(outputs * share)
        parts = self.halves(self.layer(x, inputs, 2 * half), half)
        for _ in range(self.depths[0]):
            deep = is_deep or self.size == "m"
            parts.append(self.nested(parts[-1], half) if deep else self.bottleneck(parts[-1], half, half // 2))
        return self.layer(self.op("Concat", *parts, axis=1), half * len(parts), outputs)

    def merge(self, x, inputs, outputs, is_deep=False):
        return self.split_and_merge_11(x, inputs, outputs, is_deep)

    def backbone(self, x):
        c1, c2, c3, c4, c5 = self.widths
        x = self.layer(self.layer(x, 3, c1, 3, 2), c1, c2, 3, 2)
        x = self.split_and_merge_11(x, c2, c3, False, 0.25)
        p3 = self.split_and_merge_11(self.layer(x, c3, c3, 3, 2), c3, c4, False, 0.25)
        p4 = self.split_and_merge_11(self.layer(p3, c4, c4, 3, 2), c4, c4, True)
        x = self.split_and_merge_11(self.layer(p4, c4, c5, 3, 2), c5, c5, True)
        return (p3, c4), (p4, c4), x

    def attend(self, x, channels):
        """PSA: each cell by what it has in common with all others, then each by itself."""
        heads, cells, side = channels // HEAD, (self.side // STRIDES[-1]) ** 2, self.side // STRIDES[-1]
        parts = self.plain(x, channels, channels + 2 * KEY * heads)
        parts = self.op("Reshape", parts, np.array([self.batch, heads, 2 * KEY + HEAD, cells]))
        query, key, value = self.op("Split", parts, np.array([KEY, KEY, HEAD]), axis=2, outputs=3)
        common = self.op("MatMul", self.op("Transpose", query, perm=[0, 1, 3, 2]), key)
        common = self.op("Softmax", self.op("Mul", common, self.number(KEY ** -0.5)), axis=3)
        y = self.op("MatMul", value, self.op("Transpose", common, perm=[0, 1, 3, 2]))
        shape = np.array([self.batch, channels, side, side])
        place = self.each_channel(self.op("Reshape", value, shape), channels)
        y = self.plain(self.op("Add", self.op("Reshape", y, shape), place), channels, channels)
        x = self.op("Add", x, y)
        return self.op("Add", x, self.plain(self.layer(x, channels, 2 * channels), 2 * channels, channels))

    def attention(self, x, channels):
        """C2PSA: of half of the channels."""
        half = channels // 2
        a, b = self.halves(self.layer(x, channels, 2 * half), half)
        for _ in range(self.depths[0]):
            b = self.attend(b, half)
        return self.layer(self.op("Concat", a, b, axis=1), 2 * half, channels)

    def deepest(self, x, channels):
        return self.attention(self.pyramid_pool(x, channels), channels)

    def classes(self, x, channels):
        super().classes(self.attention(x, channels), channels)

    def vector(self, x, channels):
        super().vector(self.attention(x, channels), channels)

    def scores(self, x, channels, wide):
        for inputs in (channels, wide):
            x = self.layer(self.silu(self.each_channel(x, inputs, gain=self.gain)), inputs, wide)
        return x


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--version", type=int, choices=SIZES, default=8)
    parser.add_argument("--size", choices=SIZES[8], default="s")
    task = parser.add_mutually_exclusive_group()
    task.add_argument("--masks", action="store_true")
    task.add_argument("--classify", action="store_true")
    task.add_argument("--embed", action="store_true")
    parser.add_argument("--side", type=int, help="of the input (default: 640, or 224 with --classify and --embed)")
    parser.add_argument("--batch", default="1")
    parser.add_argument("--f32", action="store_true")
    parser.add_argument("--int8", metavar="OUT.cache")
    options = parser.parse_args()
    options.side = options.side or (224 if options.classify or options.embed else 640)
    if options.side % STRIDES[-1]:
        raise SystemExit(f"The side must be a multiple of {STRIDES[-1]}.")

    batch = int(options.batch) if options.batch.isdigit() else options.batch
    made = {network.VERSION: network for network in (Network, Network11)}[options.version]
    # For a Reshape, -1 is what is left.
    network = made(np.float32 if options.f32 else np.float16, options.size, batch if isinstance(batch, int) else -1, options.side)
    if options.classify:
        network.classes(network.backbone("images")[-1], network.widths[-1])
        shape = [batch, KINDS]
    elif options.embed:
        network.vector(network.backbone("images")[-1], network.widths[-1])
        shape = [batch, DIMS]
    else:
        shape = network.head(network.body("images"), options.masks)
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
    task = "classify" if options.classify else "embed" if options.embed else "segment" if options.masks else "detect"
    properties = {"task": task, "stride": "32", "imgsz": str([options.side, options.side])}
    # A vector has no classes.
    if not options.embed:
        properties["names"] = str({i: f"class {i}" for i in range(KINDS if options.classify else CLASSES)})
    helper.set_model_props(model, properties)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, options.out)
    if options.int8:
        with open(options.int8, "w", encoding="ascii") as table:
            table.write("TRT-8600-EntropyCalibration2\n")
            for name in ["images", *(name for node in network.nodes for name in node.output)]:
                table.write(f"{name}: {struct.pack('>f', RANGE / 127).hex()}\n")
    print(f"{options.out}: {network.parameters / 1e6:.2f} million parameters, output {shape}")


if __name__ == "__main__":
    main()
