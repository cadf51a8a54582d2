// SPDX-License-Identifier: MPL-2.0
//! TensorRT's own log as a debug category of GStreamer.

use std::sync::LazyLock;

use crate::backends::tensorrt::interfaces::{self, Level};

static TENSORRT: LazyLock<gst::DebugCategory> =
    LazyLock::new(|| gst::DebugCategory::new("trt-log", gst::DebugColorFlags::empty(), Some("TensorRT's log")));

/// From now on, TensorRT's log goes to the debug category `trt-log`.
pub fn take_over() {
    interfaces::set_hook(|level, line| match level {
        Level::Error => gst::error!(TENSORRT, "{line}"),
        Level::Warning => gst::warning!(TENSORRT, "{line}"),
        Level::Info => gst::info!(TENSORRT, "{line}"),
        Level::Verbose => gst::log!(TENSORRT, "{line}"),
    });
}
