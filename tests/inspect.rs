// SPDX-License-Identifier: MPL-2.0
//! What gst-inspect-1.0 shows of each element, compared with tests/inspect.txt: a change there is a change for users.
//!
//! `UPDATE_SNAPSHOT=1 cargo test --test inspect` writes the file anew.
#![cfg(feature = "gstreamer")]

mod common;

use std::fmt::Write;

use gst::glib;
use gst::prelude::*;

const ELEMENTS: [&str; 7] =
    ["trtpreprocess", "trtinfer", "trtnms", "trttrack", "trtanalytics", "trtoverlay", "trtpublish"];

fn factories() -> impl Iterator<Item = gst::ElementFactory> {
    common::init();
    ELEMENTS.into_iter().map(|name| gst::ElementFactory::find(name).unwrap().load().unwrap())
}

/// The properties that the element itself brings.
fn properties(factory: &gst::ElementFactory) -> Vec<glib::ParamSpec> {
    let class = glib::object::Class::<gst::Element>::from_type(factory.element_type()).unwrap();
    class.list_properties().into_iter().filter(|property| property.owner_type() == factory.element_type()).collect()
}

fn describe(factory: &gst::ElementFactory) -> String {
    let mut text = format!("{}\n", factory.name());
    for key in ["long-name", "klass", "description"] {
        writeln!(text, "  {key}: {}", factory.metadata(key).unwrap()).unwrap();
    }
    for template in factory.static_pad_templates() {
        let (name, direction) = (template.name_template(), template.direction());
        writeln!(text, "\n  pad {name} ({direction:?}, {:?})", template.presence()).unwrap();
        for (structure, features) in template.caps().iter_with_features() {
            writeln!(text, "    {}({features})", structure.name()).unwrap();
            for (field, value) in structure.iter() {
                let value = value.serialize().unwrap();
                writeln!(text, "      {field}: {}", value.replace("(string)", "")).unwrap();
            }
        }
    }
    for property in properties(factory) {
        let (name, nick, blurb) = (property.name(), property.nick(), property.blurb().unwrap_or_default());
        writeln!(text, "\n  {name}: {nick}\n    {blurb}\n    {}\n    {}", kind(&property), access(&property)).unwrap();
        for value in values(&property) {
            writeln!(text, "      {}: {}", value.nick(), value.name()).unwrap();
        }
    }
    text
}

/// Type, range and default of a property.
fn kind(property: &glib::ParamSpec) -> String {
    fn range<T: std::fmt::Debug>(name: &str, minimum: T, maximum: T, default: T) -> String {
        format!("{name} from {minimum:?} to {maximum:?}, default {default:?}")
    }
    macro_rules! numbers {
        ($($spec:ident $name:literal)*) => {$(
            if let Some(spec) = property.downcast_ref::<glib::$spec>() {
                return range($name, spec.minimum(), spec.maximum(), spec.default_value());
            }
        )*};
    }
    numbers! { ParamSpecInt "int" ParamSpecUInt "unsigned int" ParamSpecUInt64 "unsigned 64-bit int" ParamSpecFloat "float" ParamSpecDouble "double" }
    let default = property.default_value();
    match property.value_type() {
        glib::Type::BOOL => format!("boolean, default {}", default.get::<bool>().unwrap()),
        glib::Type::STRING => match default.get::<Option<String>>().unwrap() {
            Some(default) => format!("string, default {default:?}"),
            None => "string, default unset".into(),
        },
        kind if kind.is_a(glib::Type::ENUM) => {
            let (_, value) = glib::EnumValue::from_value(default).unwrap();
            format!("enum {kind}, default {}", value.nick())
        }
        kind => kind.to_string(),
    }
}

fn access(property: &glib::ParamSpec) -> String {
    let flags = property.flags();
    let access = match (flags.contains(glib::ParamFlags::READABLE), flags.contains(glib::ParamFlags::WRITABLE)) {
        (true, true) => "readable and writable",
        (true, false) => return "readable".into(),
        (false, _) => "writable",
    };
    let state = if flags.contains(gst::PARAM_FLAG_MUTABLE_PLAYING) {
        "at any time"
    } else if flags.contains(gst::PARAM_FLAG_MUTABLE_PAUSED) {
        "until PAUSED"
    } else if flags.contains(gst::PARAM_FLAG_MUTABLE_READY) {
        "until READY"
    } else {
        "at an unknown time"
    };
    format!("{access} {state}")
}

