#!/usr/bin/env python3
"""Runs a model on a tensor, without a pipeline: session.py LIBRARY MODEL, such as target/release/libgsttrt.so yolo11n.onnx."""
import ctypes
import sys


class Tensor(ctypes.Structure):
    """GstTrtTensor of gsttrt.h"""
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_int32), ("rank", ctypes.c_uint32),
                ("dims", ctypes.c_int64 * 8), ("bytes", ctypes.c_size_t)]


def check(status):
    if status != 0:
        sys.exit("Error: " + trt.gst_trt_last_error().decode())


def describe(tensor):
    return f"{tensor.name.decode()} {'x'.join(str(dim) for dim in tensor.dims[:tensor.rank])}, {tensor.bytes} bytes"


if len(sys.argv) != 3:
    sys.exit("Usage: session.py LIBRARY MODEL, such as target/release/libgsttrt.so yolo11n.onnx")
library, model = sys.argv[1:]

try:
    trt = ctypes.CDLL(library)
except OSError as error:
    sys.exit(f"Error: {error}")
trt.gst_trt_last_error.restype = ctypes.c_char_p
session, input, output = ctypes.c_void_p(), Tensor(), Tensor()
check(trt.gst_trt_session_open(model.encode(), None, ctypes.byref(session)))
check(trt.gst_trt_session_input(session, ctypes.byref(input)))
check(trt.gst_trt_session_output(session, ctypes.c_size_t(0), ctypes.byref(output)))
picture = bytes(input.bytes)
result = ctypes.create_string_buffer(output.bytes)
check(trt.gst_trt_session_run(
    session, picture, ctypes.c_size_t(len(picture)), ctypes.byref(ctypes.c_void_p(ctypes.addressof(result))),
    ctypes.byref(ctypes.c_size_t(output.bytes)), ctypes.c_size_t(1)))
print("in ", describe(input))
print("out", describe(output))
if output.type == 0:
    print("greatest", max(memoryview(result).cast("B").cast("f")))
trt.gst_trt_session_close(session)
