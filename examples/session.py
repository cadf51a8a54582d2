#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Runs a model on a tensor and detects in a frame, without a pipeline: session.py MODEL [LIBRARY]

LIBRARY is the path of libgsttrt-1.so.0, if the system's loader does not find it: in a checkout target/release/libgsttrt_capi.so."""
import ctypes
import json
import signal
import sys


class Frame(ctypes.Structure):
    """GstTrtFrame of gsttrt.h"""
    _fields_ = [("struct_size", ctypes.c_size_t), ("format", ctypes.c_char_p), ("width", ctypes.c_uint32),
                ("height", ctypes.c_uint32), ("color", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
                ("planes", ctypes.c_void_p * 3), ("strides", ctypes.c_size_t * 3), ("bytes", ctypes.c_size_t * 3)]


def function(name, result, *arguments):
    found = getattr(trt, "gst_trt_" + name)
    found.restype, found.argtypes = result, arguments
    return found


def check(status):
    if status != 0:
        sys.exit("Error: " + last_error().decode())


def describe(tensor):
    dims = "x".join(str(tensor_dim(tensor, axis)) for axis in range(tensor_rank(tensor)))
    return f"{tensor_name(tensor).decode()} {dims}, {tensor_bytes(tensor)} bytes"


signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` may end the program
if not 2 <= len(sys.argv) <= 3:
    sys.exit("Usage: session.py MODEL [LIBRARY]")
try:
    trt = ctypes.CDLL(sys.argv[2] if len(sys.argv) == 3 else "libgsttrt-1.so.0")
except OSError as error:
    sys.exit(f"Error: {error}. Give the path of the library: in a checkout target/release/libgsttrt_capi.so, by cargo build --release.")

pointer, size = ctypes.c_void_p, ctypes.c_size_t
last_error = function("last_error", ctypes.c_char_p)
session_open = function("session_open", ctypes.c_int, ctypes.c_char_p, pointer, pointer)
session_close = function("session_close", None, pointer)
session_input = function("session_input", pointer, pointer)
session_output_count = function("session_output_count", size, pointer)
session_output = function("session_output", pointer, pointer, size)
session_run = function("session_run", ctypes.c_int, pointer, pointer, size, pointer, pointer, size)
session_detect = function("session_detect", ctypes.c_int, pointer, pointer, pointer)
tensor_name = function("tensor_info_name", ctypes.c_char_p, pointer)
tensor_type = function("tensor_info_type", ctypes.c_int, pointer)
tensor_rank = function("tensor_info_rank", size, pointer)
tensor_dim = function("tensor_info_dim", ctypes.c_int64, pointer, size)
tensor_bytes = function("tensor_info_bytes", size, pointer)
results_count = function("results_count", size, pointer)
results_json = function("results_json", ctypes.c_char_p, pointer, size)
results_free = function("results_free", None, pointer)

session = pointer()
check(session_open(sys.argv[1].encode(), None, ctypes.byref(session)))
input = session_input(session)
outputs = [session_output(session, index) for index in range(session_output_count(session))]
print("in ", describe(input))
for output in outputs:
    print("out", describe(output))

picture = bytes(tensor_bytes(input))
arrays = [ctypes.create_string_buffer(tensor_bytes(output)) for output in outputs]
addresses, sizes = (pointer * len(arrays))(*map(ctypes.addressof, arrays)), (size * len(arrays))(*map(len, arrays))
check(session_run(session, picture, len(picture), addresses, sizes, len(arrays)))
for output, array in zip(outputs, arrays):
    if tensor_type(output) == 0:
        print("greatest", max(memoryview(array).cast("B").cast("f")))

# A white disc on grey, in RGB.
side = 320
pixels = b"".join(b"\xff\xff\xff" if (x - 160) ** 2 + (y - 160) ** 2 < 60 ** 2 else b"\x60\x60\x60"
                  for y in range(side) for x in range(side))
frame = Frame(ctypes.sizeof(Frame), b"RGB", side, side)
frame.planes[0], frame.strides[0], frame.bytes[0] = ctypes.cast(pixels, pointer), 3 * side, len(pixels)
results = pointer()
check(session_detect(session, ctypes.byref(frame), ctypes.byref(results)))
for index in range(results_count(results)):
    found = json.loads(results_json(results, index))
    print(f"{found['label']} {found['confidence']:.2f} at {found['x']:.0f}, {found['y']:.0f}")
results_free(results)
session_close(session)
