// SPDX-License-Identifier: MPL-2.0
//! What a model finds, and whether that is what a source is to hide and to count.

use std::borrow::Cow;
use std::sync::Arc;

use gst::prelude::*;
use gsttrt_core::analytics::parse;
use gsttrt_core::backends::tensorrt::header::Header;
use gsttrt_core::device::Device;
use gsttrt_core::heads::{DecodeKernel, Decoder, HeadFormat, ModelHints};
use gsttrt_core::image::options::parse_input_size;
use gsttrt_core::model::{FileContents, InputValues, ModelFile, ModelInfo, read_labels};
use gsttrt_core::postprocess::KnownClasses;
use gsttrt_core::tensor::TensorDesc;

use super::head::{HeadSettings, UnfitHead};
use super::model::ModelConfig;
use super::properties::{AnalyticsElement, ElementProperties, PrivacyElement};
use super::{launch, wording};

/// What a model finds, as far as that is known.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Its name in the configuration.
    model: String,
    /// `None` where only the library that runs it can tell.
    classes: Option<KnownClasses>,
    /// Which numbers classes have is known as well as trtnms does.
    has_known_ids: bool,
    /// Why trtnms would refuse the model.
    unfit: Option<Unmet>,
    has_boxes: Option<bool>,
    /// Numbers of a vector, of a model that is known to give vectors.
    pub vector_length: Option<usize>,
    /// The only classes that trtnms lets pass; all, where it is empty.
    passing: Vec<String>,
    /// Those with a threshold of their own.
    with_threshold: Vec<String>,
    /// Whether frames that the model does not see get what was found last.
    holds: bool,
    /// What is set for the model, not by its sources.
    pub motion_gate: f32,
}

/// What the files of one model find: the one in use, and one that is to take over.
pub type FileFindings<'a> = Vec<Cow<'a, Findings>>;

/// Something that a model cannot do.
#[derive(Clone, Debug)]
pub struct Unmet {
    pub key: &'static str,
    pub text: String,
}

/// Names in a text, separated by commas.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

impl Findings {
    /// Of the file of a model. What is wrong with it is said elsewhere.
    pub fn of(model: &ModelConfig) -> Self {
        let nothing_known = || Findings::new(model, None, None);
        let file = ModelFile::new(&model.file);
        let Ok(contents) = file.contents() else { return nothing_known() };
        if file.is_engine() {
            return Findings::new(model, None, labels_of_engine(&contents));
        }
        let info = ModelInfo::of_onnx(&contents).map(|info| named(model, info));
        info.map_or_else(|_| nothing_known(), |info| Findings::of_info(model, &info))
    }

    /// Of the description of a model.
    pub fn of_info(model: &ModelConfig, info: &ModelInfo) -> Self {
        let infer = launch::check("infer", &model.infer, model.on).map(|(_, element)| element).ok();
        let size = infer.and_then(|infer| infer.property::<Option<String>>("input-size")).unwrap_or_default();
        let mut hints = info.hints(info.image_size.unwrap_or_default());
        let spec =
            parse_input_size(&size).and_then(|size| info.input_spec(size, model.batch_size as usize, Device::Host));
        hints.input = match spec.map(|spec| spec.chw()) {
            Ok((_, height, width)) => Some((width as u32, height as u32)),
            Err(_) => info.image_size, // it may become known by the frames
        };
        Findings::new(model, Some((info, hints)), Some(info.labels.clone()))
    }

