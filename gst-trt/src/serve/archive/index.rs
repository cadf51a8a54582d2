// SPDX-License-Identifier: MPL-2.0
//! What is recorded in a folder: a line of JSON for each file, in `index.jsonl`. Lines are added as files become whole, and as
//! they are removed. The files are the truth: what was cut off, or is missing, is made of their names.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use gsttrt_core::files::{open_regular, open_to_lock};
use serde::{Deserialize, Serialize};

use super::catalogue::{Catalogue, Entries, FoundRecording};
use super::content::{Content, look_into};
use super::moment::UtcTime;
use super::name::{PART, of_name};
use super::recording::{IndexLine, Recording, RecordingEntry};

const INDEX: &str = "index.jsonl";
/// A longer line is none of ours.
const MAX_LINE: u64 = 16 << 20;

/// A file that is no longer there.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Removed {
    removed: String,
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
    Some(Recording { file: name.into(), source, kind, begin, end, bytes, events, object })
}

/// The index of a folder, and where it is written.
pub struct Index {
    folder: PathBuf,
    catalogue: Catalogue,
    /// Lines of the file.
    lines: usize,
    /// The place of the newest recording.
    newest: u64,
    /// Whether the file does not say what is known, as it could not be written.
    is_stale: bool,
}

impl Index {
    /// Reads the index into the catalogue. Where it does not tell what is there it is stale: [`Index::settle`] repairs it. What
    /// was not whole when the program ended gets its name, if it can be played.
    pub fn open(folder: &Path, catalogue: &Catalogue) -> io::Result<Self> {
        let catalogue = catalogue.clone();
        let mut index = Index { folder: folder.into(), catalogue, lines: 0, newest: 0, is_stale: false };
        let mut known = Entries::new();
        // Of what cannot be read, the files tell.
        let path = folder.join(INDEX);
        let file = open_regular(&path).ok().map(Arc::new);
        let is_intact = match &file {
            Some(file) => index.read(file, &mut known).unwrap_or(false),
            None => !path.exists(),
        };
        let (mut entries, mut found) = (Entries::new(), Vec::new());
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
            let length =
                || fs::symlink_metadata(folder.join(&name)).ok().filter(fs::Metadata::is_file).map(|found| found.len());
            match known.remove(&name).zip(length()) {
                Some((mut entry, bytes)) => {
                    // Whatever its line says: recordings are removed by that.
                    if entry.bytes != bytes {
                        Arc::make_mut(&mut entry).bytes = bytes;
                    }
                    entries.insert(name, entry);
                }
                None => found.extend(of_file(folder, &name)),
            }
        }
        index.is_stale = !is_intact || !found.is_empty() || !known.is_empty();
        place(&mut entries, found);
        let mut listed = index.catalogue.lock();
        (listed.entries, listed.index) = (entries, file);
        drop(listed);
        Ok(index)
    }

    /// Reads what the file says. Returns whether all of it is understood.
    fn read(&mut self, file: &File, known: &mut Entries) -> io::Result<bool> {
        let (mut reader, mut is_intact, mut text, mut at) = (BufReader::new(file), true, Vec::new(), 0);
        loop {
            text.clear();
            let length = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut text)?;
            if length == 0 {
                return Ok(is_intact);
            }
            self.lines += 1;
            if let Ok(recording) = serde_json::from_slice::<Recording>(&text)
                && text.ends_with(b"\n")
                && of_name(&recording.file).is_some()
            {
                self.newest += 1;
                let entry = RecordingEntry::new(&recording, self.newest, IndexLine::Written { at, length });
                known.insert(recording.file, entry.into());
            } else if let Ok(Removed { removed }) = serde_json::from_slice(&text) {
                known.remove(&removed);
            } else {
                is_intact = false; // cut off in the middle, or not ours
            }
            at += length as u64;
        }
    }

    pub fn add(&mut self, recording: Recording) -> io::Result<()> {
        let (text, file) = (serde_json::to_vec(&recording)?, recording.file.clone());
        self.newest += 1;
        self.catalogue.lock().entries.insert(file.clone(), RecordingEntry::waiting(recording, self.newest).into());
        if let Some(line) = self.append(text)? {
            self.describe(&file, line);
        }
        Ok(())
    }

    /// Of a file that was removed.
    pub fn remove(&mut self, file: &str) -> io::Result<()> {
        if self.catalogue.lock().entries.remove(file).is_none() {
            return Ok(());
        }
        self.append(serde_json::to_vec(&Removed { removed: file.into() })?).map(drop)
    }

    /// Writes what could not be written before.
    pub fn settle(&mut self) -> io::Result<()> {
        if self.is_stale { self.rewrite() } else { Ok(()) }
    }

    fn describe(&self, file: &str, line: IndexLine) {
        if let Some(entry) = self.catalogue.lock().entries.get_mut(file) {
            Arc::make_mut(entry).line = line;
        }
    }

    /// Returns where the text is, unless all was written again.
    fn append(&mut self, text: Vec<u8>) -> io::Result<Option<IndexLine>> {
        let known = self.catalogue.lock().entries.len();
        // Or most of it is about files that are gone.
        if self.is_stale || self.lines > 1000 + 2 * known {
            return self.rewrite().map(|()| None);
        }
        match self.append_line(text) {
            // Another file has the name of the index, or none had.
            Ok(None) => self.rewrite().map(|()| None),
            appended => {
                self.is_stale = appended.is_err();
                appended
            }
        }
    }

    fn append_line(&mut self, mut text: Vec<u8>) -> io::Result<Option<IndexLine>> {
        text.push(b'\n');
        let opened = File::options().read(true).append(true).open(self.folder.join(INDEX));
        let (Ok(mut file), Some(index)) = (opened, self.catalogue.lock().index.clone()) else { return Ok(None) };
        if identity(&file) != identity(&index) {
            return Ok(None);
        }
        let (mut at, length) = (file.seek(SeekFrom::End(0))?, text.len());
        // A line that was cut off ends here, so that only this one is lost.
        if at > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                text.insert(0, b'\n');
                at += 1;
            }
        }
        file.write_all(&text)?;
        self.lines += 1;
        Ok(Some(IndexLine::Written { at, length }))
    }

    /// Whether the file that has the name of the index is not ours.
    fn is_foreign(&self) -> bool {
        let ours = self.catalogue.lock().index.clone();
        let there = open_regular(&self.folder.join(INDEX));
        there.is_ok_and(|there| identity(&there) != ours.and_then(|ours| identity(&ours)))
    }

    /// Reads another index that has the name of ours, as of another program or of a disk that was mounted since. What it does not
    /// have is known on, and is to be written.
    fn take_in(&mut self) -> io::Result<()> {
        let known = self.catalogue.in_order();
        *self = Index::open(&self.folder, &self.catalogue)?;
        for found in known {
            let made = match self.catalogue.lock().entries.get(&found.entry.file) {
                Some(entry) if matches!(entry.line, IndexLine::Waiting(_)) => entry.made,
                _ => continue,
            };
            let entry = RecordingEntry::waiting(found.read(), made);
            self.catalogue.lock().entries.insert(entry.file.clone(), entry.into());
        }
        Ok(())
    }

    /// In one step: until then the old one is there.
    fn rewrite(&mut self) -> io::Result<()> {
        self.is_stale = true;
        if self.is_foreign() {
            self.take_in()?;
        }
        let next = self.folder.join(format!("{INDEX}.{PART}"));
        let all = self.catalogue.in_order();
        let written =
            write_lines(&next, &all).and_then(|written| fs::rename(&next, self.folder.join(INDEX)).map(|()| written));
        self.is_stale = written.is_err();
        let (index, lines) = written.inspect_err(|_| {
            let _ = fs::remove_file(&next); // on a full disk there is not even room for what is in it
        })?;
        self.lines = lines.len();
        let mut listed = self.catalogue.lock();
        listed.index = Some(index.into());
        for (found, line) in all.into_iter().zip(lines) {
            if let Some(entry) = listed.entries.get_mut(&found.entry.file) {
                drop(found); // or it would be copied
                Arc::make_mut(entry).line = line;
            }
        }
        Ok(())
    }
}

