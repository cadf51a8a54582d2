// SPDX-License-Identifier: MPL-2.0
mod any_file;
mod any_model;
mod darknet;
mod faces;
mod families;
mod ids;
mod recognised;

use half::f16;

use super::*;
use crate::error::{Error, ErrorKind};
use crate::image::Candidate;
use crate::image::geometry::BBox;
use crate::image::keypoints::{KeypointModel, KeypointShape};
use crate::tensor::{DType, Tensor, TensorDesc};

const ALL_PASS: f32 = 0.01;

fn desc(name: &str, dtype: DType, dims: &[i64]) -> TensorDesc {
    TensorDesc::new(name, dtype, dims)
}

fn descs(tensors: &[Tensor]) -> Vec<TensorDesc> {
    tensors.iter().map(|tensor| tensor.desc().clone()).collect()
}

/// An input of 32x32 has cells of 8 (16 of them), 16 (4) and 32 (1): 21 rows, or 63.
pub fn small() -> ModelHints {
    ModelHints { input: Some((32, 32)), keypoints: keypoints(2, 3), ..ModelHints::default() }
}

fn model(outputs: &[&str]) -> Vec<TensorDesc> {
    let parse = |text: &str| {
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap();
        let (name, dtype, dims) = (next(), next(), next());
        TensorDesc { name: name.into(), dtype: dtype.parse().unwrap(), dims: dims.parse().unwrap() }
    };
    outputs.iter().map(|text| parse(text)).collect()
}

fn at(size: u32) -> ModelHints {
    ModelHints { input: Some((size, size)), ..ModelHints::default() }
}

/// What Ultralytics' metadata contain.
fn ultralytics(classes: usize, head: &str) -> ModelHints {
    let name = if head == "RTDETRDecoder" { "rtdetr-l" } else { "YOLO11n" };
    ModelHints {
        classes: Some(classes),
        ultralytics: true,
        description: format!("Ultralytics {name} model"),
        head: head.into(),
        task: "detect".into(),
        ..at(320)
    }
}

/// What Ultralytics' metadata contain for a model for poses of one class.
fn pose_model(count: u16, dims: u8, end_to_end: bool) -> ModelHints {
    let keypoints = keypoints(count, dims);
    ModelHints { task: "pose".into(), keypoints, end_to_end, ..ultralytics(1, "Pose") }
}

/// The same of a model for rotated boxes.
fn obb_model(classes: usize, end_to_end: bool) -> ModelHints {
    ModelHints { task: "obb".into(), end_to_end, ..ultralytics(classes, "OBB") }
}

/// The same of a model for masks.
fn segment_model(classes: usize, end_to_end: bool) -> ModelHints {
    ModelHints { task: "segment".into(), end_to_end, ..ultralytics(classes, "Segment") }
}

/// The same with a suppression in the graph.
fn chooses(hints: ModelHints) -> ModelHints {
    ModelHints { chooses_rows: true, batch: Some(1), ..hints }
}

fn labelled(classes: usize, size: u32) -> ModelHints {
    ModelHints { classes: Some(classes), ..at(size) }
}

/// Of models with deformable attention.
fn sampling(hints: ModelHints) -> ModelHints {
    ModelHints { samples_points: true, ..hints }
}

fn keypoints(count: u16, dims: u8) -> Option<KeypointModel> {
    Some(KeypointModel { shape: KeypointShape { count, dims }, names: Vec::new() })
}

fn decoded(
    format: &'static HeadFormat,
    tensors: &[Tensor],
    hints: &ModelHints,
    thresholds: &Thresholds,
) -> Vec<Candidate> {
    let decoder = Decoder::new(Some(format), &descs(tensors), hints).unwrap();
    let mut out = Vec::new();
    decoder.decode(tensors, thresholds, &mut out).unwrap();
    out
}

pub fn candidate(row: u32, class: u32, score: f32, bbox: [f32; 4]) -> Candidate {
    Candidate { bbox: BBox::new(bbox[0], bbox[1], bbox[2], bbox[3]), score, class, row, angle: 0.0 }
}

