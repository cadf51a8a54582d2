// SPDX-License-Identifier: MPL-2.0
//! How far a picture and each of its pixels are from the pictures of the training, as Anomalib exports it.

use super::{Column, Dim, HeadFormat, MAP, STRETCH, Task, floats};

pub static HEAD: HeadFormat = HeadFormat {
    name: "anomaly",
    about: "Anomalies by Anomalib 2: PatchCore, PaDiM, EfficientAD and its other models with a map",
    task: Task::Anomaly,
    outputs: &[
        floats("anomaly_map", MAP, &[Column::AnomalyScore]),
        floats("pred_score", &[Dim::Batch], &[Column::AnomalyScore]),
    ],
    holds: "the score of each pixel, and that of the picture: in 0..1, and above 0.5 it is an anomaly",
    input: STRETCH,
    // The graph of such an export has the normalisation of its input.
    input_note: None,
    needs_nms: false,
    sizes: &super::OPEN,
    file: None,
    // Its names tell it.
    likely: |_| None,
    #[cfg(test)]
    gold,
};

#[cfg(test)]
fn gold(make: super::tests::MakeTensor) -> super::tests::Gold {
    // It gives no boxes.
    (vec![make("anomaly_map", &[1, 1, 4, 4], &[0.25; 16]), make("pred_score", &[1], &[0.75])], Vec::new())
}
