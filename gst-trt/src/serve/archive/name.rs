// SPDX-License-Identifier: MPL-2.0
//! The names of recordings and snapshots: source, time and kind.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::content::PICTURE;
use super::moment::UtcTime;
use super::recording::Kind;
use crate::failure::Failure;
use crate::output::cannot_write;

/// Behind the name of a file that is being written.
pub const PART: &str = "part";
/// Before the ending of one that is written all the time.
const CONTINUOUS: &str = "-continuous";
const ENDINGS: [&str; 3] = ["mp4", "mkv", PICTURE];

/// The name of a file that begins then.
pub fn name_of(source: &str, kind: Kind, begin: UtcTime, number: u32, ending: &str) -> String {
    let time: String = begin.text().chars().filter(|c| !"-:".contains(*c)).collect();
    let number = if number > 1 { format!("-{number}") } else { String::new() };
    let kind = if kind == Kind::Continuous { CONTINUOUS } else { "" };
    format!("{source}-{time}{number}{kind}.{ending}")
}

/// Makes a file with a name that no other one has, also where another thread makes one of the same time. It is a [part], and locked: so
/// no other program takes it for one that was left.
///
/// # Errors
/// No file can be made in the folder.
pub fn create_free(
    folder: &Path,
    source: &str,
    kind: Kind,
    begin: UtcTime,
    ending: &str,
) -> Result<(String, File), Failure> {
    create_locked(folder, source, kind, begin, ending, File::lock)
}

fn create_locked(
    folder: &Path,
    source: &str,
    kind: Kind,
    begin: UtcTime,
    ending: &str,
    lock: impl Fn(&File) -> io::Result<()>,
) -> Result<(String, File), Failure> {
    let create = |number| {
        let name = name_of(source, kind, begin, number, ending);
        let path = folder.join(&name);
        if path.exists() {
            return None;
        }
        let file = match File::create_new(part(&path)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return None,
            Err(error) => return Some(Err(cannot_write(part(&path).display(), &error))),
        };
        // Before it was locked, another program may have removed it as one that was left.
        let is_there = lock(&file).and_then(|()| Ok(file.metadata()?.nlink() > 0));
        match is_there {
            // The one that had the name may have become whole since the look above.
            Ok(true) if path.exists() => {
                let _ = fs::remove_file(part(&path));
                None
            }
            Ok(true) => Some(Ok((name, file))),
            Ok(false) => None,
            // Such as of a disk that has no locks.
            Err(error) => {
                let _ = fs::remove_file(part(&path));
                Some(Err(cannot_write(part(&path).display(), &error)))
            }
        }
    };
    (1..).find_map(create).expect("numbers do not end")
}

/// Its name until it is whole.
pub fn part(path: &Path) -> PathBuf {
    path.with_added_extension(PART)
}

/// What the name of a file says; `None` where it is none of ours.
pub fn of_name(name: &str) -> Option<(String, Kind, UtcTime)> {
    let (stem, ending) = name.rsplit_once('.')?;
    if !ENDINGS.contains(&ending) {
        return None;
    }
    let (stem, kind) = match stem.strip_suffix(CONTINUOUS) {
        _ if ending == PICTURE => (stem, Kind::Snapshot),
        Some(stem) => (stem, Kind::Continuous),
        None => (stem, Kind::Event),
    };
    // A second file of the same time has a number.
    let (stem, number) = match stem.rsplit_once('-') {
        Some((before, number)) if number.len() < 6 && number.parse::<u32>().is_ok() => (before, number.parse().ok()?),
        _ => (stem, 1),
    };
    let (source, time) = stem.rsplit_once('-')?;
    let begin = UtcTime::parse(time)?;
    // Others write times, too, but not just as they are written here.
    (name_of(source, kind, begin, number, ending) == name).then(|| (source.into(), kind, begin))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::thread;

    use super::*;
    use crate::scratch::scratch;

    #[test]
    fn files_of_the_same_time_have_names_of_their_own() {
        let (folder, begin) = (scratch("names-at-once"), UtcTime(1_700_000_000_911_000_000));
        let create = |ending: &str| create_free(&folder, "gate", Kind::Continuous, begin, ending).unwrap();
        let names = |files: &[(String, File)]| files.iter().map(|(name, _)| name.clone()).collect::<BTreeSet<String>>();
        let files: Vec<(String, File)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| [(); 8].map(|()| create("mp4")))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let wanted = (1..=64).map(|number| name_of("gate", Kind::Continuous, begin, number, "mp4"));
        assert_eq!(names(&files), wanted.collect::<BTreeSet<String>>());
        // One that is whole keeps its name, and another ending has numbers of its own.
        let (first, _) = &files[0];
        fs::rename(part(&folder.join(first)), folder.join(first)).unwrap();
        assert_eq!(create("mp4").0, name_of("gate", Kind::Continuous, begin, 65, "mp4"));
        assert_eq!(create("mkv").0, "gate-20231114T221320.911Z-continuous.mkv");
        let failure = create_free(&folder.join("absent"), "gate", Kind::Event, begin, "mp4").err().unwrap().to_string();
        assert!(failure.contains("absent/gate-20231114T221320.911Z.mp4.part"), "{failure}");
    }

    #[test]
    fn a_file_that_cannot_be_locked_is_not_left() {
        let (folder, begin) = (scratch("names-without-locks"), UtcTime(1_700_000_000_911_000_000));
        let fails = |_: &File| -> io::Result<()> { Err(io::ErrorKind::Unsupported.into()) };
        let created = create_locked(&folder, "gate", Kind::Snapshot, begin, PICTURE, fails);
        let failure = created.err().unwrap().to_string();
        assert!(failure.contains("gate-20231114T221320.911Z.jpg.part"), "{failure}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn a_name_says_what_the_file_is() {
        for (source, kind, number) in [
            ("gate", Kind::Event, 1),
            ("a-2-b.c", Kind::Continuous, 1),
            ("a-7", Kind::Event, 2),
            ("x", Kind::Continuous, 12),
            ("gate", Kind::Snapshot, 3),
        ] {
            let begin = UtcTime(1_700_000_000_911_000_000);
            let ending = if kind == Kind::Snapshot { PICTURE } else { "mkv" };
            let name = name_of(source, kind, begin, number, ending);
            assert_eq!(of_name(&name), Some((source.into(), kind, begin)), "{name}");
        }
        for name in [
            "gate.mp4",
            "gate-2026.mp4",
            "index.jsonl",
            "holiday-20231114.mp4",
            "gate-20231114T221320.911Z.txt",
            "holiday.jpg",
        ] {
            assert_eq!(of_name(name), None, "{name}");
        }
        for name in [
            "holiday-20260101T000000Z.mp4",
            "holiday-2026-01-01T00:00:00.000Z.mp4",
            "holiday-20260101T000000.000+0000.mp4",
            "holiday-20260101T000000.0Z.mp4",
            "holiday-20260101T000000.000Z-1.mp4",
        ] {
            assert_eq!(of_name(name), None, "{name}");
        }
    }
}
