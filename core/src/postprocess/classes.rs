// SPDX-License-Identifier: MPL-2.0
//! Class names and the user's settings for classes: `label-file`, `classes`, `class-thresholds`.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::files;
use crate::heads::Thresholds;
use crate::model::MAX_LABEL;

/// Bytes of a label file: more than the names of `MAX_CLASSES` classes take.
const MAX_FILE: u64 = 16 << 20;

/// One name a line; empty lines at the end and a byte order mark do not count. Other empty lines are errors: all classes after
/// them would have the names of their neighbours.
pub fn read_labels(path: &Path) -> Result<Vec<String>> {
    let name = path.display();
    let bytes = files::read_regular(path, MAX_FILE).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::new(ErrorKind::NotFound, format!("There is no label file {name}"))
            .remedy("Check the path given as label-file (labels in gst-trt serve)"),
        _ => Error::new(ErrorKind::Read, format!("Cannot read the label file {name}")).cause(error).remedy(
            "Set label-file (labels in gst-trt serve) to a text file with one label a line, which this user may read",
        ),
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line =
            error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|&&byte| byte == b'\n').count() + 1;
        Error::new(ErrorKind::Settings, format!("The label file {name} is not UTF-8"))
            .cause(format!("line {line} has other bytes"))
            .remedy("Save it as UTF-8 text with one label a line")
    })?;
    let labels: Vec<String> =
        text.trim_start_matches('\u{feff}').trim_end().lines().map(|line| line.trim().to_string()).collect();
    if labels.is_empty() {
        return Err(Error::new(ErrorKind::Settings, format!("The label file {name} is empty"))
            .remedy("Write one label a line, in the order of the model's class ids"));
    }
    let wrong = |line: usize, how: &str, remedy: &str| {
        Error::new(ErrorKind::Settings, format!("Line {} of the label file {name} {how}", line + 1)).remedy(remedy)
    };
    if let Some(line) = labels.iter().position(String::is_empty) {
        return Err(wrong(line, "is empty", "Remove it, or write the label of that class there"));
    }
    if let Some(line) = labels.iter().position(|label| label.len() > MAX_LABEL) {
        let how = format!("is longer than {MAX_LABEL} bytes");
        return Err(wrong(line, &how, "Write one short label a line"));
    }
    if let Some(line) = labels.iter().position(|label| label.contains('\0')) {
        return Err(wrong(line, "has a NUL character", "Save it as UTF-8 text with one label a line"));
    }
    if labels.len() > MAX_CLASSES {
        return Err(wrong(
            MAX_CLASSES,
            "is one too many",
            "Write one label a line, in the order of the model's class ids",
        ));
    }
    Ok(labels)
}

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
/// `Settings`, where an entry is none.
pub fn read_class_thresholds(text: &str) -> Result<Vec<(&str, f32)>> {
    fn read(entry: &str) -> Option<(&str, f32)> {
        let (name, value) = entry.rsplit_once('=')?;
        Some((name.trim(), value.trim().parse().ok().filter(|value| (0.0..=1.0).contains(value))?))
    }
    let wrong = |entry: &str| {
        Error::new(ErrorKind::Settings, format!("class-thresholds: “{entry}” cannot be read"))
            .remedy("Write class=score with a score from 0 to 1, like person=0.5,car=0.3")
    };
    entries(text).map(|entry| read(entry).ok_or_else(|| wrong(entry))).collect()
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

/// Ids above this are typing mistakes.
const MAX_CLASSES: usize = 65536;

fn abridged(labels: &[String]) -> String {
    let shown = labels.iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", ");
    if labels.len() > 20 { format!("{shown}, … ({} in all)", labels.len()) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::scratch;

    fn known() -> KnownClasses {
        KnownClasses { labels: ["person", "car", "traffic light"].map(String::from).to_vec(), count: Some(3) }
    }

    fn of(classes: &str, class_thresholds: &str) -> Result<[f32; 4]> {
        let thresholds = thresholds(0.25, classes, class_thresholds, &known())?;
        Ok([0, 1, 2, 3].map(|class| thresholds.of(class)))
    }

    const NEVER: f32 = Thresholds::NEVER;

    #[test]
    fn label_files_are_read_or_refused() {
        let folder = scratch("labels");
        let file = folder.join("labels.txt");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read_labels(&file)
        };
        assert_eq!(read("\u{feff}a b\r\nc\n\n \n").unwrap(), ["a b", "c"]);
        let (long, many) = (format!("a\n{}", "x".repeat(1025)), "a\n".repeat(MAX_CLASSES + 1));
        for (text, part) in [
            ("", "is empty"),
            ("a\nb\0c\n", "has a NUL character"),
            (" \n\n", "is empty"),
            ("\nperson\ncar", "Line 1 of the label file"),
            ("person\n \ncar", "Line 2 of the label file"),
            (&long, "is longer than 1024 bytes"),
            (&many, "Line 65537"),
        ] {
            let message = read(text).unwrap_err().message();
            assert!(message.contains(part), "{message}");
        }
        // None of these may block or fill the memory.
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [pipe.as_path(), Path::new("/dev/zero"), &folder] {
            assert!(read_labels(path).unwrap_err().message().contains("it is a folder or a device"));
        }
        std::fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert!(read_labels(&file).unwrap_err().message().contains("it is larger than 16 MiB"));
    }

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
            ("", "car=nan", "cannot be read"),
            ("", "cat=0.5", "no class “cat”"),
        ] {
            let message = of(classes, class_thresholds).unwrap_err().message();
            assert!(message.contains(part), "{message}");
        }
    }
}
