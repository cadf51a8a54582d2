// SPDX-License-Identifier: MPL-2.0
//! What an element gets from another one. Where it never comes there are no results, and nothing else would tell why.

/// After so many frames without it, an element may be missing.
pub const FRAMES_WITHOUT: u32 = 60;

/// Frames without it so far, until one has it, or that is said.
#[derive(Debug)]
pub struct Awaited(Option<u32>);

impl Default for Awaited {
    fn default() -> Self {
        Awaited(Some(0))
    }
}

impl Awaited {
    /// What is never missed.
    pub fn nothing() -> Self {
        Awaited(None)
    }

    /// Takes in a frame. One that cannot have it does not count, such as a frame without objects.
    pub fn see(&mut self, has: bool, may_have: bool) {
        if has {
            self.0 = None;
        } else if let Some(frames) = self.0.as_mut().filter(|_| may_have) {
            *frames += 1;
        }
    }

    /// Whether it has not come for long; true once.
    pub fn take_overdue(&mut self) -> bool {
        self.0.take_if(|frames| *frames >= FRAMES_WITHOUT).is_some()
    }
}
