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

use super::content::{Content, PICTURE, look_into};
use super::moment::UtcTime;

const INDEX: &str = "index.jsonl";
/// Behind the name of a file that is being written.
pub const PART: &str = "part";
/// Before the ending of one that is written all the time.
const CONTINUOUS: &str = "-continuous";
const ENDINGS: [&str; 3] = ["mp4", "mkv", PICTURE];
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
    /// Its place among those of its folder, in the order in which they became whole. Their times are of a clock that may be
    /// set.
    #[serde(skip)]
    pub made: u64,
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
    // In this order: one that becomes whole between both looks is seen by the second.
    let is_free = |name: &String| !part(&folder.join(name)).exists() && !folder.join(name).exists();
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
    let (stem, number) = match stem.rsplit_once('-') {
        Some((before, number)) if number.len() < 6 && number.parse::<u32>().is_ok() => (before, number.parse().ok()?),
        _ => (stem, 1),
    };
    let (source, time) = stem.rsplit_once('-')?;
    let begin = UtcTime::parse(time)?;
    // Others write times, too, but not just as they are written here.
    (name_of(source, kind, begin, number, ending) == name).then(|| (source.into(), kind, begin))
}

/// A file of the folder as a recording, by its name and what the disk says.
fn of_file(folder: &Path, name: &str) -> Option<Recording> {
    let (source, kind, begin) = of_name(name)?;
    let found = fs::symlink_metadata(folder.join(name)).ok().filter(fs::Metadata::is_file)?;
    let written = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    if look_into(&File::open(folder.join(name)).ok()?, name) != Content::Frames {
        return None;
    }
    let end = UtcTime(written.map_or(0, |time| time.as_nanos() as u64)).max(begin);
    let (bytes, events, object) = (found.len(), Vec::new(), None);
    Some(Recording { file: name.into(), source, kind, begin, end, bytes, events, object, made: 0 })
}

/// The recordings of a folder by their names, which begin with their sources.
pub type Recordings = BTreeMap<String, Recording>;

/// The recordings in the order in which they were made.
pub fn in_order(recordings: &Recordings) -> Vec<&Recording> {
    let mut all: Vec<_> = recordings.values().collect();
    all.sort_by_key(|recording| (recording.made, recording.begin));
    all
}

/// The index of a folder, and where it is written.
pub struct Index {
    folder: PathBuf,
    pub recordings: Recordings,
    /// Lines of the file.
    lines: usize,
    /// The place of the newest recording.
    newest: u64,
    /// Whether the file does not say what is known, as it could not be written.
    is_stale: bool,
}

impl Index {
    fn new(folder: &Path) -> Self {
        Index { folder: folder.into(), recordings: BTreeMap::new(), lines: 0, newest: 0, is_stale: false }
    }

