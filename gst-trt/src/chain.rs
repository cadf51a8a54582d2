// SPDX-License-Identifier: MPL-2.0
//! The elements that find objects, as part of a launch line.

use std::path::PathBuf;

use gst::prelude::*;
use gsttrt_core::words::nearest;

use crate::assignments::check_values;
use crate::failure::Failure;
use crate::local;
use crate::model_options::{ModelOptions, is_on_server};

/// GStreamer with the elements of this project, which are part of the program.
pub fn start_gstreamer() -> Result<(), Failure> {
    gst::init().map_err(|error| format!("GStreamer does not start: {error}."))?;
    gsttrt::plugin_register_static()?;
    local::refuse()
}

/// The GPU's decoders before all others: in GStreamer 1.22 they rank like those of the CPU, and come later in the alphabet.
pub fn prefer_gpu_decoders() {
    let decoders = gst::ElementFactory::factories_with_type(
        gst::ElementFactoryType::DECODER | gst::ElementFactoryType::MEDIA_VIDEO,
        gst::Rank::PRIMARY,
    );
    for factory in decoders.into_iter().filter(|factory| factory.plugin_name().is_some_and(|name| name == "nvcodec")) {
        factory.set_rank(gst::Rank::PRIMARY + 2);
    }
}

/// A model, and the elements that run it.
#[derive(Clone, Debug, Default)]
pub struct ModelElements {
    pub model: ModelOptions,
    /// What describes its outputs, where no layout does.
    pub layout_file: Option<PathBuf>,
    /// Of a model on objects, the property `object-classes` of trtpreprocess; all of them, where it is left out.
    pub object_classes: Option<String>,
    /// Frames that may wait between trtinfer and trtnms, in a queue, if there is one.
    pub queue: Option<u32>,
    /// The property `slices` of trtpreprocess.
    pub slices: Option<String>,
    /// Further properties of the elements, as in a launch line.
    pub preprocess: String,
    pub infer: String,
    pub nms: String,
    /// Whether trtmatch gives objects names, or ids over cameras, by the vectors of a model on objects.
    pub has_names: bool,
}

/// What runs on each frame.
#[derive(Clone, Debug, Default)]
pub struct InferenceElements {
    /// The model that sees the frame.
    pub first: ModelElements,
    /// The property `tracker` of trttrack, if objects get ids.
    pub track: Option<String>,
    /// Models that see the objects of those before them, each as a picture of its own.
    pub on_objects: Vec<ModelElements>,
}

/// Trackers that compare vectors, which models on objects make.
const VECTOR_TRACKERS: [&str; 3] = ["botsort", "deepocsort", "boosttrack"];

/// How many of the models come before a tracker: the first one, or all where it may need their vectors.
pub fn models_before(tracker: &str, models: usize) -> usize {
    if VECTOR_TRACKERS.contains(&tracker) { models } else { 1 }
}

/// The names of the elements of every model, in their order. Those of the second one end in 2, and so on. A tracker is `track`.
pub const STAGES: [&str; 3] = ["preprocess", "infer", "nms"];

/// What gives the objects of a model names, behind its other elements.
pub const MATCH: &str = "match";

/// The name of an element of a model; the first model has the number 0.
pub fn stage(name: &str, model: usize) -> String {
    if model == 0 { name.into() } else { format!("{name}{}", model + 1) }
}

/// The number of the model that an element of that name runs.
pub fn model_of(element: &str) -> Option<usize> {
    number_behind("infer", element)
}

/// The number of the model that an element of that name belongs to.
pub fn model_of_stage(element: &str) -> Option<usize> {
    STAGES.iter().find_map(|stage| number_behind(stage, element))
}

fn number_behind(stage: &str, element: &str) -> Option<usize> {
    let number = element.strip_prefix(stage)?;
    if number.is_empty() { Some(0) } else { number.parse::<usize>().ok()?.checked_sub(1) }
}

impl ModelElements {
    fn launch_line(&self, number: usize, nms_first: &str) -> String {
        let ModelElements { preprocess, infer, nms, queue, .. } = self;
        let [preprocess_name, infer_name, nms_name] = STAGES.map(|name| stage(name, number));
        let regions = if number == 0 { "" } else { "regions=objects" };
        let queue = queue.map_or_else(String::new, |frames| {
            format!("! queue max-size-buffers={frames} max-size-bytes=0 max-size-time=0")
        });
        format!(
            "trtpreprocess name={preprocess_name} {regions} {preprocess} ! trtinfer name={infer_name} {infer} {queue} \
             ! trtnms name={nms_name} {nms_first} {nms}"
        )
    }

