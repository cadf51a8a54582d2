// SPDX-License-Identifier: MPL-2.0
//! Texts of frames and of objects: where they can be read, and which dictionary reads them.

use crate::common::boxes::{Line, SIDE, grey, model, reader, text_graph, text_map, wide_reader};
use crate::common::onnx::{F32, Graph, I64, int, ints};
use crate::common::{launch, scratch};
use gst::meta::CustomMeta;
use gst::prelude::*;
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

/// Text and confidence of a frame, by each of its models, and whether they are those of an earlier frame.
fn texts_of_frame(buffer: &gst::BufferRef) -> Vec<(String, f64, bool)> {
    let Ok(meta) = CustomMeta::from_buffer(buffer, "GstTrtTextMeta") else { return Vec::new() };
    let text = |value: &gst::glib::SendValue| {
        let text = value.get::<gst::Structure>().unwrap();
        (text.get("text").unwrap(), text.get("confidence").unwrap(), text.get::<bool>("held").is_ok())
    };
    meta.structure().get::<gst::Array>("texts").unwrap().iter().map(text).collect()
}

#[test]
fn frames_have_their_texts_with_them() {
    let model = reader(&scratch("text-meta"));
    let read = |is_held| ("Hi".to_string(), 0.875, is_held);
    let mut line = Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} interval=2 ! trtnms draw=false"));
    assert_eq!(texts_of_frame(&line.push(frame())), [read(false)]);
    assert_eq!(texts_of_frame(&line.push(frame())), [read(true)], "it is that of the frame before");
    assert_eq!(line.said(), [""; 0]);
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} ! trtnms ! trtpreprocess ! trtinfer model-file={model} ! trtnms"
    ));
    assert_eq!(texts_of_frame(&line.push(frame())), [read(false), read(false)], "one for each model");
    let mut line = Line::new(&model, "score-threshold=0.9");
    assert_eq!(texts_of_frame(&line.push(frame())), []);
}

/// As classes of the frame are.
#[test]
fn texts_of_frames_are_written_in_the_corner() {
    let model = reader(&scratch("text-drawn"));
    let pixels = |elements: &str| {
        let mut line = Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} ! {elements}"));
        line.caps("RGB", 320, 240);
        let buffer = line.push(grey(320 * 240 * 3));
        buffer.map_readable().unwrap().to_vec()
    };
    let (plain, drawn) = (pixels("trtnms draw=false"), pixels("trtnms"));
    assert_ne!(drawn[..3], plain[..3], "from the corner on");
    assert_eq!(drawn[960 - 3..960], plain[..3]);
    assert_eq!(drawn, pixels("trtnms draw=false ! trtoverlay"), "from the meta");
    assert_eq!(plain, pixels("trtnms score-threshold=0.9"));
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

/// 100 rows of 100 texts, each of 4x4 pixels with 2 between them. The reader sees four of them, and the others are counted.
#[test]
fn ten_thousand_texts_are_found() {
    let folder = scratch("text-many");
    let is_text = |at: usize| at % 600 % 6 < 4 && at / 600 % 6 < 4;
    let pixels: Vec<f32> = (0..600 * 600).map(|at| if is_text(at) { 0.875 } else { 0.0 }).collect();
    let maps = Graph::new().input("images", F32, &["1", "3", "600", "600"]);
    let maps = maps.constant("maps", &[1, 1, 600, 600], &pixels).save(&folder.join("maps.onnx"));
    let reader = reader(&folder);
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={maps} ! trtnms layout=text-detect draw=false max-detections=65536 \
         ! trtpreprocess name=crops regions=objects align=line min-object-size=4 max-objects=4 \
         ! trtinfer model-file={reader} ! trtnms"
    ));
    line.caps("RGB", 600, 600);
    let found = texts(&line.push(grey(600 * 600 * 3)));
    assert_eq!((found.len(), found.iter().flatten().count()), (10_000, 4));
    let stats = line.by_name("crops").property::<gst::Structure>("stats");
    assert_eq!(["objects", "left-out"].map(|name| stats.get::<u64>(name).unwrap()), [10_000, 9_996]);
    assert_eq!(line.said(), [""; 0]);
}

/// Texts are hidden as objects of any class are.
#[test]
fn texts_are_hidden_by_their_label() {
    let model = text_map(0.0).save(&scratch("text-hidden").join("maps.onnx"));
    let noise = || (0..SIDE * SIDE).map(|at| (at * 89 % 239) as u8).collect::<Vec<u8>>();
    // The first and the last column and row that are not as they were.
    let changed = |properties: &str| {
        let mut line = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={model} ! trtnms layout=text-detect draw=false ! trtoverlay draw=false {properties}"
        ));
        line.caps("GRAY8", SIDE, SIDE);
        let buffer = line.push(gst::Buffer::from_mut_slice(noise()));
        assert_eq!(line.said(), [""; 0], "{properties}");
        let after = buffer.map_readable().unwrap().to_vec();
        let differ = (0..SIDE * SIDE).zip(noise().into_iter().zip(after)).filter(|(_, (was, is))| was != is);
        let (xs, ys): (Vec<u32>, Vec<u32>) = differ.map(|(at, _)| (at % SIDE, at / SIDE)).unzip();
        let ends = |places: &[u32]| Some((*places.iter().min()?, *places.iter().max()?));
        ends(&xs).zip(ends(&ys))
    };
    // The text has columns 12 to 51 and rows 28 to 35. Its box is 4.45 larger on each side, in whole pixels, and is hidden in pairs.
    for properties in ["blur=text", "pixelate=text", "blur=*"] {
        assert_eq!(changed(properties), Some(((8, 55), (24, 39))), "{properties}");
    }
    assert_eq!(changed(""), None);
}

