// SPDX-License-Identifier: MPL-2.0
//! From the text of a layout file to a draft of a head, which is not yet compared with itself.

use toml::de::DeTable;

use super::AnomalyRange;
use super::columns::{ColumnCounts, Row, whole_list};
use super::table::{KeyReader, LayoutText, must_be, number, whole, word};
use crate::error::Result;
use crate::files::endless_key;
use crate::heads::grid::{MAX_STRIDES, PriorBox, StrideGrid};
use crate::heads::{Column, Dim, ElementClass, HEADS, Suppress, Task};
use crate::image::geometry::ResizeMode;
use crate::image::keypoints::{KeypointModel, KeypointShape};
use crate::image::transform::{Colors, InputTransform};

const MAX_OUTPUTS: usize = 16;
/// Characters of a name and of a line about it.
const MAX_NAME: usize = 64;
const MAX_ABOUT: usize = 200;
/// Characters of the name of an output.
const MAX_OUTPUT_NAME: usize = 1024;
/// The greatest side of a prior box.
const MAX_PRIOR: i64 = 16384;
/// The greatest `scale-x-y` of a stride.
const MAX_SCALE: f32 = 10.0;
/// The greatest stride of a grid.
const MAX_STRIDE: i64 = 1024;

pub(super) const TASKS: [(&str, Task); 11] = [
    ("detect", Task::Detect),
    ("pose", Task::Pose),
    ("obb", Task::Obb),
    ("segment", Task::Segment),
    ("classify", Task::Classify),
    ("semantic", Task::Semantic),
    ("depth", Task::Depth),
    ("anomaly", Task::Anomaly),
    ("embed", Task::Embed),
    ("text", Task::Text),
    ("text-detect", Task::TextDetect),
];

pub(super) const SUPPRESS: [(&str, Suppress); 3] =
    [("none", Suppress::None), ("iou", Suppress::Iou), ("rotated-iou", Suppress::RotatedIou)];

pub(super) const DIMS: [(&str, Dim); 8] = [
    ("batch", Dim::Batch),
    ("rows", Dim::Rows),
    ("cells", Dim::Cells),
    ("columns", Dim::Columns),
    ("prototypes", Dim::Prototypes),
    ("height", Dim::Height),
    ("width", Dim::Width),
    ("one", Dim::One),
];

pub(super) const TYPES: [(&str, ElementClass); 3] =
    [("float", ElementClass::Float), ("number", ElementClass::Any), ("integer", ElementClass::Integer)];

/// A head as a file has it, with places in the text for errors.
pub(super) struct LayoutDraft<'a> {
    pub text: LayoutText<'a>,
    pub name: String,
    pub about: String,
    pub task: Task,
    pub suppress: Option<Suppress>,
    pub input: InputTransform,
    pub grid: Option<StrideGrid>,
    pub keypoints: Option<KeypointModel>,
    pub anomaly: Option<AnomalyRange>,
    pub counts: ColumnCounts,
    pub outputs: Vec<OutputDraft>,
    pub task_at: usize,
    pub suppress_at: usize,
    pub grid_at: usize,
    pub priors_at: usize,
    pub keypoints_at: usize,
    pub anomaly_at: usize,
}

/// An output, and where it begins in the text.
pub(super) struct OutputDraft {
    pub at: usize,
    /// Empty where any name will do.
    pub name: String,
    pub class: ElementClass,
    pub dims: Vec<Dim>,
    pub shape: Option<Vec<i64>>,
    pub columns: Vec<Column>,
}

