//! What a model file says about itself, read without loading the model: inputs, outputs, labels, task, stride, and from
//! these the tensor that it wants for a frame.
//!
//! ONNX files carry a graph signature; Ultralytics adds `metadata_props` (names, stride, imgsz, task, …), which is all
//! that a launch line needs to leave out.

mod engine;
mod onnx;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use py_literal::Value;

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::tensor::{self, DType, Dims, Element, Tensor, TensorDesc};
use crate::heads::{self, HeadFormat, ModelHints};
use crate::image::keypoints::{KeypointModel, KeypointShape};
use crate::image::transform::{Colors, InputSpec, InputTransform, TensorLayout};

/// Widths and heights of inputs that can be served; more would not fit into memory.
const SIDES: RangeInclusive<u32> = 1..=16384;

/// What a file of any kind says about itself.
struct Header {
    producer: String,
    inputs: Vec<TensorDesc>,
    outputs: Vec<TensorDesc>,
    metadata: BTreeMap<String, String>,
    operators: BTreeSet<String>,
}

/// A model file's own description.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    pub path: PathBuf,
    /// Who wrote the file, as the file says; may be empty.
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
    pub image_size: Option<(u32, u32)>,
    /// The keypoints that it finds, where it finds any.
    pub keypoints: Option<KeypointModel>,
    /// Every key and value that the file carries.
    pub metadata: BTreeMap<String, String>,
    /// Names of the operators in the graph.
    pub operators: BTreeSet<String>,
    /// Which of `inputs` takes the picture, and how its channels lie.
    image: usize,
    order: TensorLayout,
}

impl ModelInfo {
    /// Reads the description from an ONNX file.
    pub fn read(path: &Path) -> Result<Self> {
        onnx::read(&contents(path)?)
            .and_then(|header| ModelInfo::from_header(path, header))
            .map_err(|error| error.about(&unusable(path)))
    }

    /// The description of a TensorRT engine, which only TensorRT can read: its tensors, and the JSON before the plan.
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

    fn from_header(path: &Path, header: Header) -> Result<Self> {
        let (image, order) = image_input(&header.inputs)?;
        let literal = |key: &str| header.metadata.get(key).and_then(|text| text.parse::<Value>().ok());
        let number = |key: &str| literal(key).as_ref().and_then(as_u32);
        let image_size = literal("imgsz").and_then(|value| match value {
            // Ultralytics writes [height, width].
            Value::List(list) | Value::Tuple(list) => Some((as_u32(list.get(1)?)?, as_u32(list.first()?)?)),
            value => as_u32(&value).map(|size| (size, size)),
        });
        let labels = match header.metadata.get("names") {
            None => Vec::new(),
            Some(text) => parse_names(text).ok_or_else(|| {
                Error::new(ErrorKind::Model, "the class names in its metadata cannot be read")
                    .cause(format!("names = “{}”", text.chars().take(80).collect::<String>()))
                    .remedy("They should be a Python dictionary like {0: 'person', 1: 'car'}")
            })?,
        };
        Ok(ModelInfo {
            path: path.to_path_buf(),
            producer: header.metadata.get("description").cloned().unwrap_or(header.producer),
            task: header.metadata.get("task").cloned(),
            stride: number("stride"),
            keypoints: keypoints(&header.metadata)?,
            inputs: header.inputs,
            outputs: header.outputs,
            metadata: header.metadata,
            operators: header.operators,
            labels,
            image_size,
            image,
            order,
        })
    }

    /// Refuses models for a task that no head is for.
    pub fn check_task(&self) -> Result<()> {
        let task = self.task.as_deref().unwrap_or_default();
        heads::check_task(task).map_err(|error| error.about(&unusable(&self.path)))
    }

    /// The input that takes the picture.
    pub fn image_input(&self) -> &TensorDesc {
        &self.inputs[self.image]
    }

