// SPDX-License-Identifier: MPL-2.0
//! The tokenizer of CLIP (Radford et al. 2021, [arXiv:2103.00020](https://arxiv.org/abs/2103.00020), 2.4): byte-pair encoding of
//! lower-case words (Sennrich et al. 2016, [arXiv:1508.07909](https://arxiv.org/abs/1508.07909)) over bytes, each of which has a
//! printable character (Radford et al. 2019, GPT-2).
//!
//! What Unicode says of characters is asked of GLib, which is in this program anyway. Rust's own library does not tell letters from
//! the marks between them, and knows no composed forms.

use std::collections::HashMap;
use std::iter::once;

use gst::glib::{NormalizeMode, Unichar, UnicodeType, normalize};

/// What the last part of a word ends with.
pub const END_OF_WORD: &str = "</w>";

/// Before the first token of a text, and behind the last one.
pub const START: &str = "<|startoftext|>";
pub const END: &str = "<|endoftext|>";

/// Bytes of a text: ten times what the longest context takes.
const MAX_TEXT: usize = 2048;

/// Endings that are words of their own.
const CONTRACTIONS: [&str; 7] = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];

/// The tokens of texts, as numbers that a model was trained with.
pub struct Tokenizer {
    /// Parts of words with their numbers.
    pub ids: HashMap<String, u32>,
    /// Two parts with a space between them, and how early they were joined when the vocabulary was made.
    pub ranks: HashMap<String, u32>,
    pub start: u32,
    pub end: u32,
    /// What texts are filled up with.
    pub padding: u32,
    /// Tokens of a text, start and end included, where the files say it.
    pub context: Option<usize>,
}

impl Tokenizer {
    /// The tokens of a text, from the start to the end, without padding.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        if text.len() > MAX_TEXT {
            return Err(format!("it is longer than {MAX_TEXT} bytes. Use fewer words"));
        }
        let composed = normalize(text, NormalizeMode::DefaultCompose);
        let plain: String = composed.chars().flat_map(char::to_lowercase).collect();
        // The model would take it for the end of the text.
        if let Some(token) = [START, END].into_iter().find(|token| plain.contains(token)) {
            return Err(format!("it has {token}, which is a token of its own. Leave it out"));
        }
        let symbols = symbols();
        let parts = words(&plain).into_iter().flat_map(|word| self.parts(word, &symbols));
        let id = |part: String| {
            let id = self.ids.get(&part).copied();
            let remedy = "Use other words, or give the tokenizer of this model, by --tokenizer";
            id.ok_or_else(|| format!("the vocabulary of its tokenizer lacks “{part}”. {remedy}"))
        };
        once(Ok(self.start)).chain(parts.map(id)).chain(once(Ok(self.end))).collect()
    }

    /// The parts of a word: first its bytes, of which those two are joined, wherever they stand, that were joined first when the
    /// vocabulary was made, until no two of them were joined.
    fn parts(&self, word: &str, symbols: &[char; 256]) -> Vec<String> {
        let mut parts: Vec<String> = word.bytes().map(|byte| symbols[usize::from(byte)].to_string()).collect();
        if let Some(last) = parts.last_mut() {
            last.push_str(END_OF_WORD);
        }
        let rank = |left: &str, right: &str| self.ranks.get(&format!("{left} {right}")).copied();
        while let Some(first) = parts.windows(2).filter_map(|pair| rank(&pair[0], &pair[1])).min() {
            let mut joined: Vec<String> = Vec::with_capacity(parts.len());
            // One of two that were joined just now waits for the next round.
            let mut was_joined = false;
            for part in parts {
                let is_pair = |last: &String| !was_joined && rank(last, &part) == Some(first);
                was_joined = joined.last().is_some_and(is_pair);
                match joined.last_mut().filter(|_| was_joined) {
                    Some(last) => last.push_str(&part),
                    None => joined.push(part),
                }
            }
            parts = joined;
        }
        parts
    }
}

