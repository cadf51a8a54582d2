// SPDX-License-Identifier: MPL-2.0
//! The user's settings, and their properties.

use std::path::PathBuf;
use std::time::Duration;

use gst::glib;
use gst::prelude::*;

use super::{MessageDrop, MessageFormat, MessageSubject};
use crate::core::error::{Error, ErrorKind, Result};
use crate::gst::stats;
use crate::publish::address::redacted;
use crate::publish::options::PublishOptions;
use crate::publish::record::PublishSource;

/// Which messages a frame gives.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub per: MessageSubject,
    /// Nanoseconds.
    pub publish_every: u64,
    pub gone_after: u64,
    pub add_empty_results: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted { per: MessageSubject::default(), publish_every: 0, gone_after: 1_000_000_000, add_empty_results: false }
    }
}

#[derive(Clone, Debug, Default)]
pub struct PublishSettings {
    pub options: PublishOptions,
    pub wanted: Wanted,
    pub format: MessageFormat,
    pub drop: MessageDrop,
    pub source_id: Option<String>,
    /// A JSON object.
    pub tags: Option<String>,
}

impl PublishSettings {
    /// What is the same for all messages.
    ///
    /// # Errors
    /// `tags` is no JSON object, or `format` and `per` do not go together.
    pub fn source(&self) -> Result<PublishSource> {
        if self.wanted.per != MessageSubject::Frame && self.format != MessageFormat::GstTrt {
            return Err(Error::new(ErrorKind::Settings, "Only format=gst-trt has messages for events and objects")
                .remedy("Leave format unset, or set per=frame"));
        }
        let tags = match self.tags.as_deref().filter(|tags| !tags.trim().is_empty()) {
            None => Default::default(),
            Some(tags) => serde_json::from_str(tags).map_err(|error| {
                Error::new(ErrorKind::Settings, "tags is not a JSON object")
                    .cause(error)
                    .remedy(r#"Write tags={"name":"value"}, in quotes for the shell"#)
            })?,
        };
        Ok(PublishSource { id: self.source_id.clone(), tags })
    }
}

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

fn time(name: &str, nick: &str, blurb: &str, default: Duration) -> glib::ParamSpec {
    let default = default.as_nanos() as u64;
    glib::ParamSpecUInt64::builder(name).nick(nick).blurb(blurb).default_value(default).mutable_ready().build()
}

pub fn list() -> Vec<glib::ParamSpec> {
    let PublishSettings { options, wanted: Wanted { gone_after, .. }, .. } = PublishSettings::default();
    vec![
        text(
            "location",
            "Location",
            "Where to: a file, - for standard output, or an address: mqtt(s)://host/topic, redis(s)://host/key, http(s)://, nats://, ws://, \
             kafka(s)://, unix:/path. A password is shown as ***",
        ),
        glib::ParamSpecEnum::builder::<MessageFormat>("format").nick("Format").blurb("How results are written").mutable_ready().build(),
        glib::ParamSpecEnum::builder::<MessageSubject>("per").nick("Per").blurb("What a message is about").mutable_ready().build(),
        glib::ParamSpecUInt64::builder("publish-every")
            .nick("Publish every")
            .blurb("With per=frame, the shortest time from one published frame to the next (in nanoseconds, 0 = all frames)")
            .mutable_playing()
            .build(),
        glib::ParamSpecBoolean::builder("add-empty-results")
            .nick("Add empty results")
            .blurb("With per=frame, publish frames without results too")
            .mutable_playing()
            .build(),
        glib::ParamSpecUInt64::builder("gone-after")
            .nick("Gone after")
            .blurb("With per=object, how long an object is out of sight until it is gone (in nanoseconds)")
            .default_value(gone_after)
            .mutable_playing()
            .build(),
        text("source-id", "Source id", "Name of the stream, in each message"),
        text("tags", "Tags", "A JSON object, in each message"),
        text("password-file", "Password file", "File with the password or token, instead of one in location"),
        text("ca-file", "CA file", "Certificates of those who may sign the server's, PEM (unset = the system's)"),
        text("cert-file", "Certificate file", "The client's own certificate, PEM"),
        text("key-file", "Key file", "The key of cert-file, PEM"),
        count("max-queued", "Maximum queued", "Messages that may wait to be sent", 1, options.max_queued),
        glib::ParamSpecEnum::builder::<MessageDrop>("drop")
            .nick("Drop")
            .blurb("What happens where max-queued messages wait and another one comes")
            .mutable_ready()
            .build(),
        count("max-batch", "Maximum batch", "Messages that are sent at once; of http, in one array", 1, options.max_batch),
        time("timeout", "Timeout", "The longest time for a connection or an answer (in nanoseconds)", options.timeout),
        time(
            "max-reconnect-interval",
            "Maximum reconnect interval",
            "The longest time between two attempts to connect (in nanoseconds)",
            options.max_reconnect_interval,
        ),
        time(
            "flush-timeout",
            "Flush timeout",
            "The longest time for which the end of the stream waits until all is sent (in nanoseconds)",
            options.flush_timeout,
        ),
        glib::ParamSpecUInt64::builder("max-file-size")
            .nick("Maximum file size")
            .blurb("Bytes after which a file is renamed and another one begun (0 = no limit)")
            .mutable_ready()
            .build(),
        count("max-files", "Maximum files", "Full files to keep beside the current one", 0, options.max_files),
        stats::property("Frames; messages published, waiting, dropped and rejected; connections; and the time that frames take"),
    ]
}

/// Longer ones are as good as none.
const LONGEST: Duration = Duration::from_secs(1 << 30);
/// Shorter ones than this time limit would fail always.
const SHORTEST: Duration = Duration::from_millis(1);

pub fn set(settings: &mut PublishSettings, name: &str, value: &glib::Value) {
    const CHECKED: &str = "checked by GObject";
    let PublishSettings { options, wanted, format, drop, source_id, tags } = settings;
    let Wanted { per, publish_every, gone_after, add_empty_results } = wanted;
    let text = || value.get::<Option<String>>().expect(CHECKED).filter(|text| !text.is_empty());
    let path = || text().map(PathBuf::from);
    let time = || Duration::from_nanos(value.get().expect(CHECKED)).min(LONGEST);
    match name {
        "location" => options.location = text().unwrap_or_default(),
        "format" => *format = value.get().expect(CHECKED),
        "per" => *per = value.get().expect(CHECKED),
        "publish-every" => *publish_every = value.get().expect(CHECKED),
        "add-empty-results" => *add_empty_results = value.get().expect(CHECKED),
        "gone-after" => *gone_after = value.get().expect(CHECKED),
        "source-id" => *source_id = text(),
        "tags" => *tags = text(),
        "password-file" => options.password_file = path(),
        "ca-file" => options.ca_file = path(),
        "cert-file" => options.cert_file = path(),
        "key-file" => options.key_file = path(),
        "max-queued" => options.max_queued = value.get().expect(CHECKED),
        "drop" => {
            *drop = value.get().expect(CHECKED);
            options.drop = (*drop).into();
        }
        "max-batch" => options.max_batch = value.get().expect(CHECKED),
        "timeout" => options.timeout = time().max(SHORTEST),
        "max-reconnect-interval" => options.max_reconnect_interval = time().max(SHORTEST),
        "flush-timeout" => options.flush_timeout = time(),
        "max-file-size" => options.max_file_size = value.get().expect(CHECKED),
        "max-files" => options.max_files = value.get().expect(CHECKED),
        other => unreachable!("property {other}"),
    }
}

pub fn get(settings: &PublishSettings, name: &str) -> glib::Value {
    let PublishSettings { options, wanted, format, drop, source_id, tags } = settings;
    let Wanted { per, publish_every, gone_after, add_empty_results } = wanted;
    let nanoseconds = |time: Duration| (time.as_nanos() as u64).to_value();
    let path = |path: &Option<PathBuf>| path.as_deref().map(|path| path.to_string_lossy().into_owned()).to_value();
    match name {
        "location" => Some(redacted(&options.location)).filter(|text| !text.is_empty()).to_value(),
        "format" => format.to_value(),
        "per" => per.to_value(),
        "publish-every" => publish_every.to_value(),
        "add-empty-results" => add_empty_results.to_value(),
        "gone-after" => gone_after.to_value(),
        "source-id" => source_id.to_value(),
        "tags" => tags.to_value(),
        "password-file" => path(&options.password_file),
        "ca-file" => path(&options.ca_file),
        "cert-file" => path(&options.cert_file),
        "key-file" => path(&options.key_file),
        "max-queued" => options.max_queued.to_value(),
        "drop" => drop.to_value(),
        "max-batch" => options.max_batch.to_value(),
        "timeout" => nanoseconds(options.timeout),
        "max-reconnect-interval" => nanoseconds(options.max_reconnect_interval),
        "flush-timeout" => nanoseconds(options.flush_timeout),
        "max-file-size" => options.max_file_size.to_value(),
        "max-files" => options.max_files.to_value(),
        other => unreachable!("property {other}"),
    }
}
