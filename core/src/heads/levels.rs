// SPDX-License-Identifier: MPL-2.0
//! Heads whose outputs come once for each stride of their grid: which is which, and all of them as one.

use smallvec::SmallVec;

use super::decode::{STRIDES, cells};
use super::{ColumnSizes, HeadFormat, ModelHints};
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

/// How the outputs of a model are those of such a head, if they are: all of them belong to it, their rows are the cells of the
/// strides, and boxes and scores differ in their width. Strides with equally many cells come in the order of the model.
pub(super) fn find(format: &HeadFormat, outputs: &[TensorDesc], hints: &ModelHints) -> Option<Levels> {
    let input = hints.input?;
    let of_file = format.file.and_then(|file| file.grid.as_ref()).map(|grid| &grid.strides[..]);
    let sets = of_file.into_iter().chain(STRIDES.into_iter().filter(|_| of_file.is_none()));
    sets.into_iter().find_map(|strides| {
        let (mut found, mut classes) = (SmallVec::<[usize; 4]>::new(), None);
        if outputs.len() != strides.len() * format.outputs.len() {
            return None;
        }
        for spec in format.outputs {
            let has_classes = spec.columns.iter().any(|column| column.are_scores());
            let widths = spec.columns.iter().map(|column| column.width(&ColumnSizes::default()));
            let width = widths.sum::<Option<usize>>()? as i64;
            let first = found.len();
            for &stride in strides {
                let rows = cells(&[stride], input) as i64;
                let of_level = |index: &usize| {
                    let TensorDesc { dtype, dims, .. } = &outputs[*index];
                    let [_, own_rows, columns] = dims[..] else { return false };
                    let same_type = found.get(first).is_none_or(|&other| outputs[other].dtype == *dtype);
                    let own_classes = columns.saturating_sub(width);
                    let is_wide = if has_classes {
                        own_classes > 0 && classes.unwrap_or(own_classes) == own_classes
                    } else {
                        columns == width
                    };
                    let is_float = matches!(dtype, DType::F32 | DType::F16);
                    is_float && same_type && is_wide && (own_rows == rows || own_rows == Dims::DYNAMIC)
                };
                let index = (0..outputs.len()).filter(|index| !found.contains(index)).find(of_level)?;
                if has_classes {
                    classes = Some(outputs[index].dims[2] - width);
                } else if outputs.iter().filter(|other| other.dims.last() == Some(&width)).count() != strides.len() {
                    return None; // the scores are as wide
                }
                found.push(index);
            }
        }
        Some(Levels { outputs: found, rows: cells(strides, input), classes: classes? })
    })
}

/// The outputs of all strides as one for each of the head's own.
pub(super) fn join(format: &HeadFormat, outputs: &[&Tensor], pool: &Pool) -> Result<Vec<Tensor>> {
    let of_each = outputs.chunks(outputs.len() / format.outputs.len());
    let joined = of_each.map(|levels| {
        let mut desc = levels[0].desc().clone();
        desc.dims.0[1] = levels.iter().map(|level| level.desc().dims[1]).sum();
        Tensor::fill(pool, desc, |mut to| {
            for level in levels {
                let bytes = level.bytes().unwrap_or_default();
                let (own, rest) = std::mem::take(&mut to).split_at_mut(bytes.len());
                own.copy_from_slice(bytes);
                to = rest;
            }
            Ok(())
        })
    });
    joined.collect()
}
