// SPDX-License-Identifier: MPL-2.0
//! Ids of objects over several cameras, in metas: a parameter [`PARAM`] of the object's region, with `id` (64 bits, without a sign)
//! and `identities`, the name of the table that gave it.

use gst_video::VideoRegionOfInterestMeta;

/// The name of the parameter.
pub const PARAM: &str = "identity";

/// Attaches an id to each region of a frame that has one: those of the regions, in their order.
pub fn attach(buffer: &mut gst::BufferRef, ids: &[Option<u64>], identities: &str) {
    for (mut region, id) in buffer.iter_meta_mut::<VideoRegionOfInterestMeta>().zip(ids) {
        if let Some(id) = id {
            region.add_param(gst::Structure::builder(PARAM).field("id", *id).field("identities", identities).build());
        }
    }
}

/// The id of a region; the last one, where several tables have given it one.
pub fn of_region(meta: &gst::MetaRef<VideoRegionOfInterestMeta>) -> Option<u64> {
    meta.params().filter(|param| param.name() == PARAM).filter_map(|param| param.get::<u64>("id").ok()).last()
}

/// The ids of the regions of a frame, in their order.
pub fn of_regions(buffer: &gst::BufferRef) -> Vec<Option<u64>> {
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(|region| of_region(&region)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_were_attached() {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        let buffer = buffer.get_mut().unwrap();
        for label in ["a", "b", "c"] {
            VideoRegionOfInterestMeta::add(buffer, label, (0, 0, 1, 1));
        }
        attach(buffer, &[Some(7), None, Some(u64::MAX), Some(1)], "site");
        attach(buffer, &[Some(8)], "yard");
        let mut region = buffer.iter_meta_mut::<VideoRegionOfInterestMeta>().nth(1).unwrap();
        region.add_param(gst::Structure::builder(PARAM).field("id", "none").build());
        assert_eq!(of_regions(buffer), [Some(8), None, Some(u64::MAX)]);
        let notes = crate::gst::meta::read::objects(buffer, (9, 9)).annotations.into_iter().map(|found| found.notes);
        assert_eq!(notes.collect::<Vec<_>>(), [vec!["id 8".to_string()], vec![], vec![format!("id {}", u64::MAX)]]);
    }
}
