// SPDX-License-Identifier: MPL-2.0
//! What is recorded in a folder: a line of JSON for each file, in `index.jsonl`. Lines are added as files become whole, and as
//! they are removed. The files are the truth: what was cut off, or is missing, is made of their names.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::moment::UtcTime;

const INDEX: &str = "index.jsonl";
/// Behind the name of a file that is being written.
pub const PART: &str = "part";
/// Before the ending of one that is written all the time.
const CONTINUOUS: &str = "-continuous";
const ENDINGS: [&str; 3] = ["mp4", "mkv", PICTURE];
/// Of snapshots.
const PICTURE: &str = "jpg";
const JPEG_END: [u8; 2] = [0xFF, 0xD9];
/// A longer line is none of ours.
const MAX_LINE: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Around events.
    Event,
    /// All the time.
    Continuous,
    /// The best picture of an object.
    Snapshot,
}

/// A recording that is whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Recording {
    /// Its name in the folder.
    pub file: String,
    pub source: String,
    pub kind: Kind,
    pub begin: UtcTime,
    pub end: UtcTime,
    pub bytes: u64,
    /// What happened in that time.
    #[serde(default)]
    pub events: Vec<Map<String, Value>>,
    /// The object of a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Map<String, Value>>,
}

/// A file that is no longer there.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Removed {
    removed: String,
}

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
    let is_free = |name: &String| !folder.join(name).exists() && !part(&folder.join(name)).exists();
    (1..).map(name).find(is_free).expect("numbers do not end")
}

/// Its name until it is whole.
pub fn part(path: &Path) -> PathBuf {
    path.with_added_extension(PART)
}

/// What the name of a file says; `None` where it is none of ours.
fn of_name(name: &str) -> Option<(String, Kind, UtcTime)> {
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
    let stem = match stem.rsplit_once('-') {
        Some((before, number)) if number.len() < 6 && number.parse::<u32>().is_ok() => before,
        _ => stem,
    };
    let (source, time) = stem.rsplit_once('-')?;
    Some((source.into(), kind, UtcTime::parse(time)?))
}

/// A file of the folder as a recording, by its name and what the disk says.
fn of_file(folder: &Path, name: &str) -> Option<Recording> {
    let (source, kind, begin) = of_name(name)?;
    let found = fs::symlink_metadata(folder.join(name)).ok().filter(fs::Metadata::is_file)?;
    let written = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let end = UtcTime(written.map_or(0, |time| time.as_nanos() as u64)).max(begin);
    Some(Recording {
        file: name.into(),
        source,
        kind,
        begin,
        end,
        bytes: found.len(),
        events: Vec::new(),
        object: None,
    })
}

/// The recordings of a folder by their names, which begin with their sources.
pub type Recordings = BTreeMap<String, Recording>;

/// The index of a folder, and where it is written.
pub struct Index {
    folder: PathBuf,
    pub recordings: Recordings,
    /// Lines of the file.
    lines: usize,
}

impl Index {
    /// Reads the index, and repairs it where it does not tell what is there. What was not whole when the program ended gets its
    /// name, if it can be played.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let mut index = Index { folder: folder.into(), recordings: BTreeMap::new(), lines: 0 };
        let (mut known, is_intact) = index.read()?;
        let mut is_right = is_intact;
        let names = match fs::read_dir(folder) {
            Ok(entries) => entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        for name in names {
            let name = match name.strip_suffix(&format!(".{PART}")) {
                Some(whole) if of_name(whole).is_some() => match adopt(folder, whole) {
                    true => whole.to_string(),
                    false => continue,
                },
                _ => name,
            };
            let recording = match known.remove(&name) {
                Some(recording) => Some(recording),
                None => {
                    let found = of_file(folder, &name);
                    is_right &= found.is_none();
                    found
                }
            };
            index.recordings.extend(recording.map(|recording| (name, recording)));
        }
        if !is_right || !known.is_empty() {
            index.rewrite()?;
        }
        Ok(index)
    }

    /// What the file says, and whether all of it is understood.
    fn read(&mut self) -> io::Result<(Recordings, bool)> {
        let mut known = BTreeMap::new();
        let file = match File::open(self.folder.join(INDEX)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((known, true)),
            Err(error) => return Err(error),
        };
        let (mut reader, mut is_intact, mut line) = (BufReader::new(file), true, Vec::new());
        loop {
            line.clear();
            if (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok((known, is_intact));
            }
            self.lines += 1;
            if let Ok(recording) = serde_json::from_slice::<Recording>(&line)
                && line.ends_with(b"\n")
                && of_name(&recording.file).is_some()
            {
                known.insert(recording.file.clone(), recording);
            } else if let Ok(Removed { removed }) = serde_json::from_slice(&line) {
                known.remove(&removed);
            } else {
                is_intact = false; // cut off in the middle, or not ours
            }
        }
    }

