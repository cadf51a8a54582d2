// SPDX-License-Identifier: MPL-2.0
//! Pictures that are made and changed byte by byte.

use std::path::Path;

use super::picture;

/// A JPEG picture of that size.
pub fn of(folder: &Path, width: u32, height: u32) -> Vec<u8> {
    let file = folder.join("made.jpg");
    picture(&file, width, height);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    bytes
}

/// The same with another size in its header.
pub fn of_size(mut picture: Vec<u8>, width: u16, height: u16) -> Vec<u8> {
    let frame = picture.windows(2).position(|two| two == [0xFF, 0xC0]).expect("a baseline picture has this marker");
    picture[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    picture[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    picture
}
