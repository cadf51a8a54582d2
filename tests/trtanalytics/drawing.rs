// SPDX-License-Identifier: MPL-2.0
//! Zones and tripwires in the picture.

use super::*;

#[test]
fn zones_and_tripwires_are_drawn_with_their_counts() {
    let config = file("drawn", BOTH);
    // The luma of a picture without objects.
    let draw = |properties: &str, overlay: &str| {
        let mut line =
            Line::parse(&format!("trtanalytics config-file={config} {properties} ! trtoverlay line-width=2 {overlay}"));
        line.caps("GRAY8", WIDTH, HEIGHT);
        line.said(); // of the first size
        let picture = line.push(crate::common::boxes::grey(WIDTH * HEIGHT)).map_readable().unwrap().to_vec();
        assert_eq!(line.said(), [""; 0]);
        move |x: u32, y: u32| picture[(y * WIDTH + x) as usize] != crate::common::boxes::GREY
    };
    let plain = draw("", "draw-labels=false");
    for (x, y, expected) in [
        (200, 100, true),
        (100, 200, true),
        (299, 200, true),
        (200, 300, true),
        (320, 5, true),
        (320, 470, true),
        (200, 200, false),
        (310, 200, false),
    ] {
        assert_eq!(plain(x, y), expected, "{x} {y}");
    }
    let labelled = draw("", "");
    let differs = |x: std::ops::Range<u32>, y: std::ops::Range<u32>| {
        x.clone().any(|x| y.clone().any(|y| labelled(x, y) != plain(x, y)))
    };
    assert!(differs(100..180, 70..99), "the zone's name and count above its first point");
    assert!(differs(322..420, 0..20), "those of the tripwire");
    let (zones, tripwires) =
        (draw("draw-tripwires=false", "draw-labels=false"), draw("draw-zones=false", "draw-labels=false"));
    assert_eq!([zones(200, 100), zones(320, 5), tripwires(200, 100), tripwires(320, 5)], [true, false, false, true]);
    let none = draw("draw-zones=false draw-tripwires=false", "");
    assert!((0..WIDTH).all(|x| (0..HEIGHT).all(|y| !none(x, y))));
}

#[test]
fn what_is_drawn_changes_while_playing() {
    let mut clip = Clip::new("drawn-playing", BOTH, "");
    let mut drawn = |properties: &[(&str, bool)]| {
        let element = clip.element();
        properties.iter().for_each(|(name, value)| element.set_property(name, *value));
        let buffer = clip.see(&[]); // no count changes
        let meta = CustomMeta::from_buffer(&buffer, "GstTrtZoneMeta").ok();
        ["zones", "tripwires"].map(|list| meta.as_ref().map_or(0, |meta| structures(meta.structure(), list).len()))
    };
    assert_eq!(drawn(&[]), [1, 1]);
    assert_eq!(drawn(&[("draw-zones", false)]), [0, 1]);
    assert_eq!(drawn(&[("draw-tripwires", false)]), [0, 0]);
    assert_eq!(drawn(&[("draw-zones", true)]), [1, 0]);
}

#[test]
fn boundaries_have_their_color_and_their_counts() {
    let config =
        BOTH.replace("\"dwell-time\"", "\"color\": {\"r\": 1, \"g\": 2, \"b\": 3}, \"thickness\": 5, \"dwell-time\"");
    let mut clip = Clip::new("color", &config, "");
    let buffer = clip.hold(10, &[(7, [200.0, 200.0])]);
    let meta = CustomMeta::from_buffer(&buffer, "GstTrtZoneMeta").unwrap();
    let size = ["frame-width", "frame-height"].map(|name| meta.structure().get::<u32>(name).unwrap());
    assert_eq!(size, [WIDTH, HEIGHT]);
    let (zone, door) =
        (structures(meta.structure(), "zones").remove(0), structures(meta.structure(), "tripwires").remove(0));
    assert_eq!(
        (zone.get::<u32>("color"), zone.get::<u32>("thickness"), zone.get::<u32>("current")),
        (Ok(0x010203), Ok(5), Ok(1))
    );
    assert_eq!((door.get::<u64>("forward"), door.get::<u64>("backward")), (Ok(0), Ok(0)));
    let points: Vec<f64> = zone.get::<gst::Array>("points").unwrap().iter().map(|value| value.get().unwrap()).collect();
    assert_eq!(points, [100.0, 100.0, 300.0, 100.0, 300.0, 300.0, 100.0, 300.0]);
}

#[test]
fn hostile_boundaries_end_nothing() {
    let mut line = Line::parse("trtoverlay");
    line.caps("GRAY8", 64, 64);
    CustomMeta::register_simple("GstTrtZoneMeta");
    for points in [
        vec![],
        vec![1.0],
        vec![f64::NAN; 4],
        vec![1e300, -1e300, 5.0, 5.0, f64::INFINITY, 0.0],
        vec![-1e9, -1e9, 1e9, 1e9],
    ] {
        for (width, text) in [(0u32, "a"), (64, "a"), (u32::MAX, &*"long ".repeat(1000))] {
            let mut buffer = crate::common::boxes::grey(64 * 64);
            let mut meta = CustomMeta::add(buffer.get_mut().unwrap(), "GstTrtZoneMeta").unwrap();
            let zone = gst::Structure::builder("zone")
                .field("points", gst::Array::new(&points))
                .field("name", text)
                .field("thickness", u32::MAX);
            meta.mut_structure().set("frame-width", width);
            meta.mut_structure().set("frame-height", 64u32);
            meta.mut_structure().set("zones", gst::Array::new([zone.build(), gst::Structure::new_empty("zone")]));
            meta.mut_structure().set("tripwires", "none");
            line.push(buffer);
        }
    }
    assert_eq!(line.said(), [""; 0]);
}
