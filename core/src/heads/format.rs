// SPDX-License-Identifier: MPL-2.0
//! A head as data: its outputs, and what their elements mean.

use super::grid::StrideGrid;
use super::layout_file::{AnomalyRange, LayoutFile};
use super::recognise::{Confidence, HeadCandidate, ModelHints};
#[cfg(test)]
use super::tests;
use super::{COLUMNS_OF_ROWS, HEADS, layout_file, names};
use crate::error::{Error, ErrorKind, Result};
use crate::image::keypoints::{KeypointModel, KeypointShape};
use crate::image::masks::maps::MapOver;
use crate::image::transform::InputTransform;
use crate::tensor::DType;

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
    /// What users may have to set where the file does not contain how its input is normalised; `None` where all models
    /// of the layout want the same.
    pub input_note: Option<&'static str>,
    /// Whether the boxes still repeat each other.
    pub needs_nms: bool,
    /// The sizes that its models have, where those are no other's.
    pub sizes: &'static HeadSizes,
    /// Of a head that is in a file: what that says besides.
    pub file: Option<&'static LayoutFile>,
    /// The evidence for this head where the outputs fit. Used only for heads with one output; names decide the others.
    pub(super) likely: fn(&HeadCandidate) -> Option<Confidence>,
    /// A case computed by hand.
    #[cfg(test)]
    pub(super) gold: fn(tests::MakeTensor) -> tests::Gold,
}

/// Sizes that a head has itself; a model of others is not one of its.
#[derive(Debug, Default)]
pub struct HeadSizes {
    /// Scores of a row.
    pub classes: Option<usize>,
    pub coefficients: Option<usize>,
    /// The grid whose cells the rows are. Without it the number of rows tells the strides.
    pub grid: Option<StrideGrid>,
    pub keypoints: Option<KeypointModel>,
}

/// A head for any sizes.
pub(super) static OPEN: HeadSizes = HeadSizes { classes: None, coefficients: None, grid: None, keypoints: None };

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
    /// How unusual the whole frame and each pixel are.
    Anomaly,
    /// A vector of the whole frame.
    Embed,
    /// The text of the whole frame, which is a line of it.
    Text,
    /// Rotated boxes of text, from a map.
    TextDetect,
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
    /// Empty where any name will do. Of outputs that come once for each stride, what their names begin with: `cls` for `cls_8`.
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
    /// The cells of one stride of the grid: such an output comes once for each stride. Behind the columns they may be two dimensions,
    /// down and across.
    Cells,
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
    /// Four numbers, or four distributions.
    Box(BoxEncoding),
    Objectness,
    /// The score is the root of this × class score, both of them held in 0..1.
    RootObjectness,
    /// The logit of the objectness, where those of the classes are logits too: the score is the product of both probabilities.
    ObjectnessLogit,
    /// A score for each class.
    Classes,
    /// The logit of a score for each class and, in some models, for the background. A row is an object of each class
    /// whose score passes: DETR's descendants take the best of all pairs of row and class.
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
    /// For each keypoint of the model's `kpt_shape`: x and y in pixels of the input and, where it has three numbers,
    /// visibility.
    Keypoints,
    /// The same, x and y from where the row's box is told: in cells from the place in its cell, or from the middle of its prior
    /// box, as the middle of the box.
    CellKeypoints,
    /// The rotation of the box about its centre: radians, clockwise in the picture, in any range.
    Angle,
    /// The weight of each prototype in the mask.
    Coefficients,
    /// A map of the mask, in an output of its own with height and width.
    Mask(MapOver),
    /// How many rows count; one number for all of them.
    Count,
    /// Which picture of a batch the row is of, where the rows of all pictures lie one after the other. A number below 0 ends
    /// them.
    Picture,
    /// Greater further away, or nearer: models differ.
    Depth,
    /// How far a pixel, or a picture, is from those of the training: greater is more unusual.
    AnomalyScore,
    /// All numbers of the row: a vector that tells pictures apart.
    Vector,
    /// The probability of a pixel that it belongs to a text.
    TextScore,
    /// A score for each character of the dictionary and for the blank, by connectionist temporal classification: equal characters of
    /// rows that follow each other are one, and blanks are none.
    Characters {
        /// The blank's score is the last one, else the first.
        is_blank_last: bool,
        /// A space follows the characters of the dictionary, without being in it.
        has_space: bool,
    },
    /// A score for each character of the dictionary: each row is a place of the text, and `pad` fills those behind its end.
    Slots {
        pad: char,
    },
    /// Numbers that are not read.
    Ignored {
        count: u32,
    },
}

