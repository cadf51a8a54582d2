// SPDX-License-Identifier: MPL-2.0
//! The file of a gallery: JSON lines with a `name` and a `vector`, or an archive of `numpy.savez`, which is read only.
//!
//! ```text
//! {"name": "Ada", "vector": [0.1, -0.25, …]}
//! {"name": "Ada", "vector": "zczMPQAAgL4…"}
//! ```
//!
//! A vector is a list of numbers, or base64 of f32 with the lower bytes first, which is half as long and exact. Several lines
//! may have one name. Other keys, and empty lines, are ignored. A change writes a new file and puts it in the place of the
//! old one, so that a reader has the one or the other.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::entry::{GalleryEntry, MAX_VECTORS, check_name, check_vector};
use super::lock::NewGalleryFile;
use super::{Gallery, npz};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{open_regular, read_bounded};
use crate::json::repeated_key;
use crate::vector;

/// Bytes of a line: more than numbers of a vector take in any notation.
const MAX_LINE: u64 = 256 << 10;
/// Bytes of a file: 100,000 vectors of 512 numbers take 280 MB in base64.
const MAX_FILE: u64 = 512 << 20;
/// How long another change is waited for.
const CHANGE_WAIT: Duration = Duration::from_secs(10);
/// What some editors write before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8; 3] = b"\xef\xbb\xbf";

/// Reads a gallery. An empty file has nobody.
///
/// # Errors
/// `NotFound`, `Read`, and `Settings` with the number of the first line that is wrong, or the array.
pub fn read(path: &Path) -> Result<Gallery> {
    read_open(path, open(path)?)
}

/// The same of a file that is open.
pub(super) fn read_open(path: &Path, file: File) -> Result<Gallery> {
    if is_archive(&file) {
        return read_archive(path, file).map(Gallery::new);
    }
    let mut entries = Vec::new();
    visit(path, file, |entry, _| entries.push(entry))?;
    Ok(Gallery::new(entries))
}

/// A warning where names of the gallery of that file have one vector: whoever is like it has the first name.
pub fn shared_vector(path: &Path, gallery: &Gallery) -> Option<Error> {
    shared_vector_of(path, gallery, |_| true)
}

/// The same, and names that were just added are told rather than others.
#[doc(hidden)]
pub fn shared_vector_of(path: &Path, gallery: &Gallery, is_new: impl Fn(&str) -> bool) -> Option<Error> {
    let (first, second, others) = gallery.shared_vector_of(is_new)?;
    let more = match others {
        0 => String::new(),
        1 => ", and another vector has several names, too".into(),
        others => format!(", and {others} other vectors have several names, too"),
    };
    let what = format!(
        "In the gallery {} “{first}” and “{second}” have the same vector, so who is like it is called “{first}”{more}",
        path.display()
    );
    let remedy = "Remove the wrong name with gst-trt enrol --remove, and add it with other pictures";
    Some(Error::new(ErrorKind::Settings, what).remedy(remedy))
}

/// Changes the file: leaves out the lines of names that `keeps` does not keep, and adds entries behind the others. Returns
/// how many were left out. Where there is no such file, one is made that only this user may read. Another change is waited for.
///
/// # Errors
/// As [`read`]; `Settings`, where the entries have other dimensions than the vectors that are there; `Run`, where the file
/// cannot be written. The file is as it was then.
pub fn change(path: &Path, keeps: impl Fn(&str) -> bool, added: &[GalleryEntry]) -> Result<usize> {
    change_and_keep(path, keeps, added).map(|change| change.left_out)
}

/// The same, with the gallery as it is then: the file need not be read again.
#[doc(hidden)]
pub fn change_and_keep(path: &Path, keeps: impl Fn(&str) -> bool, added: &[GalleryEntry]) -> Result<GalleryChange> {
    change_within(path, keeps, added, CHANGE_WAIT)?.ok_or_else(|| busy(path))
}

/// What a change has done.
#[doc(hidden)]
pub struct GalleryChange {
    /// Vectors that were left out.
    pub left_out: usize,
    /// As it is now.
    pub gallery: Gallery,
}

