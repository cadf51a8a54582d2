// SPDX-License-Identifier: MPL-2.0
//! Counts by class.

use super::config::WatchedClasses;
use super::geometry::CrossingDirection;

/// The classes that have been seen.
#[derive(Clone, Debug, Default)]
pub struct ClassTable {
    classes: Vec<SeenClass>,
    /// The place of all further ones, once there are some.
    others: Option<u16>,
}

/// A class by its label and its id, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenClass {
    pub label: String,
    pub class: Option<u32>,
}

/// Further classes are counted together, as [`OTHERS`]. Those that something watches by their names have places of their own.
pub const MAX_CLASSES: usize = 256;

/// The label of further classes. No model has a class of that name.
pub const OTHERS: &str = "(others)";

/// Also of those that are watched: a name may come with many ids.
const MAX_PLACES: usize = 4096;

impl ClassTable {
    /// The index of a class, and whether it is new. `is_named` tells whether something watches it by its name or id.
    pub fn enter(
        &mut self,
        label: &str,
        class: Option<u32>,
        is_named: impl FnOnce(&str, Option<u32>) -> bool,
    ) -> (u16, bool) {
        let known = self.classes.iter().position(|seen| seen.class == class && seen.label == label);
        if let Some(index) = known {
            return (index as u16, false);
        }
        let count = self.classes.len();
        if count < MAX_CLASSES - 1 || (count < MAX_PLACES && is_named(label, class)) {
            return self.push(SeenClass { label: label.into(), class });
        }
        if let Some(others) = self.others {
            return (others, false);
        }
        let (others, _) = self.push(SeenClass { label: OTHERS.into(), class: None });
        (*self.others.insert(others), true)
    }

    fn push(&mut self, class: SeenClass) -> (u16, bool) {
        self.classes.push(class);
        ((self.classes.len() - 1) as u16, true)
    }

    pub fn list(&self) -> &[SeenClass] {
        &self.classes
    }

    pub fn get(&self, index: u16) -> &SeenClass {
        &self.classes[usize::from(index)]
    }
}

/// The classes that a zone, a tripwire or a direction counts, by their indices in the table.
#[derive(Clone, Debug, Default)]
pub struct WantedClasses(Vec<bool>);

impl WantedClasses {
    pub fn enter(&mut self, filter: &WatchedClasses, class: &SeenClass) {
        self.0.push(filter.wants(&class.label, class.class));
    }

    pub fn has(&self, class: u16) -> bool {
        self.0[usize::from(class)]
    }
}

/// Objects of a class in a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneCount {
    pub current: u32,
    /// Since the last reset.
    pub entered: u64,
    pub left: u64,
}

impl std::ops::Add for ZoneCount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let ZoneCount { current, entered, left } = other;
        ZoneCount { current: self.current + current, entered: self.entered + entered, left: self.left + left }
    }
}

/// Objects of a class that have crossed a line since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrossingCount {
    pub forward: u64,
    pub backward: u64,
}

impl CrossingCount {
    /// Counts one, and returns how many they are in that direction.
    pub fn add(&mut self, direction: CrossingDirection) {
        match direction {
            CrossingDirection::Forward => self.forward += 1,
            CrossingDirection::Backward => self.backward += 1,
        }
    }

    pub fn of(&self, direction: CrossingDirection) -> u64 {
        match direction {
            CrossingDirection::Forward => self.forward,
            CrossingDirection::Backward => self.backward,
        }
    }
}

impl std::ops::Add for CrossingCount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        CrossingCount { forward: self.forward + other.forward, backward: self.backward + other.backward }
    }
}
