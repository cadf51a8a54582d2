// SPDX-License-Identifier: MPL-2.0
//! The description in a model file, read without loading the model: inputs, outputs, labels, task, stride, and from
//! these the tensor that it wants for a frame.
//!
//! ONNX files carry a graph signature; Ultralytics adds `metadata_props` (names, stride, imgsz, task, …), which is all
//! that a launch line needs to leave out.

mod engine;
mod file;
mod literal;
mod onnx;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::files;
use crate::heads::{self, BackgroundClass, HeadFormat, ModelHints};
use crate::image::keypoints::{KeypointModel, KeypointShape};
use crate::image::transform::{Colors, InputSpec, InputTransform, TensorLayout};
use crate::tensor::{self, DType, Dims, Element, Tensor, TensorDesc};
pub use file::{FileContents, ModelFile};

/// Widths and heights of inputs that can be served.
const SIDES: RangeInclusive<u32> = 1..=16384;

/// Pixels of an input: those of an 8K frame, whose tensor takes 400 MiB in f32. A size that is only in the file's
/// metadata must not be enough to fill the memory.
const MAX_PIXELS: u64 = 1 << 25;

/// ONNX files cannot be larger than 2 GiB, and engines of detectors are smaller than that.
const MAX_FILE: u64 = 8 << 30;

/// Characters of a class name. It is drawn, and copied for each object.
pub(crate) const MAX_LABEL: usize = 1024;

/// How class names are written in the metadata.
const NAMES: &str = "a Python dictionary like {0: 'person', 1: 'car'}";

/// The description in a model file of any kind.
struct FileHeader {
    producer: String,
    inputs: Vec<TensorDesc>,
    outputs: Vec<TensorDesc>,
    metadata: BTreeMap<String, String>,
    operators: BTreeSet<String>,
    /// Names of the outputs that a softmax or a sigmoid makes; `None` where the graph is not to be seen.
    probabilities: Option<BTreeSet<String>>,
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
    /// Class names by class id; empty where the file has none.
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
    /// Which of `inputs` takes the picture, and how its channels lie.
    image: usize,
    order: TensorLayout,
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

    fn from_header(path: &Path, header: FileHeader) -> Result<Self> {
        let (image, order) = image_input(&header.inputs)?;
        let metadata = &header.metadata;
        // Without names objects have numbers; a label file helps. names_error() says so.
        let labels = class_names(metadata).unwrap_or_default();
        let stride = entry(metadata, "stride", "stride", parse_stride, "a positive whole number like 32")?;
        // Only for inputs of open size: where that asks for input-size, the user can help.
        let image_size = entry(metadata, "imgsz", "input size", parse_size, "height and width, like [480, 640]");
        Ok(ModelInfo {
            path: path.to_path_buf(),
            producer: header.metadata.get("description").cloned().unwrap_or(header.producer),
            task: header.metadata.get("task").cloned(),
            stride,
            keypoints: keypoints(&header.metadata)?,
            inputs: header.inputs,
            outputs: header.outputs,
            metadata: header.metadata,
            operators: header.operators,
            probabilities: header.probabilities,
            labels,
            image_size: image_size.ok().flatten(),
            image,
            order,
        })
    }

    /// Refuses models for a task that no head is for.
    #[doc(hidden)]
    pub fn check_task(&self) -> Result<()> {
        let task = self.task.as_deref().unwrap_or_default();
        heads::check_task(task).map_err(|error| error.about(&unusable(&self.path)))
    }

    /// What is wrong with the class names in the metadata, where there are some that cannot be read; `labels` is empty then.
    #[doc(hidden)]
    pub fn names_error(&self) -> Option<Error> {
        let error = class_names(&self.metadata).err()?;
        let what = format!("{} has no class names that can be read: {}", self.path.display(), error.cause_text());
        let remedy = format!("Set label-file on trtnms, or export it again with names as {NAMES}, without gaps");
        Some(Error::new(ErrorKind::Model, what).remedy(remedy))
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
        self.metadata.get("author").is_some_and(|author| author == "Ultralytics")
    }

    /// The input that takes the picture.
    #[doc(hidden)]
    pub fn image_input(&self) -> &TensorDesc {
        &self.inputs[self.image]
    }

