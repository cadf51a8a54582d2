// SPDX-License-Identifier: MPL-2.0
//! Vectors of frames and of objects, and where they can be read.

use crate::common::boxes::{Line, SIDE, embedder, model, numbers, open_embedder};
use crate::common::onnx::{F32, Graph};
use crate::common::{launch, scratch};
use gst::meta::CustomMeta;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::session::{Detector, PostprocessOptions, SessionOptions, parse_options};
use gsttrt_core::vector::of_text;

/// The first model finds one object of class a and one of class b.
const OBJECTS: [[f32; 6]; 2] = [[0.0, 0.0, 32.0, 32.0, 0.9, 0.0], [36.0, 0.0, 60.0, 20.0, 0.7, 1.0]];

/// Red where the first object is, blue elsewhere.
fn pixels() -> Vec<u8> {
    let side = SIDE as usize;
    let is_first = |at: usize| at % side < 32 && at / side < 32;
    (0..side * side).flat_map(|at| if is_first(at) { [255, 0, 0] } else { [0, 0, 255] }).collect()
}

fn frame() -> gst::Buffer {
    gst::Buffer::from_mut_slice(pixels())
}

#[track_caller]
fn assert_near(found: &[f32], wanted: &[f32]) {
    let is_near = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-3);
    assert!(found.len() == wanted.len() && is_near, "{found:?} {wanted:?}");
}

/// A quarter is red: one part to three.
fn whole() -> [f32; 3] {
    let length = 10f32.sqrt();
    [1.0 / length, 0.0, 3.0 / length]
}

fn of_frame(buffer: &gst::BufferRef) -> (Vec<Vec<f32>>, bool) {
    assert_eq!(buffer.iter_meta::<VideoRegionOfInterestMeta>().count(), 0);
    let meta = CustomMeta::from_buffer(buffer, "GstTrtVectorMeta").unwrap();
    let vectors = meta.structure().get::<gst::Array>("vectors").unwrap();
    let vectors: Vec<gst::Structure> = vectors.iter().map(|value| value.get().unwrap()).collect();
    let is_held = vectors.iter().any(|vector| vector.get::<bool>("held").is_ok());
    (vectors.iter().map(|vector| numbers(vector)).collect(), is_held)
}

/// The vector of each region, and whether it is of an earlier frame.
fn of_objects(buffer: &gst::BufferRef) -> Vec<Option<(Vec<f32>, bool)>> {
    let read = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        let param = meta.param("vector")?;
        assert_eq!(param.get::<&str>("model").unwrap(), "colours");
        Some((numbers(param), param.get::<bool>("held").unwrap_or(false)))
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(read).collect()
}

#[test]
fn frames_have_a_vector() {
    let model = embedder(&scratch("embed-frame"), "1");
    let mut line = Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} interval=2 ! trtnms"));
    for is_second in [false, true] {
        let (vectors, is_held) = of_frame(&line.push(frame()));
        assert_near(&vectors[0], &whole());
        assert_eq!((vectors.len(), is_held), (1, is_second));
    }
    assert!(line.notes().iter().any(|note| note.contains("std=0.229,0.224,0.225 for most of ReID")));
    assert_eq!(line.said(), [""; 0]);
}

#[test]
fn objects_have_a_vector_each() {
    let folder = scratch("embed-objects");
    let (first, second) = (model(&folder, &OBJECTS), embedder(&folder, "n"));
    for (regions, wanted) in [("", [true, true]), ("object-classes=b", [false, true])] {
        let mut line = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={first} ! trtnms draw=false ! trtpreprocess regions=objects {regions} \
             ! trtinfer model-file={second} batch-size=2 ! trtnms"
        ));
        let found = of_objects(&line.push(frame()));
        assert_eq!([0, 1].map(|at| found[at].is_some()), wanted, "{regions}");
        let colours = [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]];
        for (found, colour) in found.iter().zip(colours) {
            found.iter().for_each(|(vector, _)| assert_near(vector, &colour));
        }
        assert_eq!(line.said(), [""; 0], "{regions}");
    }
}

#[test]
fn objects_with_ids_keep_their_vectors() {
    let folder = scratch("embed-kept");
    let (first, second) = (model(&folder, &OBJECTS), embedder(&folder, "1"));
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={first} ! trtnms draw=false ! trttrack ! trtpreprocess regions=objects \
         reclassify-interval=4 ! trtinfer model-file={second} ! trtnms"
    ));
    let held: Vec<bool> = (0..12).flat_map(|_| of_objects(&line.push(frame()))).map(|found| found.unwrap().1).collect();
    assert!(held.contains(&true) && held.contains(&false), "{held:?}");
}

#[test]
fn a_tracker_behind_the_model_takes_the_vectors() {
    let folder = scratch("embed-tracked");
    let (first, second) = (model(&folder, &OBJECTS), embedder(&folder, "n"));
    let first = format!("trtpreprocess ! trtinfer model-file={first} ! trtnms draw=false");
    let second = format!("trtpreprocess regions=objects ! trtinfer model-file={second} batch-size=2 ! trtnms");
    for (elements, warnings) in [
        (format!("{first} ! {second} ! trttrack tracker=botsort"), 0),
        (format!("{first} ! trttrack tracker=botsort ! {second}"), 1),
    ] {
        let mut line = Line::parse(&elements);
        (0..70).for_each(|_| drop(line.push(frame())));
        let said = line.said();
        assert_eq!(said.len(), warnings, "{elements}: {said:?}");
    }
}

