// SPDX-License-Identifier: MPL-2.0
//! From tensors to candidates.
//!
//! Arithmetic is f32, each operation rounded once, in the order written here, and never a fused multiply-add: CUDA
//! kernels are compared with this bit for bit. Elements are widened to f32 first, which is exact.
//! - A row is skipped unless its objectness (where there is one) is at least the least threshold.
//! - The class is the first of those with the greatest score; NaN is never greatest. Score = objectness × class score.
//! - The score of a logit is 1 / (1 + exp of minus the logit), in f64 and then rounded to f32.
//! - Pixels from 0..1: × width of the input for x and width, × height for y and height.
//! - Means of distributions: the greatest number is taken off each, e = exp in f64 and rounded to f32, and (0·e₀ + 1·e₁ + …) / (e₀ + e₁ + …),
//!   both summed in this order. Left = (gx + o) × stride − mean × stride with o = 0 or 0.5; top, right, bottom alike.
//! - YOLOX: cx = (x + gx) × stride, w = (exp in f64 of w, rounded to f32) × stride; y and h alike.
//! - Distances without distributions alike, with the numbers themselves for the means; those in pixels are not multiplied by the stride.
//! - Prior boxes: cx = (gx + 0.5) × stride + x × 0.1 × side, w = (exp in f64 of w × 0.2, rounded to f32) × side; y and h alike.
//! - Prior boxes that are no squares: cx = (σ(x) × scale − (scale − 1) × 0.5 + gx) × stride with the score σ of a logit, w = (exp in f64
//!   of w, rounded to f32) × width; y and h alike.
//! - Score of two logits: σ(objectness) × σ(class).
//! - Root of objectness and class score: both held in 0..1, then the root of their product.
//! - Corners from a centre: half = size × 0.5, then centre − half and centre + half.

use std::array::from_fn;

use half::f16;

use super::grid::{Grid, GridCell, PriorBox};
use super::{BINS, BoxEncoding, Column, DecodeKernel, Dim, ElementClass, Head, OutputSpec, TensorView, Thresholds};
use crate::image::Candidate;
use crate::image::geometry::BBox;
use crate::tensor::{DType, Element, Tensor};

/// Class ids stay below this where the number of classes is not known.
pub(super) const ANY_CLASS: usize = 1 << 16;

/// Whole numbers that f16 can tell from their neighbours are below this: it has this one too, but also rounds the next one to it.
pub(super) const HALF_IDS: usize = 2048;

/// What the outputs of a head have that could be objects, and is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// In how many rows a score that was read is not finite, and of how many boxes whose score passes the size or the angle is not.
    pub not_finite: usize,
    /// How many boxes would be candidates if their class ids were not beyond the classes.
    pub beyond: usize,
    /// The greatest of these ids.
    pub greatest: u32,
}

impl std::ops::AddAssign for Lost {
    fn add_assign(&mut self, other: Lost) {
        self.not_finite += other.not_finite;
        self.beyond += other.beyond;
        self.greatest = self.greatest.max(other.greatest);
    }
}

/// Rows of one pass over a head whose columns lie one after the other: their running maxima stay in the first cache, and a whole
/// page of each column is read.
const BLOCK: usize = 1024;

impl Head {
    fn input(&self) -> (f32, f32) {
        (self.input.0 as f32, self.input.1 as f32)
    }
}

/// Receives the candidates that pass.
pub(super) struct Sink<'a> {
    pub thresholds: &'a Thresholds,
    /// Class ids are below this.
    pub classes: usize,
    pub out: &'a mut Vec<Candidate>,
    /// Boxes whose score passes and whose size is not finite, or whose class id is beyond the classes.
    pub lost: Lost,
}

