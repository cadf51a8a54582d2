// SPDX-License-Identifier: MPL-2.0
//! The description in a model file, read without loading the model: inputs, outputs, labels, task, stride, and from
//! these the tensor that it wants for a frame.
//!
//! ONNX files carry a graph signature; Ultralytics adds `metadata_props` (names, stride, imgsz, task, …), which is all
//! that a launch line needs to leave out.

mod engine;
mod file;
mod input;
mod labels;
mod metadata;
mod onnx;
mod picture;
mod uses;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::heads::{self, BackgroundClass, HeadFormat, ModelHints};
use crate::image::keypoints::KeypointModel;
use crate::image::transform::TensorLayout;
use crate::literal;
use crate::tensor::{Dims, TensorDesc};
pub use file::{FileContents, ModelFile};
pub(crate) use labels::MAX_CLASSES;
pub use labels::{read_characters, read_labels};
use picture::PicturePlace;
use uses::InputUse;
pub use values::InputValues;

/// The description in a model file of any kind.
struct FileHeader {
    producer: String,
    inputs: Vec<TensorDesc>,
    outputs: Vec<TensorDesc>,
    metadata: BTreeMap<String, String>,
    operators: BTreeSet<String>,
    /// Names of the outputs that a softmax or a sigmoid makes; `None` where the graph is not to be seen.
    probabilities: Option<BTreeSet<String>>,
    /// What the graph says of each input; none where it is not to be seen.
    uses: Vec<InputUse>,
}

impl FileHeader {
    /// Texts of C, which GStreamer has, end at a NUL character. U+FFFD takes its place, as that of other bytes that are no text;
    /// names of tensors have to be what they are.
    fn without_nul(self) -> Result<Self> {
        let named = self.inputs.iter().chain(&self.outputs).find(|tensor| tensor.name.contains('\0'));
        if let Some(tensor) = named {
            return Err(Error::new(ErrorKind::Model, "the name of one of its tensors has a NUL character")
                .cause(&tensor.name)
                .remedy("Export it with names of plain characters"));
        }
        let plain = |text: String| text.replace('\0', "\u{FFFD}");
        let metadata = self.metadata.into_iter().map(|(key, value)| (plain(key), plain(value))).collect();
        Ok(FileHeader { producer: plain(self.producer), metadata, ..self })
    }
}

/// A model file's own description.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    pub path: PathBuf,
    /// The program that wrote the file, from its metadata; may be empty.
    #[doc(hidden)]
    pub producer: String,
    pub inputs: Vec<TensorDesc>,
    pub outputs: Vec<TensorDesc>,
    /// Class names by class id, or the characters of a model that reads text; empty where the file has none.
    pub labels: Vec<String>,
    /// `detect`, `segment`, …; `None` where the file does not say.
    pub task: Option<String>,
    /// Input width and height must be multiples of this.
    pub stride: Option<u32>,
    /// Width and height the model was trained or exported for.
    #[doc(hidden)]
    pub image_size: Option<(u32, u32)>,
    /// The keypoints that it finds, where it finds any.
    pub keypoints: Option<KeypointModel>,
    /// Every key and value that the file carries.
    pub metadata: BTreeMap<String, String>,
    /// Names of the operators in the graph.
    #[doc(hidden)]
    pub operators: BTreeSet<String>,
    probabilities: Option<BTreeSet<String>>,
    /// What the graph says of each of `inputs`; none where it is not to be seen.
    uses: Vec<InputUse>,
    /// Whether `labels` are the characters of a text.
    has_dictionary: bool,
    /// The head that its metadata describe, or what is wrong with that text.
    layout: Option<Result<&'static HeadFormat>>,
    /// Which of `inputs` takes the picture, and how its channels lie.
    image: usize,
    order: TensorLayout,
    /// Whether the file leaves the number of its channels open; `inputs` have it.
    has_open_channels: bool,
}

impl ModelInfo {
    /// Reads the description from an ONNX file.
    pub fn read(path: &Path) -> Result<Self> {
        ModelInfo::of_onnx(&FileContents::read(path)?)
    }

    /// The description of an ONNX file that was read.
    #[doc(hidden)]
    pub fn of_onnx(file: &FileContents) -> Result<Self> {
        onnx::header(file)
            .and_then(|header| ModelInfo::from_header(file.path(), header))
            .map_err(|error| error.about(&unusable(file.path())))
    }

