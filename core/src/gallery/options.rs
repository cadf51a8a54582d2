// SPDX-License-Identifier: MPL-2.0
//! When a vector shows somebody who is known: properties of trtmatch.

use super::Likeness;
use crate::options::{Choices, OptionKind, OptionSpec, Setting, choices, setting};

/// What compares vectors with a gallery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchDevice {
    #[default]
    Auto,
    Cpu,
    Cuda,
}

choices! {
    MatchDevice, "GstTrtMatchDevice":
    MatchDevice::Auto => "auto" "The GPU that other elements work on, for a gallery from 2,048 vectors of 512 numbers on; else the CPU"
    MatchDevice::Cpu => "cpu" "The CPU"
    MatchDevice::Cuda => "cuda" "A GPU, for any gallery"
}

pub static DEVICE: OptionSpec = OptionSpec {
    name: "device",
    nick: "Device",
    blurb: "What compares vectors with the gallery; the names are the same",
    kind: MatchDevice::KIND,
};

#[derive(Clone, Debug, PartialEq)]
pub struct MatchOptions {
    /// Below that similarity nobody is known.
    pub threshold: f32,
    /// By how much the second name is to be less similar.
    pub margin: f32,
    /// The maximum number of names of an object.
    pub top_k: u32,
}

impl Default for MatchOptions {
    fn default() -> Self {
        MatchOptions { threshold: 0.5, margin: 0.0, top_k: 1 }
    }
}

pub static SETTINGS: [Setting<MatchOptions>; 3] = [
    setting!(
        "threshold",
        "Threshold",
        "Least similarity to a vector of the gallery: the cosine, 1 of the same vector. Objects below it stay unknown",
        OptionKind::Float(0.0..=1.0),
        threshold
    ),
    setting!(
        "margin",
        "Margin",
        "By how much the best name must be more similar than the second one. Objects with less stay unknown",
        OptionKind::Float(0.0..=1.0),
        margin
    ),
    setting!(
        "top-k",
        "Top k",
        "Maximum number of names of an object, the most similar first",
        OptionKind::UInt(1..=100),
        top_k
    ),
];

/// Of the names that a vector is most like, at least two where there are so many: those that pass. None where the first is not
/// similar enough, or the second is nearly as similar.
pub fn recognised<'a>(found: &'a [Likeness], options: &MatchOptions) -> &'a [Likeness] {
    let passes = |found: &&Likeness| found.similarity >= options.threshold;
    let lead = match found {
        [first, second, ..] => first.similarity - second.similarity,
        _ => f32::INFINITY,
    };
    if lead < options.margin {
        return &[];
    }
    &found[..found.iter().take(options.top_k as usize).take_while(passes).count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_pass_a_threshold_and_a_margin() {
        let found = [(4, 0.875), (7, 0.75), (1, 0.5)].map(|(name, similarity)| Likeness { name, similarity });
        let names = |found: &[Likeness], threshold, margin, top_k| {
            let options = MatchOptions { threshold, margin, top_k };
            recognised(found, &options).iter().map(|found| found.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&found, 0.5, 0.0, 9), [4, 7, 1]);
        assert_eq!(names(&found, 0.5, 0.0, 1), [4]);
        assert_eq!(names(&found, 0.625, 0.0, 9), [4, 7]);
        assert_eq!(names(&found, 0.875, 0.125, 9), [4], "both are inclusive");
        assert_eq!(names(&found, 0.9, 0.0, 9), [0; 0]);
        assert_eq!(names(&found, 0.5, 0.25, 9), [0; 0], "it may be 7 as well");
        assert_eq!(names(&found[..1], 0.5, 0.25, 9), [4], "there is no other");
        assert_eq!(names(&[], 0.0, 0.0, 9), [0; 0]);
    }
}
