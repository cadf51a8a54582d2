// SPDX-License-Identifier: MPL-2.0
//! Arrays as numpy.save writes them.

use std::path::Path;

/// A file of version 1.0 of the format: its type and shape as NumPy spells them, like `<f4` and `(1, 2)`, and the bytes.
pub fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    // What follows begins at a multiple of 64.
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), values].concat()
}

/// Writes an array of float32, and returns its path as text.
pub fn save_floats(path: &Path, shape: &[usize], values: &[f32]) -> String {
    let dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(path, npy("<f4", &format!("({dims})"), &bytes)).unwrap();
    path.display().to_string()
}
