// SPDX-License-Identifier: MPL-2.0
//! Maps of the frame as metas that other elements and applications read.
//!
//! Always a `GstCustomMeta` called [`NAME`], which any program can read without our headers, by
//! `gst_buffer_get_custom_meta`: its structure has an array `maps` of structures, one of each model. They have the
//! fields of [`fields::visit_map`], an array `regions` of structures with those of [`fields::visit_region`],
//! `frame-width` and `frame-height`, `held` where the map is that of an earlier frame, and in `picture` a GstBuffer
//! with the values, GRAY8 or GRAY16_LE by its GstVideoMeta. From GStreamer 1.26 on also a
//! `GstAnalyticsSegmentationMtd`, except of depths.

use std::collections::HashMap;
use std::sync::Once;

use gst::meta::CustomMeta;
use gsttrt_core::image::geometry::BBox;
use gsttrt_core::image::map::{MapKind, MapRegion, PixelMap};
use gsttrt_core::postprocess::{Instances, fields};

use super::gray::{self, picture, values};
use super::structure::Fields;

pub const NAME: &str = "GstTrtMapMeta";

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

/// The map of a frame, as in the message and the meta, but without its pixels.
pub fn structure(map: &PixelMap, labels: &[String]) -> gst::Structure {
    let mut to = Fields(gst::Structure::new_empty("map"));
    fields::visit_map(map, &mut to);
    let region = |region: &MapRegion| {
        let mut to = Fields(gst::Structure::new_empty("region"));
        fields::visit_region(map, region, labels, &mut to);
        to.0
    };
    // An empty array has no type.
    if !map.regions().is_empty() {
        to.0.set("regions", gst::Array::new(map.regions().iter().map(region)));
    }
    to.0
}

/// Attaches the map of a frame of that size to its buffer.
pub fn attach(buffer: &mut gst::BufferRef, instances: &Instances, labels: &[String], size: (u32, u32), is_held: bool) {
    let Some((map, picture)) = instances.frame_map().and_then(|map| Some((map, picture(map)?))) else { return };
    register();
    let mut to = Fields(structure(map, labels));
    to.frame_size(size);
    to.0.set("picture", picture);
    if is_held {
        to.0.set("held", true);
    }
    let is_there = CustomMeta::from_buffer(buffer, NAME).is_ok();
    let meta = if is_there { CustomMeta::from_mut_buffer(buffer, NAME) } else { CustomMeta::add(buffer, NAME) };
    let Ok(mut meta) = meta else { return };
    let structure = meta.mut_structure();
    let before = structure.get::<gst::Array>("maps").unwrap_or_default();
    let all = before.iter().filter_map(|value| value.get::<gst::Structure>().ok()).chain([to.0]);
    structure.set("maps", gst::Array::new(all));
}

/// The maps in the metas of a frame of that size: ours, else the segmentations of other elements that belong to no object.
pub fn maps(buffer: &gst::BufferRef, size: (u32, u32)) -> Vec<PixelMap> {
    let own = own(buffer, size);
    if own.is_empty() { super::segmentation::unrelated(buffer) } else { own }
}

/// Ours alone.
pub(super) fn own(buffer: &gst::BufferRef, size: (u32, u32)) -> Vec<PixelMap> {
    structures(buffer).iter().filter_map(|map| read(map, size)).collect()
}

fn structures(buffer: &gst::BufferRef) -> Vec<gst::Structure> {
    register();
    let meta = CustomMeta::from_buffer(buffer, NAME).ok();
    let array = meta.and_then(|meta| meta.structure().get::<gst::Array>("maps").ok()).unwrap_or_default();
    array.iter().filter_map(|value| value.get::<gst::Structure>().ok()).collect()
}

/// The names of the classes on maps of ours.
pub(super) fn labels(buffer: &gst::BufferRef) -> HashMap<u32, String> {
    let regions = structures(buffer).into_iter().filter_map(|map| map.get::<gst::Array>("regions").ok());
    let named = |value: &gst::glib::SendValue| {
        let region = value.get::<gst::Structure>().ok()?;
        Some((region.get::<u32>("class-id").ok()?, region.get::<String>("label").ok()?))
    };
    regions.flat_map(|regions| regions.iter().filter_map(named).collect::<Vec<_>>()).collect()
}

/// Gives the pictures their format and size again: GStreamer takes their bytes to another process, and no more.
pub(super) fn restore_pictures(buffer: &mut gst::BufferRef) {
    let mut maps = structures(buffer);
    let mut has_changed = false;
    for map in &mut maps {
        let Ok(picture) = map.get::<gst::Buffer>("picture") else { continue };
        let side = |name| map.get::<u32>(name).unwrap_or(0);
        if picture.meta::<gst_video::VideoMeta>().is_none()
            && let Some(picture) = gray::of_bytes(&picture, (side("map-width"), side("map-height")))
        {
            map.set("picture", picture);
            has_changed = true;
        }
    }
    if let (true, Ok(mut meta)) = (has_changed, CustomMeta::from_mut_buffer(buffer, NAME)) {
        meta.mut_structure().set("maps", gst::Array::new(maps));
    }
}

/// `None` where the structure is not as trtnms writes it.
fn read(from: &gst::StructureRef, (width, height): (u32, u32)) -> Option<PixelMap> {
    let number = |field| Some(from.get::<f64>(field).ok()? as f32).filter(|number| number.is_finite());
    let side = |field| from.get::<u32>(field).ok().filter(|&side| side > 0);
    let kind = match from.get::<&str>("kind").ok()? {
        "classes" => MapKind::Classes,
        "depth" => MapKind::Depth { minimum: number("minimum")?, maximum: number("maximum")? },
        "objects" => MapKind::Objects,
        _ => return None,
    };
    let [x, y] =
        [(width, "frame-width"), (height, "frame-height")].map(|(to, from)| Some(to as f32 / side(from)? as f32));
    let (scale_x, scale_y) = (x?, y?);
    let (left, top) = (number("x")?, number("y")?);
    let (right, bottom) = (left + number("w")?, top + number("h")?);
    let place = BBox::new(left * scale_x, top * scale_y, right * scale_x, bottom * scale_y);
    let regions = from.get::<gst::Array>("regions").unwrap_or_default();
    let region = |value: &gst::glib::SendValue| {
        let region = value.get::<gst::Structure>().ok()?;
        let number = |field| region.get::<u32>(field).ok();
        let id = u16::try_from(number("id")?).ok().filter(|&id| kind != MapKind::Objects || id > 0)?;
        Some(MapRegion { id, class: number("class-id")?, pixels: 0 })
    };
    let regions = regions.iter().filter_map(region).collect();
    let picture = from.get::<gst::Buffer>("picture").ok()?;
    let (values, map_size) = values(&picture, kind == MapKind::Classes)?;
    PixelMap::of(kind, map_size, values, place, regions).filter(|_| place.is_valid())
}