/// The candidate of most gold cases, in that row.
pub fn centered(row: u32) -> Candidate {
    candidate(row, 1, 0.375, [6.0, 4.0, 14.0, 16.0])
}

/// The same, rotated.
pub fn rotated(candidate: Candidate, angle: f32) -> Candidate {
    Candidate { angle, ..candidate }
}

/// Makes a tensor of f32 or f16. The numbers are exact in both.
pub type MakeTensor = fn(&str, &[i64], &[f32]) -> Tensor;
/// The outputs of a model with an input of [`small`], and the expected candidates.
pub type Gold = (Vec<Tensor>, Vec<Candidate>);

pub fn f32s(name: &str, dims: &[i64], values: &[f32]) -> Tensor {
    Tensor::from_slice(name, dims, values)
}

pub fn f16s(name: &str, dims: &[i64], values: &[f32]) -> Tensor {
    Tensor::from_slice(name, dims, &values.iter().map(|&value| f16::from_f32(value)).collect::<Vec<_>>())
}

/// Zeros but for some rows.
pub fn rows(make: MakeTensor, count: usize, given: &[(usize, &[f32])]) -> Tensor {
    let columns = given[0].1.len();
    let mut values = vec![0.0; count * columns];
    for (at, row) in given {
        values[at * columns..][..columns].copy_from_slice(row);
    }
    make("output0", &[1, count as i64, columns as i64], &values)
}

/// The same, channels first.
pub fn columns(make: MakeTensor, count: usize, given: &[(usize, &[f32])]) -> Tensor {
    let columns = given[0].1.len();
    let mut values = vec![0.0; count * columns];
    for (at, row) in given {
        for (c, &value) in row.iter().enumerate() {
            values[c * count + at] = value;
        }
    }
    make("output0", &[1, columns as i64, count as i64], &values)
}

/// A column of a grid is not one of its rows.
#[test]
fn cells_of_inputs_that_are_not_square_are_where_they_lie() {
    let format = HeadFormat::of_name("yolox").unwrap();
    for (input, place) in [((64, 32), [40.0, 6.0, 48.0, 14.0]), ((32, 64), [8.0, 22.0, 16.0, 30.0])] {
        // Cells of 8, 16 and 32 are 42. Cell 13 is column 5 of row 1 where 8 are in a row, and column 1 of row 3 where 4 are.
        let tensor = rows(f32s, 42, &[(13, &[0.5, 0.25, 0.0, 0.0, 0.5, 0.25, 0.5])]);
        let hints = ModelHints { input: Some(input), ..small() };
        let found = decoded(format, &[tensor], &hints, &Thresholds::uniform(ALL_PASS));
        assert_eq!(found, [candidate(13, 1, 0.25, place)], "{input:?}");
    }
}

#[test]
fn every_head_finds_its_gold_case() {
    for &format in HEADS {
        assert_eq!(HeadFormat::of_name(format.name).unwrap(), format);
        assert_eq!(HEADS.iter().filter(|&&other| other == format).count(), 1, "{format} is the name of two heads");
        for (tensors, wanted) in [(format.gold)(f32s), (format.gold)(f16s)] {
            let found = decoded(format, &tensors, &small(), &Thresholds::uniform(ALL_PASS));
            assert_eq!(found, wanted, "{format} {:?}", tensors[0]);
        }
    }
    let error = HeadFormat::of_name("yolov3").unwrap_err();
    assert!(error.message().contains("auto, yolov5, yolov8,"), "{error}");
}

#[test]
fn only_the_first_item_of_a_batch_is_read() {
    let row = [10.0f32, 10.0, 4.0, 4.0, 0.5, 0.0];
    let mut values = vec![0.0; 2 * 21 * 6];
    values[..6].copy_from_slice(&row);
    values[21 * 6..][..6].copy_from_slice(&row);
    let tensors = [Tensor::from_slice("output0", &[2, 21, 6], &values)];
    let found = decoded(&yolov8_transposed::HEAD, &tensors, &small(), &Thresholds::uniform(ALL_PASS));
    assert_eq!(found, [candidate(0, 0, 0.5, [8.0, 8.0, 12.0, 12.0])]);
}

