// SPDX-License-Identifier: MPL-2.0
//! Rows whose score is made of two parts that are not read next to each other, as YuNet's are.

use super::decode::{Sink, box_of, four, viewed};
use super::{Column, Head, ID_COLUMNS};
use crate::tensor::Tensor;

/// Whether the score of a row is made of two outputs, or in another way than by their product.
pub(super) fn has_parts(head: &Head) -> bool {
    let output = |is_it: fn(Column) -> bool| head.view(is_it).map(|view| view.output);
    match head.format.objectness() {
        None => false,
        Some(objectness) => {
            objectness == Column::RootObjectness || output(Column::is_objectness) != output(Column::are_scores)
        }
    }
}

/// Objectness of a row, its best class and that class's score.
fn parts(head: &Head, outputs: &[&Tensor], row: usize) -> (f32, usize, f32) {
    let objectness = head.view(Column::is_objectness).map_or(f32::NAN, |view| viewed(outputs, &view, row, 0));
    let Some(view) = head.view(Column::are_scores) else { return (objectness, 0, f32::NAN) };
    let scores = (0..view.count).map(|class| (class, viewed(outputs, &view, row, class)));
    let (class, score) =
        scores.fold((0, f32::NAN), |best, other| if other.1 > best.1 || best.1.is_nan() { other } else { best });
    (objectness, class, score)
}

pub(super) fn rows(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    let is_root = head.format.objectness() == Some(Column::RootObjectness);
    let (encoding, grid) = (head.format.encoding(), head.grid());
    let boxes = head.view(ID_COLUMNS[0]).expect("a head has boxes");
    for row in 0..head.rows {
        let (objectness, class, score) = parts(head, outputs, row);
        let score = match is_root {
            true => (objectness.clamp(0.0, 1.0) * score.clamp(0.0, 1.0)).sqrt(),
            false => objectness * score,
        };
        if score >= sink.thresholds.least() {
            sink.push(row, box_of(encoding, head, grid, row, four(outputs, &boxes, row)), score, class);
        }
    }
}

pub(super) fn lost(head: &Head, outputs: &[&Tensor]) -> usize {
    let Some(view) = head.view(Column::are_scores) else { return 0 };
    let is_lost = |row: &usize| {
        let has_scores = (0..view.count).all(|class| viewed(outputs, &view, *row, class).is_finite());
        !has_scores || !parts(head, outputs, *row).0.is_finite()
    };
    (0..head.rows).filter(is_lost).count()
}
