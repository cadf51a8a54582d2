// SPDX-License-Identifier: MPL-2.0
//! Texts of frames and of objects: where they can be read, and which dictionary reads them.

use crate::common::boxes::{Line, SIDE, grey, model, reader, text_graph, text_map};
use crate::common::{launch, scratch};
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::session::{Detector, parse_options};

/// The first model finds one object of class a and one of class b.
const OBJECTS: [[f32; 6]; 2] = [[0.0, 0.0, 32.0, 16.0, 0.9, 0.0], [8.0, 36.0, 60.0, 60.0, 0.7, 1.0]];

/// A frame of [`Line`].
fn frame() -> gst::Buffer {
    grey(SIDE * SIDE * 3)
}

/// Text and confidence of each region.
fn texts(buffer: &gst::BufferRef) -> Vec<Option<(String, f64)>> {
    let read = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        let param = meta.param("classification")?;
        assert_eq!((param.get::<&str>("model"), param.get::<bool>("text")), (Ok("reader"), Ok(true)));
        Some((param.get("label").unwrap(), param.get("confidence").unwrap()))
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(read).collect()
}

/// The message about the last frame.
fn message(line: &Line) -> gst::Structure {
    line.messages().into_iter().rfind(|message| message.name() == "trt-detections").unwrap()
}

#[test]
fn objects_have_a_text_each() {
    let folder = scratch("text-objects");
    let (first, second) = (model(&folder, &OBJECTS), reader(&folder));
    for (regions, wanted) in [("", [true, true]), ("object-classes=b", [false, true])] {
        let mut line = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={first} ! trtnms draw=false ! trtpreprocess regions=objects {regions} \
             ! trtinfer model-file={second} ! trtnms post-messages=true"
        ));
        let found = texts(&line.push(frame()));
        assert_eq!(found, wanted.map(|is_read| is_read.then(|| ("Hi".to_string(), 0.875))), "{regions}");
        let message = message(&line);
        let detections = message.get::<gst::Array>("detections").unwrap();
        let object = detections.last().unwrap().get::<gst::Structure>().unwrap();
        let attribute = object.get::<gst::Array>("attributes").unwrap()[0].get::<gst::Structure>().unwrap();
        assert_eq!(attribute.get::<&str>("label"), Ok("Hi"));
        assert!(!attribute.has_field("class-id"));
        assert_eq!(line.said(), [""; 0], "{regions}");
    }
}

#[test]
fn frames_have_a_text_in_messages() {
    let model = reader(&scratch("text-frame"));
    for (nms, wanted) in [("", Some("Hi")), ("score-threshold=0.9", None)] {
        let mut line = Line::new(&model, &format!("post-messages=true {nms}"));
        line.push(frame());
        let message = message(&line);
        assert_eq!(message.get::<&str>("text").ok(), wanted, "{nms}");
        assert_eq!(message.get::<f64>("text-confidence").ok(), wanted.map(|_| 0.875), "{nms}");
    }
}

/// Rows of scores may be boxes, and a dictionary that is one short would give each character its neighbour's place.
#[test]
fn the_dictionary_is_that_of_the_model() {
    let folder = scratch("text-dictionary");
    let short = text_graph().metadata("character", "H\ni\nj").save(&folder.join("other.onnx"));
    let ended = |model: &str, nms: &str| {
        launch(&format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
             ! trtinfer model-file={model} ! trtnms {nms} ! fakesink"
        ))
    };
    let outcome = ended(&short, "");
    assert!(outcome.error_text().contains("has 3 characters"), "{}", outcome.error_text());
    assert!(outcome.error_text().contains("is for 2 as ctc"), "{}", outcome.error_text());
    let unknown = text_graph().save(&folder.join("unknown.onnx"));
    let outcome = ended(&unknown, "layout=ctc");
    assert!(outcome.error_text().contains("The model has no dictionary"), "{}", outcome.error_text());

    let file = folder.join("characters.txt");
    std::fs::write(&file, "x\n \n").unwrap();
    let nms = format!("post-messages=true layout=ctc label-file={}", file.display());
    let mut line = Line::new(&unknown, &nms);
    line.push(frame());
    assert_eq!(message(&line).get::<&str>("text"), Ok("x "), "a space is a character");

    std::fs::write(&file, "A\nB\nC\n_\n").unwrap();
    let nms = format!("post-messages=true layout=slots label-file={}", file.display());
    let mut line = Line::new(&unknown, &nms);
    line.push(frame());
    assert_eq!(message(&line).get::<&str>("text"), Ok("BAC"));
}

