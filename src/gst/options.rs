// SPDX-License-Identifier: MPL-2.0
//! Options of backends as properties of GObject.

use std::ffi::CString;
use std::path::PathBuf;

use gst::glib::translate::{IntoGlib, from_glib, from_glib_none};
use gst::glib::{self, gobject_ffi};
use gst::prelude::*;

use super::property::Property;
use crate::backends::options::{self, Choice, OptionKind, OptionSpec, OptionValue, Options};

/// The property that an option becomes, by where the settings have the options.
pub fn property<S: 'static>(
    option: &'static OptionSpec,
    get: fn(&S) -> &Options,
    place: fn(&mut S) -> &mut Options,
) -> Property<S> {
    Property::of_values(
        spec(option),
        move |settings| to_value(option, &get(settings).get(option)),
        move |settings, value| place(settings).set(option, from_value(option, value)),
    )
}

/// The specification of the property. Set while a model runs, it counts for the next one.
pub fn spec(option: &OptionSpec) -> glib::ParamSpec {
    macro_rules! build {
        ($builder:expr) => {
            $builder.nick(option.nick).blurb(option.blurb).mutable_playing().build()
        };
    }
    match &option.kind {
        OptionKind::Flag => build!(glib::ParamSpecBoolean::builder(option.name)),
        OptionKind::Int { min, max, default } => {
            build!(glib::ParamSpecInt::builder(option.name).minimum(*min).maximum(*max).default_value(*default))
        }
        OptionKind::UInt { max, default } => {
            build!(glib::ParamSpecUInt::builder(option.name).maximum(*max).default_value(*default))
        }
        OptionKind::Path | OptionKind::Text => build!(glib::ParamSpecString::builder(option.name)),
        OptionKind::Choice { type_name, choices } => {
            let [name, nick, blurb] = [option.name, option.nick, option.blurb].map(c_text);
            let flags = glib::ParamFlags::READWRITE | gst::PARAM_FLAG_MUTABLE_PLAYING;
            // SAFETY: the texts are copied; the type is an enumeration that has the value 0.
            unsafe {
                from_glib_none(gobject_ffi::g_param_spec_enum(
                    name.as_ptr(),
                    nick.as_ptr(),
                    blurb.as_ptr(),
                    enumeration(type_name, choices).into_glib(),
                    0,
                    flags.bits(),
                ))
            }
        }
    }
}

/// A value of the option as its property has it.
pub fn to_value(option: &OptionSpec, value: &OptionValue) -> glib::Value {
    match (&option.kind, value) {
        (_, OptionValue::Flag(flag)) => flag.to_value(),
        (_, OptionValue::Int(number)) => number.to_value(),
        (_, OptionValue::UInt(number)) => number.to_value(),
        (_, OptionValue::Path(path)) => path.as_deref().to_value(),
        (_, OptionValue::Text(text)) => (!text.is_empty()).then_some(text).to_value(),
        (OptionKind::Choice { type_name, choices }, OptionValue::Choice(word)) => {
            let number = choices.iter().position(|choice| choice.word == *word).unwrap_or(0);
            let class = glib::EnumClass::with_type(enumeration(type_name, choices)).expect("it is an enumeration");
            class.to_value(number as i32).expect("it has this value")
        }
        (_, OptionValue::Choice(_)) => unreachable!("words are of choices"),
    }
}

/// The value of an option that a property was set to; GObject has checked type and range.
pub fn from_value(option: &OptionSpec, value: &glib::Value) -> OptionValue {
    const CHECKED: &str = "checked by GObject";
    match &option.kind {
        OptionKind::Flag => OptionValue::Flag(value.get().expect(CHECKED)),
        OptionKind::Int { .. } => OptionValue::Int(value.get().expect(CHECKED)),
        OptionKind::UInt { .. } => OptionValue::UInt(value.get().expect(CHECKED)),
        OptionKind::Path => OptionValue::Path(value.get::<Option<PathBuf>>().expect(CHECKED).and_then(options::path)),
        OptionKind::Text => OptionValue::Text(value.get::<Option<String>>().expect(CHECKED).unwrap_or_default()),
        OptionKind::Choice { choices, .. } => {
            let (_, value) = glib::EnumValue::from_value(value).expect(CHECKED);
            OptionValue::Choice(choices[value.value() as usize].word)
        }
    }
}

/// The type of an enumeration with these words, numbered from 0; registered at the first call.
fn enumeration(type_name: &str, choices: &[Choice]) -> glib::Type {
    if let Some(known) = glib::Type::from_name(type_name) {
        return known;
    }
    let value = |(number, choice): (usize, &Choice)| gobject_ffi::GEnumValue {
        value: number as i32,
        value_name: c_text(choice.blurb).into_raw(),
        value_nick: c_text(choice.word).into_raw(),
    };
    let end = gobject_ffi::GEnumValue { value: 0, value_name: std::ptr::null(), value_nick: std::ptr::null() };
    let values: Vec<_> = choices.iter().enumerate().map(value).chain([end]).collect();
    let name = c_text(type_name);
    // SAFETY: the name is copied; types are never removed, and so the values are never freed.
    unsafe { from_glib(gobject_ffi::g_enum_register_static(name.as_ptr(), values.leak().as_ptr())) }
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("declarations have no zero bytes")
}