/// The same as [`change`]. `None` where another change takes longer than `wait`. A change without any effect writes nothing.
#[doc(hidden)]
pub fn change_within(
    path: &Path,
    keeps: impl Fn(&str) -> bool,
    added: &[GalleryEntry],
    wait: Duration,
) -> Result<Option<GalleryChange>> {
    // Before the old one is read: two programs do not change a gallery at the same time.
    let Some((place, new)) = lock(path, wait)? else { return Ok(None) };
    let failed = |error: io::Error| cannot_write(path, error);
    let old = old(path)?;
    let (lines, entries, left_out) = changed(path, old.is_some(), keeps, added)?;
    if old.is_none() || left_out > 0 || !added.is_empty() {
        write_all(&new.file, old.as_ref(), &lines).and_then(|()| new.put(&place)).map_err(failed)?;
    }
    Ok(Some(GalleryChange { left_out, gallery: Gallery::new(entries) }))
}

/// Whether the gallery can be changed, before work is done for that. Returns how many numbers the vectors have of names that `keeps`
/// keeps, if there are some.
#[doc(hidden)]
pub fn check_change(path: &Path, keeps: impl Fn(&str) -> bool) -> Result<Option<usize>> {
    let Some(_locked) = lock(path, CHANGE_WAIT)? else { return Err(busy(path)) };
    let mut dims = None;
    if old(path)?.is_some() {
        let file = open(path)?;
        if is_archive(&file) {
            return Err(unchangeable(path));
        }
        visit(path, file, |entry, _| {
            if keeps(&entry.name) {
                dims = Some(entry.vector.len());
            }
        })?;
    }
    Ok(dims)
}

/// Where the file is, and the one that is to take its place; `None` where another change has that.
fn lock(path: &Path, wait: Duration) -> Result<Option<(PathBuf, NewGalleryFile)>> {
    // A link stays one.
    let place = match fs::canonicalize(path) {
        Ok(place) => place,
        Err(error) if path.is_symlink() => {
            let what = format!("Cannot write the gallery {}", path.display());
            let cause = format!("it is a link that leads to no file: {error}");
            let remedy = "Remove the link, or give the gallery by the file's own path";
            return Err(Error::new(ErrorKind::Run, what).cause(cause).remedy(remedy));
        }
        Err(_) => path.to_path_buf(),
    };
    let mut new = place.as_os_str().to_os_string();
    new.push(".new");
    let new = PathBuf::from(new);
    let taken = NewGalleryFile::take(&new, wait).map_err(|error| cannot_make(path, &new, error))?;
    Ok(taken.map(|taken| (place, taken)))
}

/// The file that is there.
fn old(path: &Path) -> Result<Option<Metadata>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        old => old.map(Some).map_err(|error| cannot_write(path, error)),
    }
}

/// The lines as they are to be, their entries, and how many are left out.
fn changed(
    path: &Path,
    is_there: bool,
    keeps: impl Fn(&str) -> bool,
    added: &[GalleryEntry],
) -> Result<(Vec<Vec<u8>>, Vec<GalleryEntry>, usize)> {
    let (mut lines, mut entries, mut dims, mut left_out) = (Vec::new(), Vec::new(), None, 0);
    if is_there {
        let file = open(path)?;
        if is_archive(&file) {
            return Err(unchangeable(path));
        }
        visit(path, file, |entry, line| {
            if keeps(&entry.name) {
                dims = Some(entry.vector.len());
                lines.push(line.to_vec());
                entries.push(entry);
            } else {
                left_out += 1;
            }
        })?;
    }
    for entry in added {
        let known = *dims.get_or_insert(entry.vector.len());
        if entry.vector.len() != known {
            return Err(of_another_model(path, known, entry.vector.len()));
        }
        lines.push(line_of(entry).into_bytes());
        entries.push(entry.clone());
    }
    let bytes: u64 = lines.iter().map(|line| line.len() as u64 + 1).sum();
    let too_much = if lines.len() > MAX_VECTORS {
        format!("have more than {MAX_VECTORS} vectors")
    } else if bytes > MAX_FILE {
        format!("be larger than {} MiB", MAX_FILE >> 20)
    } else {
        return Ok((lines, entries, left_out));
    };
    let what = format!("The gallery {} would {too_much}", path.display());
    Err(Error::new(ErrorKind::Settings, what).remedy("Remove some names before others are added"))
}

