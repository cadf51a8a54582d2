// SPDX-License-Identifier: MPL-2.0
//! Anomalies: the score of a frame and its map, as Anomalib exports them.

use std::path::Path;

use gst::meta::CustomMeta;
use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::session::{Detector, parse_options};

use crate::common::boxes::{Line, SIDE, drawn, grey, model as boxes_model};
use crate::common::onnx::{BOOL, F32, Graph, int, ints};
use crate::common::{launch, scratch};

/// The outputs of Anomalib's graph in its order. The map rises by an eighth from column to column.
fn graph(score: f32) -> Graph {
    let map: Vec<f32> = (0..64).map(|at| (at % 8) as f32 / 8.0).collect();
    Graph::new()
        .input("input", F32, &["1", "3", "64", "64"])
        .weight("half", F32, &[1], 0.5f32.to_le_bytes().into())
        .constant("pred_score", &[1], &[score])
        .node("Greater", &["pred_score", "half"], &["pred_label"], Vec::new())
        .output("pred_label", BOOL, &["1"])
        .constant("anomaly_map", &[1, 1, 8, 8], &map)
        .node("Greater", &["anomaly_map", "half"], &["pred_mask"], Vec::new())
        .output("pred_mask", BOOL, &["1", "1", "8", "8"])
}

fn model(folder: &Path, score: f32) -> String {
    graph(score).save(&folder.join(format!("{score}.onnx")))
}

fn frame() -> gst::Buffer {
    grey(SIDE * SIDE * 3)
}

/// Label, class id and confidence.
type Class = (String, u32, f64);
/// Label and share of the pixels.
type Region = (String, f64);

fn classes(array: &gst::Array) -> Vec<Class> {
    let class = |value: &gst::glib::SendValue| {
        let class = value.get::<gst::Structure>().unwrap();
        (class.get("label").unwrap(), class.get("class-id").unwrap(), class.get("confidence").unwrap())
    };
    array.iter().map(class).collect()
}

/// Those of a map of classes.
fn regions(map: &gst::StructureRef) -> Vec<Region> {
    assert_eq!(map.get::<String>("kind").unwrap(), "classes");
    let region = |value: &gst::glib::SendValue| {
        let region = value.get::<gst::Structure>().unwrap();
        (region.get("label").unwrap(), region.get("share").unwrap())
    };
    map.get::<gst::Array>("regions").unwrap_or_default().iter().map(region).collect()
}

/// The classes that are attached to a frame.
fn attached_classes(buffer: &gst::BufferRef) -> Vec<Class> {
    let of_frame = CustomMeta::from_buffer(buffer, "GstTrtClassificationMeta").unwrap();
    classes(&of_frame.structure().get::<gst::Array>("classes").unwrap_or_default())
}

/// These and the regions of the map.
fn attached(buffer: &gst::BufferRef) -> (Vec<Class>, Vec<Region>) {
    let maps = CustomMeta::from_buffer(buffer, "GstTrtMapMeta").unwrap();
    let maps = maps.structure().get::<gst::Array>("maps").unwrap();
    let [map] = maps.as_slice() else { panic!("{maps:?}") };
    (attached_classes(buffer), regions(&map.get::<gst::Structure>().unwrap()))
}

fn anomaly(score: f64) -> Vec<Class> {
    vec![("anomaly".into(), 0, score)]
}

#[test]
fn the_score_and_the_map_are_attached_and_posted() {
    let model = model(&scratch("anomaly-posted"), 0.75);
    let mut line = Line::new(&model, "post-messages=true");
    let buffer = line.push(frame());
    // Halfway from the fifth column to the sixth of eight.
    let wanted = (anomaly(0.75), vec![("anomaly".to_string(), 28.0 / 64.0)]);
    assert_eq!(attached(&buffer), wanted);
    let message = line.messages().remove(0);
    let map = message.get::<gst::Structure>("map").unwrap();
    assert_eq!((classes(&message.get::<gst::Array>("classes").unwrap()), regions(&map)), wanted);
    assert_eq!(message.get::<u32>("count").unwrap(), 0);
    assert_eq!(line.said(), [] as [String; 0]);
    assert!(!line.notes().iter().any(|note| note.contains("mean=")), "the graph has the normalisation");
}

