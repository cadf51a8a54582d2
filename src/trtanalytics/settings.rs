// SPDX-License-Identifier: MPL-2.0
//! The user's settings, and their properties.

use std::path::Path;
use std::sync::LazyLock;

use gst::glib;
use gst::prelude::*;
use gsttrt_core::analytics::{AnalyticsConfig, AnalyticsOptions, parse};
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::files::read_regular;

use super::ObjectPoint;
use crate::gst::property::{PropertyTable, property, text_property};

#[derive(Clone, Debug)]
pub struct AnalyticsSettings {
    pub config: String,
    pub config_file: String,
    pub config_stream: u32,
    pub evaluation_point: ObjectPoint,
    pub lost_after: u64,
    pub draw_zones: bool,
    pub draw_tripwires: bool,
    pub post_messages: bool,
}

impl Default for AnalyticsSettings {
    fn default() -> Self {
        AnalyticsSettings {
            config: String::new(),
            config_file: String::new(),
            config_stream: 0,
            evaluation_point: ObjectPoint::default(),
            lost_after: AnalyticsOptions::default().lost_after,
            draw_zones: true,
            draw_tripwires: true,
            post_messages: true,
        }
    }
}

/// Bytes of a configuration.
const MAX_LENGTH: u64 = 4 << 20;

impl AnalyticsSettings {
    pub fn options(&self) -> AnalyticsOptions {
        AnalyticsOptions { evaluation_point: self.evaluation_point.into(), lost_after: self.lost_after }
    }

    /// Reads the configuration.
    ///
    /// # Errors
    /// `Settings` where there is none, or it cannot be used; `NotFound` and `Read`, where the file cannot be read.
    pub fn read(&self) -> Result<AnalyticsConfig> {
        match (self.config.as_str(), self.config_file.as_str()) {
            ("", "") => Err(Error::new(ErrorKind::Settings, "trtanalytics has no configuration")
                .remedy("Set config-file to a JSON file with zones and tripwires, or config to such JSON")),
            (text, "") => parse::parse(text, self.config_stream),
            ("", file) => parse::parse(&read_text(file)?, self.config_stream)
                .map_err(|error| error.about(&format!("Cannot use the configuration {file}"))),
            _ => Err(Error::new(ErrorKind::Settings, "trtanalytics has two configurations")
                .remedy("Set config or config-file, not both")),
        }
    }
}

fn read_text(file: &str) -> Result<String> {
    let failed = |kind, cause: String| {
        Error::new(kind, format!("Cannot read the configuration {file}"))
            .cause(cause)
            .remedy("Set config-file to a JSON file with zones and tripwires, or to one for nvdsanalytics")
    };
    let bytes = read_regular(Path::new(file), MAX_LENGTH).map_err(|error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Read,
        };
        failed(kind, error.to_string())
    })?;
    String::from_utf8(bytes).map_err(|_| failed(ErrorKind::Settings, "it is not text in UTF-8".into()))
}

fn flag(name: &str, nick: &str, blurb: &str) -> glib::ParamSpec {
    glib::ParamSpecBoolean::builder(name).nick(nick).blurb(blurb).default_value(true).mutable_playing().build()
}

fn text(name: &str, nick: &str, blurb: &str) -> glib::ParamSpec {
    glib::ParamSpecString::builder(name).nick(nick).blurb(blurb).mutable_ready().build()
}

/// What can be set.
pub static PROPERTIES: LazyLock<PropertyTable<AnalyticsSettings>> = LazyLock::new(|| {
    PropertyTable::new(vec![
        text_property!(
            text("config", "Configuration", "Zones, tripwires and directions as JSON (unset = config-file)"),
            config
        ),
        text_property!(
            text("config-file", "Configuration file", "File with such JSON, or a file for DeepStream's nvdsanalytics"),
            config_file
        ),
        property!(
            glib::ParamSpecUInt::builder("config-stream")
                .nick("Stream of the configuration")
                .blurb("Of a file for nvdsanalytics: the number of the stream whose groups count")
                .mutable_ready()
                .build(),
            config_stream
        ),
        property!(
            glib::ParamSpecEnum::builder::<ObjectPoint>("evaluation-point")
                .nick("Evaluation point")
                .blurb("The point of an object that is in a zone or not, and whose path crosses tripwires")
                .mutable_playing()
                .build(),
            evaluation_point
        ),
        property!(
            glib::ParamSpecUInt64::builder("lost-after")
                .nick("Lost after")
                .blurb("How long an object may be out of sight before it has left (in nanoseconds)")
                .default_value(AnalyticsSettings::default().lost_after)
                .mutable_playing()
                .build(),
            lost_after
        ),
        property!(
            flag("draw-zones", "Draw zones", "Attach the zones with their counts to frames, for trtoverlay"),
            draw_zones
        ),
        property!(
            flag(
                "draw-tripwires",
                "Draw tripwires",
                "Attach the tripwires with their counts to frames, for trtoverlay"
            ),
            draw_tripwires
        ),
        property!(
            flag("post-messages", "Post messages", "Post an element message trt-event for each event"),
            post_messages
        ),
    ])
});
