// SPDX-License-Identifier: MPL-2.0
use serde_json::Map;

use super::super::content::PICTURE;
use super::super::name::name_of;
use super::super::recording::Kind;
use super::*;
use crate::scratch::scratch;

fn recording(source: &str, second: u64, kind: Kind) -> Recording {
    let begin = UtcTime((1_700_000_000 + second) * 1_000_000_000);
    let file = name_of(source, kind, begin, 1, "mp4");
    let events = vec![Map::from_iter([("event".to_string(), "entered".into())])];
    let end = UtcTime(begin.0 + 5_000_000_000);
    Recording { file, source: source.into(), kind, begin, end, bytes: 3, events, object: None }
}

fn folder(test: &str) -> PathBuf {
    let folder = scratch(&format!("index-{test}"));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// As much of a file as tells that it can be played.
fn playable() -> Vec<u8> {
    [&8u32.to_be_bytes()[..], b"ftyp", &12u32.to_be_bytes(), b"mdat", &[7; 4], &8u32.to_be_bytes(), b"moov"].concat()
}

fn open(folder: &Path) -> Index {
    Index::open(folder, &Catalogue::default()).unwrap()
}

fn entries(index: &Index) -> Entries {
    index.catalogue.lock().entries.clone()
}

fn names(index: &Index) -> Vec<String> {
    entries(index).into_keys().collect()
}

/// In the order in which they were made, from the disk.
fn read(index: &Index) -> Vec<Recording> {
    index.catalogue.in_order().iter().map(FoundRecording::read).collect()
}

fn waiting(index: &Index) -> usize {
    entries(index).values().filter(|entry| matches!(entry.line, IndexLine::Waiting(_))).count()
}

#[test]
fn what_was_written_is_read_again() {
    let folder = folder("again");
    let mut index = open(&folder);
    let (first, second) = (recording("gate", 0, Kind::Event), recording("yard", 9, Kind::Continuous));
    for recording in [&first, &second] {
        fs::write(folder.join(&recording.file), "abc").unwrap();
        index.add(recording.clone()).unwrap();
    }
    assert_eq!(entries(&open(&folder)), entries(&index));
    assert_eq!(read(&index), [first.clone(), second.clone()]);
    fs::remove_file(folder.join(&first.file)).unwrap();
    index.remove(&first.file).unwrap();
    assert_eq!(fs::read_to_string(folder.join(INDEX)).unwrap().lines().count(), 3);
    let again = open(&folder);
    assert_eq!(entries(&again), entries(&index));
    assert_eq!(read(&again), [second]);
}

/// The disk was full, the power was lost, or somebody has moved files.
#[test]
fn an_index_that_was_cut_is_repaired_by_the_files() {
    let folder = folder("cut");
    let mut index = open(&folder);
    let all: Vec<_> = (0..4).map(|number| recording("gate", number * 10, Kind::Event)).collect();
    for recording in &all {
        fs::write(folder.join(&recording.file), playable()).unwrap();
        index.add(recording.clone()).unwrap();
    }
    let text = fs::read_to_string(folder.join(INDEX)).unwrap();
    for cut in [text.len() - 10, text.len() / 2, 3, 0] {
        fs::write(folder.join(INDEX), &text[..cut]).unwrap();
        let mut repaired = open(&folder);
        repaired.settle().unwrap();
        assert_eq!(names(&repaired), names(&index), "{cut}");
        let whole = text[..cut].matches('\n').count();
        let kept = read(&repaired).iter().filter(|recording| !recording.events.is_empty()).count();
        assert_eq!((kept, waiting(&repaired)), (whole, 0), "{cut}: what is left of it counts");
        assert_eq!(entries(&repaired)[&all[0].file].begin, all[0].begin);
        let written = fs::read_to_string(folder.join(INDEX)).unwrap();
        assert_eq!(written.lines().count(), 4, "{written}");
    }
    // Another version may say more of each.
    fs::write(folder.join(INDEX), text.replace("}\n", ", \"later\": [1]}\n")).unwrap();
    assert_eq!(read(&open(&folder)), all);
    // Binary, a line of another program, a file that is gone, and one that is not in it.
    fs::write(folder.join(INDEX), [text.as_bytes(), b"\xFF\0\n{\"a\": 1}\n"].concat()).unwrap();
    fs::remove_file(folder.join(&all[0].file)).unwrap();
    let other = recording("yard", 5, Kind::Continuous);
    fs::write(folder.join(&other.file), playable()).unwrap();
    fs::write(folder.join("holiday.mp4"), "not ours").unwrap();
    let repaired = open(&folder);
    let known = entries(&repaired);
    assert_eq!((known.len(), known[&other.file].bytes), (4, playable().len() as u64));
    let order: Vec<_> = read(&repaired).into_iter().map(|recording| recording.file).collect();
    assert_eq!(
        order.iter().collect::<Vec<_>>(),
        [&other.file, &all[1].file, &all[2].file, &all[3].file],
        "by its time among the others"
    );
    assert_eq!(known[&other.file].kind, Kind::Continuous);
    assert!(folder.join("holiday.mp4").exists());
}

/// A line that could not be written to its end does not spoil the next one.
#[test]
fn a_line_after_one_that_was_cut_is_whole() {
    let folder = folder("after");
    fs::write(folder.join(INDEX), "{\"file\": \"ga").unwrap();
    let mut index = open(&folder);
    index.is_stale = false;
    let recording = recording("gate", 0, Kind::Event);
    fs::write(folder.join(&recording.file), "abc").unwrap();
    index.add(recording.clone()).unwrap();
    assert_eq!(entries(&open(&folder)), entries(&index));
    assert_eq!((read(&index), read(&open(&folder))), (vec![recording.clone()], vec![recording]));
}

/// It works with what it has read, and the index is written once there is room.
#[test]
fn a_full_disk_keeps_no_index_from_being_read() {
    let folder = folder("full");
    let mut index = open(&folder);
    let (old, new) = (recording("gate", 0, Kind::Event), recording("gate", 10, Kind::Event));
    for recording in [&old, &new] {
        fs::write(folder.join(&recording.file), playable()).unwrap();
    }
    index.add(old.clone()).unwrap();
    // There is room for a name, and for nothing in it.
    let part = folder.join(format!("{INDEX}.{PART}"));
    let fill = || std::os::unix::fs::symlink("/dev/full", &part).unwrap();
    let mut index = open(&folder);
    assert_eq!(names(&index), [old.file.clone(), new.file.clone()]);
    fill();
    assert_eq!(index.settle().unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(!part.is_symlink(), "nothing is left of it");
    fill();
    fs::remove_file(folder.join(&old.file)).unwrap();
    assert!(index.remove(&old.file).is_err());
    assert_eq!(names(&index), std::slice::from_ref(&new.file));
    index.settle().unwrap();
    let text = fs::read_to_string(folder.join(INDEX)).unwrap();
    assert!(text.lines().count() == 1 && text.contains(&new.file), "{text}");
    // So do what is no file, and one that cannot be read.
    fs::remove_file(folder.join(INDEX)).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.join(INDEX)).unwrap();
    let mut index = open(&folder);
    index.settle().unwrap();
    assert!(names(&index) == std::slice::from_ref(&new.file) && !folder.join(INDEX).is_symlink());
    fs::remove_file(folder.join(INDEX)).unwrap();
    fs::create_dir(folder.join(INDEX)).unwrap();
    assert_eq!(names(&open(&folder)), [new.file]);
}

/// Else nothing would be known of events after a power cut.
#[test]
fn an_index_is_on_the_disk_before_it_has_its_name() {
    let folder = folder("synced");
    let mut index = open(&folder);
    let kept = recording("gate", 0, Kind::Event);
    fs::write(folder.join(&kept.file), playable()).unwrap();
    index.add(kept).unwrap();
    let text = fs::read(folder.join(INDEX)).unwrap();
    // It takes all that is written, and cannot be told to keep it.
    let part = folder.join(format!("{INDEX}.{PART}"));
    std::os::unix::fs::symlink("/dev/null", &part).unwrap();
    assert!(index.rewrite().is_err());
    assert_eq!((fs::read(folder.join(INDEX)).unwrap(), part.is_symlink()), (text, false));
    index.settle().unwrap();
}

/// Whatever their names say.
#[test]
fn the_order_in_which_files_were_made_stays() {
    let folder = folder("order");
    let mut index = open(&folder);
    let all: Vec<_> = [500, 7, 300].map(|second| recording("gate", second, Kind::Event)).into();
    for recording in &all {
        fs::write(folder.join(&recording.file), playable()).unwrap();
        index.add(recording.clone()).unwrap();
    }
    let wanted: Vec<_> = all.iter().map(|recording| recording.file.as_str()).collect();
    let order = |index: &Index| read(index).into_iter().map(|one| one.file).collect::<Vec<_>>();
    assert_eq!(order(&index), wanted);
    let mut index = open(&folder);
    assert_eq!(order(&index), wanted);
    index.is_stale = true;
    index.settle().unwrap();
    assert_eq!(order(&open(&folder)), wanted);
}

/// With the events of a month in memory, there is no room for anything else.
#[test]
fn what_has_happened_is_read_from_the_disk() {
    let folder = folder("disk");
    let mut index = open(&folder);
    let all: Vec<_> = (0..9).map(|number| recording("gate", number, Kind::Event)).collect();
    for recording in &all {
        fs::write(folder.join(&recording.file), playable()).unwrap();
        index.add(recording.clone()).unwrap();
    }
    let before = index.catalogue.in_order();
    assert_eq!((waiting(&index), read(&index)), (0, all.clone()));
    assert_eq!(entries(&index)[&all[0].file].events, ["entered"]);
    index.remove(&all[0].file).unwrap();
    index.rewrite().unwrap();
    assert_eq!((waiting(&index), read(&index)), (0, all[1..].to_vec()));
    assert_eq!(before.iter().map(FoundRecording::read).collect::<Vec<_>>(), all, "who has found them before reads on");
    // Somebody has removed the index: all of it is there again with the next line.
    fs::remove_file(folder.join(INDEX)).unwrap();
    index.add(all[0].clone()).unwrap();
    assert_eq!(read(&open(&folder)), [&all[1..], &all[..1]].concat());
    // Or has written into it.
    fs::write(folder.join(INDEX), "").unwrap();
    let left = read(&index);
    assert!(left.len() == 9 && left.iter().all(|recording| recording.events.is_empty()));
}

/// Two programs may write to a folder, and a disk may be mounted there later.
#[test]
fn an_index_of_others_is_taken_in() {
    let folder = folder("others").join("disk");
    let mut late = open(&folder);
    fs::create_dir(&folder).unwrap();
    let mut early = open(&folder);
    let all: Vec<_> = (0..4).map(|number| recording("gate", number * 10, Kind::Event)).collect();
    for (number, recording) in all.iter().enumerate() {
        fs::write(folder.join(&recording.file), playable()).unwrap();
        let index = if number % 2 == 0 { &mut early } else { &mut late };
        index.add(recording.clone()).unwrap();
        assert_eq!((read(&open(&folder)), waiting(index)), (all[..=number].to_vec(), 0));
        assert_eq!(read(index), all[..=number], "both know all of it");
        assert!(entries(index).values().all(|entry| entry.events == ["entered"]));
    }
    // So it is with what is told of files that are gone.
    fs::remove_file(folder.join(&all[0].file)).unwrap();
    early.remove(&all[0].file).unwrap();
    assert_eq!(read(&open(&folder)), all[1..]);
}

#[test]
fn an_index_of_files_that_are_gone_is_written_again() {
    let folder = folder("gone");
    let mut index = open(&folder);
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
    assert_eq!(names(&open(&folder)), [played.file.clone(), pictures[0].clone()]);
    assert!(part(&written).exists() && folder.join("holiday.mp4.part").exists());
    assert!(!part(&empty).exists() && !part(&head).exists());
    drop(lock);
    assert_eq!(names(&open(&folder)), [played.file, written.file, pictures[0].clone()]);
}

/// A line of the index may be wrong, and others may have put something else in a file's place.
#[test]
fn the_files_are_the_truth() {
    let folder = folder("truth");
    let mut index = open(&folder);
    let all: Vec<_> = (0..3).map(|number| recording("gate", number, Kind::Event)).collect();
    for recording in &all {
        fs::write(folder.join(&recording.file), playable()).unwrap();
        index.add(Recording { bytes: u64::MAX, ..recording.clone() }).unwrap();
    }
    for (recording, other) in all[1..].iter().zip(["pipe", "link"]) {
        fs::remove_file(folder.join(&recording.file)).unwrap();
        match other {
            "pipe" => make_pipe(&folder.join(&recording.file)),
            _ => std::os::unix::fs::symlink("/etc/passwd", folder.join(&recording.file)).unwrap(),
        }
    }
    make_pipe(&folder.join(format!("{}.{PART}", recording("yard", 0, Kind::Event).file)));
    let mut index = open(&folder);
    assert_eq!(names(&index), [all[0].file.clone()]);
    assert_eq!(entries(&index)[&all[0].file].bytes, playable().len() as u64);
    // Nor is a pipe written into.
    make_pipe(&folder.join(format!("{INDEX}.{PART}")));
    assert!(index.rewrite().is_err());
    index.rewrite().unwrap();
    assert_eq!(names(&open(&folder)), [all[0].file.clone()]);
}

fn make_pipe(path: &Path) {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the text ends with 0.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
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
    assert!(names(&open(&folder)).is_empty());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "they stay where they are");
}
