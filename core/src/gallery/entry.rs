// SPDX-License-Identifier: MPL-2.0
//! What a gallery has of a vector, whatever file it is from, and its limits.

use crate::error::{Error, ErrorKind, Result};
use crate::vector;

/// Vectors of a gallery.
pub const MAX_VECTORS: usize = 100_000;
/// Numbers of a vector.
pub const MAX_DIMS: usize = 4096;
/// Bytes of a name.
const MAX_NAME: usize = 256;

/// A vector, and whom it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct GalleryEntry {
    pub name: String,
    pub vector: Vec<f32>,
}

impl GalleryEntry {
    /// # Errors
    /// `Settings`, where a gallery cannot have such a name or such a vector.
    pub fn new(name: &str, vector: &[f32]) -> Result<GalleryEntry> {
        check_name(name).and_then(|()| check_vector(vector)).map_err(|cause| {
            Error::new(ErrorKind::Settings, "A gallery cannot have this entry")
                .cause(cause)
                .remedy("Use a short name on one line, and a vector of the model")
        })?;
        Ok(GalleryEntry { name: name.into(), vector: vector.to_vec() })
    }
}

/// Names are shown, and go to other programs: one line, and what texts of C can hold.
pub fn check_name(name: &str) -> std::result::Result<(), String> {
    match name {
        _ if name.trim().is_empty() => Err("the name is empty".into()),
        _ if name.len() > MAX_NAME => Err(format!("the name is longer than {MAX_NAME} bytes")),
        _ if name.contains(char::is_control) => Err("the name has control characters".into()),
        _ if name.contains(is_layout) => {
            Err("the name has characters that break a line or change the direction of text".into())
        }
        _ => Ok(()),
    }
}

/// Ends of lines and paragraphs, and what turns the direction of text: names with them look like other ones.
fn is_layout(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A vector has a direction.
pub fn check_vector(vector: &[f32]) -> std::result::Result<(), String> {
    if vector.is_empty() || vector.len() > MAX_DIMS {
        return Err(format!("the vector has {} numbers, and must have 1 to {MAX_DIMS}", vector.len()));
    }
    match vector::normalise(&mut vector.to_vec()) {
        true => Ok(()),
        false => Err("the vector has no length: a number is not finite or too large, or all are 0".into()),
    }
}