impl<'a> LayoutDraft<'a> {
    /// # Errors
    /// `Settings`, with the line, where the text is no TOML, or has keys, words or numbers that there are not.
    pub fn read(text: LayoutText<'a>) -> Result<LayoutDraft<'a>> {
        const KEYS: [&str; 9] =
            ["name", "about", "task", "suppression", "input", "grid", "keypoints", "anomaly", "output"];
        const GRID: [&str; 4] = ["strides", "anchors", "priors", "scale-x-y"];
        const ANOMALY: [&str; 4] = ["image-threshold", "pixel-threshold", "min", "max"];
        if let Some(at) = endless_key(text.text) {
            return Err(text.error(at, "a key has more parts than any here"));
        }
        let document = DeTable::parse(text.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            text.error(at, error.message().lines().next().unwrap_or_default())
        })?;
        let keys = KeyReader::new(text, 0, document.get_ref(), &KEYS)?;
        let (name, about) = (name(&keys)?, about(&keys)?);
        let task = keys.word("task", &TASKS)?;
        let task = task.ok_or_else(|| keys.missing("task", "what the model is for, like task = \"detect\""))?;
        let keypoints = keys.table("keypoints", &["count", "numbers", "names"])?.map(|keys| keypoints(&keys));
        let keypoints = keypoints.transpose()?;
        let mut counts = ColumnCounts::default();
        let shape = keypoints.as_ref().map(|model| model.shape);
        Ok(LayoutDraft {
            text,
            name,
            about,
            task,
            suppress: keys.word("suppression", &SUPPRESS)?,
            input: input(&keys)?,
            grid: keys.table("grid", &GRID)?.map(|keys| grid(&keys)).transpose()?,
            anomaly: keys.table("anomaly", &ANOMALY)?.map(|keys| anomaly(&keys)).transpose()?,
            outputs: outputs(&keys, shape, &mut counts)?,
            keypoints,
            counts,
            task_at: keys.place("task"),
            suppress_at: keys.place("suppression"),
            grid_at: keys.place("grid"),
            priors_at: keys.table("grid", &GRID)?.map_or(0, |keys| keys.place("priors")),
            keypoints_at: keys.place("keypoints"),
            anomaly_at: keys.place("anomaly"),
        })
    }
}

fn name(keys: &KeyReader) -> Result<String> {
    let name = keys.text("name")?;
    let name = name.ok_or_else(|| keys.missing("name", "what messages call the layout, like name = \"street\""))?;
    let error = |what: &str| Err(keys.text.error(keys.place("name"), what));
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_plain) {
        return error("name is one word of at most 64 characters: a to z, digits and -");
    }
    if name == "auto" || HEADS.iter().any(|head| head.name == name) {
        return error(&format!("“{name}” is the name of a layout that there is. Choose another"));
    }
    Ok(name.into())
}

fn about(keys: &KeyReader) -> Result<String> {
    let about = keys.text("about")?.unwrap_or("From a layout file");
    if about.chars().count() > MAX_ABOUT || about.chars().any(char::is_control) {
        let what = format!("about is one line of at most {MAX_ABOUT} characters");
        return Err(keys.text.error(keys.place("about"), what));
    }
    Ok(about.into())
}

fn input(keys: &KeyReader) -> Result<InputTransform> {
    let usual = InputTransform::default();
    let known = ["colors", "fit", "shortest-edge", "pad", "scale", "mean", "std"];
    let Some(keys) = keys.table("input", &known)? else { return Ok(usual) };
    let std = keys.triple("std")?.unwrap_or(usual.std);
    if std.contains(&0.0) {
        return Err(keys.text.error(keys.place("std"), "std has a 0, and pixels are divided by it"));
    }
    let fit = keys.word("fit", &ResizeMode::ALL.map(|fit| (fit.name(), fit)))?.unwrap_or(usual.fit);
    let shortest_edge = keys.whole("shortest-edge", 0..=16384)?.unwrap_or(0) as u32;
    if shortest_edge != 0 && fit != ResizeMode::CenterCrop {
        let what = "shortest-edge is for fit = \"center-crop\" alone";
        return Err(keys.text.error(keys.place("shortest-edge"), what));
    }
    let scale = keys.number("scale")?.unwrap_or(usual.scale);
    // Some numbers are so small that they are 0 here.
    if scale == 0.0 {
        return Err(keys.text.error(keys.place("scale"), "scale is 0, and all pixels would be the same"));
    }
    let mean = keys.triple("mean")?.unwrap_or(usual.mean);
    for pixel in [255.0, 0.0] {
        let is_number = |(mean, std): (&f32, &f32)| ((pixel * scale - mean) / std).is_finite();
        if !mean.iter().zip(&std).all(is_number) {
            let key = ["std", "scale", "mean"].into_iter().find(|key| keys.value(key).is_some()).unwrap_or("scale");
            let what =
                format!("a pixel of {pixel} becomes no finite number: scale, mean and std are too large or too small");
            return Err(keys.text.error(keys.place(key), what));
        }
    }
    Ok(InputTransform {
        colors: keys.word("colors", &Colors::ALL.map(|colors| (colors.name(), colors)))?.unwrap_or(usual.colors),
        fit,
        shortest_edge,
        pad: keys.whole("pad", 0..=255)?.map_or(usual.pad, |pad| pad as u8),
        scale,
        mean,
        std,
        chroma: usual.chroma,
    })
}

