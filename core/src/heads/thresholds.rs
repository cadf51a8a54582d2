// SPDX-License-Identifier: MPL-2.0
//! The least score of each class.

/// The least score with which a detection of a class passes.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    per_class: Vec<f32>,
    beyond: f32,
    least: f32,
}

impl Thresholds {
    /// In `per_class` to filter a class out: no finite score reaches it.
    pub const NEVER: f32 = f32::INFINITY;

    /// `per_class` in the order of the classes; those beyond the list have `beyond`.
    pub fn new(per_class: Vec<f32>, beyond: f32) -> Self {
        let least = per_class.iter().copied().fold(beyond, f32::min);
        Thresholds { per_class, beyond, least }
    }

    /// The same for all.
    pub fn uniform(score: f32) -> Self {
        Thresholds::new(Vec::new(), score)
    }

    /// The same for these classes, never for others.
    pub fn only(classes: &[u32], score: f32) -> Self {
        let count = classes.iter().max().map_or(0, |&last| last as usize + 1);
        let listed = |class| classes.contains(&(class as u32));
        Thresholds::new((0..count).map(|c| if listed(c) { score } else { Self::NEVER }).collect(), Self::NEVER)
    }

    #[inline]
    pub fn of(&self, class: u32) -> f32 {
        self.per_class.get(class as usize).copied().unwrap_or(self.beyond)
    }

    /// Of the classes in the list.
    pub fn per_class(&self) -> &[f32] {
        &self.per_class
    }

    /// Of those beyond it.
    pub fn beyond(&self) -> f32 {
        self.beyond
    }

    /// The least of all: lower scores pass for no class.
    pub fn least(&self) -> f32 {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_beyond_the_list_have_the_default() {
        let thresholds = Thresholds::new(vec![0.5, Thresholds::NEVER], 0.25);
        assert_eq!([0, 1, 2, u32::MAX].map(|class| thresholds.of(class)), [0.5, f32::INFINITY, 0.25, 0.25]);
        assert_eq!(thresholds.least(), 0.25);
    }

    #[test]
    fn only_some_classes_pass() {
        let thresholds = Thresholds::only(&[2, 0], 0.5);
        assert_eq!([0, 1, 2, 3].map(|class| thresholds.of(class)), [0.5, f32::INFINITY, 0.5, f32::INFINITY]);
        assert_eq!(Thresholds::only(&[], 0.5).least(), f32::INFINITY);
    }
}
