// SPDX-License-Identifier: MPL-2.0
//! Rows as columns of Parquet: what is null, and what is a list, is told by levels.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::failure::Failure;
use crate::output::cannot_write;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellType {
    Text,
    Int32,
    Int64,
    Float32,
    Float64,
    Floats,
    Texts,
    /// A list of numbers, some of which may be unknown.
    Int32s,
    /// A list of structures with these fields, none of which is such a list.
    Structures(&'static [ColumnName]),
}

impl CellType {
    fn is_list(self) -> bool {
        matches!(self, CellType::Floats | CellType::Texts | CellType::Int32s | CellType::Structures(_))
    }
}

pub type ColumnName = (&'static str, CellType);

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Null,
    Text(String),
    Int32(i32),
    Int64(i64),
    Float32(f32),
    Float64(f64),
    Floats(Vec<f32>),
    Texts(Vec<String>),
    Int32s(Vec<Option<i32>>),
    Structures(Vec<Vec<Cell>>),
}

macro_rules! cell_of {
    ($($kind:ty => $cell:ident),*) => {$(
        impl From<$kind> for Cell {
            fn from(value: $kind) -> Self {
                Cell::$cell(value)
            }
        }
    )*};
}

cell_of!(
    String => Text, i32 => Int32, i64 => Int64, f32 => Float32, f64 => Float64, Vec<f32> => Floats, Vec<String> => Texts,
    Vec<Option<i32>> => Int32s
);

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, T::into)
    }
}

/// So many values are kept until they are written as a group of rows: some 100 000 rows of objects, in 30 MB.
const VALUES_A_GROUP: usize = 2_500_000;
/// The same of bytes of texts: those of a mask may be kilobytes.
const TEXT_A_GROUP: usize = 64 << 20;

/// A file of rows. `W` is written to the end, where its index is.
pub struct ParquetFile<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<LeafColumn>,
    names: &'static [ColumnName],
}

impl<W: Write + Send> ParquetFile<W> {
    pub fn create(to: W, names: &'static [ColumnName]) -> Result<Self> {
        let schema = Arc::new(parse_message_type(&schema_text(names))?);
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("gst-trt ", env!("CARGO_PKG_VERSION")).into())
            .build();
        let writer = SerializedFileWriter::new(to, schema, Arc::new(properties))?;
        Ok(ParquetFile { writer, columns: leaves(names, false), names })
    }

    /// A row has a cell for each column.
    pub fn add(&mut self, row: &[Cell]) -> Result<()> {
        let mut columns = self.columns.iter_mut();
        for ((_, kind), cell) in self.names.iter().zip(row) {
            match kind {
                CellType::Structures(fields) => add_structures(columns.by_ref().take(fields.len()).collect(), cell),
                _ => columns.next().expect("one for each name").add(cell, NestingLevels::default()),
            }
        }
        let sum = |of: fn(&LeafColumn) -> usize| self.columns.iter().map(of).sum::<usize>();
        let is_full =
            sum(|column| column.definitions.len()) >= VALUES_A_GROUP || sum(|column| column.text_bytes) >= TEXT_A_GROUP;
        if is_full { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let mut writer = group.next_column()?.expect("one for each leaf of the schema");
            column.write(writer.untyped())?;
            writer.close()?;
            column.clear();
        }
        group.close().map(drop)
    }

    pub fn finish(mut self) -> Result<()> {
        if self.columns.iter().any(|column| !column.definitions.is_empty()) {
            self.write_group()?;
        }
        self.writer.close().map(drop)
    }
}

/// That a table cannot be written: the reason of the disk is as it is.
pub fn unwritten(path: &Path, error: &ParquetError) -> Failure {
    let of_disk = match error {
        ParquetError::External(error) => error.downcast_ref::<io::Error>(),
        _ => None,
    };
    match of_disk {
        Some(error) => cannot_write(path.display(), error),
        None => format!("Cannot write {}: {error}.", path.display()).into(),
    }
}

