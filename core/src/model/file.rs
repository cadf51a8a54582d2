// SPDX-License-Identifier: MPL-2.0
//! A model file in memory.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use prost::Message;

use super::unusable;
use crate::error::{Error, ErrorKind, Result};
use crate::files;
use crate::onnx::{GraphProto, ModelProto};

/// ONNX files cannot be larger than 2 GiB, and engines of detectors are smaller than that.
const MAX_FILE: u64 = 8 << 30;

/// A model file, read once for all that loading asks of it. It is not mapped: another process may write to it meanwhile.
pub struct ModelFile {
    path: PathBuf,
    contents: Mutex<Option<Arc<FileContents>>>,
}

/// What a model file held when it was read.
pub struct FileContents {
    path: PathBuf,
    bytes: Bytes,
    onnx: OnceLock<std::result::Result<ModelProto, String>>,
}

impl ModelFile {
    /// Reads nothing yet.
    pub fn new(path: &Path) -> Self {
        ModelFile { path: path.to_path_buf(), contents: Mutex::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a TensorRT engine rather than ONNX, by its name.
    pub fn is_engine(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "engine" || extension == "plan")
    }

    /// Whether it is the address of a model on a server, such as `grpc://host:8001/model`, and no file.
    pub fn is_on_server(&self) -> bool {
        self.path.to_str().is_some_and(is_address)
    }

    /// What is in it, read from the disk unless it is in memory.
    ///
    /// # Errors
    /// `NotFound` and `Read`, where it is not there or cannot be read; `Model`, where it is empty or of a kind that is
    /// no model.
    pub fn contents(&self) -> Result<Arc<FileContents>> {
        let mut contents = self.contents.lock().unwrap();
        if let Some(contents) = &*contents {
            return Ok(contents.clone());
        }
        Ok(contents.insert(Arc::new(FileContents::read(&self.path)?)).clone())
    }

    /// Gives the memory back once the model is loaded; a later load reads the file again.
    pub fn release(&self) {
        let contents = self.contents.lock().unwrap().take();
        drop(contents); // not under the lock
    }
}

impl FileContents {
    /// # Errors
    /// As [`ModelFile::contents`].
    pub fn read(path: &Path) -> Result<Self> {
        Ok(FileContents::of(path, contents(path)?))
    }

    /// Of bytes that were read already; `path` is where weights in other files are looked for, and what errors name.
    pub fn of(path: &Path, bytes: impl Into<Bytes>) -> Self {
        FileContents { path: path.to_path_buf(), bytes: bytes.into(), onnx: OnceLock::new() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes, which are not copied where nothing else has the file.
    pub fn into_vec(self: Arc<Self>) -> Vec<u8> {
        match Arc::try_unwrap(self) {
            Ok(FileContents { bytes, onnx, .. }) => {
                drop(onnx); // its weights are parts of the bytes
                bytes.into()
            }
            Err(shared) => shared.bytes.to_vec(),
        }
    }

    /// The versions that an ONNX file names: of its format, and of each set of operators by its domain.
    ///
    /// # Errors
    /// `Model`, where it is no ONNX file.
    pub fn onnx_versions(&self) -> Result<(i64, Vec<(String, i64)>)> {
        let model = self.onnx()?;
        let opsets = model.opset_import.iter().map(|opset| (opset.domain.clone(), opset.version));
        Ok((model.ir_version, opsets.collect()))
    }

    /// The messages of an ONNX file, decoded at the first call. Errors have a cause; the caller adds the file's name.
    pub(crate) fn onnx(&self) -> Result<&ModelProto> {
        let decode = || {
            let broken =
                |error: prost::DecodeError| error.to_string().replace("failed to decode Protobuf message: ", "");
            ModelProto::decode(self.bytes.clone()).map_err(broken)
        };
        self.onnx.get_or_init(decode).as_ref().map_err(|cause| self.broken(cause))
    }

    /// The graph of an ONNX file, likewise.
    pub(crate) fn graph(&self) -> Result<&GraphProto> {
        // Random bytes may well be valid protobuf; a model has at least these.
        let model = self.onnx()?;
        model.graph.as_ref().filter(|_| model.ir_version > 0).ok_or_else(|| self.broken("it has no graph"))
    }

    /// A text file is called one: the cause that the decoder gives for it helps nobody.
    fn broken(&self, cause: &str) -> Error {
        match self.text_remedy() {
            Some(remedy) => broken("it is a text file").remedy(remedy),
            None => broken(cause),
        }
    }

    /// What to do, where this is a text.
    fn text_remedy(&self) -> Option<&'static str> {
        const LOOKED_AT: usize = 64 << 10;
        let bytes = &self.bytes[..self.bytes.len().min(LOOKED_AT)];
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            // The last character may be cut.
            Err(error) if error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?,
            Err(_) => return None,
        };
        let is_text = |c: char| !c.is_control() || c.is_ascii_whitespace();
        if text.is_empty() || !text.chars().all(is_text) {
            return None;
        }
        let has_line = |wanted: &str| text.lines().any(|line| line.trim() == wanted);
        Some(if has_line("[property]") {
            "This is a configuration of DeepStream's nvinfer. Give the file that it names in onnx-file; docs/deepstream.md says \
             what becomes of its other keys"
        } else if text.starts_with("version https://git-lfs") {
            "It stands for a file that git has not fetched: run git lfs pull"
        } else {
            "Give the ONNX file itself"
        })
    }
}

/// Whether a text has the scheme of a model on a server.
pub(super) fn is_address(text: &str) -> bool {
    text.split_once("://")
        .is_some_and(|(scheme, _)| ["grpc", "grpcs"].iter().any(|own| scheme.eq_ignore_ascii_case(own)))
}

pub(super) fn broken(cause: &str) -> Error {
    Error::new(ErrorKind::Model, "this is not a whole ONNX model")
        .cause(cause)
        .remedy("Check that it is an ONNX file and was copied or exported completely")
}

/// What to do with a file of another framework.
fn export_of(path: &Path) -> Option<&'static str> {
    Some(match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "pt" | "pth" => "Export it to ONNX first, with Ultralytics: yolo export model=FILE.pt format=onnx",
        "safetensors" | "ckpt" | "pkl" => {
            "These are weights without the network: export the model to ONNX with the program that trained it"
        }
        "tflite" | "pb" | "h5" | "keras" => "Convert it to ONNX first, with tf2onnx",
        "mlmodel" | "mlpackage" | "xml" | "param" => "Export the original model to ONNX instead",
        _ => return None,
    })
}

