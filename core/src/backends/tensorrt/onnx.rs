// SPDX-License-Identifier: MPL-2.0
//! An ONNX file as the builder sees it: bytes to parse, and the little that TensorRT's parser does not report.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::interfaces::{Level, log};
use crate::error::{Error, ErrorKind, Result};
use crate::files;
use crate::model::{FileContents, ModelInfo};
use crate::onnx::cast::{Casting, Half, cast};
use crate::onnx::channels::with_size;
use crate::onnx::exact::ExactLayers;
use crate::onnx::{BFLOAT16, ExternalFile, FLOAT16, GraphProto, NodeProto, TensorProto, external_files};

/// A file that was read once, so that what is hashed is what is built.
pub struct Onnx(Arc<FileContents>);

/// The types of the weights in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightType {
    F32,
    /// f16 or bf16, in some weight.
    Half,
    /// The file has quantization nodes.
    Quantized,
}

/// The content is not checked here: TensorRT's parser reports what is wrong with it.
impl From<Arc<FileContents>> for Onnx {
    fn from(file: Arc<FileContents>) -> Self {
        Onnx(file)
    }
}

impl Onnx {
    /// Of bytes that were read already; `path` is where weights in other files are looked for, and what errors name.
    pub fn new(path: &Path, bytes: Vec<u8>) -> Self {
        Onnx(Arc::new(FileContents::of(path, bytes)))
    }

    /// # Errors
    /// As [`FileContents::read`].
    pub fn read(path: &Path) -> Result<Self> {
        Ok(Onnx(Arc::new(FileContents::read(path)?)))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn nodes(&self) -> &[NodeProto] {
        self.0.graph().map_or(&[], |graph| &graph.node)
    }

    /// All nodes, weights and constants, also those of branches, loops and functions.
    fn parts(&self) -> Parts<'_> {
        let mut parts = Parts::default();
        if let (Ok(model), Ok(graph)) = (self.0.onnx(), self.0.graph()) {
            parts.add(graph);
            model.functions.iter().for_each(|function| parts.add_nodes(&function.node));
        }
        parts
    }

    /// The hash of the model: of the file, and of those next to it that hold its weights.
    ///
    /// # Errors
    /// `Model`, when such a file cannot or may not be read; `Run`, when it was cancelled.
    pub fn fingerprint(&self, cancelled: &AtomicBool) -> Result<String> {
        let mut hash = Sha256::new_with_prefix(self.bytes());
        let parts = self.parts();
        let names = parts.tensors.iter().flat_map(|tensor| &tensor.external_data);
        let mut piece = vec![0; 1 << 20];
        for ExternalFile { path, .. } in external_files(self.path(), names)? {
            let missing = |error| crate::onnx::unreadable(&path, self.path(), error);
            let mut file = files::open_regular(&path).map_err(missing)?;
            // Not more than it has now, though it may grow.
            let length = file.metadata().map_err(missing)?.len();
            let mut file = file.by_ref().take(length);
            loop {
                if cancelled.load(Ordering::Relaxed) {
                    return Err(Error::new(ErrorKind::Run, "Reading the model's weights was cancelled"));
                }
                match file.read(&mut piece).map_err(missing)? {
                    0 => break,
                    read => hash.update(&piece[..read]),
                }
            }
        }
        Ok(super::cache::hex(hash))
    }

    /// Whether an engine that was built now is one of that fingerprint. TensorRT reads the weights in other files for itself, minutes
    /// after they were hashed.
    ///
    /// # Errors
    /// `Read`, where they have changed; and as of the fingerprint.
    pub fn check_unchanged(&self, fingerprint: &str, cancelled: &AtomicBool) -> Result<()> {
        if self.fingerprint(cancelled)? == fingerprint {
            return Ok(());
        }
        let what = format!("The weights of {} were changed while its engine was built", self.path().display());
        Err(Error::new(ErrorKind::Read, what).remedy("Load the model again, once its files are all there"))
    }