    fn configure(&self, number: usize, pipeline: &gst::Pipeline) {
        let element = |name| element(pipeline, &stage(name, number));
        let ModelOptions { model, labels, backend } = &self.model;
        element("infer").set_property("model-file", model);
        if let Some(backend) = backend {
            element("infer").set_property_from_str("backend", backend);
        }
        if let Some(labels) = labels {
            element("nms").set_property("label-file", labels);
        }
        if let Some(file) = &self.layout_file {
            element("nms").set_property("layout-file", file);
        }
        if let Some(slices) = &self.slices {
            element("preprocess").set_property("slices", slices);
        }
        if let Some(classes) = self.object_classes.as_ref().filter(|_| number > 0) {
            element("preprocess").set_property("object-classes", classes);
        }
    }
}

impl InferenceElements {
    /// The same for frames that can wait, which are not of a camera: where a CPU or a server runs the first model, several are in
    /// work at the same time, one in each core, or that many requests. If several sources are read at the same time, they share
    /// each model, and with several frames in work they fill its batches.
    pub fn for_throughput(&self, has_several: bool) -> Self {
        const FRAMES: u32 = 8; // as many as trtinfer runs at the same time on a CPU
        let mut chain = self.clone();
        let ModelElements { model, infer, .. } = &chain.first;
        let has_runs = is_on_server(&model.model) || model.is_for_cpu(infer);
        // Before the user's own, which hold.
        if has_runs {
            chain.first.infer = format!("parallel-runs=0 {}", chain.first.infer);
        }
        if has_runs || has_several {
            chain.first.queue = Some(FRAMES);
        }
        if has_several {
            let models = std::iter::once(&mut chain.first).chain(&mut chain.on_objects);
            for (number, model) in models.enumerate() {
                model.infer = format!("shared-model={} {}", stage("detect", number), model.infer);
            }
        }
        chain
    }

    /// The first one, and those on objects.
    pub fn models(&self) -> impl Iterator<Item = &ModelElements> {
        std::iter::once(&self.first).chain(&self.on_objects)
    }

    /// From frames to frames with results, which are drawn if `draw`. No value of a property is part of it, as quotes
    /// and spaces in it would need care: [`InferenceElements::configure`] sets them.
    pub fn launch_line(&self, draw: bool) -> String {
        // With a tracker behind trtnms, ids are known only then, and a second model is not to see boxes that were drawn.
        // Drawing costs time, and is left out where the frames are not shown.
        let is_drawn_at_once = draw && self.last() == "nms";
        let nms_first = if is_drawn_at_once { "" } else { "draw=false" };
        let mut parts: Vec<String> = self.parts(nms_first).into_iter().map(|(_, line)| line).collect();
        if draw && !is_drawn_at_once {
            parts.push("trtoverlay name=overlay".into());
        }
        parts.join(" ! ")
    }

    /// Sets what the launch line leaves out.
    pub fn configure(&self, pipeline: &gst::Pipeline) {
        self.models().enumerate().for_each(|(number, model)| model.configure(number, pipeline));
        if let Some(tracker) = &self.track {
            element(pipeline, "track").set_property_from_str("tracker", tracker);
        }
    }

    /// The element behind which results of the frame are complete, but for those of models on objects.
    pub fn last_of_first(&self) -> &'static str {
        if self.track.is_some() { "track" } else { "nms" }
    }

    /// The element behind which results are complete.
    pub fn last(&self) -> String {
        self.parts("").pop().expect("there is a model").0
    }

    /// The parts of the launch line, each with the name of its last element.
    fn parts(&self, nms_first: &str) -> Vec<(String, String)> {
        let tracker = self.track.as_ref().map_or(0, |tracker| models_before(tracker, 1 + self.on_objects.len()));
        let matching = |number: usize| {
            let name = stage(MATCH, number);
            let line = format!("trtmatch name={name} post-messages=false");
            (name, line)
        };
        let mut parts = Vec::new();
        for (number, model) in self.models().enumerate() {
            let has_names = number > 0 && model.has_names;
            parts.push((stage("nms", number), model.launch_line(number, nms_first)));
            if number + 1 == tracker {
                parts.push(("track".into(), "trttrack name=track".into()));
                // Several frames decide on the name of an object that has an id.
                let named = self.on_objects.iter().zip(1..=number).filter(|(model, _)| model.has_names);
                parts.extend(named.map(|(_, number)| matching(number)));
            } else if has_names && number >= tracker {
                parts.push(matching(number));
            }
        }
        parts
    }
}

/// An element that the launch line names.
pub fn element(pipeline: &gst::Pipeline, name: &str) -> gst::Element {
    pipeline.by_name(name).expect("named in the launch line")
}

/// A launch line of several elements as a pipeline.
pub fn parse(line: &str) -> Result<gst::Pipeline, Failure> {
    // C would see its end there.
    if line.contains('\0') {
        return Err("Cannot make the pipeline: there is a character NUL in it.".into());
    }
    check_values(line)?;
    let pipeline = gst::parse::launch(line).map_err(|error| {
        let message = error.to_string();
        let end = meant(&message).map_or(".".into(), |property| format!("; did you mean “{property}”?"));
        format!(
            "Cannot make the pipeline: {message}{end} Properties are written as in a launch line, such as interval=2."
        )
    })?;
    pipeline.downcast::<gst::Pipeline>().map_err(|_| "Cannot make the pipeline: there is one element alone.".into())
}

