// SPDX-License-Identifier: MPL-2.0
//! Whether the outputs of a model have the dimensions of a head, and its sizes then.

use smallvec::SmallVec;

use super::{Column, ColumnSizes, Dim, HeadFormat, ModelHints, levels};
use crate::tensor::{Dims, TensorDesc};

/// The evidence for a head, the weaker first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Confidence {
    Shape,
    /// A name, metadata, or a number that no other head has.
    Sign,
}

/// A head matched to the outputs.
pub(super) struct HeadMatch {
    pub format: &'static HeadFormat,
    /// In the order of the head's outputs.
    pub outputs: SmallVec<[usize; 4]>,
    pub rows: i64,
    pub columns: i64,
    /// `None` for heads that name class ids.
    pub classes: Option<usize>,
    /// Which of the logits of a row is not of a class.
    pub background: Option<usize>,
    /// The prototypes of masks, where there are some.
    pub coefficients: Option<usize>,
    pub confidence: Confidence,
    /// Where nothing but the dimensions speaks for it: the other heads for which they speak, with less weight.
    pub doubt: Option<Vec<&'static HeadFormat>>,
}

/// A head whose outputs come once for each stride.
pub(super) fn by_levels(format: &'static HeadFormat, outputs: &[TensorDesc], hints: &ModelHints) -> Option<HeadMatch> {
    let levels = levels::find(format, outputs, hints)?;
    Some(HeadMatch {
        format,
        outputs: levels.outputs,
        rows: i64::try_from(levels.rows).ok()?,
        columns: levels.classes,
        classes: usize::try_from(levels.classes).ok().filter(|&classes| classes > 0),
        background: None,
        coefficients: None,
        confidence: Confidence::Sign,
        doubt: None,
    })
}

/// Matches a head to these outputs. Dynamic dimensions fit any size.
pub(super) fn fit(
    format: &'static HeadFormat,
    outputs: &[TensorDesc],
    hints: &ModelHints,
    indices: SmallVec<[usize; 4]>,
) -> Option<HeadMatch> {
    // Missing outputs fit nothing below.
    let prototypes = format.outputs.iter().zip(&indices).find(|(output, _)| output.is_prototypes());
    let coefficients = prototypes.and_then(|(_, &index)| outputs.get(index)?.dims.get(1).copied());
    let coefficients = coefficients.and_then(|count| usize::try_from(count).ok());
    let sizes = ColumnSizes { classes: 0, keypoints: format.keypoint_shape(hints), coefficients };
    let (mut rows, mut columns, mut classes) = (Dims::DYNAMIC, Dims::DYNAMIC, None);
    for (output, &index) in format.outputs.iter().zip(&indices) {
        let desc = outputs.get(index)?;
        let is_number = output.class.has(desc.dtype);
        let wanted = output.dims_of(desc.dims.len());
        let (dims, beyond) = desc.dims.split_at_checked(wanted.clone().count())?;
        let is_map = output.dims.contains(&Dim::Height) && (format.is_map() || format.is_text_map());
        if !is_number || beyond.iter().any(|&dim| dim != 1) || is_map && !beyond.is_empty() {
            return None;
        }
        // Elements of a row besides the scores of the classes.
        let mut widths = output.columns.iter().map(|column| column.width(&sizes));
        let others = widths.try_fold(0i64, |sum, width| sum.checked_add(i64::try_from(width?).ok()?))?;
        let has_classes = output.columns.iter().any(|column| column.are_scores());
        let takes_rest =
            has_classes || output.columns.iter().any(|column| *column == Column::Vector || column.are_characters());
        for (wanted, &dim) in wanted.zip(dims) {
            let known = dim != Dims::DYNAMIC;
            match wanted {
                _ if dim == 0 && !(wanted == Dim::Rows && format.has_open_rows()) => return None,
                Dim::One if dim != 1 => return None,
                Dim::Rows if known && rows != Dims::DYNAMIC && dim != rows => return None,
                Dim::Rows if known => rows = dim,
                Dim::Columns if known && takes_rest && dim <= others => return None,
                Dim::Columns if known && !takes_rest && dim != others => return None,
                Dim::Columns if known && has_classes => classes = Some((dim - others) as usize),
                Dim::Batch
                | Dim::Rows
                | Dim::Cells
                | Dim::Columns
                | Dim::Prototypes
                | Dim::Height
                | Dim::Width
                | Dim::One => {}
            }
            if wanted == Dim::Columns {
                columns = dim;
            }
        }
    }
    // A file's own number is compared later, with a message of its own.
    let own = format.sizes.classes.filter(|_| format.file.is_none());
    if own.is_some_and(|own| classes.is_some_and(|classes| classes != own)) {
        return None;
    }
    let background = None;
    Some(HeadMatch {
        format,
        outputs: indices,
        rows,
        columns,
        classes,
        background,
        coefficients,
        confidence: Confidence::Sign,
        doubt: None,
    })
}

/// The shape of the model's keypoints as text, where a head has some.
pub(super) fn keypoints_of(format: &HeadFormat, hints: &ModelHints) -> String {
    let has_own = format.sizes.keypoints.is_some();
    if has_own || !format.outputs.iter().any(|output| output.columns.iter().any(|column| column.are_keypoints())) {
        return String::new();
    }
    match format.keypoint_shape(hints) {
        Some(shape) => format!(", with kpt_shape [{}, {}] in the model's metadata", shape.count, shape.dims),
        None => ", without kpt_shape in the model's metadata".into(),
    }
}

/// The outputs of four dimensions, which prototypes of masks have.
fn with_four_dims(outputs: &[TensorDesc]) -> impl Iterator<Item = usize> + Clone {
    (0..outputs.len()).filter(|&i| outputs[i].dims.len() == 4)
}

/// The number of coefficients that the prototypes need, where a head has some.
pub(super) fn prototypes_of(format: &HeadFormat, outputs: &[TensorDesc]) -> String {
    if !format.has_prototypes() {
        return String::new();
    }
    match with_four_dims(outputs).next() {
        Some(i) => format!(", with {} as the prototypes of its masks, one for each coefficient", outputs[i]),
        None => ", without prototypes of masks, which are an output of four dimensions".into(),
    }
}