    /// What the model wants of a picture's tensor, where that one does not fit.
    #[doc(hidden)]
    pub fn misfit(&self, tensor: &TensorDesc) -> Option<&TensorDesc> {
        let wanted = self.image_input();
        let mut dims = wanted.dims.clone();
        dims.0[0] = 1;
        (tensor.dtype != wanted.dtype || !tensor.dims.fits(&dims)).then_some(wanted)
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
            background: BackgroundClass::Auto,
        }
    }

    /// The tensor that the model wants for a frame, on that device, if it can be run on `batch` frames at once.
    ///
    /// `size` is the user's width and height, needed where the file leaves them open and has no metadata on the size
    /// it was made for.
    #[doc(hidden)]
    pub fn input_spec(&self, size: Option<(u32, u32)>, batch: usize, device: Device) -> Result<InputSpec> {
        let input = self.image_input();
        let (h, w) = self.order.sides();
        let fixed = |i: usize| (input.dims[i] != Dims::DYNAMIC).then_some(input.dims[i]);
        let wanted = size.or(self.image_size);
        let width = fixed(w).or(wanted.map(|(width, _)| width.into()));
        let height = fixed(h).or(wanted.map(|(_, height)| height.into()));
        let (Some(width), Some(height)) = (width, height) else {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("The model leaves the size of its input open ({input})"),
            )
            .remedy({
                // A side that is fixed stays what it is.
                let [width, height] = [width, height].map(|side| side.unwrap_or(640));
                format!("Set input-size, such as input-size={width}x{height}")
            }));
        };
        let side = |length: i64| u32::try_from(length).ok().filter(|length| SIDES.contains(length));
        let (Some(width), Some(height)) = (side(width), side(height)) else {
            return Err(Error::new(ErrorKind::Model, format!("it wants an input of {width}x{height} ({input})"))
                .remedy(format!("Export it with a width and a height from {} to {}", SIDES.start(), SIDES.end()))
                .about(&unusable(&self.path)));
        };
        if u64::from(width) * u64::from(height) > MAX_PIXELS {
            return Err(Error::new(ErrorKind::Model, format!("it wants an input of {width}x{height} ({input})"))
                .cause(format!("no input may have more than {MAX_PIXELS} pixels"))
                .remedy("Set input-size where the model leaves its size open, or export it with a smaller one")
                .about(&unusable(&self.path)));
        }
        if let Some(wish) = size.filter(|&wish| wish != (width, height)) {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("input-size is {}x{}, but the model's input is fixed ({input})", wish.0, wish.1),
            )
            .remedy(match fixed(w).and(fixed(h)) {
                Some(_) => {
                    "Leave input-size unset, or export the model with that size or with dynamic dimensions".into()
                }
                None => format!("Set input-size={width}x{height}, or export the model with dynamic dimensions"),
            }));
        }
        // A size that is fixed in the graph suits the graph.
        let stride = self.stride.filter(|&stride| stride > 0 && fixed(w).and(fixed(h)).is_none()).unwrap_or(1);
        if !width.is_multiple_of(stride) || !height.is_multiple_of(stride) {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("An input of {width}x{height} does not suit the model, whose stride is {stride}"),
            )
            .remedy("Set input-size to multiples of the stride"));
        }
        let batches = input.dims[0];
        if batches != Dims::DYNAMIC && usize::try_from(batches) != Ok(batch) {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("batch-size is {batch}, but the model takes batches of {batches} ({input})"),
            )
            .remedy(format!("Set batch-size={batches} on trtinfer, or export the model with a dynamic batch"))
            .about(&unusable(&self.path)));
        }

        let mut dims = input.dims.clone();
        (dims.0[0], dims.0[h], dims.0[w]) = (1, height.into(), width.into());
        // What fits no head is for trtnms to complain about, with its properties; the tensors may have another reader.
        let mut outputs = self.outputs.clone();
        let rows = outputs.iter_mut().filter_map(|output| output.dims.0.first_mut());
        // As trtnms gets them.
        rows.filter(|rows| batch > 1 && **rows == batches).for_each(|rows| *rows = 1);
        let head = heads::recognise(None, &outputs, &self.hints((width, height))).ok();
        Ok(InputSpec {
            device,
            desc: TensorDesc { name: input.name.clone(), dtype: input.dtype, dims },
            order: self.order,
            transform: self.transform(head),
        })
    }

    /// The number of pictures that it takes at once, where the file fixes that.
    #[doc(hidden)]
    pub fn fixed_batch(&self) -> Option<usize> {
        usize::try_from(self.image_input().dims[0]).ok()
    }

    /// What the sides of its input must be multiples of, where it takes any width and height, and so the smallest that
    /// a frame needs. The file must say so: models that it does not describe may only work at the size they were
    /// trained for.
    #[doc(hidden)]
    pub fn adaptive_stride(&self) -> Option<u32> {
        let (h, w) = self.order.sides();
        let dims = &self.image_input().dims;
        let open = self.inputs.len() == 1 && [h, w].iter().all(|&side| dims[side] == Dims::DYNAMIC);
        self.stride.filter(|&stride| open && stride > 0)
    }

    /// How the picture is prepared for this model, should it have that head.
    #[doc(hidden)]
    pub fn transform(&self, head: Option<&HeadFormat>) -> InputTransform {
        let input = self.image_input();
        let mut transform = head.map_or_else(InputTransform::default, |head| head.input);
        let channels = match self.order {
            TensorLayout::Nchw => input.dims[1],
            TensorLayout::Nhwc => input.dims[3],
        };
        if channels == 1 {
            transform.colors = Colors::Gray;
        }
        if input.dtype == DType::U8 {
            transform.scale = 1.0; // such models normalise by themselves
        }
        transform
    }

    /// Tensors for the inputs other than the picture, for so many pictures, in the order of `inputs`; `None` for the picture.
    #[doc(hidden)]
    pub fn side_inputs(&self, spec: &InputSpec, rows: usize) -> Result<Vec<Option<Tensor>>> {
        let (_, height, width) = spec.chw();
        let tensor = |(i, input)| {
            if i == self.image { Ok(None) } else { side_input(input, rows, width, height).map(Some) }
        };
        let tensors: Result<_> = self.inputs.iter().enumerate().map(tensor).collect();
        tensors.map_err(|error| error.about(&unusable(&self.path)))
    }
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
                _ if path.to_str().is_some_and(|path| path.contains("://")) => {
                    missing.remedy("Give a path as model-file, not a URI")
                }
                Ok(folder) if path.is_relative() => missing
                    .cause(format!("it was looked for in {}", folder.display()))
                    .remedy("Check the path given as model-file"),
                _ => missing.remedy("Check the path given as model-file"),
            }
        }
        _ => Error::new(ErrorKind::Read, format!("Cannot read the model file {}", path.display()))
            .cause(error)
            .remedy("Check that it is a file that this user may read"),
    }
}