/// The property that was probably meant, where GStreamer says that an element of the chain has none of that name.
fn meant(message: &str) -> Option<String> {
    let mut quoted = message.strip_prefix("no property \"")?.split('"');
    let (property, element) = (quoted.next()?, quoted.nth(1)?);
    let stage = element.trim_start_matches("trt").trim_end_matches(|c: char| c.is_ascii_digit());
    let element = gst::ElementFactory::make(&format!("trt{stage}")).build().ok()?;
    let properties = element.list_properties();
    let names: Vec<&str> = properties.iter().map(|property| property.name()).collect();
    nearest(property, &names).map(String::from)
}

/// Whether an element is one of the chain's.
pub fn is_ours(name: &str) -> bool {
    let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
    STAGES.contains(&word) || ["track", "overlay", "analytics", "privacy", "publish"].contains(&word)
}

/// The text of an error message. Those of our elements are complete.
pub fn sentence(error: &gst::message::Error) -> String {
    let text = error.error().to_string();
    let name = error.src().map(|source| source.name()).unwrap_or_default();
    if is_ours(&name) { text } else { format!("{name}: {text}") }
}

/// The formats in system memory that the chain takes.
pub fn host_formats() -> Result<gst::Caps, Failure> {
    let factory = gst::ElementFactory::find("trtpreprocess").ok_or("The element trtpreprocess is not registered.")?;
    let template = factory.static_pad_templates().into_iter().find(|pad| pad.direction() == gst::PadDirection::Sink);
    let caps = template.ok_or("trtpreprocess has no sink pad.")?.caps();
    let in_host = |features: &gst::CapsFeaturesRef| features.contains(gst::CAPS_FEATURE_MEMORY_SYSTEM_MEMORY);
    Ok(caps.iter_with_features().filter(|(_, features)| in_host(features)).map(|(caps, _)| caps.to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With what the user has set behind it, which holds.
    #[test]
    fn sources_at_the_same_time_share_each_model() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/shapes-160.onnx");
        let model = ModelOptions { model: file.into(), backend: Some("rten".into()), ..ModelOptions::default() };
        let on_objects = ModelElements { infer: "interval=2".into(), ..ModelElements::default() };
        let first = ModelElements { model, ..ModelElements::default() };
        let chain = InferenceElements { first, track: None, on_objects: vec![on_objects] };
        let line = chain.for_throughput(true).launch_line(false);
        for part in ["name=infer shared-model=detect parallel-runs=0", "name=infer2 shared-model=detect2 interval=2"] {
            assert!(line.contains(part), "{line}");
        }
        assert!(!chain.for_throughput(false).launch_line(false).contains("shared-model"));
    }

    /// Names are chosen behind the tracker, whose ids several frames of an object have.
    #[test]
    fn trackers_that_compare_vectors_come_behind_the_models_that_make_them() {
        for (tracker, has_names, wanted) in [
            (None, &[][..], &["nms"][..]),
            (None, &[false], &["nms", "nms2"]),
            (None, &[true, false], &["nms", "nms2", "match2", "nms3"]),
            (Some("bytetrack"), &[], &["nms", "track"]),
            (Some("bytetrack"), &[false, false], &["nms", "track", "nms2", "nms3"]),
            (Some("bytetrack"), &[true, true], &["nms", "track", "nms2", "match2", "nms3", "match3"]),
            (Some("deepocsort"), &[], &["nms", "track"]),
            (Some("botsort"), &[false, false], &["nms", "nms2", "nms3", "track"]),
            (Some("boosttrack"), &[], &["nms", "track"]),
            (Some("boosttrack"), &[false], &["nms", "nms2", "track"]),
            (Some("botsort"), &[true, false], &["nms", "nms2", "nms3", "track", "match2"]),
        ] {
            let on_objects = |&has_names: &bool| ModelElements { has_names, ..ModelElements::default() };
            let chain = InferenceElements {
                track: tracker.map(String::from),
                on_objects: has_names.iter().map(on_objects).collect(),
                ..InferenceElements::default()
            };
            let line = chain.launch_line(false);
            let names = line.split_whitespace().filter_map(|word| word.strip_prefix("name="));
            let is_end = |name: &&str| ["nms", "track", "match"].iter().any(|end| name.starts_with(end));
            let ends: Vec<&str> = names.filter(is_end).collect();
            assert_eq!(ends, wanted, "{line}");
            assert_eq!(chain.last(), wanted[wanted.len() - 1], "{line}");
        }
    }
}
