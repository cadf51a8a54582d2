// SPDX-License-Identifier: MPL-2.0
//! trtoverlay: what it blurs, pixelates and masks is not to be seen on any frame that passes.

use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo, VideoRegionOfInterestMeta};
use gsttrt_core::image::frame::PixelFormat;

use crate::common::boxes::{Line, SIDE, address, model};
use crate::common::scratch;

/// Left, top, width and height.
type Rect = (u32, u32, u32, u32);

const FACE: Rect = (8, 12, 24, 20);
const CAR: Rect = (40, 40, 16, 16);

fn bytes(buffer: &gst::BufferRef) -> Vec<u8> {
    buffer.map_readable().unwrap().to_vec()
}

/// Bytes of which no two neighbours are equal.
fn noise(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 89 % 239) as u8).collect()
}

/// A frame of 64x64 in GRAY8 with a face and a car.
fn frame() -> gst::Buffer {
    let mut buffer = gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize));
    for (label, rect) in [("face", FACE), ("car", CAR)] {
        VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), label, rect);
    }
    buffer
}

fn overlay(properties: &str) -> Line {
    let mut line = Line::parse(&format!("trtoverlay draw=false {properties}"));
    line.caps("GRAY8", SIDE, SIDE);
    line
}

/// The rectangle around all pixels that differ from those of [`frame`], and how many these are.
fn changed(buffer: &gst::BufferRef) -> (Option<Rect>, usize) {
    let differ = bytes(buffer).into_iter().zip(noise((SIDE * SIDE) as usize)).zip(0u32..);
    let places: Vec<(u32, u32)> =
        differ.filter(|((is, was), _)| is != was).map(|(_, at)| (at % SIDE, at / SIDE)).collect();
    let (xs, ys) = (places.iter().map(|place| place.0), places.iter().map(|place| place.1));
    let rect = xs.clone().min().zip(xs.max()).zip(ys.clone().min().zip(ys.max()));
    (rect.map(|((left, right), (top, bottom))| (left, top, right + 1 - left, bottom + 1 - top)), places.len())
}

#[test]
fn only_objects_of_the_named_classes_are_hidden() {
    for effect in ["blur", "pixelate"] {
        let rect = |classes: &str| changed(&overlay(&format!("{effect}={classes}")).push(frame())).0;
        assert_eq!(rect("face"), Some(FACE), "{effect}");
        assert_eq!(rect("car,person"), Some(CAR), "{effect}");
        assert_eq!(rect("*"), Some((8, 12, 48, 44)), "{effect}");
        assert_eq!(rect("person"), None, "{effect}");
    }
    assert_eq!(changed(&overlay("").push(frame())).0, None);
    let stats = |properties: &str| {
        let mut line = overlay(properties);
        line.push(frame());
        line.push(frame());
        line.element("trtoverlay").property::<gst::Structure>("stats").get::<u64>("hidden").unwrap()
    };
    assert_eq!((stats("blur=*"), stats("blur=face pixelate=face"), stats("")), (4, 4, 0));
}

#[test]
fn a_face_has_few_values_left() {
    let picture = bytes(&overlay("pixelate=face").push(frame()));
    let (x, y, width, height) = FACE;
    let rows = (y..y + height).map(|y| &picture[(y * SIDE + x) as usize..][..width as usize]);
    let values: std::collections::BTreeSet<u8> = rows.flatten().copied().collect();
    // Cells of 8x8 pixels.
    assert!(values.len() <= 3 * 3, "{values:?}");
    // Blurred ones differ by little from pixel to pixel, where the noise has steps of 89.
    let picture = bytes(&overlay("blur=face").push(frame()));
    for y in y..y + height {
        let row = &picture[(y * SIDE + x) as usize..][..width as usize];
        assert!(row.windows(2).all(|pair| pair[0].abs_diff(pair[1]) < 24), "{row:?}");
    }
}

