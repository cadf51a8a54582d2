#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Tests of what a release is made with: the versions, the bill of materials, what packaging/release.sh refuses. Nothing is built."""

import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "packaging"))

import sbom  # noqa: E402
import versions  # noqa: E402


# ------------------------------------------------------------------------------------------- versions


class Versions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        files = [*versions.manifests(ROOT), "Cargo.lock", "python/pyproject.toml", "packaging/chart/Chart.yaml", "docs/install.md"]
        for file in files:
            (self.root / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, self.root / file)
        self.version = versions.version_of(self.root)

    def replace(self, file, pattern, text):
        """Changes one place of a file, which must be there."""
        before = (self.root / file).read_text(encoding="utf-8")
        after, count = re.subn(pattern, text, before, count=1, flags=re.M)
        self.assertEqual(count, 1, f"{file} has no {pattern}")
        (self.root / file).write_text(after, encoding="utf-8")

    def assert_one(self, *words, tags=()):
        found = versions.mistakes(self.root, tags)
        self.assertEqual(len(found), 1, found)
        for word in (*words, f"make it {self.version}"):
            self.assertIn(word, found[0])

    def test_this_tree_has_one_version(self):
        self.assertEqual(versions.mistakes(ROOT), [])
        self.assertEqual(len(versions.crates(ROOT)), len(set(versions.crates(ROOT))))
        self.assertIn("gsttrt-core", versions.crates(ROOT))

    def test_another_version_is_found_at_each_place(self):
        version = re.escape(self.version)
        for file, pattern, text, shown in (
            ("packaging/chart/Chart.yaml", rf"^version: {version}", "version: 7.7.7", "Chart.yaml, version,"),
            ("packaging/chart/Chart.yaml", rf'^appVersion: "{version}"', 'appVersion: "7.7.7"', "Chart.yaml, appVersion,"),
            ("capi/Cargo.toml", r"^version.workspace = true", 'version = "7.7.7"', "capi/Cargo.toml has"),
            ("gst-trt/Cargo.toml", rf'path = "\.\.", version = "{version}"', 'path = "..", version = "7.7.7"', "gst-plugin-trt of [dependencies]"),
            ("Cargo.toml", rf'path = "core", version = "{version}"', 'path = "core", version = "7.7.7"', "gsttrt-core of [workspace.dependencies]"),
            ("Cargo.lock", rf'^name = "gsttrt-streaming"\nversion = "{version}"', 'name = "gsttrt-streaming"\nversion = "7.7.7"', "gsttrt-streaming"),
            ("python/pyproject.toml", r'^dynamic = \["version"\]', 'version = "7.7.7"', "python/pyproject.toml has"),
            ("docs/install.md", rf"gst-plugin-trt_{version}_", "gst-plugin-trt_7.7.7_", "the name of the Debian package"),
            ("docs/install.md", rf"gsttrt-{version}-py3", "gsttrt-7.7.7-py3", "the name of the wheel"),
        ):
            with self.subTest(shown):
                kept = (self.root / file).read_text(encoding="utf-8")
                self.replace(file, pattern, text)
                self.assert_one(shown, "7.7.7")
                (self.root / file).write_text(kept, encoding="utf-8")

    def test_a_version_that_is_missing_is_a_mistake(self):
        self.replace("Cargo.toml", r'(path = "publish"), version = "[^"]*"', r"\1")
        self.assert_one("gsttrt-publish of [workspace.dependencies]", "no version")

    def test_the_pattern_of_the_wheel_must_find_the_version(self):
        self.replace("python/pyproject.toml", r"^pattern = .*", "pattern = '(?m)^release = \"(?P<version>.*)\"'")
        self.assert_one("by its pattern", "no version")

    def test_a_tag_of_the_commit_must_be_the_version(self):
        self.assertEqual(versions.mistakes(self.root, ["nightly", f"v{self.version}"]), [])
        self.assert_one("the tag v7.7.7", tags=["v7.7.7"])

    def test_versions_that_packages_order_differently_are_refused(self):
        self.replace("Cargo.toml", r'^version = "[^"]*"', 'version = "0.2.0-rc.1"')
        (found,) = versions.mistakes(self.root)
        self.assertIn("three numbers", found)


# ------------------------------------------------------------------------------------------- bill of materials

TARGET = "x86_64-unknown-linux-gnu"


def package(name, version="0.1.0", licence="MIT OR Apache-2.0", source=sbom.CRATES_IO, kinds=("lib",)):
    return {
        "id": f"{source or 'path'}#{name}@{version}",
        "name": name,
        "version": version,
        "license": licence,
        "source": source,
        "repository": f"https://git.example/{name}",
        "targets": [{"kind": [kind]} for kind in kinds],
    }


