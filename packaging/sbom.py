#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Prints the software bill of materials of a release, in CycloneDX 1.5 as JSON: packaging/sbom.py [--target TRIPLE]

It lists the crates that are linked into the plugin, the C library and the program. Each has its version, licence and checksum, and the
crates that it brings. What only tests and builds use is left out: macros, build scripts, dev-dependencies. Libraries of the system, such as
GStreamer, and those that are found at run time, such as TensorRT, are not in our packages.

`cargo metadata` knows licences and edges, but turns on features that only tests ask for. `cargo tree` knows what is built. So a crate must
be in both. With SOURCE_DATE_EPOCH, the time of the commit in seconds, the same commit gives the same text.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import urllib.parse
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What packages contain: the parts of packaging/build.sh.
BUILT = ("gst-plugin-trt", "gsttrt-capi", "gst-trt")
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


class Refused(Exception):
    """What a bill of materials cannot say rightly."""


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def host():
    found = subprocess.run(["rustc", "-vV"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return re.search(r"^host: (\S+)$", found, re.M)[1]


def key(package):
    return package["name"], package["version"]


def in_tree(lines):
    """Name and version of each crate that `cargo tree --prefix none --format {p}` prints."""
    words = [line.split() for line in lines.splitlines() if line.strip()]
    return {(found[0], found[1].removeprefix("v")) for found in words}


def is_macro(package):
    return any("proc-macro" in target["kind"] for target in package["targets"])


def linked(metadata, tree):
    """The packages that are in the binaries, by id, each with the ids of those that it brings."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    ours = [packages[member] for member in metadata["workspace_members"]]
    waiting = [package["id"] for package in ours if package["name"] in BUILT]
    if missing := set(BUILT) - {packages[each]["name"] for each in waiting}:
        raise Refused(f"the workspace has no {', '.join(sorted(missing))}; packaging/build.sh builds them")
    found = {}
    while waiting:
        each = waiting.pop()
        if each in found:
            continue
        edges = [edge["pkg"] for edge in nodes[each]["deps"] if any(kind["kind"] is None for kind in edge["dep_kinds"])]
        found[each] = sorted({edge for edge in edges if key(packages[edge]) in tree and not is_macro(packages[edge])})
        waiting += found[each]
    return {each: (packages[each], brought) for each, brought in found.items()}


def purl(package):
    return f"pkg:cargo/{package['name']}@{urllib.parse.quote(package['version'], safe='')}"


def licences(package):
    """Old manifests write / for OR."""
    if not package["license"]:
        raise Refused(f"{package['name']} {package['version']} names no licence")
    expression = re.sub(r"\s*/\s*", " OR ", package["license"].strip())
    return [{"expression": expression}] if " " in expression else [{"license": {"id": expression}}]


def component(package, checksums):
    if package["source"] not in (None, CRATES_IO):
        raise Refused(f"{package['name']} {package['version']} comes from {package['source']}, not from crates.io")
    is_program = any("bin" in target["kind"] for target in package["targets"])
    made = {
        "type": "application" if is_program and package["source"] is None else "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "licenses": licences(package),
        "purl": purl(package),
    }
    if package["source"]:
        if key(package) not in checksums:
            raise Refused(f"{package['name']} {package['version']} has no checksum in Cargo.lock")
        made["hashes"] = [{"alg": "SHA-256", "content": checksums[key(package)]}]
    if package.get("repository"):
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def bom(metadata, tree, checksums, target, seconds):
    """The bill of materials of a target, at a time in seconds since 1970."""
    found = sorted(linked(metadata, tree).values(), key=lambda entry: key(entry[0]))
    packages = {package["id"]: package for package, _ in found}
    plugin = next(package for package, _ in found if package["name"] == BUILT[0])
    of_release = {
        "type": "application",
        "bom-ref": "release",
        "name": plugin["name"],
        "version": plugin["version"],
        "licenses": licences(plugin),
        "externalReferences": [{"type": "vcs", "url": plugin["repository"]}],
    }
    dependencies = [{"ref": "release", "dependsOn": sorted(purl(package) for package, _ in found if package["name"] in BUILT)}]
    dependencies += [{"ref": purl(package), "dependsOn": sorted(purl(packages[each]) for each in brought)} for package, brought in found]
    made = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": [{"type": "application", "name": "packaging/sbom.py", "version": plugin["version"]}]},
            "component": of_release,
            "properties": [{"name": "gst-plugin-trt:target", "value": target}],
        },
        "components": [component(package, checksums) for package, _ in found],
        "dependencies": dependencies,
    }
    # By its content, so that the same bill has the same number.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made, sort_keys=True))
    return {**made, "serialNumber": f"urn:uuid:{number}"}


def of_this_tree(target, seconds):
    metadata = json.loads(cargo("metadata", "--locked", "--format-version=1", f"--filter-platform={target}"))
    packages = [word for crate in BUILT for word in ("--package", crate)]
    tree = in_tree(cargo("tree", "--locked", *packages, "--edges", "normal", "--prefix", "none", "--format", "{p}", "--target", target))
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    checksums = {key(package): package["checksum"] for package in lock["package"] if "checksum" in package}
    return bom(metadata, tree, checksums, target, seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", help="the machine that the binaries are for, such as aarch64-unknown-linux-gnu; default: this one")
    target = parser.parse_args().target or host()
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or datetime.datetime.now().timestamp())
    try:
        print(json.dumps(of_this_tree(target, seconds), indent=2, ensure_ascii=False))
    except Refused as error:
        sys.exit(f"sbom.py: {error}.")
    except subprocess.CalledProcessError as error:
        sys.exit(f"sbom.py: {' '.join(error.cmd[:2])} failed with status {error.returncode}; what it says is above.")


if __name__ == "__main__":
    main()
