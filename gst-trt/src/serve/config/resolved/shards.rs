// SPDX-License-Identifier: MPL-2.0
//! Which of the sources are run here.

use std::collections::BTreeSet;

use gsttrt_core::redact::redacted;

use super::super::shard::text_hash;
use super::Config;

impl Config {
    /// The names of the sources in the file that are run here.
    pub(super) fn own_sources(&self) -> BTreeSet<String> {
        let names: BTreeSet<&str> = self.keys.source.iter().map(|source| source.name.0.as_str()).collect();
        let own = self.shard.map_or_else(|| names.clone(), |shard| shard.own(&names));
        own.into_iter().map(String::from).collect()
    }

    pub(super) fn leave_to_others(&mut self, own: &BTreeSet<String>) {
        let all = self.sources.len();
        self.sources.retain(|source| own.contains(&source.name));
        self.elsewhere = all - self.sources.len();
        for tiles in &mut self.tiles {
            tiles.sources.iter_mut().for_each(|sources| sources.retain(|name| own.contains(name)));
        }
        self.tiles.retain(|tiles| tiles.sources.as_ref().is_none_or(|sources| !sources.is_empty()));
    }

    /// What two services have in common that run the same part of the same sources.
    pub fn shard_key(&self) -> Option<String> {
        let shard = self.shard?;
        let sources = self.keys.source.iter().map(|source| format!("{} {}", source.name.0, redacted(&source.address)));
        let mut sources: Vec<String> = sources.collect();
        sources.sort_unstable();
        Some(format!("gst-trt shard {} of {:016x}", shard.ordinal, text_hash(&sources.join("\n"))))
    }
}