#[test]
fn each_format_is_hidden_and_nothing_outside_the_box() {
    crate::common::init();
    for format in PixelFormat::ALL.map(PixelFormat::name) {
        // Odd sizes: the last sample of chroma has one pixel.
        let (width, height) = (65, 49);
        let info = VideoInfo::builder(VideoFormat::from_string(format), width, height).build().unwrap();
        for (properties, rect) in
            [("blur=face", FACE), ("mask=8,12,32,12,32,32,8,32", FACE), ("pixelate=*", (60, 40, 5, 9))]
        {
            let mut line = Line::parse(&format!("trtoverlay draw=false {properties}"));
            line.caps(format, width, height);
            let before = noise(info.size());
            let mut buffer = gst::Buffer::from_mut_slice(before.clone());
            VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "face", rect);
            let after = bytes(&line.push(buffer));
            assert_eq!(line.said(), [""; 0]);
            for plane in 0..info.n_planes() as usize {
                let (stride, offset) = (info.stride()[plane] as usize, info.offset()[plane]);
                let wide = if format == "P010_10LE" { 2 } else { 1 };
                let (sample, halved) = match (format, plane) {
                    ("NV12" | "P010_10LE", 1) => (2 * wide, true),
                    ("I420", 1..) => (1, true),
                    _ => (info.format_info().pixel_stride()[0] as usize, false),
                };
                let rows = info.comp_height(plane.min(1) as u8) as usize;
                let places = (0..rows).flat_map(|y| (0..stride / sample).map(move |x| (x as u32, y as u32)));
                let (mut inside, mut outside) = (0, 0);
                for (x, y) in places {
                    let at = offset + y as usize * stride + x as usize * sample;
                    if before[at..at + sample] == after[at..at + sample] {
                        continue;
                    }
                    let (x, y) = if halved { (x * 2, y * 2) } else { (x, y) };
                    let (left, top, width, height) = rect;
                    match (left..left + width).contains(&x) && (top..top + height).contains(&y) {
                        true => inside += 1,
                        false => outside += 1,
                    }
                }
                assert!(inside > 0 && outside == 0, "{format} {properties}, plane {plane}: {inside} and {outside}");
            }
        }
    }
}

#[test]
fn drawing_lies_on_what_is_hidden() {
    let mut line = Line::parse("trtoverlay draw-labels=false line-width=1 pixelate=face");
    line.caps("GRAY8", SIDE, SIDE);
    let drawn = bytes(&line.push(frame()));
    let hidden = bytes(&overlay("pixelate=face").push(frame()));
    let (x, y, ..) = FACE;
    let (corner, inner) = ((y * SIDE + x) as usize, ((y + 1) * SIDE + x + 1) as usize);
    assert_ne!(drawn[corner], hidden[corner], "its outline");
    assert_eq!(drawn[inner], hidden[inner], "and nothing else");
}

