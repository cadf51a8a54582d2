// SPDX-License-Identifier: MPL-2.0
//! How a model gets other values for its inputs besides the picture while frames pass, such as other words to look for.
//!
//! The model stays loaded. What takes its place is the same one with other values, and with the names of classes that come with
//! them. Each frame goes in with those that its element has then, so no frame is lost, and names and boxes are of the same words.

use std::sync::Arc;

use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gsttrt_core::backends::loader::ModelHandle;
use gsttrt_core::backends::options::INPUT_VALUES;
use gsttrt_core::error::{Error, Result};
use gsttrt_core::model::InputValues;
use gsttrt_core::options::OptionValue;

use super::super::model::SharedModel;
use super::super::sharing;
use super::super::started::StartedModel;
use super::super::trial;
use super::{RUN_LIMIT, TrtInfer};
use crate::gst::classes_query;
use crate::gst::report::Report;

impl TrtInfer {
    /// `input-values` was set: all elements that have the model go on with them from their next frame on. A model that is read or
    /// loaded just now is the one that they are for. So is one that has to be loaded for them.
    pub(super) fn change_values(&self, text: &str) {
        let mut settings = self.settings.lock().unwrap().clone();
        settings.options.set(&INPUT_VALUES, OptionValue::Text(text.into()));
        let Some(session) = self.session().filter(|_| !self.life.is_replacing()) else {
            return self.replace_model_by(&settings);
        };
        let mut models = sharing::on_other_gpus(&settings, &session.model);
        models.push(session.model.clone());
        let change = |values: Arc<InputValues>| -> Result<bool> {
            self.check_classes(&session, &values)?;
            if !self.try_values(&session, &values)? {
                return Ok(true); // the next start has them
            }
            models.iter().try_fold(true, |all, model| Ok(sharing::change_values(model, &values)? && all))
        };
        match InputValues::read(text).map(Arc::new).and_then(change) {
            Ok(true) => {}
            Ok(false) => self.replace_model_by(&settings),
            Err(error) => self.keep_values(text, &session, error),
        }
    }

    /// Checks that trtnms can go on with what these values are the classes of.
    fn check_classes(&self, session: &StartedModel, values: &InputValues) -> Result<()> {
        let request = &session.model.latest().request;
        let next = request.model_with(values)?;
        match classes_query::ask(self.obj().src_pad()) {
            Some(options) => options.check_words(request.model(), &next, values.other_count(request.values())),
            None => Ok(()),
        }
    }

    /// Tries the model out with these values. False, where the element stops meanwhile.
    fn try_values(&self, session: &StartedModel, values: &Arc<InputValues>) -> Result<bool> {
        let latest = session.model.latest();
        if !latest.is_same_loaded(&session.model) || latest.request.with_values(values)?.is_none() {
            return Ok(true); // the model is loaded for them, which runs it
        }
        let handle = ModelHandle::take(&session.model.loader);
        let Some((batcher, handle)) = session.handle.batcher().zip(handle) else { return Ok(true) };
        let waits = (handle.stream(), &self.trial);
        let has_run = trial::run(&batcher, &session.model, &session.tensor.desc, values, waits)?;
        if !has_run {
            trial::end(&batcher, &session.model, handle.stream(), RUN_LIMIT); // the element has stopped
        }
        Ok(has_run)
    }

    /// Those values cannot be used.
    fn keep_values(&self, text: &str, session: &StartedModel, error: Error) {
        let in_use = session.model.latest().settings.options.get(&INPUT_VALUES);
        let mut settings = self.settings.lock().unwrap();
        if settings.options.get(&INPUT_VALUES) == OptionValue::Text(text.into()) {
            settings.options.set(&INPUT_VALUES, in_use);
        }
        drop(settings);
        self.obj().post_warning(&error.and_remedy("The values in use stay"));
        self.obj().notify("input-values");
    }

    /// Between two frames: the model with other values takes its own place.
    pub(super) fn go_on_with(&self, model: &Arc<SharedModel>) {
        let values = model.settings.options.get(&INPUT_VALUES);
        self.settings.lock().unwrap().options.set(&INPUT_VALUES, values);
        let mut running = self.running.lock().unwrap();
        // What was found before is of other words: the next frame is inferred, whether or not it is its turn, and anything moves.
        running.has_seen = false;
        if !model.settings.is_shared() {
            running.passed = None; // streams that share a model keep their turns
        }
        drop(running);
        self.life.replace(|session| {
            let is_same = model.is_same_loaded(&session.model); // else it was just read again
            is_same.then(|| StartedModel { model: model.clone(), ..session.clone() })
        });
        ["input-values", "model-info"].iter().for_each(|name| self.obj().notify(name));
    }
}