#[test]
fn thresholds_are_those_of_anomalib_unless_they_are_set() {
    let folder = scratch("anomaly-thresholds");
    // Anomalib's label is true where the score is above 0.5.
    for (score, is_anomaly) in [(0.0, false), (0.25, false), (0.5, false), (0.5f32.next_up(), true), (1.0, true)] {
        let mut line = Line::new(&model(&folder, score), "draw=false");
        let (found, map) = attached(&line.push(frame()));
        let wanted = if is_anomaly { anomaly(score.into()) } else { Vec::new() };
        assert_eq!((found, map.len()), (wanted, 1), "the map does not depend on the score {score}");
        // The score of each frame, and pixels above another one.
        line.nms().set_property("score-threshold", 0.0f32);
        line.nms().set_property("map-threshold", 0.3125f32);
        let (found, map) = attached(&line.push(frame()));
        assert_eq!((found, map[0].1), (anomaly(score.into()), 5.0 / 8.0));
        line.nms().set_property("map-threshold", 0.0f32);
        assert_eq!(attached(&line.push(frame())).1[0].1, 28.0 / 64.0, "0 stands for 0.5");
        assert_eq!(line.said(), [] as [String; 0]);
    }
    let mut line = Line::new(&model(&folder, 0.75), "draw=false score-threshold=0.875");
    assert_eq!(attached(&line.push(frame())).0, []);
}

#[test]
fn the_class_has_the_name_of_the_label_file() {
    let folder = scratch("anomaly-labels");
    let (model, labels) = (model(&folder, 0.75), folder.join("labels.txt"));
    std::fs::write(&labels, "scratch\n").unwrap();
    let mut line = Line::new(&model, &format!("draw=false classes=scratch label-file={}", labels.display()));
    let (found, map) = attached(&line.push(frame()));
    assert_eq!((&*found[0].0, &*map[0].0), ("scratch", "scratch"));
    std::fs::write(&labels, "normal\nanomalous\n").unwrap();
    let outcome = launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
         ! trtinfer model-file={model} ! trtnms label-file={} ! fakesink",
        labels.display()
    ));
    assert!(outcome.error_text().contains("one class, the anomaly, against 2 labels"), "{}", outcome.error_text());
}

/// As an export without Anomalib's post-processing gives them.
#[test]
fn scores_that_are_not_normalised_are_told() {
    let mut line = Line::new(&model(&scratch("anomaly-raw"), 34.5), "draw=false");
    for frame_number in 0..3 {
        assert_eq!(attached(&line.push(frame())).0, anomaly(34.5));
        let said = line.said();
        assert_eq!(said.len(), usize::from(frame_number == 0), "{said:?}");
        let parts = ["scores above 1 for pictures, such as 34.5", "Anomalib 2", "a layout file with [anomaly]"];
        assert!(said.iter().all(|text| parts.iter().all(|part| text.contains(part))), "{said:?}");
    }
}

/// As Anomalib 1 exports them, with the numbers of its metadata.json in a layout file.
#[test]
fn raw_scores_are_normalised_by_the_layout_file() {
    let folder = scratch("anomaly-range");
    let file = folder.join("head.toml");
    let range = "[anomaly]\nimage-threshold = 24.5\npixel-threshold = 0.25\nmin = 8.5\nmax = 48.5\n";
    let output = |name: &str, dims: &str| {
        format!("[[output]]\nname = \"{name}\"\ndims = [\"batch\"{dims}]\ncolumns = [\"anomaly-score\"]\n")
    };
    let outputs = output("anomaly_map", ", \"one\", \"height\", \"width\"") + &output("pred_score", "");
    let text = format!("name = \"parts\"\ntask = \"anomaly\"\n[input]\nfit = \"stretch\"\n{range}{outputs}");
    std::fs::write(&file, &text).unwrap();
    let layout = format!("draw=false layout-file={}", file.display());
    for (raw, score) in
        [(34.5, Some(0.75)), (24.5, Some(0.5)), (24.5f32.next_down(), None), (1e6, Some(1.0)), (-3.0, None)]
    {
        let mut line = Line::new(&model(&folder, raw), &layout);
        let wanted = score.map_or(Vec::new(), anomaly);
        // The map rises by an eighth from column to column of eight, and the third of them is at the threshold.
        let (found, map) = attached(&line.push(frame()));
        assert_eq!(found, wanted, "{raw}");
        assert_eq!(map, [("anomaly".to_string(), 44.0 / 64.0)], "{raw}");
        line.nms().set_property("map-threshold", 0.3125f32);
        assert_eq!(attached(&line.push(frame())).1[0].1, 5.0 / 8.0, "in the units of the map");
        assert_eq!(line.said(), [] as [String; 0]);
    }
    // The same in the model itself.
    let carrying = graph(44.5).metadata("gsttrt", &text).save(&folder.join("carrying.onnx"));
    let mut line = Line::new(&carrying, "draw=false");
    assert_eq!(attached(&line.push(frame())).0, anomaly(1.0));
    std::fs::write(&file, text.replace("max = 48.5", "max = 8")).unwrap();
    let outcome = launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
         ! trtinfer model-file={carrying} ! trtnms {layout} ! fakesink"
    ));
    assert!(outcome.error_text().contains("max must be greater"), "{}", outcome.error_text());
}

