// SPDX-License-Identifier: MPL-2.0
//! How an object is turned: what a classifier of the orientation of text has found, for those who cut the object out.
//!
//! A parameter [`NAME`] of the region for each classifier, with the `degrees` by which what it saw is turned (0 or 180), their
//! `confidence`, the `model`, and `held` where the result is that of an earlier frame. What a second one sees was turned by the first.

use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::postprocess::RankedClass;

use crate::gst::meta::tensor::ObjectRegion;

/// The name of the parameter.
pub const NAME: &str = "orientation";

/// Attaches the orientation of an object. Nothing is attached where its region is gone.
pub fn attach(
    buffer: &mut gst::BufferRef,
    object: &ObjectRegion,
    degrees: u32,
    found: &RankedClass,
    model: &str,
    is_held: bool,
) {
    let region = object.region.and_then(|index| buffer.iter_meta_mut::<VideoRegionOfInterestMeta>().nth(index));
    let Some(mut region) = region else { return };
    let mut params = gst::Structure::builder(NAME)
        .field("degrees", degrees)
        .field("confidence", f64::from(found.score))
        .field("model", model)
        .build();
    if is_held {
        params.set("held", true);
    }
    region.add_param(params);
}

/// Whether a region is upside down, by all that was found of it.
pub fn is_turned(meta: &gst::MetaRef<VideoRegionOfInterestMeta>) -> bool {
    let is_half = |param: &gst::StructureRef| param.name() == NAME && param.get::<u32>("degrees") == Ok(180);
    meta.params().filter(|&param| is_half(param)).count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_half_turns_are_none() {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        let buffer = buffer.get_mut().unwrap();
        VideoRegionOfInterestMeta::add(buffer, "text", (1, 2, 3, 4));
        let object = ObjectRegion { region: Some(0), analytics: None, track_id: None, input: None, is_expected: true };
        let mut seen = Vec::new();
        for (degrees, region) in [(180, Some(0)), (0, Some(0)), (180, Some(0)), (180, Some(1)), (180, None)] {
            let object = ObjectRegion { region, ..object.clone() };
            attach(buffer, &object, degrees, &RankedClass { class: 1, score: 0.95 }, "turned", region.is_none());
            seen.push(is_turned(&buffer.meta::<VideoRegionOfInterestMeta>().unwrap()));
        }
        assert_eq!(seen, [true, true, false, false, false]);
        let meta = buffer.meta::<VideoRegionOfInterestMeta>().unwrap();
        let first = meta.param(NAME).unwrap();
        assert_eq!((first.get::<&str>("model"), first.has_field("held")), (Ok("turned"), false));
    }
}
