#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Prints the objects in a video: label, confidence and box of each, as trtnms attaches them to the frames.

GST_PLUGIN_PATH=target/release /usr/bin/python3 examples/detections.py tests/data/sample.mp4 tests/models/shapes.onnx
"""

import signal
import sys

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` may end the program
if len(sys.argv) != 3:
    sys.exit("Usage: detections.py VIDEO MODEL")
video, model = sys.argv[1:]
try:
    import gi

    for name in "Gst", "GstApp", "GstVideo":
        gi.require_version(name, "1.0")
except (ImportError, ValueError) as error:
    sys.exit(f"Error: {error}. Debian's own /usr/bin/python3 with python3-gi and gir1.2-gst-plugins-base-1.0 has all that is needed.")
# README: begin
from gi.repository import GLib, Gst, GstApp, GstVideo  # GstApp brings try_pull_sample


def pop_end(bus):
    """The end or an error, if there is one yet. Warnings are printed."""
    while message := bus.pop_filtered(Gst.MessageType.WARNING | Gst.MessageType.ERROR | Gst.MessageType.EOS):
        if message.type != Gst.MessageType.WARNING:
            return message
        print(f"Warning: {message.parse_warning()[0].message}", file=sys.stderr)


Gst.init(None)
pipeline = Gst.parse_launch(
    f'filesrc location="{video}" ! decodebin ! videoconvert ! trtpreprocess ! trtinfer model-file="{model}" '
    "! trtnms draw=false ! appsink name=out sync=false")
out, bus = pipeline.get_by_name("out"), pipeline.get_bus()
started = pipeline.set_state(Gst.State.PLAYING) != Gst.StateChangeReturn.FAILURE
while not (end := pop_end(bus)) and started:
    if not (sample := out.try_pull_sample(Gst.SECOND // 10)):
        continue
    index = 0
    while roi := GstVideo.buffer_get_video_region_of_interest_meta_id(sample.get_buffer(), index):
        detection = roi.get_param("detection")  # None where a converter behind trtnms has dropped it
        confidence = f"{detection.get_double('confidence')[1]:.2f}" if detection else "?"
        print(f"{GLib.quark_to_string(roi.roi_type)} {confidence} {roi.x, roi.y, roi.w, roi.h}")
        index += 1
pipeline.set_state(Gst.State.NULL)
if not end or end.type == Gst.MessageType.ERROR:
    error, debug = end.parse_error() if end else (None, None)
    detail = " ".join((debug or "").splitlines()[1:])  # such as which file is not there
    sys.exit(f"Error: {error.message if error else 'The pipeline does not start.'} {detail}")
# README: end