#[test]
fn a_detector_gives_texts() {
    let folder = scratch("text-detector");
    let (options, postprocess) = parse_options(["backend=rten"]).unwrap();
    let mut detector = Detector::open(reader(&folder), &options, postprocess.clone()).unwrap();
    assert_eq!(detector.text(), None, "before the first frame");
    let pixels = vec![0; 64 * 16 * 3];
    let planes = || [Plane { data: &pixels[..], stride: 64 * 3 }].into_iter().collect();
    let frame = || Frame { format: PixelFormat::Rgb, width: 64, height: 16, planes: planes() };
    assert_eq!(detector.detect(&frame(), Colorimetry::default()).unwrap(), []);
    assert_eq!(detector.text(), Some(("Hi", 0.875)));
    let frames = [(); 2].map(|()| (frame(), Colorimetry::default()));
    for results in detector.detect_batch(&frames).unwrap() {
        assert_eq!(results.text, Some(("Hi".to_string(), 0.875)));
        assert!(results.objects.is_empty() && results.vector.is_none());
    }
    let mut detector = Detector::open(model(&folder, &OBJECTS), &options, postprocess).unwrap();
    let pixels = vec![0; 64 * 64 * 3];
    let planes = [Plane { data: &pixels[..], stride: 64 * 3 }].into_iter().collect();
    let square = Frame { format: PixelFormat::Rgb, width: 64, height: 64, planes };
    detector.detect(&square, Colorimetry::default()).unwrap();
    assert_eq!(detector.text(), None, "it finds objects");
}

#[test]
fn texts_are_found_as_rotated_boxes() {
    let model = text_map(0.5).save(&scratch("text-detect").join("maps.onnx"));
    let corners_of = |nms: &str| {
        let mut line = Line::new(&model, &format!("layout=text-detect {nms}"));
        let buffer = line.push(frame());
        assert_eq!(line.said(), [""; 0], "{nms}");
        let read = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
            let (detection, rotation) = (meta.param("detection").unwrap(), meta.param("rotation").unwrap());
            let number = |param: &gst::StructureRef, name: &str| param.get::<f64>(name).unwrap();
            (meta.roi_type().to_string(), number(detection, "confidence"), number(rotation, "angle"))
        };
        buffer.iter_meta::<VideoRegionOfInterestMeta>().map(read).collect::<Vec<_>>()
    };
    let found = corners_of("");
    assert!(found.len() == 1 && found[0].0 == "text", "{found:?}");
    assert!(found[0].1 > 0.75 && (found[0].2 - 0.5).abs() < 0.06, "{found:?}");
    assert_eq!(corners_of("score-threshold=0.9"), []);
    assert_eq!(corners_of("map-threshold=0.9"), []);
}

#[test]
fn rotated_texts_are_turned_and_read() {
    let folder = scratch("text-turned");
    let (first, second) = (text_map(0.5).save(&folder.join("maps.onnx")), reader(&folder));
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={first} ! trtnms layout=text-detect draw=false ! trtpreprocess \
         regions=objects align=box ! trtinfer model-file={second} ! trtnms"
    ));
    assert_eq!(texts(&line.push(frame())), [Some(("Hi".to_string(), 0.875))]);
    assert_eq!(line.said(), [""; 0]);
}

/// Behind a reader, trttrack lets the reads of an object vote, whoever has given it an id.
#[test]
fn several_reads_decide_on_the_text_of_an_object() {
    let reads = ["AB12", "AB12", "A812", "AB1", "AB12", "AB12", "XB12", "AB12", "AB12", "AB12"];
    for has_id in [true, false] {
        let mut line = Line::parse("trttrack post-messages=true");
        let mut found = Vec::new();
        for (number, read) in reads.into_iter().enumerate() {
            let mut buffer = frame();
            let writable = buffer.get_mut().unwrap();
            writable.set_pts(gst::ClockTime::from_mseconds(40 * number as u64));
            let mut region = VideoRegionOfInterestMeta::add(writable, "plate", (8, 8, 32, 16));
            if has_id {
                region.add_param(gst::Structure::builder("object_id").field("id", 7i32).build());
            }
            let text = gst::Structure::builder("classification").field("label", read).field("confidence", 0.75f64);
            region.add_param(text.field("text", true).build());
            let buffer = line.push(buffer);
            let region = buffer.meta::<VideoRegionOfInterestMeta>().unwrap();
            let param = region.param("classification").unwrap();
            assert!(param.get::<f64>("confidence").unwrap() > 0.3);
            found.push((param.get::<String>("label").unwrap(), param.get::<String>("read").ok()));
        }
        let wanted = |read: &str| ("AB12".to_string(), (read != "AB12").then(|| read.to_string()));
        assert_eq!(found, reads.map(wanted), "{has_id}");
        let message = message(&line);
        let object = message.get::<gst::Array>("detections").unwrap()[0].get::<gst::Structure>().unwrap();
        let attribute = object.get::<gst::Array>("attributes").unwrap()[0].get::<gst::Structure>().unwrap();
        assert_eq!(attribute.get::<&str>("label"), Ok("AB12"));
        assert_eq!(line.said(), [""; 0], "{has_id}");
    }
}
