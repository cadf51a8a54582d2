// SPDX-License-Identifier: MPL-2.0
//! The file of JSON lines.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::failure::Failure;
use crate::output::{cannot_make, cannot_write, create_part, finish_part, is_stream, part, replaceable};

/// JSON lines, written to a file that gets its name once it is whole, or to stdout, a device or a pipe. Frames of several sources
/// may write.
pub struct JsonLines {
    /// The file that is to be.
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
        let unwritten = |error: io::Error| cannot_make(path, &error);
        let (to, path): (Box<dyn Write + Send>, _) = if path == Path::new("-") {
            (Box::new(io::LineWriter::new(io::stdout())), None)
        } else if is_stream(path) {
            (Box::new(io::LineWriter::new(OpenOptions::new().write(true).open(path).map_err(unwritten)?)), None)
        } else {
            let file = replaceable(path)?;
            (Box::new(BufWriter::new(create_part(&file).map_err(unwritten)?)), Some(file))
        };
        Ok(JsonLines { path, writer: Mutex::new(Writer { to, error: None }) })
    }

    /// Lines that nobody wants.
    pub fn nowhere() -> Self {
        JsonLines { path: None, writer: Mutex::new(Writer { to: Box::new(io::sink()), error: None }) }
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
            Some(error) => Err(cannot_write("the JSON lines", error)),
            None => Ok(()),
        }
    }

    /// Whether the reader of stdout or of a pipe has left, as `head` does. That is no failure, but the end.
    pub fn has_lost_its_reader(&self) -> bool {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.path.is_none() && writer.error.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Gives the file its name.
    pub fn finish(&self) -> Result<(), Failure> {
        self.check()?;
        let flushed = self.writer.lock().unwrap_or_else(PoisonError::into_inner).to.flush();
        flushed.map_err(|error| cannot_write("the JSON lines", &error))?;
        let Some(path) = &self.path else { return Ok(()) };
        let renamed = finish_part(path);
        renamed.map_err(|error| cannot_write(path.display(), &error))
    }

    /// Removes what was written: it is no result. Not left to `Drop`, for probes of a pipeline hold this longer than
    /// the program may run.
    pub fn discard(&self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(part(path)); // it is gone where it has got its name
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that is full until something is deleted.
    struct Full(u32);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 -= 1;
            if self.0 == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_was_not_written_is_an_error_at_the_end() {
        let lines = JsonLines { path: None, writer: Mutex::new(Writer { to: Box::new(Full(3)), error: None }) };
        lines.write(&Value::Null);
        assert!(lines.check().is_ok());
        (0..9).for_each(|_| lines.write(&Value::Null));
        let failure = lines.finish().unwrap_err().to_string();
        assert!(failure.starts_with("Cannot write the JSON lines: "), "{failure}");
        assert!(failure.ends_with("Make room on that disk, or write to another one."), "{failure}");
    }
}
