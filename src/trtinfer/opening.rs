// SPDX-License-Identifier: MPL-2.0
//! The model of an element while it is read: a TensorRT engine says its tensors only once it is deserialised, which
//! takes from moments to minutes and may never end. That is done in a thread of its own; streaming threads wait for it,
//! and a flush or a state change ends their wait.

use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;

use gst::prelude::*;
use gst::subclass::prelude::*;
use gsttrt_core::backends::Interrupted;
use gsttrt_core::error::{Error, ErrorKind, Result};

use super::TrtInfer;
use super::started::{StartedModel, UnreadModel};

/// Reads the model in a thread of its own, which has the element only for a moment at its end: reading may never end.
///
/// # Errors
/// `Library`, where a thread cannot be started.
pub fn open(element: &TrtInfer, model: UnreadModel, ticket: OpeningTicket) -> Result<()> {
    let element = element.downgrade();
    let open = move || {
        let Some(outcome) = model.read_in_turn(|| ticket.is_wanted()) else { return };
        if let Some(element) = element.upgrade() {
            element.imp().finish_opening(&ticket, outcome);
        }
    };
    let spawned = thread::Builder::new().name("trt-open".into()).spawn(open);
    let failed = |error| Error::new(ErrorKind::Library, "Cannot start a thread to read the model in").cause(error);
    spawned.map(drop).map_err(failed)
}

/// Tells a thread that reads a model whether the model is still wanted.
pub struct OpeningTicket(Weak<()>);

impl OpeningTicket {
    pub fn is_wanted(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Where an element has its model.
#[derive(Default)]
pub struct ModelSlot {
    state: Mutex<SlotState>,
    changed: Condvar,
    #[cfg(test)]
    pub waiters: crate::test::Waiters,
}

#[derive(Default)]
struct SlotState {
    model: SlotModel,
    flushing: bool,
    /// Since the element goes back to READY.
    left: bool,
}

#[derive(Default)]
enum SlotModel {
    /// The element has not started.
    #[default]
    None,
    /// It is being read. Tickets are of this one.
    Opening(Arc<()>),
    Open(StartedModel),
    Failed(Error),
}

impl SlotState {
    fn open(&mut self, model: StartedModel) {
        if self.flushing {
            model.handle.set_flushing(true);
        }
        if self.left {
            model.handle.leave();
        }
        self.model = SlotModel::Open(model);
    }
}

impl ModelSlot {
    /// The model is read from now on.
    pub fn begin(&self) -> OpeningTicket {
        let current = Arc::new(());
        let ticket = OpeningTicket(Arc::downgrade(&current));
        *self.state.lock().unwrap() = SlotState { model: SlotModel::Opening(current), ..SlotState::default() };
        ticket
    }

    /// The model is there.
    pub fn put(&self, model: StartedModel) {
        *self.state.lock().unwrap() = SlotState { model: SlotModel::Open(model), ..SlotState::default() };
        self.changed.notify_all();
    }

    /// Stores the outcome of reading the model; false, where it is not wanted any more.
    pub fn finish(&self, ticket: &OpeningTicket, outcome: Result<StartedModel>) -> bool {
        let mut state = self.state.lock().unwrap();
        let SlotModel::Opening(current) = &state.model else { return false };
        if state.left || !std::ptr::eq(Arc::as_ptr(current), ticket.0.as_ptr()) {
            return false;
        }
        match outcome {
            Ok(model) => state.open(model),
            Err(error) => state.model = SlotModel::Failed(error),
        }
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Whether the element has started.
    pub fn is_started(&self) -> bool {
        !matches!(self.state.lock().unwrap().model, SlotModel::None)
    }

    /// The model, where it is there.
    pub fn get(&self) -> Option<StartedModel> {
        match &self.state.lock().unwrap().model {
            SlotModel::Open(model) => Some(model.clone()),
            _ => None,
        }
    }

    /// The model, once it is there; nothing, where the element has not started.
    pub fn wait(&self) -> std::result::Result<Option<StartedModel>, Interrupted> {
        let state = self.state.lock().unwrap();
        #[cfg(test)]
        let _waiting = matches!(state.model, SlotModel::Opening(_)).then(|| self.waiters.enter());
        let waiting =
            |state: &mut SlotState| matches!(state.model, SlotModel::Opening(_)) && !state.flushing && !state.left;
        let state = self.changed.wait_while(state, waiting).unwrap();
        match &state.model {
            SlotModel::None => Ok(None),
            SlotModel::Opening(_) => Err(Interrupted::Flushing),
            SlotModel::Open(model) => Ok(Some(model.clone())),
            SlotModel::Failed(error) => Err(Interrupted::Failed(error.clone())),
        }
    }

    /// Puts another in the place of the model that is there, and returns both, the former first.
    pub fn replace(
        &self,
        by: impl FnOnce(&StartedModel) -> Option<StartedModel>,
    ) -> Option<(StartedModel, StartedModel)> {
        let mut state = self.state.lock().unwrap();
        let SlotModel::Open(former) = &state.model else { return None };
        let (former, model) = (former.clone(), by(former)?);
        state.open(model.clone());
        Some((former, model))
    }

    /// Between flush-start and flush-stop no thread may wait.
    pub fn set_flushing(&self, flushing: bool) {
        let mut state = self.state.lock().unwrap();
        state.flushing = flushing;
        if let SlotModel::Open(model) = &state.model {
            model.handle.set_flushing(flushing);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// No thread may wait any more.
    pub fn leave(&self) {
        let mut state = self.state.lock().unwrap();
        state.left = true;
        // Under the lock, so that another model cannot take its place in the meantime.
        if let SlotModel::Open(model) = &state.model {
            model.handle.leave();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The model, which is not here any more.
    pub fn take(&self) -> Option<StartedModel> {
        let taken = std::mem::take(&mut *self.state.lock().unwrap());
        self.changed.notify_all();
        match taken.model {
            SlotModel::Open(model) => Some(model),
            _ => None,
        }
    }
}
