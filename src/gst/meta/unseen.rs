// SPDX-License-Identifier: MPL-2.0
//! A mark on frames that may show more objects than their metas have: no model has looked at them, or its results cannot be
//! read. What hides objects must hide all of such a frame.
//!
//! A `GstCustomMeta` called `GstTrtUnseenMeta`, without fields. Where it is only an object that a second model has not looked into, its region
//! has a parameter `unseen` instead, without fields too.

use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::geometry::Rect;

use super::frame_mark::FrameMark;

static UNSEEN: FrameMark = FrameMark::new("GstTrtUnseenMeta");
/// Of a region.
const PARAM: &str = "unseen";

/// Registers the meta, once in a program.
pub fn register() {
    UNSEEN.register();
}

/// Marks a frame.
pub fn mark(buffer: &mut gst::BufferRef) {
    UNSEEN.set(buffer);
}

/// Marks regions by their indexes. For an object without one the frame is marked.
pub fn mark_regions(buffer: &mut gst::BufferRef, unseen: &[Option<usize>]) {
    if unseen.contains(&None) {
        mark(buffer);
    }
    for (index, mut region) in buffer.iter_meta_mut::<VideoRegionOfInterestMeta>().enumerate() {
        if unseen.contains(&Some(index)) {
            region.add_param(gst::Structure::new_empty(PARAM));
        }
    }
}

/// The regions that are marked.
pub fn marked_regions(buffer: &gst::BufferRef) -> impl Iterator<Item = Rect> {
    let marked = buffer.iter_meta::<VideoRegionOfInterestMeta>().filter(|region| region.param(PARAM).is_some());
    marked.map(|region| {
        let (left, top, width, height) = region.rect();
        Rect { left, top, right: left.saturating_add(width), bottom: top.saturating_add(height) }
    })
}

pub fn is_marked(buffer: &gst::BufferRef) -> bool {
    UNSEEN.is_on(buffer)
}
