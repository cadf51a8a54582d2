// SPDX-License-Identifier: MPL-2.0
//! Which frames are inferred where only those with motion are.

use gsttrt_core::error::Result;
use gsttrt_core::image::motion::{MotionGate, MotionOptions};

use crate::gst::meta::tensor::StillFrames;

/// A frame may be tried again, for lack of memory or by upstream: it is a part of the background once.
pub struct MotionFilter {
    gate: MotionGate,
    asked: StillFrames,
    /// Whether there is motion in the frame that is tried again.
    found: Option<bool>,
}

impl MotionFilter {
    pub fn new(options: MotionOptions) -> Self {
        MotionFilter { gate: MotionGate::new(options), asked: StillFrames::default(), found: None }
    }

    /// Whether the frame is to be inferred; `look` looks for motion in it, once for each frame.
    pub fn opens(&mut self, look: impl FnOnce(&mut MotionGate) -> Result<bool>) -> Result<bool> {
        if let Some(found) = self.found {
            return Ok(found);
        }
        // Looked at in any case: it is a part of the background.
        let opens = look(&mut self.gate)? | self.asked.take();
        self.found = Some(opens);
        Ok(opens)
    }

    /// The frame passes as a still one. What comes downstream may ask for the next frame by what is returned.
    pub fn pass(&mut self) -> StillFrames {
        self.found = None;
        self.asked.clone()
    }

    /// The frame has its tensors.
    pub fn done(&mut self) {
        self.found = None;
    }

    /// The next frame has nothing to do with those before.
    pub fn forget(&mut self) {
        self.gate.reset();
        self.found = None;
    }
}
