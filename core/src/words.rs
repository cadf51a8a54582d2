// SPDX-License-Identifier: MPL-2.0
//! Words that users write.

/// The known word that an unknown one was probably meant to be; `None` where none is near.
pub fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    /// Long words are compared by their beginnings.
    const MAX_LENGTH: usize = 64;
    const NEAR: f64 = 0.6;
    let plain: String = unknown.to_lowercase().replace(['_', ' '], "-").chars().take(MAX_LENGTH).collect();
    let likeness = |word: &&'a str| (strsim::normalized_damerau_levenshtein(&plain, word), *word);
    let best = known.iter().map(likeness).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(likeness, _)| *likeness >= NEAR).map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_seen() {
        let known = ["zones", "tripwires", "object-retention", "id"];
        for (unknown, expected) in [
            ("zone", Some("zones")),
            ("tripwire", Some("tripwires")),
            ("trpiwires", Some("tripwires")),
            ("object_retention", Some("object-retention")),
            ("Zones", Some("zones")),
            ("ids", Some("id")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(unknown, &known), expected, "{unknown}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 20), &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
