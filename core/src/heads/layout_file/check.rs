// SPDX-License-Identifier: MPL-2.0
//! What of a layout file belongs together. Whatever passes here is read like the heads of this crate; what they cannot say is
//! refused, with the line.

use super::columns::word_of;
use super::read::{LayoutDraft, OutputDraft};
use crate::error::{Error, Result};
use crate::heads::grid::StrideGrid;
use crate::heads::{BoxEncoding, COLUMNS_OF_ROWS, Column, Dim, ElementClass, MAP, MAPS_OF_ROWS, Suppress, Task};

/// What a tensor holds, by its dimensions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OutputKind {
    /// Rows of several numbers, or columns of them.
    Rows,
    /// A number for each row.
    RowNumbers,
    /// Rows of the cells of one stride.
    Cells,
    /// A number for each picture.
    PictureNumber,
    /// Numbers of the picture as a whole: scores, or a vector.
    Picture,
    /// A number for each pixel.
    Map,
    /// A number for each pixel and class.
    ClassMaps,
    /// A map for each row.
    RowMaps,
    Prototypes,
}

pub(super) fn check(draft: &LayoutDraft) -> Result<()> {
    check_names(draft)?;
    for output in &draft.outputs {
        check_output(draft, output)?;
    }
    check_rows(draft)?;
    check_anomaly(draft)?;
    match draft.task {
        Task::Classify | Task::Semantic | Task::Depth | Task::Anomaly | Task::Embed | Task::Text | Task::TextDetect => {
            check_whole(draft)
        }
        Task::Detect | Task::Pose | Task::Obb | Task::Segment => check_boxes(draft),
    }
}

/// Outputs are found by their names, or by their dimensions.
fn check_names(draft: &LayoutDraft) -> Result<()> {
    let outputs = &draft.outputs;
    let has_cells = outputs.iter().any(|output| output.dims.contains(&Dim::Cells));
    let unnamed = outputs.iter().filter(|output| output.name.is_empty()).count();
    for (i, output) in outputs.iter().enumerate() {
        let error = |what: String| Err(draft.text.error(output.at, what));
        if !output.name.is_empty() && outputs[..i].iter().any(|other| other.name == output.name) {
            return error(format!("the output “{}” is there twice", output.name));
        }
        if output.name.is_empty() && unnamed != outputs.len() {
            return error("this output has no name, and others have. Give all of them a name, or none".into());
        }
    }
    if unnamed > 3 && !has_cells {
        let what = "more than three outputs cannot be told apart without names. Give each a name";
        return Err(draft.text.error(outputs[0].at, what));
    }
    Ok(())
}

fn kind(output: &OutputDraft) -> Option<OutputKind> {
    let plain: Vec<Dim> = output.dims.iter().copied().filter(|&dim| dim != Dim::One).collect();
    let has_one = plain.len() != output.dims.len();
    Some(match plain[..] {
        _ if output.dims == MAP => OutputKind::Map,
        [Dim::Batch, Dim::Rows, Dim::Columns] | [Dim::Batch, Dim::Columns, Dim::Rows] => OutputKind::Rows,
        [Dim::Rows, Dim::Columns] => OutputKind::Rows,
        [Dim::Batch, Dim::Rows] | [Dim::Rows] => OutputKind::RowNumbers,
        [Dim::Batch] => OutputKind::PictureNumber,
        _ if has_one => return None,
        [Dim::Batch, Dim::Cells, Dim::Columns] | [Dim::Batch, Dim::Columns, Dim::Cells] => OutputKind::Cells,
        [Dim::Batch, Dim::Columns] => OutputKind::Picture,
        [Dim::Batch, Dim::Columns, Dim::Height, Dim::Width] => OutputKind::ClassMaps,
        [Dim::Batch, Dim::Prototypes, Dim::Height, Dim::Width] => OutputKind::Prototypes,
        _ if output.dims == MAPS_OF_ROWS => OutputKind::RowMaps,
        _ => return None,
    })
}

