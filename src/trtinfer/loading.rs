// SPDX-License-Identifier: MPL-2.0
//! Loads a model in a thread of its own, and posts the progress on the bus.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gsttrt_core::backends::batcher::Batcher;
use gsttrt_core::backends::verify::Verdict;
use gsttrt_core::backends::{LoadContext, LoadEvent};
use gsttrt_core::error::{Error, ErrorKind, Result};

use super::TrtInfer;
use super::model::SharedModel;
use super::trial;
use crate::gst::report::Report;

/// A thread that reads or loads a model.
///
/// # Errors
/// `Library`, where it cannot be started.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    let failed = |error| Error::new(ErrorKind::Library, "Cannot start a thread to load the model in").cause(error);
    spawned.map(drop).map_err(failed)
}

/// Loads the model in a thread of its own, so that the application stays responsive. It is not one of GStreamer's pool,
/// which `gst_deinit()` waits for: computing the constants of a model may never end.
pub fn load(element: &TrtInfer, model: &Arc<SharedModel>) {
    if !model.loader.begin() {
        return; // another element does
    }
    let loader = model.loader.clone();
    let loading = Loading::new(element.downgrade(), model);
    let model = model.to_load();
    let load = move || match loading.run(&model, false) {
        Ok(true) => loading.complete(),
        Ok(false) => {}
        Err(error) => {
            loading.with_element(|element| element.post_error_of(&error, &loading.file));
            model.loader.finish(Err(error));
        }
    };
    if let Err(error) = spawn("trt-load", load) {
        element.post_error(&error);
        loader.finish(Err(error));
    }
}

/// What has come up while a model runs: it waits for memory, or is given up.
fn tell(element: &glib::WeakRef<TrtInfer>, error: &Error, file: &Path) {
    let Some(element) = element.upgrade() else { return };
    if error.is_out_of_memory() {
        element.post_warning(error);
    } else {
        element.post_error_of(error, file);
    }
}

/// A model that is being loaded, and the element that reports on it.
pub struct Loading {
    element: glib::WeakRef<TrtInfer>,
    file: PathBuf,
    /// Of the file.
    name: String,
    /// The last step that was posted.
    posted: Mutex<String>,
    verdict: Mutex<Option<Verdict>>,
    begun: Instant,
}

impl Loading {
    pub fn new(element: glib::WeakRef<TrtInfer>, model: &SharedModel) -> Self {
        let file = model.request.model().path.clone();
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Loading { element, file, name, posted: Mutex::default(), verdict: Mutex::default(), begun: Instant::now() }
    }

    /// Loads the model, and hands it to the threads that wait for it; false if it is not wanted any more. A failure is
    /// for the caller to hand on. One that is to take the place of another runs once before that, if its inputs have values that
    /// it may not be able to compute with.
    pub fn run(&self, model: &SharedModel, takes_place: bool) -> Result<bool> {
        let (SharedModel { request, settings, loader, slots, contexts, .. }, name) = (model, &self.name);
        self.progress(gst::ProgressType::Start, &format!("Loading {name} for the {} backend", request.backend.name()));
        let report = |event: LoadEvent<'_>| self.report(event);
        let loading =
            LoadContext { report: &report, cancelled: loader.cancelled(), slots: slots.as_ref(), contexts: *contexts };
        let outcome = request
            .load(&loading)
            .and_then(|model| Batcher::new(model, request.batch, settings.batch_timeout()))
            .and_then(|batcher| match takes_place && !request.values().is_empty() {
                true => self.tried(&batcher, model).map(|()| batcher),
                false => Ok(batcher),
            })
            .map(|batcher| {
                // Not before: that a trial does not end is no error of the element, whose model stays in use.
                let (element, file) = (self.element.clone(), self.file.clone());
                let batcher =
                    batcher.with_owner(self.file.display().to_string(), move |error| tell(&element, error, &file));
                Arc::new(batcher.with_verdict(self.verdict.lock().unwrap().take()))
            });
        if loader.is_cancelled() {
            self.progress(gst::ProgressType::Canceled, &format!("Loading {name} was cancelled"));
            return Ok(false);
        }
        let batcher =
            outcome.inspect_err(|_| self.progress(gst::ProgressType::Error, &format!("Loading {name} failed")))?;
        loader.finish(Ok(batcher));
        Ok(true)
    }

    /// Whether it runs with its values. There is memory for its frames once the former model has left. The trial is given up where it
    /// takes too long, or the model is not wanted any more.
    fn tried(&self, batcher: &Batcher, model: &SharedModel) -> Result<()> {
        self.with_element(|element| element.imp().limit_runs(batcher, model));
        let (SharedModel { request, loader, .. }, stream) = (model, u64::MAX);
        let outcome = trial::run(batcher, model, &request.spec.desc, request.values(), (stream, loader.waits()));
        if loader.is_cancelled() || batcher.given_up().is_some() {
            trial::end(batcher, model, stream, Duration::ZERO);
        }
        match outcome {
            Err(error) if !error.is_out_of_memory() => Err(error),
            _ => Ok(()),
        }
    }

    /// The model is where the next frame finds it.
    pub fn complete(&self) {
        let text = format!("Loaded {} in {} ms", self.name, self.begun.elapsed().as_millis());
        self.progress(gst::ProgressType::Complete, &text);
    }

    fn report(&self, event: LoadEvent<'_>) {
        match event {
            LoadEvent::Warning(warning) => self.with_element(|element| element.post_warning(&warning)),
            LoadEvent::Progress(what, percent) => {
                let percent = percent.map_or(String::new(), |percent| format!(" ({percent} %)"));
                let text = format!("Loading {}: {what}{percent}", self.name);
                // TensorRT steps many times within a percent.
                if *self.posted.lock().unwrap() != text {
                    self.progress(gst::ProgressType::Continue, &text);
                    *self.posted.lock().unwrap() = text;
                }
            }
            LoadEvent::Verified(verdict) => *self.verdict.lock().unwrap() = Some(verdict.clone()),
            // What later releases of the core may add.
            _ => {}
        }
    }

    fn progress(&self, kind: gst::ProgressType, text: &str) {
        self.with_element(|element| {
            let message = gst::message::Progress::builder(kind, "model-load", text);
            // One file may be loaded while another is to take its place: the texts have the name without the folder.
            let file = self.file.display().to_string();
            let _ = element.post_message(message.other_field("file", file).src(element).build());
        });
    }

    /// Holds the element only for a moment, so that a load without end does not keep it.
    pub fn with_element(&self, report: impl FnOnce(&TrtInfer)) {
        if let Some(element) = self.element.upgrade() {
            report(&element);
        }
    }
}
