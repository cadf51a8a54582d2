// SPDX-License-Identifier: MPL-2.0
//! The numbers of a weight in f32, piece by piece, wherever the file has them.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{ExternalFile, TensorProto, external_files, unreadable};
use crate::error::{Error, ErrorKind, Result};
use crate::files;

/// Numbers that are looked at at once.
const PIECE: usize = 1 << 16;

/// How many numbers a weight has by its dimensions.
pub fn count(tensor: &TensorProto) -> Result<usize> {
    let dims = tensor.dims.iter().map(|&dim| usize::try_from(dim).ok());
    let product = dims.into_iter().try_fold(1usize, |product, dim| product.checked_mul(dim?));
    product
        .filter(|&count| count <= usize::MAX / 4)
        .ok_or_else(|| contradicts(tensor, "its dimensions are no numbers of elements"))
}

fn contradicts(tensor: &TensorProto, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Model, format!("the weight “{}” is broken: {what}", tensor.name))
        .remedy("Export the model again, or copy it again with its files")
}

/// Gives all numbers of a weight of the model at `path` to `sink`, as many as its dimensions say.
///
/// # Errors
/// `Model`, where it has others, or they cannot be read; `Run`, when it was cancelled.
pub fn read(tensor: &TensorProto, path: &Path, cancelled: &AtomicBool, mut sink: impl FnMut(&[f32])) -> Result<()> {
    let wanted = count(tensor)?;
    let has = |count: usize| match count == wanted {
        true => Ok(()),
        false => Err(contradicts(tensor, format!("it has {count} numbers, and {wanted} by its dimensions"))),
    };
    let go_on = || match cancelled.load(Ordering::Relaxed) {
        true => Err(Error::new(ErrorKind::Run, "Converting the model's weights was cancelled")),
        false => Ok(()),
    };
    let mut floats = Vec::with_capacity(wanted.min(PIECE));
    let mut of_bytes = |bytes: &[u8], sink: &mut dyn FnMut(&[f32])| {
        floats.clear();
        floats.extend(bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)));
        sink(&floats);
    };
    if !tensor.external_data.is_empty() {
        let mut left = Outside::open(tensor, path, wanted)?;
        let mut piece = vec![0; 4 * wanted.min(PIECE)];
        while left.bytes > 0 {
            go_on()?;
            let size = left.bytes.min(piece.len());
            left.read(&mut piece[..size])?;
            of_bytes(&piece[..size], &mut sink);
        }
        return Ok(());
    }
    if !tensor.raw_data.is_empty() || tensor.float_data.is_empty() {
        let (words, rest) = tensor.raw_data.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(contradicts(tensor, format!("it has {} bytes", tensor.raw_data.len())));
        }
        has(words.len())?;
        for piece in tensor.raw_data.chunks(4 * PIECE) {
            go_on()?;
            of_bytes(piece, &mut sink);
        }
        return Ok(());
    }
    has(tensor.float_data.len())?;
    for piece in tensor.float_data.chunks(PIECE) {
        go_on()?;
        sink(piece);
    }
    Ok(())
}

/// A part of a file next to the model.
struct Outside<'a> {
    file: std::fs::File,
    found: ExternalFile<'a>,
    model: &'a Path,
    bytes: usize,
}

impl<'a> Outside<'a> {
    fn open(tensor: &'a TensorProto, model: &'a Path, count: usize) -> Result<Self> {
        let entry =
            |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str());
        let number = |key: &str| match entry(key).map(str::parse::<u64>) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(contradicts(tensor, format!("the {key} of its file is no number"))),
        };
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        if length.is_some_and(|length| length != 4 * count as u64) {
            return Err(contradicts(
                tensor,
                format!("its file has {} bytes of it, and its dimensions want {}", length.unwrap_or(0), 4 * count),
            ));
        }
        let found = external_files(model, tensor.external_data.iter())?.pop();
        let found = found.ok_or_else(|| contradicts(tensor, "it is in a file without a name"))?;
        let unread = |error| unreadable(&found.path, model, error);
        let mut file = files::open_regular(&found.path).map_err(unread)?;
        // Before memory is taken for them.
        let has = file.metadata().map_err(unread)?.len();
        if offset.checked_add(4 * count as u64).is_none_or(|end| end > has) {
            return Err(contradicts(tensor, format!("{} ends before it", found.path.display())));
        }
        file.seek(SeekFrom::Start(offset)).map_err(unread)?;
        Ok(Outside { file, found, model, bytes: 4 * count })
    }

    fn read(&mut self, piece: &mut [u8]) -> Result<()> {
        self.file.read_exact(piece).map_err(|error| unreadable(&self.found.path, self.model, error))?;
        self.bytes -= piece.len();
        Ok(())
    }
}
