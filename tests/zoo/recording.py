# SPDX-License-Identifier: MPL-2.0
# Files of recordings: a description, and arrays, in one stream of xz.
#
# Imported by play.py and record.py; not run by itself. Needs numpy only.
import json
import lzma

import numpy as np

from export import ROWS

FOLDER = "recorded"  # next to this file


def write(path, about, arrays):
    """The arrays by their names. Bytes of the same place in all numbers lie next to each other, which halves the file."""
    parts, listed = [], []
    for name, values in arrays.items():
        listed.append([name, values.dtype.name, values.shape])
        if values.dtype == bool:
            parts.append(np.packbits(values ^ above(values)).tobytes())
        else:
            parts.append(np.ascontiguousarray(values).view(np.uint8).reshape(-1, values.itemsize).T.tobytes())
    head = json.dumps({**about, "arrays": listed}, ensure_ascii=False, separators=(",", ":")).encode()
    body = len(head).to_bytes(4, "little") + head + b"".join(parts)
    path.write_bytes(lzma.compress(body, preset=9 | lzma.PRESET_EXTREME))


def read(path):
    """The description and the arrays."""
    body = lzma.decompress(path.read_bytes())
    at = 4 + int.from_bytes(body[:4], "little")
    about, arrays = json.loads(body[4:at]), {}
    for name, dtype, shape in about.pop("arrays"):
        count, size = int(np.prod(shape)), np.dtype(dtype).itemsize
        if dtype == "bool":
            length = -(-count // 8)
            values = np.unpackbits(np.frombuffer(body, np.uint8, length, at), count=count).reshape(shape).astype(bool)
            values = np.logical_xor.accumulate(values, axis=-2)
        else:
            length = count * size
            planes = np.frombuffer(body, np.uint8, length, at).reshape(size, count)
            values = np.ascontiguousarray(planes.T).view(dtype).reshape(shape)
        arrays[name] = values
        at += length
    return about, arrays


def is_of_another_row(name, about):
    """Whether export.py makes that model by other arguments now."""
    return name in ROWS and not about["command"].startswith(command_of(name))


def command_of(name):
    """That of one of Ultralytics' models."""
    row = ROWS[name]
    arguments = "".join(f", {key}={value!r}" for key, value in row["arguments"].items())
    return f'tests/zoo/export.py MODELS {name}: YOLO("{row["yaml"]}").export(format="onnx"{arguments});'


def above(pixels):
    """The row above each."""
    shifted = np.zeros_like(pixels)
    shifted[..., 1:, :] = pixels[..., :-1, :]
    return shifted
