//! From tensors to detections: one function for each layout.
//!
//! Arithmetic is f32, each operation rounded once, in the order written here, and never a fused multiply-add: CUDA
//! kernels are compared with this bit for bit. Elements are widened to f32 first, which is exact.
//! - A row is skipped unless its objectness (where there is one) is at least the least threshold.
//! - The class is the first of those with the greatest score; NaN is never greatest. Score = objectness × class score.
//! - Pixels from 0..1: × width of the input for x and width, × height for y and height.
//! - YOLOX: cx = (x + gx) × stride, w = (exp in f64 of w, rounded to f32) × stride; y and h alike.
//! - Corners from a centre: half = size × 0.5, then centre − half and centre + half.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::Thresholds;
use crate::core::tensor::{DType, Element, Tensor};
use crate::image::Detection;
use crate::image::geometry::BBox;

/// Class ids stay below this where nobody knows how many classes there are.
pub(super) const ANY_CLASS: usize = 1 << 16;

/// Anchors of one pass over a channels-first head: their running maxima stay in the first cache.
const BLOCK: usize = 256;

/// The sets of strides that heads have, and the rows they give.
const STRIDES: [&[u32]; 4] = [&[8, 16, 32], &[8, 16, 32, 64], &[4, 8, 16, 32], &[16, 32]];

/// The numbers of a head.
pub struct Head {
    pub rows: usize,
    /// Elements of a row of the only output.
    pub columns: usize,
    /// Width and height of the model's input.
    pub input: (u32, u32),
}

impl Head {
    /// Strides of a grid that has one row for each cell.
    pub fn strides(&self) -> Option<&'static [u32]> {
        STRIDES.into_iter().find(|strides| cells(strides, self.input) == self.rows as u64)
    }

    /// Column, row and stride of the cell that a row of a grid stands for.
    fn cell(&self, row: usize) -> [f32; 3] {
        let mut cell = row as u32;
        for &stride in self.strides().unwrap_or_default() {
            let (columns, rows) = (self.input.0.div_ceil(stride), self.input.1.div_ceil(stride));
            if cell < columns * rows {
                return [(cell % columns) as f32, (cell / columns) as f32, stride as f32];
            }
            cell -= columns * rows;
        }
        [0.0; 3] // no grid, so boxes of no size
    }

    fn input(&self) -> (f32, f32) {
        (self.input.0 as f32, self.input.1 as f32)
    }
}

/// Rows for each cell of a grid over the input; `None` where there is no whole number of them.
pub(super) fn rows_per_cell(rows: u64, input: (u32, u32)) -> Option<u64> {
    let per_cell = STRIDES
        .map(|strides| cells(strides, input))
        .into_iter()
        .find_map(|cells| [1, 3].into_iter().find(|per_cell| cells * per_cell == rows));
    per_cell.filter(|_| rows > 0)
}

fn cells(strides: &[u32], (width, height): (u32, u32)) -> u64 {
    strides.iter().map(|&stride| u64::from(width.div_ceil(stride)) * u64::from(height.div_ceil(stride))).sum()
}

/// Where detections go that pass.
pub(super) struct Sink<'a> {
    pub thresholds: &'a Thresholds,
    /// Class ids are below this.
    pub classes: usize,
    pub out: &'a mut Vec<Detection>,
}

impl Sink<'_> {
    fn push(&mut self, anchor: usize, bbox: BBox, score: f32, class: usize) {
        // NaN reaches no threshold.
        if score >= self.thresholds.of(class as u32) && score.is_finite() && bbox.is_valid() {
            self.out.push(Detection { bbox, score, class: class as u32, anchor: anchor as u32 });
        }
    }

    /// For heads that name their classes. Ids are whole numbers, in f16 up to 2048; a fraction is cut off.
    fn push_id(&mut self, anchor: usize, bbox: BBox, score: f32, id: f32) {
        if id >= 0.0 && id < self.classes as f32 {
            self.push(anchor, bbox, score, id as usize);
        }
    }
}

/// Element types of dense heads.
trait Float: Element + PartialEq {
    /// As f32, in `buffer` where that needs room.
    fn widen<'a>(values: &'a [Self], buffer: &'a mut [f32; BLOCK]) -> &'a [f32];
    /// Back again, exactly.
    fn narrow(value: f32) -> Self;
}

