// SPDX-License-Identifier: MPL-2.0
//! The life of an element's model: one state machine, with all of its flags under one lock.
//!
//! ```text
//! Stopped ── start ──▶ Opening ── finish ──▶ Open ── replace ──▶ Open
//!                        ▲  └─── finish ───▶ Failed      │
//!                        └───────── reopen ──────────────┘         stop, from each of them ──▶ Stopped
//! ```
//!
//! A TensorRT engine says its tensors only once it is deserialised, which takes from moments to minutes and may never end. That is
//! done in a thread of its own; streaming threads wait for it, and a flush or a state change ends their wait. `flushing` and `left`
//! are of the element, not of its model: they stay while one model takes the place of another.

use std::sync::{Arc, Condvar, Mutex, Weak};

use gsttrt_core::backends::Interrupted;
use gsttrt_core::backends::loader::ModelHandle;
use gsttrt_core::error::{Error, Result};

/// Why a model is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// The element has not had it.
    First,
    /// It has to be where its tensors are.
    Again,
}

/// Tells a thread that reads a model whether the model is still wanted.
#[derive(Clone)]
pub struct OpeningTicket(Weak<()>);

impl OpeningTicket {
    pub fn is_wanted(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// The handle of a model that is to take the place of another, once it is read. Dropping this cancels that. The thread that loads it
/// has a weak reference until it is done.
pub type Replacement = Arc<Mutex<Option<ModelHandle>>>;

/// A model that is read.
pub trait OpenModel: Clone {
    /// What is to take its place.
    type Next: Clone;

    /// Between flush-start and flush-stop no thread may wait for it.
    fn set_flushing(&self, flushing: bool);

    /// The element no longer needs it.
    fn leave(&self);
}

/// What is known of a model: nothing while it is read and may be waited for, else as [`ModelLife::wait`] gives it.
pub type Known<M> = Option<std::result::Result<Option<M>, Interrupted>>;

/// Where an element has its model.
pub struct ModelLife<M: OpenModel> {
    state: Mutex<LifeState<M>>,
    changed: Condvar,
    #[cfg(test)]
    pub waiters: crate::test::Waiters,
}

struct LifeState<M: OpenModel> {
    phase: LifePhase<M>,
    flushing: bool,
    /// Since the element goes back to READY.
    left: bool,
    /// Models that are to take the place of this one, while they are loaded: once for each GPU that has it.
    replacements: Vec<Replacement>,
    /// The model that takes over with the first caps for its tensors, which upstream was asked for.
    offered: Option<M::Next>,
    /// Width and height of the frames that tensors were last asked for.
    frame: Option<(u32, u32)>,
}

enum LifePhase<M> {
    /// The element has not started.
    Stopped,
    /// It is being read. Tickets are of this one. The former one says what tensors are like until then.
    Opening(Arc<()>, Option<M>),
    Open(M),
    Failed(Error),
}

impl<M: OpenModel> Default for LifeState<M> {
    fn default() -> Self {
        let (flushing, left, replacements, offered, frame) = Default::default();
        LifeState { phase: LifePhase::Stopped, flushing, left, replacements, offered, frame }
    }
}

impl<M: OpenModel> Default for ModelLife<M> {
    fn default() -> Self {
        ModelLife {
            state: Mutex::default(),
            changed: Condvar::new(),
            #[cfg(test)]
            waiters: Default::default(),
        }
    }
}

impl<M: OpenModel> LifeState<M> {
    fn begin(&mut self, former: Option<M>) -> OpeningTicket {
        let current = Arc::new(());
        let ticket = OpeningTicket(Arc::downgrade(&current));
        self.phase = LifePhase::Opening(current, former);
        ticket
    }

    fn open(&mut self, model: M) {
        if self.flushing {
            model.set_flushing(true);
        }
        if self.left {
            model.leave();
        }
        self.phase = LifePhase::Open(model);
    }

    /// The model, or that of which it is read again.
    fn known(&self) -> std::result::Result<Option<M>, Interrupted> {
        match &self.phase {
            LifePhase::Stopped => Ok(None),
            LifePhase::Opening(_, None) => Err(Interrupted::Flushing),
            LifePhase::Open(model) | LifePhase::Opening(_, Some(model)) => Ok(Some(model.clone())),
            LifePhase::Failed(error) => Err(Interrupted::Failed(error.clone())),
        }
    }

    /// Whether a thread that needs the model waits for it now.
    fn waits(&self) -> bool {
        matches!(self.phase, LifePhase::Opening(..)) && !self.flushing && !self.left
    }
}

impl<M: OpenModel> ModelLife<M> {
    /// The element starts: a model is read from now on.
    pub fn start(&self) -> OpeningTicket {
        let mut state = self.state.lock().unwrap();
        *state = LifeState::default();
        state.begin(None)
    }

    /// A model is read again, or another one in its place; nothing where the element does not want any. What was read of the former
    /// one holds until then.
    pub fn reopen(&self) -> Option<OpeningTicket> {
        let mut state = self.state.lock().unwrap();
        if state.left {
            return None;
        }
        let former = match std::mem::replace(&mut state.phase, LifePhase::Stopped) {
            LifePhase::Stopped => return None,
            LifePhase::Open(former) => {
                former.leave();
                Some(former)
            }
            LifePhase::Opening(..) | LifePhase::Failed(_) => None,
        };
        Some(state.begin(former))
    }

    /// Stores the outcome of reading the model; false, where it is not wanted any more.
    pub fn finish(&self, ticket: &OpeningTicket, outcome: Result<M>) -> bool {
        let mut state = self.state.lock().unwrap();
        let LifePhase::Opening(current, _) = &state.phase else { return false };
        if state.left || !std::ptr::eq(Arc::as_ptr(current), ticket.0.as_ptr()) {
            return false;
        }
        match outcome {
            Ok(model) => state.open(model),
            Err(error) => state.phase = LifePhase::Failed(error),
        }
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Whether the element has started.
    pub fn is_started(&self) -> bool {
        !matches!(self.state.lock().unwrap().phase, LifePhase::Stopped)
    }

    /// The model, where it is read; while it is read again, as it was.
    pub fn get(&self) -> Option<M> {
        self.state.lock().unwrap().known().ok().flatten()
    }

    /// The model, once it is there; nothing, where the element has not started.
    pub fn wait(&self) -> std::result::Result<Option<M>, Interrupted> {
        let state = self.state.lock().unwrap();
        #[cfg(test)]
        let _waiting = matches!(state.phase, LifePhase::Opening(..)).then(|| self.waiters.enter());
        let state = self.changed.wait_while(state, |state| state.waits()).unwrap();
        match &state.phase {
            LifePhase::Opening(..) => Err(Interrupted::Flushing),
            _ => state.known(),
        }
    }

    /// What is known of the model, without a wait.
    pub fn now(&self) -> Known<M> {
        let state = self.state.lock().unwrap();
        let is_unread = state.waits() && matches!(state.phase, LifePhase::Opening(_, None));
        if is_unread { None } else { Some(state.known()) }
    }

    /// Puts another in the place of the model that is there, and returns both, the former first.
    pub fn replace(&self, by: impl FnOnce(&M) -> Option<M>) -> Option<(M, M)> {
        let mut state = self.state.lock().unwrap();
        let LifePhase::Open(former) = &state.phase else { return None };
        let (former, model) = (former.clone(), by(former)?);
        state.open(model.clone());
        Some((former, model))
    }

    /// Between flush-start and flush-stop no thread may wait.
    pub fn set_flushing(&self, flushing: bool) {
        let mut state = self.state.lock().unwrap();
        state.flushing = flushing;
        if let LifePhase::Open(model) = &state.phase {
            model.set_flushing(flushing);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// No thread may wait any more.
    pub fn leave(&self) {
        let mut state = self.state.lock().unwrap();
        state.left = true;
        // Under the lock, so that another model cannot take its place in the meantime.
        if let LifePhase::Open(model) = &state.phase {
            model.leave();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The element stops: the model, which is not here any more. Those that were to take its place are cancelled.
    pub fn stop(&self) -> Option<M> {
        let taken = std::mem::take(&mut *self.state.lock().unwrap());
        self.changed.notify_all();
        match taken.phase {
            LifePhase::Open(model) => {
                model.leave();
                Some(model)
            }
            _ => None,
        }
    }

    /// These are loaded to take the place of the model; those that were until now are cancelled. An element that has stopped in the
    /// meantime wants none.
    pub fn set_replacements(&self, replacements: Vec<Replacement>) {
        let mut state = self.state.lock().unwrap();
        let is_wanted = !state.left && !matches!(state.phase, LifePhase::Stopped);
        let unwanted = match is_wanted {
            true => std::mem::replace(&mut state.replacements, replacements),
            false => replacements,
        };
        drop(state); // a model that is released may wait for the GPU
        drop(unwanted);
    }

    /// Whether one of them is still loaded.
    pub fn is_replacing(&self) -> bool {
        self.state.lock().unwrap().replacements.iter().any(|replacement| Arc::weak_count(replacement) > 0)
    }

    /// Offers upstream another model's tensors; false, where one is offered already.
    pub fn offer(&self, model: M::Next) -> bool {
        let mut state = self.state.lock().unwrap();
        let unwanted = match &state.offered {
            None => {
                state.offered = Some(model);
                None
            }
            Some(_) => Some(model),
        };
        drop(state); // a model that is released may wait for the GPU
        unwanted.is_none()
    }

    /// The model that upstream makes tensors for.
    pub fn offered(&self) -> Option<M::Next> {
        self.state.lock().unwrap().offered.clone()
    }

    /// The same, which is not offered any more, where it meets the condition.
    pub fn take_offered(&self, condition: impl FnOnce(&M::Next) -> bool) -> Option<M::Next> {
        self.state.lock().unwrap().offered.take_if(|model| condition(model))
    }

    /// Width and height of the frames that tensors were last asked for.
    pub fn frame(&self) -> Option<(u32, u32)> {
        self.state.lock().unwrap().frame
    }

    pub fn set_frame(&self, size: (u32, u32)) {
        self.state.lock().unwrap().frame = Some(size);
    }
}

#[cfg(test)]
mod tests;
