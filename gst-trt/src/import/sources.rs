// SPDX-License-Identifier: MPL-2.0
//! `[source0]`, `[source1]` and so on, and `[source-list]` with `[source-attr-all]`: each becomes a `[[source]]`.

use std::collections::BTreeSet;

use super::app::{DeepStreamApp, OF_MEMORY, PICTURES, ZonesFile};
use super::ini::IniGroup;
use super::written::NoteKind::{Differs, Elsewhere, NoEffect};
use super::written::{KnownKey, TomlTable, WrittenConfig, quoted};
use crate::failure::Failure;
use crate::serve::{NAME_FORM, is_config_name};

const CAMERA: &str = "a camera chooses its own format";
const DECODER: &str = "the decoder chooses";

const SOURCE: [KnownKey; 20] = [
    ("cudadec-memtype", NoEffect, OF_MEMORY),
    ("nvbuf-memory-type", NoEffect, OF_MEMORY),
    ("drop-frame-interval", Elsewhere, "set interval in infer"),
    ("num-decode-surfaces", NoEffect, DECODER),
    ("num-extra-surfaces", NoEffect, DECODER),
    ("low-latency-mode", NoEffect, DECODER),
    ("intra-decode-enable", Differs, "all frames are decoded"),
    ("rtsp-reconnect-attempts", Differs, "a source is tried again without an end"),
    ("udp-buffer-size", NoEffect, "GStreamer's own size is taken"),
    ("camera-width", Differs, CAMERA),
    ("camera-height", Differs, CAMERA),
    ("camera-fps-n", Differs, CAMERA),
    ("camera-fps-d", Differs, CAMERA),
    ("video-format", Differs, CAMERA),
    ("camera-id", NoEffect, "events name the source"),
    ("smart-rec-container", Elsewhere, "recordings are MP4"),
    ("smart-rec-file-prefix", Differs, "recordings are named after the source and the time"),
    ("smart-rec-interval", Differs, "recordings begin with events of zones and lines"),
    ("smart-rec-mode", Elsewhere, "recordings have the sound of the stream; audio = false in [record] leaves it out"),
    ("num-sources", NoEffect, "each address of [source-list] is one source"),
];

const LIST: [KnownKey; 7] = [
    ("max-batch-size", Elsewhere, "batch-size of the model counts"),
    ("sgie-batch-size", Elsewhere, "batch-size of the model counts"),
    ("http-ip", Elsewhere, "listen of [http] counts"),
    ("http-port", Elsewhere, "listen of [http] counts"),
    ("stream-name-display", NoEffect, PICTURES),
    ("extract-sei-type5-data", Differs, "what is in the video besides pictures is not read"),
    ("low-latency-mode", NoEffect, DECODER),
];

/// A `[[source]]` to be.
struct FoundSource<'a> {
    group: &'a IniGroup,
    name: String,
    address: String,
}

impl FoundSource<'_> {
    /// As notes name it.
    fn place(&self) -> &str {
        if self.group.name.starts_with("source-") || self.group.name.is_empty() { &self.name } else { &self.group.name }
    }
}

/// What is behind all sources.
struct CommonKeys<'a> {
    zones: Option<&'a ZonesFile>,
    is_loop: bool,
}

