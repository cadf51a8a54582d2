#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""What a program does when the GPU is lost to it: tests/gpu/dead.py serve|detect|launch KEY=VALUE…

The program runs with tests/gpu/break.c, which breaks the GPU once a file is there: that is made when frames have come out. `serve` must
answer /healthz with 503, publish all that it had, and end with status 75; `detect` ends with 75; a pipeline of `launch` ends with an error
that says what to do. None may hang.

  program, launch   scripts that run gst-trt and gst-launch-1.0 with the GStreamer to be tested
  library           libbreak.so
  clip, model       a video, and an engine or an ONNX file
  infer             properties of trtinfer
  folder            for what is made here"""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

LIMIT_S = 120  # until frames come
END_S = 15     # from the loss to the end
SOURCES = 4

what = sys.argv[1]
given = dict(word.split("=", 1) for word in sys.argv[2:])
folder = pathlib.Path(given["folder"]) / f"dead-{what}"
folder.mkdir(parents=True, exist_ok=True)
trigger, journal = folder / "now", folder / "journal"
for old in folder.iterdir():
    old.unlink()


def start(*command, stdout=subprocess.DEVNULL):
    # The injection is of the program alone, not of the script's own tools.
    environment = dict(os.environ, DEAD_INJECTION=given["library"], BREAK_WHEN=str(trigger), BREAK_BY="wild")
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=stdout, stderr=journal.open("w"))


def threads():
    """Where the program's threads are, for what does not end."""
    mark = f"BREAK_WHEN={trigger}".encode()
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            pass  # it has ended, or is another user's
    if not found:
        return "it has ended"
    if shutil.which("gdb"):
        command = ["gdb", "-p", str(max(found)), "-batch", "-ex", "thread apply all bt 12"]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout[-8000:]
    names = [f"{(task / 'comm').read_text().strip()} at {(task / 'wchan').read_text()}" for task in pathlib.Path(f"/proc/{max(found)}/task").iterdir()]
    return f"threads: {', '.join(sorted(names))}"


def until(what, limit, is_so):
    end, again = time.monotonic() + limit, threading.Event()
    while time.monotonic() < end:
        found = is_so()
        if found:
            return found
        again.wait(0.02)
    sys.exit(f"{threads()}\n{journal.read_text()[-2000:]}\nno {what} within {limit} s")


def ended(process):
    # The kernel waits for its turn on a GPU that has much to do.
    until("loss", LIMIT_S, lambda: process.poll() is not None or "error 700" in journal.read_text())
    began = time.monotonic()
    until("end", END_S, lambda: process.poll() is not None)
    said = journal.read_text()
    print(said[-3000:])
    assert "break: wild in context" in said and "error 700" in said, "nothing was broken"
    assert "can use GPU 0 no more, after CUDA_ERROR_ILLEGAL_ADDRESS" in said, "the cause is not said"
    assert "Start the program again" in said, "the remedy is not said"
    return process.returncode, time.monotonic() - began


def lines(file):
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]


def serve():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = [
        f'[[model]]\nname = "m"\nfile = "{given["model"]}"\nbackend = "tensorrt"\ninfer = "{given["infer"]}"\n',
        f'[[publish]]\nlocation = "{folder}/{{source}}.jsonl"\nadd-empty-results = true\ndrop = "block"\n[http]\nlisten = "127.0.0.1:{port}"\n']
    config += [f'[[source]]\nname = "s{n}"\naddress = "{given["clip"]}"\nloop = true\nsync = true\n' for n in range(SOURCES)]
    (folder / "config.toml").write_text("\n".join(config))
    files = [folder / f"s{n}.jsonl" for n in range(SOURCES)]
    process = start(given["program"], "serve", "config.toml")

    def health():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    until("frames of all sources", LIMIT_S, lambda: process.poll() is not None or all(len(lines(file)) > 60 for file in files))
    assert health()[0] == 200, health()
    trigger.touch()
    seen = []
    until("503", END_S, lambda: seen.append(health()) or seen[-1][0] == 503 or process.poll() is not None)
    status, took = ended(process)
    assert seen[-1][0] == 503 and "CUDA_ERROR_ILLEGAL_ADDRESS" in seen[-1][1], f"/healthz: {seen[-1]}"
    assert status == 75, f"status {status}"
    for file in files:
        times = [line["stream-time"] for line in lines(file)]
        gaps = [b - a for a, b in zip(times, times[1:]) if b > a and b - a > 60_000_000]
        assert not gaps, f"{file.name} has gaps: {gaps[:5]}"
    print(f"503, status 75 after {took:.1f} s; {sum(len(lines(file)) for file in files)} frames published without a gap")


def detect():
    out = folder / "out.jsonl"
    # A file of results takes its name at the end; standard output has each line at once.
    process = start(given["program"], "detect", *[given["clip"]] * 200, "--model", given["model"], "--backend", "tensorrt",
                    "--no-video", "--json", "-", "--infer", given["infer"], stdout=out.open("w"))
    until("frames", LIMIT_S, lambda: process.poll() is not None or len(lines(out)) > 60)
    trigger.touch()
    status, took = ended(process)
    assert status == 75, f"status {status}"
    print(f"status 75 after {took:.1f} s")


def launch():
    out = folder / "out.jsonl"
    words = (f"videotestsrc ! video/x-raw,format=NV12,width=1280,height=720 ! cudaupload ! trtpreprocess ! trtinfer backend=tensorrt "
             f"model-file={given['model']} {given['infer']} ! queue ! trtnms draw=false ! "
             f"trtpublish add-empty-results=true location={out} ! fakesink sync=true").split()
    process = start(given["launch"], "-q", *words)
    until("frames", LIMIT_S, lambda: process.poll() is not None or len(lines(out)) > 60)
    trigger.touch()
    status, took = ended(process)
    assert status != 0, "it ended as if all were well"
    count = journal.read_text().count("ERROR:")
    assert count <= 3, f"{count} errors"
    print(f"an error after {took:.1f} s, {count} in all")


{"serve": serve, "detect": detect, "launch": launch}[what]()
