// SPDX-License-Identifier: MPL-2.0
//! Folders of unit tests, where `CARGO_TARGET_TMPDIR` is not known.

use std::path::{Path, PathBuf};

/// A folder of its own for a test, empty, under target/.
pub fn scratch(test: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    // Cargo marks the folder that it builds in, which may have another name. Where only the programs were copied there is none.
    let is_build = |folder: &&Path| folder.ends_with("target") || folder.join("CACHEDIR.TAG").exists();
    let build = program.ancestors().find(is_build).map(PathBuf::from);
    let folder = build.unwrap_or_else(std::env::temp_dir).join("tmp").join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
