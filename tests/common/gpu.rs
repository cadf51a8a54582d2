//! What tests that need a GPU do where there is none.

use std::fmt::Display;

use gsttrt::core::cuda::driver::Context;

/// Says SKIP and what is missing, and fails instead with `REQUIRE_GPU=1`.
pub fn skip(missing: impl Display) {
    assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1"), "{missing}");
    println!("SKIP: {missing}");
}

/// What a variable of the environment says, if anything.
pub fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The first GPU, or a word that there is none.
pub fn context() -> Option<Context> {
    Context::primary(0).map_err(skip).ok()
}