/// The bytes of a weight.
fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A model of pictures of 64x16 that reads “H” where the left half is brighter, else “i”.
fn sided(folder: &std::path::Path) -> String {
    let side: Vec<f32> = (0..64).map(|column| if column < 32 { 1.0 } else { -1.0 }).collect();
    Graph::new()
        .input("images", F32, &["1", "3", "16", "64"])
        .weight("side", F32, &[1, 1, 1, 64], floats(&side))
        .weight("factor", F32, &[1, 1, 4], floats(&[0.0, 100.0, -100.0, 0.0]))
        .weight("addend", F32, &[1, 1, 4], floats(&[-50.0, 0.0, 0.0, -50.0]))
        .weight("shape", I64, &[3], [1i64, 1, 1].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .node("Mul", &["images", "side"], &["sided"], vec![])
        .node("ReduceMean", &["sided"], &["mean"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)])
        .node("Reshape", &["mean", "shape"], &["step"], vec![])
        .node("Mul", &["step", "factor"], &["scaled"], vec![])
        .node("Add", &["scaled", "addend"], &["logits"], vec![])
        .output("logits", F32, &["1", "1", "4"])
        .metadata("character", "H\ni")
        .save(&folder.join("reader.onnx"))
}

#[test]
fn texts_that_are_upside_down_are_turned_and_read() {
    let folder = scratch("text-orientation");
    let lines = text_map(0.0).save(&folder.join("lines.onnx"));
    let turns = Graph::new().input("images", F32, &["1", "3", "16", "64"]).constant("turns", &[1, 2], &[0.05, 0.95]);
    let turns = turns.save(&folder.join("turns.onnx"));
    let reader = sided(&folder);
    // Bright at the left, dark at the right.
    let frame = || {
        let pixel = |at: usize| if at % 64 < 32 { [255; 3] } else { [0; 3] };
        gst::Buffer::from_mut_slice((0..64 * 64).flat_map(pixel).collect::<Vec<u8>>())
    };
    let crops = "trtpreprocess regions=objects align=line min-object-size=8";
    let line = |nms: &str, count: usize| {
        let turn = format!("! {crops} ! trtinfer model-file={turns} ! trtnms layout=text-orientation {nms} ");
        Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={lines} ! trtnms layout=text-detect draw=false {} ! {crops} \
             ! trtinfer model-file={reader} ! trtnms layout=ctc class-scores=logits",
            turn.repeat(count)
        ))
    };
    let probabilities = "class-scores=probabilities";
    for (nms, count, wanted, degrees) in [
        ("", 0, "H", None),
        (probabilities, 1, "i", Some(180)),
        (probabilities, 2, "H", Some(180)),
        ("class-scores=probabilities score-threshold=0.96", 1, "H", None),
    ] {
        let mut line = line(nms, count);
        let buffer = line.push(frame());
        let found: Vec<String> = texts(&buffer).into_iter().map(|text| text.unwrap().0).collect();
        assert_eq!(found, [wanted], "{nms} {count}");
        let region = buffer.meta::<VideoRegionOfInterestMeta>().unwrap();
        let orientation = region.param("orientation");
        assert_eq!(orientation.and_then(|param| param.get::<u32>("degrees").ok()), degrees, "{nms} {count}");
        assert_eq!(line.said(), [""; 0], "{nms} {count}");
    }
    let names = folder.join("names.txt");
    std::fs::write(&names, "up\ndown\n").unwrap();
    let outcome = launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
         ! trtinfer model-file={turns} ! trtnms layout=text-orientation label-file={} ! fakesink",
        names.display()
    ));
    assert!(outcome.error_text().contains("needs the classes 0 and 180 degrees"), "{}", outcome.error_text());
}

