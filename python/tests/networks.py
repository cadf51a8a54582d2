# SPDX-License-Identifier: MPL-2.0
"""Small ONNX files, written without the package onnx: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto has the numbers of fields."""

import struct

F32, I64 = 1, 7


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value) -> bytes:
    """A field: a number, a text, or a message or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor_of(name: str, dims: list, type_of_elements: int = F32) -> bytes:
    shape = b"".join(field(1, field(1 if isinstance(dim, int) else 2, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, type_of_elements) + field(2, shape)))


def weight(name: str, dims: list, values: list, type_of_elements: int = F32) -> bytes:
    raw = struct.pack(f"<{len(values)}{'f' if type_of_elements == F32 else 'q'}", *values)
    return b"".join(field(1, dim) for dim in dims) + field(2, type_of_elements) + field(8, name) + field(9, raw)


def node(kind: str, inputs: str, output: str, **attributes) -> bytes:
    def attribute(name, value):
        if isinstance(value, int):
            return field(1, name) + field(3, value) + field(20, 2)
        return field(1, name) + b"".join(field(8, each) for each in value) + field(20, 7)

    given = b"".join(field(5, attribute(name, value)) for name, value in attributes.items())
    return b"".join(field(1, each) for each in inputs.split()) + field(2, output) + field(4, kind) + given


def model(inputs: list, weights: list, nodes: list, outputs: list, **metadata: str) -> bytes:
    parts = [*((1, each) for each in nodes), (2, "network"), *((5, each) for each in weights)]
    graph = b"".join(field(*part) for part in [*parts, *((11, each) for each in inputs), *((12, each) for each in outputs)])
    texts = b"".join(field(14, field(1, key) + field(2, value)) for key, value in metadata.items())
    return field(1, 8) + field(7, graph) + field(8, field(2, 17)) + texts


def counter(batch="n", height=64, width=64) -> bytes:
    """It finds one box in the middle of each image. Its score is a tenth of the number of images that are run together, and its left edge is
    at 22, and ten times the brightness of the image, from 0 to 1, to the right of it."""
    return model(
        [tensor_of("images", [batch, 3, height, width])],
        [
            weight("place", [1, 1, 6], [22, 20, 42, 44, 0, 0]),
            weight("left", [1, 1, 6], [10, 0, 0, 0, 0, 0]),
            weight("score", [1, 1, 6], [0, 0, 0, 0, 0.1, 0]),
            weight("rows", [3], [-1, 1, 1], I64),
            weight("first", [1], [0], I64),
        ],
        [
            node("ReduceMean", "images", "mean", axes=[1, 2, 3], keepdims=0),
            node("Reshape", "mean rows", "column"),
            node("Mul", "column left", "moved"),
            node("Shape", "images", "dims"),
            node("Gather", "dims first", "whole"),
            node("Cast", "whole", "count", to=F32),
            node("Mul", "count score", "scored"),
            node("Add", "scored place", "placed"),
            node("Add", "moved placed", "output0"),
        ],
        [tensor_of("output0", [batch, 1, 6])],
        names="{0: 'a'}",
        end2end="True",
        imgsz="[64, 64]",
        stride="32",
    )


def of_clips(dims: list, axes: list) -> bytes:
    """The brightness of each of two frames of a clip, as the confidence of a class: the mean over all axes but those of batch and frames."""
    means = node("ReduceMean", "clip", "output0", axes=axes, keepdims=0)
    return model([tensor_of("clip", dims)], [], [means], [tensor_of("output0", [1, 2])], task="classify")


def never_runs() -> bytes:
    """A model that is loaded, and fails when it is run for the size of its output: 12288 numbers are no rows of 7."""
    rows = [node("Reshape", "images dims", "output0")]
    return model([tensor_of("images", [1, 3, 64, 64])], [weight("dims", [2], [-1, 7], I64)], rows, [tensor_of("output0", ["n", "m"])])


def overflows() -> bytes:
    """A box in each image, whose score is no number where the image is bright."""
    return model(
        [tensor_of("images", [1, 3, 64, 64])],
        [
            weight("half", [1], [0.5]),
            weight("place", [1, 1, 6], [16, 16, 48, 48, 0, 0]),
            weight("score", [1, 1, 6], [0, 0, 0, 0, 1, 0]),
            weight("rows", [3], [-1, 1, 1], I64),
        ],
        [
            node("ReduceMean", "images", "mean", axes=[1, 2, 3], keepdims=0),
            node("Sub", "half mean", "left"),
            node("Sqrt", "left", "root"),
            node("Reshape", "root rows", "column"),
            node("Mul", "column score", "scored"),
            node("Add", "scored place", "output0"),
        ],
        [tensor_of("output0", [1, 1, 6])],
        names="{0: 'a'}",
        end2end="True",
    )


def colours() -> bytes:
    """A vector of each image: the mean of its red, green and blue."""
    means = node("ReduceMean", "images", "vector", axes=[2, 3], keepdims=0)
    return model([tensor_of("images", [1, 3, 64, 64])], [], [means], [tensor_of("vector", [1, 3])], task="embed")


def two_boxes() -> bytes:
    """Two boxes that overlap by two thirds, of two classes."""
    values = [0, 0, 32, 32, 0.9, 0, 6, 0, 38, 32, 0.9, 1]
    made = weight("output0", [1, 2, 6], values)
    texts = {"names": "{0: 'a', 1: 'b'}", "end2end": "True"}
    return model([tensor_of("images", [1, 3, 64, 64])], [made], [], [tensor_of("output0", [1, 2, 6])], **texts)


def reader() -> bytes:
    """The text “Hi” in each image, with a dictionary of H and i: a step has the scores of the blank, H, i and a space."""
    steps = [0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0]
    images, text = tensor_of("images", [1, 3, 48, 64]), tensor_of("text", [1, 3, 4])
    return model([images], [weight("text", [1, 3, 4], steps)], [], [text], character="H\ni")


def unknown() -> bytes:
    """Boxes whose file says nothing of layout and names."""
    values = [0, 0, 32, 32, 0.9, 1]
    return model([tensor_of("images", [1, 3, 64, 64])], [weight("output0", [1, 1, 6], values)], [], [tensor_of("output0", [1, 1, 6])])