impl Sink<'_> {
    pub fn push(&mut self, row: usize, bbox: BBox, score: f32, class: usize) {
        // NaN reaches no threshold.
        if score >= self.thresholds.of(class as u32) && score.is_finite() {
            if bbox.is_valid() {
                self.out.push(Candidate { bbox, score, class: class as u32, row: row as u32, angle: 0.0 });
            } else if !bbox.has_finite_size() {
                self.lost.not_finite += 1;
            }
        }
    }

    /// For heads that name their classes. Ids are whole numbers, and a fraction is cut off. Those below 0 are padding.
    fn push_id(&mut self, row: usize, bbox: BBox, score: f32, id: f32) {
        if id >= 0.0 && id < self.classes as f32 {
            self.push(row, bbox, score, id as usize);
        } else if id >= 0.0 && id.is_finite() {
            self.count_beyond(bbox, score, id as u32);
        }
    }

    /// Counts what would be a candidate if there were such a class.
    #[cold]
    fn count_beyond(&mut self, bbox: BBox, score: f32, id: u32) {
        if score >= self.thresholds.of(id) && score.is_finite() && bbox.is_valid() {
            self.lost += Lost { beyond: 1, greatest: id, ..Lost::default() };
        }
    }
}

/// Element types of dense heads, compared as they are: widening all of them would take longer than the rest.
trait Float: Element + PartialEq {
    /// Ordered as the values are, with NaN below all of them.
    type Key: Copy;
    /// No value's is less.
    const LEAST: Self::Key;
    fn key(self) -> Self::Key;
    /// The value with that key.
    fn of_key(key: Self::Key) -> Self;
    fn greater(a: Self::Key, b: Self::Key) -> Self::Key;
    /// The least key of the values that are at least `least`.
    fn key_from(least: f32) -> Self::Key;
    fn reaches(self, least: Self::Key) -> bool;
    /// Neither NaN nor infinite.
    fn is_number(self) -> bool;
}

impl Float for f32 {
    type Key = f32;
    const LEAST: f32 = f32::NEG_INFINITY;

    fn key(self) -> f32 {
        self
    }

    fn of_key(key: f32) -> f32 {
        key
    }

    /// `b` where `a` is NaN: one instruction.
    #[inline(always)]
    fn greater(a: f32, b: f32) -> f32 {
        if a > b { a } else { b }
    }

    fn key_from(least: f32) -> f32 {
        least
    }

    fn reaches(self, least: f32) -> bool {
        self >= least
    }

    #[inline(always)]
    fn is_number(self) -> bool {
        self.is_finite()
    }
}

/// The keys are those of the bits as integers, where negative values are in reverse order.
impl Float for f16 {
    type Key = i16;
    const LEAST: i16 = i16::MIN;

    #[inline(always)]
    fn key(self) -> i16 {
        let bits = self.to_bits() as i16;
        if bits & i16::MAX > Self::INFINITY.to_bits() as i16 { Self::LEAST } else { bits ^ (bits >> 15 & i16::MAX) }
    }

    fn of_key(key: i16) -> f16 {
        f16::from_bits((key ^ (key >> 15 & i16::MAX)) as u16)
    }

    #[inline(always)]
    fn greater(a: i16, b: i16) -> i16 {
        a.max(b)
    }

    fn key_from(least: f32) -> i16 {
        let near = f16::from_f32(least);
        // Rounded up, and with both zeros.
        near.key() + i16::from(near.to_f32() < least) - i16::from(near == f16::ZERO && least <= 0.0)
    }

    #[inline(always)]
    fn reaches(self, least: i16) -> bool {
        self.key() >= least
    }

    #[inline(always)]
    fn is_number(self) -> bool {
        self.is_finite()
    }
}

/// The elements of the first item of a batch, if `T` is their type.
fn item<T: Element>(tensor: &Tensor) -> Option<&[T]> {
    let batch = tensor.desc().dims.first().map_or(1, |&batch| batch.max(1) as usize);
    tensor.as_slice().map(|values| &values[..values.len() / batch])
}

