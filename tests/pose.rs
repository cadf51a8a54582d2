// SPDX-License-Identifier: MPL-2.0
//! Keypoints: their boxes, their position on the frame, and where they can be read.

use std::path::Path;

use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::session::{Detector, Keypoint, PostprocessOptions, SessionOptions};
use proptest::prelude::*;

use crate::common::boxes::{Line, SIDE, grey};
use crate::common::onnx::{F32, Graph};
use crate::common::{launch, scratch};

/// Rows of a grid over 64x64.
const CELLS: usize = 84;

/// A row: centre and size of a box, a score for each of two classes, and two points.
type Row = [f32; 12];

/// At (8, 8): a weaker box of the same class repeats it; its points must not be taken. And a box of the other class.
const ROWS: [(usize, Row); 3] = [
    (3, [18.0, 16.0, 16.0, 16.0, 0.7, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 1.0]),
    (40, [16.0, 16.0, 16.0, 16.0, 0.9, 0.1, 10.0, 12.0, 0.75, 20.0, 22.0, 0.125]),
    (77, [48.0, 44.0, 16.0, 8.0, 0.0, 0.5, 44.0, 46.0, 1.0, -5.0, 70.0, 0.5]),
];

fn graph(dims: &[i64], values: &[f32]) -> Graph {
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", dims, values)
        .metadata("task", "pose")
        .metadata("names", "{0: 'cat', 1: 'dog'}")
        .metadata("kpt_shape", "[2, 3]")
        .metadata("kpt_names", "{0: ['nose', 'tail'], 1: ['nose', 'tail']}")
}

/// Columns, as Ultralytics exports them.
fn plain(folder: &Path, rows: &[(usize, Row)]) -> String {
    let mut values = vec![0.0; 12 * CELLS];
    for (at, row) in rows {
        row.iter().enumerate().for_each(|(column, &value)| values[column * CELLS + at] = value);
    }
    graph(&[1, 12, CELLS as i64], &values).save(&folder.join("plain.onnx"))
}

/// The same, suppressed by the model itself, so without repeated boxes.
fn end_to_end(folder: &Path, rows: &[(usize, Row)]) -> String {
    let mut values = vec![0.0; 12 * 300];
    for (to, (_, [cx, cy, w, h, cat, dog, points @ ..])) in values.chunks_exact_mut(12).zip(rows) {
        let (score, class) = if cat >= dog { (*cat, 0.0) } else { (*dog, 1.0) };
        to[..6].copy_from_slice(&[cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0, score, class]);
        to[6..].copy_from_slice(points);
    }
    graph(&[1, 300, 12], &values).save(&folder.join("end-to-end.onnx"))
}

/// The label of each region, and its points as x, y and visibility.
fn regions(buffer: &gst::BufferRef) -> Vec<(String, Vec<f64>)> {
    let read = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        let params = meta.param("keypoints").expect("a structure called keypoints");
        assert_eq!(params.get::<u32>("keypoint-dims").unwrap(), 3);
        let names = params.get::<gst::Array>("keypoint-names").unwrap();
        assert_eq!(names.iter().map(|name| name.get::<String>().unwrap()).collect::<Vec<_>>(), ["nose", "tail"]);
        let points = params.get::<gst::Array>("keypoints").unwrap();
        (meta.roi_type().to_string(), points.iter().map(|number| number.get().unwrap()).collect())
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(read).collect()
}

/// On a frame of 64x64, the size of the input: points outside are moved to its edge.
fn expected() -> Vec<(String, Vec<f64>)> {
    vec![
        ("cat".into(), vec![10.0, 12.0, 0.75, 20.0, 22.0, 0.125]),
        ("dog".into(), vec![44.0, 46.0, 1.0, 0.0, 64.0, 0.5]),
    ]
}

