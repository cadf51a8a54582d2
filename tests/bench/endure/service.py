# SPDX-License-Identifier: MPL-2.0
"""gst-trt serve under test, its brokers and its folders."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

TOKEN = "endure-endure-endure"
SAMPLE = re.compile(r"^(\w+?)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="([^"]*)"')


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def quoted(text):
    return json.dumps(str(text), ensure_ascii=False)


def gpu_memory():
    if not shutil.which("nvidia-smi"):
        return 0
    said = subprocess.run(["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False)
    return int(said.stdout) if said.stdout.strip().isdigit() else 0


class Broker:
    """A real one, which is killed, stopped and started."""

    def __init__(self, command):
        self.command, self.process = command, None

    @property
    def is_installed(self):
        return shutil.which(self.command[0]) is not None

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


class Disk:
    """The folder of the recordings: a small file system of its own where that may be mounted."""

    def __init__(self, folder, mebibytes=64):
        self.folder = folder
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
        self.is_own = subprocess.run(mount, capture_output=True, check=False).returncode == 0

    def fill(self):
        with open(self.folder / "filler", "wb") as filler:
            try:
                while True:
                    filler.write(bytes(1 << 20))
            except OSError:
                pass

    def free(self):
        (self.folder / "filler").unlink(missing_ok=True)

    def lock(self):
        """Makes it read-only, also where a file is being written: the same folder is mounted once more, above itself."""
        above = ["mount", "--bind", "-o", "ro", str(self.folder), str(self.folder)]
        return subprocess.run(above, capture_output=True, check=False).returncode == 0

    def unlock(self):
        subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)

    def close(self):
        if self.is_own:
            self.unlock()


class Service:
    """`gst-trt serve`, and what it says of itself."""

    def __init__(self, options, folder, addresses, disk, mqtt, redis):
        self.options, self.folder, self.disk = options, folder, disk
        self.addresses, self.mqtt, self.redis = addresses, mqtt, redis
        self.port, self.process, self.starts = free_port(), None, 0
        self.journal = folder / "journal"
        self.results = folder / "results"
        self.results.mkdir()
        self.models = [folder / f"model-{number}.onnx" for number in range(2)]
        for model in self.models:
            shutil.copy(options.model, model)
        data = pathlib.Path(options.model).read_bytes()
        (folder / "broken.onnx").write_bytes(data[: len(data) // 2])

    def write(self, without=(), mistake=""):
        """The configuration, perhaps without some of the sources, or with a mistake."""
        options = self.options
        zones = {
            "zones": [{"id": "left", "points": [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}],
            "tripwires": [{"id": "middle", "points": [[0.5, 0], [0.5, 1]]}],
        }
        publish = [("lines", f"{self.results}/{{source}}.jsonl", "per = \"frame\"\nadd-empty-results = true")]
        if self.mqtt:
            publish.append(("mqtt", f"mqtt://127.0.0.1:{self.mqtt}/endure/{{source}}", 'per = "event"\nmax-reconnect-interval = "1s"'))
        if self.redis:
            publish.append(("redis", f"redis://127.0.0.1:{self.redis}/endure", 'per = "object"\nmax-reconnect-interval = "1s"'))
        text = (
            f'[[model]]\nname = "model"\nfile = {quoted(self.models[0])}\nbackend = {quoted(options.backend)}\n'
            f"batch-size = {options.batch}\ninfer = {quoted(options.infer)}\n\n[track]\n\n"
            f"[analytics]\nconfig = '{json.dumps(zones)}'\n\n"
            f'[record]\nfolder = {quoted(self.disk.folder)}\nevents = ["crossed"]\npre-roll = "1s"\npost-roll = "2s"\nmax-length = "10s"\ntotal-bytes = "32MiB"\n\n'
            f'[http]\nlisten = "127.0.0.1:{self.port}"\ntoken = "{TOKEN}"\n{mistake}\n\n'
        )
        for name, location, more in publish:
            text += f"[[publish]]\nname = {quoted(name)}\nlocation = {quoted(location)}\n{more}\n\n"
        for name in self.addresses:
            if name not in without:
                text += "[[source]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in self.source(name).items()) + "\n"
        (self.folder / "config.toml").write_text(text, encoding="utf-8")

    def source(self, name):
        """The keys of a source, the same in the file and over HTTP: a source that a reload finds changed is started again."""
        options = self.options
        keys = {"name": name, "address": self.addresses[name], "timeout": f"{options.timeout:g}s", "backoff-min": "200ms", "backoff-max": f"{options.backoff:g}s"}
        # A few are recorded: the disk is small.
        is_recorded = list(self.addresses).index(name) < options.recorded
        return keys if is_recorded else {**keys, "record": False}

    def start(self):
        self.starts += 1
        with open(self.journal, "a", encoding="utf-8") as journal:
            command = [self.options.program, "serve", str(self.folder / "config.toml")]
            self.process = subprocess.Popen(command, stdout=journal, stderr=journal, start_new_session=True)

    def terminate(self):
        """The status, and how long it took."""
        begun = time.monotonic()
        self.process.terminate()
        try:
            return self.process.wait(30), time.monotonic() - begun
        except subprocess.TimeoutExpired:
            self.kill()
            return None, time.monotonic() - begun

    def kill(self):
        self.process.kill()
        self.process.wait()

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def ask(self, path, method="GET", body=None, timeout=10):
        """Status and text of an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Authorization": f"Bearer {TOKEN}"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")

    def metrics(self):
        """Values by family and labels."""
        found = {}
        for name, labels, value in (match.groups() for match in map(SAMPLE.match, self.ask("/metrics")[1].splitlines()) if match):
            found.setdefault(name, {})[tuple(sorted(dict(LABEL.findall(labels or "")).items()))] = float(value)
        return found

    def running(self):
        """The names of the sources that run."""
        states = self.metrics().get("gst_trt_source_state", {})
        return {dict(labels)["source"] for labels, value in states.items() if value and dict(labels)["state"] == "running"}

    def size(self):
        """MiB, threads, open files, MiB of the first GPU, with what others have there, MiB that are not of files, and MiB of the heap in use."""
        proc = pathlib.Path(f"/proc/{self.process.pid}")
        fields = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        heap = self.metrics()["gst_trt_heap_in_use_bytes"][()]
        return int(fields["VmRSS"].split()[0]) / 1024, int(fields["Threads"]), len(os.listdir(proc / "fd")), gpu_memory(), int(fields["RssAnon"].split()[0]) / 1024, heap / 2**20
