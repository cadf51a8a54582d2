// SPDX-License-Identifier: MPL-2.0
//! Reads candidates from a model's outputs: the head that they have, and where its columns lie.

use std::ops::Range;

use smallvec::SmallVec;

use super::decode::{self, Lost, Sink};
use super::{
    Column, ColumnSizes, DecodeKernel, Dim, HeadFormat, ModelHints, OutputSpec, Thresholds, levels, parts, recognise,
};
use crate::error::{Error, ErrorKind, Result};
use crate::image::Candidate;
use crate::image::keypoints::KeypointShape;
use crate::image::masks::PrototypeShape;
use crate::image::masks::maps::MapOver;
use crate::memory::Pool;
use crate::tensor::{DType, Tensor, TensorDesc};

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

/// A model's head, with its sizes.
#[derive(Debug)]
pub(crate) struct Head {
    pub format: &'static HeadFormat,
    /// As many as there were when this was made, if their number is [open](HeadFormat::has_open_rows).
    pub rows: usize,
    /// Elements of a row of the output that is read row by row: the one with the class scores, else the first.
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

    /// The rows of a tensor that is one of its outputs.
    pub(super) fn rows_of(&self, output: usize, desc: &TensorDesc) -> usize {
        let mut dims = self.format.outputs[output].dims_of(desc.dims.len()).zip(&*desc.dims);
        let rows = dims.find(|(dim, _)| *dim == Dim::Rows).and_then(|(_, &rows)| usize::try_from(rows).ok());
        rows.unwrap_or(self.rows)
    }

    fn sizes(&self) -> ColumnSizes {
        let coefficients = self.prototypes.map(|shape| shape.count);
        ColumnSizes { classes: self.classes, keypoints: self.keypoints, coefficients }
    }

    /// Where the columns lie for which `is_it` is true.
    pub fn view(&self, is_it: impl Fn(Column) -> bool) -> Option<TensorView> {
        self.format.outputs.iter().enumerate().find_map(|(output, spec)| {
            let place = spec.columns.iter().position(|&column| is_it(column))?;
            let sizes = self.sizes();
            let width = |column: &Column| column.width(&sizes).unwrap_or(0);
            let before: usize = spec.columns[..place].iter().map(width).sum();
            let all: usize = spec.columns.iter().map(width).sum();
            let at = |dim| spec.dims.iter().position(|&other| other == dim);
            let (row_stride, column_stride) = match (at(Dim::Rows).or(at(Dim::Cells)), at(Dim::Columns)) {
                // Those of all strides as one are rows, also where they came as maps.
                (Some(row), Some(column)) if column < row && !levels::are_maps(spec) => (1, self.rows),
                (Some(_), Some(_)) => (all, 1),
                (Some(_), None) => (1, 1),
                (None, _) => (0, 1),
            };
            let count = width(&spec.columns[place]);
            Some(TensorView { output, first: before * column_stride, row_stride, column_stride, count })
        })
    }

    /// The elements of a row of one output for which `is_it` is true.
    pub(super) fn range(&self, is_it: impl Fn(Column) -> bool) -> Range<usize> {
        let view = self.view(is_it);
        view.map_or(0..0, |view| view.first / view.column_stride..view.first / view.column_stride + view.count)
    }
}

