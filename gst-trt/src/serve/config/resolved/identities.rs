// SPDX-License-Identifier: MPL-2.0
//! Which objects of several sources are the same.

use std::time::Duration;

use gsttrt_core::identity::links::CameraPassages;
use gsttrt_core::identity::{CameraLink, CameraPassage, IdentityOptions};

use super::super::keys::{IdentityKeys, RunsOn, SourceLinkKeys};
use super::super::wording::{self, KeyError, problem};
use super::{Config, TableError};

const TABLE: &str = "identities";
const LINKS: &str = "identities.links";

#[derive(Clone, Debug, PartialEq)]
pub struct IdentitiesConfig {
    /// Whose vectors are compared.
    pub model: String,
    pub options: IdentityOptions,
}

impl Config {
    /// The models are known.
    pub(super) fn shared_identities(&self) -> Result<Option<IdentitiesConfig>, TableError> {
        let Some(keys) = &self.keys.identities else { return Ok(None) };
        let of_table = |problem: KeyError| (TABLE, 0, problem);
        let model = self.model_of_identities(keys).map_err(of_table)?;
        let mut options = options(keys).map_err(of_table)?;
        for (number, link) in keys.links.iter().enumerate() {
            options.links.push(self.link(link).map_err(|problem| (LINKS, number, problem))?);
        }
        check_links(&options.links)?;
        Ok(Some(IdentitiesConfig { model, options }))
    }

    fn model_of_identities(&self, keys: &IdentityKeys) -> Result<String, KeyError> {
        const KEY: &str = "model";
        if let Some(name) = &keys.model {
            return self.named(KEY, name, RunsOn::Objects).map(|model| model.name.clone());
        }
        let mut names = self.names(RunsOn::Objects);
        match (names.next(), names.next()) {
            (Some(only), None) => Ok(only.into()),
            (None, _) => Err(problem(KEY, "it needs a [[model]] with on = \"objects\" that gives vectors")),
            (Some(_), Some(_)) => {
                Err(problem(KEY, "several models see objects: set model to the one that gives vectors"))
            }
        }
    }

    fn link(&self, keys: &SourceLinkKeys) -> Result<CameraLink, KeyError> {
        let known = || self.keys.source.iter().map(|source| source.name.0.as_str());
        if let Some(name) = keys.sources.iter().find(|name| !known().any(|known| known == name.as_str())) {
            return Err(problem("sources", wording::unknown_name("source", name, known())));
        }
        let min_travel = keys.min_travel.map(|time| nanoseconds(time.0));
        let max_travel = keys.max_travel.map(|time| nanoseconds(time.0));
        if keys.overlap && (min_travel.is_some() || max_travel.is_some()) {
            let text =
                "objects need no time between sources that overlap: leave out overlap, or min-travel and max-travel";
            return Err(problem("overlap", text));
        }
        let passage = CameraPassage { overlap: keys.overlap, min_travel: min_travel.unwrap_or_default(), max_travel };
        Ok(CameraLink { cameras: keys.sources.clone(), passage })
    }

    /// The model by whose vectors the objects of a source get ids over sources, if it has one.
    pub(super) fn identities_of(&self, on_objects: &[String], has_track: bool) -> Result<Option<String>, KeyError> {
        let wanted = self.identities.as_ref().map(|identities| &identities.model);
        let Some(model) = wanted.filter(|model| on_objects.contains(model)) else { return Ok(None) };
        if !has_track {
            let text =
                format!("[identities] needs the ids of [track]: add it, or leave “{model}” out of on-objects here");
            return Err(problem("track", text));
        }
        Ok(Some(model.clone()))
    }
}

fn options(keys: &IdentityKeys) -> Result<IdentityOptions, KeyError> {
    let cosine = |key: &'static str, value: f32| match (0.0..=1.0).contains(&value) {
        true => Ok(value),
        false => Err(problem(key, "it is a cosine, from 0 to 1")),
    };
    let number = |key: &'static str, value: u32, most: u32| match (1..=most).contains(&value) {
        true => Ok(value),
        false => Err(problem(key, format!("it is a number from 1 to {most}"))),
    };
    let usual = IdentityOptions::default();
    Ok(IdentityOptions {
        threshold: cosine("threshold", keys.threshold.unwrap_or(usual.threshold))?,
        margin: cosine("margin", keys.margin.unwrap_or(usual.margin))?,
        looks: number("looks", keys.looks.unwrap_or(usual.looks), 100)?,
        max_age: keys.max_age.map_or(usual.max_age, |age| nanoseconds(age.0)),
        max_identities: number("max-identities", keys.max_identities.unwrap_or(usual.max_identities), 100_000)?,
        links: Vec::new(),
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn check_links(links: &[CameraLink]) -> Result<(), TableError> {
    const WORD: &str = "sources"; // a source of the service is a camera of the core
    let Err(error) = CameraPassages::new(links, WORD) else { return Ok(()) };
    let is_wrong = |number: &usize| CameraPassages::new(&links[..=*number], WORD).is_err();
    let number = (0..links.len()).find(is_wrong).unwrap_or_default();
    Err((LINKS, number, problem("sources", error.message())))
}
