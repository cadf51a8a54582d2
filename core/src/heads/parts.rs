// SPDX-License-Identifier: MPL-2.0
//! Rows whose score is made of two parts that are not read next to each other, as YuNet's are, or that are logits, as darknet's are.

use super::decode::{Sink, box_of, four, least_logit, sigmoid, viewed};
use super::{Column, Head, ID_COLUMNS, TensorView};
use crate::tensor::Tensor;

/// Whether the score of a row is made of two outputs, or in another way than by their product.
pub(super) fn has_parts(head: &Head) -> bool {
    let output = |is_it: fn(Column) -> bool| head.view(is_it).map(|view| view.output);
    match head.format.objectness() {
        None => false,
        Some(objectness) => {
            objectness != Column::Objectness || output(Column::is_objectness) != output(Column::are_scores)
        }
    }
}

/// Objectness of each row, and whether the rest of it is read.
fn objectness(head: &Head, outputs: &[&Tensor], least: f32) -> impl Fn(usize) -> (f32, bool) {
    let least = match head.format.objectness() {
        Some(Column::RootObjectness) => None,
        Some(Column::ObjectnessLogit) => Some(least_logit(least)),
        _ => Some(least),
    };
    let view = head.view(Column::is_objectness);
    move |row| {
        let objectness = view.map_or(f32::NAN, |view| viewed(outputs, &view, row, 0));
        (objectness, least.is_none_or(|least| objectness >= least))
    }
}

/// The best class of a row and its score.
fn best(outputs: &[&Tensor], scores: &TensorView, row: usize) -> Option<(usize, f32)> {
    let scores = (0..scores.count).map(|class| (class, viewed(outputs, scores, row, class)));
    let (class, score) =
        scores.fold(
            (None, f32::NEG_INFINITY),
            |best, (class, score)| {
                if score > best.1 { (Some(class), score) } else { best }
            },
        );
    Some((class?, score))
}

pub(super) fn rows(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    let kind = head.format.objectness();
    let (encoding, grid) = (head.format.encoding(), head.grid());
    let boxes = head.view(ID_COLUMNS[0]).expect("a head has boxes");
    let Some(scores) = head.view(Column::are_scores) else { return };
    let objectness = objectness(head, outputs, sink.thresholds.least());
    for row in 0..head.rows {
        let (objectness, is_read) = objectness(row);
        let Some((class, score)) = best(outputs, &scores, row).filter(|_| is_read) else { continue };
        let score = match kind {
            Some(Column::RootObjectness) => (objectness.clamp(0.0, 1.0) * score.clamp(0.0, 1.0)).sqrt(),
            Some(Column::ObjectnessLogit) => sigmoid(objectness) * sigmoid(score),
            _ => objectness * score,
        };
        if score >= sink.thresholds.least() {
            sink.push(row, box_of(encoding, head, grid, row, four(outputs, &boxes, row)), score, class);
        }
    }
}

pub(super) fn lost(head: &Head, outputs: &[&Tensor], least: f32) -> usize {
    let Some(view) = head.view(Column::are_scores) else { return 0 };
    let objectness = objectness(head, outputs, least);
    let is_lost = |row: &usize| {
        let (objectness, is_read) = objectness(*row);
        let has_scores = || (0..view.count).all(|class| viewed(outputs, &view, *row, class).is_finite());
        !objectness.is_finite() || is_read && !has_scores()
    };
    (0..head.rows).filter(is_lost).count()
}
