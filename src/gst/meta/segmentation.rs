// SPDX-License-Identifier: MPL-2.0
//! `GstAnalyticsSegmentationMtd`, the mask of one object, as GStreamer's own decoder of segmentation models writes it,
//! and maps of the frame.

use gst::glib::Quark;
use gst_video::VideoFormat;
use gsttrt_core::image::geometry::{BBox, Rect};
use gsttrt_core::image::map::{MapKind, MapRegion, PixelMap};
use gsttrt_core::image::masks::Mask;

use super::gray::{self, gray, values};
use super::relations::{Metadata, Relation, Relations, RelationsMut, SegmentationKind};

/// A picture of the mask's rectangle in 8 bits: `region` where pixels are the object's, else 0. `None` where there are none.
fn picture(mask: &Mask, region: u8) -> Option<gst::Buffer> {
    let mut pixels = mask.to_bytes();
    pixels.iter_mut().for_each(|pixel| *pixel &= region);
    gray(pixels, VideoFormat::Gray8, (mask.rect().width(), mask.rect().height()))
}

/// Adds the mask of an object; `region` is the value of its pixels. Returns the id of the added metadata.
pub fn add_instance(relations: &mut RelationsMut, mask: &Mask, region: u8) -> Option<u32> {
    let rect = mask.rect();
    let place = [rect.left, rect.top, rect.width(), rect.height()];
    relations.add_segmentation(picture(mask, region)?, SegmentationKind::Instance, &mut [0, region.into()], place)
}

/// Adds a map of classes or objects; a classification names the class of each region. Returns the id of the added metadata.
pub fn add_map(relations: &mut RelationsMut, map: &PixelMap, mut name: impl FnMut(u32) -> Quark) -> Option<u32> {
    let (kind, background) = match map.kind() {
        MapKind::Classes => (SegmentationKind::Semantic, None),
        MapKind::Objects => (SegmentationKind::Instance, Some(0)),
        _ => return None, // depths are no segmentation
    };
    let mut regions: Vec<u32> =
        background.into_iter().chain(map.regions().iter().map(|region| region.id.into())).collect();
    let place = map.place();
    let [left, top, right, bottom] = [place.x1, place.y1, place.x2, place.y2].map(|edge| edge.round().max(0.0) as u32);
    let place = [left, top, right - left, bottom - top];
    let id = relations.add_segmentation(gray::picture(map)?, kind, &mut regions, place)?;
    if map.kind() == MapKind::Classes && !map.regions().is_empty() {
        let names = map.regions().iter().map(|region| (name(region.class), 1.0));
        if let Some(classes) = relations.add_classes(names) {
            relations.relate(Relation::NToN, id, classes);
        }
    }
    Some(id)
}

/// The values of a segmentation of any element, their width and height, and the box on the frame that they fill.
fn read(relations: &Relations, id: u32) -> Option<(Vec<u16>, (u32, u32), BBox)> {
    let (buffer, [x, y, width, height]) = relations.picture(id)?;
    let (values, size) = values(&buffer, false).filter(|(values, _)| !values.is_empty())?;
    let [x1, y1, x2, y2] = [x, y, x + width, y + height].map(|edge| edge as f32);
    let place = BBox::new(x1, y1, x2, y2);
    place.is_valid().then_some((values, size, place))
}

/// The mask of an object on a frame of that size: where its segmentation has any region but 0, by custom the background.
pub fn mask_of(relations: &Relations, object: u32, size: (u32, u32)) -> Option<Mask> {
    let of_object = relations.belonging_to(object, Metadata::Segmentation);
    let (values, from, place) = of_object.into_iter().find_map(|id| read(relations, id))?;
    let pixels: Vec<bool> = values.into_iter().map(|value| value > 0).collect();
    Some(Mask::of(Rect::from(from), &pixels).placed(from, &place, size))
}

/// Segmentations that belong to no object, as maps in which 0 is nothing.
pub fn unrelated(buffer: &gst::BufferRef) -> Vec<PixelMap> {
    let mut maps = Vec::new();
    for relations in Relations::of(buffer) {
        let objects = relations.all(Metadata::Object);
        let of_objects: Vec<u32> =
            objects.flat_map(|object| relations.belonging_to(object, Metadata::Segmentation)).collect();
        for id in relations.all(Metadata::Segmentation).filter(|id| !of_objects.contains(id)) {
            let Some((values, size, place)) = read(&relations, id) else { continue };
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
pub fn classifications(relations: &Relations) -> Vec<u32> {
    let all = relations.all(Metadata::Segmentation);
    all.flat_map(|id| relations.related(id, Relation::NToN, Metadata::Classes)).collect()
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