    /// Reads the index. Where it does not tell what is there it is stale: [`Index::settle`] repairs it. What was not whole when
    /// the program ended gets its name, if it can be played.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let mut index = Index::new(folder);
        let mut known = BTreeMap::new();
        // Of what cannot be read, the files tell.
        let is_intact = index.read(&mut known).unwrap_or(false);
        let mut found = Vec::new();
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
            match known.remove(&name) {
                Some(recording) => drop(index.recordings.insert(name, recording)),
                None => found.extend(of_file(folder, &name)),
            }
        }
        index.is_stale = !is_intact || !found.is_empty() || !known.is_empty();
        index.place(found);
        Ok(index)
    }

    /// Takes recordings of which the index says nothing: they come behind those that began before.
    fn place(&mut self, found: Vec<Recording>) {
        let mut places: Vec<_> = self.recordings.values().map(|known| (known.begin, known.made)).collect();
        places.sort();
        let mut newest = 0;
        for (_, made) in &mut places {
            newest = newest.max(*made);
            *made = newest;
        }
        for recording in found {
            let before = places.partition_point(|(begin, _)| *begin <= recording.begin);
            let made = before.checked_sub(1).map_or(0, |last| places[last].1);
            self.recordings.insert(recording.file.clone(), Recording { made, ..recording });
        }
    }

    /// Reads what the file says. Returns whether all of it is understood.
    fn read(&mut self, known: &mut Recordings) -> io::Result<bool> {
        let file = match File::open(self.folder.join(INDEX)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
        };
        let (mut reader, mut is_intact, mut line) = (BufReader::new(file), true, Vec::new());
        loop {
            line.clear();
            if (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok(is_intact);
            }
            self.lines += 1;
            if let Ok(recording) = serde_json::from_slice::<Recording>(&line)
                && line.ends_with(b"\n")
                && of_name(&recording.file).is_some()
            {
                self.newest += 1;
                known.insert(recording.file.clone(), Recording { made: self.newest, ..recording });
            } else if let Ok(Removed { removed }) = serde_json::from_slice(&line) {
                known.remove(&removed);
            } else {
                is_intact = false; // cut off in the middle, or not ours
            }
        }
    }

    pub fn add(&mut self, recording: Recording) -> io::Result<()> {
        let line = serde_json::to_vec(&recording)?;
        self.newest += 1;
        self.recordings.insert(recording.file.clone(), Recording { made: self.newest, ..recording });
        self.append(line)
    }

    /// Of a file that was removed.
    pub fn remove(&mut self, file: &str) -> io::Result<()> {
        if self.recordings.remove(file).is_none() {
            return Ok(());
        }
        self.append(serde_json::to_vec(&Removed { removed: file.into() })?)
    }

    /// Writes what could not be written before.
    pub fn settle(&mut self) -> io::Result<()> {
        if self.is_stale { self.rewrite() } else { Ok(()) }
    }

    fn append(&mut self, line: Vec<u8>) -> io::Result<()> {
        // Or most of it is about files that are gone.
        if self.is_stale || self.lines > 1000 + 2 * self.recordings.len() {
            return self.rewrite();
        }
        let appended = self.append_line(line);
        self.is_stale = appended.is_err();
        appended
    }

    fn append_line(&mut self, mut line: Vec<u8>) -> io::Result<()> {
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
        for recording in in_order(&self.recordings) {
            serde_json::to_writer(&mut text, recording)?;
            text.push(b'\n');
        }
        let written = fs::write(&next, text).and_then(|()| fs::rename(&next, self.folder.join(INDEX)));
        self.is_stale = written.is_err();
        match written {
            Ok(()) => self.lines = self.recordings.len(),
            Err(_) => drop(fs::remove_file(&next)), // on a full disk there is not even room for what is in it
        }
        written
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
    match look_into(&file, name) {
        Content::Frames => !folder.join(name).exists() && fs::rename(&part, folder.join(name)).is_ok(),
        Content::NoFrames => {
            let _ = fs::remove_file(&part); // what is left is no more than a name
            false
        }
        Content::Other => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::scratch;

    fn recording(source: &str, second: u64, kind: Kind) -> Recording {
        let begin = UtcTime((1_700_000_000 + second) * 1_000_000_000);
        let file = name_of(source, kind, begin, 1, "mp4");
        let events = vec![Map::from_iter([("event".to_string(), "entered".into())])];
        let end = UtcTime(begin.0 + 5_000_000_000);
        Recording { file, source: source.into(), kind, begin, end, bytes: 3, events, object: None, made: 0 }
    }

    fn folder(test: &str) -> PathBuf {
        let folder = scratch(&format!("index-{test}"));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// As much of a file as tells that it can be played.
    fn playable() -> Vec<u8> {
        [&8u32.to_be_bytes()[..], b"ftyp", &12u32.to_be_bytes(), b"mdat", &[7; 4], &8u32.to_be_bytes(), b"moov"]
            .concat()
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
        assert_eq!(again.recordings, index.recordings);
        assert_eq!(names(&again), [&second.file]);
    }

    /// The disk was full, the power was lost, or somebody has moved files.
    #[test]
    fn an_index_that_was_cut_is_repaired_by_the_files() {
        let folder = folder("cut");
        let mut index = Index::open(&folder).unwrap();
        let all: Vec<_> = (0..4).map(|number| recording("gate", number * 10, Kind::Event)).collect();
        for recording in &all {
            fs::write(folder.join(&recording.file), playable()).unwrap();
            index.add(recording.clone()).unwrap();
        }
        let text = fs::read_to_string(folder.join(INDEX)).unwrap();
        for cut in [text.len() - 10, text.len() / 2, 3, 0] {
            fs::write(folder.join(INDEX), &text[..cut]).unwrap();
            let mut repaired = Index::open(&folder).unwrap();
            repaired.settle().unwrap();
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
        fs::write(folder.join(&other.file), playable()).unwrap();
        fs::write(folder.join("holiday.mp4"), "not ours").unwrap();
        let repaired = Index::open(&folder).unwrap();
        assert_eq!(repaired.recordings.len(), 4);
        assert_eq!(repaired.recordings[&other.file].bytes, playable().len() as u64);
        let order: Vec<_> = in_order(&repaired.recordings).iter().map(|recording| &recording.file).collect();
        assert_eq!(order, [&other.file, &all[1].file, &all[2].file, &all[3].file], "by its time among the others");
        assert_eq!(repaired.recordings[&other.file].kind, Kind::Continuous);
        assert!(folder.join("holiday.mp4").exists());
    }

    /// A line that could not be written to its end does not spoil the next one.
    #[test]
    fn a_line_after_one_that_was_cut_is_whole() {
        let folder = folder("after");
        fs::write(folder.join(INDEX), "{\"file\": \"ga").unwrap();
        let mut index = Index { lines: 1, ..Index::new(&folder) };
        let recording = recording("gate", 0, Kind::Event);
        fs::write(folder.join(&recording.file), "abc").unwrap();
        index.add(recording.clone()).unwrap();
        assert_eq!(Index::open(&folder).unwrap().recordings, index.recordings);
        assert_eq!(Index::open(&folder).unwrap().recordings[&recording.file].events, recording.events);
    }

    /// It works with what it has read, and the index is written once there is room.
    #[test]
    fn a_full_disk_keeps_no_index_from_being_read() {
        let folder = folder("full");
        let mut index = Index::open(&folder).unwrap();
        let (old, new) = (recording("gate", 0, Kind::Event), recording("gate", 10, Kind::Event));
        for recording in [&old, &new] {
            fs::write(folder.join(&recording.file), playable()).unwrap();
        }
        index.add(old.clone()).unwrap();
        // There is room for a name, and for nothing in it.
        let part = folder.join(format!("{INDEX}.{PART}"));
        let fill = || std::os::unix::fs::symlink("/dev/full", &part).unwrap();
        let mut index = Index::open(&folder).unwrap();
        assert_eq!(names(&index), [&old.file, &new.file]);
        fill();
        assert_eq!(index.settle().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(!part.is_symlink(), "nothing is left of it");
        fill();
        fs::remove_file(folder.join(&old.file)).unwrap();
        assert!(index.remove(&old.file).is_err());
        assert_eq!(names(&index), [&new.file]);
        index.settle().unwrap();
        let text = fs::read_to_string(folder.join(INDEX)).unwrap();
        assert!(text.lines().count() == 1 && text.contains(&new.file), "{text}");
        // So does one that cannot be read.
        fs::remove_file(folder.join(INDEX)).unwrap();
        fs::create_dir(folder.join(INDEX)).unwrap();
        assert_eq!(names(&Index::open(&folder).unwrap()), [&new.file]);
    }

    /// Whatever their names say.
    #[test]
    fn the_order_in_which_files_were_made_stays() {
        let folder = folder("order");
        let mut index = Index::open(&folder).unwrap();
        let all: Vec<_> = [500, 7, 300].map(|second| recording("gate", second, Kind::Event)).into();
        for recording in &all {
            fs::write(folder.join(&recording.file), playable()).unwrap();
            index.add(recording.clone()).unwrap();
        }
        let wanted: Vec<_> = all.iter().map(|recording| recording.file.as_str()).collect();
        let order = |index: &Index| in_order(&index.recordings).iter().map(|one| one.file.clone()).collect::<Vec<_>>();
        assert_eq!(order(&index), wanted);
        let mut index = Index::open(&folder).unwrap();
        assert_eq!(order(&index), wanted);
        index.is_stale = true;
        index.settle().unwrap();
        assert_eq!(order(&Index::open(&folder).unwrap()), wanted);
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
        let moov = playable();
        let (played, empty, head, written) = (
            recording("a", 0, Kind::Event),
            recording("b", 0, Kind::Event),
            recording("c", 0, Kind::Event),
            recording("d", 0, Kind::Event),
        );
        fs::write(part(&played), &moov).unwrap();
        fs::write(part(&empty), "").unwrap();
        fs::write(part(&head), &moov[..8]).unwrap();
        fs::write(part(&written), &moov).unwrap();
        let lock = File::open(part(&written)).unwrap();
        lock.lock().unwrap();
        fs::write(folder.join("holiday.mp4.part"), &moov).unwrap();
        assert_eq!(names(&Index::open(&folder).unwrap()), [&played.file, &pictures[0]]);
        assert!(part(&written).exists() && folder.join("holiday.mp4.part").exists());
        assert!(!part(&empty).exists() && !part(&head).exists());
        drop(lock);
        assert_eq!(names(&Index::open(&folder).unwrap()), [&played.file, &written.file, &pictures[0]]);
    }
    /// What has its name is none of ours if it is no such file.
    #[test]
    fn only_what_can_be_read_is_a_recording() {
        let matroska = |size: &[u8], frame: usize| {
            let segment = [&b"\x18\x53\x80\x67"[..], size, b"\x11\x4D\x9B\x74\x82ab"].concat();
            [&b"\x1A\x45\xDF\xA3\x83abc"[..], &segment, b"\x1F\x43\xB6\x75\xFF", &vec![7; frame]].concat()
        };
        let large =
            [&8u32.to_be_bytes()[..], b"ftyp", &1u32.to_be_bytes(), b"mdat", &24u64.to_be_bytes(), &[7; 8]].concat();
        let unknown = b"\x01\xFF\xFF\xFF\xFF\xFF\xFF\xFF";
        let random: Vec<u8> = (0..9999u32).map(|number| ((number * number) >> 3) as u8).collect();
        let folder = folder("readable");
        for (name, content, wanted) in [
            ("a.mp4", playable(), Content::Frames),
            ("b.mp4", [large, b"\0\0\0\x08moov".to_vec()].concat(), Content::Frames),
            ("c.mp4", playable()[..20].to_vec(), Content::NoFrames),
            ("d.mp4", random.clone(), Content::Other),
            ("e.mkv", matroska(unknown, 100), Content::Frames),
            ("f.mkv", matroska(b"\x40\xFF", 100), Content::Frames),
            ("g.mkv", matroska(unknown, 3), Content::NoFrames),
            ("h.mkv", matroska(unknown, 100)[..9].to_vec(), Content::NoFrames),
            ("i.mkv", random.clone(), Content::Other),
            ("j.mkv", vec![0; 100], Content::Other),
            ("k.mkv", Vec::new(), Content::NoFrames),
        ] {
            fs::write(folder.join(name), content).unwrap();
            assert_eq!(look_into(&File::open(folder.join(name)).unwrap(), name), wanted, "{name}");
            fs::remove_file(folder.join(name)).unwrap();
        }
        for name in ["gate-20260101T000000.000Z.mkv", "gate-20260101T000000.000Z.mkv.part"] {
            fs::write(folder.join(name), &random).unwrap();
        }
        assert!(Index::open(&folder).unwrap().recordings.is_empty());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "they stay where they are");
    }
}