#[test]
fn the_first_of_equal_classes_wins() {
    let scores = [10.0, 10.0, 4.0, 4.0, 0.25, 0.5, 0.5];
    for (layout, tensor) in [
        (&yolov8::HEAD, columns(f32s, 21, &[(0, &scores)])),
        (&yolov8_transposed::HEAD, rows(f32s, 21, &[(0, &scores)])),
    ] {
        assert_eq!(decoded(layout, &[tensor], &small(), &Thresholds::uniform(ALL_PASS))[0].class, 1);
    }
}

#[test]
fn many_classes_and_anchors_cross_blocks() {
    // More classes and anchors than one block: the pass in blocks must find what a plain search finds.
    let (anchors, classes) = (600, 300);
    let value = |anchor: usize, class: usize| ((anchor * 31 + class * 17) % 251) as f32 / 256.0;
    let row = |anchor: usize| -> Vec<f32> {
        [16.0, 16.0, 4.0, 4.0].into_iter().chain((0..classes).map(|class| value(anchor, class))).collect()
    };
    let all: Vec<Vec<f32>> = (0..anchors).map(row).collect();
    let given: Vec<(usize, &[f32])> = all.iter().enumerate().map(|(i, row)| (i, &row[..])).collect();
    let wanted: Vec<(u32, u32, f32)> = (0..anchors)
        .map(|anchor| {
            let best = (0..classes).map(|class| value(anchor, class)).fold(0.0, f32::max);
            (anchor as u32, (0..classes).position(|class| value(anchor, class) == best).unwrap() as u32, best)
        })
        .collect();
    for (layout, tensors) in [
        (&yolov8::HEAD, [columns(f32s, anchors, &given)]),
        (&yolov8::HEAD, [columns(f16s, anchors, &given)]),
        (&yolov8_transposed::HEAD, [rows(f32s, anchors, &given)]),
        (&yolov8_transposed::HEAD, [rows(f16s, anchors, &given)]),
    ] {
        let found = decoded(layout, &tensors, &small(), &Thresholds::uniform(ALL_PASS));
        let found: Vec<_> = found.iter().map(|d| (d.row, d.class, d.score)).collect();
        assert_eq!(found, wanted, "{layout}");
    }
}

#[test]
fn thresholds_are_inclusive_and_never_promote_another_class() {
    let tensors = [rows(f32s, 21, &[(0, &[10.0, 10.0, 4.0, 4.0, 0.5, 0.25])])];
    let passes = |thresholds| !decoded(&yolov8_transposed::HEAD, &tensors, &small(), &thresholds).is_empty();
    assert!(passes(Thresholds::uniform(0.5)));
    assert!(!passes(Thresholds::uniform(0.500_001)));
    assert!(passes(Thresholds::new(vec![0.5, 0.9], 0.9)));
    assert!(!passes(Thresholds::new(vec![0.9, 0.1], 0.1)));
    assert!(!passes(Thresholds::only(&[1], 0.1)), "class 1 is only the second best");
}

#[test]
fn exp_of_sizes() {
    let tensors = [rows(f32s, 21, &[(0, &[1.0, 1.0, 1.0, -1.0, 1.0, 1.0])])];
    let found = decoded(&yolox::HEAD, &tensors, &small(), &Thresholds::uniform(ALL_PASS));
    let (half_width, half_height) = (std::f32::consts::E * 8.0 * 0.5, (-1f64).exp() as f32 * 8.0 * 0.5);
    let wanted = [8.0 - half_width, 8.0 - half_height, 8.0 + half_width, 8.0 + half_height];
    assert_eq!(found, [candidate(0, 0, 1.0, wanted)]);
}

