# SPDX-License-Identifier: MPL-2.0
"""An RTSP server of a clip, again and again without an end: rtsp://127.0.0.1:PORT/NAME for each name.

  rtsp_server.py PORT CLIP NAME…        PORT 0 takes a free one; the port is printed once it listens

A name that begins with "two" has a second, small video; one that begins with "sound" has a tone in AAC;
one that begins with "tcp" comes by TCP alone. The clip is H.264 in MP4. Frames come at their own time; nothing is encoded.
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstApp, GstRtsp, GstRtspServer  # noqa: E402, F401

CAPS = "video/x-h264,stream-format=byte-stream,alignment=au"


def frames_of(clip):
    """The encoded frames, and how long they last together."""
    pipeline = Gst.parse_launch(f'filesrc location="{clip}" ! qtdemux ! h264parse config-interval=-1 ! {CAPS} ! appsink name=out sync=false')
    out = pipeline.get_by_name("out")
    pipeline.set_state(Gst.State.PLAYING)
    frames, caps = [], None
    while sample := out.pull_sample():
        frames.append(sample.get_buffer())
        caps = sample.get_caps()
    pipeline.set_state(Gst.State.NULL)
    return frames, caps, len(frames) * frames[0].duration


class Round:
    """Pushes the frames of the clip, round after round, with time stamps that go on."""

    def __init__(self, clip, source):
        self.frames, caps, self.length = clip
        self.number = 0
        source.set_property("caps", caps)
        source.connect("need-data", self.push)

    def push(self, source, _):
        rounds, index = divmod(self.number, len(self.frames))
        frame = self.frames[index].copy_deep()  # copy() in Python is the same buffer again
        begun = rounds * self.length - self.frames[0].pts
        frame.pts += begun
        if frame.dts != Gst.CLOCK_TIME_NONE:
            frame.dts = max(0, frame.dts + begun)
        self.number += 1
        source.emit("push-buffer", frame)


def main():
    port, path, *names = sys.argv[1:]
    Gst.init(None)
    clip = frames_of(path)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(port)
    for name in names:
        factory = GstRtspServer.RTSPMediaFactory()
        line = "appsrc name=source format=time ! h264parse ! rtph264pay name=pay0 pt=96"
        if name.startswith("two"):
            small = "videotestsrc is-live=true ! video/x-raw,width=160,height=120,framerate=15/1"
            line += f" {small} ! x264enc speed-preset=ultrafast tune=zerolatency key-int-max=5 ! rtph264pay name=pay1 pt=97"
        if name.startswith("sound"):
            line += " audiotestsrc is-live=true ! audio/x-raw,rate=16000,channels=1 ! avenc_aac ! aacparse ! rtpmp4gpay name=pay1 pt=97"
        factory.set_launch(f"( {line} )")
        if name.startswith("tcp"):
            factory.set_protocols(GstRtsp.RTSPLowerTrans.TCP)
        factory.connect("media-configure", lambda _, media: Round(clip, media.get_element().get_by_name("source")))
        server.get_mount_points().add_factory(f"/{name}", factory)
    if not server.attach(None):
        sys.exit("cannot listen")
    print(server.get_bound_port(), flush=True)
    GLib.MainLoop().run()


main()
