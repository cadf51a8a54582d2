// SPDX-License-Identifier: MPL-2.0
//! What the numbers of a row are, in order or by their places.

use std::ops::RangeInclusive;

use toml::de::DeValue;

use super::table::{KeyReader, LayoutText, must_be, whole, word};
use crate::error::Result;
use crate::heads::{BoxEncoding, Column, ColumnSizes};
use crate::image::keypoints::KeypointShape;
use crate::image::masks::maps::MapOver;

/// Columns of an output that a file lists, and numbers that a row may have.
pub(super) const MAX_LISTED: usize = 64;
pub(super) const MAX_NUMBERS: i64 = 1 << 20;
/// Scores of a row: class ids stay below this.
const MAX_CLASSES: i64 = 1 << 16;

/// Columns whose width depends on the model, where a file says how wide they are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ColumnCounts {
    pub classes: Option<usize>,
    pub coefficients: Option<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum ColumnWord {
    Box,
    Objectness,
    RootObjectness,
    ObjectnessLogit,
    Classes,
    Logits,
    Score,
    ClassId,
    Keypoints,
    CellKeypoints,
    Angle,
    Coefficients,
    Mask,
    Count,
    Picture,
    Depth,
    AnomalyScore,
    TextScore,
    Vector,
    Characters,
    Slots,
    Ignored,
}

const COLUMN_WORDS: [(&str, ColumnWord); 22] = [
    ("box", ColumnWord::Box),
    ("objectness", ColumnWord::Objectness),
    ("root-objectness", ColumnWord::RootObjectness),
    ("objectness-logit", ColumnWord::ObjectnessLogit),
    ("classes", ColumnWord::Classes),
    ("logits", ColumnWord::Logits),
    ("score", ColumnWord::Score),
    ("class-id", ColumnWord::ClassId),
    ("keypoints", ColumnWord::Keypoints),
    ("cell-keypoints", ColumnWord::CellKeypoints),
    ("angle", ColumnWord::Angle),
    ("coefficients", ColumnWord::Coefficients),
    ("mask", ColumnWord::Mask),
    ("count", ColumnWord::Count),
    ("picture", ColumnWord::Picture),
    ("depth", ColumnWord::Depth),
    ("anomaly-score", ColumnWord::AnomalyScore),
    ("text-score", ColumnWord::TextScore),
    ("vector", ColumnWord::Vector),
    ("characters", ColumnWord::Characters),
    ("slots", ColumnWord::Slots),
    ("ignored", ColumnWord::Ignored),
];

/// How boxes are encoded, in the words of files.
pub(super) const ENCODINGS: [(&str, BoxEncoding); 12] = [
    ("corners", BoxEncoding::Corners),
    ("center", BoxEncoding::Center),
    ("center-shares", BoxEncoding::CenterShares),
    ("center-cells", BoxEncoding::CenterCells),
    ("corners-yx-shares", BoxEncoding::CornersYxShares),
    ("corners-shares", BoxEncoding::CornersShares),
    ("corner-distances", BoxEncoding::CornerDistances),
    ("middle-distances", BoxEncoding::MiddleDistances),
    ("corner-edges", BoxEncoding::CornerEdges),
    ("prior-offsets", BoxEncoding::PriorOffsets),
    ("corner-pixels", BoxEncoding::CornerPixels),
    ("prior-logits", BoxEncoding::PriorLogits),
];

/// What the map of a mask covers.
pub(super) const OVERS: [(&str, MapOver); 2] = [("input", MapOver::Input), ("box", MapOver::Box)];

/// Where the blank between characters has its score: whether that is the last one.
pub(super) const BLANKS: [(&str, bool); 2] = [("first", false), ("last", true)];

