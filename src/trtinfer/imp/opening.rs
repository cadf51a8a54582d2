// SPDX-License-Identifier: MPL-2.0
//! How an element comes to have its model: it is read, at once or in the background, said, and then loaded.

use std::path::{Path, PathBuf};

use gst::prelude::*;
use gst::subclass::prelude::*;
use gsttrt_core::backends::{Backend, LoadRequest};
use gsttrt_core::error::{Error, ErrorKind, Result};

use super::super::life::{OpeningTicket, Reading};
use super::super::model::SharedModel;
use super::super::settings::Settings;
use super::super::started::{ReadOutcome, StartedModel};
use super::super::{loading, messages};
use super::{CAT, TrtInfer};
use crate::gst::report::Report;

impl TrtInfer {
    /// The model is read: posts messages about it.
    pub(super) fn announce(&self, session: &StartedModel) -> Result<()> {
        gst::info!(CAT, imp = self, "{}", session.info());
        let request = &session.model.request;
        if session.is_reporter {
            self.report_backend(request);
        }
        self.refuse_what_has_no_effect(request.backend)?;
        if let Some(warning) = session.published.as_ref().and_then(|published| published.warning()) {
            self.obj().post_warning(&warning);
        }
        Ok(())
    }

    /// Posts why the model does not run on a better backend.
    pub(crate) fn report_backend(&self, request: &LoadRequest) {
        if let Some(reason) = &request.reason {
            let what = format!("Running the model on {}: {reason}", request.backend.title());
            self.obj().post_info(&Error::new(ErrorKind::Library, what));
        }
    }

    /// Reads the model where that is quick; else begins to.
    pub(super) fn open_model(&self, settings: &Settings, ticket: OpeningTicket) -> Result<()> {
        let cuda = || self.cuda.ensure(&*self.obj(), settings.cuda_device_id);
        match StartedModel::read(settings, &cuda, &ticket, false)? {
            ReadOutcome::Read(session) => {
                self.share_context(&session.model, settings);
                self.announce(&session)?;
                if self.life.finish(&ticket, Ok(session.clone())) {
                    self.proceed(&session, Reading::First);
                }
                Ok(())
            }
            ReadOutcome::TakesLong => self.open_in_background(settings.clone(), ticket),
            ReadOutcome::Unwanted => Ok(()), // another file was set meanwhile
        }
    }

    pub(super) fn open_in_background(&self, settings: Settings, ticket: OpeningTicket) -> Result<()> {
        let element = self.obj().downgrade();
        let cuda = move || element.upgrade().ok_or_else(messages::gone)?.imp().context();
        let file = settings.model_file.clone().unwrap_or_default();
        let read = move |ticket: &OpeningTicket| StartedModel::read(&settings, &cuda, ticket, true);
        self.read(ticket, Reading::First, file, read)
    }

    /// Reads a model in a thread of its own, which has the element only for a moment at its end: reading may never end.
    ///
    /// # Errors
    /// `Library`, where a thread cannot be started.
    pub(super) fn read(
        &self,
        ticket: OpeningTicket,
        reading: Reading,
        file: PathBuf,
        read: impl FnOnce(&OpeningTicket) -> Result<ReadOutcome> + Send + 'static,
    ) -> Result<()> {
        let element = self.obj().downgrade();
        loading::spawn("trt-open", move || {
            let outcome = match read(&ticket) {
                Ok(ReadOutcome::Read(model)) => Ok(model),
                Ok(ReadOutcome::Unwanted | ReadOutcome::TakesLong) => return,
                Err(error) => Err(error),
            };
            if let Some(element) = element.upgrade() {
                element.imp().finish_opening(&ticket, outcome, reading, &file);
            }
        })
    }

    /// The model is where all threads find it: starts loading it in the background.
    pub(super) fn proceed(&self, session: &StartedModel, reading: Reading) {
        if !session.waits {
            loading::load(&self.obj(), &session.model);
        }
        if reading == Reading::First {
            self.follow_settings(&session.model);
        }
        self.obj().notify("model-info");
    }

    /// A shared model may have been replaced since the application named its file.
    fn follow_settings(&self, model: &SharedModel) {
        let mut settings = self.settings.lock().unwrap();
        if settings.difference(&model.settings).is_none() {
            return;
        }
        settings.follow(&model.settings);
        drop(settings);
        self.obj().notify("model-file");
        self.post_latency();
    }

    /// Takes the outcome of reading the model, in the thread that read it. A failure is on the bus before any thread goes
    /// on.
    fn finish_opening(&self, ticket: &OpeningTicket, outcome: Result<StartedModel>, reading: Reading, file: &Path) {
        if !ticket.is_wanted() {
            return;
        }
        let outcome = outcome.and_then(|session| match reading {
            Reading::First => self.announce(&session).map(|()| session),
            Reading::Again => Ok(session),
        });
        if let Err(error) = &outcome {
            self.obj().post_error_of(error, file);
        }
        let session = outcome.as_ref().ok().cloned();
        if self.life.finish(ticket, outcome)
            && let Some(session) = session
        {
            self.proceed(&session, reading);
        }
    }

    /// Warns of properties that have no effect with this backend; one that must have its effect is an error.
    fn refuse_what_has_no_effect(&self, backend: &dyn Backend) -> Result<()> {
        let settings = self.settings.lock().unwrap().clone();
        if let Some(warning) = settings.without_effect(backend)? {
            self.obj().post_warning(&warning);
        }
        Ok(())
    }

    /// Where the pipeline has no CUDA context yet, that of a shared model will do for this pipeline too.
    pub(super) fn share_context(&self, model: &SharedModel, settings: &Settings) {
        if let Some(context) = &model.request.cuda {
            self.cuda.offer(context, settings.cuda_device_id);
        }
    }
}
