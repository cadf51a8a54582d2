// SPDX-License-Identifier: MPL-2.0
//! Messages of supplemental enhancement information (SEI) in H.264: user data of ours, as JSON, before the picture that it belongs
//! to. Decoders that do not know it pass over it.
//!
//! A frame that is not encoded yet has its messages as GStreamer's own metas, which encoders copy to what they make of it.

use std::ops::ControlFlow;

use gst::buffer::BufferMetaForeachAction;

use super::user_data::UserDataMeta;

/// What tells our messages from those of others: a UUID of version 4, drawn for them.
pub const UUID: [u8; 16] =
    [0x5b, 0x1f, 0x3c, 0x6e, 0x0a, 0x7d, 0x4e, 0x52, 0x9d, 0x63, 0x27, 0xc1, 0x84, 0xee, 0x1a, 0x90];
/// Bytes of a message. Longer ones are left out.
pub const LONGEST: usize = 64 << 10;
/// The kind of a message that is user data without registration, and the kind of the unit that has messages.
const USER_DATA_UNREGISTERED: u8 = 5;
const SEI: u8 = 6;
/// Kinds of units that have parts of the picture.
const SLICES: std::ops::RangeInclusive<u8> = 1..=5;

/// Gives a frame a message, for who writes it behind the encoder. False if it is too long, or GStreamer has no metas for it.
pub fn attach(frame: &mut gst::BufferRef, text: &str) -> bool {
    text.len() <= LONGEST && UserDataMeta::add(frame, &UUID, text.as_bytes())
}

/// Writes what [`attach`] has given a frame into its H.264, a byte stream with a frame in each buffer. Returns how many messages that
/// were. Those that the encoder has written itself are not written again.
pub fn write_attached(frame: &mut gst::Buffer) -> usize {
    let texts: Vec<String> = frame
        .iter_meta::<UserDataMeta>()
        .filter(|meta| meta.uuid() == UUID)
        .map(|meta| String::from_utf8_lossy(meta.data()).into_owned())
        .collect();
    let Some(mut told) = with_messages(frame, &texts) else { return 0 };
    // Another element that writes such metas finds none.
    let own = told.make_mut();
    own.foreach_meta_mut(|mut meta| {
        let is_written = meta.downcast_ref::<UserDataMeta>().is_some_and(|meta| meta.uuid() == UUID);
        ControlFlow::Continue(if is_written { BufferMetaForeachAction::Remove } else { BufferMetaForeachAction::Keep })
    });
    *frame = told;
    texts.len()
}

/// A frame with one unit more for each text. `None` if there is no text, it is no frame of H.264, or it has ours already.
pub fn with_messages(frame: &gst::BufferRef, texts: &[String]) -> Option<gst::Buffer> {
    let units: Vec<u8> = texts.iter().filter(|text| text.len() <= LONGEST).flat_map(|text| unit(text)).collect();
    let map = frame.map_readable().ok().filter(|_| !units.is_empty())?;
    let position = first_slice(&map)?;
    if map[..position].windows(UUID.len()).any(|bytes| bytes == UUID) {
        return None;
    }
    let mut told = gst::Buffer::from_mut_slice([&map[..position], &units, &map[position..]].concat());
    let own = told.get_mut().expect("it is new");
    let kept = gst::BufferCopyFlags::FLAGS | gst::BufferCopyFlags::TIMESTAMPS | gst::BufferCopyFlags::META;
    frame.copy_into(own, kept, ..).ok()?;
    Some(told)
}

/// Where the first part of the picture begins, with its start code.
fn first_slice(bytes: &[u8]) -> Option<usize> {
    let start = |four: &[u8]| four[..3] == [0, 0, 1] && SLICES.contains(&(four[3] & 0x1f));
    let code = bytes.windows(4).position(start)?;
    // A start code may have one zero more.
    Some(if code > 0 && bytes[code - 1] == 0 { code - 1 } else { code })
}

