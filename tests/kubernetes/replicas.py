#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Runs the chart without a cluster: each pod is a process, with its configuration as a volume that changes as Kubernetes changes one.

    tests/kubernetes/replicas.py [--sources 40] [--limit 10] [--report replicas.json] [--program target/debug/gst-trt]

Replicas are added and taken away (1, 3, 5, 3), one is killed, and one is ended. After each, every source must have frames at one replica
and at no other within 10 s; few sources move, and those that stay lose no frame. A pod has an address of its own here, 127.0.0.2 and so on.
Nodes of a cluster take up to 90 s more to bring a new configuration to its pods: see docs/kubernetes.md.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SLACK = 0.05  # of the sources, which may move beyond the part of the replicas that come or go
START = 60.0  # seconds for the first start, which loads the model from a cold disk
POLL = threading.Event()  # which nobody sets
EVENTS = ((1, "start"), (3, "1 to 3"), (5, "3 to 5"), (5, "kill"), (3, "5 to 3"), (3, "end"))


def helm():
    """Helm as a library, which tests/kubernetes/fetch.sh brings."""
    fetched = subprocess.run([ROOT / "tests/kubernetes/fetch.sh"], stdout=subprocess.PIPE, text=True, check=True)
    sys.path.insert(0, fetched.stdout.strip())
    import helm_python
    import yaml

    return helm_python, yaml


def clip(folder):
    """A small video of ten seconds, so that forty of them are decoded by few processors."""
    file = folder / "clip.mp4"
    line = "videotestsrc num-buffers=50 ! video/x-raw,width=160,height=120,framerate=5/1 ! x264enc ! mp4mux ! filesink location="
    subprocess.run(["gst-launch-1.0", "--quiet", *f"{line}{file}".split()], check=True)
    return file


def values(replicas, sources, file):
    """What a user of the chart would write."""
    return {
        "replicas": replicas,
        "sources": [{"name": f"cam-{number:02}", "address": str(file), "loop": True, "sync": True} for number in range(sources)],
        "models": {"volume": {"persistentVolumeClaim": {"claimName": "models"}}},
        "config": "\n".join([
            "[[model]]", 'name = "shapes"', 'file = "/models/shapes-320.onnx"', 'backend = "cpu"', 'infer = "interval=500 threads=1"', "",
            "[[publish]]", 'location = "{source}.jsonl"', "add-empty-results = true",
        ]),
    }


class Release:
    """What the chart gives for so many replicas."""

    def __init__(self, chart, yaml, given):
        objects = [
            each for path, text in chart.render(given, name="cameras", namespace="video").items() if not path.endswith("NOTES.txt")
            for each in yaml.safe_load_all(text) if each
        ]
        self.set = next(each for each in objects if each["kind"] == "StatefulSet")
        self.files = next(each["data"] for each in objects if each["kind"] == "ConfigMap")
        self.spec = self.set["spec"]["template"]["spec"]
        self.container = next(each for each in self.spec["containers"] if each["name"] == "gst-trt")
        self.grace = self.spec["terminationGracePeriodSeconds"]