/// The headline over what is wrong with a model.
fn unusable(path: &Path) -> String {
    format!("Cannot use the model file {}", path.display())
}

/// Finds the input that takes a picture: 4 dimensions, of which one is 1 or 3 channels.
fn image_input(inputs: &[TensorDesc]) -> Result<(usize, TensorLayout)> {
    let order = |desc: &TensorDesc| {
        let channels = |i: usize| matches!(desc.dims[i], 1 | 3);
        let picture = desc.dims.len() == 4 && matches!(desc.dtype, DType::F32 | DType::F16 | DType::U8);
        match picture {
            true if channels(1) => Some(TensorLayout::Nchw),
            true if channels(3) => Some(TensorLayout::Nhwc),
            _ => None,
        }
    };
    let none = || {
        let found =
            if inputs.is_empty() { "and no other".to_string() } else { format!("only {}", tensor::list(inputs)) };
        Error::new(ErrorKind::Model, format!("it has no input for a picture, {found}"))
            .remedy("It needs one of f32, f16 or u8 with 4 dimensions, 1x3xHxW or 1xHxWx3")
    };
    let (image, order) = inputs.iter().enumerate().find_map(|(i, desc)| Some((i, order(desc)?))).ok_or_else(none)?;
    match inputs.iter().find(|desc| desc.dims.contains(&0)) {
        Some(empty) => Err(Error::new(ErrorKind::Model, format!("its input {empty} has no elements"))
            .remedy("Export it with the size of real pictures, or with dynamic dimensions")),
        None => Ok((image, order)),
    }
}

