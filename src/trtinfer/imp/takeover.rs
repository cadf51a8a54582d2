// SPDX-License-Identifier: MPL-2.0
//! How an element switches to another model between two frames.

use std::sync::Arc;

use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gsttrt_core::error::Error;
use gsttrt_core::image::transform::InputSpec;

use super::super::life::{self, OpeningTicket, Reading};
use super::super::messages;
use super::super::replacing::{self, ReplaceRequest};
use super::super::sharing::{self, SharedModel, Successor};
use super::super::started::StartedModel;
use super::TrtInfer;
use crate::gst::caps;
use crate::gst::report::Report;

impl TrtInfer {
    /// `model-file` was set: loads the model in the background. If the first one is not even read, its place is taken at once.
    pub fn replace_model(&self) {
        let settings = self.settings.lock().unwrap().clone();
        let Some(session) = self.session() else {
            // The one that is being read is not wanted any more.
            let Some(ticket) = self.life.reopen() else { return };
            let (wanted, element) = (settings, self.obj().downgrade());
            let cuda = move || element.upgrade().ok_or_else(messages::gone)?.imp().context();
            let read = move |ticket: &OpeningTicket| StartedModel::read(&wanted, cuda, || ticket.is_wanted());
            if let Err(error) = life::open(&self.obj(), ticket, move |ticket| Some((read(ticket)?, Reading::First))) {
                self.obj().post_error(&error);
            }
            return;
        };
        let frame = self.life.frame();
        let mut formers = sharing::on_other_gpus(&settings, &session.model);
        formers.push(session.model.clone());
        let begun = formers.into_iter().map(|former| {
            let request = ReplaceRequest { settings: settings.clone(), former, frame };
            replacing::begin(&self.obj(), request)
        });
        match begun.collect() {
            // Another one that is being loaded is cancelled.
            Ok(replacements) => self.life.set_replacements(replacements),
            Err(error) => self.obj().post_warning(&error.and_remedy("The model in use stays")),
        }
    }

    /// The model is loaded.
    pub fn set_successor(&self, former: &SharedModel, successor: Successor) {
        if self.life.is_started() {
            sharing::succeed(former, successor);
        }
    }

    /// The model cannot be loaded.
    pub fn keep_former(&self, request: &ReplaceRequest, error: &Error) {
        let Some(session) = self.session() else { return };
        let former = session.model.latest().request.model().path.clone();
        let remedy = format!("{} stays in use", former.display());
        let mut settings = self.settings.lock().unwrap();
        if settings.model_file == request.settings.model_file {
            settings.model_file = Some(former);
        }
        drop(settings);
        self.obj().post_warning(&error.clone().and_remedy(&remedy));
        self.obj().notify("model-file");
    }

    /// Between two frames: switches to the model that has been loaded in the background. If it wants other tensors,
    /// upstream is asked for them; until caps for them arrive, nothing else is asked for, since frames of both kinds may
    /// be under way.
    pub(super) fn take_over(&self) {
        let Some(session) = self.session() else { return };
        let Some(successor) = session.model.successor() else { return };
        if self.life.offered().is_some() {
            return;
        }
        let (request, frame) = (&successor.model.request, self.life.frame());
        if *session.tensor == frame.map_or_else(|| request.spec.clone(), |frame| request.next_spec_for(frame)) {
            self.switch_to(&session, successor, session.tensor.clone());
        } else if self.life.offer(&successor.model) {
            caps::ask_for_other_tensors(self.obj().sink_pad());
        }
    }

    /// Frames have such tensors from now on: switches to the model that upstream was asked to make them for.
    pub(super) fn take_over_for(&self, tensor: &InputSpec) {
        let Some(session) = self.session() else { return };
        let Some(offered) = self.life.take_offered(|model| model.request.wants(tensor)) else { return };
        if let Some(successor) = session.model.successors().find(|successor| Arc::ptr_eq(&successor.model, &offered)) {
            self.switch_to(&session, successor, Arc::new(tensor.clone()));
        }
    }

    /// The model that upstream makes tensors for.
    pub(super) fn offered(&self, model: &Arc<SharedModel>) -> Arc<SharedModel> {
        self.life.offered().unwrap_or_else(|| model.clone())
    }

    fn switch_to(&self, session: &StartedModel, successor: &Successor, tensor: Arc<InputSpec>) {
        let settings = {
            let mut settings = self.settings.lock().unwrap();
            settings.follow(&successor.model.settings);
            settings.clone()
        };
        let next = match StartedModel::succeeded(successor, &settings, tensor) {
            Ok(next) => next,
            Err(error) => {
                self.obj().post_error(&error);
                return;
            }
        };
        let mut running = self.running.lock().unwrap();
        running.let_go(session);
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
    }
}