/// Rows that must never become a detection.
#[test]
fn what_is_no_box_is_left_out() {
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    let corners: &[[f32; 6]] = &[
        [0.0; 6],                        // padding, which passes a threshold of 0
        [5.0, 5.0, 5.0, 9.0, 0.5, 0.0],  // no width
        [5.0, 5.0, 9.0, 5.0, 0.5, 0.0],  // no height
        [9.0, 5.0, 5.0, 9.0, 0.5, 0.0],  // inside out
        [NAN, 5.0, 9.0, 9.0, 0.5, 0.0],  // NaN in a box
        [5.0, 5.0, INF, 9.0, 0.5, 0.0],  // infinity in a box
        [-INF, 5.0, INF, 9.0, 0.5, 0.0], // twice
        [5.0, 5.0, 9.0, 9.0, NAN, 0.0],  // NaN score
        [5.0, 5.0, 9.0, 9.0, INF, 0.0],  // infinite score
        [5.0, 5.0, 9.0, 9.0, 0.5, NAN],  // NaN class
        [5.0, 5.0, 9.0, 9.0, 0.5, -1.0], // class below 0
        [5.0, 5.0, 9.0, 9.0, 0.5, 2.0],  // class beyond the labels
        [5.0, 5.0, 9.0, 9.0, 0.5, INF],  // no class at all
        [5.0, 5.0, 9.0, 9.0, -INF, 0.0], // below every threshold
    ];
    let hints = ModelHints { classes: Some(2), ..small() };
    for row in corners {
        let tensors = [rows(f32s, 10, &[(3, row)])];
        assert_eq!(decoded(&end_to_end::HEAD, &tensors, &hints, &Thresholds::uniform(0.0)), [], "{row:?}");
        let tensors = [rows(f16s, 10, &[(3, row)])];
        assert_eq!(decoded(&end_to_end::HEAD, &tensors, &hints, &Thresholds::uniform(0.0)), [], "f16 {row:?}");
    }

    let centers: &[[f32; 6]] = &[
        [9.0, 9.0, 0.0, 4.0, 0.5, 0.25],
        [9.0, 9.0, 4.0, -4.0, 0.5, 0.25],
        [NAN, 9.0, 4.0, 4.0, 0.5, 0.25],
        [9.0, 9.0, INF, 4.0, 0.5, 0.25],
        [9.0, 9.0, 4.0, 4.0, NAN, NAN],
        [9.0, 9.0, 4.0, 4.0, INF, 0.25],
        [9.0, 9.0, 4.0, 4.0, -INF, -INF],
    ];
    for row in centers {
        let tall = [columns(f32s, 21, &[(3, row)])];
        assert_eq!(decoded(&yolov8::HEAD, &tall, &hints, &Thresholds::uniform(0.1)), [], "{row:?}");
        let wide = [rows(f16s, 21, &[(3, row)])];
        assert_eq!(decoded(&yolov8_transposed::HEAD, &wide, &hints, &Thresholds::uniform(0.1)), [], "{row:?}");
    }
    // NaN next to a real score does not hide it.
    let tensors = [columns(f32s, 21, &[(3, &[9.0, 9.0, 4.0, 4.0, NAN, 0.25])])];
    let found = decoded(&yolov8::HEAD, &tensors, &hints, &Thresholds::uniform(0.1));
    assert_eq!(found, [candidate(3, 1, 0.25, [7.0, 7.0, 11.0, 11.0])]);
}