/// `$body` for a tensor of either float type.
macro_rules! float {
    ($tensor:expr, $values:ident => $body:expr) => {
        if let Some($values) = item::<f32>($tensor) {
            $body
        } else if let Some($values) = item::<f16>($tensor) {
            $body
        }
    };
}

/// Element `index` as f32: exact for floats, and for integers up to 2²⁴, which is beyond any count or class id.
pub(crate) fn number(tensor: &Tensor, index: usize) -> f32 {
    fn get<T: Element>(tensor: &Tensor, index: usize) -> Option<f32> {
        tensor.as_slice::<T>()?.get(index).map(|value| value.to_f32())
    }
    match tensor.desc().dtype {
        DType::F32 => get::<f32>(tensor, index),
        DType::F16 => get::<f16>(tensor, index),
        DType::U8 => get::<u8>(tensor, index),
        DType::I32 => get::<i32>(tensor, index),
        DType::I64 => get::<i64>(tensor, index),
        DType::I8 | DType::Bool => None,
    }
    .unwrap_or(f32::NAN) // which passes no threshold
}

/// Element `i` of a row of a view.
pub(super) fn viewed(outputs: &[&Tensor], view: &TensorView, row: usize, i: usize) -> f32 {
    number(outputs[view.output], view.first + row * view.row_stride + i * view.column_stride)
}

/// The numbers of the box of a row, or the means of its distributions.
pub(super) fn four(outputs: &[&Tensor], boxes: &TensorView, row: usize) -> [f32; 4] {
    let number = |i| viewed(outputs, boxes, row, i);
    if boxes.count == 4 { from_fn(number) } else { from_fn(|side| mean(from_fn(|bin| number(side * BINS + bin)))) }
}

/// The mean of a distribution over 0, 1, …, by the softmax of these numbers.
fn mean(numbers: [f32; BINS]) -> f32 {
    let greatest =
        numbers.into_iter().fold(f32::NEG_INFINITY, |most, number| if number > most { number } else { most });
    let (mut sum, mut weighted) = (0.0, 0.0);
    for (value, number) in (0u8..).zip(numbers) {
        let weight = exp(number - greatest);
        sum += weight;
        weighted += weight * f32::from(value);
    }
    weighted / sum
}

fn exp(value: f32) -> f32 {
    f64::from(value).exp() as f32
}

/// Centre in cells, size as logarithm of cells.
fn from_cell(cell: GridCell, [x, y, w, h]: [f32; 4]) -> BBox {
    let (cx, cy) = from_place(cell, 0.0, x, y);
    BBox::from_center(cx, cy, exp(w) * cell.stride, exp(h) * cell.stride)
}

/// A point in cells from a place in the cell, both ways.
pub(super) fn from_place(GridCell { x: gx, y: gy, stride, .. }: GridCell, place: f32, x: f32, y: f32) -> (f32, f32) {
    ((x + (gx + place)) * stride, (y + (gy + place)) * stride)
}

/// A point in tenths of the prior box from its middle.
pub(super) fn from_prior(GridCell { x: gx, y: gy, stride, prior, .. }: GridCell, x: f32, y: f32) -> (f32, f32) {
    ((gx + 0.5) * stride + x * 0.1 * prior, (gy + 0.5) * stride + y * 0.1 * prior)
}

/// Distances in cells from a place in the cell, both ways.
fn from_edges(
    GridCell { x: gx, y: gy, stride, .. }: GridCell,
    place: f32,
    [left, top, right, bottom]: [f32; 4],
) -> BBox {
    let (x, y) = ((gx + place) * stride, (gy + place) * stride);
    BBox::new(x - left * stride, y - top * stride, x + right * stride, y + bottom * stride)
}

pub(super) fn sigmoid(logit: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(logit)).exp())) as f32
}

