#!/usr/bin/env python3
"""Reads detections in an application: the labels, scores and boxes that trtnms hangs on each buffer.

GST_PLUGIN_PATH=target/release examples/detections.py tests/data/sample.mp4 tests/models/shapes.onnx
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
gi.require_version("GstVideo", "1.0")
from gi.repository import GLib, Gst, GstApp, GstVideo  # noqa: E402, F401

Gst.init(None)
video, model = sys.argv[1:3]
# README: begin
pipeline = Gst.parse_launch(
    f"filesrc location={video} ! decodebin ! videoconvert ! trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false ! appsink name=out sync=false")
out = pipeline.get_by_name("out")
pipeline.set_state(Gst.State.PLAYING)
while sample := out.pull_sample():
    index = 0
    while roi := GstVideo.buffer_get_video_region_of_interest_meta_id(sample.get_buffer(), index):
        confidence = roi.get_param("detection").get_double("confidence")[1]
        print(f"{GLib.quark_to_string(roi.roi_type)} {confidence:.2f} {roi.x, roi.y, roi.w, roi.h}")
        index += 1
# README: end
pipeline.set_state(Gst.State.NULL)