/// All bytes of a model file.
fn contents(path: &Path) -> Result<Vec<u8>> {
    if let Some(export) = export_of(path).filter(|_| path.exists()) {
        return Err(Error::new(ErrorKind::Model, unusable(path))
            .cause("it is neither ONNX nor a TensorRT engine")
            .remedy(export));
    }
    let bytes = files::read_regular(path, MAX_FILE).map_err(|error| unreadable(path, error))?;
    if bytes.is_empty() {
        return Err(Error::new(ErrorKind::Model, format!("The model file {} is empty", path.display()))
            .remedy("Export or copy the model again"));
    }
    Ok(bytes)
}

/// A model file that is not there or cannot be read.
pub fn unreadable(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            let missing = Error::new(ErrorKind::NotFound, format!("There is no model file {}", path.display()));
            match std::env::current_dir() {
                _ if path.to_str().is_some_and(|path| path.contains("://")) => missing.remedy(
                    "Give the path of a file, or the address of a model on a server like grpc://host:8001/model",
                ),
                Ok(folder) if path.is_relative() => missing
                    .cause(format!("it was looked for in {}", folder.display()))
                    .remedy("Check the path of the model file"),
                _ => missing.remedy("Check the path of the model file"),
            }
        }
        _ => Error::new(ErrorKind::Read, format!("Cannot read the model file {}", path.display()))
            .cause(error)
            .remedy("Check that it is a file that this user may read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::TensorProto;
    use crate::test::scratch;

    #[test]
    fn a_file_is_read_once_for_each_load() {
        let path = scratch("model-file").join("model.onnx");
        let file = ModelFile::new(&path);
        assert_eq!(file.contents().err().map(|error| error.kind()), Some(ErrorKind::NotFound), "it may come yet");
        std::fs::write(&path, b"first").unwrap();
        let first = file.contents().unwrap();
        std::fs::write(&path, b"second").unwrap();
        assert!(Arc::ptr_eq(&first, &file.contents().unwrap()));
        assert_eq!(first.bytes(), &b"first"[..]);
        file.release();
        assert_eq!(file.contents().unwrap().bytes(), &b"second"[..]);
    }

    #[test]
    fn bytes_are_handed_over_and_not_copied() {
        let weight = TensorProto { raw_data: vec![7; 1000].into(), ..Default::default() };
        let graph = Some(GraphProto { initializer: vec![weight], ..Default::default() });
        let bytes = ModelProto { ir_version: 8, graph, ..Default::default() }.encode_to_vec();
        let (address, copy) = (bytes.as_ptr(), bytes.clone());
        let file = Arc::new(FileContents::of(Path::new("m.onnx"), bytes));
        assert_eq!(file.graph().unwrap().initializer[0].raw_data.len(), 1000);
        let other = file.clone();
        assert_eq!(other.into_vec(), copy);
        let bytes = file.into_vec();
        assert_eq!(bytes.as_ptr(), address);
    }

    #[test]
    fn onnx_is_decoded_once() {
        let model = ModelProto { ir_version: 8, graph: Some(GraphProto::default()), ..Default::default() };
        let contents = FileContents::of(Path::new("m.onnx"), model.encode_to_vec());
        assert!(std::ptr::eq(contents.graph().unwrap(), contents.graph().unwrap()));
        for bytes in [&b"no model"[..], &ModelProto::default().encode_to_vec()] {
            let error = FileContents::of(Path::new("m.onnx"), bytes.to_vec()).graph().unwrap_err();
            assert!(error.message().contains("not a whole ONNX model"), "{error}");
        }
    }

    #[test]
    fn a_text_is_called_a_text() {
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
        let nvinfer = "# Streets, größer\r\n[property]\r\ngpu-id=0\r\nonnx-file=street.onnx\r\n";
        let long = format!("{}ä", "x".repeat((64 << 10) - 1));
        for (text, says) in [
            (
                nvinfer,
                "Give the file that it names in onnx-file; docs/deepstream.md says what becomes of its other keys",
            ),
            ("[property]\nmodel-engine-file=m.engine\n", "This is a configuration of DeepStream's nvinfer"),
            (pointer, "git lfs pull"),
            ("<!DOCTYPE html>\n<html>Not found</html>\n", "Give the ONNX file itself"),
            ("person\ncar\n", "Give the ONNX file itself"),
            (&long, "Give the ONNX file itself"),
        ] {
            let error = FileContents::of(Path::new("m.onnx"), text.as_bytes().to_vec()).graph().unwrap_err().message();
            assert!(error.contains("this is not a whole ONNX model: it is a text file"), "{error}");
            assert!(error.contains(says), "{error}");
        }
        for bytes in [&b""[..], b"\x08", b"[property]\0", b"\xff\xfe[\x00"] {
            let error = FileContents::of(Path::new("m.onnx"), bytes.to_vec()).graph().unwrap_err().message();
            assert!(!error.contains("text file"), "{error}");
        }
    }
}