/// Whether its columns can lie in such a tensor, and be of its type.
fn check_output(draft: &LayoutDraft, output: &OutputDraft) -> Result<()> {
    let error = |what: String| Err(draft.text.error(output.at, what));
    let columns = &output.columns[..];
    let Some(kind) = kind(output) else {
        return error(
            "no head has an output of these dims. There are: batch rows columns; batch columns rows; rows columns; batch rows; rows; \
             batch; batch cells columns; batch columns cells; batch columns; batch one height width; batch columns height width; \
             batch rows height width; batch prototypes height width; with “one” among the first six"
                .into(),
        );
    };
    let fits = match kind {
        OutputKind::Rows if columns.iter().any(|column| column.are_characters()) => columns.len() == 1,
        OutputKind::Rows | OutputKind::Cells => !columns.is_empty() && columns.iter().all(|&column| is_of_row(column)),
        OutputKind::RowNumbers => {
            matches!(columns, [Column::Score | Column::ClassId { .. } | Column::Angle])
        }
        OutputKind::PictureNumber => matches!(columns, [Column::Count | Column::AnomalyScore]),
        OutputKind::Picture => matches!(columns, [Column::Classes | Column::Vector]),
        OutputKind::ClassMaps => matches!(columns, [Column::Classes]),
        OutputKind::Map => {
            matches!(columns, [Column::ClassId { first: 0 } | Column::Depth | Column::AnomalyScore | Column::TextScore])
        }
        OutputKind::RowMaps => matches!(columns, [Column::Mask(_)]),
        OutputKind::Prototypes => columns.is_empty(),
    };
    if !fits {
        let wanted = match kind {
            OutputKind::Rows | OutputKind::Cells => "columns of a row, such as a box and classes, or characters alone",
            OutputKind::RowNumbers => "one column: score, class-id or angle",
            OutputKind::PictureNumber => "one column: count or anomaly-score",
            OutputKind::Picture => "one column: classes or vector",
            OutputKind::ClassMaps => "one column: classes",
            OutputKind::Map => "one column: class-id, whose first is 0, depth, anomaly-score or text-score",
            OutputKind::RowMaps => "one column: mask",
            OutputKind::Prototypes => "no columns",
        };
        let words: Vec<&str> = columns.iter().map(|&column| word_of(column)).collect();
        let has = if words.is_empty() { "none".into() } else { words.join(", ") };
        return error(format!("an output of these dims has {wanted}; here: {has}"));
    }
    for (i, &column) in columns.iter().enumerate() {
        let is_same = |other: &Column| word_of(*other) == word_of(column);
        if !matches!(column, Column::Ignored { .. }) && columns[..i].iter().any(is_same) {
            return error(format!("“{}” is there twice in columns", word_of(column)));
        }
    }
    if matches!(kind, OutputKind::Rows | OutputKind::Cells)
        && columns.iter().all(|column| matches!(column, Column::Ignored { .. }))
    {
        return error("nothing is read of this output. Leave it out".into());
    }
    let may_be_whole = |column: &Column| {
        matches!(
            column,
            Column::Box(_)
                | Column::Score
                | Column::ClassId { .. }
                | Column::Count
                | Column::Picture
                | Column::Ignored { .. }
        )
    };
    let is_ids = kind == OutputKind::Map && matches!(columns, [Column::ClassId { .. }]);
    match output.class {
        ElementClass::Integer if is_ids => Ok(()),
        _ if is_ids => error("a map of class ids has type = \"integer\"".into()),
        ElementClass::Float => Ok(()),
        _ => match columns.iter().find(|column| !may_be_whole(column)) {
            Some(column) => error(format!("“{}” is read from floats alone: leave type out", word_of(*column))),
            None if kind == OutputKind::Prototypes => error("prototypes are floats: leave type out".into()),
            None => Ok(()),
        },
    }
}

/// Whether it may stand in a row next to others.
fn is_of_row(column: Column) -> bool {
    let is_of_all = matches!(
        column,
        Column::Count | Column::Mask(_) | Column::Depth | Column::AnomalyScore | Column::TextScore | Column::Vector
    );
    !is_of_all && !column.are_characters()
}

