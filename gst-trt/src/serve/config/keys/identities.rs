// SPDX-License-Identifier: MPL-2.0
//! `[identities]` as it is written.

use super::{Age, Seconds};

#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct IdentityKeys {
    /// The one whose vectors are compared; the only one that sees objects, where it is left out.
    pub model: Option<String>,
    pub threshold: Option<f32>,
    pub margin: Option<f32>,
    pub looks: Option<u32>,
    pub max_age: Option<Age>,
    pub max_identities: Option<u32>,
    #[serde(default)]
    pub links: Vec<SourceLinkKeys>,
}

/// How objects come from one source to another.
#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SourceLinkKeys {
    pub sources: Vec<String>,
    #[serde(default)]
    pub overlap: bool,
    pub min_travel: Option<Seconds>,
    pub max_travel: Option<Seconds>,
}