/// A logit below which no score is at least `least`: those above it may have such a score.
pub(crate) fn least_logit(least: f32) -> f32 {
    // Near 1 many logits have the same score, and near 0 scores have fewer bits.
    let least = f64::from(least.min(0.999));
    if least < 1e-30 { f32::NEG_INFINITY } else { ((least / (1.0 - least)).ln() - 0.01) as f32 }
}

/// From four numbers of a row to its box. The branch is resolved at compile time where the encoding is a constant.
#[inline(always)]
pub(super) fn box_of(encoding: BoxEncoding, head: &Head, grid: Option<Grid>, row: usize, numbers: [f32; 4]) -> BBox {
    let (width, height) = head.input();
    let [a, b, c, d] = numbers;
    let cell = || grid.map_or(GridCell::default(), |grid| grid.cell(row));
    match encoding {
        BoxEncoding::Corners => BBox::new(a, b, c, d),
        BoxEncoding::Center => BBox::from_center(a, b, c, d),
        BoxEncoding::CenterShares => BBox::from_center(a * width, b * height, c * width, d * height),
        BoxEncoding::CenterCells => from_cell(cell(), numbers),
        BoxEncoding::CornersYxShares => BBox::new(b * width, a * height, d * width, c * height),
        BoxEncoding::CornersShares => BBox::new(a * width, b * height, c * width, d * height),
        BoxEncoding::CornerDistances => from_edges(cell(), 0.0, numbers),
        BoxEncoding::MiddleDistances => from_edges(cell(), 0.5, numbers),
        BoxEncoding::CornerEdges => from_edges(cell(), 0.0, numbers),
        BoxEncoding::PriorOffsets => {
            let cell = cell();
            let (x, y) = from_prior(cell, a, b);
            BBox::from_center(x, y, exp(c * 0.2) * cell.prior, exp(d * 0.2) * cell.prior)
        }
        BoxEncoding::CornerPixels => {
            let cell = cell();
            let (x, y) = (cell.x * cell.stride, cell.y * cell.stride);
            BBox::new(x - a, y - b, x + c, y + d)
        }
        BoxEncoding::PriorLogits => {
            let GridCell { x, y, stride, prior_box: PriorBox { width, height, scale }, .. } = cell();
            let center = |at: f32, logit: f32| (sigmoid(logit) * scale - (scale - 1.0) * 0.5 + at) * stride;
            BBox::from_center(center(x, a), center(y, b), exp(c) * width, exp(d) * height)
        }
    }
}

/// The greatest score, if it is at least `least`, and its first index.
fn best<T: Float>(scores: &[T], least: f32) -> Option<(usize, f32)> {
    const LANES: usize = 8;
    let (rows, rest) = scores.as_chunks::<LANES>();
    let mut lanes = [T::LEAST; LANES];
    for row in rows {
        for (lane, score) in lanes.iter_mut().zip(row) {
            *lane = T::greater(score.key(), *lane);
        }
    }
    let greatest = lanes
        .into_iter()
        .chain(rest.iter().map(|score| score.key()))
        .fold(T::LEAST, |found, key| T::greater(key, found));
    let greatest = T::of_key(greatest);
    if greatest.to_f32() < least {
        return None;
    }
    let class = scores.iter().position(|score| *score == greatest)?;
    Some((class, scores[class].to_f32())) // of both zeros the one that is there
}

/// Appends the candidates of a head.
pub(super) fn decode(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    let scores = head.view(|column| column.are_scores()).map_or(0, |view| view.output);
    match head.format.kernel() {
        DecodeKernel::Rows { objectness: true } => {
            float!(outputs[scores], values => rows::<true, _>(head, outputs, values, sink));
        }
        DecodeKernel::Rows { objectness: false } => {
            float!(outputs[scores], values => rows::<false, _>(head, outputs, values, sink));
        }
        DecodeKernel::Columns => float!(outputs[scores], values => columns(head, outputs, values, sink)),
        DecodeKernel::Logits => float!(outputs[scores], values => logits(head, outputs, values, sink)),
        DecodeKernel::Ids if begins_with_box_score_and_id(head) => {
            float!(outputs[0], values => rows_with_id(head, values, sink));
        }
        DecodeKernel::Ids => apart(head, outputs, sink),
    }
}