/// Rows are as many in all outputs.
fn check_rows(draft: &LayoutDraft) -> Result<()> {
    let mut known = None;
    for output in &draft.outputs {
        let shape = output.shape.iter().flatten().zip(&output.dims);
        let rows = shape.filter(|(size, dim)| **dim == Dim::Rows && **size > 0).map(|(size, _)| *size).next();
        match (rows, known) {
            (Some(rows), Some(known)) if rows != known => {
                let what = format!("the output has {rows} rows by its shape, and another one {known}");
                return Err(draft.text.error(output.at, what));
            }
            _ => known = known.or(rows),
        }
    }
    Ok(())
}

/// What raw scores mean: of a picture, and of a pixel if there is a map.
fn check_anomaly(draft: &LayoutDraft) -> Result<()> {
    let Some(range) = &draft.anomaly else { return Ok(()) };
    let has_map = draft.outputs.iter().any(|output| kind(output) == Some(OutputKind::Map));
    let what = match range.pixel_threshold {
        _ if draft.task != Task::Anomaly => {
            format!("[anomaly] is for the task “anomaly”, and here it is “{}”. Leave it out", draft.task.name())
        }
        None if has_map => {
            "[anomaly] needs pixel-threshold, from which on a pixel of the map is an anomaly: pixel_threshold in the metadata.json \
             of Anomalib 1"
                .into()
        }
        Some(_) if !has_map => "pixel-threshold is for a map, and there is a score alone. Leave it out".into(),
        _ => return Ok(()),
    };
    Err(draft.text.error(draft.anomaly_at, what))
}

/// Heads that say something of the picture as a whole, or of its pixels.
fn check_whole(draft: &LayoutDraft) -> Result<()> {
    let output = &draft.outputs[0];
    let task = draft.task.name();
    let wanted = match (draft.task, kind(output), &output.columns[..]) {
        (Task::Classify, Some(OutputKind::Picture), [Column::Classes])
        | (Task::Embed, Some(OutputKind::Picture), [Column::Vector])
        | (Task::Semantic, Some(OutputKind::ClassMaps), _)
        | (Task::Semantic, Some(OutputKind::Map), [Column::ClassId { .. }])
        | (Task::Depth, Some(OutputKind::Map), [Column::Depth])
        | (Task::TextDetect, Some(OutputKind::Map), [Column::TextScore])
            if draft.outputs.len() == 1 =>
        {
            None
        }
        (Task::Text, Some(OutputKind::Rows), [column])
            if column.are_characters() && draft.outputs.len() == 1 && output.dims.last() == Some(&Dim::Columns) =>
        {
            None
        }
        (Task::Anomaly, Some(OutputKind::Map), [Column::AnomalyScore]) if is_score(&draft.outputs[1..]) => None,
        (Task::Anomaly, ..) if is_score(&draft.outputs) => None,
        (Task::Anomaly, ..) => Some(
            "an output of the dims batch one height width, and behind it one of the dims batch, both with anomaly-score; or the latter \
             alone",
        ),
        (Task::Text, ..) => {
            Some("one output of the dims batch rows columns, or rows one columns, with characters or slots")
        }
        (Task::TextDetect, ..) => Some("one output of the dims batch one height width, with text-score"),
        (Task::Classify, ..) => Some("one output of the dims batch columns, with classes"),
        (Task::Embed, ..) => Some("one output of the dims batch columns, with vector"),
        (Task::Semantic, ..) => Some(
            "one output, of the dims batch one height width with class-id, or batch columns height width with classes",
        ),
        _ => Some("one output of the dims batch one height width, with depth"),
    };
    if let Some(wanted) = wanted {
        return Err(draft.text.error(output.at, format!("the task “{task}” needs {wanted}")));
    }
    let unused = [
        (draft.suppress.is_some(), draft.suppress_at, "suppression"),
        (draft.grid.is_some(), draft.grid_at, "grid"),
        (draft.keypoints.is_some(), draft.keypoints_at, "keypoints"),
    ];
    match unused.into_iter().find(|(is_set, ..)| *is_set) {
        Some((_, at, key)) => {
            Err(draft.text.error(at, format!("{key} is for boxes, and the task “{task}” has none. Leave it out")))
        }
        None => Ok(()),
    }
}

