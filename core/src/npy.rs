// SPDX-License-Identifier: MPL-2.0
//! Arrays as NumPy writes them (`numpy.save`). [Their format](https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html) is a
//! header, which is a dictionary of Python, and the bytes of the array. So it is read here, without a dependency. Nothing in a file
//! is executed: no reader of arrays takes the type of Python's objects.

use serde_json::Value;

use crate::literal;

/// Bytes of a header, as many as NumPy itself reads.
const MAX_HEADER: usize = 10_000;

const MAX_RANK: usize = 8;

/// An array of any type.
pub struct NpyArray<'a> {
    header: Value,
    /// The elements. There may be more or fewer than the header says.
    pub values: &'a [u8],
}

impl<'a> NpyArray<'a> {
    /// Takes the bytes of a file apart.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(file: &'a [u8]) -> Result<Self, String> {
        let cut = || "it ends within its header".to_string();
        let rest = file.strip_prefix(b"\x93NUMPY").ok_or_else(|| match file.starts_with(b"PK") {
            true => "it is an archive, as numpy.savez and torch.save write, and no single array",
            false => "it is no file of numpy.save",
        })?;
        let (&[version, _], rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
        let (length, rest) = match version {
            1 => rest.split_first_chunk::<2>().map(|(&length, rest)| (usize::from(u16::from_le_bytes(length)), rest)),
            2 | 3 => rest.split_first_chunk::<4>().map(|(&length, rest)| (u32::from_le_bytes(length) as usize, rest)),
            other => return Err(format!("it has version {other} of the format, and 1 to 3 are known")),
        }
        .ok_or_else(cut)?;
        if length > MAX_HEADER {
            return Err(format!("its header has {length} bytes, and {MAX_HEADER} are the most"));
        }
        let (header, values) = rest.split_at_checked(length).ok_or_else(cut)?;
        let header = std::str::from_utf8(header).ok().and_then(literal::parse).ok_or("its header cannot be read")?;
        Ok(NpyArray { header, values })
    }

    /// The type of the elements as NumPy writes it, such as `<f4`.
    pub fn descr(&self) -> Option<&str> {
        self.header["descr"].as_str()
    }

    /// Why an array of that type cannot be taken.
    pub fn wrong_type(&self) -> String {
        format!("its elements are of the type {}", self.header["descr"])
    }

    /// The dimensions, of which any may be 0.
    ///
    /// # Errors
    /// What is wrong with them, or that elements are not row by row.
    pub fn dims(&self) -> Result<Vec<i64>, String> {
        if self.header["fortran_order"] != false {
            return Err("its elements are not in the order of C, row by row".into());
        }
        let dims = self.header["shape"].as_array();
        let dims = dims.and_then(|dims| dims.iter().map(Value::as_i64).collect::<Option<Vec<_>>>());
        let dims = dims.filter(|dims| dims.len() <= MAX_RANK && dims.iter().all(|&dim| dim >= 0));
        dims.ok_or_else(|| self.wrong_shape())
    }

    /// Why an array of that shape cannot be taken.
    pub fn wrong_shape(&self) -> String {
        format!("its shape is {}", self.header["shape"])
    }
}
