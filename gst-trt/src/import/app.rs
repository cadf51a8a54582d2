// SPDX-License-Identifier: MPL-2.0
//! A whole application as deepstream-app has it: the models, tracker, zones, and where results go.

use std::path::{Path, PathBuf};

use gsttrt_core::analytics::parse;

use super::gpus::NamedGpus;
use super::infer::NvInfer;
use super::ini::{self, IniGroup};
use super::written::NoteKind::{Differs, Elsewhere, NoEffect};
use super::written::{KnownKey, TomlTable, WrittenConfig};
use super::{is_yaml, read};
use crate::failure::Failure;

pub const PICTURES: &str = "the page of [http] shows the pictures";
pub const OF_MEMORY: &str = "frames stay where the decoder has put them";
const OF_MUXER: &str = "there is no muxer: each source keeps its size";

/// Groups of which nothing is taken over.
const GROUPS: [KnownKey; 5] = [
    (
        "tiled-display",
        Elsewhere,
        "the page of [http] shows the sources side by side, and [[rtsp.tiles]] makes one picture of them",
    ),
    ("osd", Elsewhere, PICTURES),
    ("img-save", Elsewhere, "[record] draw and snapshot.jpg of [http] give pictures"),
    ("pre-process", Differs, "trtpreprocess does it, of whole frames. For parts of them, set regions in preprocess"),
    ("message-consumer", Elsewhere, "changes come over HTTP: docs/http.md"),
];

const METRICS: &str = "figures are in /metrics of [http]";
const KITTI: &str = "results are JSON lines, by [[publish]]";

const APPLICATION: [KnownKey; 7] = [
    ("enable-perf-measurement", Elsewhere, METRICS),
    ("perf-measurement-interval-sec", Elsewhere, METRICS),
    ("gie-kitti-output-dir", Elsewhere, KITTI),
    ("kitti-track-output-dir", Elsewhere, KITTI),
    ("terminated-track-output-dir", Elsewhere, KITTI),
    ("shadow-track-output-dir", Elsewhere, KITTI),
    ("reid-track-output-dir", Differs, "ReID is not there"),
];

const GIE: [KnownKey; 9] = [
    ("bbox-border-color0", NoEffect, PICTURES),
    ("bbox-border-color1", NoEffect, PICTURES),
    ("bbox-border-color2", NoEffect, PICTURES),
    ("bbox-border-color3", NoEffect, PICTURES),
    ("nvbuf-memory-type", NoEffect, OF_MEMORY),
    ("gie-unique-id", NoEffect, "objects have no number of their model"),
    ("operate-on-gie-id", Differs, "a model sees the objects of all models before it; classes chooses among them"),
    ("raw-output-file-write", Differs, "serve publishes objects"),
    ("infer-raw-output-dir", Differs, "serve publishes objects"),
];

const MUXER: [KnownKey; 7] = [
    ("batch-size", Elsewhere, "batch-size of the model counts"),
    ("width", NoEffect, OF_MUXER),
    ("height", NoEffect, OF_MUXER),
    ("enable-padding", NoEffect, OF_MUXER),
    ("live-source", NoEffect, "it is known by the address"),
    ("nvbuf-memory-type", NoEffect, OF_MEMORY),
    ("attach-sys-ts-as-ntp", NoEffect, "results have the time of the system and, of RTSP, that of the camera"),
];

const CONVERTER: KnownKey = ("msg-conv-config", Differs, "each source has its name as sensorId");
const ENCODED: &str = "the encoder has its own defaults";

const TILED: [KnownKey; 3] = [
    ("rows", NoEffect, "there are as many as the sources need"),
    ("nvbuf-memory-type", NoEffect, OF_MEMORY),
    ("compute-hw", NoEffect, "the picture is put together on the CPU"),
];

const RTSP_SINK: [KnownKey; 8] = [
    ("codec", Differs, "videos are H.264"),
    ("enc-type", NoEffect, "the GPU's encoder is taken where there is one"),
    ("bitrate", Differs, ENCODED),
    ("profile", Differs, ENCODED),
    ("iframeinterval", Differs, ENCODED),
    ("sync", NoEffect, "frames are sent as they come"),
    ("udp-port", NoEffect, "packets come in the connection of RTSP"),
    ("source-id", NoEffect, "each source has its address"),
];

const OF_TRACKER: &str = "it is bytetrack; ocsort and, with a model of vectors, botsort are there too. NvDCF is not";
const TRACKER: [KnownKey; 6] = [
    ("tracker-width", NoEffect, "objects are followed by their boxes"),
    ("tracker-height", NoEffect, "objects are followed by their boxes"),
    ("ll-lib-file", Differs, OF_TRACKER),
    ("ll-config-file", Differs, OF_TRACKER),
    ("enable-batch-process", NoEffect, "each source has a tracker of its own"),
    ("display-tracking-id", NoEffect, PICTURES),
];

