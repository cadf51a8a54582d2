// SPDX-License-Identifier: MPL-2.0
//! Properties of an element as keys of a table: their names, types and ranges are those of the element.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use gst::glib;
use gst::glib::translate::*;
use gst::prelude::*;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::{size, time, wording};

/// The element whose properties a table has.
pub trait ConfiguredElement {
    const FACTORY: &'static str;
    /// Keys of the table that are no properties, all of them texts.
    const MORE: &'static [&'static str] = &[];
    /// Properties that are set here and nowhere else.
    const TAKEN: &'static [&'static str] = &[];
    /// The only properties that belong in the table; all, where it is empty.
    const ONLY: &'static [&'static str] = &[];
}

#[derive(Clone, Debug)]
pub struct TrackElement;
#[derive(Clone, Debug)]
pub struct AnalyticsElement;
#[derive(Clone, Debug)]
pub struct PublishElement;
#[derive(Clone, Debug)]
pub struct PrivacyElement;
#[derive(Clone, Debug)]
pub struct MatchElement;

impl ConfiguredElement for TrackElement {
    const FACTORY: &'static str = "trttrack";
}

impl ConfiguredElement for AnalyticsElement {
    const FACTORY: &'static str = "trtanalytics";
    const TAKEN: &'static [&'static str] = &["post-messages"];
}

impl ConfiguredElement for PublishElement {
    const FACTORY: &'static str = "trtpublish";
    const MORE: &'static [&'static str] = &["name"];
}

impl ConfiguredElement for PrivacyElement {
    const FACTORY: &'static str = "trtoverlay";
    const ONLY: &'static [&'static str] = &["blur", "pixelate", "mask"];
}

impl ConfiguredElement for MatchElement {
    const FACTORY: &'static str = "trtmatch";
    // What is for ids over cameras is in [identities].
    const ONLY: &'static [&'static str] = &["gallery", "threshold", "margin", "top-k", "device"];
}

/// Values by name, as the texts that GStreamer reads.
#[derive(Clone, Debug)]
pub struct ElementProperties<O> {
    values: Vec<(String, String)>,
    owner: PhantomData<O>,
}

impl<O> PartialEq for ElementProperties<O> {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl<O: ConfiguredElement> ElementProperties<O> {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn set(&mut self, name: &str, value: String) {
        self.remove(name);
        self.values.push((name.into(), value));
    }

    pub fn remove(&mut self, name: &str) -> Option<String> {
        let position = self.values.iter().position(|(key, _)| key == name)?;
        Some(self.values.remove(position).1)
    }

    /// Changes each text that is not one of the further keys.
    pub fn change<E>(&mut self, change: impl Fn(&str) -> Result<String, E>) -> Result<(), E> {
        let texts = self.values.iter_mut().filter(|(name, _)| !O::MORE.contains(&name.as_str()));
        for (_, value) in texts {
            *value = change(value)?;
        }
        Ok(())
    }

    /// Sets them on the element.
    pub fn apply(&self, element: &gst::Element) {
        for (name, text) in &self.values {
            if let Some(spec) = element.find_property(name)
                && let Ok(value) = value(&spec, text)
            {
                element.set_property_from_value(name, &value);
            }
        }
    }
}

impl ElementProperties<AnalyticsElement> {
    /// The key that has the zones.
    pub fn config_key(&self) -> &'static str {
        if self.get("config-file").is_some() { "config-file" } else { "config" }
    }
}

/// The properties of an element that belong in a configuration.
fn specs<O: ConfiguredElement>() -> Vec<glib::ParamSpec> {
    let Ok(element) = gst::ElementFactory::make(O::FACTORY).build() else { return Vec::new() };
    let specs = element.list_properties().into_iter().filter(|spec| spec.owner_type() == element.type_());
    let is_of_table = |name| !O::TAKEN.contains(&name) && (O::ONLY.is_empty() || O::ONLY.contains(&name));
    specs.filter(|spec| spec.flags().contains(glib::ParamFlags::WRITABLE) && is_of_table(spec.name())).collect()
}

fn value(spec: &glib::ParamSpec, text: &str) -> Result<glib::Value, String> {
    if spec.value_type() == glib::Type::STRING {
        return Ok(text.to_value());
    }
    let mut value = glib::Value::deserialize_with_pspec(text, spec).map_err(|_| refused(spec, text))?;
    // SAFETY: both are alive, and the value is of the specification's type, as it was read for it.
    let is_changed =
        unsafe { glib::gobject_ffi::g_param_value_validate(spec.to_glib_none().0, value.to_glib_none_mut().0) };
    match is_changed {
        glib::ffi::GFALSE => Ok(value),
        _ => {
            let range = numbers(spec).map_or(String::new(), |numbers| format!(": it is {numbers}"));
            Err(format!("it cannot be {text}, which is out of its range{range}"))
        }
    }
}

