// SPDX-License-Identifier: MPL-2.0
//! NonMaxSuppression as ONNX defines it (<https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html>).

use rten::Value;
use rten_tensor::prelude::*;
use rten_tensor::{NdTensor, NdTensorView};

use crate::image::Candidate;
use crate::image::geometry::BBox;
use crate::postprocess::suppress::Nms;

/// The node's inputs; absent ones have ONNX's defaults.
pub struct Inputs<'a> {
    /// `[batch, boxes, 4]`.
    pub boxes: NdTensorView<'a, f32, 3>,
    /// `[batch, classes, boxes]`.
    pub scores: NdTensorView<'a, f32, 3>,
    /// Boxes to keep in each class of each picture.
    pub max_output: usize,
    pub iou_threshold: f32,
    pub score_threshold: Option<f32>,
    /// See [`Suppression::centers`](crate::onnx::cut::Suppression::centers).
    pub centers: bool,
}

/// `[kept, 3]`: picture, class and box of each that is kept, by picture, class and falling score. `None` where the inputs
/// do not go together.
pub fn suppress(inputs: &Inputs) -> Option<Value> {
    let [batch, count, four] = inputs.boxes.shape();
    let [score_batch, classes, score_count] = inputs.scores.shape();
    if (four, score_batch, score_count) != (4, batch, count) {
        return None;
    }
    let mut nms = Nms::new(inputs.iou_threshold, inputs.max_output, true);
    let (mut candidates, mut kept) = (Vec::new(), Vec::new());
    for item in 0..batch {
        for class in 0..classes {
            candidates.clear();
            candidates.extend((0..count).filter_map(|index| {
                let score = inputs.scores[[item, class, index]];
                let enough = inputs.score_threshold.is_none_or(|threshold| score > threshold);
                let bbox = bbox([0, 1, 2, 3].map(|i| inputs.boxes[[item, index, i]]), inputs.centers);
                enough.then_some(Candidate { bbox, score, class: 0, row: index as u32, angle: 0.0 })
            }));
            nms.suppress(&mut candidates);
            kept.extend(candidates.iter().flat_map(|found| [item as i32, class as i32, found.row as i32]));
        }
    }
    Some(NdTensor::from_data([kept.len() / 3, 3], kept).into())
}

fn bbox([a, b, c, d]: [f32; 4], centers: bool) -> BBox {
    if centers {
        BBox::from_center(a, b, c, d)
    } else {
        // Any two opposite corners, y first.
        BBox::new(b.min(d), a.min(c), b.max(d), a.max(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three boxes of which the second overlaps both others by more than half; scores choose who goes.
    fn kept(scores: [f32; 6], max_output: usize, score_threshold: Option<f32>) -> Vec<i32> {
        let boxes = NdTensor::from_data([1, 3, 4], vec![0., 0., 1., 10., 1., 12., 0., 2., 0., 4., 1., 14.]);
        let scores = NdTensor::from_data([1, 2, 3], scores.to_vec());
        let inputs = Inputs {
            boxes: boxes.view(),
            scores: scores.view(),
            max_output,
            iou_threshold: 0.5,
            score_threshold,
            centers: false,
        };
        let Some(Value::Int32Tensor(kept)) = suppress(&inputs) else { panic!("{:?}", suppress(&inputs)) };
        kept.to_vec()
    }

    #[test]
    fn the_greedy_order_is_by_score() {
        // The middle box is best in class 0 and drops both; in class 1 it is dropped and so drops no other.
        assert_eq!(kept([0.5, 0.9, 0.6, 0.9, 0.5, 0.6], 9, None), [0, 0, 1, 0, 1, 0, 0, 1, 2]);
        // What is kept of one class is no rival of the next one's.
        assert_eq!(kept([0.5, 0.9, 0.6, 0.8, 0.5, 0.6], 9, None), [0, 0, 1, 0, 1, 0, 0, 1, 2]);
    }

    #[test]
    fn limits_hold_for_each_class() {
        assert_eq!(kept([0.5, 0.9, 0.6, 0.9, 0.5, 0.6], 1, None), [0, 0, 1, 0, 1, 0]);
        assert_eq!(kept([0.5, 0.9, 0.6, 0.9, 0.5, 0.6], 9, Some(0.6)), [0, 0, 1, 0, 1, 0]);
        assert_eq!(kept([0.5, 0.9, 0.6, 0.9, 0.5, 0.6], 0, None), [0; 0]);
    }
}