PACKAGES = [
    package("gst-plugin-trt", licence="MPL-2.0", source=None, kinds=("cdylib", "custom-build")),
    package("gsttrt-capi", licence="MPL-2.0", source=None, kinds=("cdylib",)),
    package("gst-trt", licence="MPL-2.0", source=None, kinds=("bin",)),
    package("gsttrt-core", licence="MPL-2.0", source=None),
    package("libc", "0.2.186", "MIT/Apache-2.0"),
    package("lz4", "1.2.3+1.10.0", "BSD-3-Clause"),
    package("derive", "3.0.0", kinds=("proc-macro",)),
    package("syn", "2.0.0"),
    package("helper", "0.8.4"),
    package("proptest", "1.0.0"),
    package("random", "0.9.0"),
]
NORMAL, BUILD, DEV = ({"kind": kind, "target": None} for kind in (None, "build", "dev"))
# Who brings whom, and how. Of libc, random is a feature that only proptest turns on.
EDGES = {
    "gst-plugin-trt": {"gsttrt-core": [NORMAL], "helper": [BUILD], "proptest": [DEV], "gsttrt-capi": [DEV]},
    "gsttrt-capi": {"gsttrt-core": [NORMAL], "libc": [NORMAL]},
    "gst-trt": {"gst-plugin-trt": [NORMAL], "lz4": [NORMAL, DEV]},
    "gsttrt-core": {"libc": [NORMAL], "derive": [NORMAL], "proptest": [DEV]},
    "libc": {"random": [NORMAL]},
    "derive": {"syn": [NORMAL]},
    "proptest": {"random": [NORMAL]},
}
LINES = """\
gst-plugin-trt v0.1.0 (/src)
gsttrt-core v0.1.0 (/src/core)
libc v0.2.186
derive v3.0.0 (proc-macro)
syn v2.0.0

gsttrt-capi v0.1.0 (/src/capi)
gsttrt-core v0.1.0 (/src/core) (*)
libc v0.2.186

gst-trt v0.1.0 (/src/gst-trt)
gst-plugin-trt v0.1.0 (/src) (*)
lz4 v1.2.3+1.10.0
"""
CHECKSUMS = {sbom.key(each): f"{number:064x}" for number, each in enumerate(PACKAGES) if each["source"]}


def metadata(packages=PACKAGES):
    ids = {each["name"]: each["id"] for each in packages}
    nodes = [
        {"id": ids[name], "deps": [{"pkg": ids[other], "dep_kinds": kinds} for other, kinds in EDGES.get(name, {}).items()]} for name in ids
    ]
    members = [each["id"] for each in packages if each["source"] is None]
    return {"packages": packages, "resolve": {"nodes": nodes}, "workspace_members": members}


def made(packages=PACKAGES):
    return sbom.bom(metadata(packages), sbom.in_tree(LINES), CHECKSUMS, TARGET, 1_700_000_000)


class BillOfMaterials(unittest.TestCase):
    def test_what_is_linked_is_listed_and_nothing_else(self):
        names = [each["name"] for each in made()["components"]]
        self.assertEqual(names, ["gst-plugin-trt", "gst-trt", "gsttrt-capi", "gsttrt-core", "libc", "lz4"])

    def test_each_crate_has_its_version_licence_and_checksum(self):
        components = {each["name"]: each for each in made()["components"]}
        libc = components["libc"]
        self.assertEqual(libc["version"], "0.2.186")
        self.assertEqual(libc["licenses"], [{"expression": "MIT OR Apache-2.0"}])
        self.assertEqual(libc["hashes"], [{"alg": "SHA-256", "content": CHECKSUMS["libc", "0.2.186"]}])
        self.assertEqual(libc["purl"], "pkg:cargo/libc@0.2.186")
        self.assertEqual(components["lz4"]["purl"], "pkg:cargo/lz4@1.2.3%2B1.10.0")
        self.assertEqual(components["gsttrt-core"]["licenses"], [{"license": {"id": "MPL-2.0"}}])
        self.assertNotIn("hashes", components["gsttrt-core"])
        kinds = [components[name]["type"] for name in ("gst-trt", "gst-plugin-trt")]
        self.assertEqual(kinds, ["application", "library"])

    def test_edges_lead_from_the_release_to_each_crate(self):
        bill = made()
        edges = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
        self.assertEqual(edges["pkg:cargo/gsttrt-core@0.1.0"], ["pkg:cargo/libc@0.2.186"])
        self.assertEqual(edges["pkg:cargo/gst-plugin-trt@0.1.0"], ["pkg:cargo/gsttrt-core@0.1.0"])
        self.assert_connected(bill)

    def assert_connected(self, bill):
        edges = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
        reached, waiting = set(), [bill["metadata"]["component"]["bom-ref"]]
        while waiting:
            each = waiting.pop()
            if each not in reached:
                reached.add(each)
                waiting += edges[each]
        listed = [each["bom-ref"] for each in bill["components"]]
        self.assertEqual(len(listed), len(set(listed)))
        self.assertEqual(reached - {"release"}, set(listed))

    def test_the_same_crates_give_the_same_text(self):
        turned = made(PACKAGES[::-1])
        self.assertEqual(json.dumps(made()), json.dumps(turned))
        self.assertEqual(turned["metadata"]["timestamp"], "2023-11-14T22:13:20Z")
        self.assertRegex(turned["serialNumber"], "^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$")

    def test_what_cannot_be_said_rightly_is_refused(self):
        def with_libc(**changes):
            packages = copy.deepcopy(PACKAGES)
            packages[4].update(changes)
            return packages

        for packages, said in (
            (with_libc(license=None), "libc 0.2.186 names no licence"),
            (with_libc(source="git+https://git.example/libc"), "comes from git+https://git.example/libc"),
            ([each for each in PACKAGES if each["name"] != "gst-trt"], "has no gst-trt"),
        ):
            with self.subTest(said), self.assertRaisesRegex(sbom.Refused, re.escape(said)):
                made(packages)
        with self.assertRaisesRegex(sbom.Refused, "no checksum"):
            sbom.bom(metadata(), sbom.in_tree(LINES), {}, TARGET, 0)

    def test_of_this_tree(self):
        """cargo reads manifests for it, and builds nothing."""
        target = sbom.host()
        bill = sbom.of_this_tree(target, 0)
        self.assert_connected(bill)
        listed = {(each["name"], each["version"]) for each in bill["components"]}
        lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))["package"]
        self.assertLessEqual(listed, {sbom.key(each) for each in lock})
        names = {name for name, _ in listed}
        self.assertLessEqual({*sbom.BUILT, "gsttrt-core", "gsttrt-publish", "gstreamer", "rten", "rustls", "ring", "axum", "str0m"}, names)
        # Of tests, macros and build scripts.
        self.assertFalse({"proptest", "gstreamer-check", "syn", "quote", "serde_derive", "gst-plugin-version-helper"} & names)
        self.assertIn({"name": "gst-plugin-trt:target", "value": target}, bill["metadata"]["properties"])


