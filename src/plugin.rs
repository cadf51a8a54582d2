// SPDX-License-Identifier: MPL-2.0
//! What GStreamer finds in the library when it loads it as a plugin.

use crate::gst::cuda::registry;
use crate::gst::export;
use crate::gst::meta::results;
use crate::{trtanalytics, trtinfer, trtmatch, trtnms, trtoverlay, trtpreprocess, trtpublish, trttrack};

fn register(plugin: &::gst::Plugin) -> Result<(), ::gst::glib::BoolError> {
    trtpreprocess::register(plugin)?;
    trtinfer::register(plugin)?;
    trtnms::register(plugin)?;
    trttrack::register(plugin)?;
    trtmatch::register(plugin)?;
    trtanalytics::register(plugin)?;
    trtoverlay::register(plugin)?;
    trtpublish::register(plugin)?;
    export::register();
    results::register();
    registry::offer_to_sessions();
    Ok(())
}

::gst::plugin_define!(
    trt,
    env!("CARGO_PKG_DESCRIPTION"),
    register,
    concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID")),
    // GStreamer 1.22 knows the licence by this name.
    "MPL-2.0",
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_REPOSITORY"),
    env!("BUILD_REL_DATE")
);
