#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Prints what happens in zones and at lines of a video, as messages on the bus and as metas of the frames.

GST_PLUGIN_PATH=target/release /usr/bin/python3 examples/events.py tests/data/sample.mp4 tests/models/shapes.onnx zones.json
"""

import signal
import sys
import warnings

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` may end the program
warnings.simplefilter("ignore", DeprecationWarning)  # get_nth works without further packages, too
if len(sys.argv) != 4:
    sys.exit("Usage: events.py VIDEO MODEL ZONES")
video, model, zones = sys.argv[1:]
try:
    import gi

    for name in "Gst", "GstApp":
        gi.require_version(name, "1.0")
except (ImportError, ValueError) as error:
    sys.exit(f"Error: {error}. Debian's own /usr/bin/python3 with python3-gi and gir1.2-gst-plugins-base-1.0 has all that is needed.")
# README: begin
from gi.repository import Gst, GstApp  # GstApp brings try_pull_sample


def describe(event):
    """An event is the same structure on the bus and on its frame. What happens to a zone as a whole has no object."""
    who = f"{event.get_value('label')} {event.get_value('track-id')}" if event.has_field("track-id") else "-"
    return f"{event.get_value('event')} {event.get_value('name')}: {who}, count {event.get_value('count')}"


def events_of(buffer):
    """Those of a frame, which has the meta only if something has happened on it. They are there as long as their array is."""
    meta = buffer.get_custom_meta("GstTrtEventMeta")
    events = meta.get_structure().get_array("events")[1] if meta else None
    return [describe(events.get_nth(number)) for number in range(events.n_values)] if events else []


def pop_end(bus):
    """The end or an error, if there is one yet. What comes before it on the bus is printed."""
    kinds = Gst.MessageType.ELEMENT | Gst.MessageType.WARNING | Gst.MessageType.ERROR | Gst.MessageType.EOS
    while message := bus.pop_filtered(kinds):
        if message.type in (Gst.MessageType.ERROR, Gst.MessageType.EOS):
            return message
        if message.type == Gst.MessageType.WARNING:
            print(f"Warning: {message.parse_warning()[0].message}", file=sys.stderr)
        elif message.get_structure().get_name() == "trt-event":
            print(f"bus: {describe(message.get_structure())}")


Gst.init(None)
pipeline = Gst.parse_launch(
    f'filesrc location="{video}" ! decodebin ! videoconvert ! trtpreprocess ! trtinfer model-file="{model}" '
    f'! trtnms draw=false ! trttrack ! trtanalytics config-file="{zones}" ! appsink name=out sync=false')
out, bus = pipeline.get_by_name("out"), pipeline.get_bus()
started = pipeline.set_state(Gst.State.PLAYING) != Gst.StateChangeReturn.FAILURE
frame = 0
while not (end := pop_end(bus)) and started:
    if not (sample := out.try_pull_sample(Gst.SECOND // 10)):
        continue
    for event in events_of(sample.get_buffer()):
        print(f"frame {frame}: {event}")
    frame += 1
pipeline.set_state(Gst.State.NULL)
if not end or end.type == Gst.MessageType.ERROR:
    error, debug = end.parse_error() if end else (None, None)
    detail = " ".join((debug or "").splitlines()[1:])  # such as which file is not there
    sys.exit(f"Error: {error.message if error else 'The pipeline does not start.'} {detail}")
# README: end