fn grid(keys: &KeyReader) -> Result<StrideGrid> {
    let list = keys.list("strides", MAX_STRIDES)?;
    let list = list.ok_or_else(|| keys.missing("strides", "pixels of a cell, like strides = [8, 16, 32]"))?;
    let numbers = whole_list(keys.text, "a stride", &list, 1..=MAX_STRIDE)?;
    let mut strides: Vec<u32> = Vec::new();
    for (&(at, _), number) in list.iter().zip(numbers) {
        let stride = number as u32;
        if strides.contains(&stride) {
            return Err(keys.text.error(at, format!("the stride {number} is there twice")));
        }
        strides.push(stride);
    }
    if strides.is_empty() {
        return Err(keys.text.error(keys.place("strides"), "strides is empty. Leave [grid] out if there is none"));
    }
    let anchors = keys.whole("anchors", 1..=64)?.unwrap_or(1) as u32;
    let wanted = strides.len() * anchors as usize;
    let list = keys.list("priors", MAX_STRIDES * 64)?.unwrap_or_default();
    if !list.is_empty() && list.len() != wanted {
        let (has, strides) = (list.len(), strides.len());
        let what = format!(
            "priors has {has} entries, and needs {wanted}: one for each anchor of each stride, and there are {strides} strides with {anchors} \
             anchors. Correct anchors, or the list"
        );
        return Err(keys.text.error(keys.place("priors"), what));
    }
    let scales = scales(keys, strides.len())?;
    let side = |at: usize, value: &toml::de::DeValue| {
        whole(keys.text, at, "the side of a prior box", value, 1..=MAX_PRIOR).map(|side| side as f32)
    };
    let (mut priors, mut boxes) = (Vec::new(), Vec::new());
    for (place, &(at, value)) in list.iter().enumerate() {
        match value.as_array().map(|pair| pair.iter().collect::<Vec<_>>()).as_deref() {
            None => priors.push(side(at, value)?),
            Some([width, height]) => boxes.push(PriorBox {
                width: side(width.span().start, width.get_ref())?,
                height: side(height.span().start, height.get_ref())?,
                scale: scales.get(place / anchors as usize).copied().unwrap_or(1.0),
            }),
            Some(_) => {
                return Err(keys.text.error(at, "a prior box has one side, or its width and height, like [10, 13]"));
            }
        }
    }
    let what = match () {
        _ if !priors.is_empty() && !boxes.is_empty() => {
            "priors are sides of squares, or width and height of each, not both"
        }
        _ if !scales.is_empty() && boxes.is_empty() => "scale-x-y goes with priors that have width and height",
        _ => return Ok(StrideGrid { strides: strides.into(), anchors, priors: priors.into(), boxes: boxes.into() }),
    };
    Err(keys.text.error(keys.place(if scales.is_empty() { "priors" } else { "scale-x-y" }), what))
}

/// Of each stride, where there are some.
fn scales(keys: &KeyReader, strides: usize) -> Result<Vec<f32>> {
    let Some(list) = keys.list("scale-x-y", MAX_STRIDES)? else { return Ok(Vec::new()) };
    if list.len() != strides {
        let what = format!("scale-x-y has {} numbers, and there are {strides} strides", list.len());
        return Err(keys.text.error(keys.place("scale-x-y"), what));
    }
    let scale = |&(at, value): &(usize, &'_ toml::de::DeValue)| {
        let scale = number(value).filter(|scale| (1.0..=MAX_SCALE).contains(scale));
        let wanted = format!("a number from 1 to {MAX_SCALE}");
        scale.ok_or_else(|| keys.text.error(at, must_be("a number of scale-x-y", value, &wanted)))
    };
    list.iter().map(scale).collect()
}

fn keypoints(keys: &KeyReader) -> Result<KeypointModel> {
    let count = keys.whole("count", 1..=1000)?;
    let count = count.ok_or_else(|| keys.missing("count", "how many keypoints an object has"))?;
    let numbers = keys.whole("numbers", 2..=3)?;
    let what = "2 for x and y of each keypoint, or 3 with its visibility";
    let numbers = numbers.ok_or_else(|| keys.missing("numbers", what))?;
    let names = keys.list("names", 1000)?.unwrap_or_default();
    if !names.is_empty() && names.len() as i64 != count {
        let what = format!("names has {} entries, and there are {count} keypoints", names.len());
        return Err(keys.text.error(keys.place("names"), what));
    }
    let text = |&(at, value): &(usize, &toml::de::DeValue)| {
        let name = value.as_str().filter(|name| name.chars().count() <= MAX_NAME && !name.contains('\0'));
        let wanted = "a text of at most 64 characters";
        name.map(String::from).ok_or_else(|| keys.text.error(at, must_be("a name", value, wanted)))
    };
    let names = names.iter().map(text).collect::<Result<_>>()?;
    Ok(KeypointModel { shape: KeypointShape { count: count as u16, dims: numbers as u8 }, names })
}