fn identity(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// Takes recordings of which the index says nothing: they come behind those that began before.
fn place(entries: &mut Entries, found: Vec<Recording>) {
    let mut places: Vec<_> = entries.values().map(|known| (known.begin, known.made)).collect();
    places.sort();
    let mut newest = 0;
    for (_, made) in &mut places {
        newest = newest.max(*made);
        *made = newest;
    }
    for recording in found {
        let before = places.partition_point(|(begin, _)| *begin <= recording.begin);
        let made = before.checked_sub(1).map_or(0, |last| places[last].1);
        entries.insert(recording.file.clone(), RecordingEntry::waiting(recording, made).into());
    }
}

/// Writes an index. Returns it, open for reading, and the lines.
fn write_lines(path: &Path, all: &[FoundRecording]) -> io::Result<(File, Vec<IndexLine>)> {
    let options = &mut File::options();
    let file = options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("it is a pipe")); // which nobody may read
    }
    let (mut writer, mut lines, mut at) = (BufWriter::new(&file), Vec::with_capacity(all.len()), 0);
    for found in all {
        let mut text = serde_json::to_vec(&found.read())?;
        text.push(b'\n');
        writer.write_all(&text)?;
        lines.push(IndexLine::Written { at, length: text.len() });
        at += text.len() as u64;
    }
    writer.flush()?;
    drop(writer);
    // Else it could have its name before its content is on the disk, and be empty after a power cut.
    file.sync_all()?;
    Ok((file, lines))
}

/// Gives a file its name whose writer is gone. What cannot be played is removed.
fn adopt(folder: &Path, name: &str) -> bool {
    let part = folder.join(format!("{name}.{PART}"));
    // A pipe would be waited for.
    let Ok(file) = open_to_lock(&part) else { return false };
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
mod tests;
