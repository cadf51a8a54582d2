// SPDX-License-Identifier: MPL-2.0
//! The members of a zip archive that are stored as they are, as `numpy.savez` writes them.
//!
//! The [format](https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT) has a directory at its end. What is compressed or encrypted
//! is refused, and so is what needs numbers of 64 bits.

use std::collections::HashSet;

/// A file in the archive. Its name is never a path here.
#[derive(Debug, PartialEq)]
pub struct StoredMember<'a> {
    pub name: &'a str,
    pub bytes: &'a [u8],
}

/// Bytes of the end of the directory without its comment, of an entry of it without its name, and of what is before a member.
const END: usize = 22;
const ENTRY: usize = 46;
const LOCAL: usize = 30;

/// Bytes of the comment behind the directory.
const MAX_COMMENT: usize = 0xffff;

const IS_ENCRYPTED: u16 = 1;
const IS_UTF8: u16 = 1 << 11;

/// Ways to keep the bytes of a member.
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// What the fields of 16 and 32 bits have where larger numbers are needed.
const MORE_16: u16 = 0xffff;
const MORE_32: u32 = 0xffff_ffff;

/// In the order of the directory.
///
/// # Errors
/// What is wrong with the archive.
pub fn members(file: &[u8]) -> Result<Vec<StoredMember<'_>>, String> {
    let end = end_of_directory(file).ok_or("it is no whole archive: its end is missing")?;
    let (count, size, start) = (short(end, 10), long(end, 12), long(end, 16));
    if count == Some(MORE_16) || size == Some(MORE_32) || start == Some(MORE_32) {
        return Err("it has more than 65534 arrays, or 4 GiB".into());
    }
    let cut = || "its directory is damaged".to_string();
    let (count, start) = (count.ok_or_else(cut)?, start.ok_or_else(cut)? as usize);
    let mut directory = file.get(start..).ok_or_else(cut)?;
    // Two members may be said to be in one place. All of them together are read once, for their checksums.
    let (mut found, mut names, mut left) = (Vec::new(), HashSet::new(), file.len());
    for _ in 0..count {
        let entry = directory.get(..ENTRY).filter(|entry| entry.starts_with(b"PK\x01\x02")).ok_or_else(cut)?;
        let lengths = [28, 30, 32].map(|at| short(entry, at).map_or(0, usize::from));
        let next = ENTRY + lengths.iter().sum::<usize>();
        let name = directory.get(ENTRY..ENTRY + lengths[0]).ok_or_else(cut)?;
        directory = directory.get(next..).ok_or_else(cut)?;
        let flags = short(entry, 8).unwrap_or(0);
        let name = std::str::from_utf8(name).ok().filter(|name| flags & IS_UTF8 != 0 || name.is_ascii());
        let name = name.filter(|name| !name.contains(char::is_control));
        let name = name.ok_or("the name of one of its arrays is not UTF-8, or has control characters")?;
        let bytes = stored(file, entry, flags).map_err(|why| format!("“{name}” in it {why}"))?;
        left = left.checked_sub(bytes.len()).ok_or_else(cut)?;
        if long(entry, 16) != Some(crc32(bytes)) {
            return Err(format!("“{name}” in it is damaged: its checksum is another one"));
        }
        if !names.insert(name) {
            return Err(format!("it has “{name}” twice"));
        }
        found.push(StoredMember { name, bytes });
    }
    Ok(found)
}

/// From its begin on. Behind it there is a comment only, which has no bytes in most archives.
fn end_of_directory(file: &[u8]) -> Option<&[u8]> {
    let last = file.len().checked_sub(END)?;
    (last.saturating_sub(MAX_COMMENT)..=last).rev().map(|at| &file[at..]).find(|end| {
        let comment = short(end, 20).map(usize::from);
        end.starts_with(b"PK\x05\x06") && comment == Some(end.len() - END)
    })
}