fn anomaly(keys: &KeyReader) -> Result<AnomalyRange> {
    let number = |key: &str, what: &str| keys.number(key)?.ok_or_else(|| keys.missing(key, what));
    let image_threshold = number("image-threshold", "image_threshold in the metadata.json of Anomalib 1")?;
    let min = number("min", "min, or pred_scores.min, in the metadata.json of Anomalib 1")?;
    let max = number("max", "max, or pred_scores.max, in the metadata.json of Anomalib 1")?;
    let range = max - min;
    let what = match range {
        range if range <= 0.0 => format!("min is {min} and max {max}: max must be greater"),
        range if !range.is_finite() => {
            format!("min is {min:e} and max {max:e}: their difference must be a finite number, up to 3.4e38")
        }
        _ => return Ok(AnomalyRange { image_threshold, pixel_threshold: keys.number("pixel-threshold")?, min, max }),
    };
    Err(keys.text.error(keys.place("max"), what))
}

fn outputs(keys: &KeyReader, shape: Option<KeypointShape>, counts: &mut ColumnCounts) -> Result<Vec<OutputDraft>> {
    let list = keys.list("output", MAX_OUTPUTS)?;
    let list = list.filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| keys.missing("output", "the tensors that the head reads, each as [[output]]"))?;
    let output = |&(at, value): &(usize, &'_ toml::de::DeValue)| {
        let table = value.as_table();
        let table = table.ok_or_else(|| keys.text.error(at, must_be("an output", value, "a table: [[output]]")))?;
        let keys = KeyReader::new(keys.text, at, table, &["name", "type", "dims", "shape", "columns"])?;
        output(&keys, shape, counts)
    };
    list.iter().map(output).collect()
}

fn output(keys: &KeyReader, keypoints: Option<KeypointShape>, counts: &mut ColumnCounts) -> Result<OutputDraft> {
    let text = keys.text;
    let name = keys.text("name")?.unwrap_or_default();
    if keys.value("name").is_some() && (name.is_empty() || name.chars().count() > MAX_OUTPUT_NAME) {
        return Err(text.error(keys.place("name"), "name is that of an output of the model, or is left out"));
    }
    let list = keys.list("dims", DIMS.len())?;
    let what = "what each dimension is, like dims = [\"batch\", \"rows\", \"columns\"]";
    let list = list.ok_or_else(|| keys.missing("dims", what))?;
    let mut dims = Vec::new();
    for (at, value) in list {
        let written =
            value.as_str().ok_or_else(|| text.error(at, must_be("a dimension", value, "a word in quotes")))?;
        let dim = word(text, at, "dims", written, &DIMS)?;
        if dims.contains(&dim) && dim != Dim::One {
            return Err(text.error(at, format!("“{written}” is there twice in dims")));
        }
        dims.push(dim);
    }
    let shape = match keys.list("shape", DIMS.len())? {
        Some(list) => Some(shape(keys, &list, &dims)?),
        None => None,
    };
    let numbers = shape.as_ref().and_then(|shape| {
        let place = dims.iter().position(|&dim| dim == Dim::Columns)?;
        usize::try_from(shape[place]).ok()
    });
    let columns = keys.list("columns", super::columns::MAX_LISTED)?.unwrap_or_default();
    let columns = Row { text, numbers, keypoints }.columns(&columns, counts)?;
    let class = keys.word("type", &TYPES)?.unwrap_or(ElementClass::Float);
    Ok(OutputDraft { at: keys.at, name: name.into(), class, dims, shape, columns })
}

/// The dimensions that the output has in the model that the file is for.
fn shape(keys: &KeyReader, list: &[(usize, &toml::de::DeValue)], dims: &[Dim]) -> Result<Vec<i64>> {
    let numbers = whole_list(keys.text, "a dimension of shape", list, -1..=1 << 30)?;
    if numbers.len() != dims.len() {
        let what = format!("shape has {} dimensions, and dims has {}", numbers.len(), dims.len());
        return Err(keys.text.error(keys.place("shape"), what));
    }
    for ((&number, dim), &(at, _)) in numbers.iter().zip(dims).zip(list) {
        let what = match dim {
            _ if number == 0 => "a dimension of 0 has nothing to read. Write -1 where it is open",
            Dim::One if number != 1 => "the dimension “one” is always 1",
            Dim::Columns if number > super::columns::MAX_NUMBERS => "a row may have 1048576 numbers",
            _ => continue,
        };
        return Err(keys.text.error(at, what));
    }
    Ok(numbers)
}
