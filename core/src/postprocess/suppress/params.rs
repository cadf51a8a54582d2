// SPDX-License-Identifier: MPL-2.0
//! What the kernels of `decode.cu`, `nms.cu` and `rotated.cu` take, in their layout.

use std::mem::size_of;

use crate::heads::{Column, DecodeKernel, Decoder, HeadFormat, TensorView};
use crate::image::Candidate;
use crate::postprocess::cells::CellGrid;
use crate::tensor::DType;

#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
pub struct DecodeSource {
    pub data: u64,
    pub dtype: u32,
    pub first: u32,
    pub stride: u32,
    pub step: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
pub struct CandidateArrays {
    pub keys: u64,
    pub boxes: u64,
    pub classes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
pub struct DecodeParams {
    pub sources: [DecodeSource; 4],
    pub to: CandidateArrays,
    pub count: u64,
    pub per_class: u64,
    pub listed: u32,
    pub beyond: f32,
    pub least: f32,
    pub rows: u32,
    pub capacity: u32,
    pub classes: u32,
    pub background: u32,
    pub least_logit: f32,
    pub encoding: u32,
    pub objectness: u32,
    pub lanes_log2: u32,
    pub first_class: f32,
    pub width: f32,
    pub height: f32,
    pub grid: CellGrid,
}

#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
pub struct NmsParams {
    pub from: CandidateArrays,
    pub sorted: CandidateArrays,
    pub count: u64,
    pub next_count: u64,
    pub blocks_done: u64,
    pub kept: u64,
    pub matrix: u64,
    pub results: u64,
    pub found: u64,
    pub capacity: u32,
    pub limit: u32,
    pub agnostic: u32,
    pub threshold: f32,
    pub of_row: u32,
    pub matrix_rows: u32,
    pub compared: u32,
    pub margin: f32,
}

/// For rotated boxes. Kernels for upright ones take its first part.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq)]
pub struct RotatedParams {
    pub nms: NmsParams,
    pub angles: DecodeSource,
    pub gaussians: u64,
}

const _: () = assert!(size_of::<DecodeParams>() == 264 && size_of::<NmsParams>() == 136);
const _: () = assert!(size_of::<RotatedParams>() == 168);
/// A [`super::rotated::Gaussian`] with its class and angle.
pub const GAUSSIAN: usize = 32;
const _: () = assert!(size_of::<Candidate>() == 32);

/// Whether a head is decoded by the kernels with `general` in their names: they have code that few need, and that makes the others
/// slower even where it is passed over.
pub fn needs_general(format: &HeadFormat) -> bool {
    let has_kind = matches!(format.objectness(), Some(Column::RootObjectness | Column::ObjectnessLogit));
    format.encoding().is_of_cells() || has_kind
}

impl DecodeSource {
    /// All zeros where there is nothing to read. The address of the data is set for each frame.
    pub fn new(view: Option<TensorView>, dtypes: &[DType]) -> Self {
        let Some(TensorView { output, first, row_stride, column_stride, .. }) = view else {
            return DecodeSource::default();
        };
        DecodeSource {
            dtype: code(dtypes[output]),
            first: first as u32,
            stride: row_stride as u32,
            step: column_stride as u32,
            ..DecodeSource::default()
        }
    }
}

impl DecodeParams {
    /// What stays the same from frame to frame. `lanes` threads read the scores of a row.
    pub fn new(decoder: &Decoder, to: CandidateArrays, views: &[Option<TensorView>; 4], lanes: usize) -> Self {
        let (head, format) = (decoder.head(), decoder.format());
        let dtypes: Vec<DType> = decoder.dtypes().collect();
        let kernel = format.kernel();
        DecodeParams {
            sources: views.map(|view| DecodeSource::new(view, &dtypes)),
            to,
            rows: head.rows as u32,
            capacity: head.candidates() as u32,
            classes: match kernel {
                DecodeKernel::Ids => decoder.class_limit().try_into().unwrap_or(u32::MAX),
                _ => head.classes as u32,
            },
            background: head.background.map_or(u32::MAX, |slot| slot as u32),
            encoding: format.encoding() as u32,
            objectness: match format.objectness() {
                None => 0,
                Some(Column::RootObjectness) => 2,
                Some(Column::ObjectnessLogit) => 3,
                Some(_) => 1,
            },
            lanes_log2: lanes.ilog2(),
            first_class: format.first_class().into(),
            width: head.input.0 as f32,
            height: head.input.1 as f32,
            grid: CellGrid::new(decoder),
            ..DecodeParams::default()
        }
    }
}

/// `Type` in the kernel.
fn code(dtype: DType) -> u32 {
    match dtype {
        DType::F32 => 0,
        DType::F16 => 1,
        DType::U8 => 2,
        DType::I32 => 3,
        DType::I64 => 4,
        DType::I8 | DType::Bool => unreachable!("no head takes {dtype}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::heads::{Column, HeadFormat, ID_COLUMNS, ModelHints, is_count, layout_file};
    use crate::image::keypoints::{KeypointModel, KeypointShape};
    use crate::postprocess::refine::GatherParams;
    use crate::postprocess::suppress::join::JoinPlan;
    use crate::tensor::TensorDesc;

    /// What the kernels take of a head that a file describes is what they take of the one in this crate. So they do the same.
    #[test]
    fn kernels_take_heads_of_files_as_they_take_those_of_this_crate() {
        let keypoints = KeypointModel { shape: KeypointShape { count: 17, dims: 3 }, names: Vec::new() };
        let hints = ModelHints { input: Some((640, 640)), keypoints: Some(keypoints), ..ModelHints::default() };
        for (name, outputs) in [
            ("yolov5", &["output0 f32 1x25200x85"][..]),
            ("yolov8", &["output0 f16 1x84x8400"]),
            ("end-to-end", &["output0 f32 1x300x6"]),
            ("yolox", &["output f32 1x8400x85"]),
            ("nanodet", &["output f16 1x8400x112"]),
            ("rf-detr", &["dets f32 1x300x4", "labels f16 1x300x91"]),
            ("pose", &["output0 f32 1x56x8400"]),
            ("obb", &["output0 f32 1x20x8400"]),
            ("segment", &["output0 f32 1x116x8400", "output1 f32 1x32x160x160"]),
            (
                "efficientnms",
                &["num_dets i32 1x1", "det_boxes f32 1x100x4", "det_scores f32 1x100", "det_classes i32 1x100"],
            ),
            (
                "ssd",
                &[
                    "detection_boxes f32 1x100x4",
                    "detection_classes f32 1x100",
                    "detection_scores f32 1x100",
                    "num_detections f32 1",
                ],
            ),
            (
                "scrfd",
                &[
                    "448 f32 12800x1",
                    "471 f32 3200x1",
                    "494 f32 800x1",
                    "451 f16 12800x4",
                    "474 f16 3200x4",
                    "497 f16 800x4",
                    "454 f32 12800x10",
                    "477 f32 3200x10",
                    "500 f32 800x10",
                ],
            ),
            (
                "yunet",
                &[
                    "cls_8 f32 1x6400x1",
                    "cls_16 f32 1x1600x1",
                    "cls_32 f32 1x400x1",
                    "obj_8 f16 1x6400x1",
                    "obj_16 f16 1x1600x1",
                    "obj_32 f16 1x400x1",
                    "bbox_8 f32 1x6400x4",
                    "bbox_16 f32 1x1600x4",
                    "bbox_32 f32 1x400x4",
                    "kps_8 f16 1x6400x10",
                    "kps_16 f16 1x1600x10",
                    "kps_32 f16 1x400x10",
                ],
            ),
            ("retinaface", &["a f32 1x16800x4", "b f16 1x16800x2", "c f16 1x16800x10"]),
            (
                "rtmdet",
                &[
                    "cls0 f16 1x3x80x80",
                    "cls1 f16 1x3x40x40",
                    "cls2 f16 1x3x20x20",
                    "reg0 f32 1x4x80x80",
                    "reg1 f32 1x4x40x40",
                    "reg2 f32 1x4x20x20",
                ],
            ),
        ] {
            let parse = |text: &&str| {
                let [name, dtype, dims] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
                TensorDesc { name: name.into(), dtype: dtype.parse().unwrap(), dims: dims.parse().unwrap() }
            };
            let outputs: Vec<TensorDesc> = outputs.iter().map(parse).collect();
            let params = |format: &'static HeadFormat| {
                let decoder = Decoder::new(Some(format), &outputs, &hints).unwrap();
                let head = decoder.head();
                let [boxes, scores, classes] = ID_COLUMNS.map(|is_it| head.view(is_it));
                let dense = [boxes, head.view(Column::are_scores), head.view(Column::is_objectness), None];
                let ids = [boxes, scores, classes, head.view(is_count)];
                let views = if format.kernel() == DecodeKernel::Ids { ids } else { dense };
                let dtypes: Vec<DType> = decoder.dtypes().collect();
                let angles = DecodeSource::new(decoder.angles(), &dtypes);
                let params = DecodeParams::new(&decoder, CandidateArrays::default(), &views, 8);
                let kinds = (format.kernel(), format.suppress(), format.is_for_host());
                assert!(params.rows > 0 && !kinds.2, "{name}");
                (params, angles, kinds)
            };
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/layouts/{name}.toml"));
            let (own, other) = (HeadFormat::of_name(name).unwrap(), layout_file::of_file(&file).unwrap());
            let (own_params, other_params) = (params(own), params(other));
            assert!(own_params.0 == other_params.0 && own_params.1 == other_params.1, "{name}");
            assert_eq!(own_params.2, other_params.2, "{name}");
            let made = |format| Decoder::new(Some(format), &outputs, &hints).unwrap();
            let (own, other) = (made(own), made(other));
            assert_eq!((own.gather_view(), own.masks()), (other.gather_view(), other.masks()), "{name}");
            let gather = |decoder: &Decoder| {
                let view = decoder.gather_view();
                view.map(|view| GatherParams::new(decoder, &view, CellGrid::new(decoder), 0))
            };
            assert!(gather(&own) == gather(&other), "{name}");
            let joined = |decoder: &Decoder| JoinPlan::new(decoder).map(|plan| (plan.params, plan.joined, plan.bytes));
            assert!(joined(&own) == joined(&other), "{name}");
        }
    }
}
