// SPDX-License-Identifier: MPL-2.0
//! The property `counts`.

use gsttrt_core::analytics::Analytics;
use gsttrt_core::analytics::tally::{CrossingCount, SeenClass, ZoneCount};

/// All counts as a structure; with empty arrays before the start.
pub fn structure(analytics: Option<&Analytics>) -> gst::Structure {
    let (mut zones, mut tripwires, mut directions) = (Vec::new(), Vec::new(), Vec::new());
    if let Some(analytics) = analytics {
        let classes = analytics.classes();
        for zone in &analytics.zones {
            let counts = filled(&zone.counts, classes, |name, count: &ZoneCount| {
                let ZoneCount { current, entered, left } = *count;
                gst::Structure::builder(name).field("current", current).field("entered", entered).field("left", left)
            });
            let total = zone.total();
            let zone = gst::Structure::builder("zone")
                .field("name", &zone.config.name)
                .field("current", total.current)
                .field("entered", total.entered)
                .field("left", total.left)
                .field("crowded", zone.is_crowded())
                .field("classes", counts);
            zones.push(zone.build());
        }
        for tripwire in &analytics.tripwires {
            let counts = filled(&tripwire.counts, classes, |name, count: &CrossingCount| {
                gst::Structure::builder(name).field("forward", count.forward).field("backward", count.backward)
            });
            let total = tripwire.total();
            let tripwire = gst::Structure::builder("tripwire")
                .field("name", &tripwire.config.name)
                .field("forward", total.forward)
                .field("backward", total.backward)
                .field("classes", counts);
            tripwires.push(tripwire.build());
        }
        for heading in &analytics.headings {
            let counts = filled(&heading.counts, classes, |name, count: &u64| {
                gst::Structure::builder(name).field("count", *count)
            });
            let direction = gst::Structure::builder("direction")
                .field("name", &heading.config.name)
                .field("count", heading.counts.iter().sum::<u64>())
                .field("classes", counts);
            directions.push(direction.build());
        }
    }
    gst::Structure::builder("counts")
        .field("zones", gst::Array::new(zones))
        .field("tripwires", gst::Array::new(tripwires))
        .field("directions", gst::Array::new(directions))
        .build()
}

/// The classes of which there are any, each with its counts.
fn filled<T: Default + PartialEq>(
    counts: &[T],
    classes: &[SeenClass],
    build: impl Fn(&str, &T) -> gst::structure::Builder,
) -> gst::Array {
    let counted = counts.iter().zip(classes).filter(|(count, _)| **count != T::default());
    gst::Array::new(counted.map(|(count, class)| {
        let fields = build("class", count).field("label", &class.label).field_if_some("class-id", class.class);
        fields.build()
    }))
}
