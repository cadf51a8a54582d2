// SPDX-License-Identifier: MPL-2.0
//! Zones and tripwires on frames: what trtanalytics writes, and trtoverlay draws.
//!
//! A `GstCustomMeta` called [`NAME`]: its structure has arrays `zones` and `tripwires` of structures, with `name`,
//! `points` (x and y of each in pixels of a frame of `frame-width` x `frame-height`), their counts, and where they are
//! configured `color` and `thickness`. And at the region of each object in a zone a parameter [`PARAM`].

use std::sync::Once;

use gst::glib;
use gst::meta::CustomMeta;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::analytics::config::BoundaryLook;
use gsttrt_core::analytics::geometry::{CrossingDirection, Point};
use gsttrt_core::analytics::watched::{Tripwire, Zone};
use gsttrt_core::analytics::{Analytics, AnalyticsEventKind};
use gsttrt_core::image::overlay::Boundary;
use gsttrt_core::postprocess::fields::FieldVisitor;

use super::events::direction_name;
use super::structure::{Fields, scale, scaled_numbers};

pub const NAME: &str = "GstTrtZoneMeta";

/// The name of the parameter of regions.
pub const PARAM: &str = "analytics";

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

/// The boundaries of a stream, as they are attached to its frames.
#[derive(Debug)]
pub struct ZoneStructures {
    zones: gst::Array,
    tripwires: gst::Array,
    size: (u32, u32),
}

impl ZoneStructures {
    /// `None` where there is nothing to draw.
    pub fn new(analytics: &Analytics, (with_zones, with_tripwires): (bool, bool), size: (u32, u32)) -> Option<Self> {
        let zones = analytics.zones.iter().filter(|_| with_zones);
        let tripwires = analytics.tripwires.iter().filter(|_| with_tripwires);
        if zones.clone().next().is_none() && tripwires.clone().next().is_none() {
            return None;
        }
        let (zones, tripwires) = (gst::Array::new(zones.map(of_zone)), gst::Array::new(tripwires.map(of_tripwire)));
        Some(ZoneStructures { zones, tripwires, size })
    }

    /// Attaches them to a frame, in place of those of another element.
    pub fn attach(&self, buffer: &mut gst::BufferRef) {
        register();
        let meta = if CustomMeta::from_buffer(buffer, NAME).is_ok() {
            CustomMeta::from_mut_buffer(buffer, NAME)
        } else {
            CustomMeta::add(buffer, NAME)
        };
        let Ok(mut meta) = meta else { return };
        let structure = meta.mut_structure();
        structure.set("frame-width", self.size.0);
        structure.set("frame-height", self.size.1);
        structure.set("zones", &self.zones);
        structure.set("tripwires", &self.tripwires);
    }
}

fn boundary(name: &str, points: &[Point], look: &BoundaryLook) -> Fields {
    let mut fields = Fields(gst::Structure::new_empty("boundary"));
    fields.text("name", name);
    fields.numbers("points", points.as_flattened());
    if let Some([red, green, blue]) = look.color {
        fields.integer("color", u32::from_be_bytes([0, red, green, blue]));
    }
    if look.thickness > 0 {
        fields.integer("thickness", look.thickness);
    }
    fields
}

fn of_zone(zone: &Zone) -> gst::Structure {
    let mut fields = boundary(&zone.config.name, &zone.area.corners(), &zone.config.look);
    let total = zone.total();
    fields.integer("current", total.current);
    fields.0.set("entered", total.entered);
    fields.0.set("left", total.left);
    fields.0.set("crowded", zone.is_crowded());
    fields.0
}

fn of_tripwire(tripwire: &Tripwire) -> gst::Structure {
    let points = [tripwire.segment.from, tripwire.segment.to];
    let mut fields = boundary(&tripwire.config.name, &points, &tripwire.config.look);
    let total = tripwire.total();
    if tripwire.one_way() != Some(CrossingDirection::Backward) {
        fields.0.set("forward", total.forward);
    }
    if tripwire.one_way() != Some(CrossingDirection::Forward) {
        fields.0.set("backward", total.backward);
    }
    fields.0
}

/// Writes to the regions of a frame where their objects are: `numbers` has the number of each region's object among
/// those of the frame that are counted.
pub fn write_states(buffer: &mut gst::BufferRef, analytics: &Analytics, numbers: &[Option<usize>]) {
    let regions = buffer.iter_meta_mut::<VideoRegionOfInterestMeta>();
    for (mut region, number) in regions.zip(numbers) {
        if let Some(state) = number.and_then(|number| state(analytics, number)) {
            region.add_param(state);
        }
    }
}

