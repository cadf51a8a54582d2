// SPDX-License-Identifier: MPL-2.0
//! The user's settings, and their properties.

use std::sync::LazyLock;
use std::time::Duration;

use gst::glib;
use gst::prelude::*;
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::json::{RepeatedKey, repeated_key};
use gsttrt_core::options::{Choices, Setting, setting};
use gsttrt_core::redact::redacted;
use gsttrt_publish::address::Secret;
use gsttrt_publish::formats::PublishFormat;
use gsttrt_publish::options::{DropPolicy, PublishOptions};
use gsttrt_publish::record::PublishSource;

use super::MessageSubject;
use crate::gst::options::{self, MUTABLE_READY};
use crate::gst::property::{Property, PropertyTable, path_property, property, text_property};

/// Which messages a frame gives.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub per: MessageSubject,
    /// Nanoseconds.
    pub publish_every: u64,
    pub gone_after: u64,
    pub add_empty_results: bool,
    pub vectors: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted {
            per: MessageSubject::default(),
            publish_every: 0,
            gone_after: 1_000_000_000,
            add_empty_results: false,
            vectors: false,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct PublishSettings {
    pub options: PublishOptions,
    pub wanted: Wanted,
    pub format: PublishFormat,
    pub source_id: String,
    /// A JSON object, or empty.
    pub tags: String,
}

impl PublishSettings {
    /// Whether messages go to the video itself.
    pub fn is_in_video(&self) -> bool {
        self.options.location.reveal() == IN_VIDEO
    }

    /// What is the same for all messages.
    ///
    /// # Errors
    /// `tags` is no JSON object, or `format` and `per` do not go together.
    pub fn source(&self) -> Result<PublishSource> {
        if self.wanted.per != MessageSubject::Frame && self.format != PublishFormat::GstTrt {
            return Err(Error::new(ErrorKind::Settings, "Only format=gst-trt has messages for events and objects")
                .remedy("Leave format unset, or set per=frame"));
        }
        let tags = match self.tags.trim() {
            "" => Default::default(),
            tags => serde_json::from_str(tags).map_err(|error| {
                Error::new(ErrorKind::Settings, "tags is not a JSON object")
                    .cause(error)
                    .remedy(r#"Write tags={"name":"value"}, in quotes for the shell"#)
            })?,
        };
        if let Some(repeated) = repeated_key(self.tags.as_bytes()) {
            return Err(Error::new(ErrorKind::Settings, format!("The property tags cannot be used: {repeated}"))
                .remedy(RepeatedKey::REMEDY));
        }
        let id = Some(self.source_id.clone()).filter(|id| !id.is_empty());
        Ok(PublishSource { id, tags })
    }
}

/// The location of messages that travel in the video.
const IN_VIDEO: &str = "sei:";

/// A longer time limit never matters.
const LONGEST: Duration = Duration::from_secs(1 << 30);
/// Shorter ones than this time limit would fail always.
const SHORTEST: Duration = Duration::from_millis(1);

fn text(name: &str, nick: &str, blurb: &str) -> glib::ParamSpec {
    glib::ParamSpecString::builder(name).nick(nick).blurb(blurb).mutable_ready().build()
}

fn count(name: &str, nick: &str, blurb: &str, least: u32, default: u32) -> glib::ParamSpec {
    glib::ParamSpecUInt::builder(name)
        .nick(nick)
        .blurb(blurb)
        .minimum(least)
        .default_value(default)
        .mutable_ready()
        .build()
}

/// A time in nanoseconds.
fn time(
    (name, nick, blurb): (&str, &str, &str),
    shortest: Duration,
    place: fn(&mut PublishOptions) -> &mut Duration,
) -> Property<PublishSettings> {
    let nanoseconds = move |options: &PublishOptions| place(&mut options.clone()).as_nanos() as u64;
    let default = nanoseconds(&PublishOptions::default());
    Property::converted(
        glib::ParamSpecUInt64::builder(name).nick(nick).blurb(blurb).default_value(default).mutable_ready().build(),
        move |settings: &PublishSettings| nanoseconds(&settings.options),
        move |settings, value| {
            *place(&mut settings.options) = Duration::from_nanos(value).clamp(shortest, LONGEST);
        },
    )
}

static FORMAT: Setting<PublishSettings> =
    setting!("format", "Format", "How results are written", PublishFormat::KIND, format);

static DROP: Setting<PublishSettings> = setting!(
    "drop",
    "Drop",
    "What happens where max-queued messages wait and another one comes",
    DropPolicy::KIND,
    options.drop
);

pub static PROPERTIES: LazyLock<PropertyTable<PublishSettings>> = LazyLock::new(|| {
    let PublishSettings { options, wanted: Wanted { gone_after, .. }, .. } = PublishSettings::default();
    PropertyTable::new(vec![
        Property::converted(
            text(
                "location",
                "Location",
                "Where to: a file, - for standard output, or an address: mqtt(s)://host/topic, redis(s)://host/key, \
                 amqp(s)://host/queue, kafka(s)://host/topic, http(s)://, nats://, tls://, ws://, unix:/path; or sei: for \
                 the video itself. User and password are shown as ***",
            ),
            |settings: &PublishSettings| {
                Some(redacted(settings.options.location.reveal())).filter(|text| !text.is_empty())
            },
            |settings, location: Option<String>| {
                let location = location.unwrap_or_default();
                // What was read from here is the location that is set, with its password.
                if location != redacted(settings.options.location.reveal()) {
                    settings.options.location = Secret::new(location);
                }
            },
        ),
        options::property(&FORMAT, MUTABLE_READY, |settings| settings),
        property!(
            glib::ParamSpecEnum::builder::<MessageSubject>("per")
                .nick("Per")
                .blurb("What a message is about")
                .mutable_ready()
                .build(),
            wanted.per
        ),
        property!(
            glib::ParamSpecUInt64::builder("publish-every")
                .nick("Publish every")
                .blurb(
                    "With per=frame, the shortest time from one published frame to the next (in nanoseconds, 0 = \
                     all frames)"
                )
                .mutable_playing()
                .build(),
            wanted.publish_every
        ),
        property!(
            glib::ParamSpecBoolean::builder("add-empty-results")
                .nick("Add empty results")
                .blurb("With per=frame, publish frames without results too")
                .mutable_playing()
                .build(),
            wanted.add_empty_results
        ),
        property!(
            glib::ParamSpecBoolean::builder("vectors")
                .nick("Vectors")
                .blurb(
                    "With per=frame and format=gst-trt, write vectors: base64 of 32-bit floats, the lower bytes first"
                )
                .mutable_playing()
                .build(),
            wanted.vectors
        ),
        property!(
            glib::ParamSpecUInt64::builder("gone-after")
                .nick("Gone after")
                .blurb("With per=object, how long an object is out of sight until it is gone (in nanoseconds)")
                .default_value(gone_after)
                .mutable_playing()
                .build(),
            wanted.gone_after
        ),
        text_property!(text("source-id", "Source id", "Name of the stream, in each message"), source_id),
        text_property!(text("tags", "Tags", "A JSON object, in each message"), tags),
        Property::of_values(
            glib::ParamSpecString::builder("password")
                .nick("Password")
                .blurb("Password or token, instead of one in location. It is never shown")
                .write_only()
                .mutable_ready()
                .build(),
            |_| None::<String>.to_value(),
            |settings: &mut PublishSettings, value| {
                let password = value.get::<Option<String>>().ok().flatten();
                settings.options.password = password.filter(|password| !password.is_empty()).map(Secret::new);
            },
        ),
        path_property!(
            text("password-file", "Password file", "File with the password or token, instead of one in location"),
            options.password_file
        ),
        path_property!(
            text(
                "ca-file",
                "CA file",
                "Certificates of the authorities that may sign the server's, PEM (unset = the system's)"
            ),
            options.ca_file
        ),
        path_property!(text("cert-file", "Certificate file", "The client's own certificate, PEM"), options.cert_file),
        path_property!(text("key-file", "Key file", "The key of cert-file, PEM"), options.key_file),
        property!(
            count("max-queued", "Maximum queued", "Messages that may wait to be sent", 1, options.max_queued),
            options.max_queued
        ),
        options::property(&DROP, MUTABLE_READY, |settings| settings),
        property!(
            count(
                "max-batch",
                "Maximum batch",
                "Messages that are sent at once; of http, in one array",
                1,
                options.max_batch
            ),
            options.max_batch
        ),
        time(
            (
                "timeout",
                "Timeout",
                "The longest time for connecting, or for sending messages with all answers (in nanoseconds)",
            ),
            SHORTEST,
            |options| &mut options.timeout,
        ),
        time(
            (
                "max-reconnect-interval",
                "Maximum reconnect interval",
                "The longest time between two attempts to connect (in nanoseconds)",
            ),
            SHORTEST,
            |options| &mut options.max_reconnect_interval,
        ),
        time(
            (
                "flush-timeout",
                "Flush timeout",
                "The longest time for which the end of the stream waits until all is sent (in nanoseconds)",
            ),
            Duration::ZERO,
            |options| &mut options.flush_timeout,
        ),
        property!(
            glib::ParamSpecUInt64::builder("max-file-size")
                .nick("Maximum file size")
                .blurb("Bytes after which a file is renamed and another one begun (0 = no limit)")
                .mutable_ready()
                .build(),
            options.max_file_size
        ),
        property!(
            count("max-files", "Maximum files", "Full files to keep next to the current one", 0, options.max_files),
            options.max_files
        ),
    ])
});
