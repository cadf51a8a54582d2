// SPDX-License-Identifier: MPL-2.0
//! A second model on the objects of a first one: which objects it sees, where its results go, and how long they are kept.

use crate::common::boxes::{Line, SIDE, classifier, found, grey, model};
use crate::common::onnx::{F32, Graph};
use crate::common::{launch, scratch};
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;

/// The first model finds two objects of class a and one of class b.
const OBJECTS: [[f32; 6]; 3] =
    [[0.0, 0.0, 32.0, 32.0, 0.9, 0.0], [32.0, 32.0, 56.0, 56.0, 0.8, 0.0], [36.0, 0.0, 60.0, 20.0, 0.7, 1.0]];

/// Bright in the first object, dark elsewhere.
fn frame() -> gst::Buffer {
    let side = SIDE as usize;
    let pixels = (0..side * side).flat_map(|at| [if at % side < 32 && at / side < 32 { 230 } else { 20 }; 3]);
    gst::Buffer::from_mut_slice(pixels.collect::<Vec<u8>>())
}

/// A line of two models; `more` is between them.
fn line(test: &str, more: &str, regions: &str, batch: &str, infer: &str, nms: &str) -> Line {
    let folder = scratch(test);
    let (first, second) = (model(&folder, &OBJECTS), classifier(&folder, batch));
    Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={first} ! trtnms draw=false {more} ! trtpreprocess name=second regions=objects \
         {regions} ! trtinfer name=classes model-file={second} {infer} ! trtnms draw=false {nms}"
    ))
}

/// The label of each region with that of its attribute, and whether that is of an earlier frame.
fn attributes(buffer: &gst::BufferRef) -> Vec<(String, Option<(String, bool)>)> {
    let read = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        let attribute = meta.param("classification").map(|param| {
            assert_eq!(param.get::<&str>("model").unwrap(), "kind");
            assert!(param.get::<f64>("confidence").unwrap() > 0.9);
            (param.get::<String>("label").unwrap(), param.get::<bool>("held").unwrap_or(false))
        });
        (meta.roi_type().to_string(), attribute)
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(read).collect()
}

fn named(objects: &[(&str, &str)]) -> Vec<(String, Option<(String, bool)>)> {
    let object = |&(label, attribute): &(&str, &str)| {
        (label.to_string(), Some((attribute.to_string(), false)).filter(|_| !attribute.is_empty()))
    };
    objects.iter().map(object).collect()
}

#[test]
fn objects_have_the_attributes_of_their_pictures() {
    let all = [("a", "bright"), ("a", "dark"), ("b", "dark")];
    for (regions, batch, infer, wanted) in [
        ("", "1", "", all),
        ("", "n", "batch-size=2", all),
        ("", "n", "batch-size=8 batch-timeout=10000000", all),
        ("object-classes=b", "1", "", [("a", ""), ("a", ""), ("b", "dark")]),
        ("object-classes=a,b", "1", "", all),
        ("min-object-size=24", "1", "", [("a", "bright"), ("a", "dark"), ("b", "")]),
        ("max-objects=1", "1", "", [("a", "bright"), ("a", ""), ("b", "")]),
        // Most of what is around the first object is dark.
        ("object-padding=2 max-objects=1", "1", "", [("a", "dark"), ("a", ""), ("b", "")]),
    ] {
        let mut line = line("regions-attributes", "", regions, batch, infer, "");
        for _ in 0..2 {
            assert_eq!(attributes(&line.push(frame())), named(&wanted), "{regions} {infer}");
        }
        assert_eq!(line.said(), [""; 0], "{regions}");
    }
}

#[test]
fn messages_have_the_objects_with_their_attributes() {
    let mut line = line("regions-messages", "", "object-classes=a", "1", "", "post-messages=true top-k=1");
    line.push(frame());
    let messages = line.messages();
    let objects: Vec<(String, Vec<String>)> = messages[0]
        .get::<gst::Array>("detections")
        .unwrap()
        .iter()
        .map(|object| {
            let object = object.get::<gst::Structure>().unwrap();
            let attributes = object.get::<gst::Array>("attributes").unwrap_or_default();
            let label = |attribute: &gst::glib::SendValue| {
                let attribute = attribute.get::<gst::Structure>().unwrap();
                assert!(attribute.get::<f64>("confidence").unwrap() > 0.9 && attribute.has_field("class-id"));
                attribute.get::<String>("label").unwrap()
            };
            (object.get("label").unwrap(), attributes.iter().map(label).collect())
        })
        .collect();
    let wanted = [("a", vec!["bright"]), ("a", vec!["dark"]), ("b", vec![])];
    let wanted: Vec<(String, Vec<String>)> =
        wanted.into_iter().map(|(label, all)| (label.into(), all.into_iter().map(String::from).collect())).collect();
    assert_eq!(objects, wanted);
    assert_eq!(messages[0].to_string().parse::<gst::Structure>().unwrap(), messages[0]);
}

