// SPDX-License-Identifier: MPL-2.0
//! Waiting for what nothing tells of.

use std::thread;
use std::time::{Duration, Instant};

/// Far more than anything takes that ends at all.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Returns once the condition holds. Looks every millisecond, which leaves the processor to what is waited for.
///
/// # Panics
/// Names what was waited for, where it does not come within the limit.
#[track_caller]
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < limit, "{what}: not within {limit:?}");
        thread::park_timeout(Duration::from_millis(1));
    }
}
