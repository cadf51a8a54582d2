// SPDX-License-Identifier: MPL-2.0
//! The logs of TensorRT, OpenVINO and ONNX Runtime as a debug category of GStreamer.

use std::sync::LazyLock;

use gsttrt_core::backends::log::{self, Level};

static LOG: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("trt-log", gst::DebugColorFlags::empty(), Some("TensorRT's and ONNX Runtime's log"))
});

/// From now on, these logs go to the debug category `trt-log`.
pub fn take_over() {
    log::set_hook(|level, line| match level {
        Level::Error => gst::error!(LOG, "{line}"),
        Level::Warning => gst::warning!(LOG, "{line}"),
        Level::Info => gst::info!(LOG, "{line}"),
        Level::Verbose => gst::log!(LOG, "{line}"),
    });
}
