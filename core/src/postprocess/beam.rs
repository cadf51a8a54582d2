// SPDX-License-Identifier: MPL-2.0
//! Prefix beam search over the steps of connectionist temporal classification.
//!
//! The best character of each step is the most probable way through the steps. A text has many ways: characters last longer or
//! shorter, and blanks lie between them. The search adds the ways up and keeps the most probable beginnings of texts: algorithm 1 of
//! Hannun, Maas, Jurafsky and Ng, “First-Pass Large Vocabulary Continuous Speech Recognition using Bi-Directional Recurrent DNNs” (2014),
//! without a language model.
//!
//! Of equals the one that was found first counts, and of equal characters of a step the one with the lower number. So a text depends
//! on nothing but the numbers.

use std::collections::HashMap;

/// A beginning of a text: another one, and a character behind it.
struct TextPrefix {
    parent: u32,
    character: u32,
    /// The greatest probability of the character in the steps in which this was kept.
    peak: f32,
}

/// The beginning without a character. It is a prefix with the number 0.
const EMPTY: u32 = 0;
/// Its parent and its character.
const NOTHING: u32 = u32::MAX;

/// The probability of all ways to a prefix, by what they end with.
#[derive(Clone, Copy)]
struct PrefixWays {
    /// Its parent and its last character, which are those of no other one.
    key: (u32, u32),
    blank: f64,
    character: f64,
}

impl PrefixWays {
    fn all(&self) -> f64 {
        self.blank + self.character
    }
}

/// The search for one text.
pub(super) struct BeamSearch {
    /// How many prefixes are kept.
    width: usize,
    /// Which score of a step is that of the blank.
    blank: usize,
    prefixes: Vec<TextPrefix>,
    /// The number of each prefix by its key. None is there twice, also if it was lost meanwhile.
    numbers: HashMap<(u32, u32), u32>,
    /// Those that are kept, the most probable first.
    kept: Vec<(u32, PrefixWays)>,
    /// Those of the next step, and where each is.
    next: Vec<PrefixWays>,
    places: HashMap<(u32, u32), usize>,
    /// Characters of a step.
    best: Vec<u32>,
}

impl BeamSearch {
    pub fn new(width: usize, blank: usize) -> Self {
        let root = (NOTHING, NOTHING);
        BeamSearch {
            width: width.max(1),
            blank,
            prefixes: vec![TextPrefix { parent: NOTHING, character: NOTHING, peak: 0.0 }],
            numbers: HashMap::from([(root, EMPTY)]),
            kept: vec![(EMPTY, PrefixWays { key: root, blank: 1.0, character: 0.0 })],
            next: Vec::new(),
            places: HashMap::new(),
            best: Vec::new(),
        }
    }

    /// A step of which nothing is known: what comes behind it is another character.
    pub fn pass(&mut self) {
        for (_, ways) in &mut self.kept {
            (ways.blank, ways.character) = (ways.all(), 0.0);
        }
    }

    /// A step with these probabilities, which are finite.
    pub fn step(&mut self, probabilities: &[f32]) {
        let of = |character: u32| f64::from(probabilities[character as usize]).max(0.0);
        self.choose_characters(probabilities);
        self.next.clear();
        self.places.clear();
        for at in 0..self.kept.len() {
            let (number, ways) = self.kept[at];
            let last = self.prefixes[number as usize].character;
            let (blank, character) = (ways.blank, ways.character);
            let stays = if last == NOTHING { 0.0 } else { character * of(last) };
            self.add(ways.key, ways.all() * of(self.blank as u32), stays);
            for place in 0..self.best.len() {
                let next = self.best[place];
                // A character twice has a blank between.
                let before = if next == last { blank } else { blank + character };
                let longer = before * of(next);
                if longer > 0.0 {
                    self.add((number, next), 0.0, longer);
                }
            }
        }
        self.next.sort_by(|a, b| b.all().total_cmp(&a.all()));
        self.next.truncate(self.width);
        let sum: f64 = self.next.iter().map(PrefixWays::all).sum();
        if sum <= 0.0 {
            return self.pass();
        }
        self.kept.clear();
        for ways in &self.next {
            let (parent, character) = ways.key;
            let prefixes = &mut self.prefixes;
            let number = *self.numbers.entry(ways.key).or_insert_with(|| {
                prefixes.push(TextPrefix { parent, character, peak: 0.0 });
                (prefixes.len() - 1) as u32
            });
            if character != NOTHING {
                let peak = &mut prefixes[number as usize].peak;
                *peak = peak.max(probabilities[character as usize]);
            }
            // Without the division the numbers of a long text would become 0.
            let ways = PrefixWays { key: ways.key, blank: ways.blank / sum, character: ways.character / sum };
            self.kept.push((number, ways));
        }
    }

    /// The most probable text: the numbers of its characters, and the mean of their probabilities, each the greatest that its character
    /// has had. 0 of none.
    pub fn text(&self) -> (Vec<usize>, f32) {
        let (mut characters, mut sum) = (Vec::new(), 0.0);
        let mut prefix = &self.prefixes[self.kept.first().map_or(EMPTY, |(number, _)| *number) as usize];
        while prefix.character != NOTHING {
            characters.push(prefix.character as usize);
            sum += prefix.peak;
            prefix = &self.prefixes[prefix.parent as usize];
        }
        characters.reverse();
        let count = characters.len();
        (characters, if count == 0 { 0.0 } else { sum / count as f32 })
    }

