# SPDX-License-Identifier: MPL-2.0
"""A model's own input and outputs."""

from __future__ import annotations

import ctypes
from ctypes import c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from ._library import Option, library
from .detector import dimensions, open_session
from .errors import InputError

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

# By GstTrtType.
DTYPES = ("float32", "float16", "uint8", "int8", "int32", "int64", "bool")


class TensorInfo(NamedTuple):
    """An input or output of a model."""

    name: str
    dtype: str
    """As NumPy names it."""
    shape: tuple[int, ...]


class Session:
    """Runs any model, and returns its outputs as they are: for networks whose results no Detector knows.

    >>> session = Session("mine.onnx")
    >>> outputs = session(numpy.zeros(session.input.shape, session.input.dtype))
    >>> outputs["output0"]

    model, input_size and options: as of Detector.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        input_size: tuple[int, int] | int | str | None = None,
        **options: Option | None,
    ) -> None:
        self._session = open_session(model, input_size, options)
        value = self._session.value
        self.backend: str = library.session_backend(value).decode()
        """What runs the model: "tensorrt", "onnxruntime" or "rten"."""
        self.input: TensorInfo = info(library.session_input(value))
        """The tensor of one image."""
        count: int = library.session_output_count(value)
        self.outputs: list[TensorInfo] = [info(library.session_output(value, index)) for index in range(count)]
        """In the model's order. Dimensions that are dynamic have the values of a first run on zeros."""

    def __call__(self, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The outputs by name. The array has the shape and type of `input`; nothing is scaled or converted."""
        given = numpy.asarray(array)
        if (given.shape, str(given.dtype)) != (self.input.shape, self.input.dtype):
            raise InputError(
                f"The array has the shape {given.shape} and the type {given.dtype}, and the model's input {self.input.name} is "
                f"{self.input.shape} {self.input.dtype}. Use reshape and astype."
            )
        given = numpy.ascontiguousarray(given)
        outputs = {each.name: numpy.empty(each.shape, each.dtype) for each in self.outputs}
        count = len(outputs)
        addresses = (c_void_p * count)(*(each.ctypes.data for each in outputs.values()))
        sizes = (c_size_t * count)(*(each.nbytes for each in outputs.values()))
        run = library.session_run(
            self._session.value, given.ctypes.data, given.nbytes, ctypes.byref(addresses), ctypes.byref(sizes), count
        )
        library.check(run)
        return outputs

    def close(self) -> None:
        """Frees the model."""
        self._session.free()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def info(tensor: c_void_p) -> TensorInfo:
    return TensorInfo(library.tensor_info_name(tensor).decode(), DTYPES[library.tensor_info_type(tensor)], dimensions(tensor))
