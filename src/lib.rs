// SPDX-License-Identifier: MPL-2.0
//! GStreamer elements that run vision models on video: `trtpreprocess ! trtinfer ! trtnms`.
//!
//! GStreamer loads this library as a plugin. Programs that link it call [`plugin_register_static`]. Models without a
//! pipeline: the crate `gsttrt-core`.
//!
//! # Layout
//!
//! Private but for the other crates of this workspace. Each line uses only those above it.
//!
//! * `gst`: GStreamer's side: metas, memory, contexts, statistics.
//! * `trtpreprocess`, `trtinfer`, `trtnms`, `trttrack`, `trtmatch`, `trtanalytics`, `trtoverlay`, `trtpublish`: the elements,
//!   thin: settings, caps, one call per frame.

#[doc(hidden)]
pub mod gst;
mod plugin;
#[doc(hidden)]
pub mod trtanalytics;
#[doc(hidden)]
pub mod trtinfer;
#[doc(hidden)]
pub mod trtmatch;
#[doc(hidden)]
pub mod trtnms;
#[doc(hidden)]
pub mod trtoverlay;
#[doc(hidden)]
pub mod trtpreprocess;
#[doc(hidden)]
pub mod trtpublish;
#[doc(hidden)]
pub mod trttrack;

#[cfg(test)]
#[path = "../core/src/test/fakes.rs"]
#[allow(dead_code)] // the core uses more of it
mod fakes;
#[cfg(test)]
#[path = "../core/src/test.rs"]
#[allow(dead_code)]
mod test;
// What those two take from the core, whose tests share them.
#[cfg(test)]
use gsttrt_core::{cuda, error};

pub use gst::cuda::registry::cuda_context;
pub use plugin::plugin_desc::plugin_register_static;
