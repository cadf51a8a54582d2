// SPDX-License-Identifier: MPL-2.0
//! Detection heads: what a model's outputs mean.
//!
//! A head is one file that describes its outputs as data: typed columns, how boxes are encoded, how the input is usually
//! prepared, and whether boxes still repeat each other. From that follow recognition ([`recognise`]), decoding on the host
//! (`decode.rs`), decoding on a GPU (`kernels/decode.cu`), and the numbers that are gathered for the kept boxes.
//!
//! A new head is a file with its gold case, its line in [`HEADS`], and its row in the README. Only arithmetic that no head had
//! before needs more: a [`BoxEncoding`] in `decode.rs` and `decode.cu`.
//!
//! Sources: the exporters and post-processing of each family (Ultralytics, YOLOv5/6/7, YOLOX, RT-DETR, D-FINE, TensorRT's
//! EfficientNMS plugin, TensorFlow's detection zoo, DeepStream-Yolo).

mod background;
pub mod classify;
mod decode;
pub mod deepstream_yolo;
pub mod deepstream_yolo_seg;
pub mod depth;
pub mod detr;
pub mod detr_logits;
pub mod detr_topk;
pub mod detr_ultralytics;
pub mod efficientnms;
pub mod end_to_end;
mod exports;
pub mod obb;
pub mod obb_end_to_end;
pub mod pose;
pub mod pose_end_to_end;
pub mod pp_yoloe;
pub mod pp_yoloe_concat;
mod recognise;
pub mod rf_detr;
pub mod rf_detr_seg;
pub mod segment;
pub mod segment_end_to_end;
pub mod semantic;
pub mod semantic_logits;
pub mod ssd;
mod thresholds;
pub mod yolo_nas;
pub mod yolov5;
pub mod yolov8;
pub mod yolov8_transposed;
pub mod yolox;

use std::ops::Range;

use smallvec::SmallVec;

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::tensor::{DType, Tensor, TensorDesc};
use crate::image::Candidate;
use crate::image::geometry::ResizeMode;
use crate::image::keypoints::KeypointShape;
use crate::image::masks::PrototypeShape;
use crate::image::masks::maps::MapOver;
use crate::image::transform::{Chroma, Colors, InputTransform};

pub use background::BackgroundClass;
use decode::Sink;
pub(crate) use decode::{ID_COLUMNS, is_count, least_logit, number};
pub(crate) use recognise::check_task;
use recognise::{Confidence, HeadCandidate};
pub use recognise::{ModelHints, Recognised, explain, recognise, recognise_outputs};
pub use thresholds::Thresholds;

/// All heads, in the order in which they are offered to users.
pub static HEADS: &[&HeadFormat] = &[
    &yolov5::HEAD,
    &yolov8::HEAD,
    &yolov8_transposed::HEAD,
    &end_to_end::HEAD,
    &yolox::HEAD,
    &efficientnms::HEAD,
    &detr::HEAD,
    &detr_ultralytics::HEAD,
    &detr_topk::HEAD,
    &detr_logits::HEAD,
    &rf_detr::HEAD,
    &ssd::HEAD,
    &deepstream_yolo::HEAD,
    &yolo_nas::HEAD,
    &pp_yoloe::HEAD,
    &pp_yoloe_concat::HEAD,
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
];

/// Everything about a head.
pub struct HeadFormat {
    /// The value of the property `layout`; stable.
    pub name: &'static str,
    /// Which models have it, in one line.
    pub about: &'static str,
    pub task: Task,
    pub outputs: &'static [OutputSpec],
    /// Units and order of the columns, in words.
    pub holds: &'static str,
    /// How the input of such models is prepared, unless the model or the user sets something else.
    pub input: InputTransform,
    /// What users may have to set where the file does not contain how its input is normalised; `None` where all models of the
    /// layout want the same.
    pub input_note: Option<&'static str>,
    /// Whether the boxes still repeat each other.
    pub needs_nms: bool,
    /// The evidence for this head where the outputs fit. Used only for heads with one output; names decide the others.
    likely: fn(&HeadCandidate) -> Option<Confidence>,
    /// A case computed by hand.
    #[cfg(test)]
    gold: fn(tests::MakeTensor) -> tests::Gold,
}

/// What a model is for: the key `task` of Ultralytics' metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Detect,
    Pose,
    /// Rotated boxes.
    Obb,
    /// Boxes and masks.
    Segment,
    /// Classes of the whole frame.
    Classify,
    /// A class for each pixel.
    Semantic,
    /// A depth for each pixel.
    Depth,
}

