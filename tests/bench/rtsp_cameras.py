#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Cameras of one machine: an RTSP server (RFC 2326, over TCP) that sends a clip to each client, again and again.

  tests/bench/rtsp_cameras.py PORT CLIP        PORT 0 takes a free one; the port is printed once it listens

The clip is H.264 in MP4. Each client gets it from the beginning, each frame at its time, and once a second a sender report (RFC 3550) that
says when frames were captured. Any path is a camera. Needs nothing but Python, so that it runs where GStreamer's RTSP server is not.
"""

import asyncio
import base64
import itertools
import pathlib
import re
import struct
import sys
import time

CLOCK = 90_000  # of RTP timestamps, a second
PAYLOAD = 1400  # bytes of a packet behind its RTP header, as fits into Ethernet's frames
FROM_1900 = 2_208_988_800  # seconds from where NTP's time begins to 1970
CONTAINERS = {b"moov", b"trak", b"mdia", b"minf", b"stbl"}
REQUEST = re.compile(rb"(\w+) (\S+) RTSP/1\.0\r\n(.*?)\r\n\r\n", re.S)


def boxes(data, found):
    """The boxes of an MP4 file's tables by their type; of the first video track's, for those of others follow."""
    at = 0
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        header = 8
        if size == 1:
            size, header = struct.unpack_from(">Q", data, at + 8)[0], 16
        body = data[at + header : at + (size or len(data))]
        if kind in CONTAINERS:
            boxes(body, found)
        else:
            found.setdefault(kind, body)
        at += size or len(data)
    return found


def table(box, form):
    """The rows of a box that is a count and so many of these."""
    count = struct.unpack_from(">I", box, 4)[0]
    return [struct.unpack_from(form, box, 8 + row * struct.calcsize(form)) for row in range(count)]


def sample_places(found):
    sizes = [size for (size,) in table(found[b"stsz"][4:], ">I")]
    wide = b"co64" in found
    chunks = [offset for (offset,) in table(found[b"co64" if wide else b"stco"], ">Q" if wide else ">I")]
    runs = table(found[b"stsc"], ">III") + [(len(chunks) + 1, 0, 0)]
    sizes, places = iter(sizes), []
    for (first, count, _), (following, _, _) in itertools.pairwise(runs):
        for chunk in chunks[first - 1 : following - 1]:
            for size in itertools.islice(sizes, count):
                places.append((chunk, size))
                chunk += size
    return places


class Clip:
    """The frames as packets with their places for numbers, and when they are sent and shown, in ticks of the RTP clock."""

    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        found = boxes(data, {})
        scale = struct.unpack_from(">I", found[b"mdhd"], 12)[0]
        self.parameters = self.read_parameters(found[b"stsd"])
        durations = [ticks for count, ticks in table(found[b"stts"], ">II") for _ in range(count)]
        shifts = [ticks for count, ticks in table(found[b"ctts"], ">Ii") for _ in range(count)] if b"ctts" in found else [0] * len(durations)
        sent = [0, *itertools.accumulate(durations)]
        self.length = sent[-1] * CLOCK // scale
        self.frames = []
        for number, ((at, size), begins, shift) in enumerate(zip(sample_places(found), sent, shifts)):
            nals = [] if number else list(self.parameters)
            nals += self.nals(data[at : at + size])
            packets, places = self.packets(nals)
            self.frames.append((begins * CLOCK // scale, (begins + shift) * CLOCK // scale, packets, places))

    @staticmethod
    def read_parameters(stsd):
        """SPS and PPS out of avcC."""
        at = stsd.index(b"avcC") + 4 + 5
        sets = []
        for mask in (0x1F, 0xFF):
            count = stsd[at] & mask
            at += 1
            for _ in range(count):
                length = struct.unpack_from(">H", stsd, at)[0]
                sets.append(stsd[at + 2 : at + 2 + length])
                at += 2 + length
        return sets

    @staticmethod
    def nals(frame):
        at = 0
        while at + 4 <= len(frame):
            length = struct.unpack_from(">I", frame, at)[0]
            yield frame[at + 4 : at + 4 + length]
            at += 4 + length

    @staticmethod
    def packets(nals):
        """RFC 6184: whole units, and those that are too long in fragments. Each packet is interleaved as channel 0."""
        payloads = []
        for nal in nals:
            if len(nal) <= PAYLOAD:
                payloads.append(nal)
                continue
            indicator, kind = nal[0] & 0xE0 | 28, nal[0] & 0x1F
            parts = [nal[at : at + PAYLOAD - 2] for at in range(1, len(nal), PAYLOAD - 2)]
            for number, part in enumerate(parts):
                ends = (0x80 if number == 0 else 0) | (0x40 if number == len(parts) - 1 else 0)
                payloads.append(bytes([indicator, ends | kind]) + part)
        packets, places = bytearray(), []
        for number, payload in enumerate(payloads):
            marker = 0x80 if number == len(payloads) - 1 else 0
            packets += struct.pack(">cBH", b"$", 0, 12 + len(payload))
            places.append(len(packets) + 2)
            packets += struct.pack(">BBHII", 0x80, marker | 96, 0, 0, 1) + payload
        return bytes(packets), places

    def description(self):
        sets = ",".join(base64.b64encode(each).decode() for each in self.parameters)
        return (
            "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=camera\r\nt=0 0\r\na=control:*\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n"
            f"a=fmtp:96 packetization-mode=1;sprop-parameter-sets={sets}\r\na=control:stream=0\r\n"
        )


def report(begun, packets, octets, clock=0.0):
    """A sender report for now, as channel 1, of a camera whose clock is wrong by so many seconds."""
    now = time.time()
    ntp = int((now + clock + FROM_1900) * (1 << 32))
    body = struct.pack(">BBHIQIII", 0x80, 200, 6, 1, ntp, int((now - begun) * CLOCK) & 0xFFFFFFFF, packets & 0xFFFFFFFF, octets & 0xFFFFFFFF)
    return struct.pack(">cBH", b"$", 1, len(body)) + body


async def play(clip, writer):
    begun, number, octets, reported = time.time(), 0, 0, 0.0
    for round_number in itertools.count():
        for sent, shown, packets, places in clip.frames:
            at = begun + (round_number * clip.length + sent) / CLOCK
            await asyncio.sleep(max(0.0, at - time.time()))
            if time.time() - reported >= 1:
                reported = time.time()
                writer.write(report(begun, number, octets))
            frame, timestamp = bytearray(packets), (round_number * clip.length + shown) & 0xFFFFFFFF
            for place in places:
                struct.pack_into(">HI", frame, place, number & 0xFFFF, timestamp)
                number += 1
            octets += len(frame)
            writer.write(frame)
            # A client that does not read must not fill the memory: its camera waits.
            await writer.drain()


async def requests(reader):
    """Method, address and headers of a client's requests. Its own reports are left out."""
    received = b""
    while data := await reader.read(1 << 16):
        received += data
        while received:
            if received[:1] == b"$":
                if len(received) < 4 or len(received) < 4 + struct.unpack_from(">H", received, 2)[0]:
                    break
                received = received[4 + struct.unpack_from(">H", received, 2)[0] :]
                continue
            request = REQUEST.match(received)
            if not request:
                break
            received = received[request.end() :]
            yield request[1].decode(), request[2].decode(), request[3]