/// An engine whose numbers overflow finds nothing: that is counted, and numbers that neither a score nor a box is read from are not.
#[test]
fn numbers_that_are_not_finite_are_counted() {
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    let count = |format, tensors: &[Tensor], least| {
        let decoder = Decoder::new(Some(format), &descs(tensors), &ModelHints { classes: Some(2), ..small() }).unwrap();
        decoder.decode_counted(tensors, &Thresholds::uniform(least), &mut Vec::new()).unwrap().not_finite
    };
    let dense = |scores: [f32; 2]| (5, [9.0, 9.0, 4.0, 4.0, scores[0], scores[1]]);
    for (scores, wanted) in [([0.5, 0.25], 0), ([NAN, 0.25], 1), ([NAN, INF], 1), ([0.0, -INF], 1)] {
        let (at, row) = dense(scores);
        for other in [0.5, NAN] {
            // A box counts where its score passes: not the score of INF, nor 0.
            let lost_box = usize::from(other.is_nan() && scores.iter().any(|score| (0.25..1.0).contains(score)));
            let others = [row[0], row[1], other, row[3], row[4], row[5]];
            let tall = [columns(f32s, 21, &[(at, &others), (7, &row)])];
            assert_eq!(count(&yolov8::HEAD, &tall, 0.25), 2 * wanted + lost_box, "{scores:?} {other}");
            let wide = [rows(f16s, 21, &[(at, &others), (7, &row)])];
            assert_eq!(count(&yolov8_transposed::HEAD, &wide, 0.25), 2 * wanted + lost_box, "f16 {scores:?} {other}");
        }
    }
    for (objectness, score, wanted) in [(0.5, NAN, 1), (0.1, NAN, 0), (NAN, 0.5, 1), (INF, 0.5, 1), (0.5, 0.5, 0)] {
        let tensors = [rows(f32s, 63, &[(3, &[9.0, 9.0, 4.0, 4.0, objectness, 0.25, score])])];
        assert_eq!(count(&yolov5::HEAD, &tensors, 0.25), wanted, "{objectness} {score}");
    }
    for (score, id, wanted) in [(0.5, 0.0, 0), (NAN, 1.0, 1), (NAN, 5.0, 0), (0.5, NAN, 1), (INF, 0.0, 1)] {
        let tensors = [rows(f32s, 10, &[(3, &[5.0, 5.0, 9.0, 9.0, score, id])])];
        assert_eq!(count(&end_to_end::HEAD, &tensors, 0.25), wanted, "{score} {id}");
    }
    for (left, width, score, wanted) in
        [(NAN, 4.0, 0.5, 1), (9.0, INF, 0.5, 1), (9.0, 4.0, 0.5, 0), (9.0, -4.0, 0.5, 0), (NAN, 4.0, 0.1, 0)]
    {
        let tensors = [rows(f32s, 10, &[(3, &[left, 5.0, left + width, 9.0, score, 1.0])])];
        assert_eq!(count(&end_to_end::HEAD, &tensors, 0.25), wanted, "a box from {left}, {width} wide, {score}");
    }
    for (angle, wanted) in [(0.5, 0), (NAN, 1), (INF, 1)] {
        let tensors = [columns(f32s, 21, &[(3, &[9.0, 9.0, 4.0, 4.0, 0.5, 0.25, angle])])];
        assert_eq!(count(&obb::HEAD, &tensors, 0.25), wanted, "turned by {angle}");
    }
    let logits = [NAN, INF, -INF, 1000.0, 0.0, NAN];
    let tensors =
        [Tensor::from_slice("dets", &[1, 2, 4], &[0.5f32; 8]), Tensor::from_slice("labels", &[1, 2, 3], &logits)];
    assert_eq!(count(&rf_detr::HEAD, &tensors, 0.25), 2, "the last of three is the background's");
}

#[test]
fn logits_of_all_kinds() {
    // A query with logits at the ends of what floats hold, of which NaN is none.
    let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1000.0, -1000.0, 0.0, -0.0, 3f32.ln()];
    let tensors = [
        Tensor::from_slice("dets", &[1, 1, 4], &[0.5f32, 0.5, 0.5, 0.5]),
        Tensor::from_slice("labels", &[1, 1, 8], &values),
    ];
    let found = |background, thresholds: &Thresholds| -> Vec<(u32, f32)> {
        let hints = ModelHints { background, ..small() };
        let found = decoded(&rf_detr::HEAD, &tensors, &hints, thresholds);
        found.iter().map(|found| (found.class, found.score)).collect()
    };
    let least = Thresholds::uniform(0.25);
    let all = [(1, 1.0), (3, 1.0), (5, 0.5), (6, 0.5), (7, 0.75)];
    assert_eq!(found(BackgroundClass::None, &least), all);
    assert_eq!(found(BackgroundClass::Last, &least), all[..4]);
    assert_eq!(found(BackgroundClass::First, &least), all.map(|(class, score)| (class - 1, score)));
    assert_eq!(found(BackgroundClass::None, &Thresholds::uniform(1.0)), all[..2]);
    assert_eq!(found(BackgroundClass::None, &Thresholds::uniform(0.0)).len(), 7, "all but NaN");
    assert_eq!(found(BackgroundClass::None, &Thresholds::only(&[5], 0.5)), [(5, 0.5)]);
}