#[test]
fn points_belong_to_the_boxes_that_are_kept() {
    let folder = scratch("pose-kept");
    for model in [plain(&folder, &ROWS), end_to_end(&folder, &ROWS[1..])] {
        let mut line = Line::new(&model, "draw=false post-messages=true");
        let buffer = line.push(grey(SIDE * SIDE * 3));
        assert_eq!(regions(&buffer), expected(), "{model}");
        let messages = line.messages();
        let objects = messages[0].get::<gst::Array>("detections").unwrap();
        let found: Vec<(String, Vec<f64>)> = objects
            .iter()
            .map(|object| {
                let object = object.get::<gst::Structure>().unwrap();
                let points = object.get::<gst::Array>("keypoints").unwrap();
                (object.get("label").unwrap(), points.iter().map(|number| number.get().unwrap()).collect())
            })
            .collect();
        assert_eq!(found, expected(), "{model}");
        assert_eq!(
            messages[0].to_string().parse::<gst::Structure>().unwrap(),
            messages[0],
            "its text can be read back"
        );
    }
}

#[test]
fn points_follow_the_letterbox() {
    // Twice as wide as the input: 32 of its rows are the frame, below 16 rows of padding.
    let folder = scratch("pose-letterbox");
    let in_padding = (5, [32.0, 4.0, 16.0, 4.0, 0.95, 0.0, 32.0, 4.0, 1.0, 32.0, 4.0, 1.0]);
    let model = plain(&folder, &[in_padding, ROWS[1]]);
    let mut line = Line::new(&model, "draw=false");
    line.caps("RGB", 128, 64);
    let buffer = line.push(grey(128 * 64 * 3));
    // The box in the padding is not on the frame, so its points are left out too.
    assert_eq!(regions(&buffer), [("cat".to_string(), vec![20.0, 0.0, 0.75, 40.0, 12.0, 0.125])]);
}

#[test]
fn without_objects_there_are_no_points() {
    let mut line = Line::new(&plain(&scratch("pose-none"), &[]), "draw=true");
    assert_eq!(regions(&line.push(grey(SIDE * SIDE * 3))), []);
}

#[test]
fn many_figures_that_fill_the_frame() {
    let row = [32.0, 32.0, 64.0, 64.0, 0.9, 0.0, 10.0, 12.0, 0.75, 20.0, 22.0, 0.125];
    let rows: Vec<(usize, Row)> = (0..300).map(|at| (at, row)).collect();
    let model = end_to_end(&scratch("pose-many"), &rows);
    let found = regions(&Line::new(&model, "draw=true").push(grey(SIDE * SIDE * 3)));
    let points = row[6..].iter().map(|&number| f64::from(number)).collect();
    assert_eq!(found, vec![("cat".to_string(), points); 300]);
}

#[test]
fn boxes_without_an_area_have_no_points() {
    let folder = scratch("pose-flat");
    let flat = |size: [f32; 2]| [32.0, 32.0, size[0], size[1], 0.9, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 1.0];
    let rows = [(0, flat([0.0, 16.0])), (1, flat([16.0, 0.0])), (2, flat([16.0, -8.0]))];
    for model in [plain(&folder, &rows), end_to_end(&folder, &rows)] {
        assert_eq!(regions(&Line::new(&model, "draw=true").push(grey(SIDE * SIDE * 3))), [], "{model}");
    }
}

#[test]
fn points_that_are_not_finite_are_unknown() {
    let mut row = ROWS[1];
    (row.1[6], row.1[11]) = (f32::NAN, f32::INFINITY);
    let mut line = Line::new(&plain(&scratch("pose-nan"), &[row]), "draw=true");
    assert_eq!(regions(&line.push(grey(SIDE * SIDE * 3))), [("cat".to_string(), vec![0.0; 6])]);
}