/// A unit of the stream with one message.
fn unit(text: &str) -> Vec<u8> {
    let mut message = vec![USER_DATA_UNREGISTERED];
    let mut size = UUID.len() + text.len();
    while size >= 255 {
        message.push(255);
        size -= 255;
    }
    message.push(size as u8);
    message.extend(UUID);
    message.extend(text.as_bytes());
    message.push(0x80); // where it ends
    let mut unit = vec![0, 0, 0, 1, SEI];
    // No three bytes of it may look like a start code.
    let mut zeros = 0;
    for byte in message {
        if zeros == 2 && byte <= 3 {
            unit.push(3);
            zeros = 0;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        unit.push(byte);
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_the_standard_has_it() {
        let short = unit("{}");
        assert_eq!(short[..7], [0, 0, 0, 1, 6, 5, 18]);
        assert_eq!((&short[7..23], &short[23..]), (&UUID[..], &b"{}\x80"[..]));
        let long = unit(&"x".repeat(600 - UUID.len()));
        assert_eq!(long[5..9], [5, 255, 255, 90], "600 = 255 + 255 + 90");
        let zeros = unit("\0\0\0\0\x01");
        assert_eq!(zeros[23..], *b"\0\0\x03\0\0\x03\x01\x80", "no start code is in it");
    }

    #[test]
    fn it_comes_before_the_picture() {
        let frame = b"\0\0\0\x01\x09\xf0\0\0\0\x01\x67ab\0\0\x01\x68c\0\0\0\x01\x65slice\0\0\x01\x65more";
        assert_eq!(first_slice(frame), Some(18));
        assert_eq!(first_slice(&frame[..18]), None);
        assert_eq!(first_slice(b"\0\0\x01\x41x"), Some(0));
        assert_eq!(first_slice(b""), None);
    }

    #[test]
    fn a_frame_is_written_once() {
        gst::init().unwrap();
        let mut frame = gst::Buffer::from_slice(*b"\0\0\0\x01\x67ab\0\0\x01\x65slice");
        let pts = gst::ClockTime::from_mseconds(40);
        let own = frame.get_mut().unwrap();
        own.set_pts(pts);
        if !UserDataMeta::add(own, &[7; 16], b"of another") {
            return println!("SKIP: GStreamer has no user data in metas before 1.22");
        }
        assert!(attach(own, "{}") && attach(own, "[]"));
        assert!(!attach(own, &"x".repeat(LONGEST + 1)), "it is too long");
        assert_eq!(write_attached(&mut frame), 2);
        let expected = [&b"\0\0\0\x01\x67ab"[..], &unit("{}"), &unit("[]"), b"\0\0\x01\x65slice"].concat();
        assert_eq!((frame.map_readable().unwrap().as_slice(), frame.pts()), (&expected[..], Some(pts)));
        let left: Vec<_> = frame.iter_meta::<UserDataMeta>().map(|meta| meta.uuid()).collect();
        assert_eq!(left, [[7; 16]], "those of others stay");
        // As of an encoder that writes such metas itself, and leaves them.
        assert!(attach(frame.make_mut(), "{}"));
        assert_eq!(write_attached(&mut frame), 0);
        assert_eq!(frame.map_readable().unwrap().as_slice(), expected);
        // No picture, no message.
        let mut frame = gst::Buffer::from_slice(*b"\0\0\0\x01\x67ab");
        assert!(attach(frame.get_mut().unwrap(), "{}"));
        assert_eq!(write_attached(&mut frame), 0);
    }

    #[test]
    fn the_pages_have_the_uuid() {
        let uuid: String = UUID.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [&uuid[..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..]];
        for page in ["docs/videos.md", "docs/elements/trtpublish.md"] {
            // A crate that is packed has no pages.
            let Ok(text) = std::fs::read_to_string(format!("{}/{page}", env!("CARGO_MANIFEST_DIR"))) else { return };
            assert!(text.contains(&format!("`{}`", parts.join("-"))), "{page}: {parts:?}");
        }
    }
}
