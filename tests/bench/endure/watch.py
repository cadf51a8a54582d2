# SPDX-License-Identifier: MPL-2.0
"""What is checked all the time: results of each camera, without gaps but those that a fault may make; and the size of the process."""

import json
import statistics
import time
from contextlib import contextmanager
from datetime import datetime

SLACK = 0.2  # seconds that a healthy camera's results may be late
BACK = 2.0  # seconds to be back, beyond the wait between two attempts


class Watch:
    """Reads what the service writes for each camera."""

    def __init__(self, results, cameras, period, backoff, timeout):
        names = [camera.name for camera in cameras]
        self.files = {name: results / f"{name}.jsonl" for name in names}
        self.sent_late = {camera.name: camera.sent_late for camera in cameras}
        self.period, self.backoff, self.timeout = period, backoff, timeout
        self.read = dict.fromkeys(names, 0)
        self.rest = dict.fromkeys(names, b"")
        self.last = {}  # when the last result came, and its number in its run
        self.windows = {name: [] for name in names}  # begin, end, kind: a fault may hold the camera up
        self.longest, self.longest_sent_late = 0.0, 0.0
        self.violations, self.results, self.back = [], 0, {}

    @contextmanager
    def disturbed(self, names, kind):
        window = {"kind": kind, "begin": time.time(), "end": None, "seen": {}}
        for name in names:
            self.windows[name].append(window)
        try:
            yield
        finally:
            window["end"] = time.time()

    def may_be_late(self, name, begin, end):
        """Whether a fault, or what it takes to be back, lies in that time."""
        def over(window):
            last = window["end"]
            return float("inf") if last is None else last + self.timeout + self.backoff + BACK

        return any(window["begin"] < end and over(window) > begin for window in self.windows[name])

    def take(self, name, line):
        try:
            message = json.loads(line)
            at, number = datetime.fromisoformat(message["wall-clock"]).timestamp(), message["frame"]
        except (ValueError, KeyError, TypeError) as error:
            # A process that was killed may leave half a line, before the lines of the next one.
            if not self.may_be_late(name, time.time() - 60, time.time()):
                self.violations.append(f"{name}: a line that is no message: {error}: {line[:80]!r}")
            return
        self.results += 1
        for window in self.windows[name]:
            if window["end"] is not None and window["end"] < at and name not in window["seen"]:
                # Another fault may have held it up longer, such as the end of the service.
                ends = [other["end"] for other in self.windows[name] if other["begin"] < at]
                window["seen"][name] = None if None in ends else max(0.0, at - max(ends))
                if window["seen"][name] is not None:
                    self.back.setdefault(window["kind"], []).append(window["seen"][name])
        if name in self.last:
            before, last_number = self.last[name]
            # What the camera itself was late by is no fault of the service.
            sent_late = max((late for when, late in self.sent_late[name] if before - 1 < when <= at), default=0.0)
            gap = at - before - sent_late
            is_next = number == last_number + 1
            if not self.may_be_late(name, before, at):
                if not is_next:
                    self.violations.append(f"{name}: frame {number} follows frame {last_number}")
                self.longest = max(self.longest, gap - self.period)
                self.longest_sent_late = max(self.longest_sent_late, sent_late)
                if gap > self.period + SLACK:
                    self.violations.append(f"{name}: no result for {gap:.2f} s until {time.strftime('%H:%M:%S', time.gmtime(at))}")
            elif not is_next and number > last_number:
                self.violations.append(f"{name}: frame {number} follows frame {last_number}, in one run")
        self.last[name] = (at, number)

    def look(self):
        for name, file in self.files.items():
            try:
                size = file.stat().st_size
            except OSError:
                continue
            if size == self.read[name]:
                continue
            with file.open("rb") as lines:
                lines.seek(self.read[name])
                data = self.rest[name] + lines.read(size - self.read[name])
            self.read[name] = size
            *whole, self.rest[name] = data.split(b"\n")
            for line in whole:
                self.take(name, line)

    def stuck(self, now):
        """Cameras that should give results and do not."""
        def is_stuck(name):
            last = self.last.get(name, (0, 0))[0]
            return now - last > 10 and not self.may_be_late(name, max(last, now - 10), now)

        return [name for name in self.files if is_stuck(name)]


class Sizes:
    """What one process takes, over its life."""

    def __init__(self):
        self.rows = []

    def add(self, row):
        self.rows.append(row)

    def growth(self):
        """Of the medians of the last fifth against the second one: the first one fills caches."""
        if len(self.rows) < 20:
            return None
        fifth = len(self.rows) // 5
        before, after = self.rows[fifth : 2 * fifth], self.rows[-fifth:]
        medians = [[statistics.median(column) for column in zip(*rows)] for rows in (before, after)]
        return [{"before": a, "after": b, "ratio": round(b / a, 4) if a else 1.0} for a, b in zip(*medians)]