/// In how many rows a score that [`decode`] reads is not finite; of logits, how many are not.
pub(super) fn not_finite(head: &Head, outputs: &[&Tensor], least: f32, classes: usize) -> usize {
    let scores = head.view(|column| column.are_scores()).map_or(0, |view| view.output);
    let mut count = 0;
    match head.format.kernel() {
        DecodeKernel::Rows { objectness } => {
            float!(outputs[scores], values => count = lost_rows(head, values, objectness.then_some(least)));
        }
        DecodeKernel::Columns => float!(outputs[scores], values => count = lost_columns(head, values)),
        DecodeKernel::Logits => float!(outputs[scores], values => count = lost_logits(head, values)),
        DecodeKernel::Ids => {
            let [_, scores, ids] = ID_COLUMNS.map(|is_it| head.view(is_it).expect("a head of ids has them"));
            let first_class = f32::from(head.format.first_class());
            let is_lost = |row: &usize| {
                let id = viewed(outputs, &ids, *row, 0) - first_class;
                let is_of_class = id >= 0.0 && id < classes as f32;
                !id.is_finite() || is_of_class && !viewed(outputs, &scores, *row, 0).is_finite()
            };
            count = rows_that_count(head, outputs).filter(is_lost).count();
        }
    }
    count
}

/// With the least objectness, where there is one: only rows that reach it are read.
fn lost_rows<T: Float>(head: &Head, values: &[T], least: Option<f32>) -> usize {
    let scores = head.range(|column| column == Column::Classes);
    let objectness = head.range(|column| column == Column::Objectness).start;
    let least = least.map(T::key_from);
    let is_lost = |row: &&[T]| {
        let is_read = least.is_none_or(|least| row[objectness].reaches(least));
        least.is_some() && !row[objectness].is_number()
            || is_read && row[scores.clone()].iter().any(|score| !score.is_number())
    };
    values.chunks_exact(head.columns).filter(is_lost).count()
}

fn lost_columns<T: Float>(head: &Head, values: &[T]) -> usize {
    let classes = head.range(|column| column == Column::Classes);
    let mut are_lost = vec![false; head.rows];
    for scores in values[classes.start * head.rows..classes.end * head.rows].chunks_exact(head.rows) {
        are_lost.iter_mut().zip(scores).for_each(|(is_lost, score)| *is_lost |= !score.is_number());
    }
    are_lost.into_iter().filter(|is_lost| *is_lost).count()
}

fn lost_logits<T: Float>(head: &Head, values: &[T]) -> usize {
    // Minus infinity is the logit of 0.
    let is_number = |logit: &T| logit.is_number() || logit.to_f32() < 0.0;
    let is_lost = |(at, logit): &(usize, &T)| Some(at % head.classes) != head.background && !is_number(logit);
    values.iter().enumerate().filter(is_lost).count()
}

/// Sets the angles of the candidates from `first` on. Those whose angle is not finite are left out; returns how many.
pub(super) fn turn(view: &TensorView, outputs: &[&Tensor], candidates: &mut Vec<Candidate>, first: usize) -> usize {
    for candidate in &mut candidates[first..] {
        candidate.angle = viewed(outputs, view, candidate.row as usize, 0);
    }
    let mut place = 0;
    let before = candidates.len();
    candidates.retain(|candidate| {
        place += 1;
        place <= first || candidate.angle.is_finite()
    });
    before - candidates.len()
}

