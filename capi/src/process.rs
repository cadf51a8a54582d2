// SPDX-License-Identifier: MPL-2.0
//! Processes that were forked from one with models. They have neither the threads that run these nor a usable GPU, and a call
//! would never end.

use std::process;

use gsttrt_core::backends::loading_process;
use gsttrt_core::error::{Error, ErrorKind, Result};

/// Refuses to load and to run models in a process that was forked after one was loaded, or could not be.
pub(crate) fn check() -> Result<()> {
    match loading_process() {
        Some(owner) if owner != process::id() => {
            Err(Error::new(ErrorKind::Library, "Models cannot be used in this process")
                .cause("it was forked from one that had loaded a model, or had tried to, and does not have its threads")
                .remedy(
                    "Load no model before the fork, or spawn processes: in Python by \
                     multiprocessing.set_start_method(\"spawn\")",
                ))
        }
        _ => Ok(()),
    }
}
