// SPDX-License-Identifier: MPL-2.0
//! Addresses of what is on this machine, to which a playlist of the network may lead.
//!
//! Demuxers of playlists read lists and keys through elements that GStreamer makes by the scheme of an address, and that are in
//! no bin where they could be looked at. So the element for these schemes is one that reads nothing. Files that the user names
//! are read by elements that are made by their names.
//!
//! Nor may what comes over the network lead to a server on this machine, or on the link that it is on, such as the one that
//! tells a machine in a cloud its keys: to those that the user has named alone.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// The hosts of addresses that the user has named.
static NAMED: Mutex<NamedHosts> = Mutex::new(NamedHosts { hosts: BTreeSet::new(), is_unclear: false });

struct NamedHosts {
    hosts: BTreeSet<(String, u16)>,
    /// Of one of the addresses it is not clear where it leads.
    is_unclear: bool,
}

fn named_hosts() -> MutexGuard<'static, NamedHosts> {
    NAMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As names are compared: without the interface behind an IPv6 address, which is written in several ways.
fn plain(name: &str) -> String {
    name.split('%').next().unwrap_or_default().to_ascii_lowercase()
}

/// The user names an address, of that host and port as far as that is clear.
pub fn name_host(host: Option<(&str, u16)>) {
    let mut named = named_hosts();
    match host {
        Some((name, port)) => drop(named.hosts.insert((plain(name), port))),
        None => named.is_unclear = true,
    }
}

/// Whether the user has named that host, which is this machine or on its link.
pub fn is_named(name: &str, port: u16) -> bool {
    let named = named_hosts();
    named.is_unclear || named.hosts.is_empty() || named.hosts.contains(&(plain(name), port))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// In one test, as the hosts are those of the process.
    #[test]
    fn what_the_user_has_named_may_be_on_this_machine() {
        assert!(is_named("localhost", 80), "nobody has named anything");
        name_host(Some(("Camera", 80)));
        name_host(Some(("fe80::1%25eth0", 554)));
        assert!(is_named("camera", 80) && is_named("fe80::1%eth0", 554));
        assert!(!is_named("camera", 81) && !is_named("localhost", 80) && !is_named("169.254.169.254", 80));
        name_host(None);
        assert!(is_named("localhost", 80));
    }
}
