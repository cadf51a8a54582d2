// SPDX-License-Identifier: MPL-2.0
//! The pictures of many sources that a service has, and what they show as sources come and go.

use super::output::{FrameHub, Output, TilesConfig};
use crate::threads::Threads;

#[derive(Default)]
pub struct TileOutputs(Vec<TileOutput>);

struct TileOutput {
    config: TilesConfig,
    output: Output,
}

impl TileOutputs {
    /// Those that are the same in both go on. The others end for those who watch them.
    pub fn set(&mut self, configs: &[TilesConfig], threads: &Threads) {
        let mut former = std::mem::take(&mut self.0);
        for config in configs {
            let same = former.iter().position(|there| there.config == *config).map(|at| former.remove(at));
            let new = || TileOutput { config: config.clone(), output: Output::tiles(config, threads) };
            self.0.push(same.unwrap_or_else(new));
        }
        former.iter().for_each(|former| former.output.close());
    }

    /// Shows the sources that there are and have room, by their names in their order. One that is named and not there has its place.
    pub fn show<'a>(&self, sources: impl Iterator<Item = (&'a str, &'a FrameHub)> + Clone) {
        for TileOutput { config, output } in &self.0 {
            let of_name = |name: &String| {
                let mut sources = sources.clone();
                sources.find(|(there, _)| *there == name).map(|(_, frames)| frames.clone())
            };
            output.show(match &config.sources {
                Some(names) => names.iter().map(of_name).collect(),
                None => sources.clone().take(config.room()).map(|(_, frames)| Some(frames.clone())).collect(),
            });
        }
    }

    pub fn output(&self, name: &str) -> Option<Output> {
        self.0.iter().find(|there| there.config.name == name).map(|there| there.output.clone())
    }

    /// Ends them for those who watch.
    pub fn close(&mut self) {
        self.0.drain(..).for_each(|there| there.output.close());
    }
}
