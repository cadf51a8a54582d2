// SPDX-License-Identifier: MPL-2.0
//! Lines in a file. A full one is renamed to `NAME.1`, that one to `NAME.2`, and so on.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

use gsttrt_core::error::{Error, ErrorKind, Result};

use super::address::Address;
use super::destination::{Destination, Undelivered};
use super::lines::{LineWriter, without_signal};
use super::options::PublishOptions;

struct LineFile {
    path: PathBuf,
    file: Option<File>,
    /// Not a pipe or a device.
    is_regular: bool,
    /// Of a pipe.
    lines: LineWriter,
    timeout: Duration,
    /// 0 for no limit.
    max_size: u64,
    max_files: u32,
}

pub fn open(address: &Address, options: &PublishOptions) -> Result<Box<dyn Destination>> {
    let mut file = LineFile {
        path: PathBuf::from(&address.path),
        file: None,
        is_regular: true,
        lines: LineWriter::default(),
        timeout: options.timeout,
        max_size: options.max_file_size,
        max_files: options.max_files,
    };
    // A name that cannot be written to is better known before the first frame. The reader of a pipe may come later.
    match file.reopen() {
        Err(error) if error.raw_os_error() != Some(libc::ENXIO) => {
            Err(Error::new(ErrorKind::Settings, format!("Cannot write to {}", address.shown()))
                .cause(error)
                .remedy("Check the path of location, its folder and permissions"))
        }
        _ => Ok(Box::new(file)),
    }
}

impl LineFile {
    fn reopen(&mut self) -> io::Result<()> {
        // A pipe would be waited for until somebody reads it.
        let file = OpenOptions::new().create(true).append(true).custom_flags(libc::O_NONBLOCK).open(&self.path)?;
        self.is_regular = file.metadata()?.is_file();
        (self.file, self.lines) = (Some(file), LineWriter::default());
        Ok(())
    }

    /// Another program may have renamed or removed the file, as logrotate does: lines would go on into that one, or nowhere.
    fn follow_the_name(&mut self) -> io::Result<()> {
        let open = self.file()?.metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(named) if (named.dev(), named.ino()) == (open.dev(), open.ino()) => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.reopen(),
        }
    }

    fn file(&mut self) -> io::Result<&mut File> {
        self.file.as_mut().ok_or(io::ErrorKind::NotFound.into())
    }

    /// Bytes of the file, also those that others have added.
    fn length(&mut self) -> io::Result<u64> {
        Ok(self.file()?.metadata()?.len())
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
        let before = self.length()?;
        let file = self.file()?;
        let mut written = 0;
        while written < lines.len() {
            match file.write(&lines.as_bytes()[written..]) {
                Ok(count) if count > 0 => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                failed => {
                    // Half a line would spoil the next one, too. What others have added stays.
                    if file.metadata()?.len() == before + written as u64 {
                        file.set_len(before)?;
                    }
                    return Err(failed.err().unwrap_or(io::ErrorKind::WriteZero.into()));
                }
            }
        }
        Ok(())
    }
}

