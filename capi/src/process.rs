// SPDX-License-Identifier: MPL-2.0
//! Processes that were forked from one with models. They have neither the threads that run these nor a usable GPU, and a call
//! would never end.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use gsttrt_core::error::{Error, ErrorKind, Result};

/// The id of the process that loaded a model first; 0 if none has.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Refuses to load and to run models in a process that was forked after one was loaded.
pub(crate) fn check() -> Result<()> {
    match OWNER.load(Ordering::Relaxed) {
        owner if owner == 0 || owner == process::id() => Ok(()),
        _ => Err(Error::new(ErrorKind::Library, "Models cannot be used in this process")
            .cause("it was forked from one that had loaded a model, and does not have its threads")
            .remedy(
                "Load no model before the fork, or spawn processes: in Python by \
                 multiprocessing.set_start_method(\"spawn\")",
            )),
    }
}

/// Models belong to this process from now on.
pub(crate) fn has_loaded() {
    OWNER.store(process::id(), Ordering::Relaxed);
}
