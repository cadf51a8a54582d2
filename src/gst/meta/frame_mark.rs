// SPDX-License-Identifier: MPL-2.0
//! Marks on frames: a `GstCustomMeta` without fields.

use std::sync::Once;

use gst::meta::CustomMeta;

/// A mark of that name.
pub struct FrameMark {
    name: &'static str,
    registered: Once,
}

/// The model has not looked at the frame, and there is nothing in it to repeat.
pub static NOTHING_HELD: FrameMark = FrameMark::new("GstTrtHeldMeta");

impl FrameMark {
    pub const fn new(name: &'static str) -> Self {
        FrameMark { name, registered: Once::new() }
    }

    /// Registers the meta, once in a program.
    pub fn register(&self) {
        self.registered.call_once(|| {
            // Without tags: it stays on the frame through all elements that change the picture.
            if !CustomMeta::is_registered(self.name) {
                CustomMeta::register_simple(self.name);
            }
        });
    }

    pub fn set(&self, buffer: &mut gst::BufferRef) {
        if !self.is_on(buffer) {
            let _ = CustomMeta::add(buffer, self.name); // it is registered
        }
    }

    pub fn is_on(&self, buffer: &gst::BufferRef) -> bool {
        self.register();
        CustomMeta::from_buffer(buffer, self.name).is_ok()
    }
}
