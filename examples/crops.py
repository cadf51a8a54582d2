#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Writes each object in a video as a JPEG: FRAME-NUMBER-LABEL.jpg in a folder.

GST_PLUGIN_PATH=target/release /usr/bin/python3 examples/crops.py tests/data/sample.mp4 tests/models/shapes.onnx crops
"""

import pathlib
import sys

if len(sys.argv) != 4:
    sys.exit("Usage: crops.py VIDEO MODEL FOLDER")
video, model, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
try:
    import gi

    for name in "Gst", "GstApp", "GstVideo":
        gi.require_version(name, "1.0")
except (ImportError, ValueError) as error:
    sys.exit(f"Error: {error}. Debian's own /usr/bin/python3 with python3-gi and gir1.2-gst-plugins-base-1.0 has all that is needed.")
from gi.repository import GLib, Gst, GstApp, GstVideo  # GstApp brings try_pull_sample


# README: begin
def regions(buffer):
    index = 0
    while roi := GstVideo.buffer_get_video_region_of_interest_meta_id(buffer, index):
        yield roi
        index += 1


def crop(buffer, stride, roi):
    """The rectangle of an RGB frame as JPEG. Rows of RGB begin at multiples of 4 bytes."""
    readable, frame = buffer.map(Gst.MapFlags.READ)
    if not readable:
        sys.exit("Error: The frame cannot be read.")
    lines = (frame.data[y * stride + 3 * roi.x:][:3 * roi.w] for y in range(roi.y, roi.y + roi.h))
    pixels = b"".join(bytes(line) + bytes(-3 * roi.w % 4) for line in lines)
    buffer.unmap(frame)
    caps = Gst.Caps.from_string(f"video/x-raw,format=RGB,width={roi.w},height={roi.h},framerate=1/1")
    picture = Gst.Sample.new(Gst.Buffer.new_wrapped(pixels), caps, None, None)
    jpeg = GstVideo.video_convert_sample(picture, Gst.Caps.from_string("image/jpeg"), 5 * Gst.SECOND).get_buffer()
    return jpeg.extract_dup(0, jpeg.get_size())


def pop_error(bus):
    """An error, if there is one yet. Warnings are printed."""
    while message := bus.pop_filtered(Gst.MessageType.WARNING | Gst.MessageType.ERROR):
        if message.type == Gst.MessageType.ERROR:
            return message
        print(f"Warning: {message.parse_warning()[0].message}", file=sys.stderr)


Gst.init(None)
pipeline = Gst.parse_launch(
    f'filesrc location="{video}" ! decodebin ! videoconvert ! video/x-raw,format=RGB ! trtpreprocess '
    f'! trtinfer model-file="{model}" ! trtnms draw=false ! appsink name=out sync=false max-buffers=4')
out, bus = pipeline.get_by_name("out"), pipeline.get_bus()
folder.mkdir(parents=True, exist_ok=True)
started = pipeline.set_state(Gst.State.PLAYING) != Gst.StateChangeReturn.FAILURE
frame = 0
while not (end := pop_error(bus)) and started and not out.get_property("eos"):
    if not (sample := out.try_pull_sample(Gst.SECOND // 10)):
        continue
    stride = GstVideo.VideoInfo.new_from_caps(sample.get_caps()).stride[0]
    for number, roi in enumerate(regions(sample.get_buffer())):
        label = GLib.quark_to_string(roi.roi_type).replace("/", "-")
        (folder / f"{frame:05d}-{number}-{label}.jpg").write_bytes(crop(sample.get_buffer(), stride, roi))
    frame += 1
pipeline.set_state(Gst.State.NULL)
if end or not started:
    error, debug = end.parse_error() if end else (None, None)
    detail = " ".join((debug or "").splitlines()[1:])  # such as which file is not there
    sys.exit(f"Error: {error.message if error else 'The pipeline does not start.'} {detail}")
# README: end