    /// The file with steps in 16 bits, where it has any that can be so. What is no ONNX file is left to TensorRT's parser.
    ///
    /// # Errors
    /// `Model`, when the file contradicts itself, or weights cannot be read; `Run`, when it was cancelled.
    pub fn cast(&self, half: Half, exact: ExactLayers, cancelled: &AtomicBool) -> Result<Option<Vec<u8>>> {
        if self.0.graph().is_err() {
            return Ok(None);
        }
        let (path, how) = (self.path(), half.name());
        let casting = Casting { half, exact, path, cancelled };
        let what = |error: Error| error.about(&format!("Cannot convert {} to {how}", path.display()));
        let Some(casted) = cast(self.0.bytes().clone(), self.0.onnx()?, &casting).map_err(what)? else {
            return Ok(None);
        };
        let kept = match &casted.kept[..] {
            [] => String::new(),
            [first, rest @ ..] => {
                format!("; {first} and {} other constants are not, they would lose too much", rest.len())
            }
        };
        let done = format!("{} of {} nodes of {} are in {how}{kept}", casted.nodes, casted.of, path.display());
        log(Level::Info, &done);
        Ok(Some(casted.onnx))
    }

    /// The bytes to parse in place of the file's, if there are any: the cast file, or one that has the number of channels of pictures
    /// where this one leaves it open. TensorRT has no convolutions of an open number.
    pub fn with_channels(&self, cast: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let info = ModelInfo::of_onnx(&self.0).ok();
        let open = info.as_ref().and_then(|info| Some((info.image_input(), info.open_channels()?)));
        let Some((input, place)) = open else { return cast };
        let file = cast.map_or_else(|| self.0.bytes().clone(), Bytes::from);
        // The parser says what is wrong with a file that cannot be read.
        Some(with_size(file.clone(), &input.name, place, input.dims[place]).unwrap_or_else(|| file.into()))
    }

    /// Name and operator of a node; the name may be empty.
    pub fn node(&self, index: usize) -> Option<(&str, &str)> {
        self.nodes().get(index).map(|node| (node.name.as_str(), node.op_type.as_str()))
    }

    pub fn numbers(&self) -> WeightType {
        let Parts { nodes, tensors } = self.parts();
        if nodes.iter().any(|node| node.op_type == "QuantizeLinear" || node.op_type == "DequantizeLinear") {
            return WeightType::Quantized;
        }
        if tensors.iter().any(|tensor| [FLOAT16, BFLOAT16].contains(&tensor.data_type)) {
            WeightType::Half
        } else {
            WeightType::F32
        }
    }
}

/// What a graph is made of.
#[derive(Default)]
struct Parts<'a> {
    nodes: Vec<&'a NodeProto>,
    tensors: Vec<&'a TensorProto>,
}

impl<'a> Parts<'a> {
    fn add(&mut self, graph: &'a GraphProto) {
        self.tensors.extend(&graph.initializer);
        self.add_nodes(&graph.node);
    }

