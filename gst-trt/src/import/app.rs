// SPDX-License-Identifier: MPL-2.0
//! A whole application as deepstream-app has it: sources, the model, tracker, zones, and where results go.

use std::path::Path;

use gsttrt_core::analytics::parse;

use super::infer::NvInfer;
use super::ini::{self, IniGroup};
use super::read;
use super::written::{TomlTable, WrittenConfig, quoted};
use crate::failure::Failure;

const PICTURES: &str = "the page of [http] shows the pictures";
const OF_MEMORY: &str = "frames stay where the decoder has put them";
const OF_MUXER: &str = "there is no muxer: each source keeps its size";

/// Groups of which nothing is taken over.
const GROUPS: [(&str, &str); 8] = [
    ("application", "figures are in /metrics of [http]"),
    ("tiled-display", PICTURES),
    ("osd", PICTURES),
    ("img-save", "[record] draw and snapshot.jpg of [http] give pictures"),
    ("pre-process", "trtpreprocess does it"),
    ("message-consumer", "changes come over HTTP: docs/http.md"),
    ("source-list", "write each source as [[source]], or add them over HTTP"),
    ("source-attr-all", "write it to each [[source]]"),
];

const SOURCE: [(&str, &str); 13] = [
    ("cudadec-memtype", OF_MEMORY),
    ("nvbuf-memory-type", OF_MEMORY),
    ("gpu-id", "frames are decoded where GStreamer's decoder is"),
    ("drop-frame-interval", "set interval in infer"),
    ("num-decode-surfaces", "the decoder chooses"),
    ("num-extra-surfaces", "the decoder chooses"),
    ("intra-decode-enable", "all frames are decoded"),
    ("rtsp-reconnect-attempts", "a source is tried again without an end"),
    ("camera-width", "a camera chooses its own format"),
    ("camera-height", "a camera chooses its own format"),
    ("camera-fps-n", "a camera chooses its own format"),
    ("camera-fps-d", "a camera chooses its own format"),
    ("smart-rec-container", "recordings are MP4"),
];

const GIE: [(&str, &str); 9] = [
    ("bbox-border-color0", PICTURES),
    ("bbox-border-color1", PICTURES),
    ("bbox-border-color2", PICTURES),
    ("bbox-border-color3", PICTURES),
    ("nvbuf-memory-type", OF_MEMORY),
    ("gie-unique-id", "objects have no number of their model"),
    ("operate-on-gie-id", "a model sees the objects of all models before it; classes chooses among them"),
    ("raw-output-file-write", "serve publishes objects"),
    ("infer-raw-output-dir", "serve publishes objects"),
];

const MUXER: [(&str, &str); 8] = [
    ("batch-size", "batch-size of the model counts"),
    ("width", OF_MUXER),
    ("height", OF_MUXER),
    ("enable-padding", OF_MUXER),
    ("live-source", "it is known by the address"),
    ("nvbuf-memory-type", OF_MEMORY),
    ("gpu-id", OF_MEMORY),
    ("attach-sys-ts-as-ntp", "results have the time of the system and, of RTSP, that of the camera"),
];

const ENCODED: &str = "the encoder has its own defaults";

const TILED: [(&str, &str); 4] = [
    ("rows", "there are as many as the sources need"),
    ("gpu-id", "the picture is put together on the CPU"),
    ("nvbuf-memory-type", OF_MEMORY),
    ("compute-hw", "the picture is put together on the CPU"),
];

const RTSP_SINK: [(&str, &str); 9] = [
    ("codec", "videos are H.264"),
    ("enc-type", "the GPU's encoder is taken where there is one"),
    ("bitrate", ENCODED),
    ("profile", ENCODED),
    ("iframeinterval", ENCODED),
    ("sync", "frames are sent as they come"),
    ("udp-port", "packets come in the connection of RTSP"),
    ("source-id", "each source has its address"),
    ("gpu-id", "frames are encoded where GStreamer's encoder is"),
];

