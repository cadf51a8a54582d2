// SPDX-License-Identifier: MPL-2.0
//! `--parquet`: a table of what was found in all sources.

mod columns;
mod rows;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gsttrt_publish::record::FrameRecord;

use crate::failure::Failure;
use crate::output::{cannot_make, cannot_write, create_part, finish_new_part, part, replaceable};
use columns::{Cell, ParquetFile, unwritten};
use rows::RowMaker;

pub use rows::RowSubject;

/// Vectors of two models cannot be compared, and a column does not say which one each is of.
pub const SEVERAL_VECTORS: &str = "Several models give vectors, and a table has one column for them. Leave --vectors out, or write \
                                   --json FILE in place of --parquet.";

/// There is no column for a map.
pub const NO_MAPS: &str = "This model gives a map for each frame, for which a table has no column. Write --json FILE in place of --parquet. Of \
                           anomalies, --nms \"mask-output=none score-threshold=0\" leaves the map out, and the score of each frame is a row.";

/// A table in a file that gets its name once it is whole. Frames of several sources may write.
pub struct ParquetTable {
    path: PathBuf,
    state: Mutex<TableState>,
}

struct TableState {
    rows: RowMaker,
    /// `None` where it could not be written, or is finished.
    file: Option<ParquetFile<Box<dyn Write + Send>>>,
    failure: Option<Failure>,
}

impl ParquetTable {
    /// # Errors
    /// What is there already: a table is the work of hours, and is not replaced.
    pub fn create(path: &Path, subject: RowSubject) -> Result<Self, Failure> {
        let shown = path.display();
        if path == Path::new("-") {
            let text = "Cannot write Parquet to standard output: its index comes last, and is read first. Give the name of a \
                        file, such as found.parquet.";
            return Err(text.into());
        }
        let path = replaceable(path)?;
        if path.exists() {
            return Err(format!("There is a file {shown} already. Give another name, or remove it.").into());
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(format!("Cannot write {shown}: there is no folder {}. Make it first.", folder.display()).into());
        }
        let file = create_part(&path).map_err(|error| cannot_make(&path, &error))?;
        Self::of(path, Box::new(file), subject)
    }

