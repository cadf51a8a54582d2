// SPDX-License-Identifier: MPL-2.0
//! Properties of elements, each declared once with the setting that it shows.

use gst::glib;
use gst::glib::value::{FromValue, ValueTypeChecker};
use gst::prelude::*;

/// A property, and how it is read from and written to settings of the type `S`.
pub struct Property<S> {
    spec: glib::ParamSpec,
    get: Read<S>,
    set: Write<S>,
}

type Read<S> = Box<dyn Fn(&S) -> glib::Value + Send + Sync>;
type Write<S> = Box<dyn Fn(&mut S, &glib::Value) + Send + Sync>;

const CHECKED: &str = "GObject has checked the type";

impl<S: 'static> Property<S> {
    /// A property that has the setting's own type.
    pub fn new<T>(spec: glib::ParamSpec, get: fn(&S) -> &T, place: fn(&mut S) -> &mut T) -> Self
    where
        T: ToValue + for<'v> FromValue<'v, Checker: ValueTypeChecker> + 'static,
    {
        Property {
            spec,
            get: Box::new(move |settings| get(settings).to_value()),
            set: Box::new(move |settings, value| *place(settings) = value.get().expect(CHECKED)),
        }
    }

    /// A text that is NULL where the setting is empty.
    pub fn text(spec: glib::ParamSpec, get: fn(&S) -> &String, place: fn(&mut S) -> &mut String) -> Self {
        Property {
            spec,
            get: Box::new(move |settings| Some(get(settings)).filter(|text| !text.is_empty()).to_value()),
            set: Box::new(move |settings, value| {
                *place(settings) = value.get::<Option<String>>().expect(CHECKED).unwrap_or_default();
            }),
        }
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

    /// # Panics
    /// As [`get`](Self::get).
    pub fn set(&self, settings: &mut S, name: &str, value: &glib::Value) {
        (self.find(name).set)(settings, value);
    }

    fn find(&self, name: &str) -> &Property<S> {
        self.0.iter().find(|property| property.spec.name() == name).expect("GObject knows the properties")
    }
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
pub(crate) use {property, text_property};