/// How boxes that repeat a better one are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suppress {
    /// There are none.
    None,
    /// By their IoU with a better one that is kept.
    Iou,
    /// Rotated boxes: by their probabilistic IoU with any better one, kept or not.
    RotatedIou,
}

/// A tensor that a head consists of.
#[derive(Debug)]
pub struct OutputSpec {
    /// Empty where any name will do.
    pub name: &'static str,
    pub class: ElementClass,
    /// A trailing dimension of 1 more than these is accepted too.
    pub dims: &'static [Dim],
    /// What the elements of a row are, in order.
    pub columns: &'static [Column],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementClass {
    /// f32 or f16.
    Float,
    /// Those, and integers: counts and class ids.
    Any,
    /// u8, i32 or i64: class ids.
    Integer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    Batch,
    /// Anchors, queries or boxes; the same number in all outputs of a head.
    Rows,
    /// As many as the columns have elements.
    Columns,
    /// Prototypes of masks, as many as a row has coefficients.
    Prototypes,
    /// Of a prototype, or of a map.
    Height,
    Width,
    /// Always 1, and may be left out.
    One,
}

/// What some elements of a row mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Four numbers.
    Box(BoxEncoding),
    Objectness,
    /// A score for each class.
    Classes,
    /// The logit of a score for each class and, in some models, for the background. A row is an object of each class whose score
    /// passes: DETR's descendants take the best of all pairs of row and class.
    Logits {
        /// Whether models usually have a background.
        has_background: bool,
    },
    /// The score of the one class that the row names.
    Score,
    /// The class that the row names; class 0 is called `first`.
    ClassId {
        first: u8,
    },
    /// For each keypoint of the model's `kpt_shape`: x and y in pixels of the input and, where it has three numbers, visibility.
    Keypoints,
    /// The rotation of the box about its centre: radians, clockwise in the picture, in any range.
    Angle,
    /// The weight of each prototype in the mask.
    Coefficients,
    /// A map of the mask, in an output of its own with height and width.
    Mask(MapOver),
    /// How many rows count; one number for all of them.
    Count,
    /// Greater further away, or nearer: models differ.
    Depth,
}

/// How four numbers of a row encode its box; `BoxEncoding` in `kernels/decode.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxEncoding {
    /// Left, top, right, bottom in pixels.
    Corners,
    /// Centre x, centre y, width, height in pixels.
    Center,
    /// The same in 0..1 of the input's size.
    CenterShares,
    /// Centre in cells of the grid from the row's own cell on, and the logarithm of the size in cells.
    CenterCells,
    /// Top, left, bottom, right in 0..1.
    CornersYxShares,
}

/// The kernel that decodes a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeKernel {
    /// `[rows][columns]` with a score for each class.
    Rows { objectness: bool },
    /// `[columns][rows]` with a score for each class.
    Columns,
    /// Rows with a logit for each class, of which several may pass.
    Logits,
    /// Rows that name their class.
    Ids,
}

/// Where some columns lie: element `i` of row `r` is element `first + r * row_stride + i * column_stride` of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorView {
    /// The index among the outputs of the head.
    pub output: usize,
    pub first: usize,
    pub row_stride: usize,
    pub column_stride: usize,
    /// Elements of a row.
    pub count: usize,
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

/// Notes that heads share.
const DEIM_NOTE: &str = "For DEIMv2 with DINOv3 (S, M, L, X), set mean=0.485,0.456,0.406 std=0.229,0.224,0.225 on trtpreprocess; \
                         RT-DETR, D-FINE, DEIM and the smaller DEIMv2 need neither";
const PP_YOLOE_NOTE: &str = "For PP-YOLOE without the plus, set mean=0.485,0.456,0.406 std=0.229,0.224,0.225 on trtpreprocess; \
                             PP-YOLOE+ needs neither";
const MAP_NOTE: &str = "For models that were trained with the normalisation of ImageNet, unless their graph does it, set \
                        mean=0.485,0.456,0.406 std=0.229,0.224,0.225 on trtpreprocess";