fn line_of(entry: &GalleryEntry) -> String {
    json!({ "name": entry.name, "vector": vector::to_text(&entry.vector) }).to_string()
}

fn unchangeable(path: &Path) -> Error {
    Error::new(ErrorKind::Settings, format!("Cannot change the gallery {}", path.display()))
        .cause("it is a file of numpy.savez, and only galleries of JSON lines are changed")
        .remedy("Write it with numpy.savez again, with the names that it is to have, or use a gallery of JSON lines")
}

#[doc(hidden)]
pub fn of_another_model(path: &Path, known: usize, other: usize) -> Error {
    let what = format!("The vectors of the gallery {} have {known} numbers, and the new ones {other}", path.display());
    Error::new(ErrorKind::Settings, what)
        .remedy("Use the model that the gallery was made with, or another gallery file")
}

/// Another program changes it, for longer than was waited.
#[doc(hidden)]
pub fn busy(path: &Path) -> Error {
    Error::new(ErrorKind::Run, format!("Cannot write the gallery {}", path.display()))
        .cause("another program is changing it")
        .remedy("Try it again when that has ended")
}

fn cannot_write(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Run, format!("Cannot write the gallery {}", path.display()))
        .cause(error)
        .remedy("Use a folder that this user may write to, on a disk with room")
}

/// The new file cannot be made, as the folder takes none, or as something else has its name.
fn cannot_make(path: &Path, new: &Path, error: io::Error) -> Error {
    if new.symlink_metadata().is_err() {
        return cannot_write(path, error);
    }
    Error::new(ErrorKind::Run, format!("Cannot write the gallery {}", path.display()))
        .cause(format!("its new file {} cannot be used: {error}", new.display()))
        .remedy("Remove that, if no program is changing the gallery")
}

/// Whoever may read the old file may read this one, and nobody else.
fn write_all(mut file: &File, old: Option<&Metadata>, lines: &[Vec<u8>]) -> io::Result<()> {
    if let Some(old) = old {
        // Only root gives files to other users.
        let given = fchown(file, Some(old.uid()), Some(old.gid())).or_else(|_| fchown(file, None, Some(old.gid())));
        let bits = if given.is_ok() { 0o777 } else { 0o700 };
        file.set_permissions(Permissions::from_mode(old.mode() & bits))?;
    }
    let mut text = lines.join(&b'\n');
    if !lines.is_empty() {
        text.push(b'\n');
    }
    file.write_all(&text)?;
    file.sync_all()
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    let name = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => Error::new(ErrorKind::NotFound, format!("There is no gallery {name}"))
            .remedy("Make it with gst-trt enrol, or set gallery to the file that has the vectors"),
        _ => Error::new(ErrorKind::Read, format!("Cannot read the gallery {name}"))
            .cause(error)
            .remedy("Set gallery to a file of JSON lines or of numpy.savez, which this user may read"),
    }
}

/// Opens a gallery that is not too large.
fn open(path: &Path) -> Result<File> {
    open_known(path).map(|(file, _)| file)
}

/// The same, with what the system knows of the file.
pub(super) fn open_known(path: &Path) -> Result<(File, Metadata)> {
    let file = open_regular(path).map_err(|error| unreadable(path, error))?;
    let metadata = file.metadata().map_err(|error| unreadable(path, error))?;
    if metadata.len() > MAX_FILE {
        let what = format!("The gallery {} is larger than {} MiB", path.display(), MAX_FILE >> 20);
        let remedy = "Give names fewer vectors. Base64 is half as long as numbers, and float16 in an array half as long as float32";
        return Err(Error::new(ErrorKind::Settings, what).remedy(remedy));
    }
    Ok((file, metadata))
}

/// Whether it begins as archives do, and no line of JSON does.
fn is_archive(file: &File) -> bool {
    let mut begin = [0; 2];
    file.read_exact_at(&mut begin, 0).is_ok() && begin == *b"PK"
}