    pub fn add(&mut self, recording: Recording) -> io::Result<()> {
        let line = serde_json::to_vec(&recording)?;
        self.recordings.insert(recording.file.clone(), recording);
        self.append(line)
    }

    /// Of a file that was removed.
    pub fn remove(&mut self, file: &str) -> io::Result<()> {
        if self.recordings.remove(file).is_none() {
            return Ok(());
        }
        self.append(serde_json::to_vec(&Removed { removed: file.into() })?)
    }

    fn append(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        // Most of it is about files that are gone.
        if self.lines > 1000 + 2 * self.recordings.len() {
            return self.rewrite();
        }
        line.push(b'\n');
        let mut file = File::options().read(true).append(true).create(true).open(self.folder.join(INDEX))?;
        // A line that was cut off ends here, so that only this one is lost.
        if file.seek(SeekFrom::End(-1)).is_ok() {
            let mut last = [0];
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                line.insert(0, b'\n');
            }
        }
        file.write_all(&line)?;
        self.lines += 1;
        Ok(())
    }

    /// In one step: until then the old one is there.
    fn rewrite(&mut self) -> io::Result<()> {
        let next = self.folder.join(format!("{INDEX}.{PART}"));
        let mut text = Vec::new();
        for recording in self.recordings.values() {
            serde_json::to_writer(&mut text, recording)?;
            text.push(b'\n');
        }
        fs::write(&next, text)?;
        fs::rename(next, self.folder.join(INDEX))?;
        self.lines = self.recordings.len();
        Ok(())
    }
}

/// Gives a file its name whose writer is gone. What cannot be played is removed.
fn adopt(folder: &Path, name: &str) -> bool {
    let part = folder.join(format!("{name}.{PART}"));
    let Ok(file) = File::open(&part) else { return false };
    // Whoever writes it has it locked.
    if file.try_lock().is_err() {
        return false;
    }
    if is_playable(&file, name) {
        return !folder.join(name).exists() && fs::rename(&part, folder.join(name)).is_ok();
    }
    let _ = fs::remove_file(&part); // what is left is no more than a name
    false
}