const ROWS_OF_COLUMNS: &[Dim] = &[Dim::Batch, Dim::Rows, Dim::Columns];
const COLUMNS_OF_ROWS: &[Dim] = &[Dim::Batch, Dim::Columns, Dim::Rows];
const ROWS: &[Dim] = &[Dim::Batch, Dim::Rows];
const CLASSES_ONLY: &[Dim] = &[Dim::Batch, Dim::Columns];
const MAP: &[Dim] = &[Dim::Batch, Dim::One, Dim::Height, Dim::Width];
const MAPS_OF_ROWS: &[Dim] = &[Dim::Batch, Dim::Rows, Dim::Height, Dim::Width];
/// Masks are sums of these, each weighted by a coefficient.
const PROTOTYPES: OutputSpec = floats("", &[Dim::Batch, Dim::Prototypes, Dim::Height, Dim::Width], &[]);

const fn floats(name: &'static str, dims: &'static [Dim], columns: &'static [Column]) -> OutputSpec {
    OutputSpec { name, class: ElementClass::Float, dims, columns }
}

const fn numbers(name: &'static str, dims: &'static [Dim], columns: &'static [Column]) -> OutputSpec {
    OutputSpec { name, class: ElementClass::Any, dims, columns }
}

impl Task {
    pub fn name(self) -> &'static str {
        match self {
            Task::Detect => "detect",
            Task::Pose => "pose",
            Task::Obb => "obb",
            Task::Segment => "segment",
            Task::Classify => "classify",
            Task::Semantic => "semantic",
            Task::Depth => "depth",
        }
    }
}

impl HeadFormat {
    /// The head of that name.
    ///
    /// # Errors
    /// `Settings`, with the names that there are.
    pub fn of_name(name: &str) -> Result<&'static HeadFormat> {
        HEADS.iter().copied().find(|format| format.name == name).ok_or_else(|| {
            Error::new(ErrorKind::Settings, format!("There is no layout “{name}”"))
                .remedy(format!("Use one of auto, {}", names().join(", ")))
        })
    }

    /// The outputs of such a head: `f32 or f16 NxAx5+classes: centre x, …`.
    pub fn expects(&self) -> String {
        let outputs: Vec<String> = self.outputs.iter().map(OutputSpec::to_string).collect();
        format!("{}: {}", outputs.join(", "), self.holds)
    }

    pub fn kernel(&self) -> DecodeKernel {
        let with = |column| self.outputs.iter().find(|output| output.columns.contains(&column));
        match with(Column::Classes) {
            Some(scores) if scores.dims == COLUMNS_OF_ROWS => DecodeKernel::Columns,
            Some(_) => DecodeKernel::Rows { objectness: with(Column::Objectness).is_some() },
            None if self.usual_background().is_some() => DecodeKernel::Logits,
            None => DecodeKernel::Ids,
        }
    }

    /// Whether its models usually have a logit for the background; `None` where rows have no logits.
    pub(crate) fn usual_background(&self) -> Option<bool> {
        let usual =
            |column: &Column| if let Column::Logits { has_background } = column { Some(*has_background) } else { None };
        self.outputs.iter().flat_map(|output| output.columns).find_map(usual)
    }

    /// Whether its objects have masks, which are sums of prototypes.
    pub fn has_prototypes(&self) -> bool {
        self.outputs.iter().any(OutputSpec::is_prototypes)
    }

    /// What its maps of masks cover, if each row has one.
    pub fn maps(&self) -> Option<MapOver> {
        let over = |column: &Column| if let Column::Mask(over) = column { Some(*over) } else { None };
        self.outputs.iter().flat_map(|output| output.columns).find_map(over)
    }

    /// Whether it gives classes of the whole frame, and no boxes.
    pub fn is_classifier(&self) -> bool {
        self.task == Task::Classify
    }

    /// Whether it gives a value for each pixel, and no boxes.
    pub fn is_map(&self) -> bool {
        matches!(self.task, Task::Semantic | Task::Depth)
    }

    /// Whether it gives boxes.
    pub fn has_boxes(&self) -> bool {
        !self.is_classifier() && !self.is_map()
    }

    /// Whether its boxes are rotated.
    pub fn is_rotated(&self) -> bool {
        self.outputs.iter().any(|output| output.columns.contains(&Column::Angle))
    }

    /// How its boxes that repeat better ones are recognised.
    pub fn suppress(&self) -> Suppress {
        match (self.needs_nms, self.is_rotated()) {
            (false, _) => Suppress::None,
            (true, false) => Suppress::Iou,
            (true, true) => Suppress::RotatedIou,
        }
    }

    /// How its boxes are encoded.
    pub fn encoding(&self) -> BoxEncoding {
        let encoding = |column: &Column| if let Column::Box(encoding) = column { Some(*encoding) } else { None };
        let mut columns = self.outputs.iter().flat_map(|output| output.columns);
        columns.find_map(encoding).expect("a head has boxes")
    }

    /// What class 0 is called where rows name their class.
    pub fn first_class(&self) -> u8 {
        let first = |column: &Column| if let Column::ClassId { first } = column { Some(*first) } else { None };
        self.outputs.iter().flat_map(|output| output.columns).find_map(first).unwrap_or(0)
    }
}

