// SPDX-License-Identifier: MPL-2.0
//! Whether a file is as long as it says itself. Demuxers read one that is cut off to where it ends, and say nothing.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::jpeg;

/// A file of fragments has two for each second, and more.
const MOST_BOXES: usize = 1 << 20;

/// What is missing of a file, in words; `None` where nothing is, or nothing tells.
pub fn missing(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut start = [0; 12];
    let count = read_up_to(&mut file, &mut start).ok()?;
    let start = &start[..count];
    if start.starts_with(&[0xFF, 0xD8, 0xFF]) {
        let header = jpeg::read(&std::fs::read(path).ok()?)?;
        return (!header.is_whole).then(|| "its end is not there".into());
    }
    let least = match start {
        [0x89, b'P', b'N', b'G', ..] => chunks(&mut file, length).ok(),
        [b'I', b'I', 42, 0, ..] => strips(&std::fs::read(path).ok()?, u16::from_le_bytes, u32::from_le_bytes),
        [b'M', b'M', 0, 42, ..] => strips(&std::fs::read(path).ok()?, u16::from_be_bytes, u32::from_be_bytes),
        [b'G', b'I', b'F', b'8', ..] => {
            file.seek(SeekFrom::End(-1)).ok()?;
            let mut last = [0];
            file.read_exact(&mut last).ok()?;
            Some(length + u64::from(![b';', 0].contains(&last[0])))
        }
        _ => None,
    };
    if least.is_some_and(|least| length < least) {
        return Some("its end is not there".into());
    }
    let announced = match start {
        [b'R', b'I', b'F', b'F', size @ ..] => riff(size),
        [b'B', b'M', size @ ..] => little_endian(size).filter(|size| *size > 14), // some programs write 0
        [0x1A, 0x45, 0xDF, 0xA3, ..] => matroska(&mut file).ok().flatten(),
        [_, _, _, _, b'f' | b'm' | b's' | b'w', ..] => boxes(&mut file, length).ok().flatten(),
        _ => None,
    }?;
    (length < announced).then(|| format!("{length} of {announced} bytes are there"))
}

fn read_up_to(file: &mut File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut read = Vec::new();
    file.take(bytes.len() as u64).read_to_end(&mut read)?;
    bytes[..read.len()].copy_from_slice(&read);
    Ok(read.len())
}

fn little_endian(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|size| u32::from_le_bytes(*size).into())
}

/// AVI, WebP. A recorder that was killed leaves 0, or all ones.
fn riff(size: &[u8]) -> Option<u64> {
    little_endian(size).filter(|size| ![0, u32::MAX.into()].contains(size)).map(|size| size + 8)
}