fn count(line: &mut Line, element: &str, name: &str) -> u64 {
    let bin = line.nms().parent().unwrap().downcast::<gst::Bin>().unwrap();
    bin.by_name(element).unwrap().property::<gst::Structure>("stats").get(name).unwrap()
}

#[test]
fn objects_that_are_too_many_are_counted() {
    let mut line = line("regions-many", "", "max-objects=2", "1", "", "");
    line.push(frame());
    line.push(frame());
    assert_eq!((count(&mut line, "second", "objects"), count(&mut line, "second", "left-out")), (6, 2));
}

#[test]
fn objects_with_ids_keep_their_attributes() {
    for (interval, pictures) in [(1, 3 * 12), (0, 3), (4, 3 * 3)] {
        let regions = format!("reclassify-interval={interval}");
        let mut line = line("regions-interval", "! trttrack", &regions, "n", "batch-size=4", "");
        // A tracker gives ids from the second frame on at the latest.
        for _ in 0..4 {
            line.push(frame());
        }
        let before = count(&mut line, "classes", "batched");
        for _ in 0..12 {
            let labels: Vec<_> = attributes(&line.push(frame()))
                .into_iter()
                .map(|(label, attribute)| (label, attribute.expect("an attribute in each frame").0))
                .collect();
            let wanted = [("a", "bright"), ("a", "dark"), ("b", "dark")].map(|(a, b)| (a.to_string(), b.to_string()));
            assert_eq!(labels, wanted, "{interval}");
        }
        let looked = count(&mut line, "classes", "batched") - before;
        assert!(if interval == 0 { looked == 0 } else { looked == pictures }, "{interval}: {looked}");
    }
}

/// The first frame with the object is none of those that the model sees.
#[test]
fn an_object_whose_frame_was_passed_over_is_looked_at_in_the_next_one() {
    let second = classifier(&scratch("regions-passed"), "1");
    let mut line = Line::parse(&format!(
        "trtpreprocess regions=objects reclassify-interval=0 ! trtinfer model-file={second} interval=2 ! trtnms draw=false"
    ));
    line.push(frame());
    let mut push = || {
        let mut buffer = frame();
        {
            let mut region = VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "thing", (0, 0, 32, 32));
            region.add_param(gst::Structure::builder("object_id").field("id", 7i32).build());
        }
        attributes(&line.push(buffer)).remove(0).1
    };
    let seen = |is_held: bool| Some(("bright".to_string(), is_held));
    assert_eq!([push(), push(), push(), push()], [None, seen(false), seen(true), seen(true)]);
}

/// Another tracker gave them, such as that of the other camera before input-selector.
#[test]
fn an_id_of_another_stream_is_of_another_object() {
    let second = classifier(&scratch("regions-stream"), "1");
    let mut line = Line::parse(&format!(
        "trtpreprocess regions=objects reclassify-interval=0 ! trtinfer model-file={second} ! trtnms draw=false"
    ));
    let push = |line: &mut Line, rect: (u32, u32, u32, u32)| {
        let mut buffer = frame();
        {
            let mut region = VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "thing", rect);
            region.add_param(gst::Structure::builder("object_id").field("id", 7i32).build());
        }
        attributes(&line.push(buffer)).remove(0).1
    };
    let seen = |kind: &str, is_held: bool| Some((kind.to_string(), is_held));
    let (bright, dark) = ((0, 0, 32, 32), (32, 32, 32, 32));
    assert_eq!([bright, dark].map(|rect| push(&mut line, rect)), [seen("bright", false), seen("bright", true)]);
    line.push_event(gst::event::StreamStart::new("another"));
    line.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    assert_eq!([dark, bright].map(|rect| push(&mut line, rect)), [seen("dark", false), seen("dark", true)]);
}

#[test]
fn frames_without_objects_pass() {
    let folder = scratch("regions-none");
    let (first, second) = (model(&folder, &[[0.0, 0.0, 32.0, 32.0, 0.1, 0.0]]), classifier(&folder, "1"));
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={first} ! trtnms ! trtpreprocess regions=objects ! trtinfer model-file={second} \
         ! trtnms post-messages=true"
    ));
    for number in 0..3 {
        assert_eq!(found(&line.push(frame())), []);
        let message = line.messages().pop().unwrap();
        assert_eq!((message.get::<u64>("frame").unwrap(), message.get::<u32>("count").unwrap()), (number, 0));
    }
    assert_eq!(line.said(), [""; 0]);
}