/// Calls `$decode` with a function from a row to its box. It is compiled twice: for centres next to the scores, which nearly all heads
/// have, and for all others. The loops are not inlined: all in one function, a row that passes took a third longer.
macro_rules! with_boxes {
    ($head:ident, $outputs:ident, $values:ident, $bbox:ident => $decode:expr) => {{
        let (encoding, boxes) = ($head.format.encoding(), $head.view(ID_COLUMNS[0]).expect("a head has boxes"));
        let is_adjacent = $head.view(Column::are_scores).is_some_and(|scores| scores.output == boxes.output);
        if is_adjacent && encoding == BoxEncoding::Center {
            let $bbox = |row: usize| center($values, &boxes, row);
            $decode
        } else {
            let grid = $head.grid();
            let $bbox = |row: usize| box_of(encoding, $head, grid, row, four($outputs, &boxes, row));
            $decode
        }
    }};
}

/// A box given by its centre.
#[inline(always)]
fn center<T: Float>(values: &[T], boxes: &TensorView, row: usize) -> BBox {
    let at = boxes.first + row * boxes.row_stride;
    let [x, y, width, height] = from_fn(|i| values[at + i * boxes.column_stride].to_f32());
    BBox::from_center(x, y, width, height)
}

/// Rows of class scores, with objectness if there is one; the boxes next to them or in an output of their own.
fn rows<const OBJECTNESS: bool, T: Float>(head: &Head, outputs: &[&Tensor], values: &[T], sink: &mut Sink) {
    with_boxes!(head, outputs, values, bbox => each_row::<OBJECTNESS, T>(head, values, sink, bbox));
}

#[inline(never)]
fn each_row<const OBJECTNESS: bool, T: Float>(
    head: &Head,
    values: &[T],
    sink: &mut Sink,
    bbox: impl Fn(usize) -> BBox,
) {
    let least = sink.thresholds.least();
    let least_key = T::key_from(least);
    let scores = head.range(|column| column == Column::Classes);
    let objectness = head.range(|column| column == Column::Objectness).start;
    for (at, row) in values.chunks_exact(head.columns).enumerate() {
        // Without objectness, a score below all thresholds is skipped at once.
        let passes = !OBJECTNESS || row[objectness].reaches(least_key);
        if passes
            && let Some((class, score)) = best(&row[scores.clone()], if OBJECTNESS { f32::NEG_INFINITY } else { least })
        {
            sink.push(at, bbox(at), if OBJECTNESS { row[objectness].to_f32() * score } else { score }, class);
        }
    }
}

/// Rows of logits. Each class of a row that passes is a candidate.
fn logits<T: Float>(head: &Head, outputs: &[&Tensor], values: &[T], sink: &mut Sink) {
    let (encoding, least) = (head.format.encoding(), least_logit(sink.thresholds.least()));
    let (boxes, grid) = (head.view(ID_COLUMNS[0]).expect("a head has boxes"), head.grid());
    for (at, row) in values.chunks_exact(head.classes).enumerate() {
        for (slot, logit) in row.iter().enumerate().filter(|&(slot, _)| Some(slot) != head.background) {
            let logit = logit.to_f32();
            if logit >= least {
                let class = slot - usize::from(head.background.is_some_and(|background| slot > background));
                sink.push(at, box_of(encoding, head, grid, at, four(outputs, &boxes, at)), sigmoid(logit), class);
            }
        }
    }
}

/// Columns of scores, each of a class; the columns x, y, width and height before them, or the boxes in an output of
/// their own.
fn columns<T: Float>(head: &Head, outputs: &[&Tensor], values: &[T], sink: &mut Sink) {
    with_boxes!(head, outputs, values, bbox => each_column(head, values, sink, bbox));
}

