// SPDX-License-Identifier: MPL-2.0
//! The user's settings for classes: `classes`, `class-thresholds`.

use crate::error::{Error, ErrorKind, Result};
use crate::heads::Thresholds;
use crate::model::MAX_CLASSES;

/// Scores below which boxes are dropped, by class: `score` for each class that `classes` lets pass (all where it is empty),
/// unless `class_thresholds` sets another.
pub fn thresholds(score: f32, classes: &str, class_thresholds: &str, known: &KnownClasses) -> Result<Thresholds> {
    let wanted = entries(classes).map(|name| known.class_ids("classes", name)).collect::<Result<Vec<_>>>()?.concat();
    let beyond = if wanted.is_empty() { score } else { Thresholds::NEVER };
    let mut per_class = Vec::new();
    let mut set = |class: usize, threshold: f32| {
        if per_class.len() <= class {
            per_class.resize(class + 1, beyond);
        }
        per_class[class] = threshold;
    };
    wanted.iter().for_each(|&class| set(class, score));
    for (name, threshold) in read_class_thresholds(class_thresholds)? {
        for class in known.class_ids("class-thresholds", name)? {
            if wanted.is_empty() || wanted.contains(&class) {
                set(class, threshold);
            }
        }
    }
    Ok(Thresholds::new(per_class, beyond))
}

/// The classes of `class-thresholds`, each with its threshold.
///
/// # Errors
/// `Settings`, where an entry is none, or where two of them have the same name.
pub fn read_class_thresholds(text: &str) -> Result<Vec<(&str, f32)>> {
    fn read(entry: &str) -> Option<(&str, f32)> {
        let (name, value) = entry.rsplit_once('=')?;
        Some((name.trim(), value.trim().parse().ok().filter(|value| (0.0..=1.0).contains(value))?))
    }
    let wrong = |entry: &str| {
        Error::new(ErrorKind::Settings, format!("class-thresholds: “{entry}” cannot be read"))
            .remedy("Write class=score with a score from 0 to 1, like person=0.5,car=0.3")
    };
    let mut all = Vec::<(&str, f32)>::new();
    for entry in entries(text) {
        let (name, threshold) = read(entry).ok_or_else(|| wrong(entry))?;
        if all.iter().any(|(other, _)| *other == name) {
            let text = format!("class-thresholds: “{name}” has two thresholds");
            return Err(Error::new(ErrorKind::Settings, text).remedy("Write each class once"));
        }
        all.push((name, threshold));
    }
    Ok(all)
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

/// The classes that a model gives, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownClasses {
    /// Names by id; empty where it has none.
    pub labels: Vec<String>,
    /// How many there are, where the head has it.
    pub count: Option<usize>,
}

impl KnownClasses {
    /// Ids are below this.
    fn limit(&self) -> usize {
        self.count.unwrap_or(if self.labels.is_empty() { MAX_CLASSES } else { self.labels.len() })
    }

    /// The id of a class by its name, or by the id where no class has such a name.
    pub fn id(&self, name: &str) -> Option<usize> {
        let named = self.labels.iter().position(|label| label == name);
        named.or_else(|| name.parse().ok().filter(|&class| class < self.limit()))
    }

    /// # Errors
    /// `Settings`, if there is no class of that name, which the user has given for `property`.
    pub fn check(&self, property: &str, name: &str) -> Result<()> {
        self.class_ids(property, name).map(drop)
    }

    /// The ids of all classes of that name: ImageNet has two that are called crane.
    fn class_ids(&self, property: &str, name: &str) -> Result<Vec<usize>> {
        let first = self.id(name).ok_or_else(|| {
            let known = match &self.labels[..] {
                [] => format!("it has no labels, and ids up to {}", self.limit().saturating_sub(1)),
                labels => format!("its classes are {}", abridged(labels)),
            };
            Error::new(ErrorKind::Settings, format!("{property}: the model has no class “{name}”"))
                .cause(known)
                .remedy("Write names or ids of the model's classes, separated by commas")
        })?;
        let others = self.labels.iter().enumerate().skip(first + 1).filter(|(_, label)| *label == name);
        Ok(std::iter::once(first).chain(others.map(|(id, _)| id)).collect())
    }
}

fn abridged(labels: &[String]) -> String {
    let shown = labels.iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", ");
    if labels.len() > 20 { format!("{shown}, … ({} in all)", labels.len()) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> KnownClasses {
        KnownClasses { labels: ["person", "car", "traffic light"].map(String::from).to_vec(), count: Some(3) }
    }

    fn of(classes: &str, class_thresholds: &str) -> Result<[f32; 4]> {
        let thresholds = thresholds(0.25, classes, class_thresholds, &known())?;
        Ok([0, 1, 2, 3].map(|class| thresholds.of(class)))
    }

    const NEVER: f32 = Thresholds::NEVER;

    #[test]
    fn names_and_ids_choose_classes() {
        assert_eq!(of("", "").unwrap(), [0.25; 4]);
        assert_eq!(of("car, 2", "").unwrap(), [NEVER, 0.25, 0.25, NEVER]);
        assert_eq!(of("traffic light", "").unwrap(), [NEVER, NEVER, 0.25, NEVER]);
    }

    #[test]
    fn a_name_that_two_classes_have_means_both() {
        let labels = ["crane", "car", "crane"].map(String::from).to_vec();
        let known = KnownClasses { labels, count: Some(3) };
        let of = |classes: &str, class_thresholds: &str| {
            let thresholds = thresholds(0.25, classes, class_thresholds, &known).unwrap();
            [0, 1, 2].map(|class| thresholds.of(class))
        };
        assert_eq!(of("crane", ""), [0.25, NEVER, 0.25]);
        assert_eq!(of("", "crane=0.9"), [0.9, 0.25, 0.9]);
        assert_eq!(of("2", "crane=0.9"), [NEVER, NEVER, 0.9]);
    }

    #[test]
    fn classes_have_their_own_thresholds() {
        assert_eq!(of("", "car=0.5, 2=0.1").unwrap(), [0.25, 0.5, 0.1, 0.25]);
        assert_eq!(of("car", "car=0.5,person=0.1").unwrap(), [NEVER, 0.5, NEVER, NEVER]);
    }

    #[test]
    fn mistakes_are_named() {
        for (classes, class_thresholds, part) in [
            ("cat", "", "no class “cat”: its classes are person, car, traffic light"),
            ("3", "", "no class “3”"),
            ("", "car", "“car” cannot be read"),
            ("", "car=2", "“car=2” cannot be read"),
            ("", "car=0.5, car =0.9", "“car” has two thresholds"),
            ("", "car=nan", "cannot be read"),
            ("", "cat=0.5", "no class “cat”"),
        ] {
            let message = of(classes, class_thresholds).unwrap_err().message();
            assert!(message.contains(part), "{message}");
        }
    }
}