#[test]
fn lines_are_as_wide_as_they_need() {
    let folder = scratch("text-widths");
    // 16 rows: nearly 8 times as wide as high, as the last column is no corner, nearly square, and nearly 16 times.
    let boxes: [[f32; 6]; 3] =
        [[0.0, 0.0, 64.0, 8.0, 0.9, 0.0], [8.0, 20.0, 60.0, 44.0, 0.8, 1.0], [0.0, 56.0, 64.0, 60.0, 0.7, 2.0]];
    // With these the first two are the narrowest six, which have the width of the widest of them.
    let short: [[f32; 6]; 4] = [0.6, 0.5, 0.4, 0.3].map(|score| [0.0, 10.0, 16.0, 18.0, score, 0.0]);
    let (first, second) = (model(&folder, &[&boxes[..], &short].concat()), wide_reader(&folder));
    let alphabet = folder.join("alphabet.txt");
    std::fs::write(&alphabet, "H\ni\n_\n").unwrap();
    let line = |crops: &str, infer: &str| {
        Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={first} ! trtnms draw=false ! trtpreprocess regions=objects {crops} \
             min-object-size=4 ! trtinfer model-file={second} input-size=64x16 {infer} ! trtnms layout=slots label-file={}",
            alphabet.display()
        ))
    };
    for (infer, wanted) in [
        ("", [64; 7]),
        ("max-input-width=200", [128, 128, 200, 128, 128, 128, 128]),
        ("max-input-width=200 batch-size=4", [128, 128, 200, 128, 128, 128, 128]),
        ("max-input-width=64", [64; 7]),
    ] {
        let mut line = line("align=line", infer);
        for _ in 0..2 {
            let read = texts(&line.push(frame()));
            let lengths: Vec<usize> = read.iter().map(|text| text.as_ref().unwrap().0.len()).collect();
            assert_eq!(lengths, wanted, "{infer}");
        }
        assert_eq!(line.said(), [""; 0], "{infer}");
    }
    let mut line = line("align=none", "max-input-width=200");
    line.push(frame());
    let said = line.said();
    assert!(said.len() == 1 && said[0].starts_with("max-input-width of trtinfer has no effect"), "{said:?}");
    let fixed = reader(&scratch("text-one-width"));
    let outcome = launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
         ! trtinfer model-file={fixed} max-input-width=640 ! trtnms ! fakesink"
    ));
    let text = outcome.error_text();
    assert!(text.contains("max-input-width is 640, which the model does not take"), "{text}");
}

/// A frame that is a line of text has the width that it needs, in pipelines and in sessions.
#[test]
fn whole_frames_are_as_wide_as_they_need() {
    let folder = scratch("text-whole-widths");
    let model = wide_reader(&folder);
    let alphabet = folder.join("alphabet.txt");
    std::fs::write(&alphabet, "H\ni\n_\n").unwrap();
    let (size, widest) = ("input-size=64x16", "max-input-width=200");
    let head = format!("label-file={}", alphabet.display());
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={model} {size} {widest} ! trtnms layout=slots {head} post-messages=true"
    ));
    let (options, postprocess) = parse_options(["backend=rten", size, widest, "layout=slots", head.as_str()]).unwrap();
    let mut detector = Detector::open(&model, &options, postprocess).unwrap();
    for (width, wanted) in [(64u32, 64), (256, 128), (640, 200), (16, 64)] {
        let bytes = width * 32 * 3;
        line.caps("RGB", width, 32);
        line.push(grey(bytes));
        let text = message(&line).get::<String>("text").unwrap();
        assert_eq!(text.len(), wanted, "{width}");
        let pixels = vec![0; bytes as usize];
        let planes = [Plane { data: &pixels[..], stride: width as usize * 3 }].into_iter().collect();
        let frame = Frame { format: PixelFormat::Rgb, width: width as usize, height: 32, planes };
        detector.detect(&frame, Colorimetry::default()).unwrap();
        assert_eq!(detector.text().unwrap().0.len(), wanted, "{width}");
    }
}

#[test]
fn a_beam_reads_the_most_probable_text() {
    let folder = scratch("text-beam");
    let steps = [[0.55f32, 0.45, 0.0, 0.0]; 2];
    let graph =
        Graph::new().input("images", F32, &["1", "3", "16", "64"]).constant("text", &[1, 2, 4], steps.as_flattened());
    let model = graph.metadata("character", "H\ni").save(&folder.join("reader.onnx"));
    let mut line = Line::new(&model, "post-messages=true");
    for (width, wanted) in [(1u32, None), (5, Some("H")), (1, None)] {
        line.nms().set_property("beam-width", width);
        line.push(frame());
        assert_eq!(message(&line).get::<&str>("text").ok(), wanted, "{width}");
    }
    assert_eq!(line.said(), [""; 0]);
}

#[test]
fn boxes_of_texts_grow_as_is_set() {
    let model = text_map(0.5).save(&scratch("text-growth").join("maps.onnx"));
    let width_of = |nms: &str| {
        let mut line = Line::new(&model, &format!("layout=text-detect draw=false {nms}"));
        let buffer = line.push(frame());
        assert_eq!(line.said(), [""; 0], "{nms}");
        let region = buffer.meta::<VideoRegionOfInterestMeta>().unwrap();
        let edge = |name: &str| region.param("detection").unwrap().get::<f64>(name).unwrap();
        edge("x_max") - edge("x_min")
    };
    let usual = width_of("");
    assert!(width_of("unclip-ratio=0.5") < usual && width_of("unclip-ratio=2") > usual);
    assert!(width_of("unclip-ratio=0.5 use-dilation=true") > width_of("unclip-ratio=0.5"));
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
