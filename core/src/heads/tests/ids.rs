// SPDX-License-Identifier: MPL-2.0
//! Class ids of any number: which are classes, which are padding, and which are counted.

use super::*;
use crate::tensor::Element;

/// A row for each id, all with the same box and this score.
fn tensors<T: Element>(ids: &[T], score: f32) -> [Tensor; 2] {
    let rows = ids.len() as i64;
    let boxes = [6.0, 4.0, 14.0, 16.0, score].repeat(ids.len());
    [f32s("dets", &[1, rows, 5], &boxes), Tensor::from_slice("labels", &[1, rows], ids)]
}

/// The classes that are found, and what is left out.
fn found<T: Element>(ids: &[T], classes: Option<usize>) -> (Vec<u32>, Lost) {
    counted(&mmdeploy::HEAD, &tensors(ids, 0.5), classes, &Thresholds::uniform(0.25))
}

fn counted(
    format: &'static HeadFormat,
    tensors: &[Tensor],
    classes: Option<usize>,
    thresholds: &Thresholds,
) -> (Vec<u32>, Lost) {
    let decoder = Decoder::new(Some(format), &descs(tensors), &ModelHints { classes, ..small() }).unwrap();
    let mut out = Vec::new();
    let lost = decoder.decode_counted(tensors, thresholds, &mut out).unwrap();
    (out.iter().map(|found| found.class).collect(), lost)
}

fn lost(not_finite: usize, beyond: usize, greatest: u32) -> Lost {
    Lost { not_finite, beyond, greatest }
}

#[test]
fn ids_beyond_the_labels_are_counted() {
    const INF: f32 = f32::INFINITY;
    let floats = [-INF, f32::MIN, -1.0, -0.5, -0.0, 0.9, 2.0, 2.9, 3.0, 16_777_216.0, 4e9, f32::MAX, INF, f32::NAN];
    assert_eq!(found(&floats, Some(3)), (vec![0, 0, 2, 2], lost(3, 4, u32::MAX)));
    assert_eq!(found(&[i64::MIN, -1, 0, 2, 3, 1 << 24, i64::MAX], Some(3)), (vec![0, 2], lost(0, 3, u32::MAX)));
    assert_eq!(found(&[i32::MIN, -1, 0, 2, 3, i32::MAX], Some(3)), (vec![0, 2], lost(0, 2, 1 << 31)));
    assert_eq!(found(&[0u8, 2, 3, 255], Some(3)), (vec![0, 2], lost(0, 2, 255)));
    assert_eq!(found(&[65_535, 65_536, -7], None), (vec![65_535], lost(0, 1, 65_536)), "no labels");
}

/// Of a pair of ids that are one number in f16, neither has the name of the other.
#[test]
fn ids_that_f16_cannot_tell_apart_are_no_classes() {
    let halves = [2046.0, 2047.0, 2048.0, 2049.0, 65_504.0].map(f16::from_f32);
    assert_eq!(halves[2], halves[3]);
    assert_eq!(found(&halves, None), (vec![2046, 2047], lost(0, 3, 65_504)));
    assert_eq!(found(&halves, Some(2050)), (vec![2046, 2047], lost(0, 3, 65_504)));
    assert_eq!(found(&halves[..3], Some(2049)), (vec![2046, 2047, 2048], lost(0, 0, 0)), "none comes after it");
    assert_eq!(found(&[2049.0f32, 65_504.0], None), (vec![2049, 65_504], lost(0, 0, 0)));
    // Where ids count from 1, there is a class less.
    let of_ssd = |classes| {
        let tensors = [
            f32s("detection_boxes", &[1, 2, 4], &[0.125, 0.125, 0.5, 0.5].repeat(2)),
            f16s("detection_classes", &[1, 2], &[2047.0, 2048.0]),
            f32s("detection_scores", &[1, 2], &[0.5, 0.5]),
            f32s("num_detections", &[1], &[2.0]),
        ];
        counted(&ssd::HEAD, &tensors, Some(classes), &Thresholds::uniform(0.25))
    };
    assert_eq!(of_ssd(2048), (vec![2046, 2047], lost(0, 0, 0)));
    assert_eq!(of_ssd(2049), (vec![2046], lost(0, 1, 2047)));
}

/// Only what would be an object is one that is left out.
#[test]
fn what_passes_in_no_case_is_not_counted() {
    let of = |score, thresholds: &Thresholds| counted(&mmdeploy::HEAD, &tensors(&[5], score), Some(3), thresholds).1;
    assert_eq!(of(0.5, &Thresholds::uniform(0.5)), lost(0, 1, 5));
    assert_eq!(of(0.4, &Thresholds::uniform(0.5)), lost(0, 0, 0));
    assert_eq!(of(0.5, &Thresholds::only(&[0, 1], 0.25)), lost(0, 0, 0), "other classes are not wanted");
    assert_eq!(of(0.5, &Thresholds::new(vec![0.9; 6], 0.1)), lost(0, 0, 0), "a list that is longer than the classes");
    for score in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert_eq!(of(score, &Thresholds::uniform(0.0)), lost(0, 0, 0), "{score}");
    }
    for bbox in [[5.0, 5.0, 5.0, 9.0], [9.0, 5.0, 5.0, 9.0], [f32::NAN, 5.0, 9.0, 9.0]] {
        let [a, b, c, d] = bbox;
        let row = [rows(f32s, 10, &[(3, &[a, b, c, d, 0.5, 7.0])])];
        assert_eq!(counted(&end_to_end::HEAD, &row, Some(2), &Thresholds::uniform(0.1)).1, lost(0, 0, 0), "{bbox:?}");
    }
    let row = [rows(f16s, 10, &[(3, &[5.0, 5.0, 9.0, 9.0, 0.5, 7.0])])];
    assert_eq!(counted(&end_to_end::HEAD, &row, Some(2), &Thresholds::uniform(0.1)).1, lost(0, 1, 7));
}
