//! Class names and what the user says about classes: `label-file`, `classes`, `class-thresholds`.

use std::path::Path;

use crate::core::error::{Error, ErrorKind, Result};
use crate::heads::Thresholds;

/// One name a line; empty lines at the end and a byte order mark do not count.
pub fn read_labels(path: &Path) -> Result<Vec<String>> {
    let name = path.display();
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::new(ErrorKind::NotFound, format!("There is no label file {name}"))
            .remedy("Check the path given as label-file"),
        _ => Error::new(ErrorKind::Read, format!("Cannot read the label file {name}")).cause(error),
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line =
            error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|&&byte| byte == b'\n').count() + 1;
        Error::new(ErrorKind::Settings, format!("The label file {name} is not UTF-8"))
            .cause(format!("line {line} has other bytes"))
            .remedy("Save it as UTF-8 text with one label a line")
    })?;
    let text = text.trim_start_matches('\u{feff}');
    let labels: Vec<String> = text.trim_end().lines().map(|line| line.trim().to_string()).collect();
    match text.trim().is_empty() {
        true => Err(Error::new(ErrorKind::Settings, format!("The label file {name} is empty"))
            .remedy("Write one label a line, in the order of the model's class ids")),
        false => Ok(labels),
    }
}

/// Scores below which boxes are dropped, by class: `score` for each class that `classes` lets pass (all where it is empty),
/// unless `class_thresholds` says otherwise.
///
/// `count` is the number of classes, where the head tells it.
pub fn thresholds(
    score: f32,
    classes: &str,
    class_thresholds: &str,
    labels: &[String],
    count: Option<usize>,
) -> Result<Thresholds> {
    let id = |property: &str, name: &str| class_id(property, name, labels, count);
    let entries = |text: &str| {
        text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_string).collect::<Vec<_>>()
    };

    let wanted = entries(classes).iter().map(|name| id("classes", name)).collect::<Result<Vec<_>>>()?;
    let beyond = if wanted.is_empty() { score } else { Thresholds::NEVER };
    let mut per_class = Vec::new();
    let mut set = |class: usize, threshold: f32| {
        if per_class.len() <= class {
            per_class.resize(class + 1, beyond);
        }
        per_class[class] = threshold;
    };
    wanted.iter().for_each(|&class| set(class, score));
    for entry in entries(class_thresholds) {
        let (name, value) = entry.rsplit_once('=').unwrap_or((&entry, ""));
        let threshold = value.trim().parse().ok().filter(|value| (0.0..=1.0).contains(value)).ok_or_else(|| {
            Error::new(ErrorKind::Settings, format!("class-thresholds: “{entry}” cannot be read"))
                .remedy("Write class=score with a score from 0 to 1, like person=0.5,car=0.3")
        })?;
        let class = id("class-thresholds", name.trim())?;
        if wanted.is_empty() || wanted.contains(&class) {
            set(class, threshold);
        }
    }
    Ok(Thresholds::new(per_class, beyond))
}

/// A class by name, or by number where no class has such a name.
fn class_id(property: &str, name: &str, labels: &[String], count: Option<usize>) -> Result<usize> {
    if let Some(class) = labels.iter().position(|label| label == name) {
        return Ok(class);
    }
    let count = count.unwrap_or(if labels.is_empty() { MOST_CLASSES } else { labels.len() });
    name.parse().ok().filter(|&class| class < count).ok_or_else(|| {
        let known = match labels {
            [] => format!("it has no labels, and ids up to {}", count - 1),
            labels => format!("its classes are {}", abridged(labels)),
        };
        Error::new(ErrorKind::Settings, format!("{property}: the model has no class “{name}”"))
            .cause(known)
            .remedy("Write names or ids of the model's classes, separated by commas")
    })
}

/// Ids above this are typing mistakes.
const MOST_CLASSES: usize = 65536;

fn abridged(labels: &[String]) -> String {
    let shown = labels.iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", ");
    if labels.len() > 20 { format!("{shown}, … ({} in all)", labels.len()) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Vec<String> {
        ["person", "car", "traffic light"].map(String::from).to_vec()
    }

    fn of(classes: &str, class_thresholds: &str) -> Result<[f32; 4]> {
        let thresholds = thresholds(0.25, classes, class_thresholds, &labels(), Some(3))?;
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
    fn classes_have_their_own_thresholds() {
        assert_eq!(of("", "car=0.5, 2=0.1").unwrap(), [0.25, 0.5, 0.1, 0.25]);
        assert_eq!(of("car", "car=0.5,person=0.1").unwrap(), [NEVER, 0.5, NEVER, NEVER]);
    }

    #[test]
    fn mistakes_are_named() {
        for (classes, class_thresholds, says) in [
            ("cat", "", "no class “cat”: its classes are person, car, traffic light"),
            ("3", "", "no class “3”"),
            ("", "car", "“car” cannot be read"),
            ("", "car=2", "“car=2” cannot be read"),
            ("", "car=nan", "cannot be read"),
            ("", "cat=0.5", "no class “cat”"),
        ] {
            let message = of(classes, class_thresholds).unwrap_err().message();
            assert!(message.contains(says), "{message}");
        }
    }
}
