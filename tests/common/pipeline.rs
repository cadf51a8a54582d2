// SPDX-License-Identifier: MPL-2.0
//! GStreamer in tests: start-up, and launch lines run to their end.

use std::sync::Once;

use gst::prelude::*;
use gsttrt_core::cuda::driver::Context;

use super::gpu;

/// GStreamer with our plugin in it, and a clear picture of what is wrong if something logs a critical.
pub fn init() {
    static INIT: Once = Once::new();
    INIT.call_once(|| {
        gst::init().unwrap();
        gsttrt::plugin_register_static().unwrap();
    });
}

/// Whether there are a GPU, its decoder and TensorRT, or a word that one is missing.
pub fn gpu_chain_or_skip() -> bool {
    init();
    let missing = match (Context::primary(0), gst::ElementFactory::find("nvh264dec")) {
        (Err(error), _) => error.to_string(),
        (_, None) => "nvh264dec is missing: GStreamer's nvcodec finds no decoder.".into(),
        _ if gpu::setting("TRT_PROPERTIES").is_none() && gpu::setting("REQUIRE_GPU").is_none() => {
            "TRT_PROPERTIES is not set.".into()
        }
        _ => return true,
    };
    gpu::skip(missing);
    false
}

/// Whether there is an element of GStreamer's CUDA plugin, or a word that it is missing.
pub fn has_element_or_skip(factory: &str) -> bool {
    let is_there = gst::ElementFactory::find(factory).is_some();
    if !is_there {
        gpu::skip(format!(
            "{factory} is missing: GStreamer's nvcodec registers it where it finds an NVRTC that it can use. Install libnvrtc of \
             CUDA 12 (GStreamer before 1.24 takes none of CUDA 13)."
        ));
    }
    is_there
}

/// What a pipeline said until it ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The first error: domain and code as in `ResourceError::Settings`, the text for people, the debug part.
    pub error: Option<(String, String, String)>,
    pub warnings: Vec<String>,
    pub infos: Vec<String>,
    /// Names of element messages, with their structures.
    pub elements: Vec<gst::Structure>,
    /// Text of progress messages.
    pub progress: Vec<String>,
}

impl Outcome {
    /// The text that gst-launch-1.0 prints, of a pipeline that must have failed.
    pub fn error_text(&self) -> &str {
        &self.error.as_ref().expect("the pipeline fails").1
    }

    #[track_caller]
    pub fn expect_success(&self) {
        assert!(self.error.is_none(), "{:?}", self.error);
    }

    /// Fails unless the pipeline ended with an error of that domain whose text contains all `parts`.
    #[track_caller]
    pub fn expect_error(&self, domain: &str, parts: &[&str]) {
        let (found, text, debug) = self.error.as_ref().expect("the pipeline fails");
        assert_eq!(found, domain, "{text} ({debug})");
        for part in parts {
            assert!(text.contains(part), "“{part}” is missing in: {text}");
        }
    }
}

/// What programs that load the plugin from target/ know of all plugins. It is one for all tests: to look through that folder takes
/// a second.
pub fn registry() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("registry.bin")
}

/// Runs a launch line to EOS or its first error; 60 s are a hang.
#[track_caller]
pub fn launch(line: &str) -> Outcome {
    init();
    let pipeline = gst::parse::launch(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let pipeline = pipeline.downcast::<gst::Pipeline>().expect("several elements");
    run(&pipeline)
}

/// Plays a pipeline to EOS or its first error, then sets it to NULL.
#[track_caller]
pub fn run(pipeline: &gst::Pipeline) -> Outcome {
    let started = pipeline.set_state(gst::State::Playing);
    let outcome = wait(pipeline, started.is_err());
    pipeline.set_state(gst::State::Null).unwrap();
    outcome
}

#[track_caller]
fn wait(pipeline: &gst::Pipeline, failed: bool) -> Outcome {
    let mut outcome = Outcome::default();
    let bus = pipeline.bus().unwrap();
    let timeout = if failed { gst::ClockTime::from_seconds(2) } else { gst::ClockTime::from_seconds(60) };
    loop {
        let message = bus.timed_pop(timeout).unwrap_or_else(|| panic!("no EOS and no error: {outcome:?}"));
        match message.view() {
            gst::MessageView::Eos(_) => break,
            gst::MessageView::Error(error) => {
                let debug = error.debug().map(|debug| debug.to_string()).unwrap_or_default();
                outcome.error = Some((domain(&error.error()), error.error().to_string(), debug));
                break;
            }
            gst::MessageView::Warning(warning) => outcome.warnings.push(warning.error().to_string()),
            gst::MessageView::Info(info) => outcome.infos.push(info.error().to_string()),
            gst::MessageView::Progress(progress) => outcome.progress.extend(text(progress)),
            gst::MessageView::Element(element) => outcome.elements.extend(element.structure().map(|s| s.to_owned())),
            _ => {}
        }
    }
    outcome
}

/// The content of a progress message. `Progress::get` of the bindings never frees the texts that it is given.
fn text(progress: &gst::message::Progress) -> Option<String> {
    progress.structure()?.get("text").ok()
}

/// Domain and code, as in `ResourceError::Settings`.
pub fn domain(error: &gst::glib::Error) -> String {
    None.or_else(|| error.kind::<gst::ResourceError>().map(|code| format!("ResourceError::{code:?}")))
        .or_else(|| error.kind::<gst::LibraryError>().map(|code| format!("LibraryError::{code:?}")))
        .or_else(|| error.kind::<gst::StreamError>().map(|code| format!("StreamError::{code:?}")))
        .or_else(|| error.kind::<gst::CoreError>().map(|code| format!("CoreError::{code:?}")))
        .unwrap_or_else(|| format!("{:?}", error.domain()))
}
