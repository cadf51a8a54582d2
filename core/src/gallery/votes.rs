// SPDX-License-Identifier: MPL-2.0
//! The name of an object that is seen in several frames.

use super::Likeness;

/// What a vote still counts at the next look: some 30 looks decide.
const FADING: f32 = 0.97;

/// A name with a smaller share of all looks is forgotten, as after some 150 looks that were at others.
const LEAST_SHARE: f32 = 0.0003;

/// What the looks at an object have said. Each votes for the name that it is most like, by its similarity. A look that recognises
/// nobody votes for nobody, by the threshold that it has missed.
///
/// A look counts by the square root of its quality, which is an area times a confidence: by the side of the box. What is far away is
/// seen in few pixels, and is easily taken for another.
#[derive(Clone, Debug, Default)]
pub struct Votes {
    /// The most votes first.
    names: Vec<NameVotes>,
    nobody: f32,
    /// Of all looks, also those that have recognised nobody.
    weight: f32,
}

#[derive(Clone, Copy, Debug)]
struct NameVotes {
    name: u32,
    votes: f32,
    /// Of the looks that they are of.
    weight: f32,
}

/// What a look counts. A box without a size, as foreign elements may give, is a look, too.
fn weight_of(quality: f32) -> f32 {
    if quality.is_finite() { quality.max(1.0).sqrt() } else { 1.0 }
}

impl Votes {
    /// Takes in what a look has [recognised](super::recognised): the most similar name first, or none. Its quality is the area of the
    /// box in pixels times its confidence.
    pub fn add(&mut self, look: &[Likeness], threshold: f32, quality: f32) {
        let weight = weight_of(quality);
        self.nobody *= FADING;
        self.weight = self.weight * FADING + weight;
        for known in &mut self.names {
            known.votes *= FADING;
            known.weight *= FADING;
        }
        match look.first() {
            None => self.nobody += weight * threshold,
            Some(&Likeness { name, similarity }) => match self.names.iter_mut().find(|known| known.name == name) {
                Some(known) => {
                    known.votes += weight * similarity;
                    known.weight += weight;
                }
                None => self.names.push(NameVotes { name, votes: weight * similarity, weight }),
            },
        }
        let least = self.weight * LEAST_SHARE;
        self.names.retain(|known| known.weight > least);
        // Stable: of equals the one that was there before.
        self.names.sort_by(|a, b| b.votes.total_cmp(&a.votes));
    }

    /// The names with more votes than nobody has, the most first, with the mean similarity of their looks.
    pub fn decision(&self) -> impl Iterator<Item = Likeness> {
        let passing = self.names.iter().take_while(|known| known.votes > self.nobody);
        passing.map(|known| Likeness { name: known.name, similarity: known.votes / known.weight })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: Likeness = Likeness { name: 0, similarity: 0.75 };
    const BOB: Likeness = Likeness { name: 1, similarity: 0.75 };

    fn decided(looks: impl IntoIterator<Item = Option<Likeness>>) -> Vec<u32> {
        let mut votes = Votes::default();
        looks.into_iter().for_each(|look| votes.add(look.as_slice(), 0.5, 1.0));
        votes.decision().map(|found| found.name).collect()
    }

    /// A box of 100x100 pixels, and one of 4x4.
    const LARGE: f32 = 10_000.0;
    const SMALL: f32 = 16.0;

    #[test]
    fn large_looks_count_more_than_small_ones() {
        let sure = Likeness { similarity: 1.0, ..BOB };
        let decided = |looks: &[(Option<Likeness>, f32)]| {
            let mut votes = Votes::default();
            looks.iter().for_each(|(look, quality)| votes.add(look.as_slice(), 0.5, *quality));
            votes.decision().map(|found| found.name).collect::<Vec<u32>>()
        };
        assert_eq!(decided(&[(Some(ADA), LARGE), (Some(sure), SMALL)]), [0, 1]);
        assert_eq!(decided(&[(Some(sure), SMALL), (Some(ADA), LARGE)]), [0, 1]);
        let several = std::iter::repeat_n((Some(sure), SMALL), 9).collect::<Vec<_>>();
        assert_eq!(decided(&[&[(Some(ADA), LARGE)][..], &several].concat())[0], 0);
        let stranger = std::iter::repeat_n((None, SMALL), 9).collect::<Vec<_>>();
        assert_eq!(decided(&[&[(Some(ADA), LARGE)][..], &stranger].concat()), [0], "too far away to be recognised");
        assert_eq!(decided(&[(None, LARGE), (Some(sure), SMALL)]), [0; 0]);
        // In the end what is seen now decides.
        let many = std::iter::repeat_n((Some(sure), SMALL), 200).collect::<Vec<_>>();
        assert_eq!(decided(&[&[(Some(ADA), LARGE)][..], &many].concat())[0], 1);
        for odd in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert_eq!(decided(&[(Some(ADA), odd)]), [0], "{odd}");
        }
        let mut votes = Votes::default();
        [(ADA, LARGE), (Likeness { similarity: 0.5, ..ADA }, SMALL)].iter().for_each(|&(look, quality)| {
            votes.add(&[look], 0.5, quality);
        });
        let mean = votes.decision().next().unwrap().similarity;
        assert!((0.73..0.75).contains(&mean), "{mean}: of the looks by what they count");
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
            votes.add(&[Likeness { name, similarity: 0.5 }], 0.5, 1.0);
        }
        assert!(votes.names.len() < 200, "{}", votes.names.len());
        votes = Votes::default();
        (0..1000).for_each(|_| votes.add(&[ADA], 0.5, LARGE));
        let found: Vec<Likeness> = votes.decision().collect();
        assert!((found[0].similarity - 0.75).abs() < 1e-4, "{found:?}");
    }
}
