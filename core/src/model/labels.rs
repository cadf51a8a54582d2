// SPDX-License-Identifier: MPL-2.0
//! Names of classes in a file of their own.

use std::path::Path;

use super::metadata::MAX_LABEL;
use crate::error::{Error, ErrorKind, Result};
use crate::files;

/// Ids above this are typing mistakes.
pub(crate) const MAX_CLASSES: usize = 65536;

/// Bytes of a label file: more than the names of `MAX_CLASSES` classes take.
const MAX_FILE: u64 = 16 << 20;

/// One name a line; empty lines at the end and a byte order mark do not count. Other empty lines are errors: all classes after
/// them would have the names of their neighbours.
pub fn read_labels(path: &Path) -> Result<Vec<String>> {
    read_lines(path, |text| text.trim_end().lines().map(|line| line.trim().to_string()).collect())
}

/// The same of a dictionary, with a character a line: spaces are characters.
///
/// # Errors
/// As [`read_labels`].
pub fn read_characters(path: &Path) -> Result<Vec<String>> {
    read_lines(path, |text| text.trim_end_matches(['\r', '\n']).lines().map(str::to_string).collect())
}

fn read_lines(path: &Path, lines: impl FnOnce(&str) -> Vec<String>) -> Result<Vec<String>> {
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
    let labels = lines(text.trim_start_matches('\u{feff}'));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::scratch;

    #[test]
    fn label_files_are_read_or_refused() {
        let folder = scratch("labels");
        let file = folder.join("labels.txt");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read_labels(&file)
        };
        assert_eq!(read("\u{feff}a b\r\nc\n\n \n").unwrap(), ["a b", "c"]);
        std::fs::write(&file, "\u{feff}a\r\n \n\u{3000}\n \n\n").unwrap();
        assert_eq!(read_characters(&file).unwrap(), ["a", " ", "\u{3000}", " "]);
        for (text, part) in [("", "is empty"), ("a\n\nb", "Line 2 of the label file")] {
            std::fs::write(&file, text).unwrap();
            let message = read_characters(&file).unwrap_err().message();
            assert!(message.contains(part), "{message}");
        }
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
        for (path, says) in [
            (pipe.as_path(), "it is a pipe"),
            (Path::new("/dev/zero"), "it is a device"),
            (folder.as_path(), "it is a folder"),
        ] {
            assert!(read_labels(path).unwrap_err().message().contains(says));
        }
        std::fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert!(read_labels(&file).unwrap_err().message().contains("it is larger than 16 MiB"));
    }
}