    fn new(model: &ModelConfig, info: Option<(&ModelInfo, ModelHints)>, own_labels: Option<Vec<String>>) -> Self {
        let nms = launch::check("nms", &model.nms, model.on).map(|(_, element)| element).ok();
        let setting = |name| nms.as_ref().and_then(|nms| nms.property::<Option<String>>(name)).unwrap_or_default();
        let head = nms.as_ref().and_then(|nms| HeadSettings::of(nms, model.layout_file.as_deref()).ok());
        let head = head.unwrap_or_default();
        let of_file = model.labels.as_ref().and_then(|file| read_labels(file).ok());
        let lines = of_file.as_ref().map(Vec::len);
        let labels = of_file.or(own_labels);
        let (mut count, mut has_boxes) = (None, head.layout.map(HeadFormat::has_boxes));
        let (mut has_known_ids, mut unfit, mut vector_length) = (false, None, None);
        match info.map(|(info, hints)| (info, hints.clone(), head.find(info, hints, lines))) {
            Some((info, hints, Ok((format, classes)))) => {
                (count, has_boxes) = (classes, Some(format.has_boxes()));
                // Of rows that name their class, there are as many as labels.
                has_known_ids = classes.is_some() || format.kernel() == DecodeKernel::Ids;
                vector_length = length_of_vectors(format, info, hints);
            }
            Some((_, _, Err(UnfitHead { key, text, is_certain: true }))) => unfit = Some(Unmet { key, text }),
            Some((_, _, Err(_))) | None => {}
        }
        Findings {
            model: model.name.clone(),
            classes: labels.map(|labels| KnownClasses { labels, count }),
            has_known_ids,
            unfit,
            has_boxes,
            vector_length,
            passing: names(&setting("classes")).map(String::from).collect(),
            with_threshold: names(&setting("class-thresholds"))
                .map(|entry| entry.rsplit_once('=').map_or(entry, |(name, _)| name).trim().into())
                .collect(),
            holds: nms.is_none_or(|nms| nms.property("hold-detections")),
            motion_gate: launch::check("preprocess", &model.preprocess, model.on)
                .map_or(0.0, |(_, preprocess)| preprocess.property("motion-gate")),
        }
    }

    /// Checks the layout and the classes that trtnms is told: else each of its sources would fail.
    pub fn check_settings(&self) -> Result<(), Unmet> {
        if let Some(unfit) = &self.unfit {
            return Err(unfit.clone());
        }
        let Some(known) = &self.classes else { return Ok(()) };
        for (property, names) in [("classes", &self.passing), ("class-thresholds", &self.with_threshold)] {
            // The head may have more numbers than there are names.
            for name in names.iter().filter(|name| self.has_known_ids || name.parse::<usize>().is_err()) {
                known.check(property, name).map_err(|error| Unmet { key: "nms", text: error.message() })?;
            }
        }
        Ok(())
    }

    /// Checks what is to be hidden: else it would be seen.
    pub fn check_privacy(&self, privacy: Option<&ElementProperties<PrivacyElement>>) -> Result<(), Unmet> {
        check_hidden(&[vec![Cow::Borrowed(self)]], privacy)
    }

    /// Checks what is to be counted: else it never would.
    pub fn check_analytics(&self, analytics: Option<&ElementProperties<AnalyticsElement>>) -> Result<(), Unmet> {
        let Some(analytics) = analytics else { return Ok(()) };
        // It was read before.
        let stream = analytics.get("config-stream").and_then(|number| number.parse().ok()).unwrap_or_default();
        let Ok(config) = parse::parse(analytics.get("config").unwrap_or_default(), stream) else { return Ok(()) };
        for (of, class) in config.classes() {
            self.find(class).map_err(|text| {
                let text = format!("classes of “{of}”: model “{}”: {text}", self.model);
                Unmet { key: "analytics", text }
            })?;
        }
        Ok(())
    }

    /// Whether that is certain.
    pub fn finds_no_objects(&self) -> bool {
        self.has_boxes == Some(false)
    }