/// The few other inputs that exported detectors have. Sizes are those of the model's input, so that boxes come back in its
/// pixels and are mapped to the frame like any others.
fn side_input(desc: &TensorDesc, rows: usize, width: usize, height: usize) -> Result<Tensor> {
    let values = match desc.name.as_str() {
        "orig_target_sizes" => [width, height], // RT-DETR, D-FINE
        "im_shape" => [height, width],          // PaddleDetection
        "scale_factor" => [1, 1],
        _ => {
            return Err(Error::new(ErrorKind::Model, format!("it has an input whose content is not known, {desc}"))
                .remedy("Export it with the picture as its only input"));
        }
    };
    if !matches!(desc.dims.first(), Some(&first) if first == Dims::DYNAMIC || usize::try_from(first) == Ok(rows)) {
        return Err(Error::new(ErrorKind::Model, format!("its input {desc} is not for batches of {rows}"))
            .remedy("Export it with a dynamic batch in all of its inputs, or set batch-size=1"));
    }
    fn fill<T: Element>(name: &str, rows: usize, row: [T; 2]) -> Result<Tensor> {
        Ok(Tensor::from_slice(name, &[rows as i64, 2], &row.repeat(rows)))
    }
    match desc.dtype {
        DType::I64 => fill(&desc.name, rows, values.map(|value| value as i64)),
        DType::I32 => fill(&desc.name, rows, values.map(|value| value as i32)),
        DType::F32 => fill(&desc.name, rows, values.map(|value| value as f32)),
        _ => Err(Error::new(ErrorKind::Model, format!("its input {desc} is of an unexpected type"))
            .remedy("Export it with i64, i32 or f32 there")),
    }
}

/// The value of an entry of the metadata, if there is one.
fn entry<T>(
    metadata: &BTreeMap<String, String>,
    key: &str,
    what: &str,
    read: impl FnOnce(Value) -> Option<T>,
    expected: &str,
) -> Result<Option<T>> {
    // Python's str(None) is no value, as nothing is.
    let is_value = |text: &&String| !matches!(text.trim(), "" | "None" | "null");
    let Some(text) = metadata.get(key).filter(is_value) else { return Ok(None) };
    literal::parse(text).and_then(read).map(Some).ok_or_else(|| {
        Error::new(ErrorKind::Model, format!("the {what} in its metadata cannot be read"))
            .cause(format!("{key} = “{}”", text.chars().take(80).collect::<String>()))
            .remedy(format!("Export it again with {key} as {expected}"))
    })
}

/// The names in the metadata; empty where there are none.
fn class_names(metadata: &BTreeMap<String, String>) -> Result<Vec<String>> {
    entry(metadata, "names", "class names", parse_names, NAMES).map(Option::unwrap_or_default)
}

fn as_u32(value: &Value) -> Option<u32> {
    let whole = || value.as_f64().filter(|value| value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(value));
    value.as_u64().and_then(|integer| integer.try_into().ok()).or_else(|| whole().map(|value| value as u32))
}

/// One number, or one for each level of the head: the largest counts. 0 means that there is none.
fn parse_stride(value: Value) -> Option<u32> {
    match value {
        Value::Array(strides) => strides.iter().map(as_u32).collect::<Option<Vec<_>>>()?.into_iter().max(),
        value => as_u32(&value),
    }
}

/// Width and height. Ultralytics writes [height, width], or one number for both.
fn parse_size(value: Value) -> Option<(u32, u32)> {
    match value {
        Value::Array(sides) => match &sides[..] {
            [height, width] => Some((as_u32(width)?, as_u32(height)?)),
            [side] => as_u32(side).map(|side| (side, side)),
            _ => None,
        },
        value => as_u32(&value).map(|side| (side, side)),
    }
}

