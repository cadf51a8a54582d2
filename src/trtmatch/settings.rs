// SPDX-License-Identifier: MPL-2.0
//! The user's settings, and their properties.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use gst::glib;
use gst::prelude::*;
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::gallery::options::{DEVICE, SETTINGS};
use gsttrt_core::gallery::{MatchDevice, MatchOptions};
use gsttrt_core::identity::options::SETTINGS as IDENTITY_SETTINGS;
use gsttrt_core::identity::{IdentityOptions, links};
use gsttrt_core::options::{Setting, names_of_set};

use crate::gst::cuda;
use crate::gst::options::{self, MUTABLE_PLAYING, MUTABLE_READY};
use crate::gst::property::{Property, PropertyTable, path_property, property, text_property};

#[derive(Clone, Debug)]
pub struct MatchSettings {
    pub gallery: Option<PathBuf>,
    pub options: MatchOptions,
    /// What compares vectors with the gallery.
    pub device: MatchDevice,
    /// -1 takes the pipeline's.
    pub cuda_device_id: i32,
    /// The name of a table of objects that cameras share; empty for none.
    pub identities: String,
    /// The name of the camera; empty for that of the element.
    pub camera: String,
    /// All but the links.
    pub identity: IdentityOptions,
    pub camera_links: String,
    /// Names or ids of classes; empty for all.
    pub identity_classes: String,
    pub post_messages: bool,
}

impl Default for MatchSettings {
    fn default() -> Self {
        MatchSettings {
            gallery: None,
            options: MatchOptions::default(),
            device: MatchDevice::default(),
            cuda_device_id: -1,
            identities: String::new(),
            camera: String::new(),
            identity: IdentityOptions::default(),
            camera_links: String::new(),
            identity_classes: String::new(),
            post_messages: true,
        }
    }
}

impl MatchSettings {
    /// The file of the gallery, where names are wanted.
    ///
    /// # Errors
    /// `Settings`, where there is nothing to do.
    pub fn gallery(&self) -> Result<Option<&Path>> {
        if self.gallery.is_none() && self.identities.is_empty() {
            return Err(Error::new(ErrorKind::Settings, "trtmatch has no gallery").remedy(
                "Set gallery to a file with names and vectors, which gst-trt enrol makes, or identities to a name that \
                 cameras share",
            ));
        }
        Ok(self.gallery.as_deref())
    }

    /// A warning of what is set for ids over cameras, where there are none.
    pub fn without_effect(&self) -> Option<Error> {
        let texts =
            [("camera", &self.camera), (links::NAME, &self.camera_links), ("identity-classes", &self.identity_classes)];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, _)| name);
        let set: Vec<&str> = texts.chain(names_of_set(&IDENTITY_SETTINGS, self.identity.clone())).collect();
        if set.is_empty() || !self.identities.is_empty() {
            return None;
        }
        let what = format!("Without identities there is no effect of {}", set.join(", "));
        Some(Error::new(ErrorKind::Settings, what).remedy("Set identities to a name that cameras share"))
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
    let device = Setting { spec: &DEVICE, field: |settings: &mut MatchSettings| &mut settings.device };
    properties.push(options::property(&device, MUTABLE_READY, |settings| settings));
    properties.push(property!(cuda::device_id_property(), cuda_device_id));
    properties.push(text_property!(
        glib::ParamSpecString::builder("identities")
            .nick("Identities")
            .blurb("Name of a table that elements of the process share: the same object has one id on all their cameras (unset = none)")
            .mutable_ready()
            .build(),
        identities
    ));
    properties.push(text_property!(
        glib::ParamSpecString::builder("camera")
            .nick("Camera")
            .blurb("Name of the camera, for camera-links and messages (unset = name of the element)")
            .mutable_ready()
            .build(),
        camera
    ));
    properties.extend(options::properties(&IDENTITY_SETTINGS, MUTABLE_READY, |settings: &mut MatchSettings| {
        &mut settings.identity
    }));
    properties.push(text_property!(
        glib::ParamSpecString::builder(links::NAME)
            .nick("Camera links")
            .blurb("Cameras, and how many seconds objects take from one to another, like gate,hall:5-120;hall,yard:overlap (unset = any time)")
            .mutable_ready()
            .build(),
        camera_links
    ));
    properties.push(text_property!(
        glib::ParamSpecString::builder("identity-classes")
            .nick("Identity classes")
            .blurb("Names or ids of classes whose objects get ids over cameras, like person,car (unset = all)")
            .mutable_ready()
            .build(),
        identity_classes
    ));
    properties.push(property!(
        glib::ParamSpecBoolean::builder("post-messages")
            .nick("Post messages")
            .blurb("Post an element message when an object with an id has another name (trt-match) or id over cameras (trt-identity) than before")
            .default_value(true)
            .mutable_playing()
            .build(),
        post_messages
    ));
    PropertyTable::new(properties)
});
