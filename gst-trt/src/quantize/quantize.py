# SPDX-License-Identifier: MPL-2.0
"""Makes an INT8 or FP8 copy (Q/DQ) of an ONNX model by ONNX Runtime's quantizer. `gst-trt quantize` runs it: its only argument is a
JSON object, and it prints one."""

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

try:
    import numpy as np
    import onnx
    from onnx import helper
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.calibrate import create_calibrator
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.shape_inference import quant_pre_process
except ImportError as error:
    print(json.dumps({"missing": str(error.name or error)}))
    sys.exit(0)

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# As numbers of tensors are called here, and by NumPy.
TYPES = {"f32": "float32", "f16": "float16", "u8": "uint8", "i8": "int8", "i32": "int32", "i64": "int64", "bool": "bool"}
# What moves values and does not change them.
MOVES = ("Concat", "MaxPool", "Resize", "Slice", "Split")
METHODS = {
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
    "minmax": CalibrationMethod.MinMax,
}


class Pictures(CalibrationDataReader):
    """The inputs of the model that gst-trt made of the pictures, one at a time, each with the same values for the other inputs."""

    def __init__(self, name, values, others):
        self.name, self.values, self.others = name, values, others
        self.set_range(0, len(values))

    def __len__(self):
        return len(self.values)

    def set_range(self, start_index, end_index):
        self.left = iter(range(start_index, end_index))

    def get_next(self):
        at = next(self.left, None)
        return None if at is None else {self.name: np.ascontiguousarray(self.values[at]), **self.others}


def kept_nodes(graph):
    """The names of the nodes that stay as they are: those of the picture itself, the last with weights, and all behind these."""
    weights = {weight.name: weight.dims for weight in graph.initializer}

    def learns(node):  # the single channel is the mean of YOLO's distribution of a side
        shapes = [weights[name] for name in node.input if name in weights]
        return node.op_type in PRODUCTS and any(len(dims) > 1 and (dims[0] > 1 or node.op_type != "Conv") for dims in shapes)

    leads = set()  # values that something with weights comes behind
    kept = []
    for node in reversed(graph.node):
        is_led = leads.intersection(node.output)
        if learns(node) or is_led:
            leads.update(node.input)
        if not is_led:
            kept.append(node.name)
    inputs = {value.name for value in graph.input}
    # What prepares the picture comes before the first convolution.
    fresh = set(inputs)
    for node in graph.node:
        if fresh.intersection(node.input):
            kept.append(node.name)
            if not learns(node):
                fresh.update(node.output)
    return kept