/// Whether these are one output: a score of each picture.
fn is_score(outputs: &[OutputDraft]) -> bool {
    matches!(outputs, [score] if kind(score) == Some(OutputKind::PictureNumber) && score.columns == [Column::AnomalyScore])
}

/// Where a column of a head with boxes is, and that it is there once.
struct BoxColumns<'a> {
    draft: &'a LayoutDraft<'a>,
}

impl<'a> BoxColumns<'a> {
    fn find(&self, is_it: impl Fn(Column) -> bool) -> Option<&'a OutputDraft> {
        self.draft.outputs.iter().find(|output| output.columns.iter().any(|&column| is_it(column)))
    }

    fn error(&self, at: usize, what: impl Into<String>) -> Error {
        self.draft.text.error(at, what.into())
    }
}

fn check_boxes(draft: &LayoutDraft) -> Result<()> {
    let columns = BoxColumns { draft };
    for (i, output) in draft.outputs.iter().enumerate() {
        let before = || draft.outputs[..i].iter().flat_map(|output| &output.columns);
        let again = output.columns.iter().find(|column| {
            !matches!(column, Column::Ignored { .. }) && before().any(|other| word_of(*other) == word_of(**column))
        });
        if let Some(column) = again {
            return Err(columns.error(output.at, format!("“{}” is in two outputs", word_of(*column))));
        }
        if output.columns.iter().any(|column| column.are_characters()) {
            let what = format!("characters are for the task “text”, and here it is “{}”", draft.task.name());
            return Err(columns.error(output.at, what));
        }
        let is_whole = matches!(kind(output), Some(OutputKind::Picture | OutputKind::Map | OutputKind::ClassMaps));
        if is_whole || output.columns == [Column::AnomalyScore] {
            let what = format!("an output of these dims has no boxes, as the task “{}” needs", draft.task.name());
            return Err(columns.error(output.at, what));
        }
    }
    let Some(boxes) = columns.find(|column| matches!(column, Column::Box(_))) else {
        return Err(columns.error(draft.task_at, format!("the task “{}” needs a box in a row", draft.task.name())));
    };
    let encoding = boxes.columns.iter().find_map(|column| match column {
        Column::Box(encoding) => Some(*encoding),
        _ => None,
    });
    let scores = check_scores(&columns, boxes)?;
    check_grid(&columns, encoding.unwrap_or(BoxEncoding::Corners), scores)?;
    check_task(&columns)?;
    check_suppression(&columns)
}