#[test]
fn a_detector_on_objects_gives_them_children() {
    let folder = scratch("regions-children");
    let first = model(&folder, &OBJECTS);
    // In the middle of each picture of 64x64.
    let inner = scratch("regions-children-inner");
    let second = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 1, 6], &[16.0, 16.0, 48.0, 48.0, 0.75, 0.0])
        .metadata("names", "{0: 'plate'}")
        .save(&inner.join("inner.onnx"));
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={first} ! trtnms draw=false ! trtpreprocess regions=objects object-classes=a \
         ! trtinfer model-file={second} ! trtnms draw=true post-messages=true"
    ));
    let buffer = line.push(frame());
    let regions: Vec<_> = buffer
        .iter_meta::<VideoRegionOfInterestMeta>()
        .map(|meta| (meta.roi_type().to_string(), meta.id(), meta.parent_id(), meta.rect()))
        .collect();
    let wanted = [
        ("a", 0, -1, (0, 0, 32, 32)),
        ("a", 1, -1, (32, 32, 24, 24)),
        ("b", 2, -1, (36, 0, 24, 20)),
        ("plate", 3, 0, (8, 8, 16, 16)),
        ("plate", 4, 1, (38, 38, 12, 12)),
    ];
    assert_eq!(regions, wanted.map(|(label, id, parent, rect)| (label.to_string(), id, parent, rect)));
    let message = line.messages().pop().unwrap();
    let parents: Vec<u32> = (message.get::<gst::Array>("detections").unwrap().iter())
        .map(|object| object.get::<gst::Structure>().unwrap().get("parent").unwrap())
        .collect();
    assert_eq!(parents, [0, 1]);
}

#[test]
fn fixed_rectangles_are_regions() {
    let folder = scratch("regions-list");
    let detector = model(&folder, &[[16.0, 16.0, 48.0, 48.0, 0.9, 2.0]]);
    let mut line = Line::parse(&format!(
        "trtpreprocess regions=list region-list=\"0,0,32,32;0.5,0.5,1,1\" ! trtinfer model-file={detector} ! trtnms draw=false"
    ));
    let places: Vec<_> = found(&line.push(grey(SIDE * SIDE * 3))).into_iter().map(|found| found.rect).collect();
    assert_eq!(places, [(8, 8, 16, 16), (40, 40, 16, 16)]);
    for (list, part) in [("0,0,65,10", "not in the frame"), ("1,2,3", "not a rectangle"), ("", "0 rectangles")] {
        let outcome = launch(&format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess regions=list \
             region-list=\"{list}\" ! trtinfer model-file={detector} ! trtnms ! fakesink"
        ));
        assert!(outcome.error_text().contains(part), "{list}: {}", outcome.error_text());
    }
}

#[test]
fn a_second_model_without_a_first_says_what_is_missing() {
    let second = classifier(&scratch("regions-alone"), "1");
    let outcome = launch(&format!(
        "videotestsrc num-buffers=3 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess regions=objects \
         ! trtinfer model-file={second} ! trtnms ! fakesink"
    ));
    outcome.expect_success();
    let warned = outcome.warnings.iter().filter(|warning| warning.contains("there is no trtnms before it")).count();
    assert_eq!(warned, 1, "{:?}", outcome.warnings);
}

/// Regions of other elements may lie anywhere and hold anything.
#[test]
fn regions_of_other_elements_are_taken_as_they_are() {
    let second = classifier(&scratch("regions-foreign"), "1");
    let mut line =
        Line::parse(&format!("trtpreprocess regions=objects ! trtinfer model-file={second} ! trtnms draw=false"));
    let mut buffer = frame();
    let add = |buffer: &mut gst::BufferRef, rect, edges: Option<[f64; 4]>| {
        let mut meta = VideoRegionOfInterestMeta::add(buffer, "thing", rect);
        if let Some([left, top, right, bottom]) = edges {
            let params = gst::Structure::builder("detection").field("x_min", left).field("y_min", top);
            meta.add_param(params.field("x_max", right).field("y_max", bottom).build());
        }
    };
    let writable = buffer.get_mut().unwrap();
    add(writable, (0, 0, 32, 32), None);
    add(writable, (0, 0, 32, 32), Some([f64::NAN; 4]));
    add(writable, (u32::MAX, 0, u32::MAX, 5), None);
    add(writable, (40, 40, 10_000, 10_000), None);
    add(writable, (0, 0, 0, 0), Some([0.9, 0.9, 0.1, 0.1]));
    let found: Vec<_> =
        attributes(&line.push(buffer)).into_iter().map(|(_, attribute)| attribute.map(|(label, _)| label)).collect();
    let some = |label: &str| Some(label.to_string());
    assert_eq!(found, [some("bright"), some("bright"), None, some("dark"), None]);
}