/// The names of all heads.
pub fn names() -> Vec<&'static str> {
    HEADS.iter().map(|format| format.name).collect()
}

/// A name is one head's only.
impl PartialEq for HeadFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl std::fmt::Debug for HeadFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl std::fmt::Display for HeadFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl std::fmt::Display for OutputSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.class {
            ElementClass::Float => "f32 or f16",
            ElementClass::Any => "numbers",
            ElementClass::Integer => "u8, i32 or i64",
        };
        let fixed: usize = self.columns.iter().filter_map(|column| column.width(&ColumnSizes::default())).sum();
        let counted = |wanted, text: &'static str| self.columns.contains(&wanted).then(|| text.to_string());
        let columns = [(fixed > 0).then(|| fixed.to_string())]
            .into_iter()
            .chain([counted(Column::Classes, "classes"), counted(Column::Keypoints, "keypoints")])
            .chain([self.columns.iter().any(|column| column.are_logits()).then(|| "classes".into())])
            .chain([counted(Column::Coefficients, "coefficients")])
            .flatten()
            .collect::<Vec<_>>()
            .join("+");
        let dims: Vec<&str> = (self.dims.iter())
            .map(|dim| match dim {
                Dim::Batch => "N",
                Dim::Rows => "A",
                Dim::Columns => &columns,
                Dim::Prototypes => "coefficients",
                Dim::Height => "H",
                Dim::Width => "W",
                Dim::One => "1",
            })
            .collect();
        let space = if self.name.is_empty() { "" } else { " " };
        write!(f, "{}{space}{kind} {}", self.name, dims.join("x"))
    }
}

impl OutputSpec {
    fn is_prototypes(&self) -> bool {
        self.dims.contains(&Dim::Prototypes)
    }

    /// Its dimensions, if it has so many.
    fn dims_of(&self, count: usize) -> impl Iterator<Item = Dim> + Clone {
        self.dims.iter().copied().filter(move |&dim| dim != Dim::One || count >= self.dims.len())
    }

    /// Whether it is prototypes, or a map for each row.
    fn has_masks(&self) -> bool {
        self.dims.contains(&Dim::Height) && (self.is_prototypes() || self.dims.contains(&Dim::Rows))
    }
}

/// Sizes of the columns whose width depends on the model.
#[derive(Clone, Copy, Debug, Default)]
struct ColumnSizes {
    classes: usize,
    /// `None` where these are not known.
    keypoints: Option<KeypointShape>,
    coefficients: Option<usize>,
}

impl Column {
    fn are_logits(self) -> bool {
        matches!(self, Column::Logits { .. })
    }

    /// One for each class.
    pub(crate) fn are_scores(self) -> bool {
        self == Column::Classes || self.are_logits()
    }

    /// Elements of a row; `None` where that is not known.
    fn width(self, sizes: &ColumnSizes) -> Option<usize> {
        match self {
            Column::Box(_) => Some(4),
            Column::Objectness
            | Column::Score
            | Column::ClassId { .. }
            | Column::Angle
            | Column::Count
            | Column::Depth => Some(1),
            Column::Mask(_) => Some(0),
            Column::Classes | Column::Logits { .. } => Some(sizes.classes),
            Column::Keypoints => sizes.keypoints.map(|shape| shape.numbers()),
            Column::Coefficients => sizes.coefficients,
        }
    }
}

/// A model's head, with its sizes.
#[derive(Debug)]
pub(crate) struct Head {
    pub format: &'static HeadFormat,
    pub rows: usize,
    /// Elements of a row of the last output that has several.
    pub columns: usize,
    /// Class scores of a row, where it has them; logits with that of the background.
    pub classes: usize,
    /// Which of the logits is the background's.
    pub background: Option<usize>,
    pub keypoints: Option<KeypointShape>,
    /// Number and size of the prototypes or maps of its masks.
    pub prototypes: Option<PrototypeShape>,
    /// Width and height of the model's input.
    pub input: (u32, u32),
}

