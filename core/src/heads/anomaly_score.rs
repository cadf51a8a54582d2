// SPDX-License-Identifier: MPL-2.0
//! How far a picture is from those of the training, without a map of where, as Anomalib exports it.

use super::{Column, Dim, HeadFormat, STRETCH, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "anomaly-score",
    about: "Anomalies by Anomalib 2 as a score of the picture alone: GANomaly, DFKDE and its other models without a map",
    task: Task::Anomaly,
    outputs: &[floats("pred_score", &[Dim::Batch], &[Column::AnomalyScore])],
    holds: "the score of the picture: in 0..1, and above 0.5 it is an anomaly",
    input: STRETCH,
    // The graph of such an export has the normalisation of its input.
    input_note: None,
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // Its name tells it.
    likely: |_| None,
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    // It gives no boxes.
    (vec![make("pred_score", &[1], &[0.75])], Vec::new())
}
