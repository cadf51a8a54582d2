// SPDX-License-Identifier: MPL-2.0
//! Which bytes of a tensor are there.

use std::collections::BTreeMap;

use gsttrt_core::error::{Error, Result};

use super::wrong;

/// Pieces of so many bytes, of which none overlaps or touches another.
pub(super) struct Pieces {
    bytes: usize,
    /// Where each begins and ends.
    ends: BTreeMap<usize, usize>,
}

impl Pieces {
    pub fn new(bytes: usize) -> Self {
        Pieces { bytes, ends: BTreeMap::new() }
    }

    /// Maximum number of pieces. With it, these notes are small compared with the bytes, however the chunks are cut.
    fn maximum(&self) -> usize {
        (self.bytes / 256).max(1024)
    }

    /// Notes a chunk.
    ///
    /// # Errors
    /// `WrongType`, if it is empty, overlaps another one, ends beyond the tensor or makes too many pieces. Nothing is
    /// noted then.
    pub fn add(&mut self, at: usize, count: usize) -> Result<()> {
        let end = at.checked_add(count).filter(|&end| end <= self.bytes).ok_or_else(|| self.beyond(at, count))?;
        if count == 0 {
            return Err(wrong(format!("a chunk at {at} has no bytes")).remedy("Leave such chunks out"));
        }
        // Of the pieces that begin before the chunk ends, only the last can reach into it or up to it.
        let before = self.ends.range(..end).next_back().map(|(&from, &to)| (from, to));
        if let Some((from, to)) = before.filter(|&(_, to)| to > at) {
            return Err(overlap(at, end, from.max(at), to.min(end)));
        }
        let grown = before.filter(|&(_, to)| to == at);
        let from = grown.map_or(at, |(from, _)| from);
        if grown.is_none() && !self.ends.contains_key(&end) && self.ends.len() >= self.maximum() {
            return Err(wrong(format!("what has arrived is in {} pieces", self.ends.len()))
                .remedy("Send larger chunks, or more of them in order"));
        }
        let to = self.ends.remove(&end).unwrap_or(end);
        self.ends.insert(from, to);
        Ok(())
    }

    fn beyond(&self, at: usize, count: usize) -> Error {
        wrong(format!("a chunk of {count} bytes from {at} on ends beyond its {} bytes", self.bytes))
            .remedy("Announce it with all its dimensions, and count offsets in bytes")
    }
}

fn overlap(at: usize, end: usize, from: usize, to: usize) -> Error {
    wrong(format!("of a chunk from {at} to {end}, the bytes from {from} to {to} are there already"))
        .remedy("Send every byte once")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(result: Result<()>) -> String {
        result.unwrap_err().message()
    }

    #[test]
    fn neighbours_become_one_piece() {
        let mut pieces = Pieces::new(10);
        for (at, count, there) in [(4, 2, 1), (0, 2, 2), (8, 2, 3), (2, 2, 2), (6, 2, 1)] {
            pieces.add(at, count).unwrap();
            assert_eq!(pieces.ends.len(), there, "{at}");
        }
        assert_eq!(pieces.ends, BTreeMap::from([(0, 10)]));
    }

    #[test]
    fn what_is_no_good_is_said_and_not_noted() {
        let mut pieces = Pieces::new(10);
        pieces.add(3, 4).unwrap();
        for (at, count, said) in [
            (8, 3, "a chunk of 3 bytes from 8 on ends beyond its 10 bytes"),
            (usize::MAX, 2, "ends beyond"),
            (11, 0, "ends beyond"),
            (5, 0, "a chunk at 5 has no bytes"),
            (3, 4, "of a chunk from 3 to 7, the bytes from 3 to 7 are there already"),
            (0, 10, "of a chunk from 0 to 10, the bytes from 3 to 7 are there already"),
            (0, 4, "the bytes from 3 to 4"),
            (6, 4, "the bytes from 6 to 7"),
            (4, 1, "the bytes from 4 to 5"),
        ] {
            let found = text(pieces.add(at, count));
            assert!(found.contains(said), "{found}");
        }
        assert_eq!(pieces.ends, BTreeMap::from([(3, 7)]));
    }

    #[test]
    fn the_notes_are_bounded() {
        let mut pieces = Pieces::new(5000);
        (0..1024).for_each(|i| pieces.add(2 * i, 1).unwrap());
        assert!(text(pieces.add(4000, 1)).contains("in 1024 pieces"));
        pieces.add(1, 1).unwrap(); // a chunk that joins two is accepted
        pieces.add(4000, 1).unwrap();
    }

    proptest! {
        #[test]
        fn pieces_are_what_a_list_of_bytes_says(chunks in prop::collection::vec((0usize..70, 0usize..12), 0..60)) {
            let (mut pieces, mut there) = (Pieces::new(64), [false; 64]);
            for (at, count) in chunks {
                let range = there.get_mut(at..at + count);
                let good = range.filter(|range| count > 0 && !range.contains(&true)).map(|range| range.fill(true));
                prop_assert_eq!(pieces.add(at, count).is_ok(), good.is_some());
            }
            let found: Vec<bool> = (0..64).map(|i| pieces.ends.iter().any(|(&from, &to)| (from..to).contains(&i))).collect();
            prop_assert_eq!(&found[..], &there[..]);
            let runs = there.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
            prop_assert_eq!(pieces.ends.len(), runs);
        }
    }
}