/// The schema as Parquet's own text. All may be null, as in Arrow's tables.
fn schema_text(names: &[ColumnName]) -> String {
    fn field((name, kind): &ColumnName) -> String {
        let list = |element: &str| format!("OPTIONAL group {name} (LIST) {{ REPEATED group list {{ {element} }} }}");
        match kind {
            CellType::Text => format!("OPTIONAL BYTE_ARRAY {name} (STRING);"),
            CellType::Int32 => format!("OPTIONAL INT32 {name};"),
            CellType::Int64 => format!("OPTIONAL INT64 {name};"),
            CellType::Float32 => format!("OPTIONAL FLOAT {name};"),
            CellType::Float64 => format!("OPTIONAL DOUBLE {name};"),
            CellType::Floats => list("OPTIONAL FLOAT element;"),
            CellType::Texts => list("OPTIONAL BYTE_ARRAY element (STRING);"),
            CellType::Int32s => list("OPTIONAL INT32 element;"),
            CellType::Structures(fields) => {
                let fields: String = fields.iter().map(field).collect();
                list(&format!("OPTIONAL group element {{ {fields} }}"))
            }
        }
    }
    let fields: String = names.iter().map(field).collect();
    format!("message schema {{ {fields} }}")
}

/// A column for each name, and for each field of structures.
fn leaves(names: &[ColumnName], is_in_list: bool) -> Vec<LeafColumn> {
    let columns = names.iter().flat_map(|(_, kind)| match kind {
        CellType::Structures(fields) => leaves(fields, true),
        kind => vec![LeafColumn::new(*kind, is_in_list || kind.is_list())],
    });
    columns.collect()
}

/// How deep a value is in lists: `definition` counts what is there around it, `repetition` is that of the list in which it follows
/// another one, and `depth` how many lists are around it.
#[derive(Clone, Copy, Default)]
struct NestingLevels {
    definition: i16,
    repetition: i16,
    depth: i16,
}

/// A column of a group of rows.
struct LeafColumn {
    values: LeafValues,
    /// Of all its texts.
    text_bytes: usize,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    is_in_list: bool,
}

/// Those that are there.
enum LeafValues {
    Text(Vec<ByteArray>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
}

impl LeafColumn {
    fn new(kind: CellType, is_in_list: bool) -> Self {
        let values = match kind {
            CellType::Text | CellType::Texts => LeafValues::Text(Vec::new()),
            CellType::Int32 | CellType::Int32s => LeafValues::Int32(Vec::new()),
            CellType::Int64 => LeafValues::Int64(Vec::new()),
            CellType::Float32 | CellType::Floats => LeafValues::Float32(Vec::new()),
            CellType::Float64 => LeafValues::Float64(Vec::new()),
            CellType::Structures(_) => unreachable!("structures are made of leaves"),
        };
        LeafColumn { values, text_bytes: 0, definitions: Vec::new(), repetitions: Vec::new(), is_in_list }
    }

    fn level(&mut self, definition: i16, repetition: i16) {
        self.definitions.push(definition);
        self.repetitions.push(repetition);
    }

    /// The values of a list that has some, and whether each of them is there.
    fn list(&mut self, are_there: impl Iterator<Item = bool>, around: NestingLevels) {
        for (at, is_there) in are_there.enumerate() {
            let repetition = if at == 0 { around.repetition } else { around.depth + 1 };
            self.level(around.definition + if is_there { 3 } else { 2 }, repetition);
        }
    }