/// MP4 and MOV: one box behind the other.
fn boxes(file: &mut File, length: u64) -> io::Result<Option<u64>> {
    let mut at = 0u64;
    for _ in 0..MOST_BOXES {
        if at >= length {
            return Ok(Some(at));
        }
        file.seek(SeekFrom::Start(at))?;
        let mut head = [0; 16];
        let count = read_up_to(file, &mut head)?;
        let (size, kind) = (u32::from_be_bytes([head[0], head[1], head[2], head[3]]), &head[4..8]);
        let size = match size {
            _ if count < 8 => return Ok(Some(at + 8)),
            0 => return Ok(None), // up to the end
            1 if count < 16 => return Ok(Some(at + 16)),
            1 => u64::from_be_bytes(head[8..].try_into().expect("8 bytes")),
            size => size.into(),
        };
        // Behind the last box some programs leave anything.
        let is_box = size >= 8 && kind.iter().all(u8::is_ascii_alphanumeric);
        match at.checked_add(size).filter(|_| is_box) {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// PNG: one chunk behind the other, up to that of the end.
fn chunks(file: &mut File, length: u64) -> io::Result<u64> {
    let mut at = 8;
    while at < length {
        file.seek(SeekFrom::Start(at))?;
        let mut head = [0; 8];
        if read_up_to(file, &mut head)? < head.len() {
            break;
        }
        at += 12 + u64::from(u32::from_be_bytes([head[0], head[1], head[2], head[3]]));
        if &head[4..] == b"IEND" {
            return Ok(at);
        }
    }
    Ok(at.max(length) + 12) // the last one is not there
}

/// TIFF: the directory of the first page, and the parts of the picture that it lists.
fn strips(bytes: &[u8], short: fn([u8; 2]) -> u16, long: fn([u8; 4]) -> u32) -> Option<u64> {
    let short = |at: usize| bytes.get(at..)?.first_chunk().map(|two| short(*two) as usize);
    let long = |at: usize| bytes.get(at..)?.first_chunk().map(|four| long(*four) as usize);
    let beyond = |at: usize| Some(at as u64);
    let directory = long(4)?;
    let Some(count) = short(directory) else { return beyond(directory + 2) };
    // Where they begin, and their sizes: of strips, or of tiles.
    let (mut starts, mut sizes) = (Vec::new(), Vec::new());
    for entry in (0..count).map(|number| directory + 2 + number * 12) {
        let (Some(tag), Some(kind), Some(number)) = (short(entry), short(entry + 2), long(entry + 4)) else {
            return beyond(entry + 12);
        };
        let list = match tag {
            273 | 324 => &mut starts,
            279 | 325 => &mut sizes,
            _ => continue,
        };
        let width = if kind == 3 { 2 } else { 4 };
        let first = if number * width <= 4 { entry + 8 } else { long(entry + 8)? };
        for at in (0..number).map(|place| first + place * width) {
            let Some(value) = (if kind == 3 { short(at) } else { long(at) }) else { return beyond(at + width) };
            list.push(value as u64);
        }
    }
    starts.iter().zip(&sizes).map(|(start, size)| start + size).max()
}

/// The header, and the segment that has all the rest.
fn matroska(file: &mut File) -> io::Result<Option<u64>> {
    const SEGMENT: u64 = 0x1853_8067;
    let mut at = 0;
    for _ in 0..4 {
        file.seek(SeekFrom::Start(at))?;
        let mut head = [0; 12];
        let count = read_up_to(file, &mut head)?;
        let Some((id, id_length)) = number(&head[..count], false) else { return Ok(None) };
        let Some((size, size_length)) = number(&head[id_length..count], true) else { return Ok(None) };
        let is_unknown = size == (1 << (7 * size_length)) - 1; // as of a live stream
        let Some(end) = size.checked_add(at + (id_length + size_length) as u64).filter(|_| !is_unknown) else {
            return Ok(None);
        };
        if id == SEGMENT {
            return Ok(Some(end));
        }
        at = end;
    }
    Ok(None)
}

/// A number of EBML, whose first bits tell its length; ids keep them.
fn number(bytes: &[u8], is_size: bool) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = first.leading_zeros() as usize + 1;
    let rest = bytes.get(1..length.min(9)).filter(|_| length <= 8)?;
    let first = if is_size { u64::from(first) & ((1 << (8 - length)) - 1) } else { first.into() };
    Some((rest.iter().fold(first, |number, byte| number << 8 | u64::from(*byte)), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, bytes: &[u8]) -> Option<String> {
        let path = crate::scratch::scratch("whole").join(name);
        std::fs::write(&path, bytes).unwrap();
        missing(&path)
    }

    #[test]
    fn a_file_is_as_long_as_it_says() {
        let sized = |size: u32, kind: &[u8], content: &[u8]| [&size.to_be_bytes()[..], kind, content].concat();
        let mp4 = [sized(12, b"ftyp", b"isom"), sized(1, b"mdat", &[0, 0, 0, 0, 0, 0, 0, 18, 5, 5])].concat();
        let riff = [b"RIFF", &8u32.to_le_bytes()[..], b"AVI 1234"].concat();
        let png = [&b"\x89PNG\r\n\x1a\n"[..], &[0, 0, 0, 1], b"IDAT", &[7; 5], &[0; 4], b"IEND", &[1; 4]].concat();
        let entry = |tag: u16, value: u32| {
            [&tag.to_le_bytes()[..], &4u16.to_le_bytes(), &1u32.to_le_bytes(), &value.to_le_bytes()].concat()
        };
        let start = [&b"II*\0"[..], &8u32.to_le_bytes(), &2u16.to_le_bytes()].concat();
        let tiff = [start, entry(273, 34), entry(279, 3), vec![1, 2, 3]].concat();
        let bmp = [b"BM", &20u32.to_le_bytes()[..], &[0; 14]].concat();
        let mkv = vec![0x1A, 0x45, 0xDF, 0xA3, 0x81, 0, 0x18, 0x53, 0x80, 0x67, 0x40, 3, 1, 2, 3];
        for (name, whole) in
            [("mp4", &mp4), ("riff", &riff), ("bmp", &bmp), ("mkv", &mkv), ("png", &png), ("tif", &tiff)]
        {
            assert_eq!(check(name, whole), None, "{name}");
            let (there, all) = (whole.len() - 1, whole.len());
            let expected = match name {
                "png" | "tif" => "its end is not there".to_string(),
                _ => format!("{there} of {all} bytes are there"),
            };
            assert_eq!(check(name, &whole[..there]), Some(expected), "{name}");
        }
        for length in 12..png.len() {
            assert!(check("chunk", &png[..length]).is_some(), "{length}");
        }
        for length in 12..tiff.len() {
            assert!(check("strip", &tiff[..length]).is_some(), "{length}");
        }
        // Half a header of a box.
        assert!(check("box", &mp4[..15]).is_some());
        // Nothing tells it.
        let live = [&mkv[..10], &[0xFF, 1, 2][..]].concat();
        let open = [sized(12, b"ftyp", b"isom"), sized(0, b"mdat", &[1, 2])].concat();
        let killed = [b"RIFF", &[0xFF; 4][..], b"AVI "].concat();
        for (name, bytes) in [("live", &live), ("open", &open), ("killed", &killed), ("text", &b"some text".to_vec())] {
            assert_eq!(check(name, bytes), None, "{name}");
        }
        assert_eq!((check("gif", b"GIF89a;"), check("zero", b"GIF89a;\0")), (None, None));
        assert!(check("half", b"GIF89a,").is_some());
        assert_eq!(check("jpg", &[0xFF, 0xD8, 0xFF, 0xD9]), None);
        assert_eq!(check("jpg", &[0xFF, 0xD8, 0xFF, 0xE0]), Some("its end is not there".into()));
        assert_eq!(check("empty", b""), None);
    }
}
