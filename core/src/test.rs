// SPDX-License-Identifier: MPL-2.0
//! What unit tests share.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cuda::driver::Context;

#[path = "../tests/common/wait.rs"]
mod wait;
#[allow(unused_imports)] // each crate uses a part
pub(crate) use wait::{LIMIT, wait_until};
#[allow(dead_code)]
#[path = "../tests/common/compiled.rs"]
mod compiled;
#[allow(unused_imports)]
pub(crate) use compiled::library;
#[allow(dead_code)]
#[path = "../tests/common/scratch.rs"]
mod scratch;
#[allow(unused_imports)]
pub(crate) use scratch::scratch;
#[allow(dead_code)]
#[path = "../tests/common/cases.rs"]
mod cases;
#[allow(unused_imports)]
pub(crate) use cases::cases;
#[allow(dead_code)]
#[path = "../tests/common/npy.rs"]
pub(crate) mod npy;
#[allow(dead_code)]
#[path = "../tests/common/npz.rs"]
mod npz;
#[allow(unused_imports)]
pub(crate) use npz::npz;
#[allow(dead_code)]
#[path = "../tests/common/random.rs"]
pub(crate) mod random;

/// A GPU for a test; where there is none, the test prints that it is skipped, and fails if there has to be one
/// (`REQUIRE_GPU`).
pub(crate) fn gpu() -> Option<Context> {
    Context::primary(0).map_err(|error| skip(&error)).ok()
}

/// Prints that a test, or a part of it, is skipped.
pub(crate) fn skip(why: &dyn std::fmt::Display) {
    assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1"), "{why}");
    println!("SKIP: {why}");
}

/// Threads that wait, for tests that need them to: counted up under the lock that the wait releases, so that a test
/// that has seen the count and then gets the lock knows that they wait.
#[derive(Default)]
pub(crate) struct Waiters(AtomicUsize);

impl Waiters {
    /// The thread waits as long as the result is there.
    pub fn enter(&self) -> impl Drop + '_ {
        struct Waiting<'a>(&'a Waiters);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.0.fetch_add(1, Ordering::SeqCst);
        Waiting(self)
    }

    /// How many wait now.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns once so many wait.
    pub fn wait_for(&self, count: usize) {
        wait_until("threads that wait", LIMIT, || self.count() >= count);
    }
}
