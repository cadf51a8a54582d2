//! An ONNX file as the builder sees it: bytes to parse, and the little that TensorRT's parser does not tell.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;
use sha2::{Digest, Sha256};

use crate::core::error::{Error, ErrorKind, Result};
use crate::onnx::{BFLOAT16, FLOAT16, GraphProto, ModelProto};

/// A file that was read once, so that what is hashed is what is built.
pub struct Onnx {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    graph: GraphProto,
}

/// What the numbers in a file are, coarsely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightType {
    F32,
    /// f16 or bf16, in some weight.
    Half,
    /// The file says where to quantize.
    Quantized,
}

impl Onnx {
    /// # Errors
    /// `Read`. What is in the file is for TensorRT's parser to complain about.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(|error| {
            Error::new(ErrorKind::Read, format!("Cannot read the model {}", path.display()))
                .cause(error)
                .remedy("Check the path and that this user may read the file")
        })?;
        Ok(Onnx::new(path, bytes))
    }

    /// `path` is where weights in other files are looked for, and what errors name.
    pub fn new(path: &Path, bytes: Vec<u8>) -> Self {
        let graph = ModelProto::decode(&bytes[..]).ok().and_then(|model| model.graph).unwrap_or_default();
        Onnx { path: path.to_path_buf(), bytes, graph }
    }

    /// The hash of the model: of the file, and of those beside it that hold its weights.
    ///
    /// # Errors
    /// `NotFound`, when such a file cannot be read.
    pub fn fingerprint(&self) -> Result<String> {
        let mut hash = Sha256::new_with_prefix(&self.bytes);
        let entries = self.graph.initializer.iter().flat_map(|weight| &weight.external_data);
        let files: BTreeSet<&str> =
            entries.filter(|entry| entry.key == "location").map(|entry| entry.value.as_str()).collect();
        for file in files {
            let path = self.path.with_file_name(file);
            hash.update(fs::read(&path).map_err(|error| {
                let what = format!("Cannot read {}, which holds weights of {}", path.display(), self.path.display());
                Error::new(ErrorKind::NotFound, what)
                    .cause(error)
                    .remedy("Copy it beside the model, or export the model as one file")
            })?);
        }
        Ok(super::cache::hex(hash))
    }

    /// Name and operator of a node; the name may be empty.
    pub fn node(&self, index: usize) -> Option<(&str, &str)> {
        self.graph.node.get(index).map(|node| (node.name.as_str(), node.op_type.as_str()))
    }

    pub fn numbers(&self) -> WeightType {
        if self.graph.node.iter().any(|node| node.op_type == "QuantizeLinear" || node.op_type == "DequantizeLinear") {
            return WeightType::Quantized;
        }
        match self.graph.initializer.iter().any(|weight| [FLOAT16, BFLOAT16].contains(&weight.data_type)) {
            true => WeightType::Half,
            false => WeightType::F32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::{NodeProto, StringStringEntryProto, TensorProto};

    fn onnx(path: &Path, graph: GraphProto) -> Onnx {
        Onnx::new(path, ModelProto { graph: Some(graph), ..Default::default() }.encode_to_vec())
    }

    fn node(op_type: &str) -> NodeProto {
        NodeProto { name: format!("the {op_type}"), op_type: op_type.into() }
    }

    #[test]
    fn a_fingerprint_covers_weights_in_other_files() {
        let folder = std::env::temp_dir().join(format!("gsttrt-fingerprint-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
        let external_data = vec![entry("location", "weights.bin"), entry("offset", "0")];
        let weight = TensorProto { external_data, data_type: 1, ..Default::default() };
        let graph = GraphProto { initializer: vec![weight.clone(), weight], ..Default::default() };
        let model = onnx(&folder.join("model.onnx"), graph);

        let error = model.fingerprint().unwrap_err();
        assert!(error.message().contains("weights.bin, which holds weights of "), "{error}");
        let with = |weights: &[u8]| {
            fs::write(folder.join("weights.bin"), weights).unwrap();
            model.fingerprint().unwrap()
        };
        assert_eq!(with(b"one"), with(b"one"));
        assert_ne!(with(b"one"), with(b"two"));
        fs::remove_dir_all(&folder).unwrap();

        let nothing = Onnx::new(Path::new("model.onnx"), Vec::new()).fingerprint().unwrap();
        assert_eq!(nothing, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn files_say_what_their_numbers_are() {
        let weight = |data_type| TensorProto { data_type, ..Default::default() };
        let numbers = |graph| onnx(Path::new(""), graph).numbers();
        let conv =
            GraphProto { node: vec![node("Conv")], initializer: vec![weight(1), weight(7)], ..Default::default() };
        assert_eq!(numbers(conv), WeightType::F32);
        let half =
            GraphProto { node: vec![node("Conv")], initializer: vec![weight(1), weight(10)], ..Default::default() };
        assert_eq!(numbers(half), WeightType::Half);
        let quantized = GraphProto {
            node: vec![node("Conv"), node("QuantizeLinear")],
            initializer: vec![weight(10)],
            ..Default::default()
        };
        assert_eq!(numbers(quantized), WeightType::Quantized);
        assert_eq!(Onnx::new(Path::new(""), b"no model".into()).numbers(), WeightType::F32);
    }

    #[test]
    fn nodes_have_names_and_operators() {
        let model = onnx(Path::new(""), GraphProto { node: vec![node("Conv"), node("Relu")], ..Default::default() });
        assert_eq!(model.node(1), Some(("the Relu", "Relu")));
        assert_eq!(model.node(2), None);
    }
}