fn values(property: &glib::ParamSpec) -> Vec<glib::EnumValue> {
    let class = glib::EnumClass::with_type(property.value_type());
    class.map_or(Vec::new(), |class| class.values().to_vec())
}

#[test]
fn elements_match_the_snapshot() {
    let path = common::path("tests/inspect.txt");
    let found = factories().map(|factory| describe(&factory)).collect::<Vec<_>>().join("\n");
    if std::env::var_os("UPDATE_SNAPSHOT").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let difference = difference(&expected, &found);
    assert!(difference.is_empty(), "UPDATE_SNAPSHOT=1 takes this over into {path}:\n{difference}");
}

/// The lines between equal beginnings and equal ends, marked as in a diff.
fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let start = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    let (expected, found) = (&expected[start..], &found[start..]);
    let end = expected.iter().rev().zip(found.iter().rev()).take_while(|(a, b)| a == b).count();
    let lines = |sign: char, lines: &[&str]| lines.iter().map(|line| format!("{sign}{line}\n")).collect::<String>();
    let text = lines('-', &expected[..expected.len() - end]) + &lines('+', &found[..found.len() - end]);
    if text.is_empty() { text } else { format!("@@ line {} @@\n{text}", start + 1) }
}

#[test]
fn differences_show_the_lines_that_differ() {
    assert_eq!(difference("a\nb\nc\n", "a\nb\nc\n"), "");
    assert_eq!(difference("a\nb\nc\n", "a\nx\nc\n"), "@@ line 2 @@\n-b\n+x\n");
    assert_eq!(difference("a\na\n", "a\na\na\n"), "@@ line 3 @@\n+a\n");
    assert_eq!(difference("", "a\n"), "@@ line 1 @@\n+a\n");
}

#[test]
fn texts_read_as_upstream_elements_do() {
    let reads_well = |text: &str| {
        !text.is_empty() && text.is_ascii() && !text.starts_with(char::is_lowercase) && !text.ends_with('.')
    };
    for factory in factories() {
        for key in ["long-name", "klass", "description"] {
            let text = factory.metadata(key).unwrap_or_default();
            assert!(reads_well(text), "{} {key}: {text}", factory.name());
        }
        for property in properties(&factory) {
            let (name, nick, blurb) = (property.name(), property.nick(), property.blurb().unwrap_or_default());
            assert!(reads_well(nick) && reads_well(blurb), "{name}: {nick}: {blurb}");
            for value in values(&property) {
                assert!(reads_well(value.name()), "{name}={}: {}", value.nick(), value.name());
            }
        }
    }
}

#[test]
fn elements_are_only_used_by_name() {
    assert!(factories().all(|factory| factory.rank() == gst::Rank::NONE));
}

#[test]
fn the_plugin_is_trt() {
    common::init();
    let plugin = gst::Registry::get().find_plugin("trt").unwrap();
    assert_eq!(plugin.license(), "MPL-2.0");
    assert!(plugin.version().starts_with(env!("CARGO_PKG_VERSION")));
    let mut elements: Vec<_> = gst::Registry::get().features_by_plugin("trt").iter().map(|f| f.name()).collect();
    elements.sort();
    assert_eq!(
        elements,
        ["trtanalytics", "trtinfer", "trtnms", "trtoverlay", "trtpreprocess", "trtpublish", "trttrack"]
    );
}

/// `trtinfer interval=5` names a property, and may give it a value.
#[test]
fn the_deepstream_page_names_existing_properties() {
    common::init();
    let page = std::fs::read_to_string(common::path("docs/deepstream.md")).unwrap();
    let mut named = 0;
    for words in page.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('`').skip(1).step_by(2)) {
        let Some((name, setting)) = words.split_once(' ').filter(|(name, _)| name.starts_with("trt")) else { continue };
        let element = gst::ElementFactory::make(name).build().unwrap_or_else(|error| panic!("{words}: {error}"));
        let (property, value) = setting.split_once('=').map_or((setting, None), |(name, value)| (name, Some(value)));
        assert!(element.has_property(property), "{words}");
        value.into_iter().for_each(|value| element.set_property_from_str(property, value));
        named += 1;
    }
    assert!(named > 20, "{named}");
}