    fn of(path: PathBuf, to: Box<dyn Write + Send>, subject: RowSubject) -> Result<Self, Failure> {
        let file = ParquetFile::create(to, subject.columns());
        let file = file.map_err(|error| unwritten(&path, &error))?;
        let state = TableState { rows: RowMaker::new(subject), file: Some(file), failure: None };
        Ok(ParquetTable { path, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a frame of a source. A failure shows in [`ParquetTable::check`].
    pub fn add(&self, source: &str, frame: &FrameRecord) {
        let mut state = self.lock();
        let is_without_columns = |map: &serde_json::Value| map["kind"] != "objects";
        if frame.maps.iter().flatten().any(is_without_columns) {
            state.failure.get_or_insert_with(|| NO_MAPS.into());
            state.file = None;
        }
        let has_several = frame.objects.iter().any(|object| object.vectors.len() > 1) || frame.vectors.len() > 1;
        if has_several && state.rows.subject() != RowSubject::Tracks {
            state.failure.get_or_insert_with(|| SEVERAL_VECTORS.into());
            state.file = None;
        }
        let rows = state.rows.of_frame(source, frame);
        self.write(&mut state, rows);
    }

    /// A source has ended, and with an error where it could not be read to its end.
    pub fn end(&self, source: &str, error: Option<&str>) {
        let mut state = self.lock();
        let mut rows = state.rows.of_tracks(Some(source));
        rows.extend(error.map(|error| state.rows.of_error(source, error)));
        self.write(&mut state, rows);
    }

    fn write(&self, state: &mut TableState, rows: Vec<Vec<Cell>>) {
        let Some(file) = &mut state.file else { return };
        if let Err(error) = rows.iter().try_for_each(|row| file.add(row)) {
            state.failure = Some(unwritten(&self.path, &error));
            state.file = None;
        }
    }

    /// The first failure.
    pub fn check(&self) -> Result<(), Failure> {
        self.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// Gives the file its name.
    pub fn finish(&self) -> Result<(), Failure> {
        let mut state = self.lock();
        let rows = state.rows.of_tracks(None);
        self.write(&mut state, rows);
        let file = state.file.take();
        let failure = state.failure.clone();
        drop(state);
        let written = match (file, failure) {
            (_, Some(failure)) => Err(failure),
            (Some(file), None) => file.finish().map_err(|error| unwritten(&self.path, &error)),
            (None, None) => Ok(()),
        };
        written.inspect_err(|_| self.discard())?;
        finish_new_part(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let (shown, part) = (self.path.display(), part(&self.path));
                format!("There is a file {shown} by now. The table is {}: give it another name.", part.display()).into()
            }
            _ => {
                self.discard();
                cannot_write(self.path.display(), &error)
            }
        })
    }

    /// Removes what was written: without its index nobody can read it.
    pub fn discard(&self) {
        self.lock().file = None;
        let _ = fs::remove_file(part(&self.path)); // it is gone where it has got its name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A disk with room for so many bytes.
    struct SmallDisk(usize);

    impl Write for SmallDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_an_error_at_the_end_and_leaves_no_file() {
        let folder = crate::scratch::scratch("small-disk");
        let path = folder.join("found.parquet");
        fs::write(part(&path), "half").unwrap();
        let table = ParquetTable::of(path.clone(), Box::new(SmallDisk(10)), RowSubject::Objects).unwrap();
        table.end("a.mp4", Some("Cannot read a.mp4."));
        let failure = table.finish().unwrap_err().to_string();
        assert!(failure.starts_with(&format!("Cannot write {}: ", path.display())), "{failure}");
        assert!(failure.contains("no storage space. Make room on that disk"), "{failure}");
        assert!(!path.exists() && !part(&path).exists());
    }

    /// Of models in engines nothing tells it before.
    #[test]
    fn a_map_of_pixels_is_an_error() {
        let path = crate::scratch::scratch("table-of-maps").join("found.parquet");
        for (kind, is_refused) in [("objects", false), ("classes", true), ("depth", true)] {
            let table = ParquetTable::of(path.clone(), Box::new(SmallDisk(1 << 20)), RowSubject::Objects).unwrap();
            table.add("a.mp4", &FrameRecord { maps: Some(vec![json!({ "kind": kind })]), ..FrameRecord::default() });
            let said = table.check().err().map(|failure| failure.to_string());
            assert_eq!(said.as_deref(), is_refused.then_some(NO_MAPS), "{kind}");
        }
    }

    /// Of models in engines nothing tells it before.
    #[test]
    fn vectors_of_several_models_are_an_error() {
        let path = crate::scratch::scratch("several-vectors").join("found.parquet");
        let frame = |count: usize| FrameRecord { vectors: vec!["AACAPw==".into(); count], ..FrameRecord::default() };
        for (subject, is_refused) in
            [(RowSubject::Objects, true), (RowSubject::Frames, true), (RowSubject::Tracks, false)]
        {
            let table = ParquetTable::of(path.clone(), Box::new(SmallDisk(1 << 20)), subject).unwrap();
            table.add("a.mp4", &frame(1));
            assert!(table.check().is_ok(), "{subject:?}");
            table.add("a.mp4", &frame(2));
            let said = table.check().err().map(|failure| failure.to_string());
            assert_eq!(said.as_deref(), is_refused.then_some(SEVERAL_VECTORS), "{subject:?}");
        }
    }

    #[test]
    fn what_is_there_is_not_replaced() {
        let folder = crate::scratch::scratch("parquet-names");
        let there = folder.join("there.parquet");
        fs::write(&there, "kept").unwrap();
        for (path, part) in [
            (there.clone(), "There is a file"),
            (folder.clone(), "it is a folder"),
            (folder.join("none/found.parquet"), "there is no folder"),
            (PathBuf::from("-"), "Cannot write Parquet to standard output"),
            (PathBuf::from("/dev/null"), "it is a device or a pipe"),
            (PathBuf::from("/proc/found.parquet"), "no file can be made in /proc. Give a place in another folder."),
        ] {
            let failure = ParquetTable::create(&path, RowSubject::Objects).err().unwrap().to_string();
            assert!(failure.contains(part), "{failure}");
        }
        assert_eq!(fs::read_to_string(&there).unwrap(), "kept");
    }
}
