// SPDX-License-Identifier: MPL-2.0
//! Which files are pictures, and which elements read one that is not in a container.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use gst::glib::ValueArray;
use gst::prelude::*;

use super::jpeg;

/// Endings of files that hold one picture.
pub const IMAGES: [&str; 12] = ["jpg", "jpeg", "jpe", "png", "bmp", "webp", "tif", "tiff", "ppm", "pgm", "pnm", "jp2"];

/// Reads what GStreamer's own decoders do not, or do wrongly.
pub const PIXBUF: &str = "gdkpixbufdec";

pub fn is_image(path: &Path) -> bool {
    has_ending(path, &IMAGES)
}

pub fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    endings.iter().any(|one| ending.eq_ignore_ascii_case(one))
}

/// Whether GStreamer 1.22 has no other decoder that gives the right colours: for JPEG of four components, for PNG of 16 bits
/// a colour, for TIFF of one bit a pixel.
pub fn needs_pixbuf(path: &Path) -> bool {
    /// The frame header of JPEG comes behind the metadata, which may be of several segments with 64 KiB.
    const HEAD: u64 = 1 << 20;
    let mut head = Vec::new();
    if File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head)).is_err() {
        return false; // the element that reads it says why
    }
    match head.as_slice() {
        [0xFF, 0xD8, ..] => jpeg::read(&head).is_some_and(|header| header.components == 4),
        [0x89, b'P', b'N', b'G', ..] => matches!(head.get(24..26), Some([16, 2 | 6])),
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => true,
        _ => false,
    }
}

/// Of the file of a picture, and of one picture from elsewhere: lets the parser of JPEG come before the decoder. It reads how
/// the camera was held, which decoders do not, and gives the picture whole.
pub fn put_parser_first(decode: &gst::Element, is_file: bool) {
    decode.connect("autoplug-sort", false, move |values| {
        let sorted = || {
            let (caps, factories) = (values.get(2)?.get::<gst::Caps>().ok()?, values.get(3)?.get::<ValueArray>().ok()?);
            let caps = caps.structure(0).filter(|caps| caps.name() == "image/jpeg" && !caps.has_field("parsed"))?;
            // What begins a stream has this field.
            let parser = gst::ElementFactory::find("jpegparse").filter(|_| is_file || caps.has_field("sof-marker"))?;
            Some(ValueArray::new(std::iter::once(parser.to_value()).chain(factories.iter().cloned())))
        };
        Some(sorted().to_value()) // none leaves them as they are
    });
}