/// An output for one stride, of one picture.
pub(crate) struct LevelPart {
    pub rows: usize,
    pub columns: usize,
    /// Each column is a map of its own, else the numbers of a row lie side by side.
    pub are_maps: bool,
    pub dtype: DType,
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
    /// Class ids that a head names are below this.
    class_limit: usize,
    doubt: Option<Vec<&'static HeadFormat>>,
    /// For the outputs of all strides as one.
    pool: Pool,
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
        let mut head = Head {
            format,
            prototypes,
            // Classes of the frame are one row.
            rows: usize::try_from(found.rows).unwrap_or(1),
            columns: 0,
            classes: found.classes.map_or(0, |classes| classes + usize::from(found.background.is_some())),
            background: found.background,
            keypoints: format.keypoint_shape(hints),
            input: hints.input.ok_or_else(unknown)?,
        };
        let read = head.view(Column::are_scores).map_or(0, |view| view.output);
        head.columns = format.outputs[read].columns.iter().filter_map(|column| column.width(&head.sizes())).sum();
        if format.has_rows() && format.encoding().is_of_cells() && head.grid().is_none() {
            let (width, height) = head.input;
            let what = format!("{} rows do not form the grid of {format} over an input of {width}x{height}", head.rows);
            return Err(
                Error::new(ErrorKind::Settings, what).remedy(format!("On trtnms, {}", recognise::other_layout(choice)))
            );
        }
        let classes = found.classes.or(hints.classes);
        let class_limit = class_limit(&head, &outputs, classes.unwrap_or(decode::ANY_CLASS));
        Ok(Decoder { outputs, head, classes, class_limit, doubt: found.doubt, pool: Pool::default() })
    }

    pub fn format(&self) -> &'static HeadFormat {
        self.head.format
    }

    /// Where nothing but their dimensions says that the outputs have this layout: the other ones that they may have.
    pub fn doubt(&self) -> Option<&[&'static HeadFormat]> {
        self.doubt.as_deref()
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

    /// The maximum number of objects: one for each row. `None` where there may be another number of rows in each frame.
    pub fn rows(&self) -> Option<usize> {
        (!self.format().has_open_rows()).then_some(self.head.rows)
    }

    /// Whether the boxes still repeat each other.
    pub fn needs_nms(&self) -> bool {
        self.format().needs_nms
    }

    /// Planes, width and height of a map.
    pub fn map_shape(&self) -> Option<[usize; 3]> {
        self.format().is_map().then(|| self.planes())?
    }

    /// Width and height of a map of text.
    pub fn text_map_size(&self) -> Option<[usize; 2]> {
        let [_, width, height] = self.format().is_text_map().then(|| self.planes())??;
        Some([width, height])
    }

    /// Planes, width and height of an output that has a number for each pixel.
    fn planes(&self) -> Option<[usize; 3]> {
        let dims = &self.first_output().dims;
        let (&[height, width], before) = (dims.last_chunk()?, dims.get(1..dims.len() - 2)?);
        Some([before.first().copied().unwrap_or(1), width, height].map(|side| side as usize))
    }

    /// Numbers of a vector.
    pub fn vector_length(&self) -> Option<usize> {
        let length = self.format().is_embedding().then(|| self.first_output().dims.get(1).copied())?;
        usize::try_from(length?).ok()
    }

    /// Rows of a text, and scores of a row.
    pub fn text_shape(&self) -> Option<[usize; 2]> {
        let spec = self.format().is_text().then(|| &self.format().outputs[0])?;
        let dims = &self.first_output().dims;
        let size = |wanted: Dim| {
            let place = spec.dims_of(dims.len()).position(|dim| dim == wanted)?;
            usize::try_from(dims[place]).ok()
        };
        Some([size(Dim::Rows)?, size(Dim::Columns)?])
    }

    /// Which dimension has the rows of a text.
    pub(crate) fn text_rows_at(&self) -> Option<usize> {
        let spec = self.format().is_text().then(|| &self.format().outputs[0])?;
        spec.dims_of(self.first_output().dims.len()).position(|dim| dim == Dim::Rows)
    }

    /// Where the angles of rotated boxes lie.
    pub fn angles(&self) -> Option<TensorView> {
        self.head.view(|column| column == Column::Angle)
    }

    /// The keypoints that each row has, and where they lie.
    pub fn keypoints(&self) -> Option<(KeypointShape, TensorView)> {
        Some((self.head.keypoints?, self.head.view(Column::are_keypoints)?))
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
    pub fn gather_view(&self) -> Option<TensorView> {
        self.keypoints().map(|(_, view)| view).or_else(|| self.head.view(|column| column == Column::Coefficients))
    }

    /// Appends the candidates of the batch's first item whose score reaches the threshold of their class.
    ///
    /// Boxes are in pixels of the model's input, not clipped. Of independent class scores the best counts, the first of
    /// equals, and only it is compared with its threshold: a filter never promotes a second best class. That is what
    /// Ultralytics' predict does. Boxes without width or height or with a number that is not finite are left out, as
    /// are class ids below 0 or beyond the classes; smaller than a pixel is no reason. Angles are as the model gives them.
    ///
    /// # Errors
    /// [`ErrorKind::WrongType`] where an output is not what [`Decoder::new`] was shown.
    pub fn decode(&self, outputs: &[Tensor], thresholds: &Thresholds, out: &mut Vec<Candidate>) -> Result<()> {
        self.read(outputs, |read| self.candidates(read, thresholds, out)).map(|_| ())
    }

    /// The same. Returns in how many of the rows that were read a score is not finite (of heads whose logits are candidates each, how
    /// many logits are not), and adds the boxes left out whose score passes while their size or angle is not finite. A model whose
    /// numbers overflow finds nothing, and does not say why. Also returns how many boxes are left out whose score passes while their
    /// class id is beyond the classes.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn decode_counted(
        &self,
        outputs: &[Tensor],
        thresholds: &Thresholds,
        out: &mut Vec<Candidate>,
    ) -> Result<Lost> {
        let decode = |read: &[&Tensor]| {
            let mut lost = self.candidates(read, thresholds, out);
            lost.not_finite += self.lost_scores(read, thresholds.least());
            lost
        };
        self.read(outputs, decode).map(Option::unwrap_or_default)
    }

    /// In how many rows a score is not finite.
    fn lost_scores(&self, read: &[&Tensor], least: f32) -> usize {
        match parts::has_parts(&self.head) {
            true => parts::lost(&self.head, read, least),
            false => decode::not_finite(&self.head, read, least, self.class_limit()),
        }
    }

    /// Returns how many are left out because their size or angle is not finite, or for their class id.
    fn candidates(&self, read: &[&Tensor], thresholds: &Thresholds, out: &mut Vec<Candidate>) -> Lost {
        let before = out.len();
        let mut sink = Sink { thresholds, classes: self.class_limit(), out, lost: Lost::default() };
        match parts::has_parts(&self.head) {
            true => parts::rows(&self.head, read, &mut sink),
            false => decode::decode(&self.head, read, &mut sink),
        }
        let mut lost = sink.lost;
        lost.not_finite += self.angles().map_or(0, |view| decode::turn(&view, read, out, before));
        lost
    }

    /// Calls a function with what the head reads, in one tensor for each of its outputs. `None` for heads whose boxes are no rows.
    fn read<T>(&self, outputs: &[Tensor], read: impl FnOnce(&[&Tensor]) -> T) -> Result<Option<T>> {
        let picked = self.pick(outputs)?;
        if !self.format().has_rows() {
            return Ok(None);
        }
        if self.format().has_levels() {
            let joined = levels::join(self.format(), &picked, &self.pool)?;
            return Ok(Some(read(&joined.iter().collect::<Vec<_>>())));
        }
        Ok(Some(read(&picked)))
    }

    /// Of a model's outputs those that this head consists of, in its own order.
    ///
    /// # Errors
    /// [`ErrorKind::WrongType`] where one is not what [`Decoder::new`] was shown. The number of rows on the host may differ
    /// where that is [open](HeadFormat::has_open_rows), and of texts anywhere: wider pictures have more of them.
    pub fn pick<'a>(&self, outputs: &'a [Tensor]) -> Result<SmallVec<[&'a Tensor; 4]>> {
        let pick = |(place, (index, wanted)): (usize, &(usize, TensorDesc))| {
            let is_like = |tensor: &&Tensor| tensor.desc() == wanted || self.differs_in_rows(place, tensor, wanted);
            let tensor = outputs.get(*index).filter(is_like);
            tensor.ok_or_else(|| {
                let have = outputs.get(*index).map_or("nothing".into(), |tensor| tensor.desc().to_string());
                Error::new(ErrorKind::WrongType, format!("The model's output is {have} now, and was {wanted} at first"))
            })
        };
        self.outputs.iter().enumerate().map(pick).collect()
    }

    /// Whether a tensor only has another number of rows than it had before, where that is usual. On a GPU it is so of texts
    /// alone, which are read on the host: the memory of others is as large as the rows are many.
    fn differs_in_rows(&self, place: usize, tensor: &Tensor, before: &TensorDesc) -> bool {
        let (format, now) = (self.format(), tensor.desc());
        let is_open = format.is_text() || format.has_open_rows() && tensor.device().is_none();
        if !is_open {
            return false;
        }
        let at = |wanted: Dim| format.outputs[place].dims.iter().position(|&dim| dim == wanted);
        // Where the numbers of a column lie one after the other, each view has the number of rows.
        if at(Dim::Columns).zip(at(Dim::Rows)).is_some_and(|(columns, rows)| columns < rows) {
            return false;
        }
        let dims = format.outputs[place].dims_of(before.dims.len()).map(Some).chain(std::iter::repeat(None));
        (&now.name, now.dtype, now.dims.len()) == (&before.name, before.dtype, before.dims.len())
            && dims
                .zip(now.dims.iter().zip(&*before.dims))
                .all(|(dim, (now, before))| now == before || dim == Some(Dim::Rows))
    }

    /// The element types of the head's own outputs.
    pub(crate) fn dtypes(&self) -> impl Iterator<Item = DType> {
        self.outputs.iter().step_by(self.levels()).map(|(_, desc)| desc.dtype)
    }

    /// As how many tensors each of the head's own outputs comes.
    pub(crate) fn levels(&self) -> usize {
        self.outputs.len() / self.format().outputs.len()
    }

    /// Of the tensors that are [picked](Decoder::pick) of a head with [levels](HeadFormat::has_levels), what one picture has.
    pub(crate) fn pictures(&self) -> impl Iterator<Item = LevelPart> {
        self.outputs.iter().enumerate().map(move |(at, (_, desc))| {
            let spec = &self.format().outputs[at / self.levels()];
            let [rows, columns] = levels::shape(spec, desc).unwrap_or_default().map(|size| size as usize);
            LevelPart { rows, columns, are_maps: levels::are_maps(spec), dtype: desc.dtype }
        })
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// Class ids that a head names are below this.
    pub(crate) fn class_limit(&self) -> usize {
        self.class_limit
    }

    /// Whether this is a class, but its id is in f16, which has no number for each of them.
    pub(crate) fn is_too_coarse_for(&self, id: u32) -> bool {
        let id = id as usize;
        id >= self.class_limit && id < self.classes.unwrap_or(decode::ANY_CLASS)
    }
}

/// Ids of so many classes are below this. In f16 two of the greater ones may be the same number, and would have one name.
fn class_limit(head: &Head, outputs: &[(usize, TensorDesc)], classes: usize) -> usize {
    let view = head.view(|column| matches!(column, Column::ClassId { .. }));
    let is_half = view.is_some_and(|view| outputs[view.output].1.dtype == DType::F16);
    let first = usize::from(head.format.first_class());
    // The last id may be HALF_IDS itself, if none comes after it.
    if is_half && first + classes > decode::HALF_IDS + 1 { decode::HALF_IDS - first } else { classes }
}
