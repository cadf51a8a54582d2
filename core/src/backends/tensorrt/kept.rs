// SPDX-License-Identifier: MPL-2.0
//! Engines that stay in GPU memory between two users of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::engine::Engine;

static KEPT: Mutex<Kept> = Mutex::new(Kept { keepers: 0, engines: Vec::new() });

struct Kept {
    keepers: usize,
    engines: Vec<Arc<Engine>>,
}

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As long as there is one, engines that are used stay loaded until it is dropped: for one pipeline after the other with the same
/// model.
pub struct EngineKeeper(());

impl EngineKeeper {
    #[expect(clippy::new_without_default, reason = "it has an effect, and is no value")]
    pub fn new() -> Self {
        kept().keepers += 1;
        EngineKeeper(())
    }
}

impl Drop for EngineKeeper {
    fn drop(&mut self) {
        let mut kept = kept();
        kept.keepers -= 1;
        let unused = if kept.keepers == 0 { std::mem::take(&mut kept.engines) } else { Vec::new() };
        drop(kept); // to free an engine takes time
        drop(unused);
    }
}

/// An engine is used.
pub(super) fn note(engine: &Arc<Engine>) {
    let mut kept = kept();
    if kept.keepers > 0 && !kept.engines.iter().any(|other| Arc::ptr_eq(other, engine)) {
        kept.engines.push(engine.clone());
    }
}
