// SPDX-License-Identifier: MPL-2.0
//! What is in a file that has the name of a recording or of a snapshot: a kill leaves half of one, and others give names, too.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// The ending of snapshots.
pub const PICTURE: &str = "jpg";
const JPEG_BEGIN: [u8; 2] = [0xFF, 0xD8];
const JPEG_END: [u8; 2] = [0xFF, 0xD9];

/// What is in a file.
#[derive(Debug, PartialEq)]
pub enum Content {
    /// It can be played.
    Frames,
    /// Its beginning, at most.
    NoFrames,
    /// It is no file of that container.
    Other,
}

pub fn look_into(file: &File, name: &str) -> Content {
    let mut head = Vec::new();
    if file.take(8).read_to_end(&mut head).is_err() {
        return Content::Other;
    }
    let ending = name.rsplit('.').next().unwrap_or_default();
    let is_such = match ending {
        PICTURE => head.starts_with(&JPEG_BEGIN),
        "mp4" => head.ends_with(b"ftyp"),
        _ => head.starts_with(b"\x1A\x45\xDF\xA3"),
    };
    let has_frames = || match ending {
        PICTURE => Some(is_whole_picture(file)),
        "mp4" => has_mp4_frames(file),
        _ => has_matroska_frames(file),
    };
    match head.is_empty() {
        true => Content::NoFrames,
        false if !is_such => Content::Other,
        false if has_frames().unwrap_or(false) => Content::Frames,
        false => Content::NoFrames,
    }
}

fn is_whole_picture(mut file: &File) -> bool {
    let mut end = [0; 2];
    file.seek(SeekFrom::End(-2)).is_ok() && file.read_exact(&mut end).is_ok() && end == JPEG_END
}

/// The head of the frames comes behind the first of them. `None` where it is cut off.
fn has_mp4_frames(mut file: &File) -> Option<bool> {
    let mut at = 0;
    loop {
        let mut head = [0; 8];
        file.seek(SeekFrom::Start(at)).ok()?;
        file.read_exact(&mut head).ok()?;
        let (size, kind) = head.split_at(4);
        if kind == b"moov" {
            return Some(true);
        }
        let size = match u32::from_be_bytes(size.try_into().ok()?) {
            1 => {
                let mut large = [0; 8];
                file.read_exact(&mut large).ok()?;
                u64::from_be_bytes(large)
            }
            size => size.into(),
        };
        at = at.checked_add(size).filter(|_| size >= 8)?; // less has the fragment that was being written
    }
}

/// Frames are in clusters, behind what they are. `None` where it is cut off.
fn has_matroska_frames(mut file: &File) -> Option<bool> {
    const SEGMENT: u64 = 0x1853_8067;
    const CLUSTER: u64 = 0x1F43_B675;
    /// Of a cluster: its time, and what precedes a frame.
    const NO_FRAME: u64 = 32;
    let length = file.metadata().ok()?.len();
    let mut at = 0;
    loop {
        file.seek(SeekFrom::Start(at)).ok()?;
        let id = matroska_number(file, true)?;
        let size = matroska_number(file, false)?;
        let begin = file.stream_position().ok()?;
        at = match id {
            SEGMENT => begin, // all else is in it
            CLUSTER => return Some(begin + NO_FRAME < length),
            _ => begin.checked_add(size)?,
        };
    }
}

/// A number of one byte and as many more as there are zeros at its beginning. An id keeps the mark behind these.
fn matroska_number(mut file: &File, is_id: bool) -> Option<u64> {
    let mut first = [0];
    file.read_exact(&mut first).ok()?;
    let more = first[0].leading_zeros() as usize;
    let mut bytes = [0; 8];
    file.read_exact(bytes.get_mut(1..=more)?).ok()?;
    bytes[0] = if is_id { first[0] } else { first[0] & (0x7F >> more) };
    Some(bytes[..=more].iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}
