// SPDX-License-Identifier: MPL-2.0
//! Whether lines of text are upside down, by a classifier whose classes are degrees.

use crate::error::{Error, ErrorKind, Result};
use crate::heads::{Decoder, text_orientation};

/// The probability from which on a line is taken to be turned, if the user sets none: PP-OCR's `cls_thresh`.
pub(super) const USUAL_TURN: f32 = 0.9;

/// The classes of PP-OCR's classifier, whose file does not name them.
const USUAL_LABELS: [&str; 2] = ["0", "180"];

/// Whether the model is such a classifier.
pub(super) fn is_one(decoder: &Decoder) -> bool {
    decoder.format() == &text_orientation::HEAD
}

/// The number that a label begins with: 180 of `180` and of `180_degree`.
pub(super) fn degrees(label: &str) -> Option<u32> {
    let digits = label.bytes().take_while(u8::is_ascii_digit).count();
    label[..digits].parse().ok()
}

/// Names the classes of such a model where nothing else does.
///
/// # Errors
/// `Settings`, where they are not 0 and 180 degrees.
pub(super) fn name_classes(decoder: &Decoder, labels: &mut Vec<String>) -> Result<()> {
    if !is_one(decoder) {
        return Ok(());
    }
    if labels.is_empty() {
        *labels = USUAL_LABELS.map(String::from).into();
    }
    let mut turns: Vec<Option<u32>> = labels.iter().map(|label| degrees(label)).collect();
    turns.sort_unstable();
    if turns == [Some(0), Some(180)] && decoder.classes() == Some(turns.len()) {
        return Ok(());
    }
    let (format, output) = (decoder.format(), decoder.first_output());
    let named = labels.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
    let what = format!("{format} needs the classes 0 and 180 degrees");
    Err(Error::new(ErrorKind::Settings, what)
        .cause(format!("the model's output is {output}, and its classes are called {named}"))
        .remedy("Set label-file on trtnms to a file with the lines 0 and 180, in the order of the model, or layout=classify"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::heads::{ModelHints, classify};
    use crate::tensor::TensorDesc;

    fn named(head: &'static crate::heads::HeadFormat, classes: i64, labels: &[&str]) -> Result<Vec<String>> {
        let output = TensorDesc::new("o", DType::F32, &[1, classes]);
        let hints = ModelHints { input: Some((192, 48)), ..ModelHints::default() };
        let decoder = Decoder::new(Some(head), &[output], &hints).unwrap();
        let mut labels = labels.iter().map(|label| label.to_string()).collect();
        name_classes(&decoder, &mut labels).map(|()| labels)
    }

    #[test]
    fn classes_are_0_and_180_degrees() {
        assert_eq!(named(&text_orientation::HEAD, 2, &[]).unwrap(), ["0", "180"]);
        for labels in [["0", "180"], ["180", "0"], ["0_degree", "180_degree"]] {
            assert_eq!(named(&text_orientation::HEAD, 2, &labels).unwrap(), labels);
        }
        for (classes, labels) in
            [(2, &["0", "90"][..]), (2, &["up", "down"]), (2, &["180", "180"]), (3, &["0", "180"]), (4, &[])]
        {
            let error = named(&text_orientation::HEAD, classes, labels).unwrap_err();
            assert!(error.message().contains("needs the classes 0 and 180 degrees"), "{error}");
        }
        assert_eq!(named(&classify::HEAD, 2, &[]).unwrap(), [""; 0], "other classifiers have other classes");
    }

    #[test]
    fn degrees_are_the_number_that_a_label_begins_with() {
        assert_eq!(["180", "0_degree", "", "x180", "99999999999"].map(degrees), [Some(180), Some(0), None, None, None]);
    }
}