/// What is said about a value that the property cannot have.
fn refused(spec: &glib::ParamSpec, text: &str) -> String {
    match glib::EnumClass::with_type(spec.value_type()) {
        Some(choices) => {
            let words: Vec<&str> = choices.values().iter().map(|choice| choice.nick()).collect();
            wording::unknown_value(text, &words)
        }
        None => {
            let wanted = numbers(spec).map_or(String::new(), |numbers| format!(": it is {numbers}"));
            format!("it cannot be “{}”{wanted}", text.chars().take(64).collect::<String>())
        }
    }
}

/// Which numbers a property may be.
fn numbers(spec: &glib::ParamSpec) -> Option<String> {
    macro_rules! range {
        ($what:literal: $($kind:ident)*) => {
            $(if let Some(spec) = spec.downcast_ref::<glib::$kind>() {
                return Some(format!("{} from {} to {}", $what, spec.minimum(), spec.maximum()));
            })*
        };
    }
    range!("a whole number": ParamSpecInt ParamSpecUInt ParamSpecInt64 ParamSpecUInt64);
    range!("a number": ParamSpecFloat ParamSpecDouble);
    None
}

impl<'de, O: ConfiguredElement> de::Deserialize<'de> for ElementProperties<O> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PropertyVisitor(PhantomData))
    }
}

struct PropertyVisitor<O>(PhantomData<O>);

impl<'de, O: ConfiguredElement> Visitor<'de> for PropertyVisitor<O> {
    type Value = ElementProperties<O>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table with properties of {}", O::FACTORY)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let specs = specs::<O>();
        let mut values = Vec::new();
        while let Some(key) = map.next_key_seed(PropertyKey(&specs, O::MORE))? {
            let spec = specs.iter().find(|spec| spec.name() == key);
            let text = map.next_value_seed(Text(&key, spec))?;
            values.push((key, text));
        }
        Ok(ElementProperties { values, owner: PhantomData })
    }
}

/// A key, which must be known. What is wrong is said while it is read, so that the error has its place in the file.
struct PropertyKey<'a>(&'a [glib::ParamSpec], &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for PropertyKey<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for PropertyKey<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<String, E> {
        let known: Vec<&str> = self.0.iter().map(|spec| spec.name()).chain(self.1.iter().copied()).collect();
        if known.contains(&key) { Ok(key.into()) } else { Err(E::custom(wording::unknown_key(key, &known))) }
    }
}

/// The value of a key.
struct Text<'a>(&'a str, Option<&'a glib::ParamSpec>);

impl Text<'_> {
    fn check<E: de::Error>(&self, text: String) -> Result<String, E> {
        let Some(spec) = self.1 else { return Ok(text) };
        let wrong = |problem: String| E::custom(format!("{}: {problem}", self.0));
        let shown: String = text.chars().take(64).collect();
        if size::is_of_bytes(spec) {
            let number = size::in_bytes(&text);
            let checked = value(spec, &number).map(|_| number);
            return checked.map_err(|_| wrong(format!("“{shown}” is no size: {}", size::FORM)));
        }
        let Some(unit) = time::unit(spec) else {
            return value(spec, &text).map(|_| text).map_err(wrong);
        };
        let number = time::in_unit(&text, unit);
        if value(spec, &number).is_err() {
            return Err(wrong(format!("“{shown}” is no time: {}", time::FORM)));
        }
        // Without a unit it is of the element's, which few would think of.
        let is_bare = number == text;
        let is_short = |number: u64| number > 0 && u128::from(number) * unit.as_nanos() < time::SHORTEST.as_nanos();
        if is_bare && unit < Duration::from_micros(1) && number.parse().is_ok_and(is_short) {
            return Err(wrong(format!("{shown} without a unit is less than a millisecond: {}", time::FORM)));
        }
        Ok(number)
    }
}

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Text<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, true or false")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<String, E> {
        self.check(value.to_string())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<String, E> {
        self.check(value.to_string())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<String, E> {
        self.check(value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<String, E> {
        self.check(value.to_string())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<String, E> {
        if value.contains('\0') {
            return Err(E::custom("a text cannot contain the character NUL"));
        }
        self.check(value.into())
    }
}
