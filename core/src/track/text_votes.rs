// SPDX-License-Identifier: MPL-2.0
//! The text of an object that is read in several frames.

/// What a read still counts at the next one: some 30 reads decide.
const FADING: f32 = 0.97;

/// What counts less than that is forgotten.
const FEWEST: f32 = 0.01;

/// Characters of a text that is voted on.
const LONGEST: usize = 256;

/// What the reads of an object have said. Each votes for its length, and for a character in each place of texts of that length, by its
/// confidence. So the text that wins may be one that no read has had.
#[derive(Clone, Debug, Default)]
pub struct TextVotes {
    lengths: Vec<LengthVotes>,
}

/// The votes of reads of one length.
#[derive(Clone, Debug)]
struct LengthVotes {
    /// The characters of each place with their votes.
    places: Vec<Vec<(char, f32)>>,
    votes: f32,
    /// How many reads they are of.
    reads: f32,
}

impl TextVotes {
    /// Takes in what was read, with its confidence. Nothing read is no vote, and neither is a text of more than 256 characters.
    pub fn add(&mut self, text: &str, confidence: f32) {
        let characters: Vec<char> = text.chars().take(LONGEST + 1).collect();
        if !(1..=LONGEST).contains(&characters.len()) {
            return;
        }
        self.lengths.iter_mut().for_each(LengthVotes::fade);
        self.lengths.retain(|known| known.reads > FEWEST);
        let known = self.lengths.iter().position(|known| known.places.len() == characters.len());
        let index = known.unwrap_or_else(|| {
            self.lengths.push(LengthVotes { places: vec![Vec::new(); characters.len()], votes: 0.0, reads: 0.0 });
            self.lengths.len() - 1
        });
        let vote = if confidence.is_finite() { confidence.clamp(FEWEST, 1.0) } else { FEWEST };
        self.lengths[index].add(&characters, vote);
    }

    /// The text with the most votes, and the mean confidence with which its characters were read. `None` before the first read.
    pub fn decision(&self) -> Option<(String, f32)> {
        // Of equals, what was there first.
        let most = self.lengths.iter().reduce(|most, other| if other.votes > most.votes { other } else { most })?;
        let winners = most
            .places
            .iter()
            .filter_map(|place| place.iter().reduce(|most, other| if other.1 > most.1 { other } else { most }));
        let (text, votes): (String, Vec<f32>) = winners.copied().unzip();
        let confidence = votes.iter().sum::<f32>() / (most.reads * votes.len().max(1) as f32);
        Some((text, confidence))
    }
}

impl LengthVotes {
    fn fade(&mut self) {
        self.votes *= FADING;
        self.reads *= FADING;
        for place in &mut self.places {
            place.iter_mut().for_each(|(_, votes)| *votes *= FADING);
            // Those that win have more.
            place.retain(|(_, votes)| *votes > FEWEST * FEWEST * FEWEST);
        }
    }

    fn add(&mut self, characters: &[char], vote: f32) {
        self.votes += vote;
        self.reads += 1.0;
        for (place, &character) in self.places.iter_mut().zip(characters) {
            match place.iter_mut().find(|(known, _)| *known == character) {
                Some((_, votes)) => *votes += vote,
                None => place.push((character, vote)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(reads: &[&str]) -> String {
        let mut votes = TextVotes::default();
        reads.iter().for_each(|read| votes.add(read, 0.75));
        votes.decision().map_or(String::new(), |(text, _)| text)
    }

    #[test]
    fn most_reads_decide_each_place() {
        assert_eq!(decided(&[]), "");
        assert_eq!(decided(&["", "AB"]), "AB");
        assert_eq!(decided(&["ABC", "XBC", "AXC", "ABX"]), "ABC");
        assert_eq!(decided(&["XBC", "AXC", "ABX"]), "ABC", "no read had all of it");
        assert_eq!(decided(&["ABCD", "ABC", "ABX", "XBC"]), "ABC", "the length is voted on too");
        assert_eq!(decided(&["ÄÖ", "ÄÖ", "AO"]), "ÄÖ");
        let mut votes = TextVotes::default();
        [("A", 0.5), ("B", 1.0), ("A", 0.25)].into_iter().for_each(|(read, confidence)| votes.add(read, confidence));
        assert_eq!(votes.decision().unwrap().0, "B", "one surer read against two");
        votes.add("B", f32::NAN);
        assert!(votes.decision().unwrap().1.is_finite());
        let mut votes = TextVotes::default();
        (0..50).for_each(|_| votes.add("AB", 0.75));
        let (_, confidence) = votes.decision().unwrap();
        assert!((confidence - 0.75).abs() < 1e-4, "{confidence}");
    }

    #[test]
    fn old_reads_fade_and_endless_ones_are_forgotten() {
        let change = |before: usize, after: usize| decided(&[vec!["old"; before], vec!["new"; after]].concat());
        assert_eq!([change(1000, 10), change(1000, 40)], ["old", "new"]);
        let mut votes = TextVotes::default();
        for number in 0..3000 {
            let character = char::from_u32(0x4E00 + number).unwrap();
            votes.add(&character.to_string().repeat(1 + number as usize % 90), 0.5);
        }
        let kept: usize = votes.lengths.iter().flat_map(|length| &length.places).map(Vec::len).sum();
        assert!(kept < 100_000, "{kept}");
        votes.add(&"x".repeat(10_000), 1.0);
        assert!(votes.lengths.iter().all(|length| length.places.len() <= LONGEST));
    }

    /// Three of ten reads are wrong: characters that are others, missing or too many.
    #[test]
    fn plates_are_right_with_three_of_ten_reads_wrong() {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        const PLATES: usize = 1000;
        let mut state = 7u64;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % limit as u64) as usize
        };
        let mut right = 0;
        for _ in 0..PLATES {
            let length = 5 + below(4);
            let plate: Vec<u8> = (0..length).map(|_| ALPHABET[below(ALPHABET.len())]).collect();
            let mut is_wrong = [true, true, true, false, false, false, false, false, false, false];
            (1..10).rev().for_each(|last| is_wrong.swap(last, below(last + 1)));
            let mut votes = TextVotes::default();
            for is_wrong in is_wrong {
                let mut read = plate.clone();
                if is_wrong {
                    match below(4) {
                        0 => {
                            read.remove(below(length));
                        }
                        1 => read.insert(below(length + 1), ALPHABET[below(ALPHABET.len())]),
                        count => (0..count).for_each(|_| read[below(length)] = ALPHABET[below(ALPHABET.len())]),
                    }
                }
                votes.add(std::str::from_utf8(&read).unwrap(), 0.5 + below(50) as f32 / 100.0);
            }
            right += usize::from(votes.decision().unwrap().0.as_bytes() == plate);
        }
        assert!(right >= PLATES * 99 / 100, "{right} of {PLATES}");
    }
}
