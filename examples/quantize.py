#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""An INT8 copy (QDQ) of an ONNX model with letterboxed input, such as Ultralytics' export of a detector.

  examples/quantize.py MODEL.onnx OUTPUT.onnx IMAGE...

Needs onnx, onnxruntime, numpy and pillow. The images show which values occur: a hundred of those that the model will see do.
On CPUs with VNNI, ONNX Runtime runs the copy about twice as fast. Compare its boxes with those of the original before using it.
"""

import sys
import tempfile

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from PIL import Image


def letterbox(path, width, height):
    """As trtpreprocess makes it: RGB in 0 to 1, the borders at 114 / 255."""
    image = Image.open(path).convert("RGB")
    scale = min(width / image.width, height / image.height)
    inner = round(image.width * scale), round(image.height * scale)
    whole = Image.new("RGB", (width, height), (114, 114, 114))
    whole.paste(image.resize(inner, Image.Resampling.BILINEAR), ((width - inner[0]) // 2, (height - inner[1]) // 2))
    return np.asarray(whole, np.float32).transpose(2, 0, 1)[None] / 255


class Images(CalibrationDataReader):
    def __init__(self, name, width, height, paths):
        self.inputs = ({name: letterbox(path, width, height)} for path in paths)

    def get_next(self):
        return next(self.inputs, None)


def behind_the_last_convolution(graph):
    """The nodes that make boxes and scores of what the network says. Their values differ too much for 8 bits."""
    weights = {weight.name: weight.dims for weight in graph.initializer}

    def learns(node):  # the single channel is the mean of YOLO's distribution of a side
        return node.op_type == "Conv" and weights.get(node.input[1], [2])[0] > 1

    leads = set()  # values that a convolution comes behind
    names = []
    for node in reversed(graph.node):
        if learns(node) or leads.intersection(node.output):
            leads.update(node.input)
        else:
            names.append(node.name)
    return names


def first_convolutions(graph):
    """Those of the picture itself. ONNX Runtime's INT8 kernels take longer for three channels than those for FP32."""
    return [node.name for node in graph.node if node.op_type == "Conv" and graph.input[0].name in node.input]


def spell_out_softmax(model):
    """ONNX Runtime moves the whole tensor for a Softmax over another dimension than the last, which YOLO's boxes have.
    That takes longer than a convolution in INT8; the same in simple nodes does not."""
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    nodes = []
    for node in model.graph.node:
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), -1)
        if node.op_type != "Softmax" or axis == -1:
            nodes.append(node)
            continue
        (source,), (output,), name = node.input, node.output, node.name
        axes = f"{name}/axes"
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([axis]), axes))
        largest = {"inputs": [source, axes]} if opset >= 18 else {"inputs": [source], "axes": [axis]}
        nodes += [
            onnx.helper.make_node("ReduceMax", outputs=[f"{name}/max"], name=f"{name}/ReduceMax", **largest),
            onnx.helper.make_node("Sub", [source, f"{name}/max"], [f"{name}/below"], f"{name}/Sub"),
            onnx.helper.make_node("Exp", [f"{name}/below"], [f"{name}/exp"], f"{name}/Exp"),
            onnx.helper.make_node("ReduceSum", [f"{name}/exp", axes], [f"{name}/sum"], f"{name}/ReduceSum"),
            onnx.helper.make_node("Div", [f"{name}/exp", f"{name}/sum"], [output], f"{name}/Div"),
        ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def quantize(model, output, images):
    original = onnx.load(model)
    source = original.graph.input[0]
    sides = [dim.dim_value for dim in source.type.tensor_type.shape.dim[2:]]
    if len(sides) != 2 or not all(sides):
        sys.exit(f"{model} has no input of a fixed width and height. Export it with one.")
    with tempfile.TemporaryDirectory() as folder:
        prepared, quantized = f"{folder}/prepared.onnx", f"{folder}/quantized.onnx"
        quant_pre_process(model, prepared, skip_symbolic_shape=True)
        spelled_out = onnx.load(prepared)
        spell_out_softmax(spelled_out)
        onnx.save(spelled_out, prepared)
        quantize_static(
            prepared,
            quantized,
            Images(source.name, sides[1], sides[0], images),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,  # with signed weights: what VNNI multiplies
            weight_type=QuantType.QInt8,
            nodes_to_exclude=[*behind_the_last_convolution(spelled_out.graph), *first_convolutions(spelled_out.graph)],
        )
        result = onnx.load(quantized)
    onnx.helper.set_model_props(result, {entry.key: entry.value for entry in original.metadata_props})
    onnx.save(result, output)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    quantize(sys.argv[1], sys.argv[2], sys.argv[3:])
