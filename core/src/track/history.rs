// SPDX-License-Identifier: MPL-2.0
//! What is known of objects with ids, from frame to frame.

use std::collections::HashMap;

/// A value for each object. Those of objects that are not seen for a while are dropped.
#[derive(Debug)]
pub struct History<T> {
    /// With the frame that the object was last seen in.
    known: HashMap<u64, (u64, T)>,
    frame: u64,
}

/// How many frames an object may be out of sight.
const KEPT: u64 = 300;

impl<T> Default for History<T> {
    fn default() -> Self {
        History { known: HashMap::new(), frame: 0 }
    }
}

impl<T> History<T> {
    /// Another frame follows.
    pub fn advance(&mut self) {
        self.frame += 1;
        if self.frame.is_multiple_of(KEPT) {
            let oldest = self.frame - KEPT;
            self.known.retain(|_, (seen, _)| *seen >= oldest);
        }
    }

    /// Frames so far.
    pub fn frame(&self) -> u64 {
        self.frame
    }

    /// What is known of an object that is seen in this frame.
    pub fn of(&mut self, id: u64) -> Option<&T> {
        let (seen, value) = self.known.get_mut(&id)?;
        *seen = self.frame;
        Some(value)
    }

    /// The same to be changed: of an object of which nothing is known yet, the default.
    pub fn entry(&mut self, id: u64) -> &mut T
    where
        T: Default,
    {
        let (seen, value) = self.known.entry(id).or_default();
        *seen = self.frame;
        value
    }

    pub fn insert(&mut self, id: u64, value: T) {
        self.known.insert(id, (self.frame, value));
    }

    pub fn forget(&mut self, id: u64) {
        self.known.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_out_of_sight_are_forgotten() {
        let mut history = History::default();
        (0..1000).for_each(|id| history.insert(id, id));
        for _ in 0..3 * KEPT {
            history.advance();
            assert_eq!(history.of(7), Some(&7), "it is seen in each frame");
        }
        assert_eq!(history.known.len(), 1);
        history.forget(7);
        assert_eq!(history.of(7), None);
        *history.entry(7) += 1;
        *history.entry(7) += 1;
        assert_eq!(history.of(7), Some(&2));
    }
}
