#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Compares what our program finds by a Triton with what it finds by itself: compare.py PROGRAM FOLDER

Each model of tests/models is run on a picture or a clip by both, with batches of Triton and of ours, several requests in flight,
with and without shared memory. Then Triton is killed in the middle of a clip, comes back, and is too late. Ends with status 1 if anything differs."""
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import onnxruntime

from comparing import FRAMES, ROOT, check, end, failures, lines, refused
from triton import Triton

MODELS = {"shapes": "sample", "shapes-320": "sample", "shapes-v8": "sample", "shapes-e2e": "sample", "shapes-f16": "sample",
          "figures-pose": "pose", "shapes-seg": "shapes", "shapes-obb": "shapes", "shapes-cls": "classes", "shapes-sem": "shapes"}
def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    file = lambda name: ROOT / "tests" / "models" / f"{name}.onnx"  # noqa: E731
    only = os.environ.get("ONLY", "").split(",") if os.environ.get("ONLY") else list(MODELS)
    served = [(file(name), name, 0) for name in only]
    batched = "shapes-320"
    # The same library as in Triton's Python backend: rten computes models of 16 bits in 32.
    library = f"ort-library={pathlib.Path(onnxruntime.__file__).parent / 'capi'}"
    own = lambda name: lines(program, file(name), MODELS[name], "--backend", "onnxruntime", infer=library)  # noqa: E731
    ours = {name: own(name) for name in {*only, batched}}
    with Triton(folder / "all", [*served, (file(batched), "batched", 4)]) as triton:
        for name in only:
            check(name, ours[name], lines(program, triton.address(name), MODELS[name]))
        address = triton.address("batched")
        for infer in ("shared-memory=on", "shared-memory=off", "parallel-runs=4", "batch-size=4", "batch-size=3 shared-memory=on"):
            check(infer, ours[batched], lines(program, address, MODELS[batched], infer=infer))

        for address, says in ((triton.address("nowhere"), "does not serve the model nowhere"),
                              (f"grpc://127.0.0.1:{triton.http}/batched", "Servers have a port of their own for gRPC"),
                              (triton.address("batched/7"), "does not serve the model batched")):
            refused(address, says, lambda: lines(program, address, MODELS[batched]))
        refused("batch", "takes 4 pictures at most", lambda: lines(program, triton.address("batched"), MODELS[batched], infer="batch-size=5"))
        triton.kill()
        refused("no server", "There is no answer of a server", lambda: lines(program, triton.address("batched"), MODELS[batched]))
    with Triton(folder / "slow", [(file(batched), "slow", 4)], environment={"HOLD_FROM": "0", "GATE": str(folder / "never")}) as triton:
        refused("late", "has not answered within 0.5 s", lambda: lines(program, triton.address("slow"), MODELS[batched], infer="request-timeout=500"))
    restarted(program, folder, file(batched), ours[batched])
    end()


def restarted(program, folder, file, wanted):
    """Triton is killed in the middle of a clip, and is there again some seconds later. That it was the middle is checked."""
    gate = folder / "gate"
    with Triton(folder / "restarted", [(file, "slow", 4)], environment={"HOLD_FROM": "1", "GATE": str(gate)}) as triton:
        command = [program, "detect", "--no-video", "--json", "-", "--frames", str(FRAMES), "--model", triton.address("slow"),
                   "--infer", "request-timeout=120000", str(ROOT / "tests" / "data" / "sample.mp4")]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # One was answered, and the next one waits.
        end = time.monotonic() + 120
        while triton.requests() < 1 and time.monotonic() < end:
            threading.Event().wait(0.1)
        was_running = running.poll() is None
        triton.kill()
        gate.touch()
        triton.start()
        output, said = running.communicate(timeout=600)
        print(f"{'ok  ' if was_running else 'FAIL'} it was killed in the middle, after {triton.counted} requests")
        if not was_running:
            failures.append("killed in the middle")
        if running.returncode:
            failures.append("restarted")
            print("FAIL restarted:", said[-500:])
        else:
            check("killed and started again", wanted, [json.loads(line) for line in output.splitlines()])


if __name__ == "__main__":
    main()
