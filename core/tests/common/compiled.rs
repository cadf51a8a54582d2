// SPDX-License-Identifier: MPL-2.0
//! Libraries in C that stand for others in tests.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const FLAGS: [&str; 4] = ["-shared", "-fPIC", "-pthread", "-std=gnu11"];

/// Puts a library of these sources into the folder of a test. One of the same sources is compiled once and kept next to that folder:
/// each test is a process of its own, and compiling takes longer than most of them.
pub fn library(folder: &Path, name: &str, sources: &[PathBuf], needed: &[&str]) {
    let is_header = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "h");
    // What sources include lies next to them.
    let near = fs::read_dir(sources[0].parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let mut headers: Vec<PathBuf> = near.filter(is_header).collect();
    headers.sort();
    let mut key = DefaultHasher::new();
    (env::consts::ARCH, FLAGS, name, needed).hash(&mut key);
    sources.iter().chain(&headers).for_each(|file| fs::read(file).unwrap().hash(&mut key));
    let (kept, file) = (folder.with_file_name(format!("compiled-{:016x}", key.finish())), folder.join(name));
    if kept.exists() {
        fs::copy(kept, file).unwrap();
        return;
    }
    let mut cc = Command::new("cc");
    cc.args(FLAGS).args(["-o", name, &format!("-Wl,-soname,{name}")]);
    assert!(cc.args(sources).args(needed).current_dir(folder).status().unwrap().success(), "{sources:?}");
    // In one step, and out of the folder of this test alone: others, also of this process, may be doing the same.
    let unfinished = folder.join(format!("{name}.unfinished"));
    fs::copy(file, &unfinished).unwrap();
    fs::rename(unfinished, kept).unwrap();
}
