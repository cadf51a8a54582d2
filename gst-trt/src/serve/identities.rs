// SPDX-License-Identifier: MPL-2.0
//! The same object on several sources: a table in memory that their elements share.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gst::prelude::*;
use gsttrt::trtmatch::sharing;
use gsttrt_core::identity::{Identities, IdentityCounts, IdentityEntry};
use serde::Serialize;

use super::config::{IdentitiesConfig, ModelConfig, SourceConfig};
use crate::failure::Failure;

/// By which elements know it. There is one in a process.
const NAME: &str = "gst-trt serve";
/// Objects in an answer.
const MOST_LISTED: usize = 1000;

/// The table, if there is one.
#[derive(Clone, Debug, Default)]
pub struct ServedIdentities {
    table: Option<Arc<Identities>>,
    /// Whose vectors are in it.
    model: String,
}

/// An object that is known.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct IdentityStatus {
    pub id: u64,
    pub label: String,
    /// That have seen it last, the last one first.
    pub sources: Vec<String>,
    pub in_sight: bool,
    /// Since 1970, in seconds.
    pub first_seen: f64,
    pub last_seen: f64,
}

impl ServedIdentities {
    /// Makes the table, where it is wanted and there is none, or one of another model: sources that start look for it. Returns what
    /// was there before, where it is new.
    pub fn begin(&mut self, wanted: Option<&IdentitiesConfig>) -> Result<Option<Self>, Failure> {
        let is_new = |config: &&IdentitiesConfig| self.table.is_none() || self.model != config.model;
        let Some(config) = wanted.filter(is_new) else { return Ok(None) };
        let table = Identities::new(config.options.clone())?;
        sharing::offer(NAME, &table);
        let new = ServedIdentities { table: Some(table), model: config.model.clone() };
        Ok(Some(std::mem::replace(self, new)))
    }

    /// Goes on with what was there before.
    pub fn go_back(&mut self, before: Self) {
        self.remove();
        if let Some(table) = &before.table {
            sharing::offer(NAME, table);
        }
        *self = before;
    }

    /// Goes on by that configuration. Ids that were given stay, unless there are to be none any more.
    pub fn change(&mut self, wanted: Option<&IdentitiesConfig>) {
        match (wanted, self.table.clone()) {
            (Some(config), Some(table)) if table.options() != config.options => {
                let _ = table.set_options(config.options.clone()); // links were checked when they were read
            }
            (None, Some(_)) => self.remove(),
            _ => {}
        }
    }

    /// Forgets all objects, and the table.
    pub fn remove(&mut self) {
        self.forget_all();
        *self = ServedIdentities::default();
    }

    /// The table, if it has the vectors of that model.
    pub fn of(&self, model: &str) -> Self {
        if self.model == model { self.clone() } else { Self::default() }
    }

    /// The last seen ones first.
    pub fn list(&self) -> Vec<IdentityStatus> {
        let now = Instant::now();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let since = |seen: Instant| unix.saturating_sub(now.saturating_duration_since(seen)).as_secs_f64();
        let status = |IdentityEntry { id, label, cameras, is_in_sight, first_seen, last_seen }: IdentityEntry| {
            let (first_seen, last_seen) = (since(first_seen), since(last_seen));
            IdentityStatus { id, label, sources: cameras, in_sight: is_in_sight, first_seen, last_seen }
        };
        self.table.iter().flat_map(|table| table.list(MOST_LISTED, now)).map(status).collect()
    }

    /// Removes an object with all of its vectors. Returns whether it was there.
    pub fn forget(&self, id: u64) -> bool {
        self.table.as_ref().is_some_and(|table| table.forget(id))
    }

    pub fn forget_all(&self) {
        if let Some(table) = &self.table {
            table.forget_all();
        }
    }

    pub fn counts(&self) -> Option<IdentityCounts> {
        self.table.as_ref().map(|table| table.counts())
    }
}

/// Lets the element behind a model of a source share the table.
pub fn connect(matching: &gst::Element, source: &SourceConfig, model: &ModelConfig) {
    matching.set_property("identities", NAME);
    matching.set_property("camera", &source.name);
    if let Some(classes) = &model.classes {
        matching.set_property("identity-classes", classes);
    }
}

#[cfg(test)]
pub mod tests {
    use gsttrt_core::identity::{IdentityOptions, ObjectLook, SeenObject};

    use super::*;

    /// A table with an object that two sources have seen, and one that the second of them has seen. Nothing is in sight.
    pub fn served() -> (ServedIdentities, Arc<Identities>) {
        let table = Identities::new(IdentityOptions { looks: 1, ..IdentityOptions::default() }).unwrap();
        let vectors = [[1.0, 0.0], [0.0, 1.0]];
        let looks = vectors.each_ref().map(|values| ObjectLook { values, model: "reid" });
        let see = |camera: &str, time: u64, tracks: u64| {
            let looks_of = |track: u64| &looks[track as usize..][..1];
            let object = |track: u64| SeenObject { track, label: "person", quality: 1.0, looks: looks_of(track) };
            let objects: Vec<SeenObject> = (0..tracks).map(object).collect();
            table.join(camera).see(&objects, time, Instant::now());
        };
        see("door", 1, 1);
        see("yard", 2, 2);
        (ServedIdentities { table: Some(table.clone()), model: "reid".into() }, table)
    }

    #[test]
    fn objects_are_listed_and_removed() {
        let (served, table) = served();
        let listed = served.list();
        let places: Vec<_> = listed.iter().map(|found| (found.id, found.sources.join(" "))).collect();
        assert_eq!(places, [(1, "yard door".to_string()), (2, "yard".to_string())]);
        assert!(
            listed.iter().all(|found| found.first_seen <= found.last_seen && found.last_seen > 1.6e9),
            "{listed:?}"
        );
        assert!(served.forget(1) && !served.forget(1));
        served.forget_all();
        assert_eq!((table.counts().known, served.counts().unwrap().deleted), (0, 2));
        let none = ServedIdentities::default();
        assert!(none.list().is_empty() && none.counts().is_none() && !none.forget(1));
    }

    #[test]
    fn a_removed_table_is_empty() {
        let (mut served, table) = served();
        served.change(None);
        assert_eq!((table.counts().known, served.counts()), (0, None));
    }

    #[test]
    fn another_model_has_a_table_of_its_own() {
        let (mut served, table) = served();
        let config = |model: &str| IdentitiesConfig { model: model.into(), options: IdentityOptions::default() };
        assert!(served.begin(None).unwrap().is_none());
        assert!(served.begin(Some(&config("reid"))).unwrap().is_none());
        let before = served.begin(Some(&config("faces"))).unwrap().expect("a new table");
        assert_eq!((served.counts().unwrap().known, before.counts().unwrap().known), (0, 2));
        // Where the sources cannot be started with it.
        served.go_back(before);
        assert_eq!(
            (served.model.as_str(), served.counts().unwrap(), table.counts().known),
            ("reid", table.counts(), 2)
        );
    }
}
