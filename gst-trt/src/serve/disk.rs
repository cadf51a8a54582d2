// SPDX-License-Identifier: MPL-2.0
//! How much room there is where recordings are written.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub struct DiskReading {
    pub folder: String,
    /// Bytes that this user may write.
    pub free: u64,
    pub size: u64,
}

/// Those that tell.
pub fn read(folders: BTreeSet<PathBuf>) -> Vec<DiskReading> {
    folders.iter().filter_map(|folder| reading(folder)).collect()
}

/// `None` where it cannot be known. A folder that is made with the first recording is on the disk of the one that it will be in.
pub fn reading(folder: &Path) -> Option<DiskReading> {
    let there = folder.ancestors().find(|path| path.exists())?;
    let name = CString::new(there.as_os_str().as_bytes()).ok()?;
    // SAFETY: zeros are a value of all its fields.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: it reads a text that ends, and writes into a structure of its type.
    if unsafe { libc::statvfs(name.as_ptr(), &raw mut found) } != 0 {
        return None;
    }
    // Stores of objects say that they have as many blocks as there are numbers.
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let folder = folder.to_string_lossy().into_owned();
    Some(DiskReading { folder, free: bytes(found.f_bavail), size: bytes(found.f_blocks) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_on_the_disk_of_the_one_above() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("not/there");
        let found = read(BTreeSet::from([folder.clone()]));
        assert_eq!(found[0].folder, folder.to_string_lossy());
        assert!(found[0].size >= found[0].free && found[0].size > 0);
    }
}
