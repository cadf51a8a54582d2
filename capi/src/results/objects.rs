// SPDX-License-Identifier: MPL-2.0
//! All objects of a frame at once.

use std::ffi::c_int;

use gsttrt_core::image::Candidate;

use super::{GstTrtResults, RESULTS};
use crate::error::{contained, done, wrong};
use crate::memory::fill;

/// See `gsttrt.h`.
///
/// # Safety
/// `boxes`, `confidences` and `class_ids` are each NULL or room for `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_results_objects(
    results: *const GstTrtResults,
    count: usize,
    boxes: *mut [f32; 4],
    confidences: *mut f32,
    class_ids: *mut u32,
) -> c_int {
    done(contained(|| {
        let results = RESULTS.find(results)?;
        let objects = &results.instances.boxes;
        if count != objects.len() {
            let what = format!("There is room for {count} objects, and {} were found", objects.len());
            return Err(wrong(what).remedy("Give room for gst_trt_results_count"));
        }
        let bbox = |Candidate { bbox, .. }: &Candidate| [bbox.x1, bbox.y1, bbox.width(), bbox.height()];
        // SAFETY: each is NULL, or room for as many values as there are objects.
        unsafe {
            fill("boxes", boxes, objects.iter().map(bbox))?;
            fill("confidences", confidences, objects.iter().map(|object| object.score))?;
            fill("class_ids", class_ids, objects.iter().map(|object| object.class))
        }
    }))
}