fn read_archive(path: &Path, file: File) -> Result<Vec<GalleryEntry>> {
    let bytes = read_bounded(file, MAX_FILE).map_err(|error| unreadable(path, error))?;
    npz::entries(&bytes).map_err(|cause| {
        Error::new(ErrorKind::Settings, format!("Cannot use the gallery {}", path.display())).cause(cause).remedy(
            "Write it with numpy.savez(file, names=names, vectors=vectors), with a row of float32 for each name",
        )
    })
}

/// Calls a function with each entry, and its line without the end.
fn visit(path: &Path, file: File, mut see: impl FnMut(GalleryEntry, &[u8])) -> Result<()> {
    let wrong = |line: usize, cause: String| {
        Error::new(ErrorKind::Settings, format!("Cannot use line {line} of the gallery {}", path.display()))
            .cause(cause)
            .remedy("Write one object a line, like {\"name\": \"Ada\", \"vector\": [0.1, 0.2]}, of one model")
    };
    // It may grow while it is read.
    let mut file = BufReader::with_capacity(1 << 16, file.take(MAX_FILE));
    let (mut line, mut count, mut dims) = (Vec::new(), 0, None);
    for number in 1.. {
        line.clear();
        let length = file.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line);
        let length = length.map_err(|error| unreadable(path, error))?;
        if length == 0 {
            break;
        }
        if length as u64 > MAX_LINE {
            return Err(wrong(number, format!("it is longer than {} KiB", MAX_LINE >> 10)));
        }
        let start = if number == 1 && line.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let text = line[start..].trim_ascii();
        if text.is_empty() {
            continue;
        }
        let entry = parse(text).map_err(|cause| wrong(number, cause))?;
        let known = *dims.get_or_insert(entry.vector.len());
        if entry.vector.len() != known {
            let numbers = entry.vector.len();
            return Err(wrong(number, format!("its vector has {numbers} numbers, and those before have {known}")));
        }
        count += 1;
        if count > MAX_VECTORS {
            return Err(wrong(number, format!("a gallery has at most {MAX_VECTORS} vectors")));
        }
        see(entry, text);
    }
    Ok(())
}

fn parse(line: &[u8]) -> std::result::Result<GalleryEntry, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| format!("it is not JSON: {error}"))?;
    if let Some(repeated) = repeated_key(line) {
        return Err(repeated.to_string());
    }
    let name = value.get("name").and_then(Value::as_str).ok_or("it has no name, which is a text")?;
    check_name(name)?;
    let vector = numbers(value.get("vector").unwrap_or(&Value::Null))?;
    check_vector(&vector)?;
    Ok(GalleryEntry { name: name.into(), vector })
}

