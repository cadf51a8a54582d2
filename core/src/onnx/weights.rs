// SPDX-License-Identifier: MPL-2.0
//! Weights of ONNX models that are in files next to them. They are read here, since libraries would open whatever a
//! model names.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use prost::Message;

use super::raw::RawModel;
use super::{BFLOAT16, ExternalFile, FLOAT, FLOAT16, StringStringEntryProto, TensorProto, external_files, unreadable};
use crate::error::{Error, ErrorKind, Result};
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

/// A model's file with its weights in it, for libraries that take a model as one piece of memory. `entries` are all that the file says
/// of weights in other files.
///
/// # Errors
/// As [`read`]; `Model`, where a weight is not in its file, or is one of a branch or a loop.
pub fn inlined(model: &Path, file: &Bytes, entries: &[&StringStringEntryProto]) -> Result<Bytes> {
    if entries.is_empty() {
        return Ok(file.clone());
    }
    let files: BTreeMap<String, Vec<u8>> = read(model, entries.iter().copied())?.into_iter().collect();
    let mut raw = RawModel::decode(file.clone()).unwrap_or_default(); // it was decoded for the entries
    let mut found = 0;
    for weight in raw.graph.iter_mut().flat_map(|graph| &mut graph.initializer) {
        let tensor = TensorProto::decode(weight.clone()).unwrap_or_default();
        if tensor.external_data.is_empty() {
            continue;
        }
        found += tensor.external_data.len();
        let Some(numbers) = of_files(&tensor, &files) else {
            let what = format!("the weight {} is not in the file that the model names for it", tensor.name);
            return Err(Error::new(ErrorKind::Model, what).remedy("Copy the file with the weights again"));
        };
        let raw_data = Bytes::copy_from_slice(numbers);
        *weight = TensorProto { raw_data, external_data: Vec::new(), ..tensor }.encode_to_vec().into();
    }
    if found < entries.len() {
        return Err(Error::new(ErrorKind::Model, "a branch or a loop of it has weights in another file")
            .remedy("Export the model as one file"));
    }
    Ok(raw.encode_to_vec().into())
}

/// The numbers of a weight that is in another file.
fn of_files<'a>(tensor: &TensorProto, files: &'a BTreeMap<String, Vec<u8>>) -> Option<&'a [u8]> {
    let entry =
        |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str());
    let file = files.get(entry("location")?)?;
    let begin = entry("offset").map_or(Some(0), |offset| offset.parse::<usize>().ok())?;
    let end = match (entry("length"), bytes(tensor)) {
        (Some(length), _) => begin.checked_add(length.parse().ok()?)?,
        (None, Some(bytes)) => begin.checked_add(bytes)?,
        (None, None) => file.len(),
    };
    file.get(begin..end).filter(|numbers| bytes(tensor).is_none_or(|bytes| bytes == numbers.len()))
}

/// How many a weight has by its dimensions; `None` for types that are not known here.
fn bytes(tensor: &TensorProto) -> Option<usize> {
    let size = match tensor.data_type {
        2 | 3 | 9 => 1,
        4 | 5 | FLOAT16 | BFLOAT16 => 2,
        FLOAT | 6 | 12 => 4,
        7 | 11 | 13 => 8,
        _ => return None,
    };
    tensor.dims.iter().try_fold(size, |bytes: usize, &dim| bytes.checked_mul(usize::try_from(dim).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::{GraphProto, ModelProto};
    use crate::test::scratch;

    fn weight(entries: &[(&str, &str)]) -> TensorProto {
        let entry = |&(key, value): &(&str, &str)| StringStringEntryProto { key: key.into(), value: value.into() };
        let external_data = entries.iter().map(entry).collect();
        TensorProto { name: "w".into(), dims: vec![2], data_type: 2, external_data, ..Default::default() }
    }

    #[test]
    fn weights_of_other_files_come_into_the_model() {
        let folder = scratch("inlined");
        std::fs::write(folder.join("w.data"), [1, 2, 3, 4]).unwrap();
        let whole = |entries: &[(&str, &str)]| {
            let graph = Some(GraphProto { initializer: vec![weight(entries)], ..Default::default() });
            let model = ModelProto { ir_version: 8, graph, ..Default::default() };
            let graph = model.graph.as_ref().unwrap();
            let entries: Vec<_> = graph.initializer.iter().flat_map(|weight| &weight.external_data).collect();
            let inlined = inlined(&folder.join("m.onnx"), &model.encode_to_vec().into(), &entries)?;
            let weight = ModelProto::decode(inlined).unwrap().graph.unwrap().initializer.remove(0);
            assert!(weight.external_data.is_empty() && weight.name == "w" && weight.dims == [2]);
            Ok::<_, Error>(weight.raw_data.to_vec())
        };
        assert_eq!(whole(&[("location", "w.data"), ("offset", "1"), ("length", "2")]).unwrap(), [2, 3]);
        assert_eq!(whole(&[("location", "w.data"), ("offset", "2")]).unwrap(), [3, 4]);
        for beyond in ["5", "1", "-1", "x"] {
            let error = whole(&[("location", "w.data"), ("offset", "2"), ("length", beyond)]).unwrap_err();
            assert!(error.message().contains("the weight w is not in the file"), "{error}");
        }
        assert!(whole(&[("location", "missing.data")]).is_err());
    }
}
