// SPDX-License-Identifier: MPL-2.0
//! Whether the user that runs the service may write where the configuration says.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::super::wording::{KeyError, problem};
use super::{Config, SourceConfig};

impl Config {
    /// Doubts about folders of recordings and snapshots, each once, with the table that names it.
    pub(super) fn doubtful_folders(&self) -> Vec<(&'static str, usize, KeyError)> {
        let mut seen = BTreeSet::<PathBuf>::new();
        let common = [
            ("record", self.record.as_ref().map(|record| &record.folder)),
            ("snapshots", self.snapshots.as_ref().map(|snapshots| &snapshots.folder)),
        ];
        let common = common.into_iter().filter_map(|(table, folder)| Some((table, 0, folder?)));
        let own = self
            .sources
            .iter()
            .enumerate()
            .flat_map(|(number, source)| folders_of(source).map(move |folder| ("source", number, folder)));
        let mut doubts = Vec::new();
        for (table, number, folder) in common.chain(own) {
            if seen.insert(folder.clone())
                && let Some(text) = doubt(folder)
            {
                doubts.push((table, number, problem("folder", text)));
            }
        }
        doubts
    }
}

fn folders_of(source: &SourceConfig) -> impl Iterator<Item = &PathBuf> {
    let recorded = source.record.iter().map(|record| &record.folder);
    recorded.chain(source.snapshots.iter().map(|snapshots| &snapshots.folder))
}

/// About a folder, or the one that it will be made in.
pub(super) fn doubt(folder: &Path) -> Option<String> {
    let there = folder.ancestors().find(|path| path.exists())?;
    let shown = there.display();
    if !may_write(there) {
        let text = "Give it to that user, or choose another one: as a service of systemd, one in /var/lib/gst-trt";
        return Some(format!("this user may not write to {shown}. {text}"));
    }
    let error = try_to_write(there).err()?;
    Some(format!("nothing can be made in {shown}: {error}. Choose another folder"))
}

/// Rights do not tell all: root has them everywhere, also where there is no disk, as in /proc.
fn try_to_write(folder: &Path) -> io::Result<()> {
    let probe = folder.join(format!(".gst-trt-{}", std::process::id()));
    match fs::create_dir(&probe) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| fs::remove_dir(&probe)),
    }
}

fn may_write(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path ends with a zero byte, and outlives the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS) == 0 }
}
