# SPDX-License-Identifier: MPL-2.0
"""Cameras that misbehave when they are told to: an RTSP server like that of rtsp_cameras.py, whose paths have a state each."""

import asyncio
import itertools
import random
import struct
import sys
import time
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from rtsp_cameras import CLOCK, Clip, answer, report, requests  # noqa: E402  it is in that folder

class Camera:
    """A path of the server, and what is wrong with it at the moment."""

    def __init__(self, name, clips, seed):
        self.name, self.clips, self.random = name, clips, random.Random(f"{seed} {name}")
        self.writers = set()
        # When the last frames were sent, and by how many seconds too late, which is this program's own fault.
        self.sent_late = deque(maxlen=64)
        self.heal()

    def heal(self):
        """As it should be. What a camera says of its clock stays: the next report is right again."""
        self.is_absent = self.is_frozen = self.is_slow = self.answers_garbage = False
        self.lost = self.doubled = self.late = self.flipped = 0.0  # parts of the packets
        self.clip = 0
        self.clock = 0.0  # seconds that its clock is wrong by
        self.jump = 0  # ticks that are added to the timestamps

    def hang_up(self):
        for writer in self.writers:
            writer.transport.abort()

    def packets(self, frame, places, number, timestamp):
        """The packets of a frame, with what is wrong with them. `number` goes on also for those that are lost."""
        frame = bytearray(frame)
        for place in places:
            struct.pack_into(">HI", frame, place, number & 0xFFFF, timestamp)
            number += 1
        # A packet begins 6 bytes before its number: "$", the channel, its length, and two bytes of RTP.
        begins = [place - 6 for place in places] + [len(frame)]
        packets = [frame[begin:end] for begin, end in itertools.pairwise(begins)]
        chance = self.random.random
        if self.flipped:
            for packet in packets:
                if chance() < self.flipped:
                    packet[self.random.randrange(16, len(packet))] ^= 1 << self.random.randrange(8)
        packets = [packet for packet in packets if not self.lost or chance() >= self.lost]
        packets = [packet for packet in packets for _ in range(2 if chance() < self.doubled else 1)]
        if self.late and len(packets) > 1 and chance() < self.late:
            at = self.random.randrange(len(packets) - 1)
            packets[at], packets[at + 1] = packets[at + 1], packets[at]
        return b"".join(packets), number


async def play(camera, fps, writer):
    number, octets, reported, ticks, begun, at = 0, 0, 0.0, 0, time.time(), time.time()
    clip, frames = None, iter(())
    while True:
        if clip is not camera.clips[camera.clip]:  # from its beginning, which has its parameters
            clip = camera.clips[camera.clip]
            frames = itertools.cycle(clip.frames)
        _, _, packets, places = next(frames)
        at += (5 if camera.is_slow else 1) / fps
        due = max(at, time.time())
        await asyncio.sleep(due - time.time())
        camera.sent_late.append((time.time(), time.time() - due))
        while camera.is_frozen:
            await asyncio.sleep(0.05)
            at = time.time()
        if time.time() - reported >= 1:
            reported = time.time()
            writer.write(report(begun, number, octets, camera.clock))
        ticks = int((at - begun) * CLOCK)
        data, number = camera.packets(packets, places, number, (ticks + camera.jump) & 0xFFFFFFFF)
        octets += len(data)
        writer.write(data)
        await writer.drain()


async def serve(cameras, fps, reader, writer):
    playing, camera = None, None
    try:
        async for method, address, headers in requests(reader):
            camera = cameras.get(address.rstrip("/").split("/")[3])
            if camera is None or camera.is_absent:
                return
            camera.writers.add(writer)
            if camera.answers_garbage:
                # A header without an end, as fast as it is taken.
                for _ in range(1 << 12):
                    writer.write(b"X" * (1 << 14))
                    await writer.drain()
                return
            writer.write(answer(camera.clips[camera.clip], method, address, headers))
            if method == "PLAY" and not playing:
                playing = asyncio.create_task(play(camera, fps, writer))
            elif method == "TEARDOWN":
                return
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        if playing:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
        if camera is not None:
            camera.writers.discard(writer)
        writer.close()


async def start(cameras, fps):
    """The port that they are at."""
    by_name = {camera.name: camera for camera in cameras}
    server = await asyncio.start_server(lambda reader, writer: serve(by_name, fps, reader, writer), "127.0.0.1", 0, backlog=1000)
    return server.sockets[0].getsockname()[1]
