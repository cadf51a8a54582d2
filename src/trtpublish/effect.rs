// SPDX-License-Identifier: MPL-2.0
//! What is set of trtpublish, and has no effect where its messages go.

use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_publish::address::Address;
use gsttrt_publish::destinations;
use gsttrt_publish::formats::PublishFormat;

use super::MessageSubject;
use super::settings::PublishSettings;

/// What a location is, as far as properties differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DestinationKind {
    File,
    StandardOutput,
    /// The video itself: nothing is sent, so nothing waits.
    Video,
    /// A socket of this machine or of another one.
    Address,
}

impl DestinationKind {
    fn of(settings: &PublishSettings) -> Self {
        if settings.is_in_video() {
            return DestinationKind::Video;
        }
        let address = Address::parse(settings.options.location.reveal(), &destinations::words());
        match address.as_ref().map(|address| address.scheme.as_str()) {
            Ok("file") => DestinationKind::File,
            Ok("-") => DestinationKind::StandardOutput,
            _ => DestinationKind::Address,
        }
    }
}

/// What a property needs to have an effect.
struct PublishNeed {
    property: &'static str,
    /// Whether it has another value than this one by default.
    is_set: fn(&PublishSettings, &PublishSettings) -> bool,
    what: &'static str,
    is_met: fn(&PublishSettings, DestinationKind) -> bool,
}

const NEEDS: [PublishNeed; 12] = [
    PublishNeed {
        property: "publish-every",
        is_set: |settings, usual| settings.wanted.publish_every != usual.wanted.publish_every,
        what: "per=frame",
        is_met: |settings, _| settings.wanted.per == MessageSubject::Frame,
    },
    PublishNeed {
        property: "add-empty-results",
        is_set: |settings, usual| settings.wanted.add_empty_results != usual.wanted.add_empty_results,
        what: "per=frame",
        is_met: |settings, _| settings.wanted.per == MessageSubject::Frame,
    },
    PublishNeed {
        property: "vectors",
        is_set: |settings, usual| settings.wanted.vectors != usual.wanted.vectors,
        what: "per=frame and format=gst-trt",
        is_met: |settings, _| settings.wanted.per == MessageSubject::Frame && settings.format == PublishFormat::GstTrt,
    },
    PublishNeed {
        property: "gone-after",
        is_set: |settings, usual| settings.wanted.gone_after != usual.wanted.gone_after,
        what: "per=object",
        is_met: |settings, _| settings.wanted.per == MessageSubject::Object,
    },
    PublishNeed {
        property: "max-file-size",
        is_set: |settings, usual| settings.options.max_file_size != usual.options.max_file_size,
        what: "a file as location",
        is_met: |_, kind| kind == DestinationKind::File,
    },
    PublishNeed {
        property: "max-files",
        is_set: |settings, usual| settings.options.max_files != usual.options.max_files,
        what: "a file as location, and max-file-size",
        is_met: |settings, kind| kind == DestinationKind::File && settings.options.max_file_size != 0,
    },
    PublishNeed {
        property: "timeout",
        is_set: |settings, usual| settings.options.timeout != usual.options.timeout,
        what: "an address as location",
        is_met: |_, kind| kind == DestinationKind::Address,
    },
    PublishNeed {
        property: "max-reconnect-interval",
        is_set: |settings, usual| settings.options.max_reconnect_interval != usual.options.max_reconnect_interval,
        what: "an address as location",
        is_met: |_, kind| kind == DestinationKind::Address,
    },
    PublishNeed {
        property: "max-queued",
        is_set: |settings, usual| settings.options.max_queued != usual.options.max_queued,
        what: "a location that messages are sent to",
        is_met: |_, kind| kind != DestinationKind::Video,
    },
    PublishNeed {
        property: "max-batch",
        is_set: |settings, usual| settings.options.max_batch != usual.options.max_batch,
        what: "a location that messages are sent to",
        is_met: |_, kind| kind != DestinationKind::Video,
    },
    PublishNeed {
        property: "drop",
        is_set: |settings, usual| settings.options.drop != usual.options.drop,
        what: "a location that messages are sent to",
        is_met: |_, kind| kind != DestinationKind::Video,
    },
    PublishNeed {
        property: "flush-timeout",
        is_set: |settings, usual| settings.options.flush_timeout != usual.options.flush_timeout,
        what: "a location that messages are sent to",
        is_met: |_, kind| kind != DestinationKind::Video,
    },
];

/// A warning that names the properties without effect, if there are any.
pub fn without_effect(settings: &PublishSettings) -> Option<Error> {
    let kind = DestinationKind::of(settings);
    let usual = PublishSettings::default();
    let unmet = NEEDS.iter().filter(|need| (need.is_set)(settings, &usual) && !(need.is_met)(settings, kind));
    let (names, needs): (Vec<_>, Vec<_>) =
        unmet.map(|need| (need.property, format!("{} needs {}", need.property, need.what))).unzip();
    let (has, them) = match names.len() {
        0 => return None,
        1 => ("has", "it"),
        _ => ("have", "them"),
    };
    Some(
        Error::new(ErrorKind::Settings, format!("{} {has} no effect", names.join(", ")))
            .cause(needs.join(", "))
            .remedy(format!("Set what is needed, or leave {them} unset")),
    )
}