/// The file of nvdsanalytics, which is read as it is.
pub struct ZonesFile {
    pub name: String,
    pub path: String,
    text: Option<String>,
}

impl ZonesFile {
    /// Whether there is something to count in a stream.
    pub fn has(&self, stream: u32) -> bool {
        self.text.as_ref().is_none_or(|text| parse::parse(text, stream).is_ok())
    }
}

/// A model, with the file that is behind its group.
struct GieModel<'a> {
    gie: &'a IniGroup,
    /// As notes name it.
    file: String,
    folder: PathBuf,
    groups: Vec<IniGroup>,
}

/// A `deepstream-app` configuration.
pub struct DeepStreamApp<'a> {
    pub file: &'a str,
    pub folder: &'a Path,
    pub groups: &'a [IniGroup],
}

impl DeepStreamApp<'_> {
    pub fn group(&self, name: &str) -> Option<&IniGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// One that is there and enabled.
    fn enabled(&self, name: &str) -> Option<&IniGroup> {
        self.group(name).filter(|group| group.is_on("enable").unwrap_or(true))
    }

    /// `[sink0]`, `[sink1]` and so on.
    pub fn numbered<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a IniGroup> {
        let is_one =
            move |group: &&IniGroup| group.name.strip_prefix(word).is_some_and(|number| number.parse::<u32>().is_ok());
        self.groups.iter().filter(is_one)
    }

    fn zones(&self, file: &str) -> ZonesFile {
        // What is wrong with it, the check of the configuration tells.
        ZonesFile { name: file.into(), path: self.path(file), text: read(&self.folder.join(file)).ok() }
    }

    pub fn path(&self, text: &str) -> String {
        self.folder.join(text).to_string_lossy().into_owned()
    }

    /// # Errors
    /// It has no model, or something that is not readable.
    pub fn write(&self, into: &mut WrittenConfig) -> Result<(), Failure> {
        let gie =
            self.enabled("primary-gie").ok_or_else(|| format!("{} has no [primary-gie] that is enabled", self.file))?;
        let others = self.numbered("secondary-gie").filter(|gie| gie.is_on("enable").unwrap_or(true));
        let models = std::iter::once(gie).chain(others).map(|gie| self.model(gie)).collect::<Result<Vec<_>, _>>()?;
        let gpus = self.gpus(&models)?;
        for model in &models {
            let is_secondary = !std::ptr::eq(model.gie, gie);
            let name = if is_secondary { &model.gie.name } else { "primary" };
            let (file, folder, groups) = (&*model.file, &*model.folder, &*model.groups);
            let own = Some(model.gie);
            NvInfer { file, folder, groups, own, is_secondary: Some(is_secondary) }.write(name, into)?;
            into.note_unused(self.file, model.gie, &GIE);
        }
        gpus.write(self.file, "primary-gie", into);
        let tracker = self.enabled("tracker");
        let analytics = self.enabled("nvds-analytics");
        if let Some(tracker) = tracker {
            into.push(TomlTable::new("[track]"));
            into.note_unused(self.file, tracker, &TRACKER);
        }
        let zones = analytics.and_then(|group| group.text("config-file")).map(|file| self.zones(file));
        if zones.is_some() && tracker.is_none() {
            into.push(TomlTable::new("[track]"));
            into.note(NoEffect, self.file, "nvds-analytics", "enable", "zones need ids, so [track] was added");
        }
        if let Some(analytics) = analytics {
            into.note_unused(self.file, analytics, &[]);
        }
        self.write_destinations(into)?;
        let mut http = TomlTable::new("[http]");
        http.comment("The page at http://127.0.0.1:8090 shows what windows and tiles did.");
        into.push(http);
        self.write_sources(zones.as_ref(), into)?;
        self.note_groups(into);
        Ok(())
    }

    fn model<'a>(&self, gie: &'a IniGroup) -> Result<GieModel<'a>, Failure> {
        let place = format!("{}: [{}]", self.file, gie.name);
        let plugin = gie.number::<u32>("plugin-type")?.unwrap_or_default();
        let file = gie.text("config-file").ok_or_else(|| format!("{place} has no config-file"))?;
        if plugin != 0 {
            return Err(format!("{place} is Triton's (plugin-type={plugin}), which has no counterpart").into());
        }
        let path = self.folder.join(file);
        if is_yaml(&path) {
            let place = gie.place_of("config-file");
            return Err(format!("{place}: YAML is not read. Name a file with groups in brackets").into());
        }
        let text = read(&path).map_err(|failure| format!("{}: {failure}", gie.place_of("config-file")))?;
        let groups = ini::parse(&text, &format!("{}: ", path.display()))?;
        let file = path.file_name().map_or_else(|| file.into(), |name| name.to_string_lossy().into_owned());
        let folder = path.parent().unwrap_or(self.folder).to_path_buf();
        Ok(GieModel { gie, file, folder, groups })
    }

    /// Those of models, and of all other groups that are enabled.
    fn gpus(&self, models: &[GieModel]) -> Result<NamedGpus, Failure> {
        let mut gpus = NamedGpus::default();
        for GieModel { gie, groups, .. } in models {
            gpus.add(std::iter::once(*gie).chain(groups.iter().filter(|group| group.name == "property")))?;
        }
        let is_other = |group: &&IniGroup| {
            group.is_on("enable") != Some(false) && !models.iter().any(|model| std::ptr::eq(model.gie, *group))
        };
        self.groups.iter().filter(is_other).try_for_each(|group| gpus.add([group]))?;
        Ok(gpus)
    }

    fn write_destinations(&self, into: &mut WrittenConfig) -> Result<(), Failure> {
        let converter = self.enabled("message-converter");
        let mut has_rtsp = false;
        for sink in self.numbered("sink").filter(|sink| sink.is_on("enable").unwrap_or(true)) {
            let kind = sink.number::<u32>("type")?.unwrap_or(1);
            let (note, why) = match kind {
                1 | 2 | 5 => {
                    if sink.is_on("sync") == Some(true) {
                        let why = "with sync = true a source that is a file is played at its own time";
                        into.note(Elsewhere, self.file, &sink.name, "sync", why);
                    }
                    (Elsewhere, PICTURES)
                }
                3 => (Differs, "gst-trt detect writes annotated videos; serve records events"),
                4 if has_rtsp => (NoEffect, "one [rtsp] serves all sources"),
                4 => {
                    has_rtsp = true;
                    self.write_rtsp(sink, into)?;
                    continue;
                }
                6 => {
                    self.write_broker(sink, converter, into)?;
                    continue;
                }
                _ => (Differs, "is not known here"),
            };
            into.note(note, self.file, &sink.name, &format!("type={kind}"), why);
        }
        if let Some(converter) = converter {
            into.note_unused(self.file, converter, &[CONVERTER]);
        }
        Ok(())
    }

    fn write_rtsp(&self, sink: &IniGroup, into: &mut WrittenConfig) -> Result<(), Failure> {
        let port = sink.number::<u16>("rtsp-port")?.unwrap_or(8554);
        let mut rtsp = TomlTable::new("[rtsp]");
        rtsp.comment(
            "Each source is a video, with its name behind the address. For other machines, listen on 0.0.0.0 and set",
        );
        rtsp.comment("password-file.");
        rtsp.text("listen", &format!("127.0.0.1:{port}"));
        into.push(rtsp);
        into.note_unused(self.file, sink, &RTSP_SINK);
        self.write_tiles(into)
    }

    /// All sources in one picture, which is what a sink of deepstream-app sends.
    fn write_tiles(&self, into: &mut WrittenConfig) -> Result<(), Failure> {
        let Some(display) = self.group("tiled-display").filter(|display| display.is_on("enable") != Some(false)) else {
            return Ok(());
        };
        let mut tiles = TomlTable::new("[[rtsp.tiles]]");
        tiles.text("name", "tiles");
        if let Some(columns) = display.number::<u32>("columns")?.filter(|columns| (1..=16).contains(columns)) {
            tiles.value("columns", columns);
        }
        if let (Some(width), Some(height)) = (display.number::<u32>("width")?, display.number::<u32>("height")?) {
            tiles.text("size", &format!("{}x{}", width & !1, height & !1));
        }
        into.push(tiles);
        into.note_unused(self.file, display, &TILED);
        Ok(())
    }

    fn has_rtsp(&self) -> bool {
        self.numbered("sink")
            .any(|sink| sink.is_on("enable") != Some(false) && matches!(sink.number::<u32>("type"), Ok(Some(4))))
    }

    fn write_broker(
        &self,
        sink: &IniGroup,
        converter: Option<&IniGroup>,
        into: &mut WrittenConfig,
    ) -> Result<(), Failure> {
        let library = sink.text("msg-broker-proto-lib").unwrap_or_default();
        let scheme = ["mqtt", "kafka", "redis", "amqp"].into_iter().find(|scheme| library.contains(scheme));
        let Some(scheme) = scheme else {
            let why = "Azure is not there: docs/elements/trtpublish.md";
            into.note(Differs, self.file, &sink.name, "msg-broker-proto-lib", why);
            return Ok(());
        };
        // host;port or host;port;topic; of AMQP host;port;user or host;port;user;password. A part may be empty.
        let text = sink.text("msg-broker-conn-str").unwrap_or_default();
        let parts: Vec<&str> = text.split(';').map(str::trim).collect();
        let part = |number: usize| parts.get(number).copied().filter(|part| !part.is_empty());
        let (Some(host), Some(port)) = (part(0), part(1)) else {
            into.note(Differs, self.file, &sink.name, "msg-broker-conn-str", "it is not HOST;PORT;TOPIC");
            return Ok(());
        };
        let is_amqp = scheme == "amqp";
        let last = part(2).filter(|_| !is_amqp);
        let topic = sink.text("topic").or(last).unwrap_or("gst-trt");
        let user = match (part(2), part(3)) {
            (user, Some(password)) if is_amqp => {
                format!("{}:{}@", percent_encoded(user.unwrap_or("guest")), percent_encoded(password))
            }
            (Some(user), None) if is_amqp => format!("{}@", percent_encoded(user)),
            _ => String::new(),
        };
        // What is there may be a secret, so it is not shown.
        if parts.iter().skip(if is_amqp { 4 } else { 3 }).any(|part| !part.is_empty()) {
            let why =
                if is_amqp { "it is more than HOST;PORT;USER;PASSWORD" } else { "it is more than HOST;PORT;TOPIC" };
            into.note(Differs, self.file, &sink.name, "msg-broker-conn-str", why);
        }
        let mut publish = TomlTable::new("[[publish]]");
        publish.text("name", &sink.name);
        // Its topic is a routing key there.
        let exchange = if is_amqp { "?exchange=amq.topic" } else { "" };
        publish.text("location", &format!("{scheme}://{user}{host}:{port}/{topic}{exchange}"));
        let payload = sink.number::<u32>("msg-conv-payload-type")?;
        let common = converter.map(|converter| converter.number::<u32>("msg-conv-payload-type")).transpose()?.flatten();
        match payload.or(common).unwrap_or(0) {
            1 => publish.text("format", "deepstream-minimal"),
            other => {
                let what = format!("msg-conv-payload-type={other}");
                into.note(
                    Differs,
                    self.file,
                    &sink.name,
                    &what,
                    "messages are of the form of docs/metas.md; 1 has a counterpart",
                );
            }
        }
        if scheme == "kafka" {
            publish.comment("Kafka needs librdkafka: Debian's package librdkafka1.");
        }
        into.push(publish);
        let known = [
            CONVERTER,
            ("msg-conv-msg2p-new-api", NoEffect, "messages have one form"),
            (
                "msg-broker-config",
                Elsewhere,
                "user and password belong into location or password-file, an exchange into location",
            ),
        ];
        into.note_unused(self.file, sink, &known);
        Ok(())
    }

    fn note_groups(&self, into: &mut WrittenConfig) {
        if let Some(muxer) = self.group("streammux") {
            if muxer.text("batched-push-timeout").is_some() {
                let why = "set batch-timeout in infer, in microseconds too";
                into.note(Elsewhere, self.file, "streammux", "batched-push-timeout", why);
            }
            into.note_unused(self.file, muxer, &MUXER);
        }
        if let Some(application) = self.group("application") {
            into.note_unused(self.file, application, &APPLICATION);
        }
        if let Some(keys) = self.group("source-attr-all").filter(|_| self.group("source-list").is_none()) {
            into.note(NoEffect, self.file, &keys.name, "all keys", "there is no [source-list]");
        }
        let taken = [
            "application",
            "source",
            "source-list",
            "source-attr-all",
            "sink",
            "primary-gie",
            "secondary-gie",
            "tracker",
            "nvds-analytics",
            "streammux",
            "tests",
            "message-converter",
        ];
        for group in self.groups {
            let plain = group.name.trim_end_matches(|c: char| c.is_ascii_digit());
            let is_written = taken.contains(&plain) || plain == "tiled-display" && self.has_rtsp();
            if is_written || group.is_on("enable") == Some(false) {
                continue;
            }
            let known = GROUPS.iter().find(|(name, ..)| *name == plain);
            let (kind, why) = known.map_or((Differs, "is not known here"), |(_, kind, why)| (*kind, *why));
            into.note(kind, self.file, &group.name, "all keys", why);
        }
    }
}

/// Whether a file is one of deepstream-app.
pub fn is_app(groups: &[IniGroup]) -> bool {
    ["application", "primary-gie", "source0", "source-list", "tiled-display"]
        .iter()
        .any(|name| groups.iter().any(|group| group.name == *name))
}

/// As a user or password of an address.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let write = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(write).collect()
}