    /// What helps to recognise the head.
    pub fn hints(&self, input: (u32, u32)) -> ModelHints {
        let text = |key: &str| self.metadata.get(key).cloned().unwrap_or_default();
        ModelHints {
            classes: (!self.labels.is_empty()).then_some(self.labels.len()),
            input: Some(input),
            end_to_end: text("end2end") == "True" || text("args").contains("'nms': True"),
            ultralytics: text("author") == "Ultralytics",
            description: text("description"),
            head: text("head"),
            task: self.task.clone().unwrap_or_default(),
            keypoints: self.keypoints.clone(),
        }
    }

    /// The tensor that the model wants for a frame, in the memory that `place` names, if it can be run on `batch` frames at once.
    ///
    /// `size` is the user's wish for width and height, needed where the file leaves them open and says nothing of the size
    /// it was made for.
    pub fn input_spec(&self, size: Option<(u32, u32)>, batch: usize, place: &str) -> Result<InputSpec> {
        let input = self.image_input();
        let (h, w) = match self.order {
            TensorLayout::Nchw => (2, 3),
            TensorLayout::Nhwc => (1, 2),
        };
        let fixed = |i: usize| (input.dims[i] != Dims::DYNAMIC).then_some(input.dims[i]);
        let wanted = size.or(self.image_size);
        let width = fixed(w).or(wanted.map(|(width, _)| width.into()));
        let height = fixed(h).or(wanted.map(|(_, height)| height.into()));
        let (Some(width), Some(height)) = (width, height) else {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("The model leaves the size of its input open ({input})"),
            )
            .remedy("Set input-size, such as input-size=640x640"));
        };
        let side = |length: i64| u32::try_from(length).ok().filter(|length| SIDES.contains(length));
        let (Some(width), Some(height)) = (side(width), side(height)) else {
            return Err(Error::new(ErrorKind::Model, format!("it wants an input of {width}x{height} ({input})"))
                .remedy(format!("Export it with a width and a height from {} to {}", SIDES.start(), SIDES.end()))
                .about(&unusable(&self.path)));
        };
        if let Some(wish) = size.filter(|&wish| wish != (width, height)) {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("input-size is {}x{}, but the model's input is fixed ({input})", wish.0, wish.1),
            )
            .remedy("Leave input-size unset, or export the model with that size or with dynamic dimensions"));
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
            place: place.to_string(),
            desc: TensorDesc { name: input.name.clone(), dtype: input.dtype, dims },
            order: self.order,
            recipe: self.recipe(head),
        })
    }

    /// How the picture is prepared for this model, should it have that head.
    pub fn recipe(&self, head: Option<&HeadFormat>) -> InputTransform {
        let input = self.image_input();
        let mut recipe = head.map_or_else(InputTransform::default, |head| head.input);
        let channels = match self.order {
            TensorLayout::Nchw => input.dims[1],
            TensorLayout::Nhwc => input.dims[3],
        };
        if channels == 1 {
            recipe.colors = Colors::Gray;
        }
        if input.dtype == DType::U8 {
            recipe.scale = 1.0; // such models normalise by themselves
        }
        recipe
    }

    /// Tensors for the inputs beside the picture, for so many pictures, in the order of `inputs`; `None` at the picture's place.
    pub fn side_inputs(&self, spec: &InputSpec, rows: usize) -> Result<Vec<Option<Tensor>>> {
        let (_, height, width) = spec.chw();
        let tensor = |(i, input)| {
            if i == self.image { Ok(None) } else { side_input(input, rows, width, height).map(Some) }
        };
        let tensors: Result<_> = self.inputs.iter().enumerate().map(tensor).collect();
        tensors.map_err(|error| error.about(&unusable(&self.path)))
    }
}