#[test]
fn a_score_that_is_no_number_is_counted() {
    let mut line = Line::new(&model(&scratch("anomaly-nan"), f32::NAN), "draw=false score-threshold=0");
    for frame_number in 0..2 {
        assert_eq!(attached(&line.push(frame())).0, []);
        let said = line.said();
        assert_eq!(said.len(), usize::from(frame_number == 0), "{said:?}");
        assert!(said.iter().all(|text| text.contains("not finite, in 1 values of a frame")), "{said:?}");
    }
    assert_eq!(line.nms().property::<gst::Structure>("stats").get::<u64>("not-finite"), Ok(2));
}

#[test]
fn anomalies_look_the_same_whoever_draws_them() {
    crate::common::init();
    let infer = format!("trtpreprocess ! trtinfer model-file={}", model(&scratch("anomaly-drawn"), 0.75));
    for format in ["RGB", "NV12"] {
        let drawn = |elements: String| drawn(&elements, format, (160, 90));
        let fused = drawn(format!("{infer} ! trtnms draw=true"));
        let apart = drawn(format!("{infer} ! trtnms draw=false ! trtoverlay"));
        let unlabelled = drawn(format!("{infer} ! trtnms draw=true score-threshold=1"));
        let without = drawn(format!("{infer} ! trtnms draw=false"));
        assert!(fused == apart && fused != unlabelled && unlabelled != without, "{format}");
    }
}

#[test]
fn skipped_frames_repeat_the_score_and_the_map() {
    let model = model(&scratch("anomaly-held"), 0.75);
    let mut line = Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} interval=2 ! trtnms draw=false"));
    let first = attached(&line.push(frame()));
    let buffer = line.push(frame());
    assert_eq!(attached(&buffer), first);
    let meta = CustomMeta::from_buffer(&buffer, "GstTrtClassificationMeta").unwrap();
    assert_eq!(meta.structure().get::<bool>("held"), Ok(true));
}

#[test]
fn other_exports_are_read_with_the_layout() {
    let folder = scratch("anomaly-unnamed");
    let model = Graph::new()
        .input("input", F32, &["1", "3", "64", "64"])
        .constant("output", &[1, 1, 8, 8], &[0.75; 64])
        .constant("565", &[1, 1], &[0.625])
        .save(&folder.join("model.onnx"));
    let mut line = Line::new(&model, "draw=false layout=anomaly");
    assert_eq!(attached(&line.push(frame())), (anomaly(0.625), vec![("anomaly".to_string(), 1.0)]));
    assert_eq!(line.said(), [] as [String; 0]);
}

