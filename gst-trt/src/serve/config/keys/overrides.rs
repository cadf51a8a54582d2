// SPDX-License-Identifier: MPL-2.0
//! Tables that a source has in common with others, leaves out, or has of its own.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

/// What a source has of something that is configured for all.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Override<T> {
    /// As all.
    #[default]
    Common,
    /// `true`: as all, which must have it.
    Wanted,
    /// `false`
    Off,
    /// A table of its own.
    Own(T),
}

impl<T: Clone> Override<T> {
    pub fn or(&self, common: &Option<T>) -> Option<T> {
        match self {
            Override::Common | Override::Wanted => common.clone(),
            Override::Off => None,
            Override::Own(own) => Some(own.clone()),
        }
    }

    pub fn is_common(&self) -> bool {
        matches!(self, Override::Common | Override::Wanted)
    }

    /// Whether it is wanted, and there is none for all.
    pub fn is_missing(&self, common: &Option<T>) -> bool {
        matches!(self, Override::Wanted) && common.is_none()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Override<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ChoiceVisitor(PhantomData))
    }
}

struct ChoiceVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ChoiceVisitor<T> {
    type Value = Override<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false or a table")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(if value { Override::Wanted } else { Override::Off })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(de::value::MapAccessDeserializer::new(map)).map(Override::Own)
    }
}
