// SPDX-License-Identifier: MPL-2.0
//! The thread that writes the snapshots of a source.

use std::fs;
use std::io::Write;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{SnapshotState, lock};
use crate::failure::Failure;
use crate::output::{cannot_make_folder, cannot_write};
use crate::serve::archive::{Archive, Kind, Recording, UtcTime, create_free, part};
use crate::serve::log::log_error;
use crate::threads::Threads;

/// Those that wait for the disk.
const MAX_WAITING: usize = 32;

/// A picture, and the object in it.
pub struct ObjectSnapshot {
    pub picture: Bytes,
    pub object: Map<String, Value>,
    /// When the object was seen first and last.
    pub begin: UtcTime,
    pub end: UtcTime,
}

/// Starts it. It ends with the last that may send.
pub fn start(
    archive: &Archive,
    source: &str,
    state: &Arc<Mutex<SnapshotState>>,
    threads: &Threads,
) -> Result<SyncSender<ObjectSnapshot>, Failure> {
    let (sender, snapshots) = sync_channel::<ObjectSnapshot>(MAX_WAITING);
    let (archive, source, state) = (archive.clone(), source.to_string(), state.clone());
    let subject = format!("snapshots of {source}");
    // The thread of the folder does not end before this one.
    archive.begun(&subject);
    let (named, folder) = (subject.clone(), archive.clone());
    let work = move || {
        let mut is_broken = false;
        for snapshot in &snapshots {
            match write(&archive, &source, &snapshot) {
                Ok(recording) => {
                    lock(&state).counts.written += 1;
                    is_broken = false;
                    archive.ended(&recording.file.clone(), Some(recording));
                }
                Err(failure) => {
                    lock(&state).counts.dropped += 1;
                    if !std::mem::replace(&mut is_broken, true) {
                        log_error(&source, &failure.to_string());
                    }
                }
            }
        }
        archive.ended(&named, None);
    };
    let started = threads.spawn("snapshot".into(), &subject, work);
    started.inspect_err(|_| folder.ended(&subject, None)).map(|()| sender)
}

fn write(archive: &Archive, source: &str, snapshot: &ObjectSnapshot) -> Result<Recording, Failure> {
    let ObjectSnapshot { picture, object, begin, end } = snapshot;
    let folder = archive.folder();
    fs::create_dir_all(folder).map_err(|error| cannot_make_folder(folder, &error))?;
    let (name, mut file) = create_free(folder, source, Kind::Snapshot, *begin, "jpg")?;
    let path = folder.join(&name);
    let written = file.write_all(picture).and_then(|()| fs::rename(part(&path), &path));
    if let Err(error) = written {
        let _ = fs::remove_file(part(&path));
        return Err(cannot_write(path.display(), &error));
    }
    Ok(Recording {
        file: name,
        source: source.into(),
        kind: Kind::Snapshot,
        begin: *begin,
        end: *end,
        bytes: picture.len() as u64,
        events: Vec::new(),
        object: Some(object.clone()),
    })
}