def answer(clip, method, address, headers):
    number = re.search(rb"CSeq: *(\d+)", headers, re.I)[1].decode()
    own, body, status = [], "", "200 OK"
    if method == "OPTIONS":
        own = ["Public: OPTIONS, DESCRIBE, SETUP, PLAY, GET_PARAMETER, TEARDOWN"]
    elif method == "DESCRIBE":
        body = clip.description()
        own = ["Content-Type: application/sdp", f"Content-Base: {address.rstrip('/')}/", f"Content-Length: {len(body)}"]
    elif method == "SETUP":
        if b"interleaved" in headers:
            own = ["Transport: RTP/AVP/TCP;unicast;interleaved=0-1;ssrc=00000001", "Session: 1;timeout=60"]
        else:
            status = "461 Unsupported Transport"
    elif method in ("PLAY", "GET_PARAMETER", "TEARDOWN"):
        own = ["Session: 1"]
    else:
        status = "501 Not Implemented"
    return "\r\n".join([f"RTSP/1.0 {status}", f"CSeq: {number}", *own, "", body]).encode()


async def serve(clip, reader, writer):
    playing = None
    try:
        async for method, address, headers in requests(reader):
            writer.write(answer(clip, method, address, headers))
            if method == "PLAY" and not playing:
                playing = asyncio.create_task(play(clip, writer))
            elif method == "TEARDOWN":
                return
    except ConnectionError:
        pass
    finally:
        if playing:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
        writer.close()


async def main():
    port, path = sys.argv[1:]
    clip = Clip(path)
    server = await asyncio.start_server(lambda reader, writer: serve(clip, reader, writer), "127.0.0.1", int(port), backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