/// Those of a vector as JSON has it, or why it is none.
pub fn numbers(vector: &Value) -> std::result::Result<Vec<f32>, &'static str> {
    match vector {
        Value::Array(numbers) => {
            let numbers = numbers.iter().map(|number| Some(number.as_f64()? as f32)).collect::<Option<Vec<f32>>>();
            numbers.ok_or("the vector has something that is no number")
        }
        Value::String(text) => {
            vector::of_text(text).ok_or("the vector is a text, and not base64 of numbers with 4 bytes each")
        }
        _ => Err("it has no vector, which is a list of numbers or base64"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::scratch;

    fn entry(name: &str, vector: &[f32]) -> GalleryEntry {
        GalleryEntry::new(name, vector).unwrap()
    }

    #[test]
    fn lists_and_base64_are_read() {
        let file = scratch("gallery-read").join("g.jsonl");
        let text = vector::to_text(&[0.0, 2.0]);
        let first = r#"{"name": "%s%n", "vector": [1, 0.0]}"#;
        let second = format!(r#"{{"vector": "{text}", "note": 3, "name": "../../a b"}}"#);
        fs::write(&file, format!("{first}\r\n\n {second}")).unwrap();
        let gallery = read(&file).unwrap();
        assert_eq!((gallery.names(), gallery.dims()), (&["%s%n".to_string(), "../../a b".into()][..], 2));
        fs::write(&file, "\n\n").unwrap();
        assert!(read(&file).unwrap().is_empty());
        fs::write(&file, format!("\u{feff}{first}\n")).unwrap();
        assert_eq!(read(&file).unwrap().names(), ["%s%n"], "some editors write a mark before the text");
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        let folder = scratch("gallery-wrong");
        let file = folder.join("g.jsonl");
        let good = "{\"name\": \"a\", \"vector\": [1, 0]}\n";
        let with = |name: &str, vector: &str| format!("{good}{{\"name\": {name}, \"vector\": {vector}}}\n");
        let nan = vector::to_text(&[f32::NAN, 1.0]);
        for (text, says) in [
            (format!("{good}name,vector\n"), "line 2 of the gallery"),
            (format!("{good}{{\"name\": \"a\"}}\n"), "it has no vector"),
            (format!("{good}[1, 2]\n"), "it has no name"),
            (with("\"a\", \"name\": \"b\"", "[1, 0]"), "it has the key \"name\" twice"),
            (with("\"\"", "[1, 0]"), "the name is empty"),
            (with("7", "[1, 0]"), "it has no name"),
            (with("\"a\\u0000b\"", "[1, 0]"), "control characters"),
            (with("\"a\\u2028b\"", "[1, 0]"), "break a line"),
            (with("\"a\\u202eb\"", "[1, 0]"), "the direction of text"),
            (with(&format!("\"{}\"", "x".repeat(257)), "[1, 0]"), "longer than 256 bytes"),
            (with("\"a\"", "[1, 0, 0]"), "has 3 numbers, and those before have 2"),
            (with("\"a\"", "[1, \"0\"]"), "no number"),
            (with("\"a\"", "[0, 0]"), "no length"),
            (with("\"a\"", "[1e40, 0]"), "no length"),
            (with("\"a\"", "[]"), "must have 1 to 4096"),
            (with("\"a\"", "\"AAA=\""), "not base64"),
            (with("\"a\"", &format!("\"{nan}\"")), "no length"),
            (format!("{good}{}", "x".repeat(300 << 10)), "longer than 256 KiB"),
            (good.repeat(MAX_VECTORS + 1), "line 100001 of the gallery"),
        ] {
            fs::write(&file, text).unwrap();
            let message = read(&file).unwrap_err().message();
            assert!(message.contains(says), "{message}");
        }
        for (path, says) in [(folder.as_path(), "it is a folder"), (Path::new("/dev/zero"), "it is a device")] {
            assert!(read(path).unwrap_err().message().contains(says));
        }
        // A hole takes no space on the disk.
        File::create(&file).unwrap().set_len(MAX_FILE + 1).unwrap();
        let message = read(&file).unwrap_err().message();
        assert!(message.contains("is larger than 512 MiB"), "{message}");
        let error = read(&folder.join("none")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.message().contains("gst-trt enrol"), "{error}");
    }

    #[test]
    fn names_are_added_and_removed() {
        let file = scratch("gallery-change").join("g.jsonl");
        let all = |_: &str| true;
        assert_eq!(change(&file, all, &[entry("ada", &[1.0, 0.0]), entry("bob", &[0.0, 1.0])]).unwrap(), 0);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "faces are personal data");
        change(&file, all, &[entry("ada", &[1.0, 1.0])]).unwrap();
        let gallery = read(&file).unwrap();
        assert_eq!((gallery.names(), gallery.len()), (&["ada".to_string(), "bob".into()][..], 3));
        assert_eq!(change(&file, |name| name != "ada", &[]).unwrap(), 2);
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains("ada") && text.lines().count() == 1, "{text}");
        assert_eq!(change(&file, |_| false, &[]).unwrap(), 1);
        assert_eq!(fs::read(&file).unwrap(), b"");
        assert!(read(&file).unwrap().is_empty());
        change(&file, all, &[entry("ada", &[1.0, 0.0]), entry("bob", &[0.0, 1.0])]).unwrap();
        let changed = change_and_keep(&file, |name| name != "ada", &[entry("eve", &[1.0, 1.0])]).unwrap();
        let gallery = read(&file).unwrap();
        assert_eq!((changed.left_out, gallery.names()), (1, &["bob".to_string(), "eve".into()][..]));
        let same = (changed.gallery.names(), changed.gallery.len(), changed.gallery.dims());
        assert_eq!(same, (gallery.names(), gallery.len(), gallery.dims()));
    }

    #[test]
    fn a_change_that_fails_changes_nothing() {
        let folder = scratch("gallery-kept");
        let (file, new) = (folder.join("g.jsonl"), folder.join("g.jsonl.new"));
        change(&file, |_| true, &[entry("ada", &[1.0, 0.0])]).unwrap();
        let before = fs::read(&file).unwrap();
        let error = change(&file, |_| true, &[entry("bob", &[1.0, 0.0, 0.0])]).unwrap_err();
        assert!(error.message().contains("have 2 numbers, and the new ones 3"), "{error}");
        let other = File::create(&new).unwrap();
        other.lock().unwrap();
        assert!(change_within(&file, |_| false, &[], Duration::ZERO).unwrap().is_none());
        assert!(fs::exists(&new).unwrap(), "it is the other program's");
        assert_eq!(fs::read(&file).unwrap(), before);
        // As of a process that is killed.
        drop(other);
        assert_eq!(check_change(&file, |_| true).unwrap(), Some(2));
        assert_eq!(check_change(&file, |_| false).unwrap(), None, "none of them stays");
        assert_eq!(change(&file, |name| name != "nobody", &[]).unwrap(), 0);
        assert!(!fs::exists(&new).unwrap());
        assert_eq!(fs::read(&file).unwrap(), before);
        let link = folder.join("link");
        std::os::unix::fs::symlink("none", &link).unwrap();
        let error = change(&link, |_| true, &[entry("ada", &[1.0])]).unwrap_err();
        assert!(error.message().contains("leads to no file") && link.is_symlink(), "{error}");
        fs::create_dir(&new).unwrap();
        let message = change(&file, |_| false, &[]).unwrap_err().message();
        assert!(message.contains("g.jsonl.new cannot be used: ") && message.contains("Remove that"), "{message}");
        let nowhere = folder.join("no/folder/g.jsonl");
        assert_eq!(change(&nowhere, |_| true, &[entry("ada", &[1.0])]).unwrap_err().kind(), ErrorKind::Run);
    }

    #[test]
    fn changes_at_the_same_time_follow_each_other() {
        let file = scratch("gallery-together").join("g.jsonl");
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                let file = &file;
                scope.spawn(move || change(file, |_| true, &[entry(name, &[1.0, 0.0])]).unwrap());
            }
        });
        let all = read(&file).unwrap();
        assert_eq!(all.len(), 4);
        let first = all.names()[0].clone();
        let warning = shared_vector_of(&file, &all, |name| name == all.names()[3]).unwrap().message();
        assert!(warning.contains(&format!("“{first}” and “{}”", all.names()[3])), "{warning}");
    }

    #[test]
    fn an_archive_of_numpy_is_read_and_not_changed() {
        let file = scratch("gallery-npz").join("people.npz");
        let archive = include_bytes!("npz/columns.npz");
        fs::write(&file, archive).unwrap();
        let gallery = read(&file).unwrap();
        let names = ["Ada".to_string(), "Zoë".into()];
        assert_eq!((gallery.names(), gallery.len(), gallery.dims()), (&names[..], 3, 2));
        let nobody: &[GalleryEntry] = &[];
        for added in [nobody, &[entry("bob", &[1.0, 0.0])]] {
            let error = change(&file, |name| name != "Ada", added).unwrap_err();
            assert!(error.message().contains("Write it with numpy.savez again"), "{error}");
            assert_eq!(fs::read(&file).unwrap(), archive);
            assert!(!fs::exists(file.with_extension("npz.new")).unwrap());
        }
        fs::write(&file, &archive[..100]).unwrap();
        let message = read(&file).unwrap_err().message();
        for says in ["Cannot use the gallery", "its end is missing", "numpy.savez(file, names=names, vectors=vectors)"]
        {
            assert!(message.contains(says), "{message}");
        }
    }

    /// What others have written in a line stays.
    #[test]
    fn lines_stay_as_they_are() {
        let file = scratch("gallery-lines").join("g.jsonl");
        let line = "{\"name\": \"ada\",  \"vector\": [1, 0], \"from\": \"a.jpg\"}";
        fs::write(&file, format!("{line}\n")).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        change(&file, |_| true, &[entry("bob", &[0.0, 1.0])]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap().lines().next(), Some(line));
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
    }
}
