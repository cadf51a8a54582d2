// SPDX-License-Identifier: MPL-2.0
//! Weights of ONNX models that are in files next to them. They are read here, since libraries would open whatever a
//! model names.

use std::path::Path;

use super::{ExternalFile, StringStringEntryProto, external_files, unreadable};
use crate::error::Result;
use crate::files;

/// Bytes of a file of weights next to a model; all of it is read.
const MAX_EXTERNAL: u64 = 8 << 30;

/// Names as in the model, and what the files hold.
///
/// # Errors
/// As [`external_files`], and where a file cannot be read.
pub fn read<'a>(
    model: &Path,
    entries: impl Iterator<Item = &'a StringStringEntryProto>,
) -> Result<Vec<(String, Vec<u8>)>> {
    let read = |file: ExternalFile| match files::read_regular(&file.path, MAX_EXTERNAL) {
        Ok(weights) => Ok((file.name.to_string(), weights)),
        Err(error) => Err(unreadable(&file.path, model, error)),
    };
    external_files(model, entries)?.into_iter().map(read).collect()
}