/// Whether there are frames in it, or a whole picture: in MP4, the head comes behind the first fragment.
fn is_playable(mut file: &File, name: &str) -> bool {
    let length = file.metadata().map_or(0, |found| found.len());
    if name.ends_with(PICTURE) {
        let mut end = [0; 2];
        return file.seek(SeekFrom::End(-2)).is_ok() && file.read_exact(&mut end).is_ok() && end == JPEG_END;
    }
    if !name.ends_with(".mp4") {
        return length > 1024; // more than the head
    }
    let mut at = 0;
    while at + 8 <= length {
        let mut head = [0; 8];
        if file.seek(SeekFrom::Start(at)).is_err() || file.read_exact(&mut head).is_err() {
            return false;
        }
        if &head[4..] == b"moov" {
            return true;
        }
        match u64::from(u32::from_be_bytes([head[0], head[1], head[2], head[3]])) {
            size if size >= 8 => at += size,
            _ => return false, // the fragment that was being written
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::scratch;

    fn recording(source: &str, second: u64, kind: Kind) -> Recording {
        let begin = UtcTime((1_700_000_000 + second) * 1_000_000_000);
        let file = name_of(source, kind, begin, 1, "mp4");
        let events = vec![Map::from_iter([("event".to_string(), "entered".into())])];
        Recording {
            file,
            source: source.into(),
            kind,
            begin,
            end: UtcTime(begin.0 + 5_000_000_000),
            bytes: 3,
            events,
            object: None,
        }
    }

    fn folder(test: &str) -> PathBuf {
        let folder = scratch(&format!("index-{test}"));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(index: &Index) -> Vec<&str> {
        index.recordings.keys().map(String::as_str).collect()
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
    }

    #[test]
    fn what_was_written_is_read_again() {
        let folder = folder("again");
        let mut index = Index::open(&folder).unwrap();
        let (first, second) = (recording("gate", 0, Kind::Event), recording("yard", 9, Kind::Continuous));
        for recording in [&first, &second] {
            fs::write(folder.join(&recording.file), "abc").unwrap();
            index.add(recording.clone()).unwrap();
        }
        assert_eq!(Index::open(&folder).unwrap().recordings, index.recordings);
        fs::remove_file(folder.join(&first.file)).unwrap();
        index.remove(&first.file).unwrap();
        assert_eq!(fs::read_to_string(folder.join(INDEX)).unwrap().lines().count(), 3);
        let again = Index::open(&folder).unwrap();
        assert_eq!(again.recordings.values().collect::<Vec<_>>(), [&second]);
    }

    /// The disk was full, the power was lost, or somebody has moved files.
    #[test]
    fn an_index_that_was_cut_is_repaired_by_the_files() {
        let folder = folder("cut");
        let mut index = Index::open(&folder).unwrap();
        let all: Vec<_> = (0..4).map(|number| recording("gate", number * 10, Kind::Event)).collect();
        for recording in &all {
            fs::write(folder.join(&recording.file), "abc").unwrap();
            index.add(recording.clone()).unwrap();
        }
        let text = fs::read_to_string(folder.join(INDEX)).unwrap();
        for cut in [text.len() - 10, text.len() / 2, 3, 0] {
            fs::write(folder.join(INDEX), &text[..cut]).unwrap();
            let repaired = Index::open(&folder).unwrap();
            assert_eq!(names(&repaired), names(&index), "{cut}");
            let whole = text[..cut].matches('\n').count();
            let kept = repaired.recordings.values().filter(|recording| !recording.events.is_empty()).count();
            assert_eq!(kept, whole, "{cut}: what is left of it counts");
            assert_eq!(repaired.recordings[&all[0].file].begin, all[0].begin);
            let written = fs::read_to_string(folder.join(INDEX)).unwrap();
            assert_eq!(written.lines().count(), 4, "{written}");
        }
        // Binary, a line of another program, a file that is gone, and one that is not in it.
        fs::write(folder.join(INDEX), [text.as_bytes(), b"\xFF\0\n{\"a\": 1}\n"].concat()).unwrap();
        fs::remove_file(folder.join(&all[0].file)).unwrap();
        let other = recording("yard", 5, Kind::Continuous);
        fs::write(folder.join(&other.file), "abcdef").unwrap();
        fs::write(folder.join("holiday.mp4"), "not ours").unwrap();
        let repaired = Index::open(&folder).unwrap();
        assert_eq!(repaired.recordings.len(), 4);
        assert_eq!(repaired.recordings[&other.file].bytes, 6);
        assert_eq!(repaired.recordings[&other.file].kind, Kind::Continuous);
        assert!(folder.join("holiday.mp4").exists());
    }

    /// A line that could not be written to its end does not spoil the next one.
    #[test]
    fn a_line_after_one_that_was_cut_is_whole() {
        let folder = folder("after");
        fs::write(folder.join(INDEX), "{\"file\": \"ga").unwrap();
        let mut index = Index { folder: folder.clone(), recordings: BTreeMap::new(), lines: 1 };
        let recording = recording("gate", 0, Kind::Event);
        fs::write(folder.join(&recording.file), "abc").unwrap();
        index.add(recording.clone()).unwrap();
        assert_eq!(Index::open(&folder).unwrap().recordings[&recording.file], recording);
    }

    #[test]
    fn an_index_of_files_that_are_gone_is_written_again() {
        let folder = folder("gone");
        let mut index = Index::open(&folder).unwrap();
        for number in 0..1200 {
            index.add(recording("gate", number, Kind::Event)).unwrap();
            index.remove(&recording("gate", number, Kind::Event).file).unwrap();
        }
        let lines = fs::read_to_string(folder.join(INDEX)).unwrap().lines().count();
        assert!(lines < 1100, "{lines}");
    }

    #[test]
    fn what_a_killed_program_left_gets_its_name() {
        let folder = folder("left");
        let part = |recording: &Recording| folder.join(format!("{}.{PART}", recording.file));
        let pictures =
            [("e", &[0xFF, 0xD8, 0xFF, 0xD9][..]), ("f", &[0xFF, 0xD8, 0xFF]), ("g", &[])].map(|(source, bytes)| {
                let name = name_of(source, Kind::Snapshot, recording(source, 0, Kind::Event).begin, 1, PICTURE);
                fs::write(folder.join(format!("{name}.{PART}")), bytes).unwrap();
                name
            });
        let (playable, empty, head, written) = (
            recording("a", 0, Kind::Event),
            recording("b", 0, Kind::Event),
            recording("c", 0, Kind::Event),
            recording("d", 0, Kind::Event),
        );
        let moov =
            [&8u32.to_be_bytes()[..], b"ftyp", &12u32.to_be_bytes(), b"mdat", &[7; 4], &8u32.to_be_bytes(), b"moov"]
                .concat();
        fs::write(part(&playable), &moov).unwrap();
        fs::write(part(&empty), "").unwrap();
        fs::write(part(&head), &moov[..8]).unwrap();
        fs::write(part(&written), &moov).unwrap();
        let lock = File::open(part(&written)).unwrap();
        lock.lock().unwrap();
        fs::write(folder.join("holiday.mp4.part"), &moov).unwrap();
        assert_eq!(names(&Index::open(&folder).unwrap()), [&playable.file, &pictures[0]]);
        assert!(part(&written).exists() && folder.join("holiday.mp4.part").exists());
        assert!(!part(&empty).exists() && !part(&head).exists());
        drop(lock);
        assert_eq!(names(&Index::open(&folder).unwrap()), [&playable.file, &written.file, &pictures[0]]);
    }
}
