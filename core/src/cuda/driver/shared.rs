// SPDX-License-Identifier: MPL-2.0
//! One context for each GPU of the process: those who make contexts of their own, such as GStreamer's elements, and those
//! who take the primary one, such as sessions, find each other here.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{Context, WeakContext};
use crate::error::Result;

/// Finds the context that others of the process work in on a GPU, if they do.
pub type ContextFinder = fn(device: i32) -> Option<Context>;

static FINDER: OnceLock<ContextFinder> = OnceLock::new();

/// Primary contexts in use.
static PRIMARY: Mutex<Vec<WeakContext>> = Mutex::new(Vec::new());

/// From now on [`Context::of_process`] asks this first. The first call counts.
pub fn find_contexts_by(finder: ContextFinder) {
    let _ = FINDER.set(finder);
}

/// Remembers a primary context as long as somebody has it.
pub(super) fn note_primary(context: &Context) {
    let mut all = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(WeakContext::is_in_use);
    all.push(context.downgrade());
}

impl Context {
    /// The context that the process works in on that GPU: that of its GStreamer pipelines, where there are some, else the
    /// primary one.
    ///
    /// # Errors
    /// As [`Context::primary`].
    pub fn of_process(device: i32) -> Result<Self> {
        match FINDER.get().and_then(|find| find(device)) {
            Some(context) => Ok(context),
            None => Context::primary(device),
        }
    }

    /// Whether both are one object, so that they share modules and events. Equal ones are of the same CUcontext.
    pub fn is_same(&self, other: &Context) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The primary context of that GPU, where somebody in this process has it already, by [`Context::primary`].
    pub fn primary_in_use(device: i32) -> Option<Self> {
        // Upgraded under the lock, dropped after it.
        let all: Vec<Context> = {
            let all = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(WeakContext::upgrade).collect()
        };
        all.into_iter().find(|context| context.device() == device)
    }
}

impl WeakContext {
    /// Whether somebody has it. It may be given up at any time.
    pub fn is_in_use(&self) -> bool {
        self.0.strong_count() > 0
    }
}