#[test]
fn polygons_and_zones_are_black() {
    let black = |line: &mut Line| {
        let picture = bytes(&line.push(frame()));
        let places = picture.iter().zip(0u32..).filter(|(byte, _)| **byte == 16).map(|(_, at)| (at % SIDE, at / SIDE));
        let places: Vec<_> =
            places.filter(|&(x, y)| noise((SIDE * SIDE) as usize)[(y * SIDE + x) as usize] != 16).collect();
        assert_eq!(line.said(), [""; 0]);
        places
    };
    let square = black(&mut overlay("mask=8,8,24,8,24,20,8,20"));
    let is_in = |&(x, y): &(u32, u32)| (8..24).contains(&x) && (8..20).contains(&y);
    assert!(square.len() > 180 && square.iter().all(is_in), "{square:?}");
    assert_eq!(black(&mut overlay("mask=0.125,0.125,0.375,0.125,0.375,0.3125,0.125,0.3125")), square);
    let two = black(&mut overlay("mask=8,8,24,8,24,20,8,20;40,40,64,40,64,64,40,64"));
    assert!(two.len() > square.len() + 500);

    let folder = scratch("overlay-mask");
    let zones = r#"{"zones": [{"id": "room", "points": [[8, 8], [24, 8], [24, 20], [8, 20]]},
                              {"id": "yard", "points": [[0, 40], [64, 40], [64, 64], [0, 64]]}]}"#;
    let file = folder.join("zones.json");
    std::fs::write(&file, zones).unwrap();
    let zoned = |mask: &str| {
        let mut line = Line::parse(&format!(
            "trtanalytics config-file={} ! trtoverlay draw=false mask=\"{mask}\"",
            file.display()
        ));
        line.caps("GRAY8", SIDE, SIDE);
        line
    };
    assert_eq!(black(&mut zoned("room")), square);
    assert!(black(&mut zoned("yard, room")).len() > square.len() + 1000);

    // What is not there would be seen.
    let mut line = zoned("room,cellar");
    assert!(line.try_push(frame()).is_err());
    let said = line.said().join(" ");
    assert!(said.contains("The zone “cellar” of mask is not on the frame") && said.contains("room, yard"), "{said}");
    let mut line = overlay("mask=room");
    assert!(line.try_push(frame()).is_err());
    assert!(line.said().join(" ").contains("the frame has no zones"));
    // Once it is mended, the stream can go on.
    line.element("trtoverlay").set_property("mask", "8,8,24,8,24,20,8,20");
    assert_eq!(black(&mut line), square);
    let mut line = overlay("mask=100,100,120,100,120,120");
    assert!(line.try_push(frame()).is_err());
    assert!(line.said().join(" ").contains("not in the frame of 64x64"));
}

#[test]
fn a_mask_that_cannot_be_read_is_an_error_or_leaves_the_one_of_before() {
    crate::common::init();
    let element = gst::ElementFactory::make("trtoverlay").property("mask", "0,0,1,0").build().unwrap();
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    assert!(element.set_state(gst::State::Paused).is_err());
    let said = bus.pop_filtered(&[gst::MessageType::Error]).expect("an error");
    let gst::MessageView::Error(error) = said.view() else { unreachable!("filtered") };
    assert!(error.error().message().contains("mask=0,0,1,0 cannot be read"), "{error:?}");
    element.set_state(gst::State::Null).unwrap();

    // Before the first frame, and later.
    let mut line = overlay("mask=0,0,1,0,1,1,0,1");
    for blur in ["face", "car"] {
        line.element("trtoverlay").set_property("blur", blur);
        line.element("trtoverlay").set_property("mask", "0,0,1,0");
        let all_black = bytes(&line.push(frame())).iter().all(|&byte| byte == 16);
        let said = line.said().join(" ");
        assert!(all_black && said.contains("What it was to replace stays as it was"), "{said}");
        let overlay = line.element("trtoverlay");
        assert_eq!(overlay.property::<String>("mask"), "0,0,1,0,1,1,0,1");
        assert_eq!(overlay.property::<String>("blur"), blur);
    }
}

#[test]
fn no_frame_passes_that_cannot_be_hidden() {
    for properties in ["blur=face", "pixelate=*", "mask=0,0,1,0,1,1"] {
        let mut line = overlay(properties);
        let mut short = gst::Buffer::from_mut_slice(noise(100));
        VideoRegionOfInterestMeta::add(short.get_mut().unwrap(), "face", FACE);
        assert!(line.try_push(short).is_err(), "{properties}");
        assert_eq!(line.said().len(), 1, "{properties}");
    }
}

#[test]
fn frames_of_others_stay_as_they_are() {
    let mut line = overlay("blur=face");
    let theirs = frame();
    let ours = line.push(theirs.clone());
    assert_ne!(address(&ours), address(&theirs));
    assert_eq!((changed(&ours).0, changed(&theirs).0), (Some(FACE), None));
    let mine = frame();
    let place = address(&mine);
    assert_eq!(address(&line.push(mine)), place, "nothing else references it");
}