    /// The description of a TensorRT engine, which only TensorRT can read: its tensors, and the JSON before the plan.
    #[doc(hidden)]
    pub fn of_engine(
        path: &Path,
        inputs: Vec<TensorDesc>,
        outputs: Vec<TensorDesc>,
        json: Option<&str>,
    ) -> Result<Self> {
        engine::header(inputs, outputs, json)
            .and_then(|header| ModelInfo::from_header(path, header))
            .map_err(|error| error.about(&unusable(path)))
    }

    /// The description of a model on a server, as that says: its tensors, and what Ultralytics writes into files.
    #[doc(hidden)]
    pub fn of_server(
        path: &Path,
        producer: String,
        inputs: Vec<TensorDesc>,
        outputs: Vec<TensorDesc>,
        metadata: BTreeMap<String, String>,
    ) -> Result<Self> {
        let operators = BTreeSet::new();
        let uses = Vec::new();
        let header = FileHeader { producer, inputs, outputs, metadata, operators, probabilities: None, uses };
        ModelInfo::from_header(path, header).map_err(|error| error.about(&unusable(path)))
    }

    /// The description of an ONNX file without pictures, such as the text side of CLIP. Of its inputs, any number may be tensors of
    /// the caller; what is said of pictures means nothing then.
    #[doc(hidden)]
    pub fn of_tensors(file: &FileContents) -> Result<Self> {
        let described = onnx::header(file).and_then(FileHeader::without_nul).and_then(|header| {
            if header.inputs.is_empty() {
                return Err(Error::new(ErrorKind::Model, "it has no inputs")
                    .remedy("Export it with its inputs, such as input_ids of a model of texts"));
            }
            let first = PicturePlace { index: 0, order: TensorLayout::Nchw, has_open_channels: false };
            Ok(ModelInfo::new(file.path(), header, first))
        });
        described.map_err(|error| error.about(&unusable(file.path())))
    }

    fn from_header(path: &Path, header: FileHeader) -> Result<Self> {
        let mut header = header.without_nul()?;
        let picture = picture::of_pictures(&mut header.inputs, &header.uses)?;
        Ok(ModelInfo::new(path, header, picture))
    }

    fn new(path: &Path, header: FileHeader, picture: PicturePlace) -> Self {
        let metadata = &header.metadata;
        // What cannot be read of these is as if it were not there. The errors below say so.
        let names = metadata::class_names(metadata).unwrap_or_default();
        let characters = metadata::characters(metadata);
        let has_dictionary = names.is_empty() && !characters.is_empty();
        let labels = if has_dictionary { characters } else { names };
        let stride = metadata::stride(metadata).unwrap_or_default();
        let image_size = metadata::image_size(metadata).unwrap_or_default();
        let keypoints = metadata::keypoints(metadata).unwrap_or_default();
        ModelInfo {
            path: path.to_path_buf(),
            producer: header.metadata.get("description").cloned().unwrap_or(header.producer),
            task: metadata::task(metadata),
            layout: metadata::layout(metadata),
            stride,
            keypoints,
            inputs: header.inputs,
            outputs: header.outputs,
            metadata: header.metadata,
            operators: header.operators,
            probabilities: header.probabilities,
            uses: header.uses,
            labels,
            has_dictionary,
            image_size,
            image: picture.index,
            order: picture.order,
            has_open_channels: picture.has_open_channels,
        }
    }

    /// Refuses models for a task that no head is for.
    #[doc(hidden)]
    pub fn check_task(&self) -> Result<()> {
        let task = self.task.as_deref().unwrap_or_default();
        heads::check_task(task).map_err(|error| error.about(&unusable(&self.path)))
    }

    /// The class names in the JSON before the plan of an engine; empty where there are none that can be read.
    #[doc(hidden)]
    pub fn labels_of_engine(json: &str) -> Vec<String> {
        engine::metadata(json).and_then(|metadata| metadata::class_names(&metadata)).unwrap_or_default()
    }

    /// What is wrong with the class names in the metadata, where there are some that cannot be read; `labels` is empty then.
    #[doc(hidden)]
    pub fn names_error(&self) -> Option<Error> {
        let error = metadata::class_names(&self.metadata).err()?;
        let remedy = format!(
            "Set label-file on trtnms (labels in gst-trt serve), or export it again with {}",
            metadata::NAMES.form()
        );
        Some(metadata::NAMES.is_unread(&self.path, &error).remedy(remedy))
    }

