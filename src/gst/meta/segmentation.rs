// SPDX-License-Identifier: MPL-2.0
//! `GstAnalyticsSegmentationMtd`, which the bindings do not wrap: the mask of one object, as GStreamer's own decoder of
//! segmentation models writes it, and maps of the frame.

#[cfg(feature = "v1_26")]
use gst::glib::translate::{IntoGlibPtr, from_glib};
#[cfg(feature = "v1_26")]
use gst_analytics::{AnalyticsRelationMeta, ffi};
use gst_video::VideoFormat;
use gsttrt_core::image::masks::Mask;

use super::gray::gray;

/// A picture of the mask's rectangle in 8 bits: `region` where pixels are the object's, else 0. `None` where there are none.
pub fn picture(mask: &Mask, region: u8) -> Option<gst::Buffer> {
    let mut pixels = mask.to_bytes();
    pixels.iter_mut().for_each(|pixel| *pixel &= region);
    gray(pixels, VideoFormat::Gray8, (mask.rect().width(), mask.rect().height()))
}

#[cfg(feature = "v1_26")]
type Relations<'a> = gst::MetaRefMut<'a, AnalyticsRelationMeta, gst::meta::Standalone>;

/// Adds the mask of an object; `region` is the value of its pixels. Returns the id of the added metadata.
#[cfg(feature = "v1_26")]
pub fn add_instance(relations: &mut Relations, mask: &Mask, region: u8) -> Option<u32> {
    let rect = mask.rect();
    let place = [rect.left, rect.top, rect.width(), rect.height()];
    add(relations, picture(mask, region)?, ffi::GST_SEGMENTATION_TYPE_INSTANCE, &mut [0, region.into()], place)
}

/// Adds a map of classes or objects; a classification names the class of each region. Returns the id of the added metadata.
#[cfg(feature = "v1_26")]
pub fn add_map(
    relations: &mut Relations,
    map: &gsttrt_core::image::map::PixelMap,
    name: impl FnMut(u32) -> gst::glib::Quark,
) -> Option<u32> {
    use gst_analytics::prelude::*;
    use gsttrt_core::image::map::MapKind;

    let (kind, background) = match map.kind() {
        MapKind::Classes => (ffi::GST_SEGMENTATION_TYPE_SEMANTIC, None),
        MapKind::Objects => (ffi::GST_SEGMENTATION_TYPE_INSTANCE, Some(0)),
        _ => return None, // depths are no segmentation
    };
    let mut regions: Vec<u32> =
        background.into_iter().chain(map.regions().iter().map(|region| region.id.into())).collect();
    let place = map.place();
    let [left, top, right, bottom] = [place.x1, place.y1, place.x2, place.y2].map(|edge| edge.round().max(0.0) as u32);
    let id = add(relations, super::gray::picture(map)?, kind, &mut regions, [left, top, right - left, bottom - top])?;
    if map.kind() == MapKind::Classes && !map.regions().is_empty() {
        let names: Vec<_> = map.regions().iter().map(|region| region.class).map(name).collect();
        if let Ok(classes) = relations.add_cls_mtd(&vec![1.0; names.len()], &names).map(|classes| classes.id()) {
            let _ = relations.set_relation(gst_analytics::RelTypes::N_TO_N, id, classes);
        }
    }
    Some(id)
}

#[cfg(feature = "v1_26")]
fn add(
    relations: &mut Relations,
    picture: gst::Buffer,
    kind: ffi::GstSegmentationType,
    regions: &mut [u32],
    [x, y, width, height]: [u32; 4],
) -> Option<u32> {
    let mut added = ffi::GstAnalyticsSegmentationMtd { id: 0, meta: std::ptr::null_mut() };
    // SAFETY: the meta exists and is writable; it takes over the buffer, which has a GstVideoMeta, and copies the regions.
    let is_added: bool = unsafe {
        from_glib(ffi::gst_analytics_relation_meta_add_segmentation_mtd(
            relations.as_mut_ptr(),
            picture.into_glib_ptr(),
            kind,
            regions.len(),
            regions.as_mut_ptr(),
            x as i32,
            y as i32,
            width,
            height,
            &mut added,
        ))
    };
    is_added.then_some(added.id)
}

#[cfg(feature = "v1_26")]
pub use read::{classifications, mask_of, unrelated};

/// Segmentations of any element.
#[cfg(feature = "v1_26")]
mod read {
    use gst::glib::translate::{IntoGlib, from_glib_full};
    use gst_analytics::prelude::*;
    use gst_analytics::{AnalyticsODMtd, AnalyticsRelationMeta, RelTypes, ffi};
    use gsttrt_core::image::geometry::{BBox, Rect};
    use gsttrt_core::image::map::{MapKind, MapRegion, PixelMap};
    use gsttrt_core::image::masks::Mask;

    use super::super::gray::values;

    type Relations<'a> = gst::MetaRef<'a, AnalyticsRelationMeta>;

