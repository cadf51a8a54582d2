// SPDX-License-Identifier: MPL-2.0
//! Waiting for the GPU where time is taken.

use gsttrt::core::cuda::driver::Fence;
use gsttrt::core::error::Result;

/// Waits awake. A fence's own wait mostly naps, by a sixteenth too long and more, which would be part of what is measured.
pub fn wait_awake(fence: &Fence) -> Result<()> {
    while !fence.is_passed() {
        std::hint::spin_loop();
    }
    fence.wait()
}
