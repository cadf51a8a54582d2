// SPDX-License-Identifier: MPL-2.0
//! Marks on frames: a `GstCustomMeta` without fields.

use std::sync::OnceLock;

use gst::glib;
use gst::glib::translate::ToGlibPtr;
use gst::meta::CustomMeta;

/// A mark of that name.
pub struct FrameMark {
    name: &'static str,
    /// The type of its API, once it is registered.
    api: OnceLock<glib::ffi::GType>,
}

/// The model has not looked at the frame, and there is nothing in it to repeat.
pub static NOTHING_HELD: FrameMark = FrameMark::new("GstTrtHeldMeta");

impl FrameMark {
    pub const fn new(name: &'static str) -> Self {
        FrameMark { name, api: OnceLock::new() }
    }

    /// Registers the meta, once in a program.
    pub fn register(&self) {
        self.api();
    }

    fn api(&self) -> glib::ffi::GType {
        *self.api.get_or_init(|| {
            // Without tags: it stays on the frame through all elements that change the picture.
            if !CustomMeta::is_registered(self.name) {
                CustomMeta::register_simple(self.name);
            }
            // SAFETY: infos of metas are never freed.
            let info = unsafe { gst::ffi::gst_meta_get_info(self.name.to_glib_none().0).as_ref() };
            info.expect("it is registered").api
        })
    }

    pub fn set(&self, buffer: &mut gst::BufferRef) {
        if !self.is_on(buffer) {
            let _ = CustomMeta::add(buffer, self.name); // it is registered
        }
    }

    /// By its type: each frame is asked, and its name would be copied for each.
    pub fn is_on(&self, buffer: &gst::BufferRef) -> bool {
        // SAFETY: the buffer is only read.
        unsafe { !gst::ffi::gst_buffer_get_meta(buffer.as_ptr().cast_mut(), self.api()).is_null() }
    }
}
