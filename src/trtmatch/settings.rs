// SPDX-License-Identifier: MPL-2.0
//! The user's settings, and their properties.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use gst::glib;
use gst::prelude::*;
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::gallery::MatchOptions;
use gsttrt_core::gallery::options::SETTINGS;

use crate::gst::options::{self, MUTABLE_PLAYING};
use crate::gst::property::{Property, PropertyTable, path_property, property};

#[derive(Clone, Debug)]
pub struct MatchSettings {
    pub gallery: Option<PathBuf>,
    pub options: MatchOptions,
    pub post_messages: bool,
}

impl Default for MatchSettings {
    fn default() -> Self {
        MatchSettings { gallery: None, options: MatchOptions::default(), post_messages: true }
    }
}

impl MatchSettings {
    /// The file of the gallery.
    ///
    /// # Errors
    /// `Settings`, where it is not set.
    pub fn gallery(&self) -> Result<&Path> {
        self.gallery.as_deref().ok_or_else(|| {
            Error::new(ErrorKind::Settings, "trtmatch has no gallery")
                .remedy("Set gallery to a file with names and vectors, which gst-trt enrol makes")
        })
    }
}

pub static PROPERTIES: LazyLock<PropertyTable<MatchSettings>> = LazyLock::new(|| {
    let mut properties: Vec<Property<MatchSettings>> = vec![path_property!(
        glib::ParamSpecString::builder("gallery")
            .nick("Gallery")
            .blurb("File with names and vectors, read again when it changes")
            .mutable_ready()
            .build(),
        gallery
    )];
    properties
        .extend(options::properties(&SETTINGS, MUTABLE_PLAYING, |settings: &mut MatchSettings| &mut settings.options));
    properties.push(property!(
        glib::ParamSpecBoolean::builder("post-messages")
            .nick("Post messages")
            .blurb("Post an element message trt-match when an object with an id has another name than before")
            .default_value(true)
            .mutable_playing()
            .build(),
        post_messages
    ));
    PropertyTable::new(properties)
});