/// Scores that reach a threshold are never skipped for their logits.
#[test]
fn logits_below_the_least_have_lower_scores() {
    for least in [0.0f32, 1e-45, 1e-38, 1e-30, 1e-7, 0.25, 0.5, 0.75, 0.99, 0.999, 0.999_999_94, 1.0] {
        let logits = (-2000..2000).map(|i| i as f32 * 0.05).chain([decode::least_logit(least).next_down()]);
        let tensors = |logit: f32| {
            [
                Tensor::from_slice("a", &[1, 1, 4], &[0.5f32, 0.5, 0.5, 0.5]),
                Tensor::from_slice("b", &[1, 1, 1], &[logit]),
            ]
        };
        for logit in logits {
            let score = (1.0 / (1.0 + (-f64::from(logit)).exp())) as f32;
            let found = decoded(&detr_logits::HEAD, &tensors(logit), &small(), &Thresholds::uniform(least));
            assert_eq!(found.len(), usize::from(score >= least), "{logit} {least}");
        }
    }
}

#[test]
fn counts_are_clamped() {
    for (count, wanted) in [(99i32, 2), (2, 2), (0, 0), (-1, 0), (i32::MIN, 0)] {
        let tensors = [
            Tensor::from_slice("num_dets", &[1, 1], &[count]),
            Tensor::from_slice("det_boxes", &[1, 2, 4], &[1.0f32, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]),
            Tensor::from_slice("det_scores", &[1, 2], &[0.5f32, 0.5]),
            Tensor::from_slice("det_classes", &[1, 2], &[0i32, 1]),
        ];
        let found = decoded(&efficientnms::HEAD, &tensors, &small(), &Thresholds::uniform(ALL_PASS));
        assert_eq!(found.len(), wanted, "{count}");
    }
}

/// Behind a suppression in the graph each frame has as many rows as objects.
#[test]
fn rows_may_become_more_and_fewer() {
    let row = |picture: f32, left: f32| [picture, left, 4.0, 14.0, 16.0, 1.0, 0.375];
    let tensor = |rows: &[[f32; 7]]| [Tensor::from_slice("output", &[rows.len() as i64, 7], rows.as_flattened())];
    let hints = chooses(labelled(2, 32));
    for first in [0, 1, 3] {
        let decoder = Decoder::new(None, &descs(&tensor(&vec![row(0.0, 6.0); first])), &hints).unwrap();
        assert_eq!((decoder.format(), decoder.rows()), (&yolov7_end_to_end::HEAD, None));
        for (rows, wanted) in [
            (vec![], vec![]),
            (vec![row(0.0, 6.0)], vec![centered(0)]),
            (vec![row(0.0, 20.0), row(0.0, 6.0)], vec![centered(1)]),
            // Nothing belongs to a picture behind a number below 0.
            (vec![row(2.0, 6.0), row(-1.0, 6.0), row(0.0, 6.0)], vec![centered(0)]),
            (vec![row(f32::NAN, 6.0), row(0.0, 6.0)], vec![]),
        ] {
            let mut out = Vec::new();
            decoder.decode(&tensor(&rows), &Thresholds::uniform(ALL_PASS), &mut out).unwrap();
            assert_eq!(out, wanted, "{first}: {rows:?}");
        }
    }
    // Of several outputs each has as many.
    let tensors = |count: i64| {
        let boxes = [6.0, 4.0, 14.0, 16.0].repeat(count as usize);
        [
            Tensor::from_slice("labels", &[1, count], &vec![1i64; count as usize]),
            f32s("boxes", &[1, count, 4], &boxes),
            f32s("scores", &[1, count], &vec![0.375; count as usize]),
        ]
    };
    let decoder = Decoder::new(None, &descs(&tensors(0)), &small()).unwrap();
    for count in [2, 0, 3] {
        let mut out = Vec::new();
        decoder.decode(&tensors(count), &Thresholds::uniform(ALL_PASS), &mut out).unwrap();
        assert_eq!(out, (0..count as u32).map(centered).collect::<Vec<_>>());
    }
    // Scores for fewer rows than there are boxes give fewer objects.
    let [labels, boxes, _] = tensors(3);
    let mut out = Vec::new();
    decoder
        .decode(&[labels, boxes, f32s("scores", &[1, 1], &[0.375])], &Thresholds::uniform(ALL_PASS), &mut out)
        .unwrap();
    assert_eq!(out, [centered(0)]);
}

