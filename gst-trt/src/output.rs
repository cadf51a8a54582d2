// SPDX-License-Identifier: MPL-2.0
//! Files of results. They are written next to their place, and moved there once they are whole.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::failure::Failure;

/// The file that a result of that path takes the place of: what a link points to.
///
/// # Errors
/// Something else is there. A device or a pipe would be gone, for a file is moved to its place.
pub fn replaceable(path: &Path) -> Result<PathBuf, Failure> {
    match fs::metadata(path) {
        Ok(there) if there.is_file() => match path.is_symlink() {
            true => Ok(path.canonicalize().unwrap_or_else(|_| path.into())),
            false => Ok(path.into()),
        },
        Ok(there) => {
            let kind = if there.is_dir() { "a folder" } else { "a device or a pipe" };
            Err(format!("Cannot write {}: it is {kind}. Give the name of a file.", path.display()).into())
        }
        Err(_) if path.is_symlink() => {
            let text = format!("Cannot write {}: it is a link to a file that is not there.", path.display());
            Err(format!("{text} Give the name of that file.").into())
        }
        Err(_) => Ok(path.into()), // a folder that is missing is told when the file is made
    }
}

/// What failed, why, and what to do about it.
pub fn cannot_write(what: impl Display, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            " Make room on that disk, or write to another one."
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            " Give a place to which this user may write."
        }
        io::ErrorKind::NotFound => " Its folder is not there: make it first.",
        io::ErrorKind::NotADirectory => " A part of its path is a file: give a place in a folder.",
        io::ErrorKind::InvalidFilename => " Give a shorter name.",
        io::ErrorKind::FileTooLarge => " Write to a disk that takes such large files, or raise the limit (ulimit -f).",
        _ => "",
    };
    format!("Cannot write {what}: {error}.{remedy}").into()
}

/// The same of a file that is to be made there.
pub fn cannot_make(path: &Path, error: &io::Error) -> Failure {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if error.kind() == io::ErrorKind::NotFound && folder.is_dir() {
        // As in /proc, where it is not for want of a right.
        let is_current = folder == Path::new(".");
        let folder = if is_current { "the current folder".into() } else { folder.display().to_string() };
        let path = path.display();
        return format!("Cannot write {path}: no file can be made in {folder}. Give a place in another folder.").into();
    }
    cannot_write(path.display(), error)
}

/// The same of a folder. There may be a file in its way, or no disk at all, as in /proc.
pub fn cannot_make_folder(folder: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "Make room on that disk, or choose another one.",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "Choose one in a folder to which this user may write."
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "A file is in its place: choose another name, or remove the file."
        }
        _ => "Choose one in another folder, which is there.",
    };
    format!("Cannot make the folder {}: {error}. {remedy}", folder.display()).into()
}

/// Where a result is written until it is whole: half a file would look like one. Another process has another name for it.
pub fn part(path: &Path) -> PathBuf {
    static OF_PROCESS: OnceLock<u32> = OnceLock::new();
    let number = OF_PROCESS.get_or_init(|| RandomState::new().build_hasher().finish() as u32);
    path.with_added_extension(format!("{number:08x}.part"))
}

/// Makes that file, and writes to nothing that is there, such as what somebody's link points to.
pub fn create_part(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(part(path))
}

/// Gives a whole result its name, in place of what is there.
pub fn finish_part(path: &Path) -> io::Result<()> {
    fs::rename(part(path), path)
}

