# SPDX-License-Identifier: MPL-2.0
# Writes an ONNX file that has the signature of a recorded model and gives the recorded tensors, as long as its input is the recorded one.
#
# Imported by play.py and record.py; not run by itself. Needs numpy only: the fields of onnx.proto3 are written here.
import numpy as np

DTYPES = {"FLOAT": (1, np.float32), "UINT8": (2, np.uint8), "INT32": (6, np.int32), "INT64": (7, np.int64), "FLOAT16": (10, np.float16)}
CELLS = 8  # of the input, across and down at most, whose means are compared
GAIN = 1e3  # of what the means are off beyond their tolerance: is added to all outputs


def field(number, value):
    """One field of a message: a whole number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def fields(number, values):
    return b"".join(field(number, value) for value in values)


def end(tensor):
    """An input or an output of the graph. A dimension that is a text is open."""
    dims = (field(2, dim) if isinstance(dim, str) else field(1, dim) for dim in tensor["shape"])
    return field(1, tensor["name"]) + field(2, field(1, field(1, DTYPES[tensor["dtype"]][0]) + field(2, fields(1, dims))))


def attribute(name, value):
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    if isinstance(value, str):
        return field(1, name) + field(4, value) + field(20, 3)
    return field(1, name) + fields(8, value) + field(20, 7)


class Graph:
    """Collects nodes and weights; `op` and `weight` give the name of their result."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def weight(self, values):
        values = np.asarray(values)
        (code,) = (code for code, dtype in DTYPES.values() if dtype == values.dtype)
        name = f"weight{len(self.weights)}"
        self.weights.append(fields(1, map(int, values.shape)) + field(2, code) + field(8, name) + field(9, values.tobytes()))
        return name

    def op(self, kind, *inputs, name=None, **attributes):
        inputs = [own if isinstance(own, str) else self.weight(own) for own in inputs]
        name = name or f"value{len(self.nodes)}"
        given = fields(5, (attribute(*entry) for entry in attributes.items()))
        self.nodes.append(fields(1, inputs) + field(2, name) + field(3, f"node{len(self.nodes)}") + field(4, kind) + given)
        return name

    def file(self, signature):
        graph = fields(1, self.nodes) + field(2, "recorded") + fields(5, self.weights)
        graph += fields(11, map(end, signature["inputs"])) + fields(12, map(end, signature["outputs"]))
        metadata = (field(1, key) + field(2, text) for key, text in signature["metadata"].items())
        producer = field(2, signature["producer"][0]) + field(3, signature["producer"][1])
        opset = field(1, "") + field(2, signature["opset"])
        return field(1, signature["ir_version"]) + producer + field(7, graph) + field(8, opset) + fields(14, metadata)


def cells(side):
    """How many of equal size there are along a side."""
    return next(count for count in range(CELLS, 0, -1) if side % count == 0)


def means(values):
    """Of each channel of a batch of one picture, in each cell."""
    _, channels, height, width = values.shape
    across, down = cells(width), cells(height)
    return values.astype(np.float64).reshape(1, channels, down, height // down, across, width // across).mean(axis=(3, 5))


def picture_of(signature):
    """The input that takes the picture."""
    return next(tensor for tensor in signature["inputs"] if len(tensor["shape"]) == 4)


def network(signature, size, outputs, seen, tolerance, sides, is_checked=True):
    """The bytes of the file. `seen` are the means of the input of that size, `sides` are the values of the other inputs."""
    graph, picture = Graph(), picture_of(signature)
    values, number = picture["name"], np.float32
    if picture["dtype"] != "FLOAT":
        values = graph.op("Cast", values, to=1)
    step = [size[1] // seen.shape[2], size[0] // seen.shape[3]]
    values = graph.op("AveragePool", values, kernel_shape=step, strides=step)
    # Layouts are told apart by these operators.
    if "GridSample" in signature["operators"]:
        y, x = ((np.arange(count) * 2 + 1) / count - 1 for count in seen.shape[2:])
        grid = np.stack(np.meshgrid(x, y), axis=-1)[None].astype(number)
        values = graph.op("GridSample", values, grid)
    off = graph.op("Abs", graph.op("Sub", values, seen.astype(number)))
    off = graph.op("Relu", graph.op("Sub", off, np.array(tolerance, number)))
    off = total(graph, off, [1, 2, 3], signature["opset"])
    for name, wanted in sides.items():
        apart = graph.op("Abs", graph.op("Sub", graph.op("Cast", name, to=1), wanted.astype(number)))
        off = graph.op("Add", off, total(graph, apart, [1], signature["opset"]))
    if "Exp" in signature["operators"]:
        off = graph.op("Sub", graph.op("Exp", off), np.array(1, number))
    off = graph.op("Mul", off, np.array(GAIN * is_checked, number))
    for tensor in signature["outputs"]:
        add_output(graph, off, outputs[tensor["name"]], tensor, signature["activations"].get(tensor["name"]))
    return graph.file(signature)


def total(graph, values, axes, opset):
    """The sum over these axes, which were an attribute once."""
    if opset < 13:
        return graph.op("ReduceSum", values, axes=axes, keepdims=0)
    return graph.op("ReduceSum", values, np.array(axes), keepdims=0)


def add_output(graph, off, values, tensor, activation):
    """The recorded values, with `off` added for each picture, as the declared type and by the activation that the model ends in."""
    code, dtype = DTYPES[tensor["dtype"]]
    off = graph.op("Reshape", off, np.array([-1] + [1] * (values.ndim - 1)))
    if activation is None:
        if code != 1:
            off = graph.op("Cast", off, to=code)
        graph.op("Add", off, values.astype(dtype), name=tensor["name"])
        return
    shares = np.clip(values.astype(np.float64), 1e-9, 1 - 1e-7)
    logits = np.log(shares) if activation == "Softmax" else np.log(shares / (1 - shares))
    if activation == "Softmax":
        # To all logits alike it would make no difference.
        off = graph.op("Mul", off, (np.arange(values.size) % 2).reshape(values.shape).astype(np.float32))
    made = graph.op("Add", off, logits.astype(np.float32))
    options = {"axis": values.ndim - 1} if activation == "Softmax" else {}
    if code == 1:
        graph.op(activation, made, name=tensor["name"], **options)
    else:
        graph.op("Cast", graph.op(activation, made, **options), to=code, name=tensor["name"])


def echo(signature):
    """A model whose output is its input."""
    graph = Graph()
    graph.op("Reshape", signature["inputs"][0]["name"], np.array(signature["outputs"][0]["shape"]), name=signature["outputs"][0]["name"])
    return graph.file(signature)
