// SPDX-License-Identifier: MPL-2.0
//! The folder in which OpenVINO keeps what it has compiled, in that of the engines. It finds by itself what is for a model,
//! a device and its own release, and removes nothing.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::backends::tensorrt::cache::Cache;
use crate::dylib::entries;

/// Models that are kept.
const MOST: usize = 64;

/// The folder, in that of the engines, which only this user may change. `None` where there is none: then each load compiles.
pub fn folder(engines: Option<&Path>) -> Option<PathBuf> {
    let folder = Cache::open(engines).ok()?.folder().join("openvino");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    Some(folder)
}

/// Removes what was compiled first, where there is much.
pub fn trim(folder: &Path) {
    let made = |path: PathBuf| Some((fs::metadata(&path).ok()?.modified().ok()?, path));
    let mut models: Vec<(SystemTime, PathBuf)> =
        entries(folder, |name| name.ends_with(".blob")).into_iter().filter_map(made).collect();
    models.sort();
    for (_, path) in models.iter().rev().skip(MOST) {
        let _ = fs::remove_file(path); // another process may have done so
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::scratch;

    #[test]
    fn the_models_that_were_compiled_last_are_kept() {
        let folder = scratch("openvino-compiled");
        let second = |number: u64| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number);
        for number in 0..MOST as u64 + 3 {
            let file = fs::File::create(folder.join(format!("{number}.blob"))).unwrap();
            file.set_modified(second(number)).unwrap();
        }
        fs::write(folder.join("other"), "").unwrap();
        trim(&folder);
        let kept = entries(&folder, |_| true);
        assert_eq!(kept.len(), MOST + 1);
        assert!(["0.blob", "1.blob", "2.blob"].iter().all(|name| !folder.join(name).exists()));
    }
}
