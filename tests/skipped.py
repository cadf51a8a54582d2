#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""How many tests of the last run by cargo-nextest passed, and which could not run here: tests/skipped.py

A test that lacks something (a GPU, a library, a program) prints a line "SKIP: what is missing" and ends. It is not counted as
passed. A test of which only a part could not run is listed too, and one that passed only when it ran again."""

import collections
import os
import pathlib
import sys
import xml.etree.ElementTree

target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).resolve().parent.parent / "target"))
file = target / "nextest/default/junit.xml"
passed, skipped, unsteady = 0, collections.defaultdict(list), []
for suite in xml.etree.ElementTree.parse(file).getroot().iter("testsuite"):
    for case in suite.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            sys.exit(f"Error: {case.get('name')} failed.")
        if case.find("flakyFailure") is not None or case.find("flakyError") is not None:
            unsteady.append(f"{suite.get('name')} {case.get('name')}")
        said = "".join(case.findtext(name) or "" for name in ("system-out", "system-err"))
        reasons = [line.split("SKIP:", 1)[1].strip() for line in said.splitlines() if "SKIP:" in line]
        if reasons:
            skipped[reasons[0]].append(f"{suite.get('name')} {case.get('name')}")
        else:
            passed += 1
for reason, names in sorted(skipped.items(), key=lambda item: -len(item[1])):
    print(f"SKIP {len(names)}: {reason}")
    for name in names[:3]:
        print(f"    {name}")
    if len(names) > 3:
        print(f"    and {len(names) - 3} more")
for name in unsteady:
    print(f"FLAKY, it failed and passed when it ran again; mend it: {name}")
again = f" ({len(unsteady)} of them only the second time)" if unsteady else ""
print(f"tests: {passed} passed{again}, 0 failed, {sum(map(len, skipped.values()))} skipped")
