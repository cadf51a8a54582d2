# SPDX-License-Identifier: MPL-2.0
"""What a detector takes, as frames of the library."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Protocol, Union

import numpy

from . import _device
from ._library import FULL_RANGE, Frame
from .errors import InputError, LibraryError, NotFoundError, ReadError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import TypeAlias


class HasDlpack(Protocol):
    """Such as a tensor of PyTorch."""

    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class OnCuda(Protocol):
    """Such as an array of CuPy."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


class Pillow(Protocol):
    """An image of Pillow."""

    def convert(self, mode: str) -> Any: ...


ImageLike: TypeAlias = "Union[str, os.PathLike[str], NDArray[Any], HasDlpack, OnCuda, Pillow]"

VIDEOS = {f".{ending}" for ending in "mp4 mkv mov avi webm ts m4v mpg mpeg mts m2ts vob mxf dav flv wmv 3gp h264 h265".split()}

# GStreamer's names of formats, by color and channels.
FORMATS = {
    ("bgr", 1): "GRAY8",
    ("rgb", 1): "GRAY8",
    ("bgr", 3): "BGR",
    ("rgb", 3): "RGB",
    ("bgr", 4): "BGRA",
    ("rgb", 4): "RGBA",
}


# Arrays of other types as bytes: astype() alone keeps the lower bits of a number, and the whole part of a fraction.
OF_BYTES = "image.astype(numpy.uint8) where they are 0..255"
OF_SHARES = f"(255 * image).astype(numpy.uint8) where they are 0..1, and {OF_BYTES}"
IN_BYTES = {
    "bool": "255 * image.astype(numpy.uint8)",
    "uint16": f"(image >> 8).astype(numpy.uint8) where they are 0..65535, and {OF_BYTES}",
    **{f"float{bits}": OF_SHARES for bits in (16, 32, 64)},
}


class Image(NamedTuple):
    """An image in memory that stays as long as this object."""

    format: str
    width: int
    height: int
    address: int
    stride: int
    """From one row to the next, in bytes."""
    row: int
    """Bytes of a row's pixels."""
    owner: Any
    """Keeps the memory."""
    is_on_gpu: bool = False
    stream: int = 0
    """The CUDA stream that writes it."""

    def frame(self) -> Frame:
        frame = Frame(ctypes.sizeof(Frame), self.format.encode(), self.width, self.height, FULL_RANGE)
        frame.planes[0], frame.strides[0] = c_void_p(self.address), self.stride
        # The last row may end with the memory.
        frame.bytes[0] = self.stride * max(self.height - 1, 0) + self.row
        return frame


def check_color(color: str) -> None:
    if not isinstance(color, str) or (color, 3) not in FORMATS:
        raise InputError(f'color is {color!r}. Use "bgr", the order of OpenCV, or "rgb".')


def several(given: Any) -> Iterator[Any]:
    """The images of a list, a generator and the like; one image is an error."""
    shape = getattr(given, "shape", None)
    if isinstance(given, (str, bytes, bytearray, os.PathLike)) or hasattr(given, "convert") or (shape is not None and len(shape) in (2, 3)):
        raise InputError("One image is given, and a list of images is needed. Use detector(image) for one.")
    try:
        return iter(given)
    except TypeError as error:
        raise InputError(f"An object of type {type(given).__name__} is no list of images.") from error


def is_array(given: Any) -> bool:
    """Whether its pixels are there already."""
    return isinstance(given, numpy.ndarray) or hasattr(given, "__dlpack_device__") or hasattr(given, "__cuda_array_interface__")


def read_one(given: Any, color: str) -> Image:
    if isinstance(given, numpy.ndarray):
        return of_array(given, color)
    if isinstance(given, (str, os.PathLike)):
        return of_array(load(given), "rgb")
    if on_gpu := _device.view(given):
        return of_gpu(on_gpu, color)
    if hasattr(given, "__dlpack__"):
        return of_array(_device.by_protocol(given, lambda: numpy.from_dlpack(given)), color)
    if hasattr(given, "convert"):  # Pillow's
        return of_array(of_pillow(given), "rgb")
    many = " detector.batch() takes what gives one image after the other." if hasattr(given, "__next__") else ""
    raise InputError(
        f"An object of type {type(given).__name__} is no image. Give an array of uint8 with the shape (height, width, 3), a path, or a "
        f"list of these.{many}"
    )


def format_of(shape: tuple[int, ...], dtype: str, color: str) -> str:
    """The format of an image with that shape."""
    if dtype != "uint8":
        raise InputError(f"The image has values of {dtype}, and uint8 is needed. Use {IN_BYTES.get(dtype, OF_BYTES)}.")
    channels = 1 if len(shape) == 2 else shape[-1] if shape else 0
    if len(shape) == 4:
        raise InputError(f"An array with the shape {shape} is several images. Give them as a list: detector(list(images)).")
    if len(shape) not in (2, 3) or (color, channels) not in FORMATS:
        first = shape[-3] if len(shape) > 2 else 0
        hint = " The channels come first here: use .transpose(1, 2, 0)." if first in (1, 3, 4) and len(shape) == 3 else ""
        raise InputError(
            f"An array with the shape {shape} is no image: (height, width), (height, width, 3) or (height, width, 4) is needed."
            f"{hint}"
        )
    return FORMATS[color, channels]


