// SPDX-License-Identifier: MPL-2.0
//! Outputs that a script made, against what the packages of their networks find in them.

use std::path::Path;

use super::*;
use crate::postprocess::suppress::Nms;
use crate::recorded::{self, RecordedModel};

/// Their layouts.
const FAMILIES: [&str; 12] = [
    "yunet",
    "scrfd",
    "retinaface",
    "picodet",
    "nanodet",
    "nanodet-plus",
    "rtmdet",
    "yolov4",
    "yolov7-end-to-end",
    "mmdeploy",
    "torchvision",
    "openvino-ssd",
];

/// As in tests/zoo/rows.py: the side of the input, the least score, and the greatest IoU of two objects.
const SIDE: u32 = 640;
const LEAST: f32 = 0.5;
const OVERLAP: f32 = 0.4;

/// Numbers of five points.
const POINTS: usize = 10;

/// What is found of outputs after the suppression, its points, and how many there were before.
fn found(decoder: &Decoder, outputs: &[Tensor]) -> (Vec<Candidate>, Vec<f32>, usize) {
    let mut found = Vec::new();
    decoder.decode(outputs, &Thresholds::uniform(LEAST), &mut found).unwrap();
    let all = found.len();
    Nms::new(OVERLAP, 300, false).run(decoder.format().suppress(), &mut found);
    let mut points = Vec::new();
    decoder.cell_keypoints(outputs, &found, &mut points).unwrap();
    (found, points, all)
}

#[track_caller]
fn assert_like(RecordedModel { name, outputs, .. }: &RecordedModel, wanted: &[&[f64]]) {
    let hints = ModelHints { chooses_rows: name == yolov7_end_to_end::HEAD.name, ..at(SIDE) };
    let decoder = |head| Decoder::new(head, &descs(outputs), &hints).unwrap();
    let own = decoder(None);
    assert_eq!(own.format().name, name);
    let (found_here, points, all) = found(&own, outputs);
    // The same head from a file, of those that have one.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/layouts/{name}.toml"));
    if file.exists() {
        let twin = decoder(Some(layout_file::of_file(&file).unwrap()));
        assert_eq!(found(&twin, outputs), (found_here.clone(), points.clone(), all), "{name}");
    }
    assert!(wanted.len() > 8, "{name}: {} objects test nothing", wanted.len());
    assert!(all > wanted.len() || !own.needs_nms(), "{name}: none of {all} boxes repeats another");
    assert_eq!(found_here.len(), wanted.len(), "{name}");
    let picture = BBox::new(0.0, 0.0, SIDE as f32, SIDE as f32);
    for (place, (one, wanted)) in found_here.iter().zip(wanted).enumerate() {
        let numbers: Vec<f32> = wanted.iter().map(|&number| number as f32).collect();
        let [left, top, right, bottom, score, class, ref wanted_points @ ..] = numbers[..] else {
            panic!("{wanted:?}")
        };
        let theirs = BBox::new(left, top, right, bottom);
        // Some packages cut boxes off at the edges of the picture.
        let ours = if theirs == theirs.clip(&picture) { one.bbox.clip(&picture) } else { one.bbox };
        assert!(ours.iou(&theirs) >= 0.99, "{name}: {one:?} {wanted:?}");
        assert!((one.score - score).abs() <= 1e-3, "{name}: {one:?} {wanted:?}");
        assert_eq!(one.class, class as u32, "{name}: {one:?} {wanted:?}");
        let points = points.get(place * POINTS..(place + 1) * POINTS).unwrap_or_default();
        let is_near = |(a, b): (&f32, &f32)| (a - b).abs() < 0.01;
        assert_eq!(points.len(), wanted_points.len(), "{name}");
        assert!(points.iter().zip(wanted_points).all(is_near), "{name}: {points:?} {wanted:?}");
    }
}

/// All objects of each package are found, with its boxes, scores, classes and points.
#[test]
fn objects_are_those_of_the_packages() {
    let recordings = recorded::all();
    for name in FAMILIES {
        let found = recordings.iter().find(|recording| recording.name == name);
        let recording = found.unwrap_or_else(|| panic!("{name} is not recorded: run tests/zoo/families.sh"));
        assert_like(recording, &recording.lines("object"));
    }
}