impl DeepStreamApp<'_> {
    pub fn write_sources(&self, zones: Option<&ZonesFile>, into: &mut WrittenConfig) -> Result<(), Failure> {
        let is_loop = self.group("tests").and_then(|tests| tests.is_on("file-loop")).unwrap_or_default();
        let no_keys = IniGroup::default();
        let mut found = self.listed(&no_keys, into)?;
        let unread = self.find_numbered(&mut found, into)?;
        let common = CommonKeys { zones, is_loop };
        let mut has_files = false;
        // The number is the one that zones have a stream by.
        for (source, stream) in found.iter().zip(0..) {
            has_files |= self.write_source(source, stream, &common, into)?;
        }
        let mut groups: Vec<&IniGroup> = Vec::new();
        for group in found.iter().map(|source| source.group) {
            if !groups.iter().any(|other| std::ptr::eq(*other, group)) {
                into.note_unused(self.file, group, &SOURCE);
                groups.push(group);
            }
        }
        let takes_over_http =
            self.group("source-list").is_some_and(|list| list.is_on("use-nvmultiurisrcbin") == Some(true));
        if found.is_empty() && !takes_over_http {
            let file = self.file;
            return Err(match (&unread[..], self.group("source-list")) {
                ([], None) => format!("{file} has no [source0] that is enabled"),
                ([], Some(_)) => {
                    format!("{file} has no address in list of [source-list], and no [source0] that is enabled")
                }
                (unread, _) => format!("{file} has no source that can be read: {}", unread.join("; ")),
            }
            .into());
        }
        if let Some(tests) = self.group("tests") {
            if is_loop && !has_files {
                into.note(NoEffect, self.file, "tests", "file-loop", "no source is a file");
            }
            into.note_unused(self.file, tests, &[]);
        }
        Ok(())
    }

    /// Those of `[source-list]`, with the keys that are for all of them.
    fn listed<'a>(&'a self, no_keys: &'a IniGroup, into: &mut WrittenConfig) -> Result<Vec<FoundSource<'a>>, Failure> {
        const GROUP: &str = "source-list";
        let Some(list) = self.group(GROUP) else { return Ok(Vec::new()) };
        let keys = self.group("source-attr-all").unwrap_or(no_keys);
        let mut uris = list.list("list").unwrap_or_default();
        if keys.is_on("enable") == Some(false) {
            into.note(NoEffect, self.file, "source-attr-all", "enable=0", "so none of [source-list] is taken");
            uris.clear();
        }
        let there = uris.len();
        if let Some(count) = list.number::<usize>("num-source-bins")?.filter(|count| (1..there).contains(count)) {
            let why = format!("{count} of {there} addresses are taken");
            into.note(NoEffect, self.file, GROUP, "num-source-bins", &why);
            uris.truncate(count);
        }
        if list.is_on("use-nvmultiurisrcbin") == Some(true) {
            let why = "sources come and go over HTTP: docs/http.md";
            into.note(Elsewhere, self.file, GROUP, "use-nvmultiurisrcbin", why);
        }
        // An empty one leaves its place to the next list.
        let parts = |key| list.text(key).map(|text| text.split(';').map(str::trim).collect()).unwrap_or_default();
        let lists: [(&str, Vec<&str>); 2] = ["sensor-name-list", "sensor-id-list"].map(|key| (key, parts(key)));
        let mut taken: BTreeSet<String> = self.numbered("source").map(|group| group.name.clone()).collect();
        let mut found = Vec::new();
        for (uri, number) in uris.into_iter().zip(0..) {
            let mut name = None;
            for (key, names) in &lists {
                let Some(wanted) = names.get(number).filter(|wanted| name.is_none() && !wanted.is_empty()) else {
                    continue;
                };
                if is_config_name(wanted) && taken.insert(wanted.to_string()) {
                    name = Some(wanted.to_string());
                } else {
                    let shown: String = wanted.chars().take(64).collect();
                    let why = format!("a name is there once, and has {NAME_FORM}");
                    into.note(Differs, self.file, GROUP, &format!("{key} “{shown}”"), &why);
                }
            }
            let others = std::iter::once(format!("source{number}")).chain((2..).map(|n| format!("source{number}-{n}")));
            let name = match name {
                Some(name) => name,
                None => others.into_iter().find(|name| taken.insert(name.clone())).unwrap_or_default(),
            };
            found.push(FoundSource { group: keys, name, address: self.address(uri) });
        }
        // Each of them has its own.
        keys.text("uri");
        keys.text("type");
        into.note_unused(self.file, list, &LIST);
        Ok(found)
    }

    /// Adds the sources that have a group of their own. Returns which are not read, and why.
    fn find_numbered<'a>(
        &'a self,
        found: &mut Vec<FoundSource<'a>>,
        into: &mut WrittenConfig,
    ) -> Result<Vec<String>, Failure> {
        let mut unread = Vec::new();
        for source in self.numbered("source").filter(|source| source.is_on("enable").unwrap_or(true)) {
            let count = source.number::<u32>("num-sources")?.unwrap_or(1).clamp(1, 1024);
            let kind = source.number::<u32>("type")?.unwrap_or(3);
            let address = match kind {
                1 => {
                    let device = source.number::<u32>("camera-v4l2-dev-node")?.unwrap_or_default();
                    Ok(format!("/dev/video{device}"))
                }
                2..=4 => source.text("uri").map(String::from).ok_or("it has no uri"),
                5 => Err("cameras by CSI, which a Jetson has, are not read"),
                6..=8 => Err("sound alone is not read"),
                _ => Err("is not known here"),
            };
            let address = match address {
                Ok(address) => address,
                Err(why) => {
                    let what = format!("type={kind}");
                    into.note(Differs, self.file, &source.name, &what, why);
                    unread.push(format!("[{}] {what}: {why}", source.name));
                    continue;
                }
            };
            found.extend((0..count).map(|number| FoundSource {
                group: source,
                name: if count == 1 { source.name.clone() } else { format!("{}-{number}", source.name) },
                address: self.address(&address.replace("%d", &number.to_string())),
            }));
        }
        Ok(unread)
    }

    /// Returns whether it is a file.
    fn write_source(
        &self,
        source: &FoundSource,
        stream: u32,
        common: &CommonKeys,
        into: &mut WrittenConfig,
    ) -> Result<bool, Failure> {
        let FoundSource { group, name, .. } = source;
        let mut address = source.address.clone();
        if group.number::<u32>("select-rtp-protocol")? == Some(4)
            && let Some(rest) = address.strip_prefix("rtsp://")
        {
            address = format!("rtspt://{rest}");
        }
        let mut table = TomlTable::new("[[source]]");
        table.text("name", name);
        let is_file = !address.contains("://") && !address.starts_with("/dev/") || address.starts_with("file:");
        table.text("address", &address.replace("${", "$${"));
        if common.is_loop && is_file {
            table.value("loop", true);
        }
        if let Some(seconds) = group.number::<u32>("rtsp-reconnect-interval-sec")?.filter(|seconds| *seconds > 0) {
            table.text("timeout", &format!("{seconds}s"));
        }
        if let Some(milliseconds) = group.number::<u32>("latency")?.filter(|_| address.starts_with("rtsp")) {
            table.text("latency", &format!("{milliseconds}ms"));
        }
        let of_stream = common.zones.filter(|zones| zones.has(stream));
        match (of_stream, common.zones) {
            (Some(ZonesFile { path, .. }), _) => {
                let path = quoted(path);
                table.value("analytics", format!("{{config-file = {path}, config-stream = {stream}}}"));
            }
            (None, Some(ZonesFile { name: file, .. })) => {
                let why = format!("{file} has none for stream {stream}");
                into.note(NoEffect, self.file, source.place(), "zones", &why);
            }
            (None, None) => {}
        }
        self.write_recording(source, of_stream.is_some(), &mut table, into)?;
        into.push(table);
        Ok(is_file)
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
        source: &FoundSource,
        has_zones: bool,
        table: &mut TomlTable,
        into: &mut WrittenConfig,
    ) -> Result<(), Failure> {
        let group = source.group;
        let folder = group.text("smart-rec-dir-path").unwrap_or("recordings");
        let before = group.number::<u32>("smart-rec-cache")?.or(group.number("smart-rec-video-cache")?);
        let begin = group.number::<u32>("smart-rec-start-time")?.or(before);
        let length = group.number::<u32>("smart-rec-duration")?.or(group.number("smart-rec-default-duration")?);
        let mode = group.number::<u32>("smart-record")?.unwrap_or_default();
        if mode == 0 {
            return Ok(());
        }
        if !has_zones {
            let why = "recordings begin with events of zones and lines: add [analytics]";
            into.note(Differs, self.file, source.place(), "smart-record", why);
            return Ok(());
        }
        if mode == 1 {
            let why = "there messages of a broker begin a recording; here events of zones and lines do";
            into.note(Differs, self.file, source.place(), "smart-record=1", why);
        }
        let seconds =
            |key: &str, time: Option<u32>| time.map_or(String::new(), |time| format!(", {key} = \"{time}s\""));
        let (before, after) = (seconds("pre-roll", begin), seconds("post-roll", length.filter(|time| *time > 0)));
        table.value("record", format!("{{folder = {}{before}{after}}}", quoted(&self.path(folder))));
        Ok(())
    }
}