impl Head {
    /// The maximum number of candidates.
    pub fn candidates(&self) -> usize {
        let of_row = if self.format.kernel() == DecodeKernel::Logits { self.classes } else { 1 };
        self.rows * of_row
    }

    /// Where the columns lie for which `is_it` is true.
    pub fn view(&self, is_it: impl Fn(Column) -> bool) -> Option<TensorView> {
        self.format.outputs.iter().enumerate().find_map(|(output, spec)| {
            let place = spec.columns.iter().position(|&column| is_it(column))?;
            let coefficients = self.prototypes.map(|shape| shape.count);
            let sizes = ColumnSizes { classes: self.classes, keypoints: self.keypoints, coefficients };
            let width = |column: &Column| column.width(&sizes).unwrap_or(0);
            let before: usize = spec.columns[..place].iter().map(width).sum();
            let all: usize = spec.columns.iter().map(width).sum();
            let (row_stride, column_stride) = match spec.dims {
                COLUMNS_OF_ROWS => (1, self.rows),
                ROWS_OF_COLUMNS => (all, 1),
                dims if dims.contains(&Dim::Rows) => (1, 1),
                _ => (0, 1),
            };
            let count = width(&spec.columns[place]);
            Some(TensorView { output, first: before * column_stride, row_stride, column_stride, count })
        })
    }

    /// The elements of a row of one output for which `is_it` is true.
    fn range(&self, is_it: impl Fn(Column) -> bool) -> Range<usize> {
        let view = self.view(is_it);
        view.map_or(0..0, |view| view.first / view.column_stride..view.first / view.column_stride + view.count)
    }
}

/// The tensor that masks are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskSource {
    pub shape: PrototypeShape,
    /// Its index among the picked outputs.
    pub output: usize,
    pub parts: MaskParts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskParts {
    /// Sums of prototypes; where the coefficients of a row lie.
    Prototypes(TensorView),
    /// A map for each row.
    Maps(MapOver),
}

/// Reads candidates from a model's outputs.
pub struct Decoder {
    /// Which outputs are read, and what they were when this was made.
    outputs: SmallVec<[(usize, TensorDesc); 4]>,
    head: Head,
    classes: Option<usize>,
}

impl Decoder {
    /// For tensors as described by `outputs`, the descriptions of a first inference; `choice` is the user's.
    ///
    /// # Errors
    /// As [`recognise`]; also where the input's size is unknown, or a dimension is open.
    pub fn new(choice: Option<&'static HeadFormat>, outputs: &[TensorDesc], hints: &ModelHints) -> Result<Self> {
        let found = recognise::find(choice, outputs, hints)?;
        let format = found.format;
        let outputs: SmallVec<[_; 4]> = found.outputs.iter().map(|&i| (i, outputs[i].clone())).collect();
        if let Some((_, open)) = outputs.iter().find(|(_, desc)| desc.bytes().is_none()) {
            return Err(Error::new(ErrorKind::WrongType, format!("The size of the output {open} is still open")));
        }
        let unknown = || {
            Error::new(ErrorKind::Settings, format!("The layout {format} needs the size of the model's input"))
                .remedy("Export the model with a fixed input size, or set input-size")
        };
        let prototypes = format.outputs.iter().position(OutputSpec::has_masks).map(|place| {
            let [count, height, width] = [1, 2, 3].map(|at| outputs[place].1.dims[at] as usize);
            PrototypeShape { count, width, height }
        });
        let head = Head {
            format,
            prototypes,
            // Classes of the frame are one row.
            rows: usize::try_from(found.rows).unwrap_or(1),
            columns: usize::try_from(found.columns).unwrap_or(0),
            classes: found.classes.map_or(0, |classes| classes + usize::from(found.background.is_some())),
            background: found.background,
            keypoints: hints.keypoints.as_ref().map(|keypoints| keypoints.shape),
            input: hints.input.ok_or_else(unknown)?,
        };
        if format.has_boxes() && format.encoding() == BoxEncoding::CenterCells && head.grid().is_none() {
            let (width, height) = head.input;
            let what = format!("{} rows are no YOLOX grid over an input of {width}x{height}", head.rows);
            return Err(Error::new(ErrorKind::Settings, what)
                .remedy("Set layout=auto on trtnms, or the layout that the model has"));
        }
        Ok(Decoder { outputs, head, classes: found.classes.or(hints.classes) })
    }