/// The same, unless something is there.
pub fn finish_new_part(path: &Path) -> io::Result<()> {
    match fs::hard_link(part(path), path) {
        Ok(()) => fs::remove_file(part(path)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Not every disk has links.
        Err(_) if path.exists() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => finish_part(path),
    }
}

/// The same for each spelling of a path, whether something is there or not.
pub fn place(path: &Path) -> PathBuf {
    let of_folder = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(folder.canonicalize().ok()?.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(of_folder).unwrap_or_else(|| path.into())
}

/// Whether bytes can be written to it one after the other, and no file is there: a device or a pipe.
pub fn is_stream(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_is_replaced() {
        let failure = replaceable(Path::new("/dev/null")).unwrap_err().to_string();
        assert_eq!(failure, "Cannot write /dev/null: it is a device or a pipe. Give the name of a file.");
        assert!(replaceable(Path::new("/dev")).unwrap_err().to_string().contains("it is a folder"));
        assert!(is_stream(Path::new("/dev/null")) && !is_stream(Path::new("/dev")) && !is_stream(Path::new("/absent")));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told_with_a_remedy() {
        for (folder, remedy) in [("/proc/rec", "Choose one in "), ("/dev/null/rec", "choose another name")] {
            let error = fs::create_dir_all(folder).unwrap_err();
            let said = cannot_make_folder(Path::new(folder), &error).to_string();
            assert!(said.starts_with(&format!("Cannot make the folder {folder}: ")) && said.contains(remedy), "{said}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_made_is_told_with_a_remedy() {
        let folder = crate::scratch::scratch("cannot-make");
        for (path, said) in [
            (PathBuf::from("/proc/found.parquet"), "no file can be made in /proc. Give a place in another folder."),
            (folder.join("none/found.parquet"), "Its folder is not there: make it first."),
            (PathBuf::from("/dev/null/found.parquet"), "A part of its path is a file: give a place in a folder."),
            (folder.join("a".repeat(250)), "Give a shorter name."),
        ] {
            let error = create_part(&path).unwrap_err();
            let failure = cannot_make(&path, &error).to_string();
            assert!(failure.starts_with(&format!("Cannot write {}: ", path.display())), "{failure}");
            assert!(failure.ends_with(said), "{failure}");
        }
    }

    #[test]
    fn a_link_stays_and_its_file_is_replaced() {
        let folder = crate::scratch::scratch("replaceable");
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(replaceable(&link).unwrap(), file.canonicalize().unwrap());
        assert_eq!(replaceable(&folder.join("new")).unwrap(), folder.join("new"));
        fs::remove_file(&file).unwrap();
        assert!(replaceable(&link).unwrap_err().to_string().contains("a link to a file that is not there"));
    }

    #[test]
    fn nothing_that_is_there_is_written_to() {
        let folder = crate::scratch::scratch("part-files");
        let (result, other) = (folder.join("result"), folder.join("other"));
        fs::write(&other, "mine").unwrap();
        std::os::unix::fs::symlink(&other, part(&result)).unwrap();
        assert_eq!(create_part(&result).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
        fs::remove_file(part(&result)).unwrap();
        // A new result takes no other's name; one that replaces does.
        drop(create_part(&other).unwrap());
        assert_eq!(finish_new_part(&other).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
        finish_part(&other).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "");
        drop(create_part(&result).unwrap());
        finish_new_part(&result).unwrap();
        assert!(result.exists() && !part(&result).exists());
    }

    #[test]
    fn what_cannot_be_written_says_what_to_do() {
        for (number, said) in [
            (libc::ENOSPC, "Cannot write a.mp4: No space left on device (os error 28). Make room on that disk"),
            (libc::EDQUOT, "Make room on that disk, or write to another one."),
            (libc::EACCES, "Give a place to which this user may write."),
            (libc::EROFS, "Give a place to which this user may write."),
            (libc::ENOENT, "Its folder is not there: make it first."),
            (libc::ENOTDIR, "A part of its path is a file: give a place in a folder."),
            (libc::ENAMETOOLONG, "Give a shorter name."),
            (libc::EIO, "Cannot write a.mp4: Input/output error (os error 5)."),
        ] {
            let failure = cannot_write("a.mp4", &io::Error::from_raw_os_error(number)).to_string();
            assert!(failure.contains(said), "{failure}");
        }
    }

    #[test]
    fn a_place_has_one_spelling() {
        let folder = crate::scratch::scratch("places");
        let spellings = [folder.join("x.mp4"), folder.join(".").join("x.mp4"), folder.join("../places/x.mp4")];
        let places = spellings.map(|path| place(&path));
        assert!(places.iter().all(|other| *other == places[0]), "{places:?}");
    }
}
