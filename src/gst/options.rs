// SPDX-License-Identifier: MPL-2.0
//! Options as properties of GObject.

use std::ffi::CString;
use std::path::PathBuf;

use gst::glib::translate::{IntoGlib, from_glib, from_glib_none};
use gst::glib::{self, gobject_ffi};
use gst::prelude::*;
use gsttrt_core::backends::options::{BackendOption, Options};
use gsttrt_core::options::{self, Choice, OptionKind, OptionSpec, OptionValue, Setting};

use super::property::Property;

pub use gst::{PARAM_FLAG_MUTABLE_PLAYING as MUTABLE_PLAYING, PARAM_FLAG_MUTABLE_READY as MUTABLE_READY};

const CHECKED: &str = "checked by GObject";

/// The property that a setting becomes, by where an element's settings have it. `mutable` is the state up to which it
/// counts.
pub fn property<S: Clone + Default + 'static, T: 'static>(
    setting: &Setting<T>,
    mutable: glib::ParamFlags,
    place: fn(&mut S) -> &mut T,
) -> Property<S> {
    let &Setting { spec, field } = setting;
    let value = move |settings: &S| field(place(&mut settings.clone())).value();
    Property::of_values(
        param_spec(spec, &value(&S::default()), mutable),
        move |settings| to_value(spec, &value(settings)),
        move |settings, value| field(place(settings)).set(spec.name, from_value(spec, value)).expect(CHECKED),
    )
    .with_path(matches!(spec.kind, OptionKind::Path))
}

/// The properties that all settings of a table become.
pub fn properties<S: Clone + Default + 'static, T: 'static>(
    table: &'static [Setting<T>],
    mutable: glib::ParamFlags,
    place: fn(&mut S) -> &mut T,
) -> impl Iterator<Item = Property<S>> {
    table.iter().map(move |setting| property(setting, mutable, place))
}

/// The property that an option of a backend becomes. Set while a model runs, it counts for the next one.
pub fn of_backend<S: 'static>(
    option: &'static BackendOption,
    get: fn(&S) -> &Options,
    place: fn(&mut S) -> &mut Options,
) -> Property<S> {
    Property::of_values(
        param_spec(&option.spec, &option.default, MUTABLE_PLAYING),
        move |settings| to_value(&option.spec, &get(settings).get(option)),
        move |settings, value| place(settings).set(option, from_value(&option.spec, value)),
    )
    .with_path(matches!(option.spec.kind, OptionKind::Path))
}

fn param_spec(option: &OptionSpec, default: &OptionValue, mutable: glib::ParamFlags) -> glib::ParamSpec {
    let flags = glib::ParamFlags::READWRITE | mutable;
    macro_rules! build {
        ($type:ident $(, $set:ident($value:expr))*) => {
            glib::$type::builder(option.name).nick(option.nick).blurb(option.blurb)$(.$set($value))*.flags(flags).build()
        };
    }
    match (&option.kind, default) {
        (OptionKind::Flag, OptionValue::Flag(default)) => build!(ParamSpecBoolean, default_value(*default)),
        (OptionKind::Int(range), OptionValue::Int(default)) => {
            build!(ParamSpecInt, minimum(*range.start()), maximum(*range.end()), default_value(*default))
        }
        (OptionKind::UInt(range), OptionValue::UInt(default)) => {
            build!(ParamSpecUInt, minimum(*range.start()), maximum(*range.end()), default_value(*default))
        }
        (OptionKind::UInt64, OptionValue::UInt64(default)) => build!(ParamSpecUInt64, default_value(*default)),
        (OptionKind::Float(range), OptionValue::Float(default)) => {
            build!(ParamSpecFloat, minimum(*range.start()), maximum(*range.end()), default_value(*default))
        }
        (OptionKind::Path, OptionValue::Path(_)) => build!(ParamSpecString),
        (OptionKind::Text, OptionValue::Text(default)) => {
            build!(ParamSpecString, default_value(Some(default.as_str()).filter(|text| !text.is_empty())))
        }
        (OptionKind::Choice { type_name, choices }, OptionValue::Choice(default)) => {
            let [name, nick, blurb] = [option.name, option.nick, option.blurb].map(c_text);
            // SAFETY: the texts are copied; the type is an enumeration that has the default.
            unsafe {
                from_glib_none(gobject_ffi::g_param_spec_enum(
                    name.as_ptr(),
                    nick.as_ptr(),
                    blurb.as_ptr(),
                    enumeration(type_name, choices).into_glib(),
                    number(choices, default),
                    flags.bits(),
                ))
            }
        }
        _ => panic!("{}: the field has another type", option.name),
    }
}

/// A value of the option as its property has it.
fn to_value(option: &OptionSpec, value: &OptionValue) -> glib::Value {
    match (&option.kind, value) {
        (_, OptionValue::Flag(flag)) => flag.to_value(),
        (_, OptionValue::Int(number)) => number.to_value(),
        (_, OptionValue::UInt(number)) => number.to_value(),
        (_, OptionValue::UInt64(number)) => number.to_value(),
        (_, OptionValue::Float(number)) => number.to_value(),
        (_, OptionValue::Path(path)) => path.as_deref().to_value(),
        (_, OptionValue::Text(text)) => (!text.is_empty()).then_some(text).to_value(),
        (OptionKind::Choice { type_name, choices }, OptionValue::Choice(word)) => {
            let class = glib::EnumClass::with_type(enumeration(type_name, choices)).expect("it is an enumeration");
            class.to_value(number(choices, word)).expect("it has this value")
        }
        (_, OptionValue::Choice(_)) => unreachable!("words are of choices"),
    }
}

/// The value of an option that a property was set to; GObject has checked type and range.
fn from_value(option: &OptionSpec, value: &glib::Value) -> OptionValue {
    match &option.kind {
        OptionKind::Flag => OptionValue::Flag(value.get().expect(CHECKED)),
        OptionKind::Int(_) => OptionValue::Int(value.get().expect(CHECKED)),
        OptionKind::UInt(_) => OptionValue::UInt(value.get().expect(CHECKED)),
        OptionKind::UInt64 => OptionValue::UInt64(value.get().expect(CHECKED)),
        OptionKind::Float(_) => OptionValue::Float(value.get().expect(CHECKED)),
        OptionKind::Path => OptionValue::Path(value.get::<Option<PathBuf>>().expect(CHECKED).and_then(options::path)),
        OptionKind::Text => OptionValue::Text(value.get::<Option<String>>().expect(CHECKED).unwrap_or_default()),
        OptionKind::Choice { choices, .. } => {
            let (_, value) = glib::EnumValue::from_value(value).expect(CHECKED);
            OptionValue::Choice(choices[value.value() as usize].word)
        }
    }
}

/// The number of a word in GObject.
fn number(choices: &[Choice], word: &str) -> i32 {
    choices.iter().position(|choice| choice.word == word).unwrap_or(0) as i32
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