/// Class names as Ultralytics writes them: `{0: 'person', 1: 'bicycle'}`, ids from 0 without gaps; or a list. Names that
/// YAML takes for numbers and truth values are written as Python writes these.
fn parse_names(value: Value) -> Option<Vec<String>> {
    let names = match value {
        Value::Object(entries) => {
            let named = |(id, name): (String, Value)| Some((id.parse::<u32>().ok()?, name));
            let mut names = entries.into_iter().map(named).collect::<Option<Vec<_>>>()?;
            names.sort_by_key(|(id, _)| *id);
            let gapless = names.iter().enumerate().all(|(i, (id, _))| i as u32 == *id);
            gapless.then(|| names.into_iter().map(|(_, name)| name).collect())?
        }
        Value::Array(names) => names,
        _ => return None,
    };
    let name = |name| match name {
        Value::String(name) => (name.len() <= MAX_LABEL).then_some(name),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(true) => Some("True".into()),
        Value::Bool(false) => Some("False".into()),
        _ => None,
    };
    names.into_iter().map(name).collect()
}

/// What Ultralytics' metadata say of keypoints: `kpt_shape` is `[17, 3]`, and `kpt_names` a list for each class, of
/// which the first counts.
fn keypoints(metadata: &BTreeMap<String, String>) -> Result<Option<KeypointModel>> {
    let read = |value: Value| match value {
        Value::Array(list) => match list.iter().map(as_u32).collect::<Option<Vec<_>>>()?[..] {
            [count @ 1..=1000, dims @ 2..=3] => Some(KeypointShape { count: count as u16, dims: dims as u8 }),
            _ => None,
        },
        _ => None,
    };
    let expected = "the number of keypoints and 2 or 3 numbers for each, like [17, 3]";
    let Some(shape) = entry(metadata, "kpt_shape", "shape of keypoints", read, expected)? else { return Ok(None) };
    let texts =
        |list: &[Value]| list.iter().map(|value| value.as_str().map(str::to_string)).collect::<Option<Vec<_>>>();
    let of_class = |value: Value| match value {
        Value::Object(entries) => entries.into_iter().next().and_then(|(_, names)| texts(names.as_array()?)),
        Value::Array(names) => texts(&names),
        _ => None,
    };
    let names = metadata.get("kpt_names").and_then(|text| literal::parse(text)).and_then(of_class);
    // Names are only for people: without them, or with too many, points are numbers.
    let names = names.filter(|names| names.len() == usize::from(shape.count)).unwrap_or_default();
    Ok(Some(KeypointModel { shape, names }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_names(text: &str) -> Option<Vec<String>> {
        super::parse_names(literal::parse(text)?)
    }

    #[test]
    fn names_are_python() {
        assert_eq!(parse_names("{0: 'disc', 1: 'box'}").unwrap(), ["disc", "box"]);
        assert_eq!(parse_names(r#"{0: 'a, b', 1: "it's", 2: 'x{}:\'"'}"#).unwrap(), ["a, b", "it's", "x{}:'\""]);
        assert_eq!(parse_names("['a', 'b']").unwrap(), ["a", "b"]);
        assert_eq!(parse_names("{1: 'b', 0: 'ä'}").unwrap(), ["ä", "b"]);
        assert_eq!(parse_names(r#"{"0": "a", "1": "b"}"#).unwrap(), ["a", "b"]);
        assert_eq!(parse_names("{0: 0, 1: 1.5}").unwrap(), ["0", "1.5"]);
        assert_eq!(parse_names("{0: False, 1: True, 2: 'maybe'}").unwrap(), ["False", "True", "maybe"]);
        for text in ["", "{", "{1: 'gap'}", "{0: None}", "{0: [1]}", "7", "{-1: 'a'}", "{0: 'a', '00': 'b'}"] {
            assert_eq!(parse_names(text), None, "{text}");
        }
        assert_eq!(parse_names(&format!("['{}']", "x".repeat(MAX_LABEL + 1))), None);
    }

    #[test]
    fn an_entry_without_a_value_is_none() {
        for text in ["", " ", "None", "null"] {
            let entries = ["names", "stride", "imgsz", "kpt_shape"].map(|key| (key.to_string(), text.to_string()));
            let metadata = BTreeMap::from(entries);
            assert_eq!(class_names(&metadata).unwrap(), [""; 0], "{text:?}");
            assert_eq!(entry(&metadata, "stride", "stride", parse_stride, "").unwrap(), None, "{text:?}");
            assert_eq!(entry(&metadata, "imgsz", "input size", parse_size, "").unwrap(), None, "{text:?}");
            assert_eq!(keypoints(&metadata).unwrap(), None, "{text:?}");
        }
    }

    #[test]
    fn strides_and_sizes_are_numbers() {
        let stride = |text: &str| literal::parse(text).and_then(parse_stride);
        assert_eq!((stride("32"), stride("32.0"), stride("[8, 16, 32]")), (Some(32), Some(32), Some(32)));
        for text in ["-1", "nan", "'32'", "1+1+1", "0x20", "[]", "[8, -1]", "1.5", "[[[1]]]"] {
            assert_eq!(stride(text), None, "{text}");
        }
        let size = |text: &str| literal::parse(text).and_then(parse_size);
        assert_eq!(
            (size("[480, 640]"), size("640"), size("(640,)")),
            (Some((640, 480)), Some((640, 640)), Some((640, 640)))
        );
        assert_eq!((size("[1, 2, 3]"), size("-1"), size("[]")), (None, None, None));
    }

    #[test]
    fn keypoints_are_a_shape_and_names() {
        let of = |entries: &[(&str, &str)]| {
            keypoints(&entries.iter().map(|(key, text)| (key.to_string(), text.to_string())).collect())
        };
        assert_eq!(of(&[]).unwrap(), None);
        let shape = KeypointShape { count: 2, dims: 3 };
        for (names, wanted) in [
            ("{0: ['nose', 'tail']}", &["nose", "tail"][..]),
            ("['nose', 'tail']", &["nose", "tail"]),
            ("{0: ['nose']}", &[]),
            ("{0: 7}", &[]),
            ("{", &[]),
        ] {
            let model = of(&[("kpt_shape", "[2, 3]"), ("kpt_names", names)]).unwrap().unwrap();
            assert_eq!(
                (model.shape, model.names),
                (shape, wanted.iter().map(|name| name.to_string()).collect()),
                "{names}"
            );
        }
        for text in ["[]", "[17]", "[0, 3]", "[17, 1]", "[17, 4]", "[1001, 3]", "[-1, 3]", "[17.5, 3]", "['a', 3]"] {
            let error = of(&[("kpt_shape", text)]).unwrap_err();
            assert!(error.message().contains("kpt_shape"), "{error}");
        }
    }

    #[test]
    fn the_picture_is_found_among_inputs() {
        let sizes = TensorDesc::new("orig_target_sizes", DType::I64, &[-1, 2]);
        let nchw = TensorDesc::new("images", DType::F32, &[1, 3, 64, 64]);
        let nhwc = TensorDesc::new("image", DType::U8, &[-1, 64, 64, 3]);
        assert_eq!(image_input(&[sizes.clone(), nchw]).unwrap(), (1, TensorLayout::Nchw));
        assert_eq!(image_input(&[nhwc]).unwrap(), (0, TensorLayout::Nhwc));
        assert!(image_input(std::slice::from_ref(&sizes)).unwrap_err().message().contains("orig_target_sizes i64 ?x2"));
        let rank3 = TensorDesc::new("images", DType::F32, &[3, 64, 64]);
        assert!(image_input(&[rank3]).is_err());
        let empty = TensorDesc::new("images", DType::F32, &[1, 3, 0, 64]);
        assert!(image_input(&[empty]).unwrap_err().message().contains("no elements"));
    }

    #[test]
    fn side_inputs_hold_the_input_size() {
        let sizes = TensorDesc::new("orig_target_sizes", DType::I64, &[-1, 2]);
        assert_eq!(side_input(&sizes, 1, 640, 480).unwrap().as_slice::<i64>().unwrap(), [640, 480]);
        let fixed = TensorDesc::new("orig_target_sizes", DType::I64, &[1, 2]);
        assert!(side_input(&fixed, 1, 640, 480).is_ok());
        let error = side_input(&fixed, 4, 640, 480).unwrap_err();
        assert!(error.message().contains("i64 1x2 is not for batches of 4"), "{error}");
        assert_eq!(side_input(&sizes, 2, 640, 480).unwrap().as_slice::<i64>().unwrap(), [640, 480, 640, 480]);
        assert!(side_input(&TensorDesc::new("prompt", DType::I64, &[1, 7]), 1, 1, 1).is_err());
    }
}