/// The parameter of an object; `None` where there is nothing to say.
fn state(analytics: &Analytics, number: usize) -> Option<gst::Structure> {
    let mut zones = analytics.zones_of(number).peekable();
    let heading = analytics.heading_of(number);
    let id = analytics.id_of(number)?;
    let mut crossings = analytics
        .events()
        .iter()
        .filter(|event| event.object.is_some_and(|object| object.id == id))
        .filter_map(|event| match event.kind {
            AnalyticsEventKind::Crossed { direction, .. } => Some((analytics.name_of(&event.kind), direction)),
            _ => None,
        })
        .peekable();
    if zones.peek().is_none() && heading.is_none() && crossings.peek().is_none() {
        return None;
    }
    let mut param = gst::Structure::new_empty(PARAM);
    if zones.peek().is_some() {
        let zone = |(zone, dwell): (&Zone, u64)| {
            let mut fields = gst::Structure::builder("zone").field("name", &zone.config.name).build();
            if zone.config.track_dwell_time {
                fields.set("dwell", dwell);
            }
            fields
        };
        param.set("zones", gst::Array::new(zones.map(zone)));
    }
    if crossings.peek().is_some() {
        let crossing = |(name, direction): (&str, _)| {
            gst::Structure::builder("tripwire")
                .field("name", name)
                .field("direction", direction_name(direction))
                .build()
        };
        param.set("tripwires", gst::Array::new(crossings.map(crossing)));
    }
    if let Some(heading) = heading {
        param.set("heading", &heading.config.name);
    }
    Some(param)
}

/// What is written next to an object: the zones that it is in, like `entrance 12 s`.
pub fn notes(param: &gst::StructureRef) -> Vec<String> {
    let zones = param.get::<gst::Array>("zones").unwrap_or_default();
    let zone = |value: &glib::SendValue| {
        let zone = value.get::<gst::Structure>().ok()?;
        let name = zone.get::<String>("name").ok()?;
        Some(match zone.get::<u64>("dwell") {
            Ok(dwell) => format!("{name} {} s", dwell / 1_000_000_000),
            Err(_) => name,
        })
    };
    zones.iter().filter_map(zone).chain(param.get::<String>("heading").ok()).collect()
}

/// The zones and tripwires on a frame of that size, with their counts.
pub fn boundaries(buffer: &gst::BufferRef, size: (u32, u32)) -> Vec<Boundary> {
    register();
    let Ok(meta) = CustomMeta::from_buffer(buffer, NAME) else { return Vec::new() };
    let Some(scale) = scale(meta.structure(), size) else { return Vec::new() };
    let list = |field: &str| meta.structure().get::<gst::Array>(field).unwrap_or_default();
    let zones = list("zones");
    let tripwires = list("tripwires");
    let zones = zones.iter().filter_map(|value| drawn(value, scale, true));
    zones.chain(tripwires.iter().filter_map(|value| drawn(value, scale, false))).collect()
}

/// The names and corners of the zones on a frame of that size, in pixels.
pub fn polygons(buffer: &gst::BufferRef, size: (u32, u32)) -> Vec<(String, Vec<[f32; 2]>)> {
    register();
    let Ok(meta) = CustomMeta::from_buffer(buffer, NAME) else { return Vec::new() };
    let Some(scale) = scale(meta.structure(), size) else { return Vec::new() };
    let zones = meta.structure().get::<gst::Array>("zones").unwrap_or_default();
    let polygon = |value: &glib::SendValue| {
        let fields = value.get::<gst::Structure>().ok()?;
        let numbers = scaled_numbers(&fields, "points", &scale)?;
        Some((fields.get::<String>("name").ok()?, numbers.as_chunks::<2>().0.to_vec()))
    };
    zones.iter().filter_map(polygon).collect()
}

fn drawn(value: &glib::SendValue, scale: [f32; 2], is_zone: bool) -> Option<Boundary> {
    let fields = value.get::<gst::Structure>().ok()?;
    let numbers = scaled_numbers(&fields, "points", &scale)?;
    let points = numbers.as_chunks::<2>().0.to_vec();
    let count = |name| fields.get::<u64>(name).ok();
    let current = fields.get::<u32>("current").ok().map(u64::from);
    let mut text = fields.get::<String>("name").unwrap_or_default();
    for (sign, count) in [("", current), ("+", count("forward")), ("-", count("backward"))] {
        if let Some(count) = count {
            text.push_str(&format!(" {sign}{count}"));
        }
    }
    let color = fields.get::<u32>("color").ok().map(|color| {
        let [_, red, green, blue] = color.to_be_bytes();
        [red, green, blue]
    });
    let thickness = fields.get::<u32>("thickness").unwrap_or_default();
    Some(Boundary { points, is_closed: is_zone, text, color, thickness })
}
