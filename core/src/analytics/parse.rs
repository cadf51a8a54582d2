// SPDX-License-Identifier: MPL-2.0
//! Reads a configuration in any of its formats.

use super::config::{AnalyticsConfig, unusable};
use super::{json, nvdsanalytics};
use crate::error::Result;

/// Reads JSON with DL Streamer's words, or the text of a file for DeepStream's nvdsanalytics, of which the groups of
/// that stream count.
///
/// # Errors
/// `Settings`: what cannot be used, where it is, and what can be written there.
pub fn parse(text: &str, stream: u32) -> Result<AnalyticsConfig> {
    let config = match text.trim_start_matches('\u{feff}').trim_start().chars().next() {
        Some('{') => json::parse(text.trim_start_matches('\u{feff}')),
        Some('[' | '#') => nvdsanalytics::parse(text, stream),
        _ => Err(unusable("it is neither JSON nor a file for nvdsanalytics")
            .remedy("Write {\"zones\": […], \"tripwires\": […]}; the path of a file belongs in config-file")),
    }?;
    config.check()?;
    Ok(config)
}

#[cfg(test)]
mod tests;
