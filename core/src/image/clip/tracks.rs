// SPDX-License-Identifier: MPL-2.0
//! The last pictures of each object of a stream, as many as a clip has.

use std::collections::{HashMap, VecDeque};

/// Keeps every n-th picture of each object, and lets the oldest one go once there are as many as a clip has. Objects are told apart
/// by their ids.
#[derive(Debug)]
pub struct TrackRings<T> {
    rings: HashMap<u64, TrackRing<T>>,
    /// Pictures of a clip.
    count: usize,
    /// From one of them to the next in the stream.
    step: u64,
    /// It is vectors that are kept, and the step counts those of an object: frames may have none.
    are_vectors: bool,
    /// So many objects are kept.
    limit: usize,
    /// Frames so far, with those that are missing.
    frame: u64,
}

#[derive(Debug)]
struct TrackRing<T> {
    kept: VecDeque<T>,
    /// From this frame on the next picture is kept.
    next: u64,
    /// So many vectors pass before the next one is kept.
    ahead: u64,
    /// The last frame with the object.
    seen: u64,
    /// Whether there was a whole clip since it was empty.
    was_full: bool,
}

/// Clips that were begun and given up, where there was never a whole one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenUpClips {
    pub clips: usize,
    /// How many pictures the longest of them had.
    pub longest: usize,
}

impl GivenUpClips {
    fn add(&mut self, pictures: usize) {
        self.clips += 1;
        self.longest = self.longest.max(pictures);
    }
}

/// Of one clip, by its pictures.
impl From<Option<usize>> for GivenUpClips {
    fn from(pictures: Option<usize>) -> Self {
        GivenUpClips { clips: pictures.is_some().into(), longest: pictures.unwrap_or(0) }
    }
}

impl<T> TrackRings<T> {
    /// Of `limit` objects at most, so that there is an end to the memory for them.
    pub fn new(count: usize, step: u32, limit: usize) -> Self {
        let (count, step) = (count.max(1), u64::from(step.max(1)));
        TrackRings { rings: HashMap::new(), count, step, are_vectors: false, limit, frame: 0 }
    }

    /// The same for vectors, which another model makes of some frames: the step counts the vectors of an object, in place of frames.
    pub fn of_vectors(self) -> Self {
        TrackRings { are_vectors: true, ..self }
    }

