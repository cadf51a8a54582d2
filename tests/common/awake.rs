// SPDX-License-Identifier: MPL-2.0
//! Waits for the GPU in measurements.

use gsttrt_core::cuda::driver::Fence;
use gsttrt_core::error::Result;

/// Waits without sleeping. A fence's own wait sleeps, up to a sixteenth too long or more, which would be measured too.
pub fn wait_awake(fence: &Fence) -> Result<()> {
    while !fence.is_passed() {
        std::hint::spin_loop();
    }
    fence.wait()
}
