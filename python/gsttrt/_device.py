# SPDX-License-Identifier: MPL-2.0
"""Arrays of other packages in GPU memory, by DLPack or __cuda_array_interface__."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, Callable, NamedTuple, TypeVar

from .errors import InputError

# DLPack's kDLCUDA and kDLCUDAManaged.
CUDA_DEVICES = (2, 13)
# How DLPack and __cuda_array_interface__ number CUDA's legacy default stream; as a CUstream it is the same.
LEGACY_STREAM = 1
# Each thread has another default stream by this number.
PER_THREAD_STREAM = 2
# DLPack's codes of types.
KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


Given = TypeVar("Given")


def by_protocol(given: Any, ask: Callable[[], Given]) -> Given:
    """What an array of another package, or NumPy, says of it by DLPack; each has other exceptions where that cannot be."""
    try:
        return ask()
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"The array, of type {type(given).__name__}, cannot be read by DLPack: {error}. Give one of uint8 without gradients, in the "
            "host's memory or on the GPU that the model runs on."
        ) from error


class Array(NamedTuple):
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes."""
    dtype: str
    stream: int
    """The CUstream on which it is ready."""
    owner: Any


class Tensor(ctypes.Structure):
    """DLTensor, the first field of DLManagedTensor"""

    _fields_ = [
        ("data", c_void_p),
        ("device", c_int32 * 2),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]


def view(given: Any) -> Array | None:
    """The array in place; None if it is none on a GPU."""
    if hasattr(given, "__dlpack_device__"):
        kind, _ = by_protocol(given, given.__dlpack_device__)
        return by_dlpack(given) if int(kind) in CUDA_DEVICES else None
    interface = getattr(given, "__cuda_array_interface__", None)
    return by_interface(given, interface) if interface else None


def contiguous(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    strides = [item]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides)) if shape else ()


def dtype_of(kind: str | None, bits: int) -> str:
    """As NumPy names it."""
    return "bool" if (kind, bits) == ("bool", 8) else f"{kind or 'unknown'}{bits}"


def by_dlpack(given: Any) -> Array:
    # What writes the array has its place in the stream before what this stream gets from now on. The capsule is not consumed: it
    # frees the tensor when the array is dropped.
    capsule = by_protocol(given, lambda: given.__dlpack__(stream=LEGACY_STREAM))
    tensor = Tensor.from_address(capsule_pointer(capsule, b"dltensor"))
    if tensor.lanes != 1:
        raise InputError(f"The array has vectors of {tensor.lanes} values. Give an array of uint8.")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    item = tensor.bits // 8
    strides = tuple(tensor.strides[axis] * item for axis in range(tensor.ndim)) if tensor.strides else contiguous(shape, item)
    dtype = dtype_of(KINDS.get(tensor.code), tensor.bits)
    return Array((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, LEGACY_STREAM, capsule)


def by_interface(given: Any, interface: dict[str, Any]) -> Array:
    kind, item = interface["typestr"][1:2], int(interface["typestr"][2:])
    names = {"u": "uint", "i": "int", "f": "float", "b": "bool", "c": "complex"}
    shape = tuple(interface["shape"])
    strides = tuple(interface.get("strides") or contiguous(shape, item))
    # Without a stream the legacy default stream waits for what the other streams do.
    stream = interface.get("stream") or LEGACY_STREAM
    return Array(interface["data"][0], shape, strides, dtype_of(names.get(kind), item * 8), stream, given)