#[test]
fn properties_change_while_playing() {
    let mut line = overlay("");
    let mut rect = |property: &str, value: &str| {
        line.element("trtoverlay").set_property_from_str(property, value);
        changed(&line.push(frame())).0
    };
    assert_eq!(rect("blur", "face"), Some(FACE));
    assert_eq!(rect("blur", ""), None);
    assert_eq!(rect("pixelate", "car"), Some(CAR));
    assert_eq!(rect("draw", "true").map(|rect| rect.0), Some(8), "outlines of both");
}

/// Frames that no model has seen have the objects of the last one.
#[test]
fn objects_are_hidden_on_skipped_frames() {
    let model = model(&scratch("overlay-held"), &[[8.0, 12.0, 32.0, 32.0, 0.9, 0.0]]);
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} interval=3 ! trtnms draw=false ! trtoverlay draw=false pixelate=a"
    ));
    line.caps("GRAY8", SIDE, SIDE);
    for number in 0..4 {
        let picture = line.push(gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize)));
        assert_eq!(changed(&picture).0, Some(FACE), "frame {number}");
    }
    assert_eq!(line.element("trtinfer").property::<gst::Structure>("stats").get::<u64>("inferred"), Ok(2));
}

/// Whatever lies under a whole frame that is hidden: no two neighbours differ by the steps of the noise.
fn is_hidden_whole(buffer: &gst::BufferRef) -> bool {
    let picture = bytes(buffer);
    picture.windows(2).all(|pair| pair[0].abs_diff(pair[1]) < 60) && changed(buffer).1 > (SIDE * SIDE) as usize / 2
}

/// Frames whose objects nobody knows: those that come before the model has seen any, and those without objects of before.
#[test]
fn frames_that_no_model_has_seen_are_hidden_whole() {
    let model = model(&scratch("overlay-unseen"), &[[8.0, 12.0, 32.0, 32.0, 0.9, 0.0]]);
    for effect in ["pixelate", "blur"] {
        let mut line = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={model} interval=3 ! trtnms draw=false hold-detections=false \
             ! trtoverlay draw=false {effect}=a"
        ));
        line.caps("GRAY8", SIDE, SIDE);
        for number in 0..4 {
            let picture = line.push(gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize)));
            assert_eq!(is_hidden_whole(&picture), number % 3 != 0, "{effect}: frame {number}");
        }
        // What is not to be hidden is seen.
        line.element("trtoverlay").set_property(effect, "");
        let picture = line.push(gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize)));
        assert_eq!(changed(&picture).1, 0, "{effect}");
        assert_eq!(line.said(), [""; 0]);
    }
}

/// Where a queue has dropped frames, objects are not hidden where they were before these: the next one is inferred, as if all
/// had come.
#[test]
fn a_frame_after_others_were_dropped_is_inferred() {
    let model = model(&scratch("overlay-dropped"), &[[8.0, 12.0, 32.0, 32.0, 0.9, 0.0]]);
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} interval=5 ! trtnms draw=false ! trtoverlay draw=false pixelate=a"
    ));
    line.caps("GRAY8", SIDE, SIDE);
    let mut push = |number: u64| {
        let mut buffer = gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize));
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(number * 40));
        assert_eq!(changed(&line.push(buffer)).0, Some(FACE), "frame {number}");
        let stats = line.element("trtinfer").property::<gst::Structure>("stats");
        (stats.get::<u64>("inferred").unwrap(), stats.get::<u64>("missing").unwrap())
    };
    let inferred = [0, 1, 2, 52, 53, 56, 57, 62].map(&mut push);
    // The fifth one counts from the gap; a few that are missing bring it nearer.
    assert_eq!(inferred, [(1, 0), (1, 0), (1, 0), (2, 49), (2, 49), (2, 51), (3, 51), (4, 55)]);
}

