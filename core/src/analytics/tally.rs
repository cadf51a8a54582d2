// SPDX-License-Identifier: MPL-2.0
//! Counts by class.

use std::collections::HashMap;

use super::config::WatchedClasses;
use super::geometry::CrossingDirection;

/// The classes that have been seen.
#[derive(Clone, Debug, Default)]
pub struct ClassTable {
    classes: Vec<SeenClass>,
    /// The place of each class by its id and its label; of further ones that were seen, too, so that these are compared with what is
    /// watched once, and not in each frame.
    places: HashMap<Option<u32>, HashMap<String, u16>>,
    /// How many of those are further ones.
    remembered: usize,
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

/// Further classes whose place is remembered: there may be labels without end.
const MAX_REMEMBERED: usize = 4096;

impl ClassTable {
    /// The index of a class, and whether it is new. `is_named` tells whether something watches it by its name or id.
    pub fn enter(
        &mut self,
        label: &str,
        class: Option<u32>,
        is_named: impl FnOnce(&str, Option<u32>) -> bool,
    ) -> (u16, bool) {
        if let Some(&index) = self.places.get(&class).and_then(|labels| labels.get(label)) {
            return (index, false);
        }
        let count = self.classes.len();
        if count < MAX_CLASSES - 1 || (count < MAX_PLACES && is_named(label, class)) {
            return (self.push(label, class), true);
        }
        let known = self.others;
        let others = known.unwrap_or_else(|| self.push(OTHERS, None));
        self.others = Some(others);
        // Places never become fewer, so it stays one of the others.
        if self.remembered < MAX_REMEMBERED {
            self.remembered += 1;
            self.remember(label, class, others);
        }
        (others, known.is_none())
    }

    fn push(&mut self, label: &str, class: Option<u32>) -> u16 {
        let index = self.classes.len() as u16;
        self.classes.push(SeenClass { label: label.into(), class });
        self.remember(label, class, index);
        index
    }

    fn remember(&mut self, label: &str, class: Option<u32>, index: u16) {
        self.places.entry(class).or_default().insert(label.into(), index);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Else each object beyond the first classes would be compared with all names that are watched, in each frame.
    #[test]
    fn a_class_is_compared_with_what_is_watched_once() {
        let (mut table, mut compared) = (ClassTable::default(), 0);
        for frame in 0..3 {
            for id in 0..300u32 {
                let is_named = |label: &str, _: Option<u32>| {
                    compared += 1;
                    label == "label 299"
                };
                let (place, is_new) = table.enter(&format!("label {id}"), Some(id), is_named);
                let expected = match id {
                    0..255 => id,
                    299 => 256,
                    _ => 255,
                };
                assert_eq!(u32::from(place), expected, "{id}");
                assert_eq!(is_new, frame == 0 && (id <= 255 || id == 299), "{id}");
            }
        }
        assert_eq!((compared, table.list().len(), &*table.get(255).label), (45, 257, OTHERS));
        // The same label with another id is another class.
        assert_eq!(table.enter("label 0", None, |_, _| false), (255, false));
        assert_eq!(table.enter("label 0", Some(0), |_, _| unreachable!("it is known")), (0, false));
    }

    #[test]
    fn labels_without_end_are_not_all_remembered() {
        let mut table = ClassTable::default();
        for number in 0..2 * MAX_REMEMBERED {
            table.enter(&number.to_string(), None, |_, _| false);
        }
        let known: usize = table.places.values().map(HashMap::len).sum();
        assert_eq!((table.list().len(), known), (MAX_CLASSES, MAX_CLASSES + MAX_REMEMBERED));
    }
}