impl Float for f32 {
    fn widen<'a>(values: &'a [f32], _: &'a mut [f32; BLOCK]) -> &'a [f32] {
        values
    }

    fn narrow(value: f32) -> f32 {
        value
    }
}

impl Float for f16 {
    fn widen<'a>(values: &'a [f16], buffer: &'a mut [f32; BLOCK]) -> &'a [f32] {
        let buffer = &mut buffer[..values.len()];
        values.convert_to_f32_slice(buffer);
        buffer
    }

    fn narrow(value: f32) -> f16 {
        f16::from_f32(value)
    }
}

/// The first batch item's elements, if `T` is their type.
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
fn number(tensor: &Tensor, index: usize) -> f32 {
    fn get<T: Element>(tensor: &Tensor, index: usize) -> Option<f32> {
        item::<T>(tensor)?.get(index).map(|value| value.to_f32())
    }
    match tensor.desc().dtype {
        DType::F32 => get::<f32>(tensor, index),
        DType::F16 => get::<f16>(tensor, index),
        DType::U8 => get::<u8>(tensor, index),
        DType::I32 => get::<i32>(tensor, index),
        DType::I64 => get::<i64>(tensor, index),
        DType::I8 | DType::Bool => None,
    }
    .unwrap_or(f32::NAN) // which passes nowhere
}

fn box_at(tensor: &Tensor, row: usize) -> [f32; 4] {
    std::array::from_fn(|i| number(tensor, row * 4 + i))
}

fn first_four<T: Element>(row: &[T]) -> [f32; 4] {
    std::array::from_fn(|i| row[i].to_f32())
}

fn from_corners([x1, y1, x2, y2]: [f32; 4]) -> BBox {
    BBox::new(x1, y1, x2, y2)
}

fn from_center([cx, cy, w, h]: [f32; 4]) -> BBox {
    BBox::from_center(cx, cy, w, h)
}

/// Centre and size in 0..1.
fn from_shares(head: &Head, [cx, cy, w, h]: [f32; 4]) -> BBox {
    let (width, height) = head.input();
    BBox::from_center(cx * width, cy * height, w * width, h * height)
}

/// Centre in cells, size as logarithm of cells.
fn from_cell([gx, gy, stride]: [f32; 3], [x, y, w, h]: [f32; 4]) -> BBox {
    let exp = |value: f32| f64::from(value).exp() as f32;
    BBox::from_center((x + gx) * stride, (y + gy) * stride, exp(w) * stride, exp(h) * stride)
}

/// The greatest score that is at least `least`, and the first place where it stands.
fn best<T: Float>(scores: &[T], least: f32) -> Option<(usize, f32)> {
    const LANES: usize = 8;
    let mut buffer = [0.0; BLOCK];
    let mut best = None;
    let mut greatest = f32::NEG_INFINITY;
    for (i, block) in scores.chunks(BLOCK).enumerate() {
        let block = T::widen(block, &mut buffer);
        let (rows, rest) = block.as_chunks::<LANES>();
        let mut lanes = [f32::NEG_INFINITY; LANES];
        for row in rows {
            for (lane, &score) in lanes.iter_mut().zip(row) {
                *lane = greater(score, *lane);
            }
        }
        let found = lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |found, &score| greater(score, found));
        if found > greatest && found >= least {
            greatest = found;
            best = block.iter().position(|&score| score == found).map(|at| (i * BLOCK + at, block[at]));
        }
    }
    best
}

/// `b` where `a` is NaN: one instruction.
#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Rows of a box, objectness and class scores.
fn with_objectness<T: Float>(head: &Head, values: &[T], sink: &mut Sink, bbox: impl Fn(usize, [f32; 4]) -> BBox) {
    let least = sink.thresholds.least();
    for (anchor, row) in values.chunks_exact(head.columns).enumerate() {
        let objectness = row[4].to_f32();
        if objectness >= least
            && let Some((class, score)) = best(&row[5..], f32::NEG_INFINITY)
        {
            sink.push(anchor, bbox(anchor, first_four(row)), objectness * score, class);
        }
    }
}

pub(super) fn yolov5(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    float!(outputs[0], values => with_objectness(head, values, sink, |_, numbers| from_center(numbers)));
}

