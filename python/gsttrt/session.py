# SPDX-License-Identifier: MPL-2.0
"""A model's own input and outputs."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_size_t, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy

from ._images import on_host
from ._library import Option, Warnings, library
from ._options import OF_DETECTOR
from .detector import dimensions, open_session
from .errors import InputError, SettingsError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from ._options import Backend, ModelOptions, Path, Size

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

    model, input_size, batch_size and options: as of Detector, without those for its images and objects, such as score_threshold.
    """

    def __init__(
        self,
        model: Path,
        *,
        backend: Backend | None = None,
        input_size: Size | None = None,
        batch_size: int | None = None,
        **options: Unpack[ModelOptions],
    ) -> None:
        given: dict[str, Option | None] = {name.replace("-", "_"): value for name, value in cast(Any, options).items()}
        if useless := [name for name in given if name in OF_DETECTOR]:
            raise SettingsError(f"{useless[0]} has no effect: a Session gives the outputs as they are. Use Detector, or leave it out.")
        given.update(backend=backend, batch_size=batch_size)
        self._session = open_session(model, input_size, given)
        self._path, value = os.fspath(model), self._session.value
        self._warnings = Warnings(self._session)
        self._warnings.tell()
        self.backend: str = library.session_backend(value).decode()
        """What runs the model: "tensorrt", "openvino", "onnxruntime", "rten" or "kserve"."""
        self.input: TensorInfo = info(library.session_input(value))
        """The tensor of one image."""
        count: int = library.session_output_count(value)
        self.outputs: list[TensorInfo] = [info(library.session_output(value, index)) for index in range(count)]
        """In the model's order. Dimensions that are dynamic have the values of a first run on zeros."""

        self.batch_size: int = library.session_batch_size(value)
        """How many images are run at once, at most."""

    def __call__(self, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The outputs by name. The array has the shape and type of `input`; nothing is scaled or converted.

        The first dimension may also be the number of several images: they are run batch_size at once, and it is that of the outputs then.
        """
        given = on_host(array)
        wanted = self.input
        if given.shape[1:] != wanted.shape[1:] or not given.shape or not given.shape[0] or str(given.dtype) != wanted.dtype:
            raise InputError(
                f"The array has the shape {given.shape} and the type {given.dtype}, and the model's input {wanted.name} is "
                f"{wanted.shape} {wanted.dtype}, of which several may be joined. Use reshape and astype."
            )
        given = numpy.ascontiguousarray(given)
        images = given.shape[0]
        if images > 1 and (whole := next((each for each in self.outputs if each.shape[:1] != (1,)), None)):
            raise InputError(f"The output {whole.name} has the shape {whole.shape}, without a row for each image. Give one image at a time.")
        outputs = {each.name: numpy.empty((images, *each.shape[1:]) if images > 1 else each.shape, each.dtype) for each in self.outputs}
        count = len(outputs)
        addresses = (c_void_p * count)(*(each.ctypes.data for each in outputs.values()))
        sizes = (c_size_t * count)(*(each.nbytes for each in outputs.values()))
        run = library.session_run(
            self._session.value, given.ctypes.data, given.nbytes, ctypes.byref(addresses), ctypes.byref(sizes), count
        )
        library.check(run)
        self._warnings.tell()
        return outputs

    def close(self) -> None:
        """Frees the model."""
        self._session.free()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shapes = ", ".join(f"{each.name} {'x'.join(map(str, each.shape))}" for each in (self.input, *self.outputs))
        return f"<Session {self._path}: {self.backend}, {shapes}>"


def info(tensor: c_void_p) -> TensorInfo:
    return TensorInfo(library.tensor_info_name(tensor).decode(), DTYPES[library.tensor_info_type(tensor)], dimensions(tensor))