#[test]
fn a_shape_that_contradicts_the_output_is_an_error() {
    let folder = scratch("pose-shape");
    let graph = |shape: &str| {
        let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).metadata("task", "pose");
        graph
            .constant("output0", &[1, 12, 84], &[0.0; 12 * CELLS])
            .metadata("names", "{0: 'cat', 1: 'dog'}")
            .metadata("kpt_shape", shape)
    };
    for (shape, parts) in [
        ("[3, 3]", &["output0 f32 1x12x84", "kpt_shape [3, 3]"][..]),
        ("[1, 3]", &["5 classes as pose", "2 labels"]),
        ("[2, 2]", &["4 classes as pose", "2 labels"]),
    ] {
        let model = graph(shape).save(&folder.join("model.onnx"));
        let outcome = launch(&format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
             ! trtinfer model-file={model} ! trtnms ! fakesink"
        ));
        let text = outcome.error_text();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

fn detector(model: &str) -> Detector {
    Detector::open(model, &SessionOptions::default(), PostprocessOptions::default()).unwrap()
}

/// Place and visibility.
type Point = (f32, f32, Option<f32>);

fn detect(detector: &mut Detector) -> Vec<(String, Vec<Point>)> {
    let pixels = vec![77; (SIDE * SIDE * 3) as usize];
    let planes = [Plane { data: &pixels[..], stride: SIDE as usize * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: SIDE as usize, height: SIDE as usize, planes };
    let objects = detector.detect(&frame, Colorimetry::default()).unwrap();
    let points = |points: &[Keypoint]| points.iter().map(|point| (point.x, point.y, point.visibility)).collect();
    objects.into_iter().map(|object| (object.label, points(&object.keypoints))).collect()
}

#[test]
fn a_detector_gives_points() {
    let point = |x, y, visibility| (x, y, Some(visibility));
    let found = detect(&mut detector(&plain(&scratch("pose-detector"), &ROWS)));
    assert_eq!(
        found,
        [
            ("cat".to_string(), vec![point(10.0, 12.0, 0.75), point(20.0, 22.0, 0.125)]),
            ("dog".to_string(), vec![point(44.0, 46.0, 1.0), point(0.0, 64.0, 0.5)]),
        ]
    );
}

proptest! {
    #![proptest_config(crate::common::cases(60))]

    /// For any rows, each box has the points of its own row, for any suppression and any order.
    #[test]
    fn each_box_has_the_points_of_its_row(
        rows in prop::collection::vec((4..60u8, 4..60u8, 1..100u8, 0..2usize), 0..CELLS),
    ) {
        let folder = scratch("pose-any");
        let rows: Vec<(usize, Row)> = rows.iter().enumerate().map(|(at, &(x, y, score, class))| {
            let (x, y) = (f32::from(x), f32::from(y));
            let mut row = [x, y, 8.0, 8.0, 0.0, 0.0, x, y, 0.5, at as f32 / 2.0, 1.0, 1.0];
            row[4 + class] = f32::from(score) / 100.0;
            (at, row)
        }).collect();
        let mut line = Line::new(&plain(&folder, &rows), "draw=true score-threshold=0.2");
        let buffer = line.push(grey(SIDE * SIDE * 3));
        let mut found = 0;
        for meta in buffer.iter_meta::<VideoRegionOfInterestMeta>() {
            let params = meta.param("keypoints").unwrap();
            let points: Vec<f64> =
                params.get::<gst::Array>("keypoints").unwrap().iter().map(|number| number.get().unwrap()).collect();
            let row = &rows[(points[3] * 2.0) as usize].1;
            prop_assert_eq!([points[0], points[1]], [f64::from(row[0]), f64::from(row[1])]);
            let (x, y, width, height) = meta.rect();
            prop_assert!((f64::from(x) + f64::from(width) / 2.0 - points[0]).abs() <= 4.0);
            prop_assert!((f64::from(y) + f64::from(height) / 2.0 - points[1]).abs() <= 4.0);
            found += 1;
        }
        let passing = rows.iter().any(|(_, row)| row[4].max(row[5]) >= 0.2);
        prop_assert_eq!(found > 0, passing);
    }
}