def is_in_rows(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the pixels of a row lie side by side, and no row in another one. Strides of axes with one entry say nothing."""
    channels = shape[2] if len(shape) == 3 else 1
    least = (shape[1] * channels, channels, 1)
    side_by_side = all(found == need or size == 1 for found, need, size in zip(strides[1:], least[1:], shape[1:]))
    return side_by_side and (strides[0] >= least[0] or shape[0] <= 1)


def of_array(array: NDArray[Any], color: str) -> Image:
    """Rows are read where they are. Only arrays whose pixels do not lie side by side, such as array[..., ::-1], are copied."""
    name = format_of(array.shape, array.dtype.name, color)
    height, width = array.shape[:2]
    bytes_per_pixel = array.shape[2] if array.ndim == 3 else 1
    row = width * bytes_per_pixel
    if not is_in_rows(array.shape, array.strides):
        array = numpy.ascontiguousarray(array)
    stride = array.strides[0] if height > 1 else row
    return Image(name, width, height, array.ctypes.data, stride, row, array)


def on_host(given: Any) -> NDArray[Any]:
    """An array of NumPy; tensors on a GPU and those with gradients do not become one by themselves."""
    try:
        return numpy.asarray(given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"An object of type {type(given).__name__} is no array in the host's memory: {error}. Give one of NumPy."
        ) from error


def of_gpu(array: _device.Array, color: str) -> Image:
    """An image in GPU memory, read in place."""
    name = format_of(array.shape, array.dtype, color)
    height, width = array.shape[:2]
    bytes_per_pixel = array.shape[2] if len(array.shape) == 3 else 1
    row = width * bytes_per_pixel
    if not is_in_rows(array.shape, array.strides):
        raise InputError(
            f"The pixels of the array on the GPU do not lie side by side: its strides are {array.strides} bytes. "
            "Make it contiguous with the shape (height, width, channels)."
        )
    stride = array.strides[0] if height > 1 else row
    return Image(name, width, height, array.address, stride, row, array.owner, True, array.stream)


def rgb(image: Any, file: str | None) -> NDArray[numpy.uint8]:
    """The pixels of an image of Pillow, upright, whose convert() makes white of all numbers above 255."""
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    mode = getattr(image, "mode", "RGB")
    # Some versions have gray of 16 bits as whole numbers.
    if mode.startswith("I;16") or (mode == "I" and file in ("PNG", "PPM")):
        gray = (numpy.asarray(image) >> 8).astype(numpy.uint8)
        return numpy.repeat(gray[..., None], 3, axis=2)
    if mode in ("I", "F"):
        raise InputError(f"The image has numbers without a range (mode {mode} of Pillow). Give an array that is scaled to 0..255, of uint8.")
    return numpy.asarray(image.convert("RGB"))


def of_pillow(image: Any) -> NDArray[numpy.uint8]:
    """The pixels of an image of Pillow, which may read its file only now."""
    try:
        return rgb(image, getattr(image, "format", None))
    except InputError:
        raise
    except (AssertionError, AttributeError, OSError, ValueError, SyntaxError) as error:
        # Of a file that is closed Pillow says nothing.
        cause = str(error) or "there is no file"
        raise ReadError(f"Cannot read the image of Pillow: {cause}. Check that its file is whole, and that it is not closed.") from error


def load(path: str | os.PathLike[str]) -> NDArray[numpy.uint8]:
    """The pixels of an image file, RGB, upright as its EXIF data says."""
    text = os.fspath(path)
    kinds = {
        "a folder": os.path.isdir(text),
        "a video": Path(text).suffix.lower() in VIDEOS,
        "an address": "://" in text,
        "a pattern": not os.path.exists(text) and any(each in text for each in "*?["),
    }
    if kind := next((kind for kind, is_such in kinds.items() if is_such), None):
        raise InputError(f"{text} is {kind}, and one image is needed. Use gsttrt.detect({text!r}, detector).")
    try:
        from PIL import Image as pillow
    except ImportError as error:
        raise LibraryError(
            f"Cannot read {os.fspath(path)}: Pillow, which reads images, is not installed. Use pip install pillow, "
            "or read the image with OpenCV and give the array."
        ) from error
    try:
        with pillow.open(path) as image:
            return rgb(image, image.format)
    except InputError as error:
        raise InputError(f"Cannot use the image {os.fspath(path)}: {error}") from error
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no image {os.fspath(path)}. Check the path.") from error
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise ReadError(f"Cannot read the image {os.fspath(path)}: {error}. Check that it is a whole image file.") from error
