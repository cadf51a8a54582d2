#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Checks what this project depends on by deny.toml: licences, crates in several versions, sources.

Where `cargo deny` is installed it does this, more thoroughly. It takes minutes to build, so without it these checks stand in.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def allows(expression, allowed):
    """Whether an SPDX expression can be met by these licences. Old manifests write / for OR."""
    words = re.findall(r"[()]|[^\s()/]+(?:\s+WITH\s+[^\s()/]+)?|/", expression)
    terms = {"AND": "and", "OR": "or", "/": "or", "(": "(", ")": ")"}
    # Only these words get there: and, or, brackets, True, False.
    return eval(" ".join(terms.get(word) or str(" ".join(word.split()) in allowed) for word in words))


def is_skipped(package, skipped):
    name, _, version = skipped.partition("@")
    return package["name"] == name and f"{package['version']}.".startswith(f"{version}." if version else "")


def problems(rules, packages):
    allowed = set(rules["licenses"]["allow"])
    exceptions = {entry["crate"]: set(entry["allow"]) for entry in rules["licenses"].get("exceptions", [])}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if not package["license"] or not allows(package["license"], allowed | exceptions.get(package["name"], set())):
            yield f"{name}: its licence is {package['license']}"
        if package["source"] not in (None, CRATES_IO):
            yield f"{name}: it comes from {package['source']}"
    counted = list(packages)
    for skipped in (entry["crate"] for entry in rules["bans"]["skip"]):
        left = [package for package in counted if not is_skipped(package, skipped)]
        if len(left) == len(counted):
            yield f"{skipped}: deny.toml skips it, and it is not there"
        counted = left
    versions = {}
    for package in counted:
        versions.setdefault(package["name"], set()).add(package["version"])
    for name, found in versions.items():
        if len(found) > 1:
            yield f"{name}: in several versions, {', '.join(sorted(found))}"


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))
    if subprocess.run(["cargo", "deny", "--version"], capture_output=True).returncode == 0:
        sys.exit(subprocess.run(["cargo", "deny", "--locked", "check", "bans", "licenses", "sources"], cwd=ROOT).returncode)
    packages, used = {}, set()
    for target in rules["graph"]["targets"]:
        command = ["cargo", "metadata", "--locked", "--format-version=1", "--all-features", f"--filter-platform={target}"]
        metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
        packages |= {package["id"]: package for package in metadata["packages"]}
        used |= {node["id"] for node in metadata["resolve"]["nodes"]}
    found = list(problems(rules, [packages[id] for id in sorted(used)]))
    print("\n".join(found) or f"{len(used)} crates: licences, versions and sources are as deny.toml wants them")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