/// All bytes of a model file.
pub fn contents(path: &Path) -> Result<Vec<u8>> {
    // A pipe would be waited for, and a device may never end.
    if !std::fs::metadata(path).map_err(|error| unreadable(path, error))?.is_file() {
        return Err(unreadable(path, std::io::Error::other("it is a folder or a device")));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(path, error))?;
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
            Error::new(ErrorKind::NotFound, format!("There is no model file {}", path.display()))
                .remedy("Check the path given as model-file")
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
            return Err(Error::new(ErrorKind::Model, format!("it has an input that nobody fills, {desc}"))
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

fn as_u32(value: &Value) -> Option<u32> {
    value.as_integer().and_then(|integer| integer.try_into().ok())
}

/// Class names as Ultralytics writes them: `{0: 'person', 1: 'bicycle'}`, ids from 0 without gaps; or a list.
fn parse_names(text: &str) -> Option<Vec<String>> {
    let names = match text.parse::<Value>().ok()? {
        Value::Dict(entries) => {
            let mut names: Vec<(u32, Value)> = Vec::with_capacity(entries.len());
            for (id, name) in entries {
                names.push((as_u32(&id)?, name));
            }
            names.sort_by_key(|(id, _)| *id);
            let gapless = names.iter().enumerate().all(|(i, (id, _))| i as u32 == *id);
            gapless.then(|| names.into_iter().map(|(_, name)| name).collect())?
        }
        Value::List(names) | Value::Tuple(names) => names,
        _ => return None,
    };
    names.into_iter().map(|name| name.as_string().cloned()).collect()
}

/// What Ultralytics' metadata say of keypoints: `kpt_shape` is `[17, 3]`, and `kpt_names` a list for each class, of which the
/// first counts.
fn keypoints(metadata: &BTreeMap<String, String>) -> Result<Option<KeypointModel>> {
    let Some(text) = metadata.get("kpt_shape") else { return Ok(None) };
    let numbers = |value: Value| match value {
        Value::List(list) | Value::Tuple(list) => list.iter().map(as_u32).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    let shape = match text.parse().ok().and_then(numbers).as_deref() {
        Some(&[count @ 1..=1000, dims @ 2..=3]) => KeypointShape { count: count as u16, dims: dims as u8 },
        _ => {
            return Err(Error::new(ErrorKind::Model, "the shape of its keypoints cannot be read")
                .cause(format!("kpt_shape = “{}”", text.chars().take(80).collect::<String>()))
                .remedy("It should be the number of keypoints and 2 or 3 numbers for each, like [17, 3]"));
        }
    };
    let texts = |list: &[Value]| list.iter().map(|value| value.as_string().cloned()).collect::<Option<Vec<_>>>();
    let of_class = |value: Value| match value {
        Value::Dict(entries) => entries.into_iter().next().and_then(|(_, names)| texts(names.as_list()?)),
        Value::List(names) | Value::Tuple(names) => texts(&names),
        _ => None,
    };
    let names = metadata.get("kpt_names").and_then(|text| text.parse().ok()).and_then(of_class);
    // Names are only for people: without them, or with too many, points are numbers.
    let names = names.filter(|names| names.len() == usize::from(shape.count)).unwrap_or_default();
    Ok(Some(KeypointModel { shape, names }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_python() {
        assert_eq!(parse_names("{0: 'disc', 1: 'box'}").unwrap(), ["disc", "box"]);
        assert_eq!(parse_names(r#"{0: 'a, b', 1: "it's", 2: 'x{}:\'"'}"#).unwrap(), ["a, b", "it's", "x{}:'\""]);
        assert_eq!(parse_names("['a', 'b']").unwrap(), ["a", "b"]);
        assert_eq!(parse_names("{1: 'b', 0: 'ä'}").unwrap(), ["ä", "b"]);
        for text in ["", "{", "{1: 'gap'}", "{0: 1}", "7", "{-1: 'a'}"] {
            assert_eq!(parse_names(text), None, "{text}");
        }
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
        for text in ["", "[]", "[17]", "[0, 3]", "[17, 1]", "[17, 4]", "[1001, 3]", "[-1, 3]", "[17.0, 3]", "['a', 3]"]
        {
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