/// A frame whose turn it was, and that was too late to be inferred: what was found before is older than `interval` says.
#[test]
fn frames_that_come_too_late_to_be_inferred_are_hidden_whole() {
    let model = model(&scratch("overlay-late"), &[[8.0, 12.0, 32.0, 32.0, 0.9, 0.0]]);
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} interval=2 qos=true ! trtnms draw=false ! trtoverlay draw=false pixelate=a"
    ));
    line.caps("GRAY8", SIDE, SIDE);
    let mut push = |number: u64| {
        let mut buffer = gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize));
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(number * 40));
        let picture = line.push(buffer);
        if number == 0 {
            let timestamp = gst::ClockTime::from_mseconds(1000);
            let late =
                gst::event::Qos::builder(gst::QOSType::Underflow, 2.0, 1_000_000_000).timestamp(timestamp).build();
            assert!(line.element("trtoverlay").static_pad("src").unwrap().send_event(late));
        }
        is_hidden_whole(&picture)
    };
    assert_eq!([0, 1, 2, 3].map(&mut push), [false, false, true, true]);
}

/// Where scores or boxes cannot be read, nobody knows what is on the frame, nor on those that repeat its objects.
#[test]
fn frames_whose_numbers_are_not_finite_are_hidden_whole() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for lost in [
        [40.0, 40.0, 56.0, 56.0, nan],
        [40.0, 40.0, 56.0, 56.0, inf],
        [40.0, nan, 56.0, 56.0, 0.9],
        [40.0, 40.0, inf, 56.0, 0.9],
    ] {
        let [left, top, right, bottom, score] = lost;
        let rows = [[8.0, 12.0, 32.0, 32.0, 0.9, 0.0], [left, top, right, bottom, score, 0.0]];
        let model = model(&scratch("overlay-lost"), &rows);
        let mut line = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={model} interval=3 ! trtnms draw=false ! trtoverlay draw=false pixelate=a"
        ));
        line.caps("GRAY8", SIDE, SIDE);
        for number in 0..4 {
            let picture = line.push(gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize)));
            assert!(is_hidden_whole(&picture), "{lost:?}: frame {number}");
        }
        let said = line.said();
        assert!(matches!(&said[..], [only] if only.contains("not finite")), "{said:?}");
    }
}

/// What a detector on objects might find is hidden with those that it does not look into.
#[test]
fn objects_that_no_model_has_looked_into_are_hidden() {
    // It finds nothing.
    let model = model(&scratch("overlay-inside"), &[[8.0, 12.0, 32.0, 32.0, 0.1, 0.0]]);
    let line = |regions: &str| {
        let mut line = Line::parse(&format!(
            "trtpreprocess regions=objects {regions} ! trtinfer model-file={model} ! trtnms draw=false \
             ! trtoverlay draw=false pixelate=a"
        ));
        line.caps("GRAY8", SIDE, SIDE);
        line
    };
    for (regions, hidden) in [
        ("", None),
        ("object-classes=face", None),
        ("min-object-size=20", Some(CAR)),
        ("max-objects=1", Some(CAR)),
        ("object-classes=car min-object-size=20", Some(CAR)),
    ] {
        assert_eq!(changed(&line(regions).push(frame())).0, hidden, "{regions}");
    }
    // Those with ids are looked into once.
    let mut line = line("reclassify-interval=0");
    let mut hidden = || {
        let mut buffer = frame();
        let regions = buffer.get_mut().unwrap().iter_meta_mut::<VideoRegionOfInterestMeta>();
        for (id, mut region) in regions.enumerate() {
            region.add_param(gst::Structure::builder("object_id").field("id", id as i32).build());
        }
        changed(&line.push(buffer)).0
    };
    assert_eq!([hidden(), hidden()], [None, Some((8, 12, 48, 44))]);
}

