// SPDX-License-Identifier: MPL-2.0
//! The plugin as it is: what GStreamer looks for in a file comes from the crate.
pub use plugin::plugin_register_static;
