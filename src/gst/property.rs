// SPDX-License-Identifier: MPL-2.0
//! Properties of elements, each declared once with the setting that it shows.

use std::ffi::CStr;
use std::path::PathBuf;

use gst::glib;
use gst::glib::translate::{ToGlibPtr, from_glib_none};
use gst::glib::value::{FromValue, ValueTypeChecker};
use gst::prelude::*;

/// A property, and how it is read from and written to settings of the type `S`.
pub struct Property<S> {
    spec: glib::ParamSpec,
    get: Read<S>,
    set: Write<S>,
    /// Whether its text may have any bytes, as names of files have.
    is_path: bool,
}

type Read<S> = Box<dyn Fn(&S) -> glib::Value + Send + Sync>;
type Write<S> = Box<dyn Fn(&mut S, &glib::Value) + Send + Sync>;

const CHECKED: &str = "GObject has checked the type";

/// A type of properties.
pub trait Valued: ToValue + for<'v> FromValue<'v, Checker: ValueTypeChecker> + 'static {}
impl<T: ToValue + for<'v> FromValue<'v, Checker: ValueTypeChecker> + 'static> Valued for T {}

impl<S: 'static> Property<S> {
    /// A property that is read from and written to the settings as a value of GObject, whose type GObject has checked.
    pub fn of_values(
        spec: glib::ParamSpec,
        get: impl Fn(&S) -> glib::Value + Send + Sync + 'static,
        set: impl Fn(&mut S, &glib::Value) + Send + Sync + 'static,
    ) -> Self {
        Property { spec, get: Box::new(get), set: Box::new(set), is_path: false }
    }

    /// The same, where it is a path.
    pub fn with_path(self, is_path: bool) -> Self {
        Property { is_path, ..self }
    }

    /// A property of the type `T`, which is shown and taken in otherwise than the settings hold it.
    pub fn converted<T: Valued>(
        spec: glib::ParamSpec,
        get: impl Fn(&S) -> T + Send + Sync + 'static,
        set: impl Fn(&mut S, T) + Send + Sync + 'static,
    ) -> Self {
        Self::of_values(
            spec,
            move |settings| get(settings).to_value(),
            move |settings, value| set(settings, value.get().expect(CHECKED)),
        )
    }

    /// A property that has the setting's own type.
    pub fn new<T: Valued>(spec: glib::ParamSpec, get: fn(&S) -> &T, place: fn(&mut S) -> &mut T) -> Self {
        Self::of_values(
            spec,
            move |settings| get(settings).to_value(),
            move |settings, value| *place(settings) = value.get().expect(CHECKED),
        )
    }

    /// A text that is NULL where the setting is empty.
    pub fn text(spec: glib::ParamSpec, get: fn(&S) -> &String, place: fn(&mut S) -> &mut String) -> Self {
        Self::converted(
            spec,
            move |settings| Some(get(settings)).filter(|text| !text.is_empty()).cloned(),
            move |settings, text: Option<String>| *place(settings) = text.unwrap_or_default(),
        )
    }

    /// A path that is unset where the text is empty.
    pub fn path(
        spec: glib::ParamSpec,
        get: fn(&S) -> &Option<PathBuf>,
        place: fn(&mut S) -> &mut Option<PathBuf>,
    ) -> Self {
        Self::converted(
            spec,
            move |settings| get(settings).clone(),
            move |settings, path: Option<PathBuf>| *place(settings) = path.filter(|path| !path.as_os_str().is_empty()),
        )
        .with_path(true)
    }
}

/// All properties of an element but those that are only read.
pub struct PropertyTable<S>(Vec<Property<S>>);

impl<S> PropertyTable<S> {
    pub fn new(properties: Vec<Property<S>>) -> Self {
        PropertyTable(properties)
    }

    pub fn specs(&self) -> impl Iterator<Item = glib::ParamSpec> {
        self.0.iter().map(|property| property.spec.clone())
    }

    /// # Panics
    /// If there is no such property; GObject only asks for those that it was given.
    pub fn get(&self, settings: &S, name: &str) -> glib::Value {
        (self.find(name).get)(settings)
    }

    /// Whether the property can have that value: GObject has checked its type, but not that a text is UTF-8.
    ///
    /// # Panics
    /// As [`get`](Self::get).
    pub fn can_be(&self, name: &str, value: &glib::Value) -> bool {
        self.find(name).is_path || is_utf8(value)
    }

    /// # Panics
    /// As [`get`](Self::get), and where it [cannot be](Self::can_be) that.
    pub fn set(&self, settings: &mut S, name: &str, value: &glib::Value) {
        (self.find(name).set)(settings, value);
    }

    fn find(&self, name: &str) -> &Property<S> {
        self.0.iter().find(|property| property.spec.name() == name).expect("GObject knows the properties")
    }
}

/// Whether it is no text, or one in UTF-8. The bindings assume that.
fn is_utf8(value: &glib::Value) -> bool {
    if value.type_() != glib::Type::STRING {
        return true;
    }
    // SAFETY: the value is of that type; its text ends with a zero and lives as long as the value does.
    unsafe {
        let text = glib::gobject_ffi::g_value_get_string(value.to_glib_none().0);
        text.is_null() || CStr::from_ptr(text).to_str().is_ok()
    }
}

/// The text of a value that is one, with other characters for what is not UTF-8. `None` for values of other types.
pub fn text_of(value: &glib::Value) -> Option<String> {
    if value.type_() != glib::Type::STRING {
        return None;
    }
    // SAFETY: the value is of that type; it returns a text that is copied here, or NULL.
    unsafe { from_glib_none(glib::gobject_ffi::g_value_get_string(value.to_glib_none().0)) }
}

/// A property by its specification and the field of the settings that it shows.
macro_rules! property {
    ($spec:expr, $($place:ident).+) => {
        $crate::gst::property::Property::new($spec, |settings| &settings.$($place).+, |settings| &mut settings.$($place).+)
    };
}
/// The same of a text that may be unset.
macro_rules! text_property {
    ($spec:expr, $($place:ident).+) => {
        $crate::gst::property::Property::text($spec, |settings| &settings.$($place).+, |settings| &mut settings.$($place).+)
    };
}
/// The same of a path that may be unset.
macro_rules! path_property {
    ($spec:expr, $($place:ident).+) => {
        $crate::gst::property::Property::path($spec, |settings| &settings.$($place).+, |settings| &mut settings.$($place).+)
    };
}
pub(crate) use {path_property, property, text_property};
