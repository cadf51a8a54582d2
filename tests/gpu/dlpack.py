#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Tensors to PyTorch and CuPy and back by DLPack, on the GPU: the same memory, and the values of a run on the host.
#
#   dlpack.py LIBRARY MODEL [PROPERTY=VALUE…]
#
# LIBRARY is that of gsttrt.h, MODEL has one input and one output of f32. Needs a python3 with PyTorch and
# CuPy. Exit status 1 where something is not so.
import ctypes
import sys

import cupy
import torch

library, model, *properties = sys.argv[1:]
trt = ctypes.CDLL(library)
trt.gst_trt_last_error.restype = ctypes.c_char_p
capsule = ctypes.pythonapi
capsule.PyCapsule_New.restype = ctypes.py_object
capsule.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule.PyCapsule_GetPointer.restype = ctypes.c_void_p
capsule.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
capsule.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


for name, result in (("input", ctypes.c_void_p), ("output", ctypes.c_void_p)):
    getattr(trt, f"gst_trt_session_{name}").restype = result
for name, result in (("rank", ctypes.c_size_t), ("dim", ctypes.c_int64), ("bytes", ctypes.c_size_t)):
    getattr(trt, f"gst_trt_tensor_info_{name}").restype = result


def check(status):
    if status != 0:
        sys.exit("Error: " + trt.gst_trt_last_error().decode())


def data(managed):
    """The address of a DLManagedTensor's memory."""
    return ctypes.cast(managed, ctypes.POINTER(ctypes.c_void_p))[0]


class Offered:
    """A DLManagedTensor of ours, on the first GPU, for consumers of the protocol."""

    def __init__(self, managed):
        self.managed = managed

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        return capsule.PyCapsule_New(self.managed, b"dltensor", None)


def consumed(array):
    """A DLManagedTensor of PyTorch's or CuPy's, for its consumer."""
    held = array.__dlpack__()
    managed = capsule.PyCapsule_GetPointer(held, b"dltensor")
    capsule.PyCapsule_SetName(held, b"used_dltensor")
    return managed, held


def run(session, picture, address, stream):
    """The output of a run on an array where it lies, and where we said that is."""
    managed, held = consumed(picture)
    assert data(managed) == address
    output = ctypes.c_void_p()
    check(trt.gst_trt_session_run_dlpack(session, ctypes.c_void_p(managed), ctypes.c_void_p(stream), ctypes.byref(output), ctypes.c_size_t(1)))
    return Offered(output), data(output.value)


session = ctypes.c_void_p()
options = (ctypes.c_char_p * (len(properties) + 1))(*(text.encode() for text in properties), None)
check(trt.gst_trt_session_open(model.encode(), options, ctypes.byref(session)))
input = ctypes.c_void_p(trt.gst_trt_session_input(session))
dims = [trt.gst_trt_tensor_info_dim(input, ctypes.c_size_t(axis)) for axis in range(trt.gst_trt_tensor_info_rank(input))]
output_bytes = trt.gst_trt_tensor_info_bytes(ctypes.c_void_p(trt.gst_trt_session_output(session, ctypes.c_size_t(0))))

kept = []
for turn in range(20):
    picture = torch.rand(dims, device="cuda") + turn
    offered, address = run(session, picture, picture.data_ptr(), torch.cuda.current_stream().cuda_stream)
    output = torch.from_dlpack(offered)
    assert output.is_cuda and output.data_ptr() == address, "the same memory"
    back, held = consumed(output)
    assert data(back) == address, "and on the way back"
    capsule.PyCapsule_SetName(held, b"dltensor")
    # In the order of PyTorch's stream, without a wait on the host.
    kept.append((picture, output, (output * 1.0).sum()))

for picture, output, total in kept:
    host, result = picture.cpu().numpy().tobytes(), ctypes.create_string_buffer(output_bytes)
    check(trt.gst_trt_session_run(session, host, ctypes.c_size_t(len(host)), ctypes.byref(ctypes.c_void_p(ctypes.addressof(result))),
                                  ctypes.byref(ctypes.c_size_t(output_bytes)), ctypes.c_size_t(1)))
    expected = torch.frombuffer(result, dtype=torch.float32).reshape(output.shape)
    assert torch.equal(output.cpu(), expected), "the values of a run on the host"
    assert torch.equal((expected.cuda() * 1.0).sum(), total), "seen in the order of the stream"

    # The same picture by CuPy.
    array = cupy.asarray(picture.cpu().numpy())
    offered, address = run(session, array, array.data.ptr, cupy.cuda.get_current_stream().ptr)
    output = cupy.from_dlpack(offered)
    assert output.data.ptr == address, "the same memory"
    assert (cupy.asnumpy(output) == expected.numpy()).all(), "the values of a run on the host"
trt.gst_trt_session_close(session)
assert torch.equal(kept[0][1].cpu(), kept[0][1].cpu()), "outputs stay when the session is closed"
print(f"{len(kept)} runs on tensors of PyTorch {torch.__version__} and CuPy {cupy.__version__} on {torch.cuda.get_device_name()}: "
      "same addresses there and back, same values")
