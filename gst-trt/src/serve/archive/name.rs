// SPDX-License-Identifier: MPL-2.0
//! The names of recordings and snapshots: source, time and kind.

use std::path::{Path, PathBuf};

use super::content::PICTURE;
use super::moment::UtcTime;
use super::recording::Kind;

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

/// One that no other file has, also where it begins at the same time.
pub fn free_name(folder: &Path, source: &str, kind: Kind, begin: UtcTime, ending: &str) -> String {
    let name = |number| name_of(source, kind, begin, number, ending);
    // In this order: one that becomes whole between both looks is seen by the second.
    let is_free = |name: &String| !part(&folder.join(name)).exists() && !folder.join(name).exists();
    (1..).map(name).find(is_free).expect("numbers do not end")
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
    use super::*;

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
