// SPDX-License-Identifier: MPL-2.0
//! Files of results. They are written next to their place, and moved there once they are whole.

use std::fs;
use std::path::{Path, PathBuf};

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
        Err(_) => Ok(path.into()), // a folder that is missing is told when the file is made
    }
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
    fn a_link_stays_and_its_file_is_replaced() {
        let folder = crate::scratch::scratch("replaceable");
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(replaceable(&link).unwrap(), file.canonicalize().unwrap());
        assert_eq!(replaceable(&folder.join("new")).unwrap(), folder.join("new"));
    }
}