/// How numbers of a row encode its box; `BoxEncoding` in `kernels/decode.cu`.
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
    /// Left, top, right, bottom in 0..1 of the input's size.
    CornersShares,
    /// Distances in cells to left, top, right, bottom, from the corner of the row's own cell that lies at the top left. Each is the
    /// mean of a distribution over 0 to 7, which eight numbers give by their softmax.
    CornerDistances,
    /// The same from the middle of the cell.
    MiddleDistances,
    /// Four distances in cells to left, top, right, bottom, from the corner of the row's own cell that lies at the top left.
    CornerEdges,
    /// From the row's own prior box, as SSD has them: centre in tenths of its side, and the logarithm of the size in fifths.
    PriorOffsets,
    /// Four distances in pixels to left, top, right, bottom, from the corner of the row's own cell that lies at the top left.
    CornerPixels,
    /// From the row's own prior box, as YOLOv3 and YOLOv4 have them: the logit of the centre within its cell, and the logarithm of
    /// the size in sides of the prior box.
    PriorLogits,
}

/// Numbers of the distribution of a distance.
pub(crate) const BINS: usize = 8;

impl BoxEncoding {
    /// Numbers of a row.
    pub const fn width(self) -> usize {
        if self.has_distributions() { 4 * BINS } else { 4 }
    }

    const fn has_distributions(self) -> bool {
        matches!(self, BoxEncoding::CornerDistances | BoxEncoding::MiddleDistances)
    }

    /// Whether boxes are told from the cell of the row, so that there must be a grid.
    pub(crate) fn is_of_cells(self) -> bool {
        let is_without_distributions = matches!(
            self,
            BoxEncoding::CenterCells
                | BoxEncoding::CornerEdges
                | BoxEncoding::PriorOffsets
                | BoxEncoding::CornerPixels
                | BoxEncoding::PriorLogits
        );
        is_without_distributions || self.has_distributions()
    }
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
            Task::Anomaly => "anomaly",
            Task::Embed => "embed",
            Task::Text => "text",
            Task::TextDetect => "text-detect",
        }
    }
}

impl HeadFormat {
    /// The head of that name, or of that text, if it is the text of a layout file.
    ///
    /// # Errors
    /// `Settings`, with the names that there are, or with what is wrong in the text.
    pub fn of_name(name: &str) -> Result<&'static HeadFormat> {
        if name.contains(['=', '\n']) {
            return layout_file::of_text(layout_file::OF_OPTION, name);
        }
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
            Some(_) => DecodeKernel::Rows { objectness: self.objectness().is_some() },
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

    /// Whether there may be another number of rows in each frame, such as behind a suppression in the graph.
    pub fn has_open_rows(&self) -> bool {
        self.kernel() == DecodeKernel::Ids && self.has_boxes() && self.maps().is_none()
    }

    /// Whether each of its outputs comes once for each stride of its grid.
    pub fn has_levels(&self) -> bool {
        self.outputs.iter().any(|output| output.dims.contains(&Dim::Cells))
    }

    /// Whether it is decoded on the CPU only: there each frame has another number of rows, or its boxes are regions of a map.
    pub fn is_for_host(&self) -> bool {
        self.output_of_pictures().is_some() || self.is_text_map()
    }

    /// Which kind of objectness its rows have.
    pub(crate) fn objectness(&self) -> Option<Column> {
        let mut columns = self.outputs.iter().flat_map(|output| output.columns);
        columns.find(|column| column.is_objectness()).copied()
    }

    /// The keypoints of its rows: as it says itself, else as the model does.
    pub(crate) fn keypoints_of<'a>(&'a self, model: Option<&'a KeypointModel>) -> Option<&'a KeypointModel> {
        self.sizes.keypoints.as_ref().or(model)
    }

    /// The same of its shape alone.
    pub(super) fn keypoint_shape(&self, hints: &ModelHints) -> Option<KeypointShape> {
        self.keypoints_of(hints.keypoints.as_ref()).map(|keypoints| keypoints.shape)
    }

    /// What users call it: `layout=yolov8`, or the file.
    pub(super) fn called(&self) -> String {
        self.file.map_or_else(|| format!("layout={self}"), |file| format!("{} ({self})", file.source))
    }

    /// What its scores of anomalies mean, where a file says that they are raw.
    pub(crate) fn anomaly_range(&self) -> Option<AnomalyRange> {
        self.file?.anomaly
    }

    /// Which of its outputs has the rows of all pictures of a batch.
    pub fn output_of_pictures(&self) -> Option<usize> {
        self.outputs.iter().position(|output| output.columns.contains(&Column::Picture))
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
        matches!(self.task, Task::Semantic | Task::Depth) || self.task == Task::Anomaly && !self.is_score()
    }

    /// Whether it gives a score of the whole frame, and neither boxes nor a map.
    pub fn is_score(&self) -> bool {
        self.task == Task::Anomaly && !self.outputs.iter().any(|output| output.dims.contains(&Dim::Height))
    }

    /// Whether it gives a vector of the whole frame, and no boxes.
    pub fn is_embedding(&self) -> bool {
        self.task == Task::Embed
    }

    /// Whether it gives the text of the whole frame, and no boxes.
    pub fn is_text(&self) -> bool {
        self.task == Task::Text
    }

    /// Whether it gives the boxes of texts, from a map.
    pub fn is_text_map(&self) -> bool {
        self.task == Task::TextDetect
    }

