// SPDX-License-Identifier: MPL-2.0
//! What the elements say of themselves reads as that of upstream's, and the pages that name their properties name
//! existing ones. docs/reference shows all of it: tests/reference.rs.

use std::ffi::CStr;
use std::path::PathBuf;

use crate::common::elements::{ELEMENTS, factories, properties, values};
use gst::glib::{self, gobject_ffi, translate::*};
use gst::prelude::*;

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

/// A value that bindings to other languages cannot make: GLib takes any bytes.
fn bytes(text: &CStr) -> glib::Value {
    let mut value = glib::Value::from_type(glib::Type::STRING);
    // SAFETY: the value is of that type, and the text is copied.
    unsafe { gobject_ffi::g_value_set_string(value.to_glib_none_mut().0, text.as_ptr()) };
    value
}

/// As a program in C has it whose files are in Latin-1. It would end by a panic in a function of C.
#[test]
fn a_text_that_is_not_utf8_is_refused_and_paths_may_have_any_bytes() {
    let text = bytes(c"Caf\xe9");
    let (mut texts, mut paths) = (0, 0);
    for factory in factories() {
        let (element, bus) = (factory.create().build().unwrap(), gst::Bus::new());
        element.set_bus(Some(&bus));
        let is_text = |property: &glib::ParamSpec| {
            property.value_type() == glib::Type::STRING && property.flags().contains(glib::ParamFlags::WRITABLE)
        };
        for property in properties(&factory).into_iter().filter(is_text) {
            let name = property.name();
            let is_readable = property.flags().contains(glib::ParamFlags::READABLE);
            let value = || is_readable.then(|| element.property::<Option<PathBuf>>(name)).flatten();
            let before = value();
            element.set_property_from_value(name, &text);
            match bus.pop_filtered(&[gst::MessageType::Warning]) {
                Some(warning) => {
                    let gst::MessageView::Warning(warning) = warning.view() else { panic!("{warning:?}") };
                    let said = warning.error().to_string();
                    assert!(said.starts_with(&format!("{name} stays as it is")) && said.contains("UTF-8"), "{said}");
                    assert_eq!(value(), before, "{name}");
                    texts += 1;
                }
                None => {
                    assert_eq!(value().unwrap().as_os_str().as_encoded_bytes(), b"Caf\xe9", "{name}");
                    paths += 1;
                }
            }
        }
    }
    assert!(texts > 9 && paths > 9, "{texts} {paths}");
    let analytics = gst::ElementFactory::make("trtanalytics").build().unwrap();
    let bus = gst::Bus::new();
    analytics.set_bus(Some(&bus));
    analytics.emit_by_name_with_values("reset-counts", &[text]);
    assert!(bus.pop_filtered(&[gst::MessageType::Warning]).is_some(), "there is no such zone");
}

/// As what is out of range, it does not come to an element: GLib says so, and the property keeps its value.
#[test]
fn no_number_can_be_nan() {
    let mut count = 0;
    for factory in factories() {
        let element = factory.create().build().unwrap();
        for property in properties(&factory).into_iter().filter(|property| property.value_type() == glib::Type::F32) {
            let name = property.name();
            let before: f32 = element.property(name);
            let nan = f32::NAN.to_value();
            // SAFETY: as a program in C sets it; all three live as long as the call.
            unsafe {
                let object = element.upcast_ref::<glib::Object>();
                gobject_ffi::g_object_set_property(
                    object.to_glib_none().0,
                    name.to_glib_none().0,
                    nan.to_glib_none().0,
                );
            }
            assert_eq!(element.property::<f32>(name), before, "{name}");
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

#[test]
fn elements_are_only_used_by_name() {
    assert!(factories().all(|factory| factory.rank() == gst::Rank::NONE));
}

#[test]
fn the_plugin_is_trt() {
    crate::common::init();
    let plugin = gst::Registry::get().find_plugin("trt").unwrap();
    assert_eq!(plugin.license(), "MPL-2.0");
    assert!(plugin.version().starts_with(env!("CARGO_PKG_VERSION")));
    let mut elements: Vec<_> = gst::Registry::get().features_by_plugin("trt").iter().map(|f| f.name()).collect();
    let mut expected = ELEMENTS;
    elements.sort();
    expected.sort();
    assert_eq!(elements, expected);
}

/// `trtinfer interval=5` names a property, and may give it a value.
#[test]
fn pages_for_those_who_come_from_elsewhere_name_existing_properties() {
    crate::common::init();
    for (name, least) in [("deepstream", 40), ("dlstreamer", 40), ("ultralytics", 20)] {
        let page = std::fs::read_to_string(crate::common::path(&format!("docs/{name}.md"))).unwrap();
        let named = page.lines().filter(|line| line.starts_with('|')).map(names_existing_properties).sum::<usize>();
        assert!(named > least, "docs/{name}.md: {named}");
    }
}

/// How many properties a line names.
fn names_existing_properties(line: &str) -> usize {
    let mut named = 0;
    for words in line.split('`').skip(1).step_by(2) {
        let Some((name, setting)) =
            words.split_once(' ').filter(|(name, rest)| ELEMENTS.contains(name) && !rest.starts_with('!'))
        else {
            continue;
        };
        let element = gst::ElementFactory::make(name).build().unwrap();
        for setting in setting.split(' ') {
            let (property, value) =
                setting.split_once('=').map_or((setting, None), |(name, value)| (name, Some(value)));
            assert!(element.has_property(property), "{words}");
            value.into_iter().for_each(|value| element.set_property_from_str(property, value));
            named += 1;
        }
    }
    named
}
