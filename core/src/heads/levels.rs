// SPDX-License-Identifier: MPL-2.0
//! Heads whose outputs come once for each stride of their grid: which is which, and all of them as one. On a GPU `kernels/join.cu`
//! does the latter.

use std::slice::from_ref;

use smallvec::SmallVec;

use super::grid::{STRIDES, cells};
use super::{ColumnSizes, Dim, HeadFormat, ModelHints, OutputSpec};
use crate::error::Result;
use crate::memory::Pool;
use crate::tensor::{DType, Dims, Tensor, TensorDesc};

/// The outputs of such a head: for each of its own those of all strides, from the finest one on.
pub(super) struct Levels {
    pub outputs: SmallVec<[usize; 4]>,
    /// Of all strides.
    pub rows: u64,
    pub classes: i64,
}

/// How the outputs of a model are those of such a head, if they are: all of them belong to it unless a file names them, their rows
/// are those of the cells of the strides, and they differ in their widths or have names that begin as the head says. Strides with
/// equally many cells come in the order of the model.
pub(super) fn find(format: &HeadFormat, outputs: &[TensorDesc], hints: &ModelHints) -> Option<Levels> {
    let input = hints.input?;
    let grid = format.sizes.grid.as_ref();
    let own = grid.map(|grid| &grid.strides[..]);
    let sets = own.as_ref().map_or(&STRIDES[..], from_ref);
    let anchors = grid.map_or(1, |grid| u64::from(grid.anchors));
    let rows_of = |stride: u32| cells(&[stride], input) * anchors;
    sets.iter().find_map(|&strides| find_in(format, outputs, hints, (strides, anchors as i64), rows_of))
}

/// Rows and numbers of a row of an output for one stride, as it comes. Some exporters leave out the dimension of the batch, which is 1
/// then; cells may lie down and across, and the anchors of a cell may have a dimension of their own.
pub(super) fn shape(spec: &OutputSpec, desc: &TensorDesc) -> Option<[i64; 2]> {
    let product = |a: i64, b: i64| if [a, b].contains(&Dims::DYNAMIC) { Some(Dims::DYNAMIC) } else { a.checked_mul(b) };
    match (are_maps(spec), &desc.dims[..]) {
        (false, &[_, rows, columns] | &[rows, columns]) | (true, &[_, columns, rows]) => Some([rows, columns]),
        (false, &[_, down, across, columns]) | (true, &[_, columns, down, across]) => {
            Some([product(down, across)?, columns])
        }
        (false, &[_, down, across, anchors, columns]) | (true, &[_, anchors, columns, down, across]) => {
            Some([product(down, across)?, product(anchors, columns)?])
        }
        _ => None,
    }
}

/// The same as the head counts them: where the numbers of all anchors of a cell come as one row, that is one for each of them. They lie
/// side by side, so that nothing moves. `rows` are those of the stride.
fn shape_of_anchors(spec: &OutputSpec, desc: &TensorDesc, rows: i64, anchors: i64) -> Option<[i64; 2]> {
    let [own, columns] = shape(spec, desc)?;
    // Down and across there are cells.
    let are_cells = desc.dims.len() > 3 || own != rows && own == rows / anchors;
    match (anchors > 1 && are_cells, columns % anchors) {
        (false, _) => Some([own, columns]),
        (true, 0) if own == Dims::DYNAMIC => Some([own, columns / anchors]),
        (true, 0) => Some([own.checked_mul(anchors)?, columns / anchors]),
        (true, _) => None,
    }
}

/// Whether each number of the rows is a map of its own: those of a row do not lie side by side.
pub(super) fn are_maps(spec: &OutputSpec) -> bool {
    spec.dims.last() == Some(&Dim::Cells)
}