#[test]
fn vectors_are_published_where_they_are_wanted() {
    let folder = scratch("embed-published");
    let (first, second) = (model(&folder, &OBJECTS), embedder(&folder, "1"));
    let infer = |model: &str| format!("trtinfer model-file={model} ! trtnms draw=false");
    let (boxes, vectors) = (infer(&first), infer(&second));
    let published = |elements: &str, properties: &str| -> serde_json::Value {
        let file = folder.join("out.jsonl");
        let _ = std::fs::remove_file(&file);
        let mut line = Line::parse(&format!("{elements} ! trtpublish location={} {properties}", file.display()));
        line.push(frame());
        drop(line);
        serde_json::from_str(std::fs::read_to_string(&file).unwrap().lines().next().unwrap()).unwrap()
    };
    let of_objects = format!("trtpreprocess ! {boxes} ! trtpreprocess regions=objects ! {vectors}");
    let found = published(&of_objects, "vectors=true");
    for (at, colour) in [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]].into_iter().enumerate() {
        let text = found["detections"][at]["vectors"][0].as_str().unwrap();
        assert_near(&of_text(text).unwrap(), &colour);
    }
    assert!(found.get("vectors").is_none(), "{found}");
    assert!(published(&of_objects, "")["detections"][0].get("vectors").is_none());
    let found = published(&format!("trtpreprocess ! {vectors}"), "vectors=true");
    assert_near(&of_text(found["vectors"][0].as_str().unwrap()).unwrap(), &whole());
}

/// It may be the scores of classes: only the user or the file can tell.
#[test]
fn a_vector_is_never_guessed() {
    let folder = scratch("embed-guess");
    let graph = || Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("v", &[1, 64], &[0.125; 64]);
    let model = graph().save(&folder.join("model.onnx"));
    let outcome = launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
         ! trtinfer model-file={model} ! trtnms ! fakesink"
    ));
    assert!(outcome.error_text().contains("set layout=embed"), "{}", outcome.error_text());
    let mut line = Line::new(&model, "layout=embed");
    assert_eq!(of_frame(&line.push(frame())).0, [vec![0.125; 64]]);
    // What is no vector is told, and not attached.
    let odd = Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("v", &[1, 2], &[f32::NAN, 1.0]);
    let mut line = Line::new(&odd.save(&folder.join("odd.onnx")), "layout=embed");
    let buffer = line.push(frame());
    assert!(CustomMeta::from_buffer(&buffer, "GstTrtVectorMeta").is_err());
    assert!(line.said().iter().any(|text| text.contains("not finite")));
}

/// As Hugging Face's packages export models: the channels are open, too.
#[test]
fn models_of_open_channels_give_vectors() {
    let model = open_embedder(&scratch("embed-open"));
    let mut line = Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} input-size=16x16 ! trtnms"));
    assert_near(&of_frame(&line.push(frame())).0[0], &whole());
    assert_eq!(line.said(), [""; 0]);
    let outcome = launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
         ! trtinfer model-file={model} ! trtnms ! fakesink"
    ));
    let said = outcome.error_text();
    assert!(said.contains("(pixel_values f32 ?x3x?x?)") && said.contains("Set input-size"), "{said}");
    let (options, postprocess) = parse_options(["input-size=16x16"]).unwrap();
    let mut detector = Detector::open(&model, &options, postprocess).unwrap();
    let pixels = pixels();
    let planes = [Plane { data: &pixels[..], stride: 64 * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: 64, height: 64, planes };
    detector.detect(&frame, Colorimetry::default()).unwrap();
    assert_near(detector.vector().unwrap(), &whole());
}

#[test]
fn a_detector_gives_vectors() {
    let folder = scratch("embed-detector");
    let model = embedder(&folder, "n");
    let (options, postprocess) = parse_options(["batch-size=2"]).unwrap();
    let mut detector = Detector::open(&model, &options, postprocess).unwrap();
    assert_eq!(detector.vector(), None, "before the first frame");
    let pixels = pixels();
    let planes = || [Plane { data: &pixels[..], stride: 64 * 3 }].into_iter().collect();
    let frame = || Frame { format: PixelFormat::Rgb, width: 64, height: 64, planes: planes() };
    assert_eq!(detector.detect(&frame(), Colorimetry::default()).unwrap(), []);
    assert_near(detector.vector().unwrap(), &whole());
    let frames = [(); 3].map(|()| (frame(), Colorimetry::default()));
    for results in detector.detect_batch(&frames).unwrap() {
        assert_near(&results.vector.unwrap(), &whole());
        assert!(results.objects.is_empty() && results.classes.is_empty() && results.map.is_none());
    }
    let boxes = crate::common::boxes::model(&folder, &OBJECTS);
    let mut detector = Detector::open(&boxes, &SessionOptions::default(), PostprocessOptions::default()).unwrap();
    detector.detect(&frame(), Colorimetry::default()).unwrap();
    assert_eq!(detector.vector(), None, "it finds objects");
}