    /// A null, a value or a list of values, where the levels are those of what is around it.
    fn add(&mut self, cell: &Cell, around: NestingLevels) {
        let NestingLevels { definition, repetition, .. } = around;
        match (cell, &mut self.values) {
            (Cell::Text(text), LeafValues::Text(values)) => {
                values.push(text.as_str().into());
                self.text_bytes += text.len();
            }
            (Cell::Int32(number), LeafValues::Int32(values)) => values.push(*number),
            (Cell::Int64(number), LeafValues::Int64(values)) => values.push(*number),
            (Cell::Float32(number), LeafValues::Float32(values)) => values.push(*number),
            (Cell::Float64(number), LeafValues::Float64(values)) => values.push(*number),
            (Cell::Floats(numbers), LeafValues::Float32(values)) if !numbers.is_empty() => {
                values.extend(numbers);
                return self.list(numbers.iter().map(|_| true), around);
            }
            (Cell::Texts(texts), LeafValues::Text(values)) if !texts.is_empty() => {
                values.extend(texts.iter().map(|text| ByteArray::from(text.as_str())));
                self.text_bytes += texts.iter().map(String::len).sum::<usize>();
                return self.list(texts.iter().map(|_| true), around);
            }
            (Cell::Int32s(numbers), LeafValues::Int32(values)) if !numbers.is_empty() => {
                values.extend(numbers.iter().flatten());
                return self.list(numbers.iter().map(Option::is_some), around);
            }
            (Cell::Floats(numbers), LeafValues::Float32(_)) if numbers.is_empty() => {}
            (Cell::Texts(texts), LeafValues::Text(_)) if texts.is_empty() => {}
            (Cell::Int32s(numbers), LeafValues::Int32(_)) if numbers.is_empty() => {}
            (cell, _) => {
                debug_assert_eq!(*cell, Cell::Null, "a cell of another type than its column");
                return self.level(definition, repetition);
            }
        }
        self.level(definition + 1, repetition);
    }

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        let definitions = Some(&*self.definitions);
        // Parquet has none where there is no list.
        let repetitions = self.is_in_list.then_some(&*self.repetitions);
        match (&self.values, writer) {
            (LeafValues::Text(values), ColumnWriter::ByteArrayColumnWriter(to)) => {
                to.write_batch(values, definitions, repetitions)
            }
            (LeafValues::Int32(values), ColumnWriter::Int32ColumnWriter(to)) => {
                to.write_batch(values, definitions, repetitions)
            }
            (LeafValues::Int64(values), ColumnWriter::Int64ColumnWriter(to)) => {
                to.write_batch(values, definitions, repetitions)
            }
            (LeafValues::Float32(values), ColumnWriter::FloatColumnWriter(to)) => {
                to.write_batch(values, definitions, repetitions)
            }
            (LeafValues::Float64(values), ColumnWriter::DoubleColumnWriter(to)) => {
                to.write_batch(values, definitions, repetitions)
            }
            _ => unreachable!("the schema is made of the same names"),
        }
        .map(drop)
    }

    fn clear(&mut self) {
        match &mut self.values {
            LeafValues::Text(values) => values.clear(),
            LeafValues::Int32(values) => values.clear(),
            LeafValues::Int64(values) => values.clear(),
            LeafValues::Float32(values) => values.clear(),
            LeafValues::Float64(values) => values.clear(),
        }
        self.text_bytes = 0;
        self.definitions.clear();
        self.repetitions.clear();
    }
}

/// A list of structures, whose fields have a column each.
fn add_structures(columns: Vec<&mut LeafColumn>, cell: &Cell) {
    let list = match cell {
        Cell::Structures(list) if !list.is_empty() => list,
        cell => {
            let definition = if *cell == Cell::Null { 0 } else { 1 };
            return columns.into_iter().for_each(|column| column.level(definition, 0));
        }
    };
    for (number, column) in columns.into_iter().enumerate() {
        for (at, fields) in list.iter().enumerate() {
            column.add(&fields[number], NestingLevels { definition: 3, repetition: i16::from(at > 0), depth: 1 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Masks of 100 000 objects would take a gigabyte.
    #[test]
    fn long_texts_are_written_before_there_are_many_values() {
        const COLUMNS: &[ColumnName] = &[("label", CellType::Text), ("attributes", CellType::Texts)];
        let mut file = ParquetFile::create(io::sink(), COLUMNS).unwrap();
        let row = [Cell::Text("four".into()), Cell::Texts(vec!["two".into(), "three".into()])];
        file.add(&row).unwrap();
        assert_eq!([file.columns[0].text_bytes, file.columns[1].text_bytes], [4, 8]);
        file.columns[0].text_bytes = TEXT_A_GROUP - 24;
        file.add(&row).unwrap();
        assert!(file.columns.iter().all(|column| column.text_bytes > 0), "there is room for four more");
        file.add(&row).unwrap();
        assert!(file.columns.iter().all(|column| column.text_bytes == 0 && column.definitions.is_empty()));
        file.finish().unwrap();
    }
}
