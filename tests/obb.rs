// SPDX-License-Identifier: MPL-2.0
//! Rotated boxes: which are kept, their position on the frame, and how they can be read.

use std::f32::consts::FRAC_PI_2;
use std::path::Path;

use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::image::rotated::RotatedBox;
use gsttrt_core::session::{Detector, PostprocessOptions, SessionOptions};
use proptest::prelude::*;

use crate::common::boxes::{GREY, Line, SIDE, found, grey};
use crate::common::onnx::{F32, Graph};
use crate::common::{launch, scratch};

/// Rows of a grid over 64x64.
const CELLS: usize = 84;

/// A row: centre and size of a box, a score for each of two classes, and an angle.
type Row = [f32; 7];

/// A bar, one that repeats it with its sides exchanged, one across it, and one of the other class.
const ROWS: [(usize, Row); 4] = [
    (3, [32.0, 32.0, 32.0, 8.0, 0.9, 0.1, 0.5]),
    (9, [32.5, 32.0, 8.0, 32.0, 0.8, 0.1, 0.5 - FRAC_PI_2]),
    (40, [32.0, 32.0, 32.0, 8.0, 0.7, 0.1, 2.0]),
    (77, [32.0, 32.0, 32.0, 8.0, 0.0, 0.6, 0.5]),
];

fn graph(dims: &[i64], values: &[f32]) -> Graph {
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", dims, values)
        .metadata("task", "obb")
        .metadata("names", "{0: 'ship', 1: 'plane'}")
}

/// Columns, as Ultralytics exports them.
fn plain(folder: &Path, rows: &[(usize, Row)]) -> String {
    let mut values = vec![0.0; 7 * CELLS];
    for (at, row) in rows {
        row.iter().enumerate().for_each(|(column, &value)| values[column * CELLS + at] = value);
    }
    graph(&[1, 7, CELLS as i64], &values).save(&folder.join("plain.onnx"))
}

/// The same, suppressed by the model itself.
fn end_to_end(folder: &Path, rows: &[(usize, Row)]) -> String {
    let mut values = vec![0.0; 7 * 300];
    for (to, (_, [cx, cy, w, h, ship, plane, angle])) in values.chunks_exact_mut(7).zip(rows) {
        let (score, class) = if ship >= plane { (*ship, 0.0) } else { (*plane, 1.0) };
        to.copy_from_slice(&[*cx, *cy, *w, *h, score, class, *angle]);
    }
    graph(&[1, 300, 7], &values).save(&folder.join("end-to-end.onnx"))
}

/// Corners in the order of the results, in f64.
fn corners([cx, cy, w, h]: [f64; 4], angle: f64) -> [f64; 8] {
    let (sin, cos) = angle.sin_cos();
    let corner = |right: f64, down: f64| {
        let (dx, dy) = (right * w / 2.0, down * h / 2.0);
        [cx + dx * cos - dy * sin, cy + dx * sin + dy * cos]
    };
    let [[a, b], [c, d], [e, f], [g, h]] = [corner(1.0, 1.0), corner(1.0, -1.0), corner(-1.0, -1.0), corner(-1.0, 1.0)];
    [a, b, c, d, e, f, g, h]
}

/// Angle and corners of a structure that has both.
fn rotation(params: &gst::StructureRef) -> (f64, [f64; 8]) {
    let numbers: Vec<f64> = params.get::<gst::Array>("corners").unwrap().iter().map(|n| n.get().unwrap()).collect();
    (params.get("angle").unwrap(), numbers.try_into().unwrap())
}

