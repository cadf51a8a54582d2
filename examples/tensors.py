#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""What a model computes for each frame of a clip, as NumPy arrays, or on a GPU as PyTorch tensors, and not copied (but for NumPy
before 2.1, whose DLPack cannot say that memory must not be written):

    tensors.py LIBRARY CLIP MODEL [FRAMEWORK], such as libgsttrt-1.so.0 a.mp4 yolo11n.onnx

LIBRARY is the C library; GStreamer finds the plugin with GST_PLUGIN_PATH. FRAMEWORK is another module with from_dlpack,
such as cupy."""
import ctypes
import signal
import sys

try:
    import gi
except ImportError as error:
    sys.exit(f"Error: {error}. Debian's own /usr/bin/python3 with python3-gi and gir1.2-gst-plugins-base-1.0 has all that is needed.")

gi.require_version("Gst", "1.0")
from gi.repository import Gst

capsule = ctypes.pythonapi
capsule.PyCapsule_New.restype = ctypes.py_object
capsule.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule.PyCapsule_GetPointer.restype = ctypes.c_void_p
for function in (capsule.PyCapsule_GetPointer, capsule.PyCapsule_IsValid, capsule.PyCapsule_SetName):
    function.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Managed(ctypes.Structure):
    """The fields of DLManagedTensor that are used here."""
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("shape", ctypes.c_byte * 32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


class ManagedVersioned(ctypes.Structure):
    """The same of DLManagedTensorVersioned."""
    _fields_ = [("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


class BufferTensor:
    """A tensor on a buffer after trtinfer, for numpy.from_dlpack, torch.from_dlpack, cupy.from_dlpack and others."""

    def __init__(self, library, buffer, index):
        self.library, self.buffer, self.index = library, buffer, index
        self.offered = []

    def export(self, stream, versioned=False):
        tensor = ctypes.POINTER(Managed)()
        function = self.library.gst_trt_buffer_tensor_versioned if versioned else self.library.gst_trt_buffer_tensor
        # The hash of a buffer is its address.
        status = function(
            ctypes.c_void_p(hash(self.buffer)), ctypes.c_size_t(self.index), ctypes.c_void_p(stream), ctypes.byref(tensor))
        if status != 0:
            raise RuntimeError(self.library.gst_trt_last_error().decode())
        return tensor

    def __dlpack_device__(self):
        tensor = self.export(None)
        device = tuple(tensor.contents.device)
        tensor.contents.deleter(ctypes.addressof(tensor.contents))
        return device

    def __dlpack__(self, stream=None, max_version=None, **_):
        # The protocol numbers the default streams as CUDA does. -1 means that the stream is not known, as in gsttrt.h.
        versioned = max_version is not None and max_version[0] >= 1
        tensor = self.export(stream, versioned)
        name = b"dltensor_versioned" if versioned else b"dltensor"
        self.offered.append((capsule.PyCapsule_New(ctypes.cast(tensor, ctypes.c_void_p), name, None), name))
        return self.offered[-1][0]

    def __del__(self):
        # A consumer that takes the memory gives the capsule another name, and frees it then. What none has taken is freed here, and
        # not by a destructor of the capsule: that may be called while an error is raised, and may not be written in Python.
        for held, name in self.offered:
            if capsule.PyCapsule_IsValid(held, name):
                kind = ManagedVersioned if name == b"dltensor_versioned" else Managed
                tensor = kind.from_address(capsule.PyCapsule_GetPointer(held, name))
                capsule.PyCapsule_SetName(held, b"used_dltensor")
                tensor.deleter(ctypes.addressof(tensor))


def main(library, clip, model, framework=None):
    trt = ctypes.CDLL(library)
    trt.gst_trt_last_error.restype = ctypes.c_char_p
    Gst.init(None)
    pipeline = Gst.parse_launch(
        f'filesrc location="{clip}" ! decodebin ! videoconvert ! trtpreprocess ! trtinfer model-file="{model}" ! appsink name=out sync=false')
    out, bus = pipeline.get_by_name("out"), pipeline.get_bus()
    pipeline.set_state(Gst.State.PLAYING)
    frames, message = 0, None
    while not out.get_property("eos") and not message:
        message = bus.pop_filtered(Gst.MessageType.WARNING | Gst.MessageType.ERROR)
        if message and message.type == Gst.MessageType.WARNING:
            print("Warning:", message.parse_warning()[0].message, file=sys.stderr)
            message = None
            continue
        sample = out.emit("try-pull-sample", Gst.SECOND // 10)
        if not sample:
            continue
        tensor = BufferTensor(trt, sample.get_buffer(), 0)
        on_gpu = tensor.__dlpack_device__()[0] == 2
        module = __import__(framework or ("torch" if on_gpu else "numpy"))
        array = module.from_dlpack(tensor)
        place = "GPU" if on_gpu else "host"
        print(f"frame {frames}: {array.dtype} {tuple(array.shape)} on the {place}, greatest {float(array.max()):.3f}")
        frames += 1
    pipeline.set_state(Gst.State.NULL)
    if message:
        error, debug = message.parse_error()
        sys.exit(" ".join(["Error:", error.message, *(debug or "").splitlines()[1:]]))


signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` may end the program
if not 4 <= len(sys.argv) <= 5:
    sys.exit("Usage: tensors.py LIBRARY CLIP MODEL [FRAMEWORK]")
main(*sys.argv[1:])
