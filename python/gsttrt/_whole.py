# SPDX-License-Identifier: MPL-2.0
"""Whether a video is as long as it says itself, as gst-trt looks. Readers go to where one that is cut off ends, and say nothing."""

from __future__ import annotations

import os
from typing import BinaryIO

# A file of fragments has two for each second, and more.
MOST_BOXES = 1 << 20
# What has all of a Matroska file but its header.
SEGMENT = b"\x18\x53\x80\x67"


def missing(path: str) -> str | None:
    """What is missing of a file, in words; None where nothing is, or nothing tells."""
    if not os.path.isfile(path):
        return None  # to open a pipe would be to wait
    try:
        with open(path, "rb") as file:
            length = os.fstat(file.fileno()).st_size
            wanted = announced(file, length)
    except OSError:
        return None
    return None if wanted is None or length >= wanted else f"{length} of {wanted} bytes are there"


def announced(file: BinaryIO, length: int) -> int | None:
    start = file.read(12)
    if start.startswith(b"RIFF"):
        size = int.from_bytes(start[4:8], "little")
        # A recorder that was killed leaves 0, or all ones.
        return size + 8 if 0 < size < 0xFFFFFFFF else None
    if start.startswith(b"\x1a\x45\xdf\xa3"):
        return matroska(file)
    return boxes(file, length) if start[4:5] in (b"f", b"m", b"s", b"w") else None


def boxes(file: BinaryIO, length: int) -> int | None:
    """MP4 and MOV: one box behind the other."""
    at = 0
    for _ in range(MOST_BOXES):
        if at >= length:
            return at
        file.seek(at)
        head = file.read(16)
        size = int.from_bytes(head[:4], "big")
        if len(head) < 8:
            return at + 8
        if size == 0:
            return None  # up to the end
        if size == 1:
            if len(head) < 16:
                return at + 16
            size = int.from_bytes(head[8:], "big")
        # Behind the last box some programs leave anything.
        if size < 8 or not head[4:8].isalnum():
            return None
        at += size
    return None


def matroska(file: BinaryIO) -> int | None:
    """The header, and the segment."""
    at = 0
    for _ in range(4):
        file.seek(at)
        head = file.read(12)
        name = number(head)
        size = number(head[len(name) :])
        if not name or not size:
            return None
        most = (1 << 7 * len(size)) - 1
        count = int.from_bytes(size, "big") & most
        if count == most:
            return None  # not known, as of a live stream
        at += len(name) + len(size) + count
        if name == SEGMENT:
            return at
    return None


def number(data: bytes) -> bytes:
    """The bytes of a number of EBML, whose first bits tell how many they are; none where not all of them are there."""
    length = 9 - data[0].bit_length() if data else 9
    return data[:length] if length <= min(8, len(data)) else b""