impl Destination for LineFile {
    fn connect(&mut self) -> io::Result<()> {
        // What is open is kept: it may be a pipe, whose reader would see an end.
        if self.file.is_some() {
            return Ok(());
        }
        self.reopen().map_err(|error| match error.raw_os_error() {
            Some(libc::ENXIO) => io::Error::new(io::ErrorKind::NotFound, "nobody reads the pipe"),
            _ => error,
        })
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        if self.is_regular {
            self.follow_the_name()?;
        }
        if !self.is_regular {
            without_signal();
            let file = self.file.as_mut().ok_or(io::Error::from(io::ErrorKind::NotFound))?;
            let outcome = self.lines.write(file, messages, self.timeout);
            // A reader that comes later does not want the rest of a line.
            let is_broken = |undelivered: &Undelivered| undelivered.error.kind() == io::ErrorKind::BrokenPipe;
            if outcome.as_ref().is_err_and(is_broken) {
                self.lines = LineWriter::default();
            }
            return outcome;
        }
        let mut lines = String::new();
        let mut written = 0;
        let mut before = self.length()?;
        for (number, message) in messages.iter().enumerate() {
            let size = before + lines.len() as u64;
            if self.max_size > 0 && size > 0 && size + message.len() as u64 + 1 > self.max_size {
                self.write(&lines).map_err(|error| Undelivered::after(written, error))?;
                written = number;
                lines.clear();
                self.rotate().map_err(|error| Undelivered::after(written, error))?;
                before = self.length().map_err(|error| Undelivered::after(written, error))?;
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
            location: path.display().to_string().into(),
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
            let options = PublishOptions { location: path.display().to_string().into(), ..PublishOptions::default() };
            let error = super::super::destinations::open(&options).map(|_| ()).unwrap_err();
            assert!(error.message().starts_with("Cannot write to /"), "{error}");
        }
    }

    #[test]
    fn what_others_append_stays() {
        let path = scratch("publish-appended").join("out.jsonl");
        let options = PublishOptions {
            location: path.display().to_string().into(),
            max_file_size: 20,
            ..PublishOptions::default()
        };
        let mut file = super::super::destinations::open(&options).unwrap().destination;
        file.send(&["ours".into()]).unwrap();
        let mut other = OpenOptions::new().append(true).open(&path).unwrap();
        other.write_all(b"theirs\n").unwrap();
        file.send(&["again".into()]).unwrap();
        assert_eq!(read(&path), "ours\ntheirs\nagain\n");
        file.send(&["full".into()]).unwrap();
        assert_eq!(read(&path), "full\n", "their bytes count");
    }

    #[test]
    fn the_file_of_that_name_is_written_to() {
        let folder = scratch("publish-renamed");
        let path = folder.join("out.jsonl");
        let options = PublishOptions { location: path.display().to_string().into(), ..PublishOptions::default() };
        let mut file = super::super::destinations::open(&options).unwrap().destination;
        file.send(&["first".into()]).unwrap();
        std::fs::rename(&path, folder.join("old.jsonl")).unwrap();
        file.send(&["second".into()]).unwrap();
        assert_eq!((read(folder.join("old.jsonl")), read(&path)), ("first\n".into(), "second\n".into()));
        std::fs::remove_file(&path).unwrap();
        file.send(&["third".into()]).unwrap();
        assert_eq!(read(&path), "third\n");
        // As a disk that is no longer mounted: nothing is lost without an error, and it is tried again.
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(file.send(&["fourth".into()]).unwrap_err().delivered, 0);
        std::fs::create_dir_all(&folder).unwrap();
        file.send(&["fourth".into()]).unwrap();
        assert_eq!(read(&path), "fourth\n");
    }

    /// Runs in a process of its own, which is as one of a program in C: there is no such signal in those in Rust.
    #[test]
    fn a_reader_that_has_gone_is_an_error_and_no_signal() {
        const PIPE: &str = "GSTTRT_TEST_PIPE_AS_IN_C";
        let Ok(path) = std::env::var(PIPE) else {
            let path = scratch("publish-reader").join("pipe");
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
            let mut test = std::process::Command::new(std::env::current_exe().unwrap());
            test.args(["--exact", "file::tests::a_reader_that_has_gone_is_an_error_and_no_signal"]).env(PIPE, &path);
            let output = test.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
            return;
        };
        // SAFETY: what the signal does by default.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let read = || OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let mut reader = read();
        let options = PublishOptions { location: path.as_str().into(), ..PublishOptions::default() };
        let mut file = super::super::destinations::open(&options).unwrap().destination;
        file.connect().unwrap();
        file.send(&["first".into()]).unwrap();
        assert_eq!(io::Read::read(&mut reader, &mut [0; 99]).unwrap(), 6);
        drop(reader);
        assert_eq!(file.send(&["second".into()]).unwrap_err().error.kind(), io::ErrorKind::BrokenPipe);
        reader = read();
        file.send(&["second".into()]).unwrap();
        drop(file);
        let mut all = String::new();
        io::Read::read_to_string(&mut reader, &mut all).unwrap();
        assert_eq!(all, "second\n");
    }

    /// Runs in a process of its own, whose files are limited.
    #[test]
    fn half_a_line_is_taken_back() {
        const LIMITED: &str = "GSTTRT_TEST_LIMITED_FILE";
        let Ok(path) = std::env::var(LIMITED) else {
            let path = scratch("publish-limited").join("out.jsonl");
            let mut test = std::process::Command::new(std::env::current_exe().unwrap());
            test.args(["--exact", "file::tests::half_a_line_is_taken_back"]).env(LIMITED, &path);
            // Through a pipe: where the tests write to a file, that would be limited too.
            let output = test.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(read(&path), "ours\ntheirs\n");
            return;
        };
        // SAFETY: the limit is a structure that lives during the call, and the signal is one that is ignored from now on.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &libc::rlimit { rlim_cur: 30, rlim_max: 30 });
        }
        let options = PublishOptions { location: path.as_str().into(), ..PublishOptions::default() };
        let mut file = super::super::destinations::open(&options).unwrap().destination;
        file.send(&["ours".into()]).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"theirs\n").unwrap();
        assert!(file.send(&["x".repeat(100)]).is_err());
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let path = scratch("publish-pipe").join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let options = PublishOptions {
            location: path.display().to_string().into(),
            timeout: Duration::from_millis(50),
            ..PublishOptions::default()
        };
        let mut file = super::super::destinations::open(&options).unwrap().destination;
        assert!(file.connect().unwrap_err().to_string().contains("nobody reads"));
        // One that is read later gets whole lines, each once.
        let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        file.connect().unwrap();
        let messages: Vec<String> = (0..50).map(|number| number.to_string().repeat(5000)).collect();
        let mut rest = &messages[..];
        let mut all = Vec::new();
        while !rest.is_empty() {
            match file.send(rest) {
                Ok(()) => rest = &[],
                Err(undelivered) => rest = &rest[undelivered.delivered..],
            }
            let _ = io::Read::read_to_end(&mut reader, &mut all);
        }
        drop(file);
        io::Read::read_to_end(&mut reader, &mut all).unwrap();
        assert_eq!(String::from_utf8(all).unwrap().lines().collect::<Vec<_>>(), messages);
    }
}
