// SPDX-License-Identifier: MPL-2.0
//! The elements that find objects, as part of a launch line.

use gst::prelude::*;
use gsttrt_core::words::nearest;

use crate::failure::Failure;
use crate::local;
use crate::model_options::ModelOptions;

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

/// What runs on each frame.
#[derive(Clone, Debug, Default)]
pub struct InferenceElements {
    pub model: ModelOptions,
    /// The property `tracker` of trttrack, if objects get ids.
    pub track: Option<String>,
    /// Frames that may wait between trtinfer and trtnms, in a queue, if there is one.
    pub queue: Option<u32>,
    /// The property `slices` of trtpreprocess.
    pub slices: Option<String>,
    /// Further properties of the elements, as in a launch line.
    pub preprocess: String,
    pub infer: String,
    pub nms: String,
}

/// The names of the elements of every chain, in their order. A tracker, `track`, comes behind.
pub const STAGES: [&str; 3] = ["preprocess", "infer", "nms"];

impl InferenceElements {
    /// The same for frames that can wait, which are not of a camera: where a CPU runs the model, several are in work at the
    /// same time, one in each core.
    pub fn for_throughput(&self) -> Self {
        const FRAMES: u32 = 8; // as many as trtinfer then runs at the same time
        if !self.model.is_for_cpu() {
            return self.clone();
        }
        // Before the user's own, which hold.
        InferenceElements { queue: Some(FRAMES), infer: format!("parallel-runs=0 {}", self.infer), ..self.clone() }
    }

    /// From frames to frames with results, which are drawn if `draw`. No value of a property is part of it, as quotes
    /// and spaces in it would need care: [`InferenceElements::configure`] sets them.
    pub fn launch_line(&self, draw: bool) -> String {
        let InferenceElements { preprocess, infer, nms, track, queue, .. } = self;
        // With a tracker behind trtnms, ids are known only then. Drawing costs time, and is left out where the frames
        // are not shown.
        let (draw_first, draw_last) = match (draw, track) {
            (true, None) => ("", ""),
            (true, Some(_)) => ("draw=false", "! trtoverlay name=overlay"),
            (false, _) => ("draw=false", ""),
        };
        let track = if track.is_some() { "! trttrack name=track" } else { "" };
        let queue = queue.map_or_else(String::new, |frames| {
            format!("! queue max-size-buffers={frames} max-size-bytes=0 max-size-time=0")
        });
        format!(
            "trtpreprocess name=preprocess {preprocess} ! trtinfer name=infer {infer} {queue} \
             ! trtnms name=nms {draw_first} {nms} {track} {draw_last}"
        )
    }

    /// Sets what the launch line leaves out.
    pub fn configure(&self, pipeline: &gst::Pipeline) -> Result<(), Failure> {
        let element = |name| element(pipeline, name);
        let ModelOptions { model, labels, backend } = &self.model;
        element("infer").set_property("model-file", model);
        if let Some(backend) = backend {
            element("infer").set_property_from_str("backend", backend);
        }
        if let Some(labels) = labels {
            element("nms").set_property("label-file", labels);
        }
        if let Some(slices) = &self.slices {
            element("preprocess").set_property("slices", slices);
        }
        if let Some(tracker) = &self.track {
            element("track").set_property_from_str("tracker", tracker);
        }
        Ok(())
    }

    /// The element behind which results are complete.
    pub fn last(&self) -> &'static str {
        if self.track.is_some() { "track" } else { "nms" }
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
    let pipeline = gst::parse::launch(line).map_err(|error| {
        let message = error.to_string();
        let end = meant(&message).map_or(".".into(), |property| format!("; did you mean “{property}”?"));
        format!("Cannot make the pipeline: {message}{end}")
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
    STAGES.contains(&name) || ["track", "overlay", "analytics"].contains(&name) || name.starts_with("publish")
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
