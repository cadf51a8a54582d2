// SPDX-License-Identifier: MPL-2.0
//! The file of JSON lines.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::part;
use crate::failure::Failure;

/// JSON lines, written to a file that gets its name once it is whole, or to stdout. Frames of several sources may write.
pub struct JsonLines {
    /// `None` is stdout.
    path: Option<PathBuf>,
    writer: Mutex<Writer>,
}

struct Writer {
    to: Box<dyn Write + Send>,
    error: Option<io::Error>,
}

impl JsonLines {
    /// `-` is stdout.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let is_stdout = path == Path::new("-");
        let to: Box<dyn Write + Send> = if is_stdout {
            Box::new(io::LineWriter::new(io::stdout()))
        } else {
            let file = File::create(part(path));
            Box::new(BufWriter::new(file.map_err(|error| format!("Cannot write {}: {error}.", path.display()))?))
        };
        let path = (!is_stdout).then(|| path.to_path_buf());
        Ok(JsonLines { path, writer: Mutex::new(Writer { to, error: None }) })
    }

    /// A failure shows in [`JsonLines::check`].
    pub fn write(&self, line: &Value) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.error.is_none() {
            writer.error = writeln!(writer.to, "{line}").err();
        }
    }

    /// The failure of a line, once.
    pub fn check(&self) -> Result<(), Failure> {
        match self.writer.lock().unwrap_or_else(PoisonError::into_inner).error.as_ref() {
            Some(error) => Err(format!("Cannot write the JSON lines: {error}.").into()),
            None => Ok(()),
        }
    }

    /// Gives the file its name.
    pub fn finish(&self) -> Result<(), Failure> {
        self.check()?;
        let flushed = self.writer.lock().unwrap_or_else(PoisonError::into_inner).to.flush();
        flushed.map_err(|error| format!("Cannot write the JSON lines: {error}."))?;
        let Some(path) = &self.path else { return Ok(()) };
        let renamed = std::fs::rename(part(path), path);
        renamed.map_err(|error| format!("Cannot write {}: {error}.", path.display()).into())
    }

    /// Removes what was written: it is no result. Not left to `Drop`, for probes of a pipeline hold this longer than
    /// the program may run.
    pub fn discard(&self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(part(path)); // it is gone where it has got its name
        }
    }
}