/// Returns whether rows have a score for each class, which may be a logit.
fn check_scores(columns: &BoxColumns, boxes: &OutputDraft) -> Result<bool> {
    let find = |column: Column| columns.find(|other| other == column);
    let classes = find(Column::Classes);
    let objectness = columns.find(Column::is_objectness);
    let kinds = [Column::Objectness, Column::RootObjectness, Column::ObjectnessLogit];
    if kinds.into_iter().filter(|&kind| find(kind).is_some()).count() > 1 {
        let what = "a row has one of objectness, root-objectness and objectness-logit";
        return Err(columns.error(boxes.at, what));
    }
    let logits = columns.find(|column| matches!(column, Column::Logits { .. }));
    let score = find(Column::Score);
    let id = columns.find(|column| matches!(column, Column::ClassId { .. }));
    let scores = match (classes, logits, score, id) {
        (Some(output), None, None, None) | (None, Some(output), None, None) => Some(output),
        (None, None, Some(_), Some(_)) => None,
        _ => {
            let what = "a box has its class in one of three ways: classes, or logits, or score and class-id";
            let found = [classes, logits, score, id].into_iter().flatten().next();
            return Err(columns.error(found.map_or(boxes.at, |output| output.at), what));
        }
    };
    let Some(scores) = scores else {
        if let Some(output) = objectness {
            let what = "objectness goes with classes. Of rows with score and class-id, the score has it already";
            return Err(columns.error(output.at, what));
        }
        if let Some(output) = find(Column::Picture)
            && (output.dims.contains(&Dim::Batch) || !output.dims.contains(&Dim::Columns))
        {
            let what = "picture is for rows of all pictures of a batch: dims = [\"rows\", \"columns\"]";
            return Err(columns.error(output.at, what));
        }
        return Ok(false);
    };
    let ids_only = [find(Column::Count), find(Column::Picture)].into_iter().flatten().next();
    if let Some(output) = ids_only {
        let what = "count and picture are for rows with score and class-id";
        return Err(columns.error(output.at, what));
    }
    for output in [boxes, scores] {
        if output.dims.first() != Some(&Dim::Batch) {
            return Err(columns.error(output.at, "rows with a score for each class begin with the dimension “batch”"));
        }
    }
    if logits.is_some() {
        let is_alone = matches!(scores.columns[..], [Column::Logits { .. }]);
        let are_rows = scores.dims.iter().rev().find(|dim| **dim != Dim::One) == Some(&Dim::Columns);
        if !is_alone || !are_rows && !scores.dims.contains(&Dim::Cells) {
            let what = "logits have an output to themselves, [\"batch\", \"rows\", \"columns\"]";
            return Err(columns.error(scores.at, what));
        }
    }
    if let Some(output) = objectness {
        let is_of_cells = [output, scores].iter().all(|output| output.dims.contains(&Dim::Cells));
        let is_with_classes = (std::ptr::eq(output, scores) || is_of_cells) && logits.is_none();
        if !is_with_classes || scores.dims == COLUMNS_OF_ROWS {
            let what = "objectness lies in the rows of the classes, whose dims end with “columns”";
            return Err(columns.error(output.at, what));
        }
    }
    if scores.dims.len() > 3
        && scores.dims.iter().position(|&dim| dim == Dim::Columns)
            < scores.dims.iter().position(|&dim| dim == Dim::Rows)
    {
        return Err(columns.error(scores.at, "classes in columns of rows have the dims batch, columns, rows alone"));
    }
    Ok(true)
}

/// Encodings that count in cells, and outputs for each stride, need the grid.
fn check_grid(columns: &BoxColumns, encoding: BoxEncoding, has_scores: bool) -> Result<()> {
    let draft = columns.draft;
    let at = draft.outputs[0].at;
    let example = "[grid] with strides = [8, 16, 32]";
    let by_cells = draft.outputs.iter().filter(|output| output.dims.contains(&Dim::Cells)).count();
    if encoding.is_of_cells() {
        match &draft.grid {
            _ if !has_scores => {
                return Err(columns.error(at, "boxes in cells go with classes or logits, and not with class ids"));
            }
            None => return Err(columns.error(at, format!("boxes in cells need {example}"))),
            Some(grid) => check_priors(columns, grid, encoding)?,
        }
    }
    if let Some(output) = columns.find(|column| column == Column::CellKeypoints)
        && !encoding.is_of_cells()
    {
        return Err(columns.error(output.at, "cell-keypoints go with a box that is told from its cell"));
    }
    if by_cells == 0 {
        return Ok(());
    }
    if draft.grid.is_none() {
        return Err(columns.error(at, format!("outputs for each stride need {example}")));
    }
    for output in &draft.outputs {
        let foreign = output.columns.iter().find(|column| {
            let is_read = matches!(column, Column::Box(_) | Column::Ignored { .. });
            !is_read && !column.are_scores() && !column.is_objectness() && !column.are_keypoints()
        });
        let what = match foreign {
            _ if !output.dims.contains(&Dim::Cells) => {
                "of outputs for each stride, all have the dimension “cells”".into()
            }
            _ if output.shape.is_some() => "outputs for each stride differ in their shape. Leave it out".into(),
            Some(column) => format!("“{}” is not read from outputs for each stride", word_of(*column)),
            None => continue,
        };
        return Err(columns.error(output.at, what));
    }
    Ok(())
}

