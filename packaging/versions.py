#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Prints the version of all that is released. Where two places have different ones it says which, and ends with status 1.

    packaging/versions.py              the version, which Cargo.toml has under [workspace.package]
    packaging/versions.py --crates     the names of the crates, in a line each

The Debian package and the program take their version from Cargo.toml, and so does the wheel by a pattern. The chart, the crates that name
each other, and the page that tells what to install have it written down.
"""

import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Wheels and Debian packages write and order longer ones, such as 0.2.0-rc.1, each in its own way.
VERSION = re.compile(r"\d+\.\d+\.\d+")
# What docs/install.md tells people to install.
FILES = {
    "the Debian package": re.compile(r"gst-plugin-trt_([^_\s]+)_[a-z0-9]+\.deb"),
    "the wheel": re.compile(r"gsttrt-([^-\s]+)-py3-\S+\.whl"),
}


def load(path):
    return tomllib.loads(path.read_text(encoding="utf-8"))


def manifests(root):
    """Each Cargo.toml of the workspace by its path from the root."""
    top = load(root / "Cargo.toml")
    members = [f"{member}/Cargo.toml" for member in top["workspace"]["members"]]
    return {"Cargo.toml": top, **{path: load(root / path) for path in members}}


def crates(root):
    return [manifest["package"]["name"] for manifest in manifests(root).values()]


def tables(manifest):
    """Its tables of dependencies with their names. What tests alone depend on needs no version."""
    names = ("dependencies", "build-dependencies")
    places = [("", manifest), ("workspace.", manifest.get("workspace", {}))]
    places += [(f"target.{target}.", table) for target, table in manifest.get("target", {}).items()]
    return [(f"{place}{name}", table[name]) for place, table in places for name in names if name in table]


def of_crates(root):
    """Place and version of each crate, and of each crate of ours that another one depends on."""
    for path, manifest in manifests(root).items():
        own = manifest["package"].get("version")
        if not isinstance(own, dict):  # else `version.workspace = true`
            yield path, own
        for table, dependencies in tables(manifest):
            for name, dependency in dependencies.items():
                if isinstance(dependency, dict) and "path" in dependency:
                    yield f"{path}, {name} of [{table}]", dependency.get("version")
    ours = set(crates(root))
    for package in load(root / "Cargo.lock")["package"]:
        if package["name"] in ours and "source" not in package:
            yield f"Cargo.lock, {package['name']}", package["version"]


def of_python(root):
    project = load(root / "python/pyproject.toml")
    if "version" in project["project"]:
        yield "python/pyproject.toml", project["project"]["version"]
        return
    rule = project["tool"]["hatch"]["version"]
    found = re.search(rule["pattern"], (root / "python" / rule["path"]).read_text(encoding="utf-8"))
    yield "python/pyproject.toml, by its pattern,", found and found["version"]


def of_chart(root):
    """Without a reader of YAML, which Python does not bring."""
    chart = (root / "packaging/chart/Chart.yaml").read_text(encoding="utf-8")
    for key in ("version", "appVersion"):
        found = re.search(rf'^{key}: *"?([^"\s]+)"?\s*$', chart, re.M)
        yield f"packaging/chart/Chart.yaml, {key},", found and found[1]


def of_pages(root):
    page = (root / "docs/install.md").read_text(encoding="utf-8")
    for what, pattern in FILES.items():
        yield from ((f"docs/install.md, the name of {what},", version) for version in pattern.findall(page) or [None])


def of_tags(tags):
    """Tags of the commit that look like a version."""
    yield from ((f"the tag {tag}", tag[1:]) for tag in tags if re.match(r"v\d", tag))


def tags_of(root):
    """Of the commit that is checked out; none where this is no checkout."""
    command = ["git", "-C", str(root), "tag", "--points-at", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return []


def version_of(root):
    return load(root / "Cargo.toml")["workspace"]["package"]["version"]


def mistakes(root, tags=()):
    version = version_of(root)
    if not VERSION.fullmatch(version):
        return [f"Cargo.toml has the version {version}; it is to be three numbers, such as 0.2.0, which all packages write in the same way."]
    places = [*of_crates(root), *of_python(root), *of_chart(root), *of_pages(root), *of_tags(tags)]
    return [
        f"{place} has {f'the version {found}' if found else 'no version'}; make it {version}, as in [workspace.package] of Cargo.toml."
        for place, found in places
        if found != version
    ]


def main():
    if sys.argv[1:] == ["--crates"]:
        print("\n".join(crates(ROOT)))
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    if found := mistakes(ROOT, tags_of(ROOT)):
        sys.exit("\n".join(found))
    print(version_of(ROOT))


if __name__ == "__main__":
    main()
