// SPDX-License-Identifier: MPL-2.0
//! When two tracks are the same object: properties of trtmatch, and keys of the service.

use super::links::{self, CameraLink};
use crate::options::{OptionKind, Setting, setting};

#[derive(Clone, Debug, PartialEq)]
pub struct IdentityOptions {
    /// Tracks that are less similar are two objects.
    pub threshold: f32,
    /// By how much the second object is to be less similar.
    pub margin: f32,
    /// Vectors of a track before it is asked about.
    pub looks: u32,
    /// Nanoseconds for which an object is known that no camera sees.
    pub max_age: u64,
    /// Objects that are known at a time.
    pub max_identities: u32,
    pub links: Vec<CameraLink>,
}

impl Default for IdentityOptions {
    fn default() -> Self {
        IdentityOptions {
            threshold: 0.7,
            margin: 0.05,
            looks: 3,
            max_age: 600_000_000_000,
            max_identities: 1000,
            links: Vec::new(),
        }
    }
}

/// All but the links.
pub static SETTINGS: [Setting<IdentityOptions>; 5] = [
    setting!(
        "identity-threshold",
        "Identity threshold",
        "Least similarity of an object to one that was seen before: the cosine of their mean vectors. Below it, it is a new one",
        OptionKind::Float(0.0..=1.0),
        threshold
    ),
    setting!(
        "identity-margin",
        "Identity margin",
        "By how much the most similar object must be more similar than the second one. With less, it is a new one",
        OptionKind::Float(0.0..=1.0),
        margin
    ),
    setting!(
        "identity-looks",
        "Identity looks",
        "Vectors that an object must have before it gets an id over cameras",
        OptionKind::UInt(1..=100),
        looks
    ),
    setting!(
        "identity-max-age",
        "Identity maximum age",
        "Time for which an object is known that no camera sees, in nanoseconds",
        OptionKind::UInt64,
        max_age
    ),
    setting!(
        "max-identities",
        "Maximum identities",
        "Objects that are known at a time; for one more, the one that was not seen for the longest time is forgotten",
        OptionKind::UInt(1..=100_000),
        max_identities
    ),
];

/// An option that differs: its name, and the value of each.
pub type Difference = (&'static str, String, String);

/// The first option that two have otherwise.
pub fn difference(one: &IdentityOptions, other: &IdentityOptions) -> Option<Difference> {
    let (mut one, mut other) = (one.clone(), other.clone());
    let of_settings = SETTINGS.iter().find_map(|setting| {
        let (first, second) = ((setting.field)(&mut one).value(), (setting.field)(&mut other).value());
        (first != second).then(|| (setting.spec.name, first.to_string(), second.to_string()))
    });
    let of_links = || (links::NAME, links::to_text(&one.links), links::to_text(&other.links));
    of_settings.or_else(|| (one.links != other.links).then(of_links))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let options = IdentityOptions::default();
        assert_eq!(difference(&options, &options), None);
        let other = IdentityOptions { margin: 0.5, looks: 9, ..options.clone() };
        assert_eq!(difference(&options, &other), Some(("identity-margin", "0.05".into(), "0.5".into())));
        let linked = IdentityOptions { links: links::parse("a,b:overlap").unwrap(), ..options.clone() };
        assert_eq!(difference(&linked, &options), Some(("camera-links", "a,b:overlap".into(), String::new())));
    }
}