    /// What is wrong with the shape of the keypoints in the metadata, for models that cannot do without.
    #[doc(hidden)]
    pub fn keypoints_error(&self) -> Option<Error> {
        metadata::keypoints(&self.metadata).err().map(|error| error.about(&unusable(&self.path)))
    }

    /// What is wrong with other entries of the metadata, without which the model is used.
    #[doc(hidden)]
    pub fn metadata_errors(&self) -> impl Iterator<Item = Error> {
        let metadata = &self.metadata;
        let unread = [
            metadata::stride(metadata).err().map(|error| (metadata::STRIDE, error)),
            metadata::image_size(metadata).err().map(|error| (metadata::IMAGE_SIZE, error)),
            metadata::keypoints(metadata).err().map(|error| (metadata::KEYPOINTS, error)),
        ];
        unread.into_iter().flatten().map(move |(entry, error)| entry.is_unread(&self.path, &error))
    }

    /// Whether that output holds probabilities rather than logits; `None` where the file does not tell.
    #[doc(hidden)]
    pub fn has_probabilities(&self, output: &str) -> Option<bool> {
        match &self.probabilities {
            Some(names) => Some(names.contains(output)),
            // Its graphs end in a softmax, also where an engine hides them.
            None => self.is_by_ultralytics().then_some(true),
        }
    }

    pub(crate) fn is_by_ultralytics(&self) -> bool {
        metadata::is_ultralytics(&self.metadata)
    }

    /// Whether the first dimension of its last output is open where that of the pictures is not, so that it is no batch.
    fn has_open_output(&self) -> bool {
        let is_open = |desc: &TensorDesc| desc.dims.first() == Some(&Dims::DYNAMIC);
        !is_open(self.image_input()) && self.outputs.last().is_some_and(is_open)
    }

    /// What helps to recognise the head.
    #[doc(hidden)]
    pub fn hints(&self, input: (u32, u32)) -> ModelHints {
        let text = |key: &str| self.metadata.get(key).cloned().unwrap_or_default();
        let literal = |key: &str| self.metadata.get(key).and_then(|text| literal::parse(text));
        let suppressed = literal("args").is_some_and(|args| args["nms"] == true);
        ModelHints {
            classes: (!self.labels.is_empty()).then_some(self.labels.len()),
            input: Some(input),
            batch: self.image_input().dims.first().copied().filter(|&batch| batch != Dims::DYNAMIC),
            has_probabilities: self
                .outputs
                .last()
                .is_some_and(|output| self.has_probabilities(&output.name) == Some(true)),
            end_to_end: suppressed || literal("end2end") == Some(true.into()),
            ultralytics: self.is_by_ultralytics(),
            description: text("description"),
            head: text("head"),
            task: self.task.clone().unwrap_or_default(),
            keypoints: self.keypoints.clone(),
            samples_points: self.operators.contains("GridSample"),
            takes_exponentials: self.operators.contains("Exp"),
            chooses_rows: self.operators.contains("NonMaxSuppression") || self.has_open_output(),
            has_dictionary: self.has_dictionary,
            background: BackgroundClass::Auto,
            own: self.layout.clone(),
        }
    }
}

/// The headline over what is wrong with a model.
fn unusable(path: &Path) -> String {
    let file = if path.to_str().is_some_and(file::is_address) { "" } else { "file " };
    format!("Cannot use the model {file}{}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn no_text_of_a_model_has_a_nul_character() {
        let tensor =
            |name: &str, dims: &[i64]| TensorDesc { name: name.into(), dtype: DType::F32, dims: Dims(dims.into()) };
        let model = |input: &str, output: &str| {
            let metadata = [("author\0", "a\0b"), ("task", "det\0ect"), ("names", "{0: 'di\0sc'}")];
            let metadata = metadata.map(|(key, value)| (key.to_string(), value.to_string())).into();
            let (inputs, outputs) = (vec![tensor(input, &[1, 3, 32, 32])], vec![tensor(output, &[1, 5, 21])]);
            ModelInfo::of_server(Path::new("m"), "x\0y".into(), inputs, outputs, metadata)
        };
        let info = model("images", "output0").unwrap();
        assert!(!format!("{info:?}").contains(r"\0"), "{info:?}");
        assert_eq!(info.metadata["author\u{FFFD}"], "a\u{FFFD}b");
        for (input, output) in [("im\0ages", "output0"), ("images", "out\0put0")] {
            let error = model(input, output).unwrap_err().to_string();
            assert!(error.contains("the name of one of its tensors has a NUL character"), "{error}");
        }
    }
}