# ------------------------------------------------------------------------------------------- release.sh


class Release(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_release(self, *arguments, **options):
        command = [ROOT / "packaging/release.sh", *map(str, arguments)]
        return subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)

    def only_chart(self):
        return [word for part in ("source", "sbom", "crates", "deb", "wheel") for word in ("--without", part)] + ["--allow-dirty"]

    def test_arguments_that_make_no_sense_are_errors(self):
        for arguments, said in (
            (["--require", "rpm"], 'there is no part "rpm"; the parts are source chart sbom'),
            (["--require"], "--require needs the name of a part"),
            (["--without", "all"], 'there is no part "all"'),
            (["--without", "deb", "--require", "deb"], "both name deb"),
            (["--fast"], 'there is no option "--fast"'),
            (["one", "two"], "and not also two"),
        ):
            with self.subTest(said):
                ran = self.run_release(*arguments)
                self.assertEqual((ran.returncode, ran.stdout), (1, ""))
                self.assertIn(said, ran.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_files_of_others_stay(self):
        mine = self.folder / "mine.txt"
        mine.write_text("mine")
        for folder in (self.folder, mine):
            ran = self.run_release(folder)
            self.assertEqual(ran.returncode, 1)
            self.assertIn("is there already and is not an empty folder", ran.stderr)
        self.assertEqual(mine.read_text(), "mine")

    def test_a_folder_that_cannot_be_made_is_named(self):
        mine = self.folder / "mine.txt"
        mine.write_text("mine")
        ran = self.run_release(*self.only_chart(), "--without", "image", "--require", "chart", mine / "release")
        self.assertEqual((ran.returncode, ran.stdout), (1, ""))
        self.assertIn("mine.txt/release cannot be made, as the line above says; name another folder", ran.stderr)

    def tools_that_fail(self):
        """A podman and a docker whose services do not answer."""
        tools = self.folder / "tools"
        tools.mkdir()
        for name in ("podman", "docker"):
            (tools / name).write_text("#!/bin/sh\nexit 1\n")
            (tools / name).chmod(0o755)
        return {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def test_a_required_part_that_cannot_be_built_is_an_error_at_once(self):
        release = self.folder / "release"
        ran = self.run_release(*self.only_chart(), "--require", "image", release, env=self.tools_that_fail())
        self.assertEqual(ran.returncode, 1)
        self.assertIn("the part image is required, and cannot be built here: neither podman nor docker runs here", ran.stderr)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["tools"])

    def test_a_part_that_cannot_be_built_is_named_and_the_rest_has_checksums(self):
        release = self.folder / "release"
        ran = self.run_release(*self.only_chart(), release, env=self.tools_that_fail())
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("image (image): neither podman nor docker runs here", ran.stdout)
        self.assertIn("wheel (wheel): left out, as asked", ran.stdout)
        self.assertIn("(arm64): --require arm64 builds it", ran.stdout)
        chart = f"gst-trt-{versions.version_of(ROOT)}.tgz"
        self.assertEqual(sorted(path.name for path in release.iterdir()), ["SHA256SUMS", chart])
        self.assertRegex((release / "SHA256SUMS").read_text(), rf"^[0-9a-f]{{64}}  {re.escape(chart)}\n$")
        subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=release, check=True)
        listed = subprocess.run(["tar", "--list", "--verbose", "--file", release / chart], check=True, capture_output=True, text=True).stdout
        self.assertIn("gst-trt/Chart.yaml", listed)
        self.assertIn("gst-trt/files/gst-trt.rules.yml", listed)
        self.assertNotIn("->", listed, "a link leads out of the chart")


if __name__ == "__main__":
    unittest.main()