/// What is misspelt would be seen.
#[test]
fn a_class_that_the_model_does_not_have_is_an_error() {
    let model = model(&scratch("overlay-class"), &[[8.0, 12.0, 32.0, 32.0, 0.9, 0.0]]);
    let line = |properties: &str| {
        let mut line = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false ! trtoverlay draw=false {properties}"
        ));
        line.caps("GRAY8", SIDE, SIDE);
        line
    };
    let picture = || gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize));
    for (properties, said) in [
        ("blur=a,nosuch", "blur: the model has no class “nosuch”: its classes are a, b, c."),
        ("pixelate=7", "pixelate: the model has no class “7”: its classes are a, b, c."),
    ] {
        let mut line = line(properties);
        assert!(line.try_push(picture()).is_err(), "{properties}");
        let errors = line.said();
        assert!(matches!(&errors[..], [only] if only.contains(said)), "{errors:?}");
    }
    // While playing, the right one stays.
    let mut line = line("blur=a");
    assert_eq!(changed(&line.push(picture())).0, Some(FACE));
    line.element("trtoverlay").set_property("blur", "nosuch");
    for number in 0..2 {
        assert_eq!(changed(&line.push(picture())).0, Some(FACE));
        let said = line.said();
        assert_eq!(said.len(), usize::from(number == 0), "{said:?}");
        assert!(
            said.iter().all(|text| text.contains("no class “nosuch”") && text.contains("stays as it was")),
            "{said:?}"
        );
    }
    assert_eq!(line.element("trtoverlay").property::<String>("blur"), "a");
    line.element("trtoverlay").set_property("blur", "2,c,*");
    assert_eq!(changed(&line.push(picture())).0, Some(FACE));
    assert_eq!(line.said(), [""; 0]);
}

#[test]
fn a_model_without_boxes_hides_nothing_and_is_an_error() {
    let model = crate::common::boxes::classifier(&scratch("overlay-classifier"), "1");
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false ! trtoverlay draw=false blur=*"
    ));
    line.caps("GRAY8", SIDE, SIDE);
    assert!(line.try_push(gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize))).is_err());
    let said = line.said().join(" ");
    assert!(said.contains("blur: the model has no boxes"), "{said}");
    // A model on objects behind it has none to look into, and may never run.
    let on_objects = crate::common::boxes::model(&scratch("overlay-no-objects"), &[[8.0, 12.0, 32.0, 32.0, 0.9, 0.0]]);
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false ! trtpreprocess regions=objects \
         ! trtinfer model-file={on_objects} ! trtnms draw=false ! trtoverlay draw=false blur=a"
    ));
    line.caps("GRAY8", SIDE, SIDE);
    assert!(line.try_push(gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize))).is_err());
    let said = line.said().join(" ");
    assert!(said.contains("blur: the model has no boxes"), "{said}");
    // Those of another element are hidden.
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false ! trtoverlay draw=false blur=face"
    ));
    line.caps("GRAY8", SIDE, SIDE);
    assert_eq!(changed(&line.push(frame())).0, Some(FACE));
    assert_eq!(line.said(), [""; 0]);
}

/// The classes of both models count.
#[test]
fn a_class_of_any_model_before_can_be_hidden() {
    let folder = scratch("overlay-two");
    let first = model(&folder, &[[8.0, 12.0, 32.0, 32.0, 0.9, 0.0]]);
    let second = crate::common::boxes::graph("output0", &[[40.0, 40.0, 56.0, 56.0, 0.9, 0.0]])
        .metadata("names", "{0: 'face'}")
        .save(&folder.join("face.onnx"));
    let line = |classes: &str| {
        let stage = |model: &str| format!("trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false");
        let mut line =
            Line::parse(&format!("{} ! {} ! trtoverlay draw=false blur={classes}", stage(&first), stage(&second)));
        line.caps("GRAY8", SIDE, SIDE);
        line
    };
    let picture = || gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize));
    assert_eq!(changed(&line("face,a").push(picture())).0, Some((8, 12, 48, 44)));
    let mut wrong = line("hand");
    assert!(wrong.try_push(picture()).is_err());
    assert!(wrong.said().join(" ").contains("no class “hand”: its classes are a, b, c, face"));
}

