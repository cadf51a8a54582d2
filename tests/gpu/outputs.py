#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""What gst-trt serve shows of frames on a GPU, tests/gpu/outputs.py KEY=VALUE…: the video of a source and of many in one picture by RTSP,
an answer to a browser's offer, and a picture. One of its cameras answers without an end: it must be given up, and cost the others nothing.

  program, launch   scripts that run gst-trt and gst-launch-1.0 with the GStreamer to be tested
  clip, model       a video, and an engine or an ONNX file
  infer             properties of trtinfer
  folder            for what is made here"""
import asyncio
import json
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.request

LIMIT_S = 120   # until frames come
WATCH_S = 60    # for a video's frames
FRAMES = 100
SOURCES = 4

given = dict(word.split("=", 1) for word in sys.argv[1:])
folder = pathlib.Path(given["folder"])
folder.mkdir(parents=True, exist_ok=True)
journal = folder / "journal"

OFFER = """v=0
o=- 1 2 IN IP4 127.0.0.1
s=-
t=0 0
a=group:BUNDLE 0
m=video 9 UDP/TLS/RTP/SAVPF 102
c=IN IP4 0.0.0.0
a=rtcp:9 IN IP4 0.0.0.0
a=ice-ufrag:abcd
a=ice-pwd:0123456789abcdef01234567
a=fingerprint:sha-256 {fingerprint}
a=setup:actpass
a=mid:0
a=recvonly
a=rtcp-mux
a=rtpmap:102 H264/90000
a=rtcp-fb:102 nack
a=rtcp-fb:102 nack pli
a=fmtp:102 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f
""".replace("\n", "\r\n").format(fingerprint=":".join(f"{number:02X}" for number in range(32)))


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


async def endless(reader, writer):
    """A camera whose first answer has no end."""
    try:
        while True:
            writer.write(b"X" * (1 << 14))
            await writer.drain()
    except ConnectionError:
        pass


async def call(path, data=None, kind="application/sdp", method=None):
    def ask():
        request = urllib.request.Request(f"http://127.0.0.1:{http}{path}", data, {"Content-Type": kind} if data else {}, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    return await asyncio.to_thread(ask)


async def watch(address):
    """Decodes so many frames of a video. Returns how many seconds that took."""
    line = f"rtspsrc location={address} protocols=tcp latency=0 ! rtph264depay ! h264parse ! nvh264dec ! fakesink sync=false num-buffers={FRAMES}"
    begun = time.monotonic()
    process = await asyncio.create_subprocess_exec(given["launch"], "-q", *line.split(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        _, said = await asyncio.wait_for(process.communicate(), WATCH_S)
    except asyncio.TimeoutError:
        process.kill()
        sys.exit(f"no {FRAMES} frames of {address} within {WATCH_S} s\n{journal.read_text()[-3000:]}")
    assert process.returncode == 0, said.decode()
    return time.monotonic() - begun


async def running():
    try:
        sources = json.loads((await call("/sources"))[2])
    except OSError:
        return set()
    return {source["name"] for source in sources if source["state"] == "running"}


async def ends(process, limit):
    """Whether it ends within so many seconds."""
    try:
        await asyncio.to_thread(process.wait, limit)
        return True
    except subprocess.TimeoutExpired:
        return False


async def main():
    camera = await asyncio.start_server(endless, "127.0.0.1", 0)
    port = camera.sockets[0].getsockname()[1]
    config = [
        f'[[model]]\nname = "m"\nfile = "{given["model"]}"\nbackend = "tensorrt"\ninfer = "{given["infer"]}"\n',
        f'[http]\nlisten = "127.0.0.1:{http}"\n[rtsp]\nlisten = "127.0.0.1:{rtsp}"\n[[rtsp.tiles]]\nname = "wall"\nframerate = 30\n[webrtc]\nlisten = "127.0.0.1:0"\n']
    config += [f'[[source]]\nname = "s{n}"\naddress = "{given["clip"]}"\nloop = true\nsync = true\n' for n in range(SOURCES)]
    config += [f'[[source]]\nname = "bad"\naddress = "rtspt://127.0.0.1:{port}/a"\n']
    (folder / "config.toml").write_text("\n".join(config))
    process = subprocess.Popen([given["program"], "serve", "config.toml"], cwd=folder, stderr=journal.open("w"))
    try:
        end = time.monotonic() + LIMIT_S
        while len(await running()) < SOURCES:
            has_ended = await ends(process, 0.2)
            assert time.monotonic() < end and not has_ended, journal.read_text()[-3000:]
        one, wall = await asyncio.gather(watch(f"rtsp://127.0.0.1:{rtsp}/s0"), watch(f"rtsp://127.0.0.1:{rtsp}/wall"))
        status, headers, answer = await call("/sources/s1/whep", OFFER.encode())
        assert status == 201 and b"a=fingerprint:" in answer and b"a=candidate:" in answer, answer
        assert (await call(headers["Location"], method="DELETE"))[0] == 200
        metrics = (await call("/metrics"))[2].decode()
        late = re.findall(r'gst_trt_dropped_frames_total\{[^}]*source="s\d"[^}]*\} ([1-9]\S*)', metrics)
        process.terminate()
        status = await asyncio.to_thread(process.wait, 10)
        said = journal.read_text()
        assert "has no end" in said, f"nothing is said of the endless camera\n{said[-2000:]}"
        assert status == 0, f"status {status}\n{said[-2000:]}"
    finally:
        process.kill()
    print(f"{FRAMES} frames of a source in {one:.1f} s, of {SOURCES} in one picture in {wall:.1f} s, an offer answered; the endless camera is said; "
          f"{len(late)} sources lost frames; status 0")


http, rtsp = free_port(), free_port()
asyncio.run(main())