#[test]
fn tensors_that_changed_are_an_error() {
    let (tensors, _) = (yolov5::HEAD.gold)(f32s);
    let decoder = Decoder::new(Some(&yolov5::HEAD), &descs(&tensors), &small()).unwrap();
    let others = [
        vec![],
        vec![Tensor::from_slice("output0", &[1, 1, 7], &[0f32; 7])],
        vec![Tensor::from_slice("output0", &[1, 63, 7], &[f16::ZERO; 441])],
        vec![Tensor::from_slice("output1", &[1, 63, 7], &[0f32; 441])],
    ];
    for tensors in others {
        let error = decoder.decode(&tensors, &Thresholds::uniform(0.5), &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert!(error.message().contains("output0 f32 1x63x7"), "{error}");
    }
    // Of a head by stride there are more of them than it lists.
    for at in 0..6 {
        let (mut tensors, _) = (rtmdet::HEAD.gold)(f32s);
        let decoder = Decoder::new(Some(&rtmdet::HEAD), &descs(&tensors), &small()).unwrap();
        tensors[at] = f32s("other", &[1, 1, 1, 1], &[0.0]);
        let error = decoder.decode(&tensors, &Thresholds::uniform(0.5), &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
    }
}

/// A model's outputs as `name dtype dims`, and what else is known.
#[test]
fn a_decoder_needs_sizes() {
    let outputs = [desc("output0", DType::F32, &[1, 84, 8400])];
    let error = Decoder::new(None, &outputs, &ModelHints::default()).err().unwrap();
    assert!(error.message().contains("needs the size of the model's input"), "{error}");
    let error = Decoder::new(None, &[desc("output0", DType::F32, &[1, 84, -1])], &at(640)).err().unwrap();
    assert!(error.message().contains("is still open"), "{error}");
    let outputs = [desc("output", DType::F32, &[1, 8401, 85])];
    let error = Decoder::new(Some(&yolox::HEAD), &outputs, &at(640)).err().unwrap();
    assert!(error.message().contains("8401 rows do not form the grid of yolox over an input of 640x640"), "{error}");
    let huge = [desc("output", DType::F32, &[1, i64::MAX, 85])];
    assert!(Decoder::new(Some(&yolov5::HEAD), &huge, &at(640)).is_err());
}

#[test]
fn a_decoder_says_what_it_knows() {
    let dense = Decoder::new(None, &model(&["output0 f32 1x84x8400"]), &at(640)).unwrap();
    assert_eq!((dense.format(), dense.classes(), dense.needs_nms()), (&yolov8::HEAD, Some(80), true));
    let ids = Decoder::new(None, &model(&["output0 f32 1x300x6"]), &at(640)).unwrap();
    assert_eq!((ids.format(), ids.classes(), ids.needs_nms()), (&end_to_end::HEAD, None, false));
    let ids = Decoder::new(None, &model(&["output0 f32 1x300x6"]), &labelled(3, 640)).unwrap();
    assert_eq!(ids.classes(), Some(3));
}

#[test]
fn heads_say_how_their_input_is_prepared() {
    assert_eq!(yolov8::HEAD.input, InputTransform::default());
    let yolox = yolox::HEAD.input;
    assert_eq!((yolox.colors, yolox.fit, yolox.scale), (Colors::Bgr, ResizeMode::LetterboxTopLeft, 1.0));
    assert_eq!(detr::HEAD.input.fit, ResizeMode::Stretch);
    assert_eq!(
        detr::HEAD.expects(),
        "labels numbers NxA, boxes f32 or f16 NxAx4, scores f32 or f16 NxA: boxes are left, top, right, bottom in the \
         units of orig_target_sizes, which must be the input's size"
    );
}