/// The word of a column, as files have it.
pub(in crate::heads) fn word_of(column: Column) -> &'static str {
    let word = match column {
        Column::Box(_) => ColumnWord::Box,
        Column::Objectness => ColumnWord::Objectness,
        Column::RootObjectness => ColumnWord::RootObjectness,
        Column::ObjectnessLogit => ColumnWord::ObjectnessLogit,
        Column::Classes => ColumnWord::Classes,
        Column::Logits { .. } => ColumnWord::Logits,
        Column::Score => ColumnWord::Score,
        Column::ClassId { .. } => ColumnWord::ClassId,
        Column::Keypoints => ColumnWord::Keypoints,
        Column::CellKeypoints => ColumnWord::CellKeypoints,
        Column::Angle => ColumnWord::Angle,
        Column::Coefficients => ColumnWord::Coefficients,
        Column::Mask(_) => ColumnWord::Mask,
        Column::Count => ColumnWord::Count,
        Column::Picture => ColumnWord::Picture,
        Column::Depth => ColumnWord::Depth,
        Column::AnomalyScore => ColumnWord::AnomalyScore,
        Column::TextScore => ColumnWord::TextScore,
        Column::Vector => ColumnWord::Vector,
        Column::Characters { .. } => ColumnWord::Characters,
        Column::Slots { .. } => ColumnWord::Slots,
        Column::Ignored { .. } => ColumnWord::Ignored,
    };
    COLUMN_WORDS.iter().find(|(_, other)| *other == word).map_or("", |(name, _)| name)
}

/// Columns in words.
pub(super) fn in_words<'a>(columns: impl Iterator<Item = &'a Column>) -> String {
    let named = columns.filter(|column| !matches!(column, Column::Ignored { .. })).map(|column| match column {
        Column::Box(encoding) => {
            let name = ENCODINGS.iter().find(|(_, other)| other == encoding).map_or("", |(name, _)| name);
            format!("box ({name})")
        }
        column => word_of(*column).to_string(),
    });
    named.collect::<Vec<_>>().join(", ")
}

/// A column as it is written: what it is, how many numbers it has where that is known, and where it begins if that is said.
struct WrittenColumn {
    column: Column,
    width: Option<usize>,
    from: Option<(usize, usize)>,
}

/// What else is known of an output whose columns are read.
pub(super) struct Row<'a> {
    pub text: LayoutText<'a>,
    /// Numbers of a row, where the file has the output's shape.
    pub numbers: Option<usize>,
    pub keypoints: Option<KeypointShape>,
}