def spell_out_softmax(model):
    """ONNX Runtime moves the whole tensor for a Softmax over another dimension than the last, which YOLO's boxes have.
    That takes longer than a convolution in INT8; the same in simple nodes does not."""
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    nodes = []
    for node in model.graph.node:
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), -1)
        if node.op_type != "Softmax" or axis == -1 or opset < 13:
            nodes.append(node)
            continue
        (source,), (output,), name = node.input, node.output, node.name
        axes = f"{name}/axes"
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([axis]), axes))
        largest = {"inputs": [source, axes]} if opset >= 18 else {"inputs": [source], "axes": [axis]}
        nodes += [
            helper.make_node("ReduceMax", outputs=[f"{name}/max"], name=f"{name}/ReduceMax", **largest),
            helper.make_node("Sub", [source, f"{name}/max"], [f"{name}/below"], f"{name}/Sub"),
            helper.make_node("Exp", [f"{name}/below"], [f"{name}/exp"], f"{name}/Exp"),
            helper.make_node("ReduceSum", [f"{name}/exp", axes], [f"{name}/sum"], f"{name}/ReduceSum"),
            helper.make_node("Div", [f"{name}/exp", f"{name}/sum"], [output], f"{name}/Div"),
        ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def between(graph, kept):
    """Of what moves or adds values, the names of the nodes whose values go to quantized products alone: with Q and DQ in front of
    these too, the values stay in 8 bits from one product to the next. Without, TensorRT writes them in both types."""
    readers = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    quantized = {node.name for node in graph.node if node.op_type in PRODUCTS and node.name not in kept}
    found = set()
    for node in reversed(graph.node):
        if node.op_type not in (*MOVES, "Add") or node.name in kept:
            continue
        reads = [reader.name in quantized for name in node.output for reader in readers[name]]
        if any(reads) if node.op_type == "Split" else reads and all(reads):
            found.add(node.name)
            quantized.add(node.name)
    return found


def with_one_scale(graph, moved, ranges):
    """Values that are moved only, side by side, get the range that holds them all, so that moving does not scale them again."""
    parent = {}

    def group_of(name):
        while name in parent:
            name = parent[name]
        return name

    for node in graph.node:
        if node.op_type in MOVES and node.name in moved:
            first, *others = (*(node.input if node.op_type == "Concat" else node.input[:1]), *node.output)
            for name in others:
                if group_of(name) != group_of(first):
                    parent[group_of(name)] = group_of(first)
    groups = defaultdict(list)
    for name in ranges.keys():
        groups[group_of(name)].append(ranges[name])
    for group in groups.values():
        lowest = np.array(min(np.min(each.range_value[0]) for each in group), np.float32)
        highest = np.array(max(np.max(each.range_value[1]) for each in group), np.float32)
        for each in group:
            each.lowest, each.highest = lowest, highest


def quantize_for_tensorrt(prepared, settings, pictures, kept):
    """Q and DQ where TensorRT fuses them: in front of products, and of what lies between two of them."""
    model = onnx.load(prepared)
    weights = {weight.name for weight in model.graph.initializer}
    # Those of two inputs, as in attention, are no faster in 8 bits, and lose most.
    kept = {*kept, *(node.name for node in model.graph.node if node.op_type in PRODUCTS and not weights.intersection(node.input))}
    moved = between(model.graph, kept)
    types = [*PRODUCTS, *MOVES, "Add"]
    left = [node.name for node in model.graph.node if node.op_type in types and node.op_type not in PRODUCTS and node.name not in moved]
    augmented = str(Path(prepared).with_name("augmented.onnx"))
    method = METHODS[settings["calibration"]]
    options = {"percentile": settings["percentile"]} if settings["calibration"] == "percentile" else {}
    calibrator = create_calibrator(Path(prepared), types, augmented, method, extra_options=options)
    for at in range(len(pictures)):  # one after the other, so that only the tensors of one are in memory
        pictures.set_range(at, at + 1)
        calibrator.collect_data(pictures)
    ranges = calibrator.compute_data()
    with_one_scale(model.graph, moved, ranges)
    options = {
        "WeightSymmetric": True,
        "ActivationSymmetric": True,  # TensorRT has no zero points, ...
        "QuantizeBias": False,  # ... and no integers of 32 bits; its version 8 ...
        "AddQDQPairToWeight": True,  # ... quantizes weights itself, and refuses those that are.
        "OpTypesToExcludeOutputQuantization": types,  # The activation behind a product is computed with it.
    }
    int8 = QuantType.QInt8
    quantizer = QDQQuantizer(model, True, False, int8, int8, ranges, [], [*kept, *left], types, options)
    quantizer.quantize_model()
    quantizer.model.save_model_to_file(settings["output"], False)
    return kept


def other_inputs(settings):
    """What goes into the inputs other than the picture, by their names."""
    return {each["name"]: np.fromfile(each["file"], TYPES[each["type"]]).reshape(each["shape"]) for each in settings["others"]}


def quantize(settings):
    original = onnx.load(settings["model"], load_external_data=False)
    values = np.memmap(settings["pictures"], np.float32, "r").reshape(-1, *settings["shape"])
    is_float = settings["format"] == "fp8"
    with tempfile.TemporaryDirectory(dir=settings["folder"]) as folder:
        prepared = f"{folder}/prepared.onnx"
        quant_pre_process(settings["model"], prepared, skip_symbolic_shape=True)
        model = onnx.load(prepared)
        if settings["device"] == "cpu":
            spell_out_softmax(model)
        for at, node in enumerate(model.graph.node):
            node.name = node.name or f"node {at}"
        kept = kept_nodes(model.graph)
        onnx.save(model, prepared)
        products = [node.name for node in model.graph.node if node.op_type in PRODUCTS]
        if not set(products) - set(kept):
            return {"error": "the model has no layers with weights between its first and its last"}
        pictures = Pictures(settings["input"], values, other_inputs(settings))
        if settings["device"] == "gpu" and not is_float:
            kept = quantize_for_tensorrt(prepared, settings, pictures, kept)
        else:
            quantize_static(
                prepared,
                settings["output"],
                pictures,
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(PRODUCTS) if is_float else None,
                per_channel=not is_float,
                activation_type=QuantType.QFLOAT8E4M3FN if is_float else QuantType.QUInt8,
                weight_type=QuantType.QFLOAT8E4M3FN if is_float else QuantType.QInt8,
                nodes_to_exclude=kept,
                calibrate_method=CalibrationMethod.Distribution if is_float else METHODS[settings["calibration"]],
                extra_options={
                    "CalibStridedMinMax": 1,  # as above, by any method
                    "CalibPercentile": settings["percentile"],
                    "WeightSymmetric": True,
                    "ActivationSymmetric": is_float,
                    "QuantizeBias": not is_float,
                    "AddQDQPairToWeight": is_float,
                },
            )
    result = onnx.load(settings["output"])
    helper.set_model_props(result, {entry.key: entry.value for entry in original.metadata_props})
    onnx.save(result, settings["output"])
    quantized = sum(node.op_type in PRODUCTS and node.name not in kept for node in result.graph.node)
    return {"quantized": quantized, "products": len(products)}


if __name__ == "__main__":
    said = sys.stdout
    sys.stdout = sys.stderr  # what libraries print is not the result
    try:
        found = quantize(json.loads(sys.argv[1]))
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(found), file=said)