    /// Of so many objects at most.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Of so many objects at most from the next frame on.
    pub fn limit_to(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Another frame comes, and so many are missing before it: they were dropped on the way. The pictures of objects that were away for
    /// as long as a clip lasts are let go.
    pub fn advance(&mut self, missing: u32) -> GivenUpClips {
        self.frame += 1 + u64::from(missing);
        let (frame, span) = (self.frame, self.step * self.count as u64);
        self.let_go(|ring| frame - ring.seen > span)
    }

    /// The frame has these objects, each of them once. Where there are too many with those of before, the ones that are away for longest
    /// are let go; of several the ones with the fewest pictures.
    pub fn arrive(&mut self, ids: &[u64]) -> GivenUpClips {
        let frame = self.frame;
        for &id in ids {
            let new = || TrackRing { kept: VecDeque::new(), next: frame, ahead: 0, seen: frame, was_full: false };
            self.rings.entry(id).or_insert_with(new).seen = frame;
        }
        let mut given_up = GivenUpClips::default();
        let excess = self.rings.len().saturating_sub(self.limit);
        if excess == 0 {
            return given_up;
        }
        let away = self.rings.iter().filter(|(_, ring)| ring.seen < frame);
        let mut away: Vec<(u64, usize, u64)> = away.map(|(&id, ring)| (ring.seen, ring.kept.len(), id)).collect();
        away.sort_unstable();
        for (_, _, id) in away.into_iter().take(excess) {
            if let Some(mut ring) = self.rings.remove(&id) {
                ring.end(&mut given_up);
            }
        }
        given_up
    }

    /// Whether pictures of an object are kept.
    pub fn has_begun(&self, id: u64) -> bool {
        self.rings.get(&id).is_some_and(|ring| !ring.kept.is_empty())
    }

    /// Whether the picture of an object in this frame is one of its clip. Of vectors that may be each.
    pub fn wants(&self, id: u64) -> bool {
        self.rings.get(&id).is_some_and(|ring| ring.next <= self.frame)
    }

    /// Whether the vector that an object has in this frame is one of its sequence.
    pub fn is_step(&self, id: u64) -> bool {
        self.rings.get(&id).is_some_and(|ring| ring.ahead == 0)
    }

    /// An object has a vector that is none of its sequence.
    pub fn pass(&mut self, id: u64) {
        if let Some(ring) = self.rings.get_mut(&id) {
            ring.ahead = ring.ahead.saturating_sub(1);
        }
    }

    /// Whether a clip of the object ends with the next picture that is kept.
    pub fn is_next_full(&self, id: u64) -> bool {
        self.rings.get(&id).is_some_and(|ring| ring.kept.len() + 1 >= self.count)
    }

    /// Keeps a picture that is wanted. Returns whether there is a whole clip, which ends with it.
    pub fn push(&mut self, id: u64, picture: T) -> bool {
        let Some(ring) = self.rings.get_mut(&id) else { return false };
        if ring.kept.len() == self.count {
            ring.kept.pop_front();
        }
        ring.kept.push_back(picture);
        match self.are_vectors {
            true => ring.ahead = self.step - 1,
            false => ring.next = self.frame + self.step,
        }
        let is_full = ring.kept.len() == self.count;
        ring.was_full |= is_full;
        is_full
    }

    /// Those of an object that are kept, in the order in which they came.
    pub fn pictures(&self, id: u64) -> impl Iterator<Item = &T> {
        self.rings.get(&id).into_iter().flat_map(|ring| &ring.kept)
    }

    /// Lets all objects go.
    pub fn clear(&mut self) -> GivenUpClips {
        self.let_go(|_| true)
    }

    /// Lets all pictures go, of objects that have arrived and are about to get new ones.
    pub fn clear_pictures(&mut self) -> GivenUpClips {
        let mut given_up = GivenUpClips::default();
        for ring in self.rings.values_mut() {
            ring.end(&mut given_up);
        }
        given_up
    }

    fn let_go(&mut self, is_over: impl Fn(&TrackRing<T>) -> bool) -> GivenUpClips {
        let mut given_up = GivenUpClips::default();
        self.rings.retain(|_, ring| {
            let is_over = is_over(ring);
            if is_over {
                ring.end(&mut given_up);
            }
            !is_over
        });
        given_up
    }
}

impl<T> TrackRing<T> {
    fn end(&mut self, given_up: &mut GivenUpClips) {
        if !self.was_full && !self.kept.is_empty() {
            given_up.add(self.kept.len());
        }
        self.kept.clear();
        (self.ahead, self.was_full) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: GivenUpClips = GivenUpClips { clips: 0, longest: 0 };

    /// A frame with these objects, after so many that are missing. Gives the clips that end with it, by the numbers of their frames.
    fn next(rings: &mut TrackRings<u64>, missing: u32, ids: &[u64]) -> Vec<(u64, Vec<u64>)> {
        rings.advance(missing);
        rings.arrive(ids);
        let number = rings.frame;
        let mut full = Vec::new();
        for &id in ids {
            if rings.wants(id) && rings.push(id, number) {
                full.push((id, rings.pictures(id).copied().collect()));
            }
        }
        full
    }

    #[test]
    fn each_object_has_a_clip_of_its_own() {
        let mut rings = TrackRings::new(3, 1, 10);
        let frames: [&[u64]; 5] = [&[7], &[7, 8], &[7, 8], &[8], &[8, 7]];
        let found = frames.map(|ids| next(&mut rings, 0, ids));
        let wanted = [
            vec![],
            vec![],
            vec![(7, vec![1, 2, 3])],
            vec![(8, vec![2, 3, 4])],
            // It was away in one frame.
            vec![(8, vec![3, 4, 5]), (7, vec![2, 3, 5])],
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_step_counts_from_the_first_picture_of_the_object() {
        let mut rings = TrackRings::new(2, 2, 10);
        let frames: [&[u64]; 6] = [&[7], &[7, 8], &[7, 8], &[7, 8], &[], &[7, 8]];
        let found = frames.map(|ids| next(&mut rings, 0, ids));
        // The object 7 is to be kept in the frame 5, in which it is not; the next one takes its place.
        let wanted = [
            vec![],
            vec![],
            vec![(7, vec![1, 3])],
            vec![(8, vec![2, 4])],
            vec![],
            vec![(7, vec![3, 6]), (8, vec![4, 6])],
        ];
        assert_eq!(found, wanted);
        assert_eq!(next(&mut rings, 1, &[7]), [(7, vec![6, 8])], "a frame was dropped");
    }

    #[test]
    fn the_step_counts_the_vectors_of_an_object() {
        let mut rings = TrackRings::new(2, 2, 10).of_vectors();
        let mut kept = Vec::new();
        // It is there in each frame, and has a vector in each third one.
        for number in 0..13u64 {
            rings.advance(0);
            rings.arrive(&[7]);
            assert!(rings.wants(7), "its vector is looked for");
            if !number.is_multiple_of(3) {
                continue;
            }
            match rings.is_step(7) {
                true if rings.push(7, number) => kept.push(rings.pictures(7).copied().collect::<Vec<_>>()),
                true => {}
                false => rings.pass(7),
            }
        }
        assert_eq!(kept, [[0, 6], [6, 12]]);
        rings.pass(9);
        assert!(!rings.is_step(9), "it is not there");
    }

    #[test]
    fn an_object_that_was_away_for_a_clip_begins_again() {
        for (missing, wanted) in [(1, vec![(7, vec![2, 4])]), (2, vec![])] {
            let mut rings = TrackRings::new(2, 1, 10);
            assert_eq!([next(&mut rings, 0, &[7]).len(), next(&mut rings, 0, &[7]).len()], [0, 1]);
            assert_eq!(next(&mut rings, missing, &[7]), wanted);
        }
        // The same where frames come without it.
        let mut rings = TrackRings::new(2, 1, 10);
        next(&mut rings, 0, &[7]);
        assert_eq!(
            [rings.advance(0), rings.advance(0), rings.advance(0)],
            [NONE, NONE, GivenUpClips { clips: 1, longest: 1 }]
        );
        assert!(rings.rings.is_empty(), "nothing is kept of it");
    }

    #[test]
    fn too_many_objects_are_let_go_the_longest_away_first() {
        let mut rings = TrackRings::new(3, 1, 3);
        next(&mut rings, 0, &[1]);
        next(&mut rings, 0, &[2, 3]);
        rings.advance(0);
        assert_eq!(rings.arrive(&[3, 4]), GivenUpClips { clips: 1, longest: 1 });
        let mut kept: Vec<u64> = rings.rings.keys().copied().collect();
        kept.sort_unstable();
        assert_eq!(kept, [2, 3, 4]);
        rings.advance(0);
        rings.arrive(&[5, 6, 7]);
        assert_eq!(rings.rings.len(), 3, "those of the frame itself stay");
    }

    /// They are all away since the same frame.
    #[test]
    fn no_more_objects_are_let_go_than_are_too_many() {
        let mut rings = TrackRings::new(3, 1, 3);
        for ids in [&[1, 3][..], &[1, 2, 3], &[4]] {
            next(&mut rings, 0, ids);
        }
        let begun = [1, 2, 3, 4, 5].map(|id| rings.has_begun(id));
        assert_eq!(begun, [true, false, true, true, false], "the one with the fewest pictures is gone");
    }

    #[test]
    fn a_frame_that_is_tried_again_changes_nothing() {
        let mut rings = TrackRings::new(2, 2, 10);
        next(&mut rings, 0, &[7]);
        rings.advance(0);
        rings.advance(0);
        for _ in 0..3 {
            assert_eq!(rings.arrive(&[7, 8]), NONE);
            assert!(rings.wants(7) && rings.wants(8) && rings.is_next_full(7) && !rings.is_next_full(8));
        }
        assert!(rings.push(7, 3) && !rings.push(8, 3));
        assert!(!rings.wants(7) && !rings.wants(8));
        assert!(!rings.wants(9) && !rings.is_next_full(9) && !rings.push(9, 3), "it is not there");
    }

    #[test]
    fn what_never_became_a_clip_is_told_once() {
        let mut rings = TrackRings::new(3, 1, 10);
        assert_eq!(rings.clear(), NONE);
        for ids in [&[1, 2][..], &[1, 2, 3], &[1]] {
            next(&mut rings, 0, ids);
        }
        // The first was a whole clip.
        assert_eq!(rings.clear_pictures(), GivenUpClips { clips: 2, longest: 2 });
        assert_eq!(rings.clear(), NONE);
        assert_eq!(GivenUpClips::from(Some(4)), GivenUpClips { clips: 1, longest: 4 });
        assert_eq!(GivenUpClips::from(None), NONE);
    }
}
