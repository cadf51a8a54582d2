// SPDX-License-Identifier: MPL-2.0
//! The name of an object that is seen in several frames.

use super::Likeness;

/// What a vote still counts at the next look: some 30 looks decide.
const FADING: f32 = 0.97;

/// A name with fewer looks than that is forgotten.
const FEWEST: f32 = 0.01;

/// What the looks at an object have said. Each votes for the name that it is most like, by its similarity. A look that recognises
/// nobody votes for nobody, by the threshold that it has missed.
#[derive(Clone, Debug, Default)]
pub struct Votes {
    /// The most votes first.
    names: Vec<NameVotes>,
    nobody: f32,
}

#[derive(Clone, Copy, Debug)]
struct NameVotes {
    name: u32,
    votes: f32,
    /// How many looks they are of.
    looks: f32,
}

impl Votes {
    /// Takes in what a look has [recognised](super::recognised): the most similar name first, or none.
    pub fn add(&mut self, look: &[Likeness], threshold: f32) {
        self.nobody *= FADING;
        for known in &mut self.names {
            known.votes *= FADING;
            known.looks *= FADING;
        }
        match look.first() {
            None => self.nobody += threshold,
            Some(&Likeness { name, similarity }) => match self.names.iter_mut().find(|known| known.name == name) {
                Some(known) => {
                    known.votes += similarity;
                    known.looks += 1.0;
                }
                None => self.names.push(NameVotes { name, votes: similarity, looks: 1.0 }),
            },
        }
        self.names.retain(|known| known.looks > FEWEST);
        // Stable: of equals the one that was there before.
        self.names.sort_by(|a, b| b.votes.total_cmp(&a.votes));
    }

    /// The names with more votes than nobody has, the most first, with the mean similarity of their looks.
    pub fn decision(&self) -> impl Iterator<Item = Likeness> {
        let passing = self.names.iter().take_while(|known| known.votes > self.nobody);
        passing.map(|known| Likeness { name: known.name, similarity: known.votes / known.looks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: Likeness = Likeness { name: 0, similarity: 0.75 };
    const BOB: Likeness = Likeness { name: 1, similarity: 0.75 };

    fn decided(looks: impl IntoIterator<Item = Option<Likeness>>) -> Vec<u32> {
        let mut votes = Votes::default();
        looks.into_iter().for_each(|look| votes.add(look.as_slice(), 0.5));
        votes.decision().map(|found| found.name).collect()
    }

    #[test]
    fn most_looks_decide() {
        assert_eq!(decided([]), [0; 0]);
        assert_eq!(decided([Some(ADA)]), [0]);
        assert_eq!(decided([Some(BOB), Some(ADA), Some(ADA)]), [0, 1]);
        // The wrong name in three of ten looks.
        let looks = [BOB, ADA, ADA, BOB, ADA, ADA, ADA, BOB, ADA, ADA];
        assert_eq!(decided(looks.map(Some))[0], 0);
        // One surer look against two.
        let sure = Likeness { similarity: 1.0, ..BOB };
        assert_eq!(decided([Some(sure), Some(ADA), Some(ADA)])[0], 0);
        assert_eq!(decided([Some(sure), Some(ADA)])[0], 1);
    }

    #[test]
    fn looks_that_recognise_nobody_vote_too() {
        assert_eq!(decided([None, None]), [0; 0]);
        assert_eq!(decided([Some(ADA), None]), [0]);
        assert_eq!(decided([Some(ADA), None, None]), [0; 0], "a stranger who looked like her once");
        assert_eq!(decided([None, None, Some(ADA), Some(ADA)]), [0]);
    }

    #[test]
    fn old_votes_fade() {
        let change = |before: usize, after: usize| {
            let looks = std::iter::repeat_n(Some(ADA), before).chain(std::iter::repeat_n(Some(BOB), after));
            decided(looks)[0]
        };
        assert_eq!([change(1000, 10), change(1000, 40)], [0, 1], "it is another one by now");
        let mut votes = Votes::default();
        for name in 0..10_000 {
            votes.add(&[Likeness { name, similarity: 0.5 }], 0.5);
        }
        assert!(votes.names.len() < 200, "{}", votes.names.len());
        votes = Votes::default();
        (0..1000).for_each(|_| votes.add(&[ADA], 0.5));
        let found: Vec<Likeness> = votes.decision().collect();
        assert!((found[0].similarity - 0.75).abs() < 1e-4, "{found:?}");
    }
}