class Pod:
    """A process with the folders, the variables and the arguments of the pod with this ordinal."""

    def __init__(self, folder, program, index):
        self.folder, self.program, self.index = folder / f"pod-{index}", program, index
        self.process, self.version, self.starts = None, 0, 0
        self.places = {
            "/etc/gst-trt": self.folder / "etc", "/run/secrets/gst-trt": self.folder / "run", "/var/lib/gst-trt": self.folder / "data",
            "/var/cache/gst-trt": self.folder / "cache", "/tmp/": f"{self.folder}/tmp/", "/models/": f"{ROOT}/tests/models/",
        }
        for each in ("etc", "run/http", "data", "cache", "tmp"):
            (self.folder / each).mkdir(parents=True, exist_ok=True)
        (self.folder / "run/http/token").write_text("0123456789abcdef0123456789abcdef")
        self.address = f"127.0.0.{index + 2}"
        self.tails = {}

    def here(self, text):
        for there, here in self.places.items():
            text = text.replace(there, str(here))
        return text

    def configure(self, release):
        """A new version lies in a folder of its own, and one link changes."""
        self.version += 1
        volume = self.folder / "etc"
        version = volume / f"..{self.version}"
        version.mkdir()
        for name, text in release.files.items():
            (version / name).write_text(self.here(text).replace("0.0.0.0:", f"{self.address}:"))
        os.symlink(version.name, volume / "..next")
        os.rename(volume / "..next", volume / "..data")
        for name in release.files:
            if not os.path.lexists(volume / name):
                os.symlink(f"..data/{name}", volume / name)

    def start(self, release):
        label = "metadata.labels['apps.kubernetes.io/pod-index']"
        environment = {key: value for key, value in os.environ.items() if key in ("PATH", "LD_LIBRARY_PATH", "GST_PLUGIN_PATH", "ORT_DYLIB_PATH")}
        for each in release.container["env"]:
            if "value" in each:
                environment[each["name"]] = self.here(each["value"])
            elif each["valueFrom"]["fieldRef"]["fieldPath"] == label:
                environment[each["name"]] = str(self.index)
        port = release.container["ports"][0]["containerPort"]
        self.url = f"http://{self.address}:{port}"
        arguments = [self.here(each) for each in release.container["args"]]
        self.starts += 1
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([self.program, *arguments], env=environment, cwd=self.folder / "data", stdout=log, stderr=log)

    @property
    def runs(self):
        return self.process is not None and self.process.poll() is None

    def end(self, grace):
        """Seconds that it took to end, as it is asked to; an error beyond the grace period."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise SystemExit(f"pod {self.index} did not end within its grace period of {grace} s; see {self.folder}/log") from None
        if status != 0:
            raise SystemExit(f"pod {self.index} ended with status {status}; see {self.folder}/log")
        return time.monotonic() - begin

    def ask(self, path):
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=5) as answer:
                return json.load(answer)
        except (OSError, urllib.error.URLError, ValueError):
            return None

    @property
    def has_read(self):
        """Whether the service has read the configuration that is there now, for its part of the sources."""
        wanted = re.search(r'^shard = ".*/(\d+)"', (self.folder / "etc/config.toml").read_text(), re.M)[1]
        said = re.findall(r"Shard (\d+)/(\d+):", (self.folder / "log").read_text())
        return said != [] and said[-1] == (str(self.index), wanted)

    def begins(self, source):
        """How often the frames of a source have begun again here, or have left one out."""
        tail = self.tails.setdefault(source, {"at": 0, "last": None, "begins": 0})
        file = self.folder / "data" / f"{source}.jsonl"
        if file.exists():
            with file.open("rb") as lines:
                lines.seek(tail["at"])
                for line in lines:
                    if not line.endswith(b"\n"):
                        break
                    tail["at"] += len(line)
                    frame = json.loads(line)["frame"]
                    if tail["last"] is None or frame != tail["last"] + 1:
                        tail["begins"] += 1
                    tail["last"] = frame
        return tail["begins"]


class Cluster:
    def __init__(self, folder, program, render):
        self.folder, self.program, self.render = folder, program, render
        self.pods, self.release = [], None

    def scale(self, replicas):
        """As `helm upgrade`: the configuration first, then the StatefulSet. Pods start and end all at once. Seconds of the slowest end."""
        self.release = self.render(replicas)
        for pod in self.pods:
            pod.configure(self.release)
        leaving, self.pods = self.pods[replicas:], self.pods[:replicas]
        for index in range(len(self.pods), replicas):
            pod = Pod(self.folder, self.program, index)
            pod.configure(self.release)
            pod.start(self.release)
            self.pods.append(pod)
        return max((pod.end(self.release.grace) for pod in leaving), default=0)

    def placement(self):
        """The replicas that have each source, and the sources that have frames. Whoever has ended by itself is started again."""
        places, fresh = collections.defaultdict(list), set()
        for pod in self.pods:
            if not pod.runs:
                pod.start(self.release)
            for source in pod.ask("/sources") or []:
                places[source["name"]].append(pod.index)
                if source["state"] == "running" and source["frames"] > 0 and time.time() - source["last-frame"] < 2:
                    fresh.add(source["name"])
        return places, fresh

    def settle(self, names, limit):
        """Seconds until every source has frames at one replica and is at no other, and its place."""
        begin = time.monotonic()
        while True:
            places, fresh = self.placement()
            is_once = set(places) == names and all(len(at) == 1 for at in places.values())
            if is_once and fresh == names and all(pod.has_read for pod in self.pods):
                return time.monotonic() - begin, {name: at[0] for name, at in places.items()}
            if time.monotonic() - begin > limit:
                where = {name: places.get(name, []) for name in sorted(names) if len(places.get(name, [])) != 1 or name not in fresh}
                raise SystemExit(f"after {limit} s these sources are not at one replica with frames (each with the replicas that list it): {where}")
            POLL.wait(0.1)

    def end(self):
        for pod in self.pods:
            if pod.runs:
                pod.end(self.release.grace)


def twin(cluster):
    """A second process with the ordinal of one that runs is refused, and harms nobody."""
    pod = Pod(cluster.folder / "twin", cluster.program, 1)
    pod.address = "127.0.0.200"
    pod.configure(cluster.release)
    pod.start(cluster.release)
    status = pod.process.wait(START)
    said = (pod.folder / "log").read_text()
    if status != 1 or "is shard 1/" not in said:
        raise SystemExit(f"a second replica 1 ended with status {status} and said: {said}")


def run(cluster, names, limit):
    report, before, begun = [], {}, {}
    for replicas, event in EVENTS:
        restarted, ended = set(), 0
        count = len(cluster.pods)
        begin = time.monotonic()
        if event == "kill":
            cluster.pods[2].process.kill()
            cluster.pods[2].process.wait()
            restarted = {2}
        elif event == "end":
            ended = cluster.pods[1].end(cluster.release.grace)
            restarted = {1}
        else:
            ended = cluster.scale(replicas)
        _, places = cluster.settle(names, max(START, limit) if event == "start" else limit)
        took = time.monotonic() - begin
        moved = [name for name in names if name in before and before[name] != places[name]]
        share = abs(replicas - count) / max(replicas, count) if count else 1
        stayed = [name for name in names if before.get(name) == places[name] and places[name] not in restarted]
        # Frames that come after it show that those that stay went on.
        breaks = 0
        for name in stayed:
            pod = cluster.pods[places[name]]
            breaks += pod.begins(name) - begun[name]
        begun = {name: cluster.pods[place].begins(name) for name, place in places.items()}
        row = {"event": event, "replicas": replicas, "seconds": round(took, 2), "moved": len(moved), "stayed": len(stayed),
               "breaks": breaks, "end": round(ended, 2), "sources": [list(places.values()).count(index) for index in range(replicas)]}
        report.append(row)
        print(json.dumps(row), flush=True)
        if event != "start" and took > limit:
            raise SystemExit(f"{event}: {took:.1f} s until every source was at one replica with frames; at most {limit} s are allowed")
        if len(moved) > (share + SLACK) * len(names):
            raise SystemExit(f"{event}: {len(moved)} of {len(names)} sources moved; {share:.0%} of the replicas have changed")
        if breaks:
            raise SystemExit(f"{event}: sources that stayed lost frames, or began again: {breaks} times")
        before = places
        if event == "3 to 5":
            twin(cluster)
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sources", type=int, default=40)
    parser.add_argument("--program", type=pathlib.Path, default=pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/gst-trt")
    parser.add_argument("--limit", type=float, default=10, help="seconds in which every source is back")
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and results")
    args = parser.parse_args()
    helm_python, yaml = helm()
    chart = helm_python.Chart.load(ROOT / "packaging/chart")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="replicas-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    file = clip(folder)
    cluster = Cluster(folder, args.program.resolve(), lambda replicas: Release(chart, yaml, values(replicas, args.sources, file)))
    names = {source["name"] for source in values(1, args.sources, file)["sources"]}
    try:
        report = run(cluster, names, args.limit)
        cluster.end()
    except BaseException:
        print(f"The logs are in {folder}", file=sys.stderr)
        args.keep = True
        raise
    finally:
        for pod in cluster.pods:
            if pod.runs:
                pod.process.kill()
        if not args.keep:
            shutil.rmtree(folder)
    if args.report:
        args.report.write_text(json.dumps(report, indent=1) + "\n")
    print(f"replicas.py: {len(report)} passed, 0 failed")


main()
