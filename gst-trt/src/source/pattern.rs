// SPDX-License-Identifier: MPL-2.0
//! The files that a pattern names, whatever bytes are in their names, and what of it cannot be looked at.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use glob::Pattern;

/// A part of a pattern, between two slashes.
enum PatternPart {
    /// `**`: the folder, and all that are below it.
    Below,
    Name(OsString),
    Names(Pattern),
}

/// Whether it is a pattern, and no plain path.
pub fn is_pattern(text: &OsStr) -> bool {
    text.as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

/// What a pattern finds, in the order of the paths. A folder that cannot be read is among it, as is a link that leads nowhere.
/// Characters that are no text are one that `?` and `*` match.
///
/// # Errors
/// It is no pattern.
pub fn find(pattern: &OsStr) -> Result<Vec<PathBuf>, glob::PatternError> {
    Pattern::new(&pattern.to_string_lossy())?;
    let bytes = pattern.as_bytes();
    let mut parts = Vec::new();
    for part in bytes.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        let part = OsStr::from_bytes(part);
        match part.as_bytes() {
            b"**" if matches!(parts.last(), Some(PatternPart::Below)) => {}
            b"**" => parts.push(PatternPart::Below),
            _ if is_pattern(part) => parts.push(PatternPart::Names(Pattern::new(&part.to_string_lossy())?)),
            _ => parts.push(PatternPart::Name(part.into())),
        }
    }
    let start = if bytes.starts_with(b"/") { "/" } else { "" };
    let mut walk = PatternWalk::default();
    walk.follow(Path::new(start), &parts);
    Ok(walk.found.into_iter().collect())
}

#[derive(Default)]
struct PatternWalk {
    found: BTreeSet<PathBuf>,
    /// The folders that it is in, by device and number: a link to one of them has no end.
    above: Vec<(u64, u64)>,
}

impl PatternWalk {
    fn follow(&mut self, at: &Path, parts: &[PatternPart]) {
        let Some((part, rest)) = parts.split_first() else {
            self.found.insert(at.into());
            return;
        };
        match part {
            PatternPart::Name(name) => {
                let path = at.join(name);
                match fs::symlink_metadata(&path) {
                    Ok(_) => self.follow(&path, rest),
                    Err(error) => self.note(&path, &error),
                }
            }
            PatternPart::Names(pattern) => {
                for path in self.entries(at) {
                    if path.file_name().is_some_and(|name| pattern.matches(&name.to_string_lossy())) {
                        self.follow(&path, rest);
                    }
                }
            }
            PatternPart::Below => {
                let found = match fs::metadata(folder(at)) {
                    Ok(found) => found,
                    Err(error) => return self.note(at, &error),
                };
                let number = (found.dev(), found.ino());
                if !found.is_dir() || self.above.contains(&number) {
                    return;
                }
                self.above.push(number);
                self.follow(at, rest);
                for path in self.entries(at) {
                    self.follow(&path, parts);
                }
                self.above.pop();
            }
        }
    }

    /// What is in a folder; nothing where it is none.
    fn entries(&mut self, at: &Path) -> Vec<PathBuf> {
        let read = fs::read_dir(folder(at)).and_then(|entries| {
            entries.map(|entry| entry.map(|entry| at.join(entry.file_name()))).collect::<io::Result<_>>()
        });
        read.unwrap_or_else(|error| {
            self.note(at, &error);
            Vec::new()
        })
    }

    /// What is there, and cannot be looked at, is named at the end.
    fn note(&mut self, path: &Path, error: &io::Error) {
        let is_nothing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind())
            || error.raw_os_error() == Some(libc::ELOOP);
        if !is_nothing {
            self.found.insert(path.into());
        }
    }
}

/// The path of a folder to read; the current one has none.
fn folder(at: &Path) -> &Path {
    if at.as_os_str().is_empty() { Path::new(".") } else { at }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_of_any_bytes_and_links_that_lead_nowhere_are_found() {
        let folder = crate::scratch::scratch("patterns");
        let caf = OsStr::from_bytes(b"caf\xe9");
        fs::create_dir_all(folder.join("b/c")).unwrap();
        fs::create_dir(folder.join(caf)).unwrap();
        for path in ["a.mp4", "b/c/d.mp4", "b/e.txt", ".hidden.mp4"] {
            fs::write(folder.join(path), "").unwrap();
        }
        let odd = [OsStr::from_bytes(b"caf\xe9/\xff.mp4"), OsStr::from_bytes(b"caf\xe9.mp4")];
        odd.iter().for_each(|path| fs::write(folder.join(path), "").unwrap());
        symlink("nowhere", folder.join("b/gone.mp4")).unwrap();
        symlink("loop.mp4", folder.join("b/loop.mp4")).unwrap();
        symlink("..", folder.join("b/up")).unwrap();
        let found = |pattern: &[u8]| -> Vec<String> {
            let pattern = [folder.as_os_str().as_bytes(), b"/", pattern].concat();
            let found = find(OsStr::from_bytes(&pattern)).unwrap();
            let name =
                |path: &PathBuf| path.strip_prefix(&folder).unwrap().as_os_str().as_bytes().escape_ascii().to_string();
            let mut found: Vec<String> = found.iter().map(name).collect();
            found.sort();
            found
        };
        assert_eq!(found(b"*.mp4"), [".hidden.mp4", "a.mp4", "caf\\xe9.mp4"]);
        assert_eq!(found(b"caf?.mp4"), ["caf\\xe9.mp4"]);
        assert_eq!(found(b"caf\xe9/*"), ["caf\\xe9/\\xff.mp4"]);
        assert_eq!(found(b"./b//*.mp4"), ["b/gone.mp4", "b/loop.mp4"]);
        // Each once, though a link leads up again.
        let all = ["a.mp4", "b/c/d.mp4", "b/gone.mp4", "b/loop.mp4", "caf\\xe9.mp4", "caf\\xe9/\\xff.mp4"];
        assert_eq!(found(b"**/[!.]*.mp4"), all);
        assert_eq!(found(b"**/**/[!.]*.mp4"), all);
        assert_eq!(found(b"*/c/*"), ["b/c/d.mp4"]);
        assert_eq!(found(b"none/*"), [""; 0]);
        assert_eq!(found(b"a.mp4/*"), [""; 0]);
        assert!(find(OsStr::new("a[.jpg")).is_err() && find(OsStr::new("a**b")).is_err());
    }
}
