# SPDX-License-Identifier: MPL-2.0
"""Exceptions. Their texts say what failed, why, and what to do."""

from __future__ import annotations


class Error(Exception):
    """Whatever this package raises for a model, an image or a video that cannot be used."""


class SettingsError(Error, ValueError):
    """An option is invalid, or does not match the model."""


class NotFoundError(Error, FileNotFoundError):
    """A file does not exist."""


class ReadError(Error, OSError):
    """A file cannot be read."""


class ModelError(Error, ValueError):
    """A model file is damaged or not supported."""


class LibraryError(Error, RuntimeError):
    """A required library is missing or does not start: CUDA, TensorRT, OpenVINO, ONNX Runtime, GStreamer, Pillow."""


class RunError(Error, RuntimeError):
    """Running the model failed."""


class DeviceLostError(RunError):
    """This process can use the GPU no more, and every further call on it fails: start the program again."""


class InputError(Error, ValueError):
    """An image has a wrong type, shape or size, or what is given is no image."""


class Bug(Error, RuntimeError):
    """A bug in the library. It stays usable."""


# By GstTrtStatus.
BY_STATUS = {
    1: SettingsError,
    2: NotFoundError,
    3: ReadError,
    4: ModelError,
    5: LibraryError,
    6: RunError,
    7: InputError,
    8: InputError,
    9: Bug,
    10: DeviceLostError,
}