fn find_in(
    format: &HeadFormat,
    outputs: &[TensorDesc],
    hints: &ModelHints,
    (strides, anchors): (&[u32], i64),
    rows_of: impl Fn(u32) -> u64,
) -> Option<Levels> {
    // By their widths alone, others could be taken for one of them.
    let are_named = format.file.is_some() && format.outputs.iter().all(|spec| !spec.name.is_empty());
    let others = outputs.len().checked_sub(strides.len() * format.outputs.len())?;
    if others > 0 && !are_named {
        return None;
    }
    let sizes = ColumnSizes { keypoints: format.keypoint_shape(hints), ..ColumnSizes::default() };
    let has_scores = |spec: &OutputSpec| spec.columns.iter().any(|column| column.are_scores());
    // Those of a fixed width come first, so that the scores of as many classes as there may be are what is left.
    let mut order: SmallVec<[usize; 4]> = (0..format.outputs.len()).collect();
    order.sort_by_key(|&i| has_scores(&format.outputs[i]));
    let (mut found, mut classes) = (vec![Vec::new(); format.outputs.len()], format.sizes.classes.map(|own| own as i64));
    let mut taken = vec![false; outputs.len()];
    for place in order {
        let spec = &format.outputs[place];
        let widths = spec.columns.iter().map(|column| column.width(&sizes));
        let width = widths.sum::<Option<usize>>()? as i64;
        for &stride in strides {
            let rows = rows_of(stride) as i64;
            let first = found[place].first().copied();
            let is_it = |index: &usize| {
                let desc = &outputs[*index];
                let Some([own_rows, columns]) = shape_of_anchors(spec, desc, rows, anchors) else { return false };
                let own_classes = columns.saturating_sub(width);
                let is_wide = match has_scores(spec) {
                    true => own_classes > 0 && classes.unwrap_or(own_classes) == own_classes,
                    false => columns == width,
                };
                let is_like = |first: usize| {
                    let first: &TensorDesc = &outputs[first];
                    (first.dtype, first.dims.len()) == (desc.dtype, desc.dims.len())
                };
                let is_named = spec.name.is_empty() || desc.name == format!("{}_{stride}", spec.name);
                let is_float = matches!(desc.dtype, DType::F32 | DType::F16);
                is_float
                    && is_wide
                    && is_named
                    && first.is_none_or(is_like)
                    && (own_rows == rows || own_rows == Dims::DYNAMIC)
            };
            let index = (0..outputs.len()).filter(|&index| !taken[index]).find(is_it)?;
            taken[index] = true;
            if has_scores(spec) {
                classes = Some(shape_of_anchors(spec, &outputs[index], rows, anchors)?[1] - width);
            } else if spec.name.is_empty() {
                let width_in = |other: &TensorDesc, stride: &u32| {
                    Some(shape_of_anchors(spec, other, rows_of(*stride) as i64, anchors)?[1])
                };
                let is_as_wide =
                    |&other: &&TensorDesc| strides.iter().any(|stride| width_in(other, stride) == Some(width));
                if outputs.iter().filter(is_as_wide).count() != strides.len() {
                    return None; // the scores are as wide
                }
            }
            found[place].push(index);
        }
    }
    let rows = strides.iter().map(|&stride| rows_of(stride)).sum();
    Some(Levels { outputs: found.concat().into(), rows, classes: classes? })
}

/// The bytes of a batch's first item.
fn first_picture<'a>(spec: &OutputSpec, level: &'a Tensor) -> Option<&'a [u8]> {
    let bytes = shape(spec, level.desc())?.iter().product::<i64>() as usize * level.desc().dtype.size();
    level.bytes()?.get(..bytes)
}

/// Numbers of so many bytes, from a map of each column to rows.
fn to_rows<const SIZE: usize>(maps: &[u8], rows: &mut [u8], columns: usize) {
    let (maps, rows) = (maps.as_chunks::<SIZE>().0, rows.as_chunks_mut::<SIZE>().0);
    let count = rows.len() / columns.max(1);
    for (at, row) in rows.chunks_exact_mut(columns.max(1)).enumerate() {
        for (column, number) in row.iter_mut().enumerate() {
            *number = maps[column * count + at];
        }
    }
}

/// The outputs of all strides as one for each of the head's own.
pub(super) fn join(format: &HeadFormat, outputs: &[&Tensor], pool: &Pool) -> Result<Vec<Tensor>> {
    let of_each = outputs.chunks(outputs.len() / format.outputs.len()).zip(format.outputs);
    let joined = of_each.map(|(levels, spec)| {
        let TensorDesc { name, dtype, .. } = levels[0].desc();
        let shapes = levels.iter().filter_map(|level| shape(spec, level.desc()));
        let [rows, columns] = shapes.fold([0; 2], |[rows, _], [own, columns]| [rows + own, columns]);
        let desc = TensorDesc::new(name, *dtype, &[1, rows, columns]);
        Tensor::fill(pool, desc, |mut to| {
            for bytes in levels.iter().filter_map(|level| first_picture(spec, level)) {
                let (own, rest) = std::mem::take(&mut to).split_at_mut(bytes.len());
                match (are_maps(spec), dtype) {
                    (false, _) => own.copy_from_slice(bytes),
                    (true, DType::F16) => to_rows::<2>(bytes, own, columns as usize),
                    (true, _) => to_rows::<4>(bytes, own, columns as usize),
                }
                to = rest;
            }
            Ok(())
        })
    });
    joined.collect()
}
