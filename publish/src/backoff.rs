// SPDX-License-Identifier: MPL-2.0
//! How long to wait before the next attempt: twice as long each time, with a random part, so that clients do not return
//! together.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    next: Duration,
    longest: Duration,
    random: u64,
}

impl Backoff {
    /// Begins with a tenth of a second.
    pub(crate) fn new(longest: Duration) -> Self {
        Self::between(FIRST, longest)
    }

    pub fn between(first: Duration, longest: Duration) -> Self {
        // The standard library's hashers have random keys.
        let random = RandomState::new().hash_one(longest) | 1;
        let first = first.min(longest);
        Backoff { first, next: first, longest, random }
    }

    /// It has worked: the next failure is the first one again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// The time to wait now: between a half and all of what doubles with each call.
    pub fn wait(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.longest);
        // Xorshift, good enough to spread clients.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let share = (self.random >> 11) as f64 / (1u64 << 53) as f64;
        whole.mul_f64(0.5 + 0.5 * share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let longest = Duration::from_secs(2);
        let mut backoff = Backoff::new(longest);
        for round in 0..20 {
            let whole = (FIRST * 2u32.pow(round)).min(longest);
            let wait = backoff.wait();
            assert!((whole / 2..=whole).contains(&wait), "{round}: {wait:?}");
        }
        backoff.reset();
        assert!(backoff.wait() <= FIRST);
        let waits: Vec<_> = (0..8).map(|_| Backoff::new(longest).wait()).collect();
        assert!(waits.iter().any(|wait| *wait != waits[0]), "all wait as long: {waits:?}");
    }
}
