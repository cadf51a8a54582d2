// SPDX-License-Identifier: MPL-2.0
//! How to export models of known families whose outputs no head reads.

use crate::tensor::{DType, TensorDesc};

/// Its queries, and a logit of each for each token that its sentence may have.
pub(super) const GROUNDING_DINO: [i64; 2] = [900, 256];

/// What to do about such outputs, if it is known what they are.
pub(super) fn remedy(outputs: &[TensorDesc]) -> Option<&'static str> {
    let has = |part: &str| outputs.iter().any(|output| output.name.contains(part));
    let rows_of = |output: &TensorDesc| (output.dims.len() == 3).then(|| output.dims[1]);
    let is_box = |output: &&TensorDesc| output.dims.len() == 3 && output.dims[2] == 4;
    let boxes = outputs.iter().find(is_box);
    let has_logits = boxes.is_some_and(|boxes| {
        outputs.iter().any(|other| other.name != boxes.name && rows_of(other).is_some_and(|rows| rows == boxes.dims[1]))
    });
    if has("multiclass_nms") {
        Some("These are PaddleDetection's own suppression: export the model with exclude_nms=True")
    } else if has("flat_predictions") {
        Some("Export YOLO-NAS with postprocessing=False")
    } else if is_mtcnn(outputs) {
        Some(
            "If this is one of MTCNN's three networks, no layout reads it: each looks at parts of the picture that the one before it has \
             chosen. Use a face detector of one network, such as YuNet (layout=yunet) or SCRFD (layout=scrfd)",
        )
    } else if has("pred_score") {
        Some(
            "Anomalib 2 gives pred_score as one number of each picture, and anomaly_map, where there is one, as one number of each \
             pixel: export the model with it. To read the score alone, set layout=anomaly-score on trtnms",
        )
    } else if are_anchor_maps(outputs) {
        Some(
            "If these are YOLOv3's or YOLOv4's maps as darknet has them, describe them in a layout file with the anchors of the .cfg: \
             docs/layout-file.md has an example. Or take an export with boxes, such as pytorch-YOLOv4's (layout=yolov4)",
        )
    } else if has("batchno") {
        Some(
            "Their order is one that no layout has. If the model has its suppression in the graph, take the export without it",
        )
    } else if let [boxes, labels, scores] = outputs
        && boxes.dims.last() == Some(&4)
        && [boxes, labels, scores].map(|output| output.dims.len()) == [2, 1, 1]
        && labels.dtype == DType::I64
    {
        Some("If these are boxes, labels and scores by torchvision, set layout=torchvision on trtnms")
    } else if boxes.is_some() && outputs.iter().any(|output| output.dims.ends_with(&GROUNDING_DINO)) {
        Some(
            "If this is Grounding DINO, no layout reads it: its scores are of the tokens of a sentence, not of classes. To look for words of \
             your own, use YOLO-World or YOLOE with the vectors of the words as an input (input-values on trtinfer). If these are 256 \
             classes, set layout=detr-logits on trtnms",
        )
    } else if has("logits") && has_logits {
        Some(
            "For RT-DETR, D-FINE, DEIM and DEIMv2 set layout=detr-logits on trtnms; the scores of DETR and YOLOS are \
             a softmax, which is not supported",
        )
    } else if let [TensorDesc { dims, .. }] = outputs
        && dims.len() == 2
        && dims[1] == 7
    {
        Some(
            "If this is YOLOv7's export.py --end2end for ONNX Runtime, whose rows are as many as objects, set \
             layout=yolov7-end-to-end on trtnms. If it is the scores of 7 classes, set layout=classify, or a label file with a line \
             for each",
        )
    } else if let [TensorDesc { dims, .. }] = outputs
        && dims.len() == 2
        && dims[1] > 1
    {
        Some(
            "If these are scores of classes, set layout=classify on trtnms, or a label file with a line for each. If it is a vector that \
             tells pictures apart, an embedding, set layout=embed",
        )
    } else {
        None
    }
}

/// Maps of three anchors, each with a box, objectness and classes, at two or three strides: all channels first or last.
fn are_anchor_maps(outputs: &[TensorDesc]) -> bool {
    let maps = |desc: &TensorDesc| match desc.dims[..] {
        // Of three anchors with at least one class.
        [_, channels, height, width] if channels % 3 == 0 && channels >= 18 => Some([channels, height, width]),
        _ => None,
    };
    let last = |desc: &TensorDesc| match desc.dims[..] {
        [_, height, width, channels] if channels % 3 == 0 && channels >= 18 => Some([channels, height, width]),
        [_, height, width, 3, numbers] if numbers >= 6 => Some([numbers.checked_mul(3)?, height, width]),
        _ => None,
    };
    let are_alike = |of: &dyn Fn(&TensorDesc) -> Option<[i64; 3]>| {
        let all: Option<Vec<[i64; 3]>> = outputs.iter().map(of).collect();
        all.is_some_and(|mut all| {
            all.sort_unstable();
            let is_half = |pair: &[[i64; 3]]| {
                let [[channels, height, width], [others, high, wide]] = [pair[0], pair[1]];
                channels == others && height.checked_mul(2) == Some(high) && width.checked_mul(2) == Some(wide)
            };
            (2..=3).contains(&all.len()) && all.windows(2).all(is_half)
        })
    };
    are_alike(&maps) || are_alike(&last)
}

/// Offsets of a box, probabilities of two classes and, of the last network, five points: for each part of a picture or, of the first
/// network, for each place of a map.
fn is_mtcnn(outputs: &[TensorDesc]) -> bool {
    let widths = |at: fn(&TensorDesc) -> Option<i64>| {
        let mut widths: Vec<i64> = outputs.iter().filter_map(at).collect();
        widths.sort_unstable();
        widths
    };
    let last = |output: &TensorDesc| output.dims.last().copied();
    if outputs.iter().all(|output| output.dims.len() == 2) {
        return [&[2, 4][..], &[2, 4, 10]].contains(&&widths(last)[..]);
    }
    let are_maps = outputs.iter().all(|output| output.dims.len() == 4);
    are_maps && (widths(last) == [2, 4] || widths(|output| output.dims.get(1).copied()) == [2, 4])
}
