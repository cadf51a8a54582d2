// SPDX-License-Identifier: MPL-2.0
//! Addresses of what is on this machine, to which a playlist of the network may lead.
//!
//! Demuxers of playlists read lists and keys through elements that GStreamer makes by the scheme of an address, and that are in
//! no bin where they could be looked at. So the element for these schemes is one that reads nothing. Files that the user names
//! are read by elements that are made by their names.

use std::sync::{Mutex, PoisonError};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gsttrt_core::redact::redacted;

use crate::failure::Failure;

/// Of files, descriptors and drives, under all elements of GStreamer that read them.
pub const SCHEMES: [&str; 12] = [
    "file",
    "pushfile",
    "multifile",
    "splitfile",
    "splitmux",
    "imagesequence",
    "resource",
    "fd",
    "appsrc",
    "dvd",
    "rsndvd",
    "cdda",
];

glib::wrapper! {
    pub struct RefusingSource(ObjectSubclass<imp::RefusingSource>) @extends gst::Element, gst::Object, @implements gst::URIHandler;
}

/// From now on GStreamer makes it for these schemes.
pub fn refuse() -> Result<(), Failure> {
    let rank = gst::Rank::PRIMARY + 256; // before those that read them
    Ok(gst::Element::register(None, "trtrefusingsource", rank, RefusingSource::static_type())?)
}

mod imp {
    use std::sync::LazyLock;

    use super::*;

    #[derive(Default)]
    pub struct RefusingSource {
        uri: Mutex<Option<String>>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for RefusingSource {
        const NAME: &'static str = "GstTrtRefusingSource";
        type Type = super::RefusingSource;
        type ParentType = gst::Element;
        type Interfaces = (gst::URIHandler,);
    }

    impl ObjectImpl for RefusingSource {
        fn constructed(&self) {
            self.parent_constructed();
            let obj = self.obj();
            let template = obj.pad_template("src").expect("it has one");
            obj.add_pad(&gst::Pad::from_template(&template)).expect("it has no other pad");
        }
    }

    impl GstObjectImpl for RefusingSource {}

    impl ElementImpl for RefusingSource {
        fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
            static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
                gst::subclass::ElementMetadata::new(
                    "Source that reads nothing",
                    "Source",
                    "Refuses addresses of this machine that come over the network",
                    env!("CARGO_PKG_AUTHORS"),
                )
            });
            Some(&METADATA)
        }

        fn pad_templates() -> &'static [gst::PadTemplate] {
            static TEMPLATES: LazyLock<[gst::PadTemplate; 1]> = LazyLock::new(|| {
                let always = gst::PadPresence::Always;
                let template = gst::PadTemplate::new("src", gst::PadDirection::Src, always, &gst::Caps::new_any());
                [template.expect("its caps are any")]
            });
            TEMPLATES.as_slice()
        }

        fn change_state(&self, change: gst::StateChange) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
            if change == gst::StateChange::NullToReady {
                let uri = self.uri().unwrap_or_default();
                gst::element_imp_error!(
                    self,
                    gst::ResourceError::NotAuthorized,
                    ("{} is not read: it is on this machine, and the address came over the network.", redacted(&uri))
                );
                return Err(gst::StateChangeError);
            }
            self.parent_change_state(change)
        }
    }

    impl URIHandlerImpl for RefusingSource {
        const URI_TYPE: gst::URIType = gst::URIType::Src;

        fn protocols() -> &'static [&'static str] {
            &SCHEMES
        }

        fn uri(&self) -> Option<String> {
            self.uri.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }

        fn set_uri(&self, uri: &str) -> Result<(), glib::Error> {
            *self.uri.lock().unwrap_or_else(PoisonError::into_inner) = Some(uri.into());
            Ok(())
        }
    }
}
