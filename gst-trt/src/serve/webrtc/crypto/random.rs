// SPDX-License-Identifier: MPL-2.0
//! Random numbers of the system.

use std::sync::LazyLock;

use ring::rand::{SecureRandom, SystemRandom};

/// The system gives no random numbers, or a key of ours is none.
#[derive(Debug)]
pub struct Unusable;

impl From<ring::error::Unspecified> for Unusable {
    fn from(_: ring::error::Unspecified) -> Self {
        Unusable
    }
}

impl From<ring::error::KeyRejected> for Unusable {
    fn from(_: ring::error::KeyRejected) -> Self {
        Unusable
    }
}

pub fn random() -> &'static SystemRandom {
    static RANDOM: LazyLock<SystemRandom> = LazyLock::new(SystemRandom::new);
    &RANDOM
}

pub fn fill(bytes: &mut [u8]) -> Result<(), Unusable> {
    Ok(random().fill(bytes)?)
}