impl Row<'_> {
    /// The columns of a list, with those between them that are not read. Numbers of a row that are given once are taken over.
    pub fn columns(&self, list: &[(usize, &DeValue)], counts: &mut ColumnCounts) -> Result<Vec<Column>> {
        let (mut columns, mut next, mut open) = (Vec::new(), Some(0usize), None);
        let mut sum = 0; // of those whose width is known
        for &(at, value) in list {
            let written = self.column(at, value, counts)?;
            let word = word_of(written.column);
            if let Some((place, from)) = written.from {
                let Some(next) = &mut next else {
                    let what = format!("at = {from} of “{word}” cannot be checked behind columns whose number is open");
                    return Err(self.text.error(place, format!("{what}. Give those their count")));
                };
                if from < *next {
                    let last = columns.last().map_or("", |column| word_of(*column));
                    let what = format!("“{word}” begins at {from}, and overlaps “{last}”, which ends before {next}");
                    return Err(self.text.error(place, what));
                }
                if from > *next {
                    columns.push(Column::Ignored { count: (from - *next) as u32 });
                    sum += from - *next;
                }
                *next = from;
            }
            match written.width {
                Some(width) => {
                    next = next.map(|next| next + width);
                    sum += width;
                }
                None => {
                    next = None;
                    open = open.or(Some(columns.len()));
                }
            }
            columns.push(written.column);
            let most = self.numbers.unwrap_or(MAX_NUMBERS as usize);
            if sum + usize::from(open.is_some()) > most {
                let what = match next {
                    Some(next) => format!("“{word}” ends behind number {next} of a row"),
                    None => format!("with “{word}” a row has more than {sum} numbers"),
                };
                return Err(self.text.error(at, format!("{what}, and a row has {most}: it would be read outside")));
            }
        }
        let Some(numbers) = self.numbers else { return Ok(columns) };
        let end = list.last().map_or(0, |&(at, _)| at);
        match open {
            None if sum < numbers => {
                let rest = numbers - sum;
                let what = format!("the columns are {sum} numbers of a row, and by its shape it has {numbers}");
                let remedy = format!("Add {{ column = \"ignored\", count = {rest} }} if the others are not to be read");
                Err(self.text.error(end, format!("{what}. {remedy}")))
            }
            // What is left of the row is of the one column whose number is open.
            Some(place) if columns.iter().filter(|column| self.is_open(**column, counts)).count() == 1 => {
                match columns[place] {
                    Column::Classes | Column::Logits { .. } => counts.classes = Some(numbers - sum),
                    Column::Coefficients => counts.coefficients = Some(numbers - sum),
                    _ => {}
                }
                Ok(columns)
            }
            _ => Ok(columns),
        }
    }

    fn is_open(&self, column: Column, counts: &ColumnCounts) -> bool {
        self.width(column, counts).is_none()
    }

    fn width(&self, column: Column, counts: &ColumnCounts) -> Option<usize> {
        match column {
            Column::Classes | Column::Logits { .. } => counts.classes,
            Column::Vector => None,
            other if other.are_characters() => None,
            other => {
                let sizes = ColumnSizes { classes: 0, keypoints: self.keypoints, coefficients: counts.coefficients };
                other.width(&sizes)
            }
        }
    }

    /// A word, or a table with the word and what belongs to it.
    fn column(&self, at: usize, value: &DeValue, counts: &mut ColumnCounts) -> Result<WrittenColumn> {
        const KEYS: [&str; 10] =
            ["column", "encoding", "first", "background", "over", "count", "blank", "space", "pad", "at"];
        let (name, keys) = match value {
            DeValue::String(name) => (word(self.text, at, "column", name, &COLUMN_WORDS)?, None),
            DeValue::Table(table) => {
                let keys = KeyReader::new(self.text, at, table, &KEYS)?;
                let name = keys.word("column", &COLUMN_WORDS)?;
                (name.ok_or_else(|| keys.missing("column", "the word for what the numbers are"))?, Some(keys))
            }
            other => return Err(self.text.error(at, must_be("a column", other, "a word or a table in braces"))),
        };
        let shown = COLUMN_WORDS.iter().find(|(_, other)| *other == name).map_or("", |(shown, _)| shown);
        let own: &[&str] = match name {
            ColumnWord::Box => &["encoding"],
            ColumnWord::ClassId => &["first"],
            ColumnWord::Logits => &["background", "count"],
            ColumnWord::Mask => &["over"],
            ColumnWord::Characters => &["blank", "space"],
            ColumnWord::Slots => &["pad"],
            ColumnWord::Classes | ColumnWord::Coefficients | ColumnWord::Ignored => &["count"],
            _ => &[],
        };
        if let Some(keys) = &keys {
            let foreign = KEYS[1..9].iter().find(|key| keys.value(key).is_some() && !own.contains(key));
            if let Some(key) = foreign {
                return Err(self.text.error(keys.place(key), format!("{key} does not belong to “{shown}”")));
            }
        }
        let needs = |key: &str, example: &str| {
            let what = format!("“{shown}” needs {key}, like {{ column = \"{shown}\", {key} = {example} }}");
            self.text.error(at, what)
        };
        let count = |most: i64| match &keys {
            Some(keys) => Ok(keys.whole("count", 1..=most)?.map(|count| count as usize)),
            None => Ok(None),
        };
        let column = match name {
            ColumnWord::Box => {
                let encoding = keys.map(|keys| keys.word("encoding", &ENCODINGS)).transpose()?.flatten();
                Column::Box(encoding.ok_or_else(|| needs("encoding", "\"corners\""))?)
            }
            ColumnWord::Mask => {
                let over = keys.map(|keys| keys.word("over", &OVERS)).transpose()?.flatten();
                Column::Mask(over.ok_or_else(|| needs("over", "\"input\""))?)
            }
            ColumnWord::Logits => {
                let background = keys.map(|keys| keys.flag("background")).transpose()?.flatten();
                self.take(at, &mut counts.classes, count(MAX_CLASSES)?, shown)?;
                Column::Logits { has_background: background.ok_or_else(|| needs("background", "false"))? }
            }
            ColumnWord::ClassId => {
                let first = keys.map(|keys| keys.whole("first", 0..=255)).transpose()?.flatten();
                Column::ClassId { first: first.unwrap_or(0) as u8 }
            }
            ColumnWord::Classes => {
                self.take(at, &mut counts.classes, count(MAX_CLASSES)?, shown)?;
                Column::Classes
            }
            ColumnWord::Coefficients => {
                self.take(at, &mut counts.coefficients, count(MAX_CLASSES)?, shown)?;
                Column::Coefficients
            }
            ColumnWord::Ignored => {
                let count = count(MAX_NUMBERS)?.ok_or_else(|| needs("count", "1"))?;
                Column::Ignored { count: count as u32 }
            }
            ColumnWord::Objectness => Column::Objectness,
            ColumnWord::Score => Column::Score,
            ColumnWord::RootObjectness => Column::RootObjectness,
            ColumnWord::ObjectnessLogit => Column::ObjectnessLogit,
            ColumnWord::Keypoints => Column::Keypoints,
            ColumnWord::CellKeypoints => Column::CellKeypoints,
            ColumnWord::Angle => Column::Angle,
            ColumnWord::Count => Column::Count,
            ColumnWord::Picture => Column::Picture,
            ColumnWord::Depth => Column::Depth,
            ColumnWord::AnomalyScore => Column::AnomalyScore,
            ColumnWord::TextScore => Column::TextScore,
            ColumnWord::Vector => Column::Vector,
            ColumnWord::Characters => {
                let blank = keys.map(|keys| keys.word("blank", &BLANKS)).transpose()?.flatten();
                let space = keys.map(|keys| keys.flag("space")).transpose()?.flatten();
                let is_blank_last = blank.ok_or_else(|| needs("blank", "\"first\""))?;
                Column::Characters { is_blank_last, has_space: space.unwrap_or(false) }
            }
            ColumnWord::Slots => {
                let pad = keys.map(|keys| keys.text("pad")).transpose()?.flatten();
                let mut pad = pad.unwrap_or_default().chars();
                let only = pad.next().filter(|_| pad.next().is_none());
                Column::Slots { pad: only.ok_or_else(|| needs("pad", "\"_\""))? }
            }
        };
        let from = match &keys {
            Some(keys) => keys.whole("at", 0..=MAX_NUMBERS)?.map(|from| (keys.place("at"), from as usize)),
            None => None,
        };
        Ok(WrittenColumn { column, width: self.width(column, counts), from })
    }

    /// Takes over how many numbers a column has.
    fn take(&self, at: usize, known: &mut Option<usize>, count: Option<usize>, shown: &str) -> Result<()> {
        match (*known, count) {
            (Some(known), Some(count)) if known != count => {
                Err(self.text.error(at, format!("“{shown}” has the count {count} here, and {known} before")))
            }
            _ => {
                *known = known.or(count);
                Ok(())
            }
        }
    }
}

/// Whole numbers of a list, in that range.
pub(super) fn whole_list(
    text: LayoutText,
    key: &str,
    list: &[(usize, &DeValue)],
    range: RangeInclusive<i64>,
) -> Result<Vec<i64>> {
    list.iter().map(|&(at, value)| whole(text, at, key, value, range.clone())).collect()
}
