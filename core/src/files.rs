// SPDX-License-Identifier: MPL-2.0
//! Files that the user named, or that a file of the user's names.
//!
//! Such a name may be that of a pipe, which would be waited for, or of a device, which may never end. So all of them
//! are opened here. `unlocked`: how the end of another one's lock is waited for.

mod unlocked;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

pub(crate) use unlocked::wait_until_unlocked;

/// Opens a file for reading and never blocks.
///
/// # Errors
/// Also where it is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_with(OpenOptions::new().read(true), path, 0)
}

/// The same with other options and more flags of `open(2)`.
pub fn open_regular_with(options: &mut OpenOptions, path: &Path, flags: i32) -> io::Result<File> {
    // O_NONBLOCK changes nothing for a regular file.
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | flags).open(path)?;
    match file.metadata()?.file_type() {
        kind if kind.is_file() => Ok(file),
        kind if kind.is_dir() => Err(io::Error::other("it is a folder")),
        kind if kind.is_fifo() => Err(io::Error::other("it is a pipe")),
        _ => Err(io::Error::other("it is a device")),
    }
}

/// Opens a file, and no link, to lock it: for writing, as NFS locks nothing else, or for reading where that is all that this user may.
pub fn open_to_lock(path: &Path) -> io::Result<File> {
    let open = |options: &mut OpenOptions| open_regular_with(options.read(true), path, libc::O_NOFOLLOW);
    open(OpenOptions::new().write(true)).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => open(&mut OpenOptions::new()),
        _ => Err(error),
    })
}

/// All bytes of a regular file that has at most `limit`.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_bounded(open_regular(path)?, limit)
}

/// All bytes of an open file that has at most `limit`.
pub fn read_bounded(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || {
        let limit = if limit >= 1 << 20 { format!("{} MiB", limit >> 20) } else { format!("{} KiB", limit >> 10) };
        io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {limit}"))
    };
    let length = file.metadata()?.len();
    if length > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let capacity = usize::try_from(length).map_err(|_| too_large())?;
    bytes.try_reserve_exact(capacity).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    // Files below /proc have no length, and others may grow.
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}

/// Parts of a key, as in `otel.headers.tenant`.
const MOST_PARTS: usize = 16;

/// Where a text in TOML has a key with more parts than any file needs. Each part is a table in the one before, and whoever reads
/// or drops tables goes down into them: of enough parts the stack has an end before the key has one.
pub fn endless_key(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut dots) = (0, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'.' => dots += 1,
            b'\n' | b'=' | b',' | b'[' | b']' | b'{' | b'}' => dots = 0,
            _ => {}
        }
        if dots == MOST_PARTS {
            return Some(at);
        }
        at += match byte {
            b'#' => line_length(&bytes[at..]),
            b'"' | b'\'' => string_length(&bytes[at..]),
            _ => 1,
        };
    }
    None
}

fn line_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len())
}

/// Of a string of TOML, with its quotes. One of a line ends with it at the latest.
fn string_length(bytes: &[u8]) -> usize {
    let quote = bytes[0];
    let is_long = bytes.starts_with(&[quote; 3]);
    let quotes = if is_long { 3 } else { 1 };
    let mut at = quotes;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\n' if !is_long => return at,
            b'\\' if quote == b'"' => at += 2,
            _ if bytes[at..].starts_with(&[quote; 3][..quotes]) => return at + quotes,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::test::scratch;

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let folder = scratch("files");
        let (pipe, file) = (folder.join("pipe"), folder.join("file"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::write(&file, [7; 2048]).unwrap();
        for (path, says) in [
            (pipe.as_path(), "it is a pipe"),
            (folder.as_path(), "it is a folder"),
            (Path::new("/dev/zero"), "it is a device"),
            (Path::new("/dev/null"), "it is a device"),
        ] {
            let error = read_regular(path, 1 << 20).unwrap_err();
            assert_eq!(error.to_string(), says, "{}", path.display());
        }
        assert_eq!(read_regular(&file, 2048).unwrap().len(), 2048);
        assert_eq!(read_regular(&file, 2047).unwrap_err().to_string(), "it is larger than 1 KiB");
        // A length of 0, and more than that to read.
        assert!(!read_regular(Path::new("/proc/self/status"), 1 << 20).unwrap().is_empty());
        assert!(read_regular(Path::new("/proc/self/status"), 8).is_err());
        // A hole takes no space on the disk.
        File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_regular(&file, 1 << 33).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_file_that_is_to_be_locked_is_open_for_writing() {
        let folder = scratch("files-lock");
        let [file, link] = ["file", "link"].map(|name| folder.join(name));
        std::fs::write(&file, "kept").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(open_to_lock(&link).is_err() && open_to_lock(&folder).is_err());
        let open = open_to_lock(&file).unwrap();
        open.lock().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"kept");
        open.set_len(0).expect("NFS locks it");
        // A file that nobody may write, but for root.
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        assert!(open_to_lock(&file).is_ok());
    }

    #[test]
    fn a_key_without_an_end_is_found_and_dots_elsewhere_are_none_of_one() {
        let deep = format!("a{}", ".a".repeat(MOST_PARTS));
        for text in [
            format!("{deep} = 1"),
            format!("[{deep}]"),
            format!("b = {{{deep} = 1}}"),
            format!("\"=\".{deep} = 1"),
            format!("c = 'x' # y\n'#' . {deep} = 1"),
            format!("d = \"\\\"\"\n{deep} = 1"),
            format!("e = '''\n'''\n{deep} = 1"),
            format!("f = \"no end\n{deep} = 1"),
        ] {
            assert!(endless_key(&text).is_some(), "{text}");
        }
        let dots = ".".repeat(100);
        for text in [
            "a.b.c.d = 1.5\n".repeat(100),
            format!("a = [{}]", "0.5, ".repeat(100)),
            format!("# {dots}"),
            format!("a = '{dots}'\nb = \"\\\"{dots}\\\"\""),
            format!("a = \"\"\"\n\"{dots}\n\\\"\"\"{dots}\"\"\""),
            format!("a = '''\n''{dots}'''"),
            "\"".into(),
            "\"\\".into(),
        ] {
            assert_eq!(endless_key(&text), None, "{text}");
        }
    }
}
