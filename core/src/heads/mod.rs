// SPDX-License-Identifier: MPL-2.0
//! Detection heads: what a model's outputs mean.
//!
//! A head is one file that describes its outputs as data: typed columns, how boxes are encoded, how the input is usually
//! prepared, and whether boxes still repeat each other. From that follow recognition (`recognise`), decoding on the host
//! (`decode.rs`), decoding on a GPU (`kernels/decode.cu`), and the numbers that are gathered for the kept boxes.
//!
//! The same is said in a TOML file for networks that are not here: `layout_file`.
//!
//! A new head is a file with its gold case, its line in [`HEADS`], and its row in docs/models.md. Only arithmetic that
//! no head had before needs more: a [`BoxEncoding`] in `decode.rs` and `decode.cu`.
//!
//! Sources: the exporters and post-processing of each family (Ultralytics, YOLOv5/6/7, YOLOX, RT-DETR, D-FINE, TensorRT's
//! EfficientNMS plugin, TensorFlow's detection zoo, DeepStream-Yolo, pytorch-YOLOv4, NanoDet, torchvision, OpenVINO, MMDeploy,
//! InsightFace, OpenCV, Pytorch_Retinaface, PaddleOCR, fast-plate-ocr, Anomalib).

pub mod anomaly;
pub mod anomaly_score;
mod background;
pub mod classify;
pub mod ctc;
pub mod ctc_time_first;
mod declared;
mod decode;
mod decoder;
pub mod deepstream_yolo;
pub mod deepstream_yolo_seg;
pub mod depth;
pub mod detr;
pub mod detr_logits;
pub mod detr_topk;
pub mod detr_ultralytics;
pub mod efficientnms;
pub mod embed;
pub mod end_to_end;
mod exports;
mod fit;
mod format;
mod grid;
pub mod layout_file;
mod levels;
pub mod mmdeploy;
pub mod nanodet;
pub mod nanodet_plus;
pub mod obb;
pub mod obb_end_to_end;
pub mod openvino_ssd;
mod parts;
pub mod picodet;
mod pictures;
mod points;
pub mod pose;
pub mod pose_end_to_end;
pub mod pp_yoloe;
pub mod pp_yoloe_concat;
mod recognise;
pub mod retinaface;
pub mod rf_detr;
pub mod rf_detr_seg;
pub mod rtmdet;
pub mod scrfd;
pub mod scrfd_boxes;
pub mod segment;
pub mod segment_end_to_end;
pub mod semantic;
pub mod semantic_logits;
pub mod slots;
pub mod ssd;
pub mod text_detect;
pub mod text_orientation;
mod thresholds;
pub mod torchvision;
pub mod yolo_nas;
pub mod yolov4;
pub mod yolov5;
pub mod yolov7_end_to_end;
pub mod yolov8;
pub mod yolov8_transposed;
pub mod yolox;
pub mod yolox_decoded;
pub mod yunet;

use crate::image::geometry::ResizeMode;
use crate::image::keypoints::{KeypointModel, KeypointShape};
use crate::image::transform::{Chroma, Colors, InputTransform};

pub use background::BackgroundClass;
pub use decode::Lost;
pub(crate) use decode::{ID_COLUMNS, is_count, least_logit, number};
pub(crate) use decoder::Head;
pub use decoder::{Decoder, MaskParts, MaskSource, TensorView};
use format::{BINS, ColumnSizes, OPEN};
pub use format::{
    BoxEncoding, Column, DecodeKernel, Dim, ElementClass, HeadFormat, HeadSizes, OutputSpec, Suppress, Task,
};
pub(crate) use grid::MAX_STRIDES;
pub(crate) use pictures::PictureRows;
pub(crate) use recognise::check_task;
pub use recognise::{ModelHints, Recognised, explain, recognise, recognise_classes, recognise_outputs};
pub use thresholds::Thresholds;

/// All heads, in the order in which they are offered to users.
pub static HEADS: &[&HeadFormat] = &[
    &yolov5::HEAD,
    &yolov8::HEAD,
    &yolov8_transposed::HEAD,
    &end_to_end::HEAD,
    &yolov7_end_to_end::HEAD,
    &yolox::HEAD,
    &yolox_decoded::HEAD,
    &efficientnms::HEAD,
    &detr::HEAD,
    &detr_ultralytics::HEAD,
    &detr_topk::HEAD,
    &detr_logits::HEAD,
    &rf_detr::HEAD,
    &ssd::HEAD,
    &openvino_ssd::HEAD,
    &torchvision::HEAD,
    &mmdeploy::HEAD,
    &yolov4::HEAD,
    &nanodet::HEAD,
    &nanodet_plus::HEAD,
    &deepstream_yolo::HEAD,
    &yolo_nas::HEAD,
    &pp_yoloe::HEAD,
    &pp_yoloe_concat::HEAD,
    &picodet::HEAD,
    &rtmdet::HEAD,
    &scrfd::HEAD,
    &scrfd_boxes::HEAD,
    &yunet::HEAD,
    &retinaface::HEAD,
    &pose::HEAD,
    &pose_end_to_end::HEAD,
    &obb::HEAD,
    &obb_end_to_end::HEAD,
    &segment::HEAD,
    &segment_end_to_end::HEAD,
    &rf_detr_seg::HEAD,
    &deepstream_yolo_seg::HEAD,
    &classify::HEAD,
    &semantic::HEAD,
    &semantic_logits::HEAD,
    &depth::HEAD,
    &anomaly::HEAD,
    &anomaly_score::HEAD,
    &embed::HEAD,
    &text_detect::HEAD,
    &text_orientation::HEAD,
    &ctc::HEAD,
    &ctc_time_first::HEAD,
    &slots::HEAD,
];

