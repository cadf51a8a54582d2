// SPDX-License-Identifier: MPL-2.0
//! Fields of results in a GstStructure, for metas and messages.

use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::postprocess::fields::FieldVisitor;

/// A region of a buffer that is written.
pub(super) type Region<'a> = gst::MetaRefMut<'a, VideoRegionOfInterestMeta, gst::meta::Iterated>;

/// Calls a function with each parameter of a region, to be changed.
pub(super) fn change_params(region: &mut Region, mut change: impl FnMut(&mut gst::StructureRef)) {
    // SAFETY: the buffer is writable, and the list and its structures are the region's own.
    let mut next = unsafe { (*region.as_mut_ptr()).params };
    while !next.is_null() {
        // SAFETY: as above; nothing else refers to the structure meanwhile.
        change(unsafe { gst::StructureRef::from_glib_borrow_mut((*next).data.cast()) });
        // SAFETY: as above.
        next = unsafe { (*next).next };
    }
}

/// Fields of objects in a structure.
pub(super) struct Fields(pub gst::Structure);

impl Fields {
    /// The size of the frame that numbers are pixels of.
    pub fn frame_size(&mut self, (width, height): (u32, u32)) {
        self.integer("frame-width", width);
        self.integer("frame-height", height);
    }
}

impl FieldVisitor for Fields {
    fn text(&mut self, name: &'static str, value: &str) {
        self.0.set(name, value);
    }

    fn integer(&mut self, name: &'static str, value: u32) {
        self.0.set(name, value);
    }

    fn time(&mut self, name: &'static str, value: u64) {
        self.0.set(name, value);
    }

    fn number(&mut self, name: &'static str, value: f32) {
        self.0.set(name, f64::from(value));
    }

    fn numbers(&mut self, name: &'static str, values: &[f32]) {
        self.0.set(name, gst::Array::new(values.iter().map(|&value| f64::from(value))));
    }

    fn texts(&mut self, name: &'static str, values: &[String]) {
        self.0.set(name, gst::Array::new(values));
    }
}

/// The scales, horizontal and vertical, from the frame of a parameter to a frame of that size.
pub(super) fn scale(param: &gst::StructureRef, (width, height): (u32, u32)) -> Option<[f32; 2]> {
    let side = |field| param.get::<u32>(field).ok().filter(|&side| side > 0);
    Some([width as f32 / side("frame-width")? as f32, height as f32 / side("frame-height")? as f32])
}

/// An array of a parameter, whose numbers have these scales in turn.
pub(super) fn scaled_numbers(param: &gst::StructureRef, field: &str, scales: &[f32]) -> Option<Vec<f32>> {
    let array = param.get::<gst::Array>(field).ok()?;
    let numbers = array.iter().zip(scales.iter().cycle());
    numbers.map(|(value, scale)| Some(value.get::<f64>().ok()? as f32 * scale)).collect()
}
