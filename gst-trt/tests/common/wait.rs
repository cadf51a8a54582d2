// SPDX-License-Identifier: MPL-2.0
//! Waiting for what programs say when they are asked.

use std::thread;
use std::time::{Duration, Instant};

#[path = "../../../core/tests/common/wait.rs"]
mod often;

#[allow(unused_imports)] // each test binary uses a part
pub use often::LIMIT;

/// Returns once the condition holds. To ask a service each millisecond takes a processor from what is waited for, so the pause grows
/// with the time that it takes, to 20 ms.
///
/// # Panics
/// Names what was waited for, where it does not come within the limit.
#[track_caller]
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    often::wait_until(what, limit, || {
        let holds = condition();
        if !holds {
            thread::park_timeout((begun.elapsed() / 16).min(Duration::from_millis(20)));
        }
        holds
    });
}
