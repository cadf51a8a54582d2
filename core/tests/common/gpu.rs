// SPDX-License-Identifier: MPL-2.0
//! How tests that need a GPU behave without one.

use std::fmt::Display;
use std::process::Command;

use gsttrt_core::cuda::driver::{Context, available};

/// Prints SKIP and what is missing, and fails instead with `REQUIRE_GPU=1`.
pub fn skip(missing: impl Display) {
    assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1"), "{missing}");
    println!("SKIP: {missing}");
}

/// Whether a test sees no GPU. Where there is one, that test is run in a process from which it is hidden, and has
/// nothing left to do in this one.
pub fn is_hidden(test: &str) -> bool {
    const HIDE: (&str, &str) = ("CUDA_VISIBLE_DEVICES", "");
    if available().is_err() {
        return true;
    }
    assert_ne!(std::env::var(HIDE.0).as_deref(), Ok(HIDE.1), "the GPU is hidden");
    let mut hidden = Command::new(std::env::current_exe().unwrap());
    let output = hidden.args(["--exact", test, "--nocapture"]).env(HIDE.0, HIDE.1).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    false
}

/// The value of an environment variable, if it is set.
pub fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The first GPU; without one it prints that.
pub fn context() -> Option<Context> {
    Context::primary(0).map_err(skip).ok()
}