/// The bytes of a member, or why they cannot be had.
fn stored<'a>(file: &'a [u8], entry: &[u8], flags: u16) -> Result<&'a [u8], &'static str> {
    const DAMAGED: &str = "is not where the directory of the archive says";
    if flags & IS_ENCRYPTED != 0 {
        return Err("is encrypted");
    }
    match short(entry, 10) {
        Some(STORED) => {}
        Some(DEFLATED) => return Err("is compressed, as by numpy.savez_compressed"),
        _ => return Err("is compressed in a way that numpy does not"),
    }
    let [packed, size, start] = [20, 24, 42].map(|at| long(entry, at).filter(|&number| number != MORE_32));
    let size = size.filter(|_| packed == size).ok_or(DAMAGED)? as usize;
    let local = file.get(start.ok_or(DAMAGED)? as usize..).ok_or(DAMAGED)?;
    // The name and what else is known of it stand before the bytes, once more.
    let before = match (local.starts_with(b"PK\x03\x04"), short(local, 26), short(local, 28)) {
        (true, Some(name), Some(extra)) => LOCAL + usize::from(name) + usize::from(extra),
        _ => return Err(DAMAGED),
    };
    local.get(before..).and_then(|bytes| bytes.get(..size)).ok_or(DAMAGED)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Of each byte, by the reversed polynomial of zip, Ethernet and PNG.
static CRC: [u32; 256] = {
    let (mut table, mut at) = ([0; 256], 0);
    while at < 256 {
        let (mut value, mut bit) = (at as u32, 0);
        while bit < 8 {
            value = if value & 1 == 0 { value >> 1 } else { (value >> 1) ^ 0xedb8_8320 };
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
};

/// The checksum of a member.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| (crc >> 8) ^ CRC[usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::npz;

    /// Changes bytes behind the first place where those are.
    fn changed(file: &[u8], behind: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut file = file.to_vec();
        let place = file.windows(behind.len()).position(|part| part == behind).unwrap() + at;
        file[place..place + bytes.len()].copy_from_slice(bytes);
        file
    }

    #[test]
    fn members_are_found_by_the_directory() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926, "the check value of this checksum");
        let file = npz(&[("a.npy", b"first"), ("../ä.npy", b""), ("c", b"PK\x01\x02")]);
        let expected = [("a.npy", &b"first"[..]), ("../ä.npy", b""), ("c", b"PK\x01\x02")];
        let expected = expected.map(|(name, bytes)| StoredMember { name, bytes });
        assert_eq!(members(&file).unwrap(), expected);
        let comment = [&file[..file.len() - 2], &[3, 0], b"any"].concat();
        assert_eq!(members(&comment).unwrap(), expected);
        assert!(members(&npz(&[])).unwrap().is_empty());
    }

    #[test]
    fn what_is_wrong_with_an_archive_is_said() {
        let file = npz(&[("a.npy", b"first"), ("b.npy", b"second")]);
        for end in 0..file.len() {
            assert!(members(&file[..end]).is_err(), "{end}");
        }
        assert_eq!(members(&npz(&[("a", b"1"), ("b", b""), ("a", b"2")])).unwrap_err(), "it has “a” twice");
        let entry = b"PK\x01\x02";
        for (file, says) in [
            (changed(&file, entry, 8, &[1]), "“a.npy” in it is encrypted"),
            (changed(&file, entry, 10, &[8]), "“a.npy” in it is compressed, as by numpy.savez_compressed"),
            (changed(&file, entry, 10, &[12]), "in a way that numpy does not"),
            (changed(&file, entry, 16, &[9]), "“a.npy” in it is damaged"),
            (changed(&file, b"first", 0, b"F"), "“a.npy” in it is damaged"),
            (changed(&file, entry, 20, &[9]), "is not where the directory"),
            (changed(&file, entry, 20, &[0xff; 8]), "is not where the directory"),
            (changed(&file, entry, 42, &[1]), "is not where the directory"),
            (changed(&file, entry, 42, &[0, 0, 0, 0x7f]), "is not where the directory"),
            (changed(&file, entry, 28, &[0xff, 0xff]), "its directory is damaged"),
            (changed(&file, entry, 46, &[0xff]), "is not UTF-8"),
            (changed(&file, entry, 0, b"xx"), "its directory is damaged"),
            (changed(&file, b"PK\x05\x06", 16, &[0, 0, 0, 0x7f]), "its directory is damaged"),
            (changed(&file, b"PK\x05\x06", 16, &[0xff; 4]), "more than 65534 arrays"),
            (changed(&file, b"PK\x05\x06", 10, &[0xff; 2]), "more than 65534 arrays"),
            (changed(&file, b"PK\x05\x06", 10, &[3]), "its directory is damaged"),
        ] {
            let why = members(&file).unwrap_err();
            assert!(why.contains(says), "{why}, not: {says}");
        }
    }

    /// A short file must not keep a reader busy for hours.
    #[test]
    fn members_in_one_place_are_no_more_than_the_file() {
        let file = npz(&[("a", &[7; 1000]), ("b", &[7; 1000])]);
        let second = file.windows(4).rposition(|part| part == b"PK\x01\x02").unwrap();
        let again = changed(&file, &file[second..second + 46], 42, &[0; 4]);
        assert_eq!(members(&again).unwrap().len(), 2, "twice is still less than the file");
        let end = again.len() - END;
        let entries: Vec<u8> = (b'c'..b'w').flat_map(|name| [&file[second..end - 1], &[name]].concat()).collect();
        let many = [&again[..end], &entries[..], &again[end..]].concat();
        let many = changed(&many, b"PK\x05\x06", 10, &[22]);
        assert_eq!(members(&many).unwrap_err(), "its directory is damaged");
    }
}