/// The character that each byte has in a vocabulary: those that can be seen have their own, the others those from U+0100 on.
fn symbols() -> [char; 256] {
    let mut unseen = ('\u{100}'..).take(256);
    std::array::from_fn(|byte| match u8::try_from(byte) {
        Ok(seen @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)) => char::from(seen),
        _ => unseen.next().unwrap_or(char::REPLACEMENT_CHARACTER),
    })
}

/// The kinds of characters that the words of CLIP are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CharacterClass {
    Letter,
    Number,
    Space,
    Other,
}

impl CharacterClass {
    fn of(c: char) -> Self {
        match c.unicode_type() {
            UnicodeType::LowercaseLetter
            | UnicodeType::UppercaseLetter
            | UnicodeType::TitlecaseLetter
            | UnicodeType::ModifierLetter
            | UnicodeType::OtherLetter => CharacterClass::Letter,
            UnicodeType::DecimalNumber | UnicodeType::LetterNumber | UnicodeType::OtherNumber => CharacterClass::Number,
            _ if c.is_whitespace() => CharacterClass::Space,
            _ => CharacterClass::Other,
        }
    }
}

/// The words of a text: contractions, letters in a row, each digit, and other characters in a row. Spaces are between them.
fn words(text: &str) -> Vec<&str> {
    let (mut rest, mut words) = (text, Vec::new());
    while let Some(first) = rest.chars().next() {
        let class = CharacterClass::of(first);
        let length = match CONTRACTIONS.iter().find(|ending| rest.starts_with(**ending)) {
            Some(ending) => ending.len(),
            None if class == CharacterClass::Number => first.len_utf8(),
            None => rest.find(|c| CharacterClass::of(c) != class).unwrap_or(rest.len()),
        };
        let (word, behind) = rest.split_at(length);
        if class != CharacterClass::Space {
            words.push(word);
        }
        rest = behind;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joins of CLIP's vocabulary with their places in its list: those that its tokenizer needs for some words. The numbers of tokens
    /// follow from them: 512 of bytes come first, then a token for each join.
    const JOINS: [(&str, &str, u32); 56] = [
        ("r", "e", 3),
        ("s", "t", 10),
        ("o", "r", 11),
        ("o", "n</w>", 13),
        ("e", "r</w>", 16),
        ("t", "o</w>", 19),
        ("a", "t</w>", 24),
        ("o", "f</w>", 27),
        ("e", "l", 32),
        ("s", "t</w>", 33),
        ("l", "o", 37),
        ("n", "e", 45),
        ("ð", "Ł", 46),
        ("r", "a", 47),
        ("'", "s</w>", 56),
        ("i", "t</w>", 73),
        ("y", "o", 74),
        ("yo", "u</w>", 80),
        ("w", "e", 86),
        ("h", "o", 94),
        ("a", "r</w>", 113),
        ("d", "o", 127),
        ("w", "or", 129),
        ("ðŁ", "ĺ", 156),
        ("a", "f", 190),
        ("'", "t</w>", 201),
        ("l", "d</w>", 218),
        ("re", "d</w>", 224),
        ("r", "e</w>", 298),
        ("p", "ho", 304),
        ("el", "l", 314),
        ("d", "on</w>", 335),
        ("'", "re</w>", 470),
        ("wor", "ld</w>", 490),
        ("lo", "w", 537),
        ("pho", "to</w>", 613),
        ("we", "st</w>", 1081),
        ("c", "ar</w>", 1103),
        ("st", "ra", 1382),
        ("do", "g</w>", 1417),
        ("c", "at</w>", 1856),
        ("ell", "o</w>", 2000),
        ("à", "¤", 2612),
        ("h", "ello</w>", 2794),
        ("c", "af", 2959),
        ("Ã", "©</w>", 3654),
        ("low", "er</w>", 4397),
        ("ne", "west</w>", 4478),
        ("!", "?</w>", 5492),
        ("ðŁĺ", "Ģ</w>", 6822),
        ("caf", "Ã©</w>", 14792),
        ("æ", "ľ", 18765),
        ("æ", "Ĺ", 21753),
        ("à¤", "¿</w>", 26209),
        ("à¤", "¹</w>", 28934),
        ("æĹ", "¥", 38609),
    ];

    /// CLIP's tokenizer, as far as these words go.
    fn clip() -> Tokenizer {
        let bytes = symbols();
        // In the order of its vocabulary: what can be seen first.
        let seen = bytes.iter().filter(|&&c| c < '\u{100}').chain(bytes.iter().filter(|&&c| c >= '\u{100}'));
        let single: Vec<String> = seen.map(char::to_string).collect();
        let last = single.iter().map(|symbol| format!("{symbol}{END_OF_WORD}"));
        let mut ids: HashMap<String, u32> = single.iter().cloned().chain(last).zip(0..).collect();
        ids.extend(JOINS.map(|(left, right, rank)| (format!("{left}{right}"), 512 + rank)));
        let ranks = JOINS.iter().map(|(left, right, rank)| (format!("{left} {right}"), *rank)).collect();
        Tokenizer { ids, ranks, start: 49406, end: 49407, padding: 49407, context: Some(77) }
    }

    fn inner(text: &str) -> Vec<u32> {
        let ids = clip().encode(text).unwrap();
        assert_eq!((ids[0], ids[ids.len() - 1]), (49406, 49407), "{text}");
        ids[1..ids.len() - 1].to_vec()
    }

    /// The numbers are those that OpenAI's tokenizer and that of Hugging Face's `tokenizers` give with the whole vocabulary.
    #[test]
    fn tokens_are_those_of_clip() {
        for (text, ids) in [
            ("a photo of a cat", &[320, 1125, 539, 320, 2368][..]),
            ("a red car", &[320, 736, 1615]),
            ("A Red\u{a0} CAR", &[320, 736, 1615]),
            ("dog", &[1929]),
            ("don't", &[847, 713]),
            ("you're", &[592, 982]),
            ("it's 2024!?", &[585, 568, 273, 271, 273, 275, 6004]),
            ("hello, world.", &[3306, 267, 1002, 269]),
            ("a café", &[320, 15304]),
            ("cafe\u{301}", &[15304]),
            ("straße", &[1894, 127, 253, 324]),
            ("ё", &[141, 495]),
            ("हि", &[29446, 26721]),
            ("日本", &[39121, 19277, 361]),
            ("😀", &[7334]),
            ("lower newest", &[4909, 4990]),
            ("", &[]),
            (" ", &[]),
        ] {
            assert_eq!(inner(text), ids, "{text}");
        }
    }

    #[test]
    fn texts_are_divided_into_words() {
        for (text, expected) in [
            ("a red car", &["a", "red", "car"][..]),
            ("it's 2024!?", &["it", "'s", "2", "0", "2", "4", "!?"]),
            ("we'll they've i'm he'd", &["we", "'ll", "they", "'ve", "i", "'m", "he", "'d"]),
            ("rock'n'roll", &["rock", "'", "n", "'", "roll"]),
            ("\"'s", &["\"'", "s"]),
            (" \t\u{a0}\u{3000}\n", &[]),
            ("x\u{2003}y", &["x", "y"]),
            // Marks between letters are no letters, and letters that are numbers are numbers.
            ("हि", &["ह", "\u{93f}"]),
            ("ⅳⅳ½", &["ⅳ", "ⅳ", "½"]),
            ("日本語", &["日本語"]),
            ("a_b-c", &["a", "_", "b", "-", "c"]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let tokenizer = clip();
        let said = |text: &str| tokenizer.encode(text).unwrap_err();
        assert!(said("a <|EndOfText|> b").contains("<|endoftext|>, which is a token of its own. Leave it out"));
        assert!(said(&"x".repeat(MAX_TEXT + 1)).contains("longer than 2048 bytes"));
        let few = Tokenizer { ids: HashMap::from([("a</w>".into(), 1)]), ..clip() };
        assert_eq!(few.encode("a a").unwrap(), [49406, 1, 1, 49407]);
        assert!(few.encode("a b").unwrap_err().contains("lacks “b</w>”"));
        // A long word takes no long time.
        assert_eq!(inner(&"a".repeat(MAX_TEXT)).len(), MAX_TEXT);
    }
}
