// SPDX-License-Identifier: MPL-2.0
//! Which sources are shown in one picture.

use gst::prelude::*;

use super::super::keys::TilesKeys;
use super::super::wording::{self, KeyError, problem};
use super::Config;
use crate::serve::output::{MOST_TILES, SMALLEST_TILE, TilesConfig};

const MOST_COLUMNS: u32 = 16;
const MOST_PICTURES: u32 = 60;

impl Config {
    /// The names of the sources are known.
    pub(super) fn tiles(&self, keys: &TilesKeys) -> Result<TilesConfig, KeyError> {
        let tiles = TilesConfig {
            name: keys.name.0.clone(),
            sources: keys.sources.clone(),
            columns: keys.columns,
            size: (keys.size.width, keys.size.height),
            framerate: keys.framerate,
        };
        self.check_tiles_name(&tiles.name)?;
        let known = || self.sources.iter().map(|source| source.name.as_str());
        for (number, name) in tiles.sources.iter().flatten().enumerate() {
            if !known().any(|known| known == name) {
                let text = wording::unknown_name("source", name, known());
                return Err(problem("sources", text));
            }
            if tiles.sources.iter().flatten().take(number).any(|other| other == name) {
                return Err(problem("sources", format!("“{name}” is there twice")));
            }
        }
        let count = match &tiles.sources {
            Some(sources) if sources.is_empty() => {
                return Err(problem("sources", "there is nothing to show. Name sources, or leave the key out for all"));
            }
            Some(sources) => sources.len(),
            None => self.sources.len(),
        };
        if count > MOST_TILES {
            let text = format!("{count} sources are too many for one picture: it has at most {MOST_TILES}");
            return Err(problem("sources", text));
        }
        if tiles.columns.is_some_and(|columns| !(1..=MOST_COLUMNS).contains(&columns)) {
            return Err(problem("columns", format!("a picture has 1 to {MOST_COLUMNS} columns")));
        }
        if !(1..=MOST_PICTURES).contains(&tiles.framerate) {
            return Err(problem("framerate", format!("there are 1 to {MOST_PICTURES} pictures a second")));
        }
        if let Some(tile) = tiles.smallest(count).filter(|tile| tile.shorter_side() < SMALLEST_TILE) {
            let shown = format!("{}x{} pixels for each of {count} sources", tile.width, tile.height);
            let text = format!("it leaves {shown}, and {SMALLEST_TILE}x{SMALLEST_TILE} is the least");
            return Err(problem("size", text));
        }
        Ok(tiles)
    }

    /// All videos have their names in common.
    fn check_tiles_name(&self, name: &str) -> Result<(), KeyError> {
        let taken = |what: &str| {
            Err(problem("name", format!("there is {what} “{name}”, too: each video has a name of its own")))
        };
        if self.sources.iter().any(|source| source.name == name) {
            return taken("a source");
        }
        if self.tiles.iter().any(|tiles| tiles.name == name) { taken("another picture") } else { Ok(()) }
    }
}

/// Why no picture can be composed here.
pub(super) fn missing() -> Option<KeyError> {
    let is_there = gst::ElementFactory::find("compositor").is_some_and(|factory| {
        // From GStreamer 1.22 on.
        factory.create().build().is_ok_and(|compositor| compositor.has_property("force-live"))
    });
    let text = "GStreamer has no compositor of release 1.22 or later here: install gstreamer1.0-plugins-base";
    (!is_there).then(|| problem("name", text))
}
