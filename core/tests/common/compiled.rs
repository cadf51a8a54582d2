// SPDX-License-Identifier: MPL-2.0
//! Libraries in C that stand for others in tests.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

/// Puts a library of these sources into the folder of a test. One of the same sources is compiled once and kept next to that folder:
/// each test is a process of its own, and compiling takes longer than most of them.
pub fn library(folder: &Path, name: &str, sources: &[PathBuf], needed: &[&str]) {
    let mut key = DefaultHasher::new();
    (env::consts::ARCH, name, needed).hash(&mut key);
    sources.iter().for_each(|source| fs::read(source).unwrap().hash(&mut key));
    let (kept, file) = (folder.with_file_name(format!("compiled-{:016x}", key.finish())), folder.join(name));
    if kept.exists() {
        fs::copy(kept, file).unwrap();
        return;
    }
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-pthread", "-std=gnu11", "-o", name, &format!("-Wl,-soname,{name}")]);
    assert!(cc.args(sources).args(needed).current_dir(folder).status().unwrap().success(), "{sources:?}");
    // In one step: other tests may be doing the same.
    let unfinished = kept.with_extension(process::id().to_string());
    fs::copy(file, &unfinished).unwrap();
    fs::rename(unfinished, kept).unwrap();
}