    /// The characters that can make a prefix that is kept: of those that follow a prefix only the most probable ones come among the kept
    /// ones, but for its own last character, and those of others whose way this is too.
    fn choose_characters(&mut self, probabilities: &[f32]) {
        let wanted = self.width + 1;
        let order = |a: &u32, b: &u32| {
            let (left, right) = (probabilities[*a as usize], probabilities[*b as usize]);
            right.total_cmp(&left).then(a.cmp(b))
        };
        self.best.clear();
        self.best.extend((0..probabilities.len() as u32).filter(|&character| character as usize != self.blank));
        if self.best.len() > wanted {
            self.best.select_nth_unstable_by(wanted - 1, order);
            self.best.truncate(wanted);
        }
        for (number, _) in &self.kept {
            let last = self.prefixes[*number as usize].character;
            if last != NOTHING && !self.best.contains(&last) {
                self.best.push(last);
            }
        }
        self.best.sort_unstable_by(order);
    }

    /// Adds ways to a prefix of the next step.
    fn add(&mut self, key: (u32, u32), blank: f64, character: f64) {
        let next = &mut self.next;
        let place = *self.places.entry(key).or_insert_with(|| {
            next.push(PrefixWays { key, blank: 0.0, character: 0.0 });
            next.len() - 1
        });
        let ways = &mut self.next[place];
        ways.blank += blank;
        ways.character += character;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::random::Random;

    fn found(width: usize, blank: usize, steps: &[Vec<f32>]) -> (Vec<usize>, f32) {
        let mut search = BeamSearch::new(width, blank);
        steps.iter().for_each(|step| search.step(step));
        search.text()
    }

    /// The probability of each text by all ways through the steps.
    fn all_texts(blank: usize, steps: &[Vec<f32>]) -> HashMap<Vec<usize>, f64> {
        let mut texts: HashMap<Vec<usize>, f64> = HashMap::new();
        let count = steps[0].len();
        for way in 0..count.pow(steps.len() as u32) {
            let characters: Vec<usize> = (0..steps.len()).map(|at| way / count.pow(at as u32) % count).collect();
            let chance = characters.iter().zip(steps).map(|(&at, step)| f64::from(step[at])).product::<f64>();
            let mut text = characters.clone();
            text.dedup();
            text.retain(|&character| character != blank);
            *texts.entry(text).or_default() += chance;
        }
        texts
    }

    #[test]
    fn ways_to_the_same_text_add_up() {
        // The best of each step is the blank, 0.36 in total; the three ways to “a” have 0.64.
        let steps = [vec![0.6, 0.4], vec![0.6, 0.4]];
        let (text, confidence) = found(2, 0, &steps);
        assert!(text == [1] && (confidence - 0.4).abs() < 1e-6, "{text:?} {confidence}");
        assert_eq!(found(2, 1, &[vec![0.4, 0.6], vec![0.4, 0.6]]).0, [0], "the blank may be the last");
    }

    #[test]
    fn the_text_is_the_most_probable_one() {
        let mut random = Random(7);
        for round in 0..60 {
            let blank = round % 3;
            let step = |random: &mut Random| {
                let values: Vec<f32> = (0..3).map(|_| random.below(64) as f32 + 1.0).collect();
                let sum: f32 = values.iter().sum();
                values.iter().map(|value| value / sum).collect::<Vec<f32>>()
            };
            let steps: Vec<Vec<f32>> = (0..5).map(|_| step(&mut random)).collect();
            let texts = all_texts(blank, &steps);
            let most = texts.values().copied().fold(0.0, f64::max);
            // As many are kept as there are texts.
            let (text, _) = found(200, blank, &steps);
            assert!((texts[&text] - most).abs() < 1e-9, "{round}: {text:?} has {} and not {most}", texts[&text]);
        }
    }

    #[test]
    fn a_character_twice_needs_a_blank_between() {
        let one = |at: usize| (0..3).map(|character| if character == at { 1.0 } else { 0.0 }).collect::<Vec<f32>>();
        assert_eq!(found(5, 0, &[one(1), one(1), one(2)]), (vec![1, 2], 1.0));
        assert_eq!(found(5, 0, &[one(1), one(0), one(1)]), (vec![1, 1], 1.0));
        let mut search = BeamSearch::new(5, 0);
        search.step(&one(1));
        search.pass();
        search.step(&one(1));
        assert_eq!(search.text().0, [1, 1], "a step of which nothing is known is between");
    }

    #[test]
    fn long_texts_and_steps_without_a_probability_do_no_harm() {
        let row = |at: usize| (0..40).map(|character| if character == at { 0.05 } else { 0.02 }).collect::<Vec<f32>>();
        let steps: Vec<Vec<f32>> = (0..3000).map(|at| row(at % 40)).collect();
        let (text, confidence) = found(4, 0, &steps);
        assert!(text.len() > 1000 && confidence > 0.0, "{} {confidence}", text.len());
        assert_eq!(found(3, 0, &[vec![0.0; 3], vec![0.0; 3]]), (vec![], 0.0));
        assert_eq!(found(3, 0, &[]), (vec![], 0.0));
        assert_eq!(found(3, 0, &[vec![-1.0, 0.5, -1.0]]).0, [1], "less than nothing is nothing");
    }
}
