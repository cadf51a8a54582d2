// SPDX-License-Identifier: MPL-2.0
//! Frames that wait until a GPU has memory for them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gst::prelude::*;
use gsttrt_core::backends::Interrupted;
use gsttrt_core::backends::batcher::{CancelToken, MEMORY_PAUSE};

use super::report::Report;

/// Of one element. What lacks memory is no failure of the stream: others may give some back, and they play on meanwhile.
#[derive(Default)]
pub struct MemoryWait {
    was_told: AtomicBool,
    count: AtomicU64,
}

impl MemoryWait {
    /// The element starts again.
    pub fn reset(&self) {
        self.was_told.store(false, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
    }

    /// How often there was no memory.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Does the work of a frame, again and again as long as there is no memory for it. A flush or a change of state ends that.
    pub fn retry<T>(
        &self,
        element: &impl IsA<gst::Element>,
        token: &CancelToken,
        mut work: impl FnMut() -> Result<T, Interrupted>,
    ) -> Result<T, Interrupted> {
        let (mut pause, longest) = MEMORY_PAUSE;
        loop {
            match work() {
                Err(Interrupted::Failed(error)) if error.is_out_of_memory() => {
                    self.count.fetch_add(1, Ordering::Relaxed);
                    if !self.was_told.swap(true, Ordering::Relaxed) {
                        element.post_warning(&error.about("Frames wait until the GPU has memory for them"));
                    }
                    if !token.pause(pause) {
                        return Err(Interrupted::Flushing);
                    }
                    pause = (2 * pause).min(longest);
                }
                outcome => return outcome,
            }
        }
    }
}