    /// Whether each frame gets objects that can be hidden.
    fn check_boxes(&self) -> Result<(), &'static str> {
        if self.finds_no_objects() {
            return Err("it has no boxes, so nothing can be hidden. Use a model that detects objects");
        }
        if !self.holds {
            return Err("frames that it does not see would not be hidden: leave hold-detections=false out of nms");
        }
        Ok(())
    }

    /// Whether there can be objects of a class.
    fn find(&self, name: &str) -> Result<(), String> {
        let Some(classes) = &self.classes else { return Ok(()) };
        let Some(class) = classes.id(name) else {
            return Err(match &classes.labels[..] {
                [] => format!(
                    "there is no class “{name}”, as it has no names of classes. Set labels, or write the numbers"
                ),
                labels => wording::unknown_name("class", name, labels.iter().map(String::as_str)),
            });
        };
        let passes = self.passing.is_empty() || self.passing.iter().any(|name| classes.id(name) == Some(class));
        match passes {
            true => Ok(()),
            false => Err(format!("class “{name}” is never found: add it to classes={} of nms", self.passing.join(","))),
        }
    }
}

/// Numbers of a vector, where the model gives vectors and says how many they have.
fn length_of_vectors(format: &'static HeadFormat, info: &ModelInfo, hints: ModelHints) -> Option<usize> {
    // Open batches and pictures of any size make no difference to it.
    let of_one = |output: &TensorDesc| {
        let mut dims = output.dims.to_vec();
        dims.iter_mut().take(1).for_each(|rows| *rows = 1);
        TensorDesc::new(output.name.as_str(), output.dtype, &dims)
    };
    let outputs: Vec<TensorDesc> = info.outputs.iter().map(of_one).collect();
    let hints = ModelHints { input: hints.input.or(Some((1, 1))), ..hints };
    Decoder::new(Some(format), &outputs, &hints).ok()?.vector_length()
}

/// The model with the names of classes that come with the words that it looks for. What is wrong with those, trtinfer says.
fn named(model: &ModelConfig, info: ModelInfo) -> Arc<ModelInfo> {
    let infer = launch::check("infer", &model.infer, model.on).map(|(_, element)| element).ok();
    let values = infer.and_then(|infer| infer.property::<Option<String>>("input-values")).unwrap_or_default();
    let info = Arc::new(info);
    InputValues::read(&values).and_then(|values| info.with_values(&values)).unwrap_or(info)
}

/// [`Findings::check_privacy`] of the models of a source, the one that sees frames first.
pub fn check_hidden(
    models: &[FileFindings<'_>],
    privacy: Option<&ElementProperties<PrivacyElement>>,
) -> Result<(), Unmet> {
    for key in ["blur", "pixelate"] {
        let unmet = |text: String| Unmet { key, text };
        for name in names(privacy.and_then(|privacy| privacy.get(key)).unwrap_or_default()) {
            for findings in models.iter().take(1).flatten() {
                findings.check_boxes().map_err(|text| unmet(format!("model “{}”: {text}", findings.model)))?;
            }
            if name != "*" {
                find_in_any(models, name).map_err(unmet)?;
            }
        }
    }
    Ok(())
}

/// Whether one of the models can find objects of a class, whichever of its files runs.
fn find_in_any(models: &[FileFindings<'_>], name: &str) -> Result<(), String> {
    // What a classifier tells of objects is no object.
    let have_boxes = |files: &&FileFindings<'_>| files.iter().all(|findings| findings.has_boxes != Some(false));
    let mut unmet = Vec::new();
    for files in models.iter().take(1).chain(models.iter().skip(1).filter(have_boxes)) {
        let of_files = files.iter().try_for_each(|findings| {
            findings.find(name).map_err(|text| wording::ended(format!("model “{}”: {text}", findings.model)))
        });
        match of_files {
            Ok(()) => return Ok(()),
            Err(text) => unmet.push(text),
        }
    }
    Err(unmet.join(" "))
}

/// The names that Ultralytics writes before the plan. What else there is only TensorRT can read.
fn labels_of_engine(contents: &FileContents) -> Option<Vec<String>> {
    let names = ModelInfo::labels_of_engine(&Header::read(contents.bytes()).ok()?.metadata?);
    Some(names).filter(|names| !names.is_empty())
}