    fn add_nodes(&mut self, nodes: &'a [NodeProto]) {
        for node in nodes {
            self.nodes.push(node);
            let constants = node.attribute.iter().flat_map(|attribute| attribute.t.iter().chain(&attribute.tensors));
            self.tensors.extend(constants);
            node.graphs().for_each(|graph| self.add(graph));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use prost::Message;

    use crate::onnx::{AttributeProto, FunctionProto, ModelProto, StringStringEntryProto};
    use crate::onnx_files::{F32, Graph};
    use crate::test::scratch;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    fn onnx(path: &Path, graph: GraphProto) -> Onnx {
        Onnx::new(path, ModelProto { ir_version: 8, graph: Some(graph), ..Default::default() }.encode_to_vec())
    }

    fn node(op_type: &str) -> NodeProto {
        NodeProto { name: format!("the {op_type}"), op_type: op_type.into(), ..Default::default() }
    }

    /// Models with that weight or constant in each place where there may be one.
    fn with_everywhere(path: &Path, tensor: &TensorProto) -> [Onnx; 4] {
        let graph = || GraphProto { initializer: vec![tensor.clone(); 2], ..Default::default() };
        let with = |attribute| NodeProto { attribute: vec![attribute], ..node("Constant") };
        let constant = with(AttributeProto { t: Some(tensor.clone()), ..Default::default() });
        let branch = with(AttributeProto { g: Some(graph()), ..Default::default() });
        let of = |node| GraphProto { node: vec![node], ..Default::default() };
        let functions = vec![FunctionProto { node: vec![constant.clone()], ..Default::default() }];
        let model = ModelProto { ir_version: 8, graph: Some(of(node("own"))), functions, ..Default::default() };
        let function = Onnx::new(path, model.encode_to_vec());
        [onnx(path, graph()), onnx(path, of(constant)), onnx(path, of(branch)), function]
    }

    #[test]
    fn a_fingerprint_covers_weights_in_other_files() {
        let folder = scratch("fingerprint");
        let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
        let external_data = vec![entry("location", "weights.data"), entry("offset", "0")];
        let weight = TensorProto { external_data, data_type: 1, ..Default::default() };
        for model in with_everywhere(&folder.join("model.onnx"), &weight) {
            let _ = fs::remove_file(folder.join("weights.data"));
            let error = model.fingerprint(&GO_ON).unwrap_err();
            assert!(error.message().contains("weights.data, which holds weights of "), "{error}");
            let with = |weights: &[u8]| {
                fs::write(folder.join("weights.data"), weights).unwrap();
                model.fingerprint(&GO_ON).unwrap()
            };
            let one = with(b"one");
            model.check_unchanged(&one, &GO_ON).unwrap();
            assert_eq!(with(b"one"), one);
            assert_ne!(with(b"two"), one);
            let error = model.check_unchanged(&one, &GO_ON).unwrap_err();
            assert!(error.message().contains("model.onnx were changed while its engine was built"), "{error}");
        }

        let nothing = Onnx::new(Path::new("model.onnx"), Vec::new()).fingerprint(&GO_ON).unwrap();
        assert_eq!(nothing, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn weights_are_regular_files_next_to_the_model() {
        let folder = scratch("external");
        let pipe = folder.join("pipe.data");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let of = |location: &str, cancelled: bool| {
            let external_data = vec![StringStringEntryProto { key: "location".into(), value: location.into() }];
            let weight = TensorProto { external_data, data_type: 1, ..Default::default() };
            let graph = GraphProto { initializer: vec![weight], ..Default::default() };
            onnx(&folder.join("model.onnx"), graph).fingerprint(&AtomicBool::new(cancelled)).unwrap_err()
        };
        for location in ["../x.data", "/etc/passwd", "/dev/zero", "sub/x.data", "..", "", "weights.bin", "model.pb"] {
            let message = of(location, false).message();
            assert!(message.contains("may not be read") && message.contains(".onnx_data"), "{location}: {message}");
        }
        assert!(of("pipe.data", false).message().contains("it is a pipe"));
        fs::File::create(folder.join("hole.data")).unwrap().set_len(1 << 40).unwrap();
        assert!(of("hole.data", true).message().contains("was cancelled"));
    }

    #[test]
    fn pictures_of_open_channels_get_their_number() {
        let file = |name: &str, channels: &str| {
            let graph = Graph::new()
                .input(name, F32, &["n", channels, "h", "w"])
                .weight("w", F32, &[4, 3, 1, 1], vec![0; 48])
                .node("Conv", &[name, "w"], &["y"], vec![])
                .output("y", F32, &["n", "4", "h", "w"]);
            Onnx::new(Path::new("model.onnx"), graph.bytes())
        };
        let of = |bytes: Option<Vec<u8>>| Some(ModelProto::decode(&bytes?[..]).unwrap().graph?.input);
        let (open, known) = (file("x", "c"), file("x", "3"));
        assert_eq!(of(open.with_channels(None)), of(Some(known.bytes().to_vec())));
        assert_eq!(of(open.with_channels(Some(open.bytes().to_vec()))), of(Some(known.bytes().to_vec())));
        assert_eq!(known.with_channels(None), None);
        assert_eq!(known.with_channels(Some(vec![1])), Some(vec![1]));
        assert_eq!(open.with_channels(Some(b"no model".to_vec())), Some(b"no model".to_vec()));
        assert_eq!(Onnx::new(Path::new("m.onnx"), b"no model".to_vec()).with_channels(None), None);
    }

    #[test]
    fn files_have_their_weight_types() {
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
        for half in with_everywhere(Path::new(""), &weight(10)) {
            assert_eq!(half.numbers(), WeightType::Half);
        }
        let inner = GraphProto { node: vec![node("DequantizeLinear")], ..Default::default() };
        let branch = AttributeProto { g: Some(inner), ..Default::default() };
        let outer = NodeProto { attribute: vec![branch], ..node("If") };
        assert_eq!(numbers(GraphProto { node: vec![outer], ..Default::default() }), WeightType::Quantized);
        assert_eq!(Onnx::new(Path::new(""), b"no model".into()).numbers(), WeightType::F32);
    }

    #[test]
    fn nodes_have_names_and_operators() {
        let model = onnx(Path::new(""), GraphProto { node: vec![node("Conv"), node("Relu")], ..Default::default() });
        assert_eq!(model.node(1), Some(("the Relu", "Relu")));
        assert_eq!(model.node(2), None);
    }
}