/// As GANomaly gives it.
#[test]
fn a_score_may_be_without_a_map() {
    let folder = scratch("anomaly-score");
    let model = |name: &str, score: f32| {
        let graph = Graph::new().input("input", F32, &["1", "3", "64", "64"]).constant(name, &[1, 1], &[score]);
        graph.save(&folder.join(format!("{name}-{score}.onnx")))
    };
    for (file, nms, wanted) in [
        (model("pred_score", 0.75), "", anomaly(0.75)),
        (model("pred_score", 0.5), "", Vec::new()),
        (model("pred_score", 0.25), "score-threshold=0.125", anomaly(0.25)),
        (model("output", 0.625), "layout=anomaly-score", anomaly(0.625)),
    ] {
        let mut line = Line::new(&file, &format!("draw=false {nms}"));
        let buffer = line.push(frame());
        assert_eq!(attached_classes(&buffer), wanted, "{file} {nms}");
        assert!(CustomMeta::from_buffer(&buffer, "GstTrtMapMeta").is_err(), "there is no map");
        assert_eq!(line.said(), [] as [String; 0]);
    }
    let mut line = Line::new(&model("pred_score", 0.75), "draw=false map-threshold=0.25");
    line.push(frame());
    let said = line.said();
    assert!(said.len() == 1 && said[0].contains("map-threshold has no effect"), "{said:?}");
    let mut line = Line::new(&model("pred_score", f32::NAN), "draw=false score-threshold=0");
    assert_eq!(attached_classes(&line.push(frame())), []);
    assert!(line.said()[0].contains("not finite, in 1 values of a frame"));
    let mut detector = Detector::open(model("pred_score", 0.75), &Default::default(), Default::default()).unwrap();
    let pixels = [77; 64 * 64 * 3];
    let planes = [Plane { data: &pixels[..], stride: 64 * 3 }].into_iter().collect();
    let picture = Frame { format: PixelFormat::Rgb, width: 64, height: 64, planes };
    assert_eq!(detector.detect(&picture, Colorimetry::default()).unwrap(), []);
    let found = detector.classes();
    assert_eq!((found.len(), &*found[0].label, found[0].confidence), (1, "anomaly", 0.75));
    assert!(detector.map().is_none());
}

/// Of each object, such as a part on a belt: how bright it is stands for how unusual it is.
#[test]
fn objects_have_scores_of_their_own() {
    let folder = scratch("anomaly-objects");
    let parts = boxes_model(&folder, &[[0.0, 0.0, 32.0, 32.0, 0.9, 0.0], [32.0, 32.0, 64.0, 64.0, 0.8, 1.0]]);
    let score = Graph::new()
        .input("input", F32, &["n", "3", "16", "16"])
        .node("ReduceMean", &["input"], &["pred_score"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)])
        .output("pred_score", F32, &["n"])
        .save(&folder.join("score.onnx"));
    let mut line = Line::parse(&format!(
        "trtpreprocess ! trtinfer model-file={parts} ! trtnms draw=false ! trtpreprocess regions=objects \
         ! trtinfer model-file={score} batch-size=2 ! trtnms draw=false"
    ));
    let side = SIDE as usize;
    let pixels = (0..side * side).flat_map(|at| [if at % side < 32 && at / side < 32 { 255 } else { 51 }; 3]);
    let buffer = line.push(gst::Buffer::from_mut_slice(pixels.collect::<Vec<u8>>()));
    let read = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        let param = meta.param("classification");
        let label = param.map(|param| (param.get::<String>("label").unwrap(), param.get::<f64>("confidence").unwrap()));
        (meta.roi_type().to_string(), label)
    };
    let found: Vec<_> = buffer.iter_meta::<VideoRegionOfInterestMeta>().map(read).collect();
    assert!(found.len() == 2 && found[1] == ("b".to_string(), None), "{found:?}");
    let (label, confidence) = found[0].1.as_ref().expect("it is bright");
    assert!(label == "anomaly" && (confidence - 1.0).abs() < 1e-3, "{found:?}");
    assert_eq!(line.said(), [] as [String; 0]);
}

#[test]
fn a_detector_gives_the_score_and_the_map() {
    let folder = scratch("anomaly-detector");
    for (score, threshold, is_anomaly) in
        [(0.75, None, true), (0.25, None, false), (0.25, Some("score-threshold=0.125"), true)]
    {
        let (options, postprocess) = parse_options(threshold).unwrap();
        let mut detector = Detector::open(model(&folder, score), &options, postprocess).unwrap();
        let pixels = [77; 64 * 64 * 3];
        let planes = [Plane { data: &pixels[..], stride: 64 * 3 }].into_iter().collect();
        let frame = Frame { format: PixelFormat::Rgb, width: 64, height: 64, planes };
        assert_eq!(detector.detect(&frame, Colorimetry::default()).unwrap(), []);
        let found: Vec<(String, f32)> =
            detector.classes().into_iter().map(|class| (class.label, class.confidence)).collect();
        let wanted = if is_anomaly { vec![("anomaly".to_string(), score)] } else { Vec::new() };
        assert_eq!(found, wanted);
        let pixels: u32 = detector.map().unwrap().regions().iter().map(|region| region.pixels).sum();
        assert_eq!(pixels, 28 * 64);
    }
}