/// Label, angle and corners of an object.
type Region = (String, f64, [f64; 8]);
type Wanted = (&'static str, f64, [f64; 8]);

/// Label, angle and corners of each region.
fn regions(buffer: &gst::BufferRef) -> Vec<Region> {
    let read = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        let (angle, corners) = rotation(meta.param("rotation").expect("a structure called rotation"));
        (meta.roi_type().to_string(), angle, corners)
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(read).collect()
}

#[track_caller]
fn assert_near(have: &[Region], wanted: &[Wanted]) {
    let is_near = |(have, wanted): (&Region, &Wanted)| {
        have.0 == wanted.0
            && (have.1 - wanted.1).abs() < 1e-5
            && have.2.iter().zip(&wanted.2).all(|(a, b)| (a - b).abs() < 1e-3)
    };
    assert!(have.len() == wanted.len() && have.iter().zip(wanted).all(is_near), "{have:?} is not {wanted:?}");
}

const QUARTER: f64 = std::f64::consts::FRAC_PI_2;

/// The boxes kept of [`ROWS`] on a frame as large as the input: the second repeats the first. Angles are less than a
/// quarter turn.
fn expected() -> [Wanted; 3] {
    let bar = [32.0, 32.0, 32.0, 8.0];
    let across = corners([32.0, 32.0, 8.0, 32.0], 2.0 - QUARTER);
    [("ship", 0.5, corners(bar, 0.5)), ("ship", 2.0 - QUARTER, across), ("plane", 0.5, corners(bar, 0.5))]
}

#[test]
fn rotated_boxes_are_kept_and_attached() {
    let folder = scratch("obb-kept");
    let without_repetition = [ROWS[0], ROWS[2], ROWS[3]];
    for model in [plain(&folder, &ROWS), end_to_end(&folder, &without_repetition)] {
        let mut line = Line::new(&model, "draw=false post-messages=true");
        let buffer = line.push(grey(SIDE * SIDE * 3));
        assert_near(&regions(&buffer), &expected());
        // Regions are upright, and around the rotated boxes.
        let half = (16.0 * 0.5f64.cos() + 4.0 * 0.5f64.sin(), 16.0 * 0.5f64.sin() + 4.0 * 0.5f64.cos());
        let first = &found(&buffer)[0];
        let edges = [32.0 - half.0, 32.0 - half.1, 32.0 + half.0, 32.0 + half.1];
        assert!(first.corners.iter().zip(edges).all(|(share, edge)| (share * 64.0 - edge).abs() < 1e-3), "{first:?}");
        let messages = line.messages();
        let objects = messages[0].get::<gst::Array>("detections").unwrap();
        let found: Vec<_> = objects
            .iter()
            .map(|object| {
                let object = object.get::<gst::Structure>().unwrap();
                let (angle, corners) = rotation(&object);
                (object.get("label").unwrap(), angle, corners)
            })
            .collect();
        assert_near(&found, &expected());
    }
}

#[test]
fn a_dropped_box_drops_others() {
    // The second repeats the first, the third the second only; that is how Ultralytics suppresses rotated boxes.
    let row = |x: f32, score| [x, 32.0, 32.0, 8.0, score, 0.0, 0.3];
    let rows = [(1, row(24.0, 0.9)), (2, row(28.0, 0.8)), (3, row(32.0, 0.7)), (4, row(60.0, 0.6))];
    let mut line = Line::new(&plain(&scratch("obb-chain"), &rows), "draw=false iou-threshold=0.5");
    assert_eq!(line.found().iter().map(|found| found.confidence as f32).collect::<Vec<_>>(), [0.9, 0.6]);
}

#[test]
fn boxes_follow_the_letterbox_and_may_reach_beyond_the_frame() {
    // Twice as wide as the input: 32 of its rows are the frame, below 16 rows of padding.
    let in_padding = (5, [32.0, 4.0, 16.0, 4.0, 0.95, 0.0, 0.1]);
    let over_the_edge = (6, [60.0, 32.0, 16.0, 4.0, 0.9, 0.0, 0.5]);
    let mut line = Line::new(&plain(&scratch("obb-letterbox"), &[in_padding, over_the_edge]), "draw=false");
    line.caps("RGB", 128, 64);
    let buffer = line.push(grey(128 * 64 * 3));
    assert_near(&regions(&buffer), &[("ship", 0.5, corners([120.0, 32.0, 32.0, 8.0], 0.5))]);
    assert_eq!(found(&buffer)[0].corners[2], 1.0, "the region ends where the frame does");
}

#[test]
fn a_stretched_frame_is_an_error() {
    let model = plain(&scratch("obb-stretched"), &ROWS);
    let outcome = launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=128,height=64 ! trtpreprocess resize=stretch \
         ! trtinfer model-file={model} ! trtnms ! fakesink"
    ));
    let text = outcome.error_text();
    for part in ["Rotated boxes cannot be mapped back", "stretched from 128x64 to 64x64", "resize=letterbox"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn rows_that_are_no_box_are_left_out() {
    let nan = f32::NAN;
    let rows = [
        (0, [32.0, 32.0, 16.0, 8.0, 0.9, 0.0, nan]),
        (1, [32.0, 32.0, 16.0, 8.0, 0.9, 0.0, f32::INFINITY]),
        (2, [32.0, 32.0, 0.0, 8.0, 0.9, 0.0, 0.5]),
        (3, [32.0, 32.0, 16.0, -8.0, 0.9, 0.0, 0.5]),
        (4, [nan, 32.0, 16.0, 8.0, 0.9, 0.0, 0.5]),
        (5, [32.0, 32.0, 16.0, 8.0, nan, 0.0, 0.5]),
        (6, [32.0, 32.0, f32::INFINITY, 8.0, 0.9, 0.0, 0.5]),
    ];
    let folder = scratch("obb-odd");
    for model in [plain(&folder, &rows), end_to_end(&folder, &rows), plain(&folder, &[])] {
        let mut line = Line::new(&model, "draw=true score-threshold=0.01");
        let buffer = line.push(grey(SIDE * SIDE * 3));
        assert_eq!(regions(&buffer), []);
        assert!(buffer.map_readable().unwrap().iter().all(|&byte| byte == GREY));
    }
    // An angle far out of range is valid.
    let rows = [(0, [32.0, 32.0, 16.0, 8.0, 0.9, 0.0, 0.5 + 200.0 * std::f32::consts::PI])];
    let found = regions(&Line::new(&plain(&folder, &rows), "draw=true").push(grey(SIDE * SIDE * 3)));
    assert!((found[0].1 - 0.5).abs() < 1e-3, "{found:?}");
}

#[test]
fn many_boxes_that_fill_the_frame() {
    let rows: Vec<(usize, Row)> = (0..300).map(|at| (at, [32.0, 32.0, 64.0, 64.0, 0.9, 0.0, 0.5])).collect();
    let buffer = Line::new(&end_to_end(&scratch("obb-many"), &rows), "draw=true").push(grey(SIDE * SIDE * 3));
    let found = regions(&buffer);
    assert_eq!(found.len(), 300);
    assert!(found.iter().all(|region| (region.1 - 0.5).abs() < 1e-3), "{found:?}");
}

#[test]
fn columns_that_do_not_fit_are_an_error() {
    let folder = scratch("obb-columns");
    for (dims, parts) in [
        ([1, 6, 84], &["1 class as obb", "2 labels"][..]),
        ([1, 8, 84], &["3 classes as obb", "2 labels"]),
        ([1, 5, 84], &["No layout fits", "output0 f32 1x5x84"]),
        ([1, 300, 6], &["No layout fits", "output0 f32 1x300x6"]),
        ([1, 300, 8], &["No layout fits", "output0 f32 1x300x8"]),
    ] {
        let values = vec![0.0; dims.iter().product::<i64>() as usize];
        let model = graph(&dims, &values).save(&folder.join("model.onnx"));
        let outcome = launch(&format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess \
             ! trtinfer model-file={model} ! trtnms ! fakesink"
        ));
        let text = outcome.error_text();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn trtoverlay_draws_rotated_outlines_as_trtnms() {
    let model = plain(&scratch("obb-drawn"), &ROWS[..1]);
    let elements = "trtpreprocess ! trtinfer model-file=";
    let pixels = |line: &mut Line| {
        let buffer = line.push(grey(SIDE * SIDE * 3));
        let bytes = buffer.map_readable().unwrap();
        let painted = bytes.chunks_exact(3).map(|pixel| pixel != [GREY; 3]).collect::<Vec<_>>();
        (bytes.to_vec(), painted)
    };
    let style = "draw-labels=false line-width=2";
    let (fused, painted) = pixels(&mut Line::parse(&format!("{elements}{model} ! trtnms draw=true {style}")));
    let (apart, _) = pixels(&mut Line::parse(&format!("{elements}{model} ! trtnms draw=false ! trtoverlay {style}")));
    assert!(fused == apart, "trtnms and trtoverlay draw the same");
    let [x0, y0, x1, y1, x2, y2, x3, y3] = expected()[0].2;
    let at = |x: f64, y: f64| painted[(y as usize) * SIDE as usize + x as usize];
    for (x, y) in [(x0, y0), (x1, y1), (x2, y2), (x3, y3), ((x0 + x3) / 2.0, (y0 + y3) / 2.0)] {
        assert!(at(x, y), "{x} {y}");
    }
    for (x, y) in [(32.0, 32.0), (32.0 - 14.0, 32.0 + 8.0), (32.0 + 14.0, 32.0 - 8.0)] {
        assert!(!at(x, y), "{x} {y}");
    }
}

fn detector(model: &str) -> Detector {
    Detector::open(model, &SessionOptions::default(), PostprocessOptions::default()).unwrap()
}

#[test]
fn a_detector_gives_rotated_boxes() {
    let pixels = vec![77; (SIDE * SIDE * 3) as usize];
    let planes = [Plane { data: &pixels[..], stride: SIDE as usize * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: SIDE as usize, height: SIDE as usize, planes };
    let mut detector = detector(&plain(&scratch("obb-detector"), &ROWS));
    let objects = detector.detect(&frame, Colorimetry::default()).unwrap();
    let found: Vec<_> = objects
        .iter()
        .map(|object| {
            let rotated: RotatedBox = object.rotated.unwrap();
            assert_eq!(rotated.hull(), object.bbox, "these are inside the frame");
            let corners: Vec<f64> = rotated.corners().as_flattened().iter().map(|&n| n.into()).collect();
            (object.label.clone(), f64::from(rotated.angle), corners.try_into().unwrap())
        })
        .collect();
    assert_near(&found, &expected());
}

proptest! {
    #![proptest_config(crate::common::cases(60))]

    /// For any rows, drawn or not: boxes inside the frame, angles below a quarter turn, and the best box is kept.
    #[test]
    fn any_rows(
        rows in prop::collection::vec(prop::array::uniform7(prop_oneof![
            6 => 0.0..64.0f32, 3 => 0.0..1.0f32, 1 => proptest::num::f32::ANY]), 0..CELLS),
    ) {
        let rows: Vec<(usize, Row)> = rows.into_iter().enumerate().collect();
        let mut line = Line::new(&plain(&scratch("obb-any"), &rows), "draw=true score-threshold=0.2");
        let buffer = line.push(grey(SIDE * SIDE * 3));
        for (_, angle, _) in regions(&buffer) {
            prop_assert!((0.0..QUARTER).contains(&angle));
        }
        let regions = found(&buffer);
        for region in &regions {
            prop_assert!(region.corners.iter().all(|share| (0.0..=1.0).contains(share)), "{:?}", region);
        }
        prop_assert!(regions.is_sorted_by(|a, b| a.confidence >= b.confidence));
    }
}