    /// Whether its boxes are rows of its outputs.
    pub fn has_rows(&self) -> bool {
        self.has_boxes() && !self.is_text_map()
    }

    /// Whether it gives boxes.
    pub fn has_boxes(&self) -> bool {
        !self.is_classifier() && !self.is_map() && !self.is_score() && !self.is_embedding() && !self.is_text()
    }

    /// Whether its boxes are rotated.
    pub fn is_rotated(&self) -> bool {
        self.is_text_map() || self.outputs.iter().any(|output| output.columns.contains(&Column::Angle))
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

/// A head is there once, also if it is read from a file several times. Two files may use the same name.
impl PartialEq for HeadFormat {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
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
        let kind = self.class.types();
        let fixed: usize = self.columns.iter().filter_map(|column| column.width(&ColumnSizes::default())).sum();
        let counted = |wanted, text: &'static str| self.columns.contains(&wanted).then(|| text.to_string());
        let columns = [(fixed > 0).then(|| fixed.to_string())]
            .into_iter()
            .chain([counted(Column::Classes, "classes")])
            .chain([self.columns.iter().any(|column| column.are_keypoints()).then(|| "keypoints".into())])
            .chain([self.columns.iter().any(|column| column.are_logits()).then(|| "classes".into())])
            .chain([counted(Column::Coefficients, "coefficients")])
            .chain([counted(Column::Vector, "D")])
            .chain([self.columns.iter().any(|column| column.are_characters()).then(|| "characters".into())])
            .flatten()
            .collect::<Vec<_>>()
            .join("+");
        let dims: Vec<&str> = (self.dims.iter())
            .map(|dim| match dim {
                Dim::Batch => "N",
                Dim::Rows => "A",
                Dim::Cells => "cells",
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

impl ElementClass {
    pub(super) fn has(self, dtype: DType) -> bool {
        match dtype {
            DType::F32 | DType::F16 => self != ElementClass::Integer,
            DType::U8 | DType::I32 | DType::I64 => self != ElementClass::Float,
            DType::I8 | DType::Bool => false,
        }
    }

    /// The types that it stands for.
    pub(super) fn types(self) -> &'static str {
        match self {
            ElementClass::Float => "f32 or f16",
            ElementClass::Any => "numbers",
            ElementClass::Integer => "u8, i32 or i64",
        }
    }
}

impl OutputSpec {
    pub(super) fn is_prototypes(&self) -> bool {
        self.dims.contains(&Dim::Prototypes)
    }

    /// Its dimensions, of a tensor that has so many.
    pub(super) fn dims_of(&self, count: usize) -> impl Iterator<Item = Dim> + Clone {
        self.dims.iter().copied().filter(move |&dim| dim != Dim::One || count >= self.dims.len())
    }

    /// Whether it is prototypes, or a map for each row.
    pub(super) fn has_masks(&self) -> bool {
        self.dims.contains(&Dim::Height) && (self.is_prototypes() || self.dims.contains(&Dim::Rows))
    }
}

/// Sizes of the columns whose width depends on the model.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ColumnSizes {
    pub classes: usize,
    /// `None` where these are not known.
    pub keypoints: Option<KeypointShape>,
    pub coefficients: Option<usize>,
}

impl Column {
    pub(super) fn are_logits(self) -> bool {
        matches!(self, Column::Logits { .. })
    }

    pub(super) fn are_keypoints(self) -> bool {
        matches!(self, Column::Keypoints | Column::CellKeypoints)
    }

    pub(crate) fn is_objectness(self) -> bool {
        matches!(self, Column::Objectness | Column::RootObjectness | Column::ObjectnessLogit)
    }

    /// One for each class.
    pub(crate) fn are_scores(self) -> bool {
        self == Column::Classes || self.are_logits()
    }

    /// One for each character.
    pub(crate) fn are_characters(self) -> bool {
        matches!(self, Column::Characters { .. } | Column::Slots { .. })
    }

    /// Elements of a row; `None` where that is not known.
    pub(super) fn width(self, sizes: &ColumnSizes) -> Option<usize> {
        match self {
            Column::Box(encoding) => Some(encoding.width()),
            Column::Objectness
            | Column::RootObjectness
            | Column::ObjectnessLogit
            | Column::Score
            | Column::ClassId { .. }
            | Column::Angle
            | Column::Count
            | Column::Picture
            | Column::Depth
            | Column::AnomalyScore
            | Column::TextScore => Some(1),
            // Those of a vector, and of characters, are as many as its output has.
            Column::Mask(_) | Column::Vector | Column::Characters { .. } | Column::Slots { .. } => Some(0),
            Column::Ignored { count } => Some(count as usize),
            Column::Classes | Column::Logits { .. } => Some(sizes.classes),
            Column::Keypoints | Column::CellKeypoints => sizes.keypoints.map(|shape| shape.numbers()),
            Column::Coefficients => sizes.coefficients,
        }
    }
}