    pub fn format(&self) -> &'static HeadFormat {
        self.head.format
    }

    /// What the first of the outputs that this reads is.
    pub(crate) fn first_output(&self) -> &TensorDesc {
        &self.outputs[0].1
    }

    /// The number of classes: what the outputs have room for, else what the hints contain.
    pub fn classes(&self) -> Option<usize> {
        self.classes
    }

    /// Which logit of a row is the background's.
    pub(crate) fn background(&self) -> Option<usize> {
        self.head.background
    }

    /// The maximum number of objects: one for each row.
    pub fn rows(&self) -> usize {
        self.head.rows
    }

    /// Whether the boxes still repeat each other.
    pub fn needs_nms(&self) -> bool {
        self.format().needs_nms
    }

    /// Planes, width and height of a map.
    pub fn map_shape(&self) -> Option<[usize; 3]> {
        let dims = self.format().is_map().then(|| &self.first_output().dims)?;
        let (&[height, width], before) = (dims.last_chunk()?, dims.get(1..dims.len() - 2)?);
        Some([before.first().copied().unwrap_or(1), width, height].map(|side| side as usize))
    }

    /// Where the angles of rotated boxes lie.
    pub fn angles(&self) -> Option<TensorView> {
        self.head.view(|column| column == Column::Angle)
    }

    /// The keypoints that each row has, and where they lie.
    pub fn keypoints(&self) -> Option<(KeypointShape, TensorView)> {
        Some((self.head.keypoints?, self.head.view(|column| column == Column::Keypoints)?))
    }

    /// What masks are made of.
    pub fn masks(&self) -> Option<MaskSource> {
        let output = self.format().outputs.iter().position(OutputSpec::has_masks)?;
        let coefficients = self.head.view(|column| column == Column::Coefficients);
        let parts = match (self.format().maps(), coefficients) {
            (Some(over), _) => MaskParts::Maps(over),
            (None, coefficients) => MaskParts::Prototypes(coefficients?),
        };
        Some(MaskSource { shape: self.head.prototypes?, output, parts })
    }

    /// Where the numbers of a row lie that are read for the boxes that are kept.
    pub fn gathered(&self) -> Option<TensorView> {
        self.keypoints().map(|(_, view)| view).or_else(|| self.head.view(|column| column == Column::Coefficients))
    }

    /// Appends the candidates of the batch's first item whose score reaches the threshold of their class.
    ///
    /// Boxes are in pixels of the model's input, not clipped. Of independent class scores the best counts, the first of
    /// equals, and only it is compared with its threshold: a filter never promotes a second best class. That is what
    /// Ultralytics' predict does. Boxes without width or height or with a number that is not finite are left out, as are class
    /// ids below 0 or beyond the classes; smaller than a pixel is no reason. Angles are as the model gives them.
    ///
    /// # Errors
    /// [`ErrorKind::WrongType`] where an output is not what [`Decoder::new`] was shown.
    pub fn decode(&self, outputs: &[Tensor], thresholds: &Thresholds, out: &mut Vec<Candidate>) -> Result<()> {
        let read = self.pick(outputs)?;
        if !self.format().has_boxes() {
            return Ok(());
        }
        let before = out.len();
        decode::decode(&self.head, &read, &mut Sink { thresholds, classes: self.class_limit(), out });
        if let Some(view) = self.angles() {
            decode::turn(&view, &read, out, before);
        }
        Ok(())
    }

    /// Of a model's outputs those that this head consists of, in its own order.
    ///
    /// # Errors
    /// [`ErrorKind::WrongType`] where one is not what [`Decoder::new`] was shown.
    pub fn pick<'a>(&self, outputs: &'a [Tensor]) -> Result<SmallVec<[&'a Tensor; 4]>> {
        let pick = |(index, wanted): &(usize, TensorDesc)| {
            let tensor = outputs.get(*index).filter(|tensor| tensor.desc() == wanted);
            tensor.ok_or_else(|| {
                let have = outputs.get(*index).map_or("nothing".into(), |tensor| tensor.desc().to_string());
                Error::new(ErrorKind::WrongType, format!("The model's output is {have} now, and was {wanted} at first"))
            })
        };
        self.outputs.iter().map(pick).collect()
    }

    /// The element types of those outputs.
    pub(crate) fn dtypes(&self) -> impl Iterator<Item = DType> {
        self.outputs.iter().map(|(_, desc)| desc.dtype)
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// Class ids that a head names are below this.
    pub(crate) fn class_limit(&self) -> usize {
        self.classes.unwrap_or(decode::ANY_CLASS)
    }
}

#[cfg(test)]
mod tests;