const TRACKER: [(&str, &str); 7] = [
    ("tracker-width", "objects are followed by their boxes"),
    ("tracker-height", "objects are followed by their boxes"),
    ("ll-lib-file", "the trackers are bytetrack and ocsort; NvDCF and ReID are not there"),
    ("ll-config-file", "the trackers are bytetrack and ocsort; NvDCF and ReID are not there"),
    ("gpu-id", "trackers run on the CPU"),
    ("enable-batch-process", "each source has a tracker of its own"),
    ("display-tracking-id", PICTURES),
];

/// The file of nvdsanalytics, which is read as it is.
struct ZonesFile {
    name: String,
    path: String,
    text: Option<String>,
}

impl ZonesFile {
    /// Whether there is something to count in a stream.
    fn has(&self, stream: u32) -> bool {
        self.text.as_ref().is_none_or(|text| parse::parse(text, stream).is_ok())
    }
}

/// A `deepstream-app` configuration.
pub struct DeepStreamApp<'a> {
    pub file: &'a str,
    pub folder: &'a Path,
    pub groups: &'a [IniGroup],
}

impl DeepStreamApp<'_> {
    fn group(&self, name: &str) -> Option<&IniGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// One that is there and enabled.
    fn enabled(&self, name: &str) -> Option<&IniGroup> {
        self.group(name).filter(|group| group.is_on("enable").unwrap_or(true))
    }

    /// `[sink0]`, `[sink1]` and so on.
    fn numbered<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a IniGroup> {
        let is_one =
            move |group: &&IniGroup| group.name.strip_prefix(word).is_some_and(|number| number.parse::<u32>().is_ok());
        self.groups.iter().filter(is_one)
    }

    fn zones(&self, file: &str) -> ZonesFile {
        // What is wrong with it, the check of the configuration tells.
        ZonesFile { name: file.into(), path: self.path(file), text: read(&self.folder.join(file)).ok() }
    }

    fn path(&self, text: &str) -> String {
        self.folder.join(text).to_string_lossy().into_owned()
    }

    /// # Errors
    /// It has no model, or something that is not readable.
    pub fn write(&self, into: &mut WrittenConfig) -> Result<(), Failure> {
        let gie =
            self.enabled("primary-gie").ok_or_else(|| format!("{} has no [primary-gie] that is enabled", self.file))?;
        self.write_model(gie, "primary", into)?;
        for gie in self.numbered("secondary-gie").filter(|gie| gie.is_on("enable").unwrap_or(true)) {
            self.write_model(gie, &gie.name, into)?;
        }
        let tracker = self.enabled("tracker");
        let analytics = self.enabled("nvds-analytics");
        if let Some(tracker) = tracker {
            into.push(TomlTable::new("[track]"));
            into.note_unused(self.file, tracker, &TRACKER);
        }
        let zones = analytics.and_then(|group| group.text("config-file")).map(|file| self.zones(file));
        if zones.is_some() && tracker.is_none() {
            into.push(TomlTable::new("[track]"));
            into.note(self.file, "nvds-analytics", "enable", "zones need ids, so [track] was added");
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

    fn write_model(&self, gie: &IniGroup, name: &str, into: &mut WrittenConfig) -> Result<(), Failure> {
        let place = format!("{}: [{}]", self.file, gie.name);
        let plugin = gie.number::<u32>("plugin-type")?.unwrap_or_default();
        let file = gie.text("config-file").ok_or_else(|| format!("{place} has no config-file"))?;
        if plugin != 0 {
            return Err(format!("{place} is Triton's (plugin-type={plugin}), which has no counterpart").into());
        }
        let path = self.folder.join(file);
        let text = read(&path)?;
        let groups = ini::parse(&text).map_err(|failure| format!("{}: {failure}", path.display()))?;
        let shown = path.file_name().map_or_else(|| file.into(), |name| name.to_string_lossy().into_owned());
        let folder = path.parent().unwrap_or(self.folder);
        let infer =
            NvInfer { file: &shown, folder, groups: &groups, own: Some(gie), is_secondary: Some(name != "primary") };
        infer.write(name, into)?;
        into.note_unused(self.file, gie, &GIE);
        Ok(())
    }

    fn write_destinations(&self, into: &mut WrittenConfig) -> Result<(), Failure> {
        let converter = self.enabled("message-converter");
        let mut has_rtsp = false;
        for sink in self.numbered("sink").filter(|sink| sink.is_on("enable").unwrap_or(true)) {
            let kind = sink.number::<u32>("type")?.unwrap_or(1);
            let why = match kind {
                1 | 2 | 5 => PICTURES,
                3 => "gst-trt detect writes annotated videos; serve records events",
                4 if has_rtsp => "one [rtsp] serves all sources",
                4 => {
                    has_rtsp = true;
                    self.write_rtsp(sink, into)?;
                    continue;
                }
                6 => {
                    self.write_broker(sink, converter, into)?;
                    continue;
                }
                _ => "is not known here",
            };
            into.note(self.file, &sink.name, &format!("type={kind}"), why);
        }
        if let Some(converter) = converter {
            into.note_unused(self.file, converter, &[("msg-conv-config", "each source has its name as sensorId")]);
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
            into.note(self.file, &sink.name, "msg-broker-proto-lib", "Azure is not there: docs/elements/trtpublish.md");
            return Ok(());
        };
        // host;port or host;port;topic; of AMQP host;port;user
        let parts = sink.list("msg-broker-conn-str").unwrap_or_default();
        let last = parts.get(2).copied();
        let (user, last) = if scheme == "amqp" { (last, None) } else { (None, last) };
        let topic = sink.text("topic").or(last).unwrap_or("gst-trt");
        let (Some(host), Some(port)) = (parts.first(), parts.get(1)) else {
            into.note(self.file, &sink.name, "msg-broker-conn-str", "it is not HOST;PORT;TOPIC");
            return Ok(());
        };
        let mut publish = TomlTable::new("[[publish]]");
        publish.text("name", &sink.name);
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        // Its topic is a routing key there.
        let exchange = if scheme == "amqp" { "?exchange=amq.topic" } else { "" };
        publish.text("location", &format!("{scheme}://{user}{host}:{port}/{topic}{exchange}"));
        let payload = sink.number::<u32>("msg-conv-payload-type")?;
        let common = converter.map(|converter| converter.number::<u32>("msg-conv-payload-type")).transpose()?.flatten();
        match payload.or(common).unwrap_or(0) {
            1 => publish.text("format", "deepstream-minimal"),
            other => {
                let what = format!("msg-conv-payload-type={other}");
                into.note(
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
            ("msg-conv-config", "each source has its name as sensorId"),
            ("msg-broker-config", "user and password belong into location or password-file, an exchange into location"),
        ];
        into.note_unused(self.file, sink, &known);
        Ok(())
    }

    fn write_sources(&self, zones: Option<&ZonesFile>, into: &mut WrittenConfig) -> Result<(), Failure> {
        let is_loop = self.group("tests").and_then(|tests| tests.is_on("file-loop")).unwrap_or_default();
        let mut stream = 0; // the number that zones have it by
        let mut has_files = false;
        for source in self.numbered("source").filter(|source| source.is_on("enable").unwrap_or(true)) {
            let count = source.number::<u32>("num-sources")?.unwrap_or(1).clamp(1, 1024);
            let kind = source.number::<u32>("type")?.unwrap_or(3);
            for number in 0..count {
                let address = match kind {
                    1 => {
                        let device = source.number::<u32>("camera-v4l2-dev-node")?.unwrap_or_default();
                        Some(format!("/dev/video{device}"))
                    }
                    2..=4 => source.text("uri").map(|uri| self.address(&uri.replace("%d", &number.to_string()))),
                    _ => None,
                };
                let Some(mut address) = address else {
                    into.note(
                        self.file,
                        &source.name,
                        &format!("type={kind}"),
                        "it has no uri; cameras by CSI are not read",
                    );
                    break;
                };
                if source.number::<u32>("select-rtp-protocol")? == Some(4)
                    && let Some(rest) = address.strip_prefix("rtsp://")
                {
                    address = format!("rtspt://{rest}");
                }
                let mut table = TomlTable::new("[[source]]");
                table.text("name", &if count == 1 { source.name.clone() } else { format!("{}-{number}", source.name) });
                let is_file = !address.contains("://") && !address.starts_with("/dev/") || address.starts_with("file:");
                has_files |= is_file;
                table.text("address", &address.replace("${", "$${"));
                if is_loop && is_file {
                    table.value("loop", true);
                }
                if let Some(seconds) =
                    source.number::<u32>("rtsp-reconnect-interval-sec")?.filter(|seconds| *seconds > 0)
                {
                    table.text("timeout", &format!("{seconds}s"));
                }
                if let Some(milliseconds) = source.number::<u32>("latency")?.filter(|_| address.starts_with("rtsp")) {
                    table.text("latency", &format!("{milliseconds}ms"));
                }
                let of_stream = zones.filter(|zones| zones.has(stream));
                match (of_stream, zones) {
                    (Some(ZonesFile { path, .. }), _) => {
                        let path = quoted(path);
                        table.value("analytics", format!("{{config-file = {path}, config-stream = {stream}}}"));
                    }
                    (None, Some(ZonesFile { name, .. })) => {
                        let why = format!("{name} has none for stream {stream}");
                        into.note(self.file, &source.name, "zones", &why);
                    }
                    (None, None) => {}
                }
                self.write_recording(source, of_stream.is_some(), &mut table, into)?;
                into.push(table);
                stream += 1;
            }
            into.note_unused(self.file, source, &SOURCE);
        }
        if stream == 0 {
            return Err(format!("{} has no [source0] that is enabled", self.file).into());
        }
        if let Some(tests) = self.group("tests") {
            if is_loop && !has_files {
                into.note(self.file, "tests", "file-loop", "no source is a file");
            }
            into.note_unused(self.file, tests, &[]);
        }
        Ok(())
    }

    /// GStreamer takes no relative path behind `file://`.
    fn address(&self, uri: &str) -> String {
        match uri.strip_prefix("file://") {
            Some(path) if !path.starts_with('/') => self.path(path),
            Some(_) | None => uri.into(),
        }
    }

    fn write_recording(
        &self,
        source: &IniGroup,
        has_zones: bool,
        table: &mut TomlTable,
        into: &mut WrittenConfig,
    ) -> Result<(), Failure> {
        let folder = source.text("smart-rec-dir-path").unwrap_or("recordings");
        let before = source.number::<u32>("smart-rec-cache")?.or(source.number("smart-rec-video-cache")?);
        let begin = source.number::<u32>("smart-rec-start-time")?.or(before);
        let length = source.number::<u32>("smart-rec-duration")?.or(source.number("smart-rec-default-duration")?);
        if source.number::<u32>("smart-record")?.is_none_or(|mode| mode == 0) {
            return Ok(());
        }
        if !has_zones {
            into.note(
                self.file,
                &source.name,
                "smart-record",
                "recordings begin with events of zones and lines: add [analytics]",
            );
            return Ok(());
        }
        let seconds =
            |key: &str, time: Option<u32>| time.map_or(String::new(), |time| format!(", {key} = \"{time}s\""));
        let (before, after) = (seconds("pre-roll", begin), seconds("post-roll", length.filter(|time| *time > 0)));
        table.value("record", format!("{{folder = {}{before}{after}}}", quoted(&self.path(folder))));
        Ok(())
    }

    fn note_groups(&self, into: &mut WrittenConfig) {
        if let Some(muxer) = self.group("streammux") {
            if muxer.text("batched-push-timeout").is_some() {
                let why = "set batch-timeout in infer, in microseconds too";
                into.note(self.file, "streammux", "batched-push-timeout", why);
            }
            into.note_unused(self.file, muxer, &MUXER);
        }
        let taken = [
            "source",
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
            let why = GROUPS.iter().find(|(name, _)| *name == plain).map_or("is not known here", |(_, why)| why);
            into.note(self.file, &group.name, "all keys", why);
        }
    }
}

/// Whether a file is one of deepstream-app.
pub fn is_app(groups: &[IniGroup]) -> bool {
    ["application", "primary-gie", "source0", "tiled-display"]
        .iter()
        .any(|name| groups.iter().any(|group| group.name == *name))
}
