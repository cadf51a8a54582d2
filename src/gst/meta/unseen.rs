// SPDX-License-Identifier: MPL-2.0
//! A mark on frames that may show more objects than their metas have: no model has looked at them, or its results cannot be
//! read. What hides objects must hide all of such a frame.
//!
//! A `GstCustomMeta` called [`NAME`], without fields.

use std::sync::Once;

use gst::meta::CustomMeta;

pub const NAME: &str = "GstTrtUnseenMeta";

/// Registers the meta, once in a program.
pub fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // Without tags: it stays on the frame through all elements that change the picture.
        if !CustomMeta::is_registered(NAME) {
            CustomMeta::register_simple(NAME);
        }
    });
}

/// Marks a frame.
pub fn mark(buffer: &mut gst::BufferRef) {
    register();
    if CustomMeta::from_buffer(buffer, NAME).is_err() {
        let _ = CustomMeta::add(buffer, NAME); // it is registered
    }
}

pub fn is_marked(buffer: &gst::BufferRef) -> bool {
    register();
    CustomMeta::from_buffer(buffer, NAME).is_ok()
}
