// SPDX-License-Identifier: MPL-2.0
//! What is looked for, as it stands on the command line: phrases with their names, and the sentences that they are put in.

use crate::failure::Failure;

/// Where the phrase stands in a sentence.
pub const PLACE: &str = "{}";

/// A text that pictures are compared with, and the name of what they show then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrase {
    pub name: String,
    pub text: String,
}

/// Phrases of arguments like `a red car` and `car=a red car`.
pub fn phrases(arguments: &[String]) -> Result<Vec<Phrase>, Failure> {
    arguments.iter().map(|argument| phrase(argument)).collect()
}

fn phrase(argument: &str) -> Result<Phrase, Failure> {
    let (name, text) = argument.split_once('=').unwrap_or((argument, argument));
    let phrase = Phrase { name: single_spaced(name), text: single_spaced(text) };
    if phrase.name.is_empty() || phrase.text.is_empty() {
        let what = if phrase.text.is_empty() { "says nothing" } else { "has no name before its =" };
        return Err(
            format!("The phrase “{argument}” {what}. Give one like \"a red car\", or car=\"a red car\".").into()
        );
    }
    Ok(phrase)
}

fn single_spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The sentences that each phrase is put in; without any, it is one by itself.
pub fn templates(arguments: &[String]) -> Result<Vec<String>, Failure> {
    if let Some(wrong) = arguments.iter().find(|template| template.matches(PLACE).count() != 1) {
        return Err(format!("The template “{wrong}” needs {PLACE} once, where the phrase is to stand.").into());
    }
    Ok(if arguments.is_empty() { vec![PLACE.into()] } else { arguments.to_vec() })
}

/// The phrase in that sentence.
pub fn sentence(template: &str, phrase: &str) -> String {
    template.replacen(PLACE, phrase, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_may_have_names() {
        for (argument, name, text) in [
            ("a red car", "a red car", "a red car"),
            (" a  red\tcar ", "a red car", "a red car"),
            ("car=a red  car", "car", "a red car"),
            ("fire engine = a=b", "fire engine", "a=b"),
        ] {
            assert_eq!(phrase(argument).unwrap(), Phrase { name: name.into(), text: text.into() }, "{argument}");
        }
        for (argument, says) in
            [("", "says nothing"), (" ", "says nothing"), ("car=", "says nothing"), ("=a car", "has no name")]
        {
            let said = phrase(argument).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn templates_have_one_place() {
        assert_eq!(templates(&[]).unwrap(), ["{}"]);
        let given = ["a photo of a {}".to_string(), "{} at night".into()];
        assert_eq!(templates(&given).unwrap(), given);
        assert_eq!(sentence(&given[1], "a {} car"), "a {} car at night");
        for wrong in ["a photo", "{} and {}"] {
            let said = templates(&[wrong.into()]).unwrap_err().to_string();
            assert_eq!(said, format!("The template “{wrong}” needs {{}} once, where the phrase is to stand."));
        }
    }
}