pub(super) fn yolox(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    let bbox = |anchor, numbers| from_cell(head.cell(anchor), numbers);
    float!(outputs[0], values => with_objectness(head, values, sink, bbox));
}

/// Rows of a box and class scores.
fn with_scores<T: Float>(head: &Head, values: &[T], sink: &mut Sink, bbox: impl Fn([f32; 4]) -> BBox) {
    let least = sink.thresholds.least();
    for (anchor, row) in values.chunks_exact(head.columns).enumerate() {
        if let Some((class, score)) = best(&row[4..], least) {
            sink.push(anchor, bbox(first_four(row)), score, class);
        }
    }
}

pub(super) fn yolov8_transposed(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    float!(outputs[0], values => with_scores(head, values, sink, from_center));
}

pub(super) fn detr_ultralytics(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    float!(outputs[0], values => with_scores(head, values, sink, |shares| from_shares(head, shares)));
}

pub(super) fn yolov8(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    float!(outputs[0], values => channels_first(head, values, sink));
}

/// All of x, then all of y, width, height and of each class's scores. The maxima of a block of anchors come first, one
/// class after the other; only for the few that pass is it worth to ask which class that was.
fn channels_first<T: Float>(head: &Head, values: &[T], sink: &mut Sink) {
    let least = sink.thresholds.least();
    let (mut buffer, mut maxima) = ([0.0; BLOCK], [0.0; BLOCK]);
    for start in (0..head.rows).step_by(BLOCK) {
        let end = head.rows.min(start + BLOCK);
        let maxima = &mut maxima[..end - start];
        maxima.fill(f32::NEG_INFINITY);
        for scores in values.chunks_exact(head.rows).skip(4) {
            for (maximum, &score) in maxima.iter_mut().zip(T::widen(&scores[start..end], &mut buffer)) {
                *maximum = greater(score, *maximum);
            }
        }
        for (anchor, &score) in (start..).zip(&*maxima).filter(|(_, score)| **score >= least) {
            let mut column = values[anchor..].iter().step_by(head.rows);
            let mut next = || column.next().map_or(f32::NAN, |value| value.to_f32());
            let bbox = BBox::from_center(next(), next(), next(), next());
            let wanted = T::narrow(score);
            if let Some(class) = column.position(|value| *value == wanted) {
                sink.push(anchor, bbox, score, class);
            }
        }
    }
}

/// Rows of a box, its score and its class.
fn with_id<T: Float>(values: &[T], sink: &mut Sink, bbox: impl Fn([f32; 4]) -> BBox) {
    for (anchor, row) in values.as_chunks().0.iter().enumerate() {
        let [a, b, c, d, score, id] = row.map(T::to_f32);
        sink.push_id(anchor, bbox([a, b, c, d]), score, id);
    }
}

pub(super) fn end_to_end(_: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    float!(outputs[0], values => with_id(values, sink, from_corners));
}

pub(super) fn detr_topk(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    float!(outputs[0], values => with_id(values, sink, |shares| from_shares(head, shares)));
}

pub(super) fn detr(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    let [labels, boxes, scores] = [0, 1, 2].map(|i| outputs[i]);
    for row in 0..head.rows {
        sink.push_id(row, from_corners(box_at(boxes, row)), number(scores, row), number(labels, row));
    }
}

pub(super) fn efficientnms(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    let [count, boxes, scores, classes] = [0, 1, 2, 3].map(|i| outputs[i]);
    for row in 0..head.rows.min(number(count, 0) as usize) {
        sink.push_id(row, from_corners(box_at(boxes, row)), number(scores, row), number(classes, row));
    }
}

pub(super) fn ssd(head: &Head, outputs: &[&Tensor], sink: &mut Sink) {
    let [boxes, classes, scores, count] = [0, 1, 2, 3].map(|i| outputs[i]);
    let (width, height) = head.input();
    for row in 0..head.rows.min(number(count, 0) as usize) {
        let [y1, x1, y2, x2] = box_at(boxes, row);
        let bbox = BBox::new(x1 * width, y1 * height, x2 * width, y2 * height);
        sink.push_id(row, bbox, number(scores, row), number(classes, row) - 1.0);
    }
}
