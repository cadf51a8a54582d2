// SPDX-License-Identifier: MPL-2.0
//! What elements say of the model and its settings, once: each source has a pipeline of its own, in which all of it is said again.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gst::prelude::*;

use crate::bus;
use crate::chain;
use crate::progress::TaskProgress;

/// Texts that are remembered.
const MOST: usize = 1000;

/// What was said so far.
#[derive(Default)]
pub struct SaidTexts(Mutex<HashSet<String>>);

impl SaidTexts {
    /// Shows a message of ours that is neither an error nor the end, and warnings of others. Those of rtspsrc may have a
    /// password.
    pub fn show(&self, task: &TaskProgress, message: &gst::Message) {
        self.line(message).iter().for_each(|line| task.line(line));
    }

    fn line(&self, message: &gst::Message) -> Option<String> {
        let name = message.src().map(|source| source.name()).unwrap_or_default();
        let is_ours = chain::is_ours(&name);
        match message.view() {
            gst::MessageView::Warning(warning) => {
                let error = warning.error();
                let line = format!("Warning: {error}");
                // All sources have the same model and settings. Other warnings are of what is in this one.
                let is_of_settings =
                    error.matches(gst::ResourceError::Settings) || error.matches(gst::StreamError::WrongType);
                let is_of_model = is_of_settings && chain::model_of_stage(&name).is_some();
                (!is_of_model || self.is_new(&line)).then_some(line)
            }
            gst::MessageView::Info(info) if is_ours => {
                let line = info.error().to_string();
                self.is_new(&line).then_some(line)
            }
            gst::MessageView::Progress(progress) if is_ours => self.step(progress),
            _ => None,
        }
    }

    /// A step of loading a model. That it is loaded again is said where it takes long: then there are steps in between.
    fn step(&self, progress: &gst::message::Progress) -> Option<String> {
        let (kind, text) = bus::progress(progress)?;
        let file = progress.structure().and_then(|content| content.get::<&str>("file").ok()).unwrap_or_default();
        let loaded = format!("Loaded {file}"); // the text has a time, too
        let is_shown = match kind {
            gst::ProgressType::Start => self.is_new(text),
            gst::ProgressType::Complete => self.is_new(&loaded),
            _ => {
                self.lock().remove(&loaded);
                true
            }
        };
        is_shown.then(|| text.into())
    }

    /// Whether that is said for the first time.
    fn is_new(&self, text: &str) -> bool {
        let mut said = self.lock();
        if said.len() >= MOST && !said.contains(text) {
            said.clear();
        }
        said.insert(text.into())
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use gst::ProgressType::{Complete, Continue, Start};

    use super::*;

    fn element(name: &str) -> gst::Element {
        gst::init().unwrap();
        gst::ElementFactory::make("identity").name(name).build().unwrap()
    }

    fn info(from: &str, text: &str) -> gst::Message {
        let from = element(from);
        gst::message::Info::builder(gst::LibraryError::Init, text).src(&from).build()
    }

    fn progress(kind: gst::ProgressType, file: &str, text: &str) -> gst::Message {
        let from = element("infer");
        gst::message::Progress::builder(kind, "model-load", text).src(&from).other_field("file", file).build()
    }

    #[test]
    fn what_elements_say_of_the_model_is_said_once() {
        let said = SaidTexts::default();
        fn odd<E: gst::message::MessageErrorDomain>(from: &str, error: E) -> gst::Message {
            let from = element(from);
            gst::message::Warning::builder(error, "odd").src(&from).build()
        }
        let of_settings = |from: &str| odd(from, gst::ResourceError::Settings);
        let of_frames = |from: &str| odd(from, gst::LibraryError::Failed);
        let messages = [
            info("infer", "on the CPU"),
            info("nms", "no names"),
            of_settings("nms2"),
            of_frames("nms"),
            of_settings("sink"),
            info("rtspsrc0", "secret"),
        ];
        let lines = || messages.iter().filter_map(|message| said.line(message)).collect::<Vec<_>>();
        let warning = "Warning: odd";
        assert_eq!(lines(), ["on the CPU", "no names", warning, warning, warning]);
        assert_eq!(lines(), [warning, warning], "of what is in this source, and of other elements");
    }

    #[test]
    fn a_model_is_said_to_be_loaded_again_where_that_takes_long() {
        let said = SaidTexts::default();
        let shown = |kind, file: &str, text: &str| said.line(&progress(kind, file, text)).is_some();
        for is_first in [true, false] {
            assert_eq!(shown(Start, "/a/a.onnx", "Loading a.onnx"), is_first);
            assert_eq!(shown(Complete, "/a/a.onnx", &format!("Loaded a.onnx in {} ms", u8::from(is_first))), is_first);
        }
        assert!(shown(Complete, "/b/a.onnx", "Loaded a.onnx in 2 ms"), "another model");
        assert!(!shown(Start, "/a/a.onnx", "Loading a.onnx"));
        assert!((0..2).all(|_| shown(Continue, "/a/a.onnx", "Loading a.onnx: building an engine (1 %)")));
        assert!(shown(Complete, "/a/a.onnx", "Loaded a.onnx in 60000 ms"));
        assert!(!shown(Complete, "/a/a.onnx", "Loaded a.onnx in 3 ms"));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let said = SaidTexts::default();
        assert!((0..MOST + 5).all(|number| said.is_new(&number.to_string())));
        let count = said.lock().len();
        assert!(count <= MOST && !said.is_new(&MOST.to_string()), "{count}");
    }
}
