// SPDX-License-Identifier: MPL-2.0
//! What a launch line sets, `interval=2 precision=fp16`, and whether the values may be.

use std::ops::Range;

use gst::glib;
use gst::prelude::*;

use crate::failure::Failure;

/// The names that are set in a launch line, and the values.
pub fn assignments(text: &str) -> Vec<(Range<usize>, Range<usize>)> {
    let bytes = text.as_bytes();
    let skip = |mut at: usize, is_skipped: &dyn Fn(u8) -> bool| {
        while bytes.get(at).is_some_and(|byte| is_skipped(*byte)) {
            at += 1;
        }
        at
    };
    let space = |at| skip(at, &|byte| byte.is_ascii_whitespace());
    let mut found = Vec::new();
    let mut at = space(0);
    while at < bytes.len() {
        let name = at..skip(at, &|byte| !byte.is_ascii_whitespace() && byte != b'=');
        at = space(name.end);
        if bytes.get(at) != Some(&b'=') {
            at = at.max(name.start + 1);
            continue;
        }
        let begin = space(at + 1);
        at = begin;
        let quote = bytes.get(at).copied().filter(|byte| b"\"'".contains(byte));
        at += usize::from(quote.is_some());
        while let Some(byte) = bytes.get(at) {
            match (byte, quote) {
                (b'\\', _) => at += 1,
                (byte, Some(quote)) if *byte == quote => {
                    at += 1;
                    break;
                }
                (byte, None) if byte.is_ascii_whitespace() => break,
                _ => {}
            }
            at += 1;
        }
        at = at.min(bytes.len());
        found.push((name, begin..at));
        at = space(at);
    }
    found
}

/// Looks at a text of properties that comes before others in a launch line: what it leaves open would take them in.
///
/// # Errors
/// Names the property whose value is missing or has no end.
pub fn check_text(text: &str) -> Result<(), Failure> {
    for (name, value) in assignments(text) {
        let (name, value) = (&text[name], &text[value]);
        let quote = value.chars().next().filter(|c| "\"'".contains(*c));
        let is_open =
            |quote: char| value.len() < 2 || !value.ends_with(quote) || ends_escaped(&value[..value.len() - 1]);
        if value.is_empty() {
            return Err(format!("{name} has no value: write {name}=VALUE, or leave {name} out.").into());
        }
        if quote.is_some_and(is_open) || ends_escaped(value) {
            let what = format!("the value of {name} has no end: {value}");
            return Err(format!("{what}. Close its quotes, and write no \\ at its end.").into());
        }
    }
    Ok(())
}

/// Whether the last character is a backslash that takes in what follows.
fn ends_escaped(text: &str) -> bool {
    text.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1
}

/// Looks at the values of our elements in a launch line: GStreamer only logs one that is out of range, and goes on with the default.
///
/// # Errors
/// Names the property and what it may be.
pub fn check_values(line: &str) -> Result<(), Failure> {
    let (mut end, mut element) = (0, None::<gst::Element>);
    for (name, value) in assignments(line) {
        if let Some(word) = line[end..name.start].split_whitespace().rfind(|word| *word != "!") {
            let factory = gst::ElementFactory::find(word).filter(|_| word.starts_with("trt"));
            element = factory.map(|factory| factory.create().build()).transpose()?;
        }
        end = value.end;
        let spec = element.as_ref().and_then(|element| element.find_property(&line[name]));
        let value = line[value].trim_matches(['"', '\'']);
        if let Some(allowed) = spec.and_then(|spec| Some((spec.name(), allowed(&spec, value)?))) {
            let (name, allowed) = allowed;
            return Err(format!("{name} is {allowed}, not “{value}”.").into());
        }
    }
    Ok(())
}