/// There may be no objects for it.
#[test]
fn a_class_is_looked_up_before_a_model_on_objects_has_run() {
    let folder = scratch("overlay-not-run");
    let first = model(&folder, &[[8.0, 12.0, 32.0, 32.0, 0.9, 0.0]]);
    let vectors = crate::common::boxes::embedder(&folder, "1");
    let faces = crate::common::boxes::graph("output0", &[[40.0, 40.0, 56.0, 56.0, 0.9, 0.0]])
        .metadata("names", "{0: 'face'}")
        .save(&folder.join("face.onnx"));
    for (second, classes, is_right) in
        [(&vectors, "a", true), (&vectors, "nosuch", false), (&faces, "a,face", true), (&faces, "nosuch", false)]
    {
        let mut line = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={first} ! trtnms draw=false ! trtpreprocess regions=objects object-classes=b \
             ! trtinfer model-file={second} ! trtnms draw=false ! trtoverlay draw=false blur={classes}"
        ));
        line.caps("GRAY8", SIDE, SIDE);
        let pushed = line.try_push(gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize)));
        let said = line.said().join(" ");
        assert_eq!(pushed.is_ok(), is_right, "{second}, {classes}: {said}");
        assert_eq!(said.contains("no class “nosuch”"), !is_right, "{second}, {classes}: {said}");
    }
}

/// A zone that waits for what never comes.
#[test]
fn zones_with_a_class_that_the_model_does_not_have_are_told_once() {
    let model = model(&scratch("zones-class"), &[[8.0, 12.0, 32.0, 32.0, 0.9, 0.0]]);
    let zone = |name: &str, classes: &str| {
        format!(r#"{{"id": "{name}", "points": [[0, 0], [1, 0], [1, 1]], "classes": {classes}}}"#)
    };
    let zones = [zone("room", r#"["a", "cat"]"#), zone("yard", "[2]"), zone("hall", "[]")].join(", ");
    let file = scratch("zones-class-file").join("zones.json");
    std::fs::write(&file, format!(r#"{{"zones": [{zones}]}}"#)).unwrap();
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} ! trtnms draw=false ! trttrack ! trtanalytics config-file={}",
        file.display()
    ));
    line.caps("GRAY8", SIDE, SIDE);
    for number in 0..3 {
        line.push(gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize)));
        let said = line.said();
        assert_eq!(said.len(), usize::from(number == 0), "{said:?}");
        assert!(
            said.iter()
                .all(|text| text.contains("classes of room: the model has no class “cat”: its classes are a, b, c"))
        );
    }
}

/// As DL Streamer and others write them: anything may be in a region.
#[test]
fn hostile_regions_end_nothing() {
    let mut line = overlay("blur=* pixelate=x");
    const MAX: u32 = u32::MAX;
    for rect in [(0, 0, 0, 0), (5, 5, 0, 9), (MAX, MAX, MAX, MAX), (0, 0, MAX, MAX), (63, 63, MAX, 1), (MAX, 0, 1, 1)] {
        let mut buffer = frame();
        VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "x", rect);
        assert!(changed(&line.push(buffer)).1 > 300, "{rect:?}");
    }
    let mut many = gst::Buffer::from_mut_slice(noise((SIDE * SIDE) as usize));
    for i in 0..2000 {
        VideoRegionOfInterestMeta::add(many.get_mut().unwrap(), "x", (i % 64, i % 61, 9, 9));
    }
    line.push(many);
    assert_eq!(line.said(), [""; 0]);
}
