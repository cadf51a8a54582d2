// SPDX-License-Identifier: MPL-2.0
//! How an element switches to another model between two frames.

use std::sync::Arc;

use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gsttrt_core::backends::Interrupted;
use gsttrt_core::backends::loader::ModelHandle;
use gsttrt_core::backends::options::INPUT_VALUES;
use gsttrt_core::error::{Error, Result};
use gsttrt_core::image::transform::InputSpec;

use super::super::life::Reading;
use super::super::model::{SharedHandle, SharedModel};
use super::super::replacing::{self, ReplaceRequest};
use super::super::settings::Settings;
use super::super::sharing;
use super::super::started::StartedModel;
use super::TrtInfer;
use crate::gst::caps;
use crate::gst::meta::tensor::ModelInputs;
use crate::gst::report::Report;

impl TrtInfer {
    /// `model-file` was set: loads the model in the background. If the first one is not even read, its place is taken at once.
    pub fn replace_model(&self) {
        let settings = self.settings.lock().unwrap().clone();
        self.replace_model_by(&settings);
    }

    /// The same by the model of these settings.
    pub(super) fn replace_model_by(&self, settings: &Settings) {
        let Some(session) = self.session().or_else(|| self.open_another(settings)) else { return };
        let frame = self.life.frame();
        let mut formers = sharing::on_other_gpus(settings, &session.model);
        formers.push(session.model.clone());
        let begun = formers.into_iter().map(|former| {
            let (gpu, former) = (former.gpu(), Arc::downgrade(&former));
            let request = ReplaceRequest { settings: settings.clone(), former, gpu, frame };
            replacing::begin(&self.obj(), request)
        });
        match begun.collect() {
            // Another one that is being loaded is cancelled.
            Ok(replacements) => self.life.set_replacements(replacements),
            Err(error) => self.obj().post_warning(&error.and_remedy("The model in use stays")),
        }
    }

    /// The one that is being read is not wanted any more. Gives the model that is to be replaced, where others have it already.
    fn open_another(&self, settings: &Settings) -> Option<StartedModel> {
        let ticket = self.life.reopen()?;
        let there = sharing::supersede(settings, &ticket);
        sharing::left();
        let opened = match there {
            Some(joined) => StartedModel::joined(settings, joined).map(Some),
            None => self.open_in_background(settings.clone(), ticket.clone()).map(|()| None),
        };
        match opened {
            Ok(None) => None,
            Ok(Some(session)) => {
                if !self.life.finish(&ticket, Ok(session.clone())) {
                    return None;
                }
                self.proceed(&session, Reading::Again);
                Some(session)
            }
            Err(error) => {
                self.obj().post_error(&error);
                self.life.finish(&ticket, Err(error));
                None
            }
        }
    }

    /// The model in use.
    pub fn model(&self) -> Option<Arc<SharedModel>> {
        self.session().map(|session| session.model)
    }

    /// The model is loaded. Gives the one whose place it takes.
    pub fn set_successor(
        &self,
        former: &Arc<SharedModel>,
        model: Arc<SharedModel>,
        handle: ModelHandle,
    ) -> Option<Arc<SharedModel>> {
        self.life.is_started().then(|| sharing::succeed(former, model, handle))
    }

    /// The model cannot be loaded.
    pub fn keep_former(&self, request: &ReplaceRequest, error: &Error) {
        let Some(session) = self.session() else { return };
        let latest = session.model.latest();
        let former = latest.request.model().path.clone();
        let remedy = format!("{} stays in use", former.display());
        let values = |settings: &Settings| settings.options.get(&INPUT_VALUES);
        let mut settings = self.settings.lock().unwrap();
        if settings.model_file == request.settings.model_file {
            settings.model_file = Some(former);
        }
        if values(&settings) == values(&request.settings) {
            settings.options.set(&INPUT_VALUES, values(&latest.settings));
        }
        drop(settings);
        self.obj().post_warning(&error.clone().and_remedy(&remedy));
        ["model-file", "input-values"].iter().for_each(|name| self.obj().notify(name));
    }

    /// Between two frames: switches to the model that has been loaded in the background, or to other values. If it wants other tensors,
    /// upstream is asked for them; until caps for them arrive, nothing else is asked for, since frames of both kinds may
    /// be under way.
    ///
    /// # Errors
    /// As [`StartedModel::succeeded`].
    pub(super) fn take_over(&self) -> Result<()> {
        let Some(session) = self.session() else { return Ok(()) };
        if self.life.offered().is_some() {
            return Ok(());
        }
        let latest = session.model.latest();
        if latest.is_same_loaded(&session.model) {
            if !Arc::ptr_eq(latest, &session.model) {
                self.go_on_with(latest);
            }
            return Ok(());
        }
        let Some(next) = session.model.next() else { return Ok(()) };
        let (request, frame) = (&next.model.request, self.life.frame());
        if *session.tensor == frame.map_or_else(|| request.wanted(), |frame| request.next_spec_for(frame)) {
            return self.switch_to(&session, next, session.tensor.clone());
        }
        if self.life.offer(next) {
            caps::ask_for_other_tensors(self.obj().sink_pad());
        }
        Ok(())
    }

    /// Frames have such tensors from now on: switches to the model that upstream was asked to make them for.
    ///
    /// # Errors
    /// As [`StartedModel::succeeded`].
    pub(super) fn take_over_for(&self, tensor: &InputSpec) -> Result<()> {
        let offered = self.life.take_offered(|next| next.model.request.wants(tensor));
        match self.session().zip(offered) {
            Some((session, next)) => self.switch_to(&session, next, Arc::new(tensor.clone())),
            None => Ok(()),
        }
    }

    /// Another model has taken the place of the one that this frame waits for, and that is still not loaded.
    pub(super) fn infer_with_successor(
        &self,
        buffer: &mut gst::BufferRef,
        inputs: Arc<ModelInputs>,
    ) -> std::result::Result<(), Interrupted> {
        self.take_over()?;
        if self.life.offered().is_none() {
            return self.infer(buffer);
        }
        self.pass(buffer, inputs, true); // its tensor is for the former one, and upstream has been asked for others
        Ok(())
    }

    /// The model that upstream makes tensors for.
    pub(super) fn offered(&self, model: &Arc<SharedModel>) -> Arc<SharedModel> {
        self.life.offered().map_or_else(|| model.clone(), |next| next.model)
    }

    fn switch_to(&self, session: &StartedModel, next: SharedHandle, tensor: Arc<InputSpec>) -> Result<()> {
        let settings = {
            let mut settings = self.settings.lock().unwrap();
            settings.follow(&next.model.settings);
            settings.clone()
        };
        let next = StartedModel::succeeded(next, &settings, tensor)?;
        let mut running = self.running.lock().unwrap();
        running.let_go(session);
        running.has_seen = false;
        if !settings.is_shared() {
            running.passed = None; // its next frame is inferred; streams that share a model keep their turns
        }
        running.warned_starved = false;
        drop(running);
        self.life.replace(|_| Some(next.clone()));
        session.handle.leave();
        if session.model.latency() != next.model.latency() {
            self.post_latency();
        }
        if let Err(error) = self.announce(&next) {
            self.obj().post_warning(&error);
        }
        ["model-file", "model-info"].iter().for_each(|name| self.obj().notify(name));
        Ok(())
    }
}