/// What a property may be, where this is not it. `None` for what GStreamer refuses itself, or understands.
fn allowed(spec: &glib::ParamSpec, value: &str) -> Option<String> {
    macro_rules! whole {
        ($($kind:ident)*) => {
            $(if let Some(spec) = spec.downcast_ref::<glib::$kind>() {
                let range = i128::from(spec.minimum())..=i128::from(spec.maximum());
                let number: i128 = value.parse().ok()?;
                let text = || format!("a whole number from {} to {}", range.start(), range.end());
                return (!range.contains(&number)).then(text);
            })*
        };
    }
    macro_rules! real {
        ($($kind:ident)*) => {
            $(if let Some(spec) = spec.downcast_ref::<glib::$kind>() {
                let (least, most) = (f64::from(spec.minimum()), f64::from(spec.maximum()));
                let number: f64 = value.parse().ok()?;
                let text = || format!("a number from {least} to {most}");
                return (!(least..=most).contains(&number)).then(text);
            })*
        };
    }
    whole!(ParamSpecInt ParamSpecUInt ParamSpecInt64 ParamSpecUInt64);
    real!(ParamSpecFloat ParamSpecDouble);
    let class = glib::EnumClass::with_type(spec.value_type())?;
    let is_one = class.values().iter().any(|known| [known.nick(), known.name()].contains(&value));
    let nicks = || class.values().iter().map(|known| known.nick()).collect::<Vec<_>>().join(", ");
    (!is_one && value.parse::<i32>().is_err()).then(|| format!("one of {}", nicks()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_refused() {
        gst::init().unwrap();
        gsttrt::plugin_register_static().unwrap();
        for (text, said) in [
            ("trtnms score-threshold=1.5", "score-threshold is a number from 0 to 1, not “1.5”."),
            ("trtnms score-threshold=\"-1\"", "score-threshold is a number from 0 to 1, not “-1”."),
            ("trtnms score-threshold=nan", "not “nan”."),
            ("trtinfer name=a interval=-1 ! trtnms", "interval is a whole number from 0 to 4294967295, not “-1”."),
            ("trtinfer interval=99999999999", "not “99999999999”."),
            ("identity ! trtinfer interval=2 ! trtnms line-width=-4", "line-width is a whole number"),
            ("trtinfer backend=gpu", "backend is one of auto, "),
        ] {
            let failure = check_values(text).unwrap_err().to_string();
            assert!(failure.contains(said), "{text}: {failure}");
        }
        // What is right, what GStreamer refuses, and what is of other elements.
        for text in [
            "trtnms score-threshold=0.5 name=b",
            "trtnms score-threshold=abc",
            "identity sleep-time=-4",
            "trtinfer backend=cpu",
        ] {
            assert!(check_values(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_value_that_would_take_in_what_follows_is_refused() {
        for (text, said) in [
            ("layout-file=", "layout-file has no value: write layout-file=VALUE, or leave layout-file out."),
            ("score-threshold=0.5 layout-file= ", "layout-file has no value"),
            ("layout-file=\"", "the value of layout-file has no end: \"."),
            ("layout-file='a b", "the value of layout-file has no end: 'a b."),
            ("layout-file=\"a\\\"", "the value of layout-file has no end"),
            ("layout-file=a\\", "the value of layout-file has no end: a\\."),
        ] {
            let failure = check_text(text).unwrap_err().to_string();
            assert!(failure.contains(said), "{text}: {failure}");
        }
        for text in ["", " ", "a=1", "layout-file=\"\" a=b", "a='x y'", "a=b\\\\", "a=\"x\\\\\"", "a=b\\ c"] {
            assert!(check_text(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn assignments_are_found_and_their_values_skipped() {
        let found = |text: &str| -> Vec<(String, String)> {
            let found = assignments(text).into_iter();
            found.map(|(name, value)| (text[name].into(), text[value].into())).collect()
        };
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        assert_eq!(found("a=1 b = 2"), pairs(&[("a", "1"), ("b", "2")]));
        assert_eq!(
            found(r#"a="x name=y" b='\' name=z' c=q\ name=w"#),
            pairs(&[("a", r#""x name=y""#), ("b", r"'\' name=z'"), ("c", r"q\ name=w")])
        );
        assert_eq!(found("a ! identity name=b"), pairs(&[("name", "b")]));
        for text in ["", "=", "a=\\", "\"", "a=\"", "ä = ö", "a='ü\\"] {
            let _ = found(text);
        }
    }
}
