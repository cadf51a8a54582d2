// SPDX-License-Identifier: MPL-2.0
//! What the markers of a JPEG picture say about it, before anything is decoded.

/// Read as far as the bytes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JpegHeader {
    /// 0 where the bytes end before the frame header.
    pub width: u16,
    pub height: u16,
    /// Four are CMYK or YCCK.
    pub components: u8,
    /// Whether its end is there.
    pub is_whole: bool,
}

/// `None` where the bytes do not begin as a picture does.
pub fn read(bytes: &[u8]) -> Option<JpegHeader> {
    const END: u8 = 0xD9;
    const SCAN: u8 = 0xDA;
    let mut rest = bytes.strip_prefix(&[0xFF, 0xD8])?;
    let mut header = JpegHeader::default();
    while let Some((marker, behind)) = next_marker(rest) {
        rest = behind;
        match marker {
            END => {
                header.is_whole = true;
                break;
            }
            0x01 | 0xD0..=0xD8 => continue, // they have no length
            _ => {}
        }
        let Some(length) = rest.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length))) else { break };
        let Some(segment) = rest.get(2..length.max(2)) else { break };
        // The frame header, of whatever coding; the others in this range are tables.
        if let (0xC0..=0xCF, &[_, h1, h0, w1, w0, components, ..]) = (marker, segment)
            && ![0xC4, 0xC8, 0xCC].contains(&marker)
        {
            (header.height, header.width) = (u16::from_be_bytes([h1, h0]), u16::from_be_bytes([w1, w0]));
            header.components = components;
        }
        rest = &rest[length.max(2)..];
        if marker == SCAN {
            rest = behind_scan(rest);
        }
    }
    Some(header)
}

/// The next marker and what is behind it. There may be any bytes before it, though there should be none.
fn next_marker(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let mut rest = &bytes[bytes.iter().position(|byte| *byte == 0xFF)?..];
    while let [0xFF, behind @ ..] = rest {
        rest = behind;
    }
    rest.split_first().map(|(marker, behind)| (*marker, behind))
}

/// From the first marker on that is not part of the coded picture.
fn behind_scan(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == 0xFF) {
        match rest.get(at + 1) {
            Some(0 | 0xD0..=0xD7) => rest = &rest[at + 2..],
            Some(_) => return &rest[at..],
            None => break,
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment with its marker.
    fn segment(marker: u8, content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u16 + 2).to_be_bytes();
        [&[0xFF, marker], &length[..], content].concat()
    }

    #[test]
    fn the_markers_say_what_it_is() {
        // A thumbnail has an end of its own, which is not that of the picture.
        let thumbnail = segment(0xE1, &[0xFF, 0xD8, 0xFF, 0xD9]);
        let tables = segment(0xC4, &[0, 1, 2, 3, 4, 5, 6]);
        let frame = segment(0xC2, &[8, 1, 2, 3, 4, 4, 0, 0]);
        let scan = [segment(0xDA, &[1, 0]), vec![7, 0xFF, 0, 9, 0xFF, 0xD0, 3]].concat();
        let start = [0xFF, 0xD8].to_vec();
        let whole = [start, thumbnail, tables, vec![0xFF], frame, scan.clone(), scan, vec![0xFF, 0xD9, 5, 5]].concat();
        let expected = JpegHeader { width: 0x304, height: 0x102, components: 4, is_whole: true };
        assert_eq!(read(&whole), Some(expected));
        for length in 2..whole.len() - 2 {
            let cut = read(&whole[..length]).unwrap();
            assert!(!cut.is_whole || length == whole.len() - 2, "{length}: {cut:?}");
            assert!(cut.components == 0 || JpegHeader { is_whole: true, ..cut } == expected, "{length}: {cut:?}");
        }
        assert_eq!(read(b"GIF89a"), None);
        assert_eq!(read(&[0xFF, 0xD8, 0xFF, 0xE0, 0, 0, 0xFF]), Some(JpegHeader::default()), "a length of none");
    }
}