/// The maxima of a block of rows come first, one class after the other. Only for the few that pass is the class then looked up.
#[inline(never)]
fn each_column<T: Float>(head: &Head, values: &[T], sink: &mut Sink, bbox: impl Fn(usize) -> BBox) {
    let least = T::key_from(sink.thresholds.least());
    let classes = head.range(|column| column == Column::Classes);
    let all = &values[classes.start * head.rows..classes.end * head.rows];
    let columns = all.chunks_exact(head.rows);
    let mut maxima = [T::LEAST; BLOCK];
    for start in (0..head.rows).step_by(BLOCK) {
        let end = head.rows.min(start + BLOCK);
        let maxima = &mut maxima[..end - start];
        maxima.fill(T::LEAST);
        for scores in columns.clone() {
            for (maximum, score) in maxima.iter_mut().zip(&scores[start..end]) {
                *maximum = T::greater(score.key(), *maximum);
            }
        }
        let passing = (start..).zip(&*maxima).map(|(row, &key)| (row, T::of_key(key)));
        for (row, greatest) in passing.filter(|(_, greatest)| greatest.reaches(least)) {
            let bbox = bbox(row); // its loads need not wait for the class
            if let Some(class) = columns.clone().position(|scores| scores[row] == greatest) {
                sink.push(row, bbox, all[class * head.rows + row].to_f32(), class);
            }
        }
    }
}

/// `[rows][columns]`: a box, its score, its class, and numbers that are gathered later.
fn rows_with_id<T: Float>(head: &Head, values: &[T], sink: &mut Sink) {
    let encoding = head.format.encoding();
    let first_class = f32::from(head.format.first_class());
    for (at, row) in values.chunks_exact(head.columns).enumerate() {
        let [a, b, c, d, score, id] = from_fn(|i| row[i].to_f32());
        sink.push_id(at, box_of(encoding, head, None, at, [a, b, c, d]), score, id - first_class);
    }
}

/// In rows of floats of one picture that all count, so that they can be read as they lie.
fn begins_with_box_score_and_id(head: &Head) -> bool {
    let OutputSpec { columns, dims, class, .. } = head.format.outputs[0];
    let is_plain =
        dims.first() == Some(&Dim::Batch) && dims.last() == Some(&Dim::Columns) && class == ElementClass::Float;
    is_plain
        && head.view(is_count).is_none()
        && columns.len() >= ID_COLUMNS.len()
        && ID_COLUMNS.iter().zip(columns).all(|(is_it, &column)| is_it(column))
}

/// Boxes, scores and classes in outputs of their own or in any order, and how many of them count.
fn apart(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    let encoding = head.format.encoding();
    let first_class = f32::from(head.format.first_class());
    let [boxes, scores, classes] = ID_COLUMNS.map(|is_it| head.view(is_it).expect("a head of ids has them"));
    for row in rows_that_count(head, outputs) {
        let numbers = four(outputs, &boxes, row);
        let (score, id) = (viewed(outputs, &scores, row, 0), viewed(outputs, &classes, row, 0));
        sink.push_id(row, box_of(encoding, head, None, row, numbers), score, id - first_class);
    }
}

/// The rows of a head of ids: so many as it says, or of this picture.
fn rows_that_count(head: &Head, outputs: &[&Tensor]) -> impl Iterator<Item = usize> {
    let boxes = head.view(ID_COLUMNS[0]).expect("a head has boxes");
    let rows = head.rows_of(boxes.output, outputs[boxes.output].desc());
    let rows = head.view(is_count).map_or(rows, |view| {
        rows.min(viewed(outputs, &view, 0, 0) as usize) // the cast maps NaN and negative values to 0
    });
    let pictures = head.view(|column| column == Column::Picture);
    // Of those of other pictures none is here: the backend has divided them.
    (0..rows).take_while(move |&row| pictures.is_none_or(|view| viewed(outputs, &view, row, 0) >= 0.0))
}

/// Boxes, scores and classes of a head whose rows name their class, in the order in which the kernel takes them.
pub(crate) const ID_COLUMNS: [fn(Column) -> bool; 3] = [
    |column| matches!(column, Column::Box(_)),
    |column| column == Column::Score,
    |column| matches!(column, Column::ClassId { .. }),
];

/// How many rows count.
pub(crate) fn is_count(column: Column) -> bool {
    column == Column::Count
}
