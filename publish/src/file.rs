// SPDX-License-Identifier: MPL-2.0
//! Lines in a file. A full one is renamed to `NAME.1`, that one to `NAME.2`, and so on.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use gsttrt_core::error::{Error, ErrorKind, Result};

use super::address::Address;
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;

struct LineFile {
    path: PathBuf,
    file: Option<File>,
    /// Bytes of whole lines.
    length: u64,
    /// 0 for no limit.
    max_size: u64,
    max_files: u32,
}

pub fn open(address: &Address, options: &PublishOptions) -> Result<Box<dyn Destination>> {
    let path = PathBuf::from(&address.path);
    let mut file =
        LineFile { path, file: None, length: 0, max_size: options.max_file_size, max_files: options.max_files };
    // A name that cannot be written to is better known before the first frame.
    file.reopen().map_err(|error| {
        Error::new(ErrorKind::Settings, format!("Cannot write to {}", address.shown()))
            .cause(error)
            .remedy("Check the path of location, its folder and permissions")
    })?;
    Ok(Box::new(file))
}

impl LineFile {
    fn reopen(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        let metadata = file.metadata()?;
        self.length = if metadata.is_file() { metadata.len() } else { 0 };
        // A pipe or a device has no size.
        if !metadata.is_file() {
            self.max_size = 0;
        }
        self.file = Some(file);
        Ok(())
    }

    /// The name of a full file.
    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        name.into()
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file = None;
        if self.max_files == 0 {
            std::fs::remove_file(&self.path)?;
        } else {
            // From the first gap on, the names are free.
            let last = (1..self.max_files).find(|&number| !self.numbered(number).exists()).unwrap_or(self.max_files);
            for number in (1..last).rev() {
                std::fs::rename(self.numbered(number), self.numbered(number + 1))?;
            }
            std::fs::rename(&self.path, self.numbered(1))?;
        }
        self.reopen()
    }

    /// Writes whole lines, or none of them.
    fn write(&mut self, lines: &str) -> io::Result<()> {
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let written = file.write_all(lines.as_bytes());
        if written.is_err() {
            // Half a line would spoil the next one, too.
            let _ = file.set_len(self.length);
        } else {
            self.length += lines.len() as u64;
        }
        written
    }
}

impl Destination for LineFile {
    fn connect(&mut self) -> io::Result<()> {
        // What is open is kept: it may be a pipe, whose reader would see an end.
        if self.file.is_some() { Ok(()) } else { self.reopen() }
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        let mut lines = String::new();
        let mut written = 0;
        for (number, message) in messages.iter().enumerate() {
            let size = self.length + lines.len() as u64;
            if self.max_size > 0 && size > 0 && size + message.len() as u64 + 1 > self.max_size {
                self.write(&lines).map_err(|error| Undelivered::after(written, error))?;
                written = number;
                lines.clear();
                self.rotate().map_err(|error| Undelivered::after(written, error))?;
            }
            lines.push_str(message);
            lines.push('\n');
        }
        self.write(&lines).map_err(|error| Undelivered::after(written, error))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::scratch;
    use super::*;

    fn read(path: impl AsRef<Path>) -> String {
        std::fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn full_files_get_numbers() {
        let folder = scratch("publish-rotation");
        let path = folder.join("out.jsonl");
        let options = PublishOptions {
            location: path.display().to_string(),
            max_file_size: 10,
            max_files: 2,
            ..PublishOptions::default()
        };
        let mut file = super::super::destinations::open(&options).unwrap().destination;
        let messages: Vec<String> = (0..9).map(|number| format!("line{number}")).collect();
        file.send(&messages[..4]).unwrap();
        let at = |number: u32| read(format!("{}.{number}", path.display()));
        assert_eq!((read(&path), at(1), at(2)), ("line3\n".into(), "line2\n".into(), "line1\n".into()));
        assert_eq!(at(3), "");
        file.send(&["x".repeat(100), "y".into()]).unwrap();
        assert_eq!((read(&path), at(1).len(), at(2)), ("y\n".into(), 101, "line3\n".into()), "a long line is whole");
        // It goes on where it was.
        let mut file = super::super::destinations::open(&options).unwrap().destination;
        file.connect().unwrap();
        file.send(&["z".into()]).unwrap();
        assert_eq!(read(&path), "y\nz\n");
    }

    #[test]
    fn a_file_that_cannot_be_is_an_error() {
        let folder = scratch("publish-no-file");
        for path in [folder.clone(), folder.join("none/out.jsonl")] {
            let options = PublishOptions { location: path.display().to_string(), ..PublishOptions::default() };
            let error = super::super::destinations::open(&options).map(|_| ()).unwrap_err();
            assert!(error.message().starts_with("Cannot write to /"), "{error}");
        }
    }
}