/// The names of all heads.
pub fn names() -> Vec<&'static str> {
    HEADS.iter().map(|format| format.name).collect()
}

/// Letterboxed RGB in 0..1, for the YOLO family.
const YOLO: InputTransform = InputTransform {
    colors: Colors::Rgb,
    fit: ResizeMode::Letterbox,
    shortest_edge: 0,
    pad: 114,
    scale: 1.0 / 255.0,
    mean: [0.0; 3],
    std: [1.0; 3],
    chroma: Chroma::Nearest,
};
/// RGB in 0..1 without regard to aspect ratio, for transformers.
const STRETCH: InputTransform = InputTransform { fit: ResizeMode::Stretch, ..YOLO };

/// The same, normalised as pictures of ImageNet are.
const IMAGENET: InputTransform = InputTransform { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], ..STRETCH };

/// A line of text, as high as the input and at its left: BGR from -1 to 1, and grey behind it.
const TEXT_LINE: InputTransform = InputTransform {
    colors: Colors::Bgr,
    fit: ResizeMode::LetterboxTopLeft,
    pad: 127,
    mean: [0.5; 3],
    std: [0.5; 3],
    ..YOLO
};

/// Notes that heads share.
const DEIM_NOTE: &str = "For DEIMv2 with DINOv3 (S, M, L, X), set mean=0.485,0.456,0.406 std=0.229,0.224,0.225 on \
                         trtpreprocess; RT-DETR, D-FINE, DEIM and the smaller DEIMv2 need neither";
const PP_YOLOE_NOTE: &str = "For PP-YOLOE without the plus, set mean=0.485,0.456,0.406 std=0.229,0.224,0.225 on \
                             trtpreprocess; PP-YOLOE+ needs neither";
const MAP_NOTE: &str = "For models that were trained with the normalisation of ImageNet, unless their graph does it, set \
                        mean=0.485,0.456,0.406 std=0.229,0.224,0.225 on trtpreprocess";

const TEXT_NOTE: &str = "The input is taken for that of PP-OCR: BGR from -1 to 1. If the model was trained with something \
                         else, set tensor-colors, mean and std on trtpreprocess";

const ROWS_OF_COLUMNS: &[Dim] = &[Dim::Batch, Dim::Rows, Dim::Columns];
/// As the boxes of pytorch-YOLOv4, which has one for all classes.
const ROWS_OF_ONE_OF_COLUMNS: &[Dim] = &[Dim::Batch, Dim::Rows, Dim::One, Dim::Columns];
const COLUMNS_OF_ROWS: &[Dim] = &[Dim::Batch, Dim::Columns, Dim::Rows];
const ROWS: &[Dim] = &[Dim::Batch, Dim::Rows];
/// Those of all pictures of a batch.
const ROWS_OF_ALL_PICTURES: &[Dim] = &[Dim::Rows, Dim::Columns];
/// Once for each stride.
const CELLS_OF_COLUMNS: &[Dim] = &[Dim::Batch, Dim::Cells, Dim::Columns];
/// The same with a map of each column.
const MAPS_OF_CELLS: &[Dim] = &[Dim::Batch, Dim::Columns, Dim::Cells];
const CLASSES_ONLY: &[Dim] = &[Dim::Batch, Dim::Columns];
const MAP: &[Dim] = &[Dim::Batch, Dim::One, Dim::Height, Dim::Width];
const MAPS_OF_ROWS: &[Dim] = &[Dim::Batch, Dim::Rows, Dim::Height, Dim::Width];
/// Masks are sums of these, each weighted by a coefficient.
const PROTOTYPES: OutputSpec = floats("", &[Dim::Batch, Dim::Prototypes, Dim::Height, Dim::Width], &[]);

/// Five points of a face: both eyes, the nose, both corners of the mouth.
const FACE: KeypointModel = KeypointModel { shape: KeypointShape { count: 5, dims: 2 }, names: Vec::new() };

const fn floats(name: &'static str, dims: &'static [Dim], columns: &'static [Column]) -> OutputSpec {
    OutputSpec { name, class: ElementClass::Float, dims, columns }
}

const fn numbers(name: &'static str, dims: &'static [Dim], columns: &'static [Column]) -> OutputSpec {
    OutputSpec { name, class: ElementClass::Any, dims, columns }
}

#[cfg(test)]
mod tests;
