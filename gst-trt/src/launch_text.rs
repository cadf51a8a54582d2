// SPDX-License-Identifier: MPL-2.0
//! Texts of properties as they stand in a launch line, `interval=2 precision=fp16`, for the elements of a model.

use gst::prelude::*;
use gsttrt_core::words::nearest;

use crate::assignments::{assignments, check_text};
use crate::chain::STAGES;
use crate::failure::Failure;

/// Properties of the elements of a model, as the texts of each of them: a property is of all that have it.
///
/// # Errors
/// None has it, or it is one of those that are taken.
pub fn by_stage(text: &str, taken: &[(&str, &str)]) -> Result<[String; 3], Failure> {
    check_text(text)?;
    let elements: Vec<gst::Element> = STAGES
        .iter()
        .map(|stage| gst::ElementFactory::make(&format!("trt{stage}")).build())
        .collect::<Result<_, _>>()?;
    let mut texts = <[String; 3]>::default();
    let mut end = 0;
    for (name, value) in assignments(text) {
        let between = &text[end..name.start];
        if !between.trim().is_empty() {
            return Err(format!("“{}” is no property with a value, such as precision=fp16.", between.trim()).into());
        }
        end = value.end;
        let (name, value) = (text[name].replace('_', "-"), &text[value]);
        check_name(&name, taken)?;
        let mut is_known = false;
        for (element, text) in elements.iter().zip(&mut texts) {
            if element.find_property(&name).is_some() {
                text.push_str(&format!("{name}={value} "));
                is_known = true;
            }
        }
        if !is_known {
            let properties: Vec<_> = elements.iter().flat_map(|element| element.list_properties()).collect();
            let names: Vec<&str> = properties.iter().map(|property| property.name()).collect();
            let hint = nearest(&name, &names).map_or(".".into(), |near| format!("; did you mean “{near}”?"));
            return Err(format!("No element of a model has a property “{name}”{hint}").into());
        }
    }
    match text[end..].trim() {
        "" => Ok(texts),
        rest => Err(format!("“{rest}” is no property with a value, such as precision=fp16.").into()),
    }
}

/// # Errors
/// The text, of one element, sets one of the properties that are taken.
pub fn check_taken(text: &str, taken: &[(&str, &str)]) -> Result<(), Failure> {
    check_text(text)?;
    assignments(text).into_iter().try_for_each(|(name, _)| check_name(&text[name].replace('_', "-"), taken))
}

fn check_name(name: &str, taken: &[(&str, &str)]) -> Result<(), Failure> {
    match taken.iter().find(|(taken, _)| *taken == name) {
        Some((_, instead)) => Err(format!("{name} is set by the program. {instead}.").into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_go_to_the_elements_that_have_them() {
        crate::chain::start_gstreamer().unwrap();
        let taken = [("name", "Leave it out")];
        let texts = by_stage("object_classes=\"a b\" precision=fp16  score-threshold = 0.5", &taken).unwrap();
        assert_eq!(texts, ["object-classes=\"a b\" ", "precision=fp16 ", "score-threshold=0.5 "]);
        let of_all = by_stage("cuda-device-id=1", &taken).unwrap();
        assert_eq!(of_all, ["cuda-device-id=1 "; 3]);
        for (text, said) in [
            ("name=q", "name is set by the program. Leave it out."),
            ("precision=", "precision has no value"),
            ("precison=fp16", "did you mean “precision”?"),
            ("! fakesink", "“! fakesink” is no property"),
            ("interval=2 ! fakesink name=q", "“! fakesink” is no property"),
        ] {
            let failure = by_stage(text, &taken).unwrap_err().to_string();
            assert!(failure.contains(said), "{text}: {failure}");
        }
    }

    #[test]
    fn properties_that_the_program_sets_are_refused() {
        let taken = [("model-file", "Use --model")];
        check_taken("interval=2 precision=fp16", &taken).unwrap();
        let failure = check_taken("interval=2 model_file = x.onnx", &taken).unwrap_err().to_string();
        assert_eq!(failure, "model-file is set by the program. Use --model.");
    }
}
