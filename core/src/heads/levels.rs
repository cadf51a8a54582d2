// SPDX-License-Identifier: MPL-2.0
//! Heads whose outputs come once for each stride of their grid: which is which, and all of them as one. On a GPU `kernels/join.cu`
//! does the latter.

use std::slice::from_ref;

use smallvec::SmallVec;

use super::grid::{STRIDES, cells};
use super::{ColumnSizes, HeadFormat, ModelHints, OutputSpec};
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

/// How the outputs of a model are those of such a head, if they are: all of them belong to it, their rows are those of the cells of
/// the strides, and they differ in their widths or have names that begin as the head says. Strides with equally many cells come in
/// the order of the model.
pub(super) fn find(format: &HeadFormat, outputs: &[TensorDesc], hints: &ModelHints) -> Option<Levels> {
    let input = hints.input?;
    let grid = format.sizes.grid.as_ref();
    let own = grid.map(|grid| &grid.strides[..]);
    let sets = own.as_ref().map_or(&STRIDES[..], from_ref);
    let anchors = grid.map_or(1, |grid| u64::from(grid.anchors));
    sets.iter().find_map(|strides| find_in(format, outputs, hints, strides, |stride| cells(&[stride], input) * anchors))
}

/// Rows and numbers of a row of an output for one stride. Some exporters leave out the dimension of the batch, which is 1 then.
pub(super) fn shape(desc: &TensorDesc) -> Option<[i64; 2]> {
    match desc.dims[..] {
        [_, rows, columns] | [rows, columns] => Some([rows, columns]),
        _ => None,
    }
}

fn find_in(
    format: &HeadFormat,
    outputs: &[TensorDesc],
    hints: &ModelHints,
    strides: &[u32],
    rows_of: impl Fn(u32) -> u64,
) -> Option<Levels> {
    if outputs.len() != strides.len() * format.outputs.len() {
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
                let Some([own_rows, columns]) = shape(desc) else { return false };
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
                classes = Some(shape(&outputs[index])?[1] - width);
            } else if spec.name.is_empty() {
                let is_as_wide = |other: &&TensorDesc| other.dims.last() == Some(&width);
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
fn first_picture(level: &Tensor) -> Option<&[u8]> {
    let bytes = shape(level.desc())?.iter().product::<i64>() as usize * level.desc().dtype.size();
    level.bytes()?.get(..bytes)
}

/// The outputs of all strides as one for each of the head's own.
pub(super) fn join(format: &HeadFormat, outputs: &[&Tensor], pool: &Pool) -> Result<Vec<Tensor>> {
    let of_each = outputs.chunks(outputs.len() / format.outputs.len());
    let joined = of_each.map(|levels| {
        let TensorDesc { name, dtype, .. } = levels[0].desc();
        let shapes = levels.iter().filter_map(|level| shape(level.desc()));
        let [rows, columns] = shapes.fold([0; 2], |[rows, _], [own, columns]| [rows + own, columns]);
        let desc = TensorDesc::new(name, *dtype, &[1, rows, columns]);
        Tensor::fill(pool, desc, |mut to| {
            for bytes in levels.iter().filter_map(|level| first_picture(level)) {
                let (own, rest) = std::mem::take(&mut to).split_at_mut(bytes.len());
                own.copy_from_slice(bytes);
                to = rest;
            }
            Ok(())
        })
    });
    joined.collect()
}