/// Each of the encodings of boxes in cells has priors of its own, or none.
fn check_priors(columns: &BoxColumns, grid: &StrideGrid, encoding: BoxEncoding) -> Result<()> {
    let has = match (grid.priors.is_empty(), grid.boxes.is_empty()) {
        (true, true) => "there are none",
        (false, _) => "here they are single numbers",
        (true, false) => "here they are width and height",
    };
    let what = match encoding {
        BoxEncoding::PriorOffsets if grid.priors.is_empty() => {
            format!(
                "boxes as prior-offsets need priors: the side of the square around each anchor, like [16, 32]; {has}"
            )
        }
        BoxEncoding::PriorLogits if grid.boxes.is_empty() => {
            format!(
                "boxes as prior-logits need priors: width and height of each anchor, like [[10, 13], [16, 30]]; {has}"
            )
        }
        BoxEncoding::PriorOffsets | BoxEncoding::PriorLogits => return Ok(()),
        _ if grid.priors.is_empty() && grid.boxes.is_empty() => return Ok(()),
        _ => "priors are for boxes as prior-offsets or prior-logits. Leave them out, or choose one of these encodings"
            .into(),
    };
    Err(columns.error(columns.draft.priors_at, what))
}

/// What objects of a task have besides a box.
fn check_task(columns: &BoxColumns) -> Result<()> {
    let draft = columns.draft;
    let prototypes = draft.outputs.iter().find(|output| output.dims.contains(&Dim::Prototypes));
    let coefficients = columns.find(|column| column == Column::Coefficients);
    let masks = columns.find(|column| matches!(column, Column::Mask(_)));
    match (coefficients, prototypes) {
        (Some(output), None) => {
            let what =
                "coefficients need an output with prototypes: [\"batch\", \"prototypes\", \"height\", \"width\"]";
            return Err(columns.error(output.at, what));
        }
        (None, Some(output)) => return Err(columns.error(output.at, "prototypes need coefficients in a row")),
        (Some(_), Some(output)) if masks.is_some() => {
            return Err(columns.error(output.at, "masks are maps of rows, or sums of prototypes, not both"));
        }
        _ => {}
    }
    let parts = [
        (Task::Pose, columns.find(Column::are_keypoints), "keypoints"),
        (Task::Obb, columns.find(|column| column == Column::Angle), "an angle"),
        (Task::Segment, masks.or(coefficients), "masks, or coefficients and prototypes"),
    ];
    for (task, output, what) in parts {
        match output {
            None if draft.task == task => {
                return Err(columns.error(draft.task_at, format!("the task “{}” needs {what}", task.name())));
            }
            Some(output) if draft.task != task => {
                let what =
                    format!("{what}: only with the task “{}”, and here it is “{}”", task.name(), draft.task.name());
                return Err(columns.error(output.at, what));
            }
            _ => {}
        }
    }
    if draft.keypoints.is_some() && draft.task != Task::Pose {
        return Err(columns.error(draft.keypoints_at, "keypoints are for the task “pose”. Leave them out"));
    }
    Ok(())
}

fn check_suppression(columns: &BoxColumns) -> Result<()> {
    let draft = columns.draft;
    let is_rotated = columns.find(|column| column == Column::Angle).is_some();
    match draft.suppress {
        None => Err(columns.error(
            0,
            "the key suppression is missing: \"none\" if the model gives each object once, else \"iou\", for rotated boxes \
             \"rotated-iou\"",
        )),
        Some(Suppress::Iou) if is_rotated => {
            Err(columns.error(draft.suppress_at, "rotated boxes have suppression = \"rotated-iou\" or \"none\""))
        }
        Some(Suppress::RotatedIou) if !is_rotated => {
            Err(columns.error(draft.suppress_at, "suppression = \"rotated-iou\" is for boxes with an angle"))
        }
        Some(_) => Ok(()),
    }
}
