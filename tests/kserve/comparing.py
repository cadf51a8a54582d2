# SPDX-License-Identifier: MPL-2.0
"""What our program finds, and whether it is the same by a server."""
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
FRAMES = int(os.environ.get("FRAMES", "40"))
failures = []


def lines(program, model, clip, *options, infer="", environment=()):
    """The results of a clip's first frames, one a line."""
    command = [program, "detect", "--no-video", "--json", "-", "--frames", str(FRAMES), "--model", str(model), *options]
    command += ["--infer", infer] if infer else []
    done = subprocess.run([*command, str(ROOT / "tests" / "data" / f"{clip}.mp4")], capture_output=True, text=True,
                          timeout=600, env={**os.environ, **dict(environment)})
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def results(found):
    """What does not depend on the machine's clock and on the model's name."""
    return [{key: value for key, value in line.items() if key not in ("wall-clock", "model")} for line in found]


def same(a, b, tolerance=2e-5):
    """Whether two results are equal. Runs of several threads may differ in the last digit that is written."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key], tolerance) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(*pair, tolerance) for pair in zip(a, b))
    if isinstance(a, float) or isinstance(b, float):
        return abs(a - b) <= tolerance * max(1, abs(a), abs(b))
    return a == b


def check(name, wanted, found):
    equal = len(wanted) == len(found) and same(results(wanted), results(found))
    objects = sum(len(line.get("detections", ())) for line in found)
    print(f"{'ok  ' if equal else 'FAIL'} {name}: {len(found)} frames, {objects} objects", flush=True)
    if not equal:
        failures.append(name)
        for a, b in zip(results(wanted), results(found)):
            if not same(a, b):
                print("  ours", json.dumps(a)[:600], "\n  served", json.dumps(b)[:600])
                break


def refused(name, says, run):
    try:
        run()
        text = "nothing failed"
    except RuntimeError as error:
        text = str(error)
    print(f"{'ok  ' if says in text else 'FAIL'} {name}: {text.strip().splitlines()[-1][:200]}", flush=True)
    if says not in text:
        failures.append(name)


def end():
    if failures:
        raise SystemExit(f"Error: {len(failures)} of the comparisons failed: {', '.join(failures)}")