    /// The ids of all segmentations, or of those to which a metadata has such a relation.
    fn ids(meta: &Relations, from: Option<(u32, RelTypes)>) -> Vec<u32> {
        let (instance, mut state) = (meta.as_ptr().cast_mut(), std::ptr::null_mut());
        let mut found = ffi::GstAnalyticsMtd { id: 0, meta: std::ptr::null_mut() };
        let next = || {
            // SAFETY: the meta is alive and is only read; `state` is null at first and then what the call before left.
            let is_found = unsafe {
                let kind = ffi::gst_analytics_segmentation_mtd_get_mtd_type();
                match from {
                    Some((id, relation)) => ffi::gst_analytics_relation_meta_get_direct_related(
                        instance,
                        id,
                        relation.into_glib(),
                        kind,
                        &mut state,
                        &mut found,
                    ),
                    None => ffi::gst_analytics_relation_meta_iterate(instance, &mut state, kind, &mut found),
                }
            };
            (is_found != 0).then_some(found.id)
        };
        std::iter::from_fn(next).collect()
    }

    /// Of an object.
    fn ids_of(meta: &Relations, object: u32) -> Vec<u32> {
        [RelTypes::CONTAIN, RelTypes::RELATE_TO]
            .into_iter()
            .flat_map(|relation| ids(meta, Some((object, relation))))
            .collect()
    }

    /// The values of a segmentation, their width and height, and the box on the frame that they fill.
    fn picture(meta: &Relations, id: u32) -> Option<(Vec<u16>, (u32, u32), BBox)> {
        let mtd = ffi::GstAnalyticsSegmentationMtd { id, meta: meta.as_ptr().cast_mut() };
        let (mut x, mut y, mut width, mut height) = (0, 0, 0, 0);
        // SAFETY: the meta is alive, and the id is that of one of its segmentations. The buffer is ours then.
        let buffer: Option<gst::Buffer> = unsafe {
            from_glib_full(ffi::gst_analytics_segmentation_mtd_get_mask(&mtd, &mut x, &mut y, &mut width, &mut height))
        };
        let buffer = buffer?;
        let (values, size) = values(&buffer, false).filter(|(values, _)| !values.is_empty())?;
        let edges = [f64::from(x), f64::from(y), f64::from(x) + f64::from(width), f64::from(y) + f64::from(height)];
        let [x1, y1, x2, y2] = edges.map(|edge| edge as f32);
        let place = BBox::new(x1, y1, x2, y2);
        place.is_valid().then_some((values, size, place))
    }

    /// The mask of an object on a frame of that size: where its segmentation has any region but 0, by custom the background.
    pub fn mask_of(meta: &Relations, object: u32, size: (u32, u32)) -> Option<Mask> {
        let (values, from, place) = ids_of(meta, object).into_iter().find_map(|id| picture(meta, id))?;
        let pixels: Vec<bool> = values.into_iter().map(|value| value > 0).collect();
        Some(Mask::of(Rect::from(from), &pixels).placed(from, &place, size))
    }

    /// Segmentations that belong to no object, as maps in which 0 is nothing.
    pub fn unrelated(buffer: &gst::BufferRef) -> Vec<PixelMap> {
        let mut maps = Vec::new();
        for meta in buffer.iter_meta::<AnalyticsRelationMeta>() {
            let of_objects: Vec<u32> =
                meta.iter::<AnalyticsODMtd>().flat_map(|object| ids_of(&meta, object.id())).collect();
            for id in ids(&meta, None).into_iter().filter(|id| !of_objects.contains(id)) {
                let Some((values, size, place)) = picture(&meta, id) else { continue };
                let mut regions: Vec<u16> = values.clone();
                regions.sort_unstable();
                regions.dedup();
                let region = |id: u16| MapRegion { id, class: id.into(), pixels: 0 };
                let regions = regions.into_iter().filter(|&id| id > 0).map(region).collect();
                maps.extend(PixelMap::of(MapKind::Objects, size, values, place, regions));
            }
        }
        maps
    }

    /// The ids of the classifications that name the regions of segmentations.
    pub fn classifications(meta: &Relations) -> Vec<u32> {
        let named = |id| meta.iter_direct_related::<gst_analytics::AnalyticsClassificationMtd>(id, RelTypes::N_TO_N);
        ids(meta, None).into_iter().flat_map(|id| named(id).map(|classes| classes.id()).collect::<Vec<_>>()).collect()
    }
}

#[cfg(test)]
mod tests {
    use gst_video::VideoMeta;
    use gsttrt_core::image::geometry::Rect;

    use super::*;

    #[test]
    fn a_picture_has_the_pixels_of_its_mask() {
        gst::init().unwrap();
        let rect = Rect { left: 5, top: 2, right: 8, bottom: 4 };
        let mask = Mask::of(rect, &[true, false, true, false, false, true]);
        let buffer = picture(&mask, 7).unwrap();
        assert_eq!(buffer.map_readable().unwrap().as_slice(), [7, 0, 7, 0, 0, 7]);
        let meta = buffer.meta::<VideoMeta>().unwrap();
        assert_eq!((meta.format(), meta.width(), meta.height(), meta.stride()), (VideoFormat::Gray8, 3, 2, &[3][..]));
        assert!(picture(&Mask::default(), 7).is_none());
    }
}
