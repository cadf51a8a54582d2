# SPDX-License-Identifier: MPL-2.0
"""Puts the C library and the plugin into the wheel, and tells on which systems they run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
# Bytes of the wheel as users get it, and of one with the build of the tests, whose code is not optimized and so is longer.
MAXIMUM = 12_500_000
MAXIMUM_OF_TESTS = 16_000_000
# What each Linux with glibc has; GStreamer and GLib are those of the program that loads the plugin.
SYSTEM = re.compile(r"(libc|libm|libdl|libpthread|librt|libgcc_s|ld-linux-[a-z0-9-]+)\.so\.\d+")
GSTREAMER = re.compile(r"lib(gst[a-z]*|glib|gobject|gio)-[\d.]+\.so\.0")
# As readelf and as Python name them.
MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}


class Libraries(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version
        self.folder = Path(tempfile.mkdtemp(prefix="gsttrt-wheel-"))
        # A build that is there, for another kind of machine: packaging/arm64.sh.
        built = os.environ.get("GST_TRT_BUILT", "")
        self.is_stripped = bool(built)
        if not built:
            build = [str(ROOT / "packaging" / "build.sh"), "library", "plugin"]
            # Its last line is the folder.
            built = subprocess.run(build, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
        self.built = ROOT / built
        library = self.library("libgsttrt_capi.so", "libgsttrt-1.so.0", SYSTEM)
        plugin = self.library("libgsttrt.so", "libgsttrt.so", SYSTEM, GSTREAMER)
        build_data["force_include"] = {
            str(library): "gsttrt/lib/libgsttrt-1.so.0",
            str(plugin): "gsttrt/lib/gstreamer-1.0/libgsttrt.so",
            str(ROOT / "LICENSE"): "gsttrt/LICENSE",
        }
        glibc = max(glibc_of(library), glibc_of(plugin))
        # No part of it depends on Python's version.
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{machine_of(library)}"

    def library(self, built: str, name: str, *allowed: re.Pattern[str]) -> Path:
        """A library without symbols for debuggers, and with no dependency that a system may lack."""
        path = self.folder / name
        if self.is_stripped:
            shutil.copyfile(self.built / built, path)
        else:
            strip = ["strip", "--strip-unneeded", "-o", str(path), str(self.built / built)]
            subprocess.run(strip, check=True)
        for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", path)):
            if not any(pattern.fullmatch(needed) for pattern in allowed):
                raise RuntimeError(f"{built} needs {needed}, which is not on every system and not in the wheel.")
        return path

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data
        shutil.rmtree(self.folder)
        size = os.path.getsize(artifact_path)
        maximum = MAXIMUM_OF_TESTS if os.environ.get("GST_TRT_PROFILE") == "dev" else MAXIMUM
        if size > maximum:
            raise RuntimeError(f"{artifact_path} has {size} bytes; {maximum} is the maximum.")


def glibc_of(library: Path) -> tuple[int, int]:
    """The version of glibc whose symbols it needs: with an older one it does not load."""
    return max((int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", readelf("--version-info", library)))


def machine_of(library: Path) -> str:
    """The kind of machine that it is for, as in the names of wheels."""
    found = re.search(r"^ *Machine: *(.*?) *$", readelf("--file-header", library), re.M)
    if found is None or found[1] not in MACHINES:
        raise RuntimeError(f"{library.name} is for {found[1] if found else 'no machine'}; wheels are for {', '.join(MACHINES.values())}.")
    return MACHINES[found[1]]


def readelf(what: str, path: Path) -> str:
    command = ["readelf", "--wide", what, str(path)]
    # Its headings are in the language of the user.
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
