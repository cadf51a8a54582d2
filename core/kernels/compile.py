#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""CUDA C++ to PTX by NVRTC, without a CUDA toolkit; build.sh calls this.

    compile.py LIBRARIES OUT FILE.cu…

LIBRARIES is the folder of libnvrtc.so.12 and libnvrtc-builtins.so.12.2; OUT gets FILE.ptx of each file.
"""

import ctypes
import pathlib
import re
import sys

OPTIONS = [
    # Turing, the oldest generation that current drivers and TensorRT have in common.
    "--gpu-architecture=compute_75",
    "--std=c++17",
    # Bit-equal to the reference implementations in Rust: each operation is rounded by itself, denormals are kept, division
    # and square roots are IEEE's.
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
]


def load(folder):
    # NVRTC opens its builtins by name only, so they must be in the process before.
    ctypes.CDLL(str(folder / "libnvrtc-builtins.so.12.2"), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(folder / "libnvrtc.so.12"))
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    return nvrtc


def check(nvrtc, status, what):
    if status != 0:
        sys.exit(f"compile.py: {what}: {nvrtc.nvrtcGetErrorString(status).decode()}")


def text(nvrtc, program, size_of, get):
    size = ctypes.c_size_t()
    check(nvrtc, size_of(program, ctypes.byref(size)), "no output")
    buffer = ctypes.create_string_buffer(size.value)
    check(nvrtc, get(program, buffer), "no output")
    return buffer.value.decode()


def compile_file(nvrtc, path):
    program = ctypes.c_void_p()
    source, name = path.read_bytes(), path.name.encode()
    created = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None)
    check(nvrtc, created, f"cannot start on {path}")
    options = [*OPTIONS, f"--include-path={path.parent}"]
    arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = nvrtc.nvrtcCompileProgram(program, len(options), arguments)
    log = text(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
    if log:
        print(log, file=sys.stderr)
    check(nvrtc, status, f"{path} does not compile")
    ptx = text(nvrtc, program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return shortened(ptx)


def shortened(ptx):
    """The same without comments, indents and long names of its own: programs and wheels have all of this text, some twice."""
    lines = (re.sub(r"\s+", " ", line.strip()).replace(", ", ",") for line in ptx.splitlines())
    # NVRTC declares the constants of nv::target in every program, and nothing reads them.
    kept = [line for line in lines if line and not line.startswith("//") and "2nv6target" not in line]
    text = "\n".join(kept).replace("$L__BB", "$") + "\n"
    names = dict.fromkeys(re.findall(r"\b_Z\w+", text))
    numbers = {name: f"_{number}" for number, name in enumerate(names)}
    return re.sub(r"\b_Z\w+", lambda name: numbers[name.group()], text)


def main():
    folder, out, *files = map(pathlib.Path, sys.argv[1:])
    nvrtc = load(folder)
    for file in files:
        (out / file.with_suffix(".ptx").name).write_text(compile_file(nvrtc, file))


main()
