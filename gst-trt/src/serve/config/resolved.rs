// SPDX-License-Identifier: MPL-2.0
//! What runs, made of what is written: names are resolved, paths are absolute, defaults are in place.

mod asks;
mod destinations;
mod folders;
mod identities;
mod load;
mod models;
#[cfg(feature = "otel")]
mod otel;
mod privacy;
mod recordings;
mod servers;
mod shards;
mod snapshots;
mod tiles;
#[cfg(feature = "webrtc")]
mod webrtc;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gsttrt_core::analytics::parse;
use gsttrt_core::files::read_regular;
use serde::Deserialize;

use super::findings::{FileFindings, Findings, check_hidden};
use super::keys::{ConfigKeys, GpuChoice, SourceKeys};
use super::model::ModelConfig;
use super::model_file::ModelOutcome;
#[cfg(feature = "otel")]
use super::otel_environment::OtelEnvironment;
use super::properties::{AnalyticsElement, ElementProperties, PrivacyElement, TrackElement};
use super::schedule::Schedule;
use super::shard::Shard;
use super::wording::{KeyError, problem};
use super::{secrets, wording};
use crate::model_options::is_on_server;
use crate::serve::encoder;
use crate::serve::http::HttpSettings;
use crate::serve::log::LogSettings;
use crate::serve::output::TilesConfig;
use crate::serve::rtsp::RtspSettings;
#[cfg(feature = "webrtc")]
use crate::serve::webrtc::WebrtcSettings;
use crate::source::VideoAddress;
use crate::source::options::{RtpTransport, StreamOptions, check_ca_file};

use destinations::check_subjects;
use privacy::check_privacy;
use snapshots::check_places;

pub use asks::AskConfig;
pub use destinations::{PublishConfig, check_files};
pub use identities::IdentitiesConfig;
#[cfg(feature = "otel")]
pub use otel::OtelConfig;
pub use recordings::RecordConfig;
pub use snapshots::{SnapshotConfig, check_folders};

/// Bytes of a configuration and of a file with zones.
pub const MAX_LENGTH: u64 = 4 << 20;
const TILES: &str = "rtsp.tiles";
const NEEDS_TRACK: &str = "[analytics] needs the ids of [track]: add it, or set analytics = false in the sources";
#[derive(Clone, Debug)]
pub struct Config {
    /// Which of the sources in the file are here, where it has others, too.
    pub shard: Option<Shard>,
    /// What sources are spread over, as it was at the start of the service.
    pub gpus: Option<GpuChoice>,
    pub sources: Vec<SourceConfig>,
    /// How many sources of the file are at other replicas.
    pub elsewhere: usize,
    pub models: Vec<ModelConfig>,
    pub identities: Option<IdentitiesConfig>,
    pub http: Option<HttpSettings>,
    pub rtsp: Option<RtspSettings>,
    #[cfg(feature = "webrtc")]
    pub webrtc: Option<WebrtcSettings>,
    /// Whether videos can be watched at all.
    has_outputs: bool,
    pub tiles: Vec<TilesConfig>,
    /// Whether videos have results in themselves.
    has_sei: bool,
    pub log: LogSettings,
    #[cfg(feature = "otel")]
    pub otel: Option<OtelConfig>,
    /// What sources record that say nothing else.
    record: Option<RecordConfig>,
    /// What sources keep pictures of that say nothing else.
    snapshots: Option<SnapshotConfig>,
    /// What does not work as long as the machine is as it is, such as a file that is not there.
    pub warnings: Vec<String>,
    /// What sources may be asked about.
    asks: Vec<AskConfig>,
    /// What a model gives, as far as that is known.
    outcomes: BTreeMap<String, ModelOutcome>,
    /// The same as sources need it.
    findings: BTreeMap<String, Findings>,
    /// For sources that come later.
    keys: ConfigKeys,
    /// Relative paths begin here.
    folder: PathBuf,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    pub name: String,
    pub address: VideoAddress,
    pub stream: StreamOptions,
    pub model: String,
    /// Models that see the objects of those before them.
    pub on_objects: Vec<String>,
    pub is_loop: bool,
    pub sync: bool,
    pub max_queued: u32,
    pub schedule: Option<Schedule>,
    /// Frames without motion are not inferred.
    pub motion_gate: Option<f32>,
    pub timeout: Duration,
    pub backoff: (Duration, Duration),
    pub track: Option<ElementProperties<TrackElement>>,
    /// The model by whose vectors its objects have one id on all sources.
    pub identities: Option<String>,
    pub analytics: Option<ElementProperties<AnalyticsElement>>,
    /// What is hidden before frames are recorded, published or shown.
    pub privacy: Option<ElementProperties<PrivacyElement>>,
    pub publish: Vec<PublishConfig>,
    pub record: Option<RecordConfig>,
    pub snapshots: Option<SnapshotConfig>,
    pub asks: Vec<AskConfig>,
    /// Whether its pictures can be asked for.
    pub has_view: bool,
    /// Whether its video can be watched, and has results in itself.
    pub has_output: bool,
    pub has_sei: bool,
}

impl SourceConfig {
    /// Names of all its models, the one that sees frames first.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.model).chain(&self.on_objects).map(String::as_str)
    }

    /// Where files of it are written to.
    pub fn folders(&self) -> Vec<PathBuf> {
        let recorded = self.record.iter().map(|record| record.folder.clone());
        recorded.chain(self.snapshots.iter().map(|snapshots| snapshots.folder.clone())).collect()
    }
}

/// The key whose value is wrong, which serde does not tell: with nothing but what each source needs, the same is said of it.
fn wrong_key<'a>(keys: &'a serde_json::Value, error: &serde_json::Error) -> Option<&'a str> {
    let said = error.to_string();
    let is_wrong = |key: &str, value: &serde_json::Value| {
        let mut alone = serde_json::json!({"name": "a", "address": "a"});
        alone[key] = value.clone();
        SourceKeys::deserialize(&alone).is_err_and(|error| error.to_string() == said)
    };
    keys.as_object()?.iter().find(|(key, value)| is_wrong(key, value)).map(|(key, _)| key.as_str())
}

/// A table by its name, the number of it where there are several, and what is wrong in it.
type TableError = (&'static str, usize, KeyError);

impl Config {
    fn of(keys: ConfigKeys, folder: PathBuf, is_given_up: &AtomicBool) -> Result<(Self, Vec<TableError>), TableError> {
        let go_on = |table: &'static str, number: usize| match is_given_up.load(Ordering::Relaxed) {
            true => Err((table, number, problem("name", "it is not read on"))),
            false => Ok(()),
        };
        if keys.source.is_empty() && keys.http.is_none() {
            let text = "there is nothing to do: it has neither a [[source]] nor [http], by which sources can be added";
            return Err(("source", 0, problem("name", text)));
        }
        let shard = keys.shard.as_deref().map(Shard::parse).transpose();
        let shard = shard.map_err(|text| ("shard", 0, problem("shard", text)))?;
        let mut config = Config {
            shard,
            gpus: keys.gpus.clone(),
            sources: Vec::new(),
            elsewhere: 0,
            models: Vec::new(),
            identities: None,
            http: None,
            rtsp: None,
            #[cfg(feature = "webrtc")]
            webrtc: None,
            has_outputs: keys.rtsp.is_some() || keys.webrtc.is_some(),
            tiles: Vec::new(),
            has_sei: keys.rtsp.as_ref().is_some_and(|rtsp| rtsp.sei),
            log: keys.log,
            #[cfg(feature = "otel")]
            otel: None,
            record: None,
            snapshots: None,
            warnings: Vec::new(),
            asks: Vec::new(),
            outcomes: BTreeMap::new(),
            findings: BTreeMap::new(),
            keys,
            folder,
        };
        let mut warnings = Vec::new();
        config.http = config.http_settings().map_err(|problem| ("http", 0, problem))?;
        config.rtsp = config.rtsp_settings().map_err(|problem| ("rtsp", 0, problem))?;
        #[cfg(feature = "webrtc")]
        {
            config.webrtc = config.webrtc_settings().map_err(|problem| ("webrtc", 0, problem))?;
        }
        #[cfg(not(feature = "webrtc"))]
        if config.keys.webrtc.is_some() {
            let text = "this program was built without WebRTC. Build it with its feature webrtc, or remove [webrtc]";
            return Err(("webrtc", 0, problem("listen", text)));
        }
        if let Some(text) = encoder::missing().filter(|_| config.has_outputs) {
            let table = if config.rtsp.is_some() { "rtsp" } else { "webrtc" };
            warnings.push((table, 0, problem("listen", text)));
        }
        if let Some(otel) = config.keys.otel.clone() {
            #[cfg(feature = "otel")]
            {
                let environment = OtelEnvironment::read(|name| std::env::var(name).ok());
                let (otel, doubts) = config.otel(&otel, environment).map_err(|problem| ("otel", 0, problem))?;
                config.otel = otel;
                warnings.extend(doubts.into_iter().map(|problem| ("otel", 0, problem)));
            }
            #[cfg(not(feature = "otel"))]
            {
                drop(otel);
                let text =
                    "this program was built without OpenTelemetry. Build it with its feature otel, or remove [otel]";
                return Err(("otel", 0, problem("endpoint", text)));
            }
        }
        config.check_track().map_err(|problem| ("analytics", 0, problem))?;
        for (number, model) in config.keys.model.clone().iter().enumerate() {
            go_on("model", number)?;
            let of_model = |problem: KeyError| ("model", number, problem.of_model());
            let (model, outcome, doubts) = config.model(model).map_err(of_model)?;
            config.outcomes.insert(model.name.clone(), outcome);
            let findings = Findings::of(&model);
            findings.check_settings().map_err(|unmet| of_model(problem(unmet.key, unmet.text)))?;
            config.findings.insert(model.name.clone(), findings);
            config.models.push(model);
            warnings.extend(doubts.into_iter().map(of_model));
        }
        config.identities = config.shared_identities()?;
        for (number, publish) in config.keys.publish.clone().iter().enumerate() {
            let doubts = config.check_publish(number, publish).map_err(|problem| ("publish", number, problem))?;
            warnings.extend(doubts.into_iter().map(|problem| ("publish", number, problem)));
        }
        for (number, ask) in config.keys.ask.clone().iter().enumerate() {
            let ask = config.ask(ask).map_err(|problem| ("ask", number, problem))?;
            config.asks.push(ask);
        }
        if let Some(record) = &config.keys.record {
            config.record = Some(config.record(record).map_err(|problem| ("record", 0, problem))?);
        }
        if let Some(snapshots) = &config.keys.snapshots {
            config.snapshots = Some(config.snapshots(snapshots).map_err(|problem| ("snapshots", 0, problem))?);
        }
        if let Some(analytics) = &config.keys.analytics {
            config.analytics(analytics.clone()).map_err(|problem| ("analytics", 0, problem))?;
        }
        let own = config.own_sources();
        let mut names = BTreeSet::new();
        for (number, source) in config.keys.source.clone().iter().enumerate() {
            go_on("source", number)?;
            let source = config.stream(source, &[]).map_err(|problem| ("source", number, problem))?;
            if !names.insert(source.name.clone()) {
                return Err(("source", number, problem("name", format!("there are two sources “{}”", source.name))));
            }
            if let VideoAddress::File(path) | VideoAddress::Camera(path) = &source.address
                && own.contains(&source.name)
                && !path.exists()
            {
                let text = format!("there is no file {}. The source waits for it", path.display());
                warnings.push(("source", number, problem("address", text)));
            }
            config.sources.push(source);
        }
        warnings.extend(config.doubtful_folders());
        warnings.extend(config.doubtful_events());
        warnings.extend(config.doubtful_segments());
        for (number, tiles) in config.keys.rtsp.iter().flat_map(|rtsp| rtsp.tiles.clone()).enumerate() {
            let tiles = config.tiles(&tiles).map_err(|problem| (TILES, number, problem))?;
            config.tiles.push(tiles);
            warnings.extend(tiles::missing().map(|problem| (TILES, number, problem)));
        }
        check_files(config.sources.iter()).map_err(|problem| ("publish", 0, problem))?;
        check_places(config.sources.iter()).map_err(|problem| ("snapshots", 0, problem))?;
        for (number, ask) in config.asks.iter().enumerate() {
            config.check_asked(ask).map_err(|problem| ("ask", number, problem))?;
        }
        if let Some(shard) = shard.filter(Shard::is_beyond) {
            let text = format!("there is no replica {} of {}: it has no sources", shard.ordinal, shard.replicas);
            warnings.push(("shard", 0, problem("shard", text)));
        }
        // All of the file is checked, so that each replica finds the same mistakes.
        config.leave_to_others(&own);
        for model in &mut config.models {
            let has_it = |source: &&SourceConfig| source.models().any(|name| name == model.name);
            model.has_several = config.sources.iter().filter(has_it).count() > 1;
        }
        Ok((config, warnings))
    }

    /// Zones need ids. Said before the zones are read.
    fn check_track(&self) -> Result<(), KeyError> {
        let lacks_track = |source: &SourceKeys| {
            source.analytics.or(&self.keys.analytics).is_some() && source.track.or(&self.keys.track).is_none()
        };
        let is_common = self.keys.analytics.is_some() && self.keys.track.is_none();
        if is_common && (self.keys.source.is_empty() || self.keys.source.iter().all(lacks_track)) {
            return Err(problem("config", NEEDS_TRACK));
        }
        Ok(())
    }

    /// The same without anything that runs.
    pub fn without_sources(&self) -> Self {
        Config { sources: Vec::new(), models: Vec::new(), ..self.clone() }
    }

    /// A source that comes later, by the keys of `[[source]]`, for models as they run now.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn source(&self, keys: &serde_json::Value, running: &[ModelConfig]) -> Result<SourceConfig, String> {
        if let Some(shard) = self.shard {
            // The others would not know of it, and the next change of the file would move it away.
            return Err(format!(
                "this is replica {} of {}, and each of them has its sources from their configuration. Add it there.",
                shard.ordinal, shard.replicas
            ));
        }
        let keys = SourceKeys::deserialize(keys).map_err(|error| {
            let said = wording::of_serde(&error.to_string());
            match wrong_key(keys, &error).filter(|key| key.len() <= 64 && !said.contains(*key)) {
                Some(key) => wording::ended(format!("{key}: {said}")),
                None => wording::ended(said),
            }
        })?;
        let source = self.stream(&keys, running).and_then(|source| {
            check_places(self.sources.iter().chain([&source]))?;
            Ok(source)
        });
        source.map_err(|KeyError { key, text, .. }| wording::ended(format!("{key}: {text}")))
    }

    /// The file of a model, as if it was written in this file. One on a server has an address.
    pub fn path(&self, path: &Path) -> PathBuf {
        if is_on_server(path) { path.into() } else { self.folder.join(path) }
    }

    fn stream(&self, keys: &SourceKeys, running: &[ModelConfig]) -> Result<SourceConfig, KeyError> {
        let name = keys.name.0.clone();
        let address = self.address(keys)?;
        let stream = self.stream_options(keys, &address)?;
        let model = self.model_of_frames(keys)?;
        // Over HTTP it may have got another file than that of the configuration, which is read for this.
        let found = self.findings_of(&model, running);
        let finds_none = found.iter().any(|findings| findings.finds_no_objects());
        let on_objects = self.models_on_objects(keys, &model, finds_none)?;
        if address.is_live() && (keys.r#loop || keys.sync) {
            let key = if keys.r#loop { "loop" } else { "sync" };
            return Err(problem(key, format!("only files have {key}, and {} is live", address.shown())));
        }
        let backoff = (keys.backoff_min.0, keys.backoff_max.0);
        if backoff.0 > backoff.1 || backoff.1.is_zero() {
            return Err(problem("backoff-max", "backoff-max must be above 0 and not below backoff-min"));
        }
        if keys.timeout.0.is_zero() {
            return Err(problem("timeout", "a timeout is above 0 seconds"));
        }
        if !(1..=1024).contains(&keys.max_queued) {
            return Err(problem("max-queued", "1 to 1024 frames wait for the model"));
        }
        if keys.motion_gate.is_some_and(|gate| !(0.0..=1.0).contains(&gate)) {
            return Err(problem("motion-gate", "it is a part of the picture, from 0 to 1. 0.001 is usual"));
        }
        self.check_wanted(keys)?;
        let track = keys.track.or(&self.keys.track);
        let zones = keys.analytics.or(&self.keys.analytics);
        let zones_key = zones.as_ref().map_or("config", |zones| zones.config_key());
        let analytics = zones.map(|zones| self.analytics(zones)).transpose()?;
        if analytics.is_some() && track.is_none() {
            return Err(problem("track", NEEDS_TRACK));
        }
        let identities = self.identities_of(&on_objects, track.is_some())?;
        let privacy = keys.privacy.or(&self.keys.privacy);
        let others = on_objects.iter().map(|name| self.findings_of(name, running));
        let models: Vec<_> = std::iter::once(found).chain(others).collect();
        if let Some(privacy) = &privacy {
            let is_common = keys.privacy.is_common();
            let of_table = |problem: KeyError| if is_common { problem.of_table("privacy") } else { problem };
            check_hidden(&models, Some(privacy)).map_err(|unmet| of_table(problem(unmet.key, unmet.text)))?;
            let gate = keys.motion_gate.unwrap_or(self.findings[&model].motion_gate);
            check_privacy(privacy, analytics.as_ref(), gate).map_err(of_table)?;
        }
        // What the others find has no ids.
        let mut counting = models.iter().take(1).flatten();
        counting.try_for_each(|findings| findings.check_analytics(analytics.as_ref())).map_err(|unmet| {
            let problem = problem(zones_key, unmet.text);
            if keys.analytics.is_common() { problem.of_table("analytics") } else { problem }
        })?;
        let mut record = keys.record.or(&self.keys.record).map(|record| self.record(&record)).transpose()?;
        if let Some(record) = record.as_mut().filter(|_| analytics.is_none()) {
            record.events = None;
            if record.segment.is_none() {
                let text = "[record] needs the events of [analytics]: add it, set continuous = true in [record], \
                             or set record = false here";
                return Err(problem("record", text));
            }
        }
        if let Some(record) = record.as_mut().filter(|_| privacy.is_some()) {
            record.copies = false;
        }
        let snapshots = keys.snapshots.or(&self.keys.snapshots).map(|keys| self.snapshots(&keys)).transpose()?;
        if let Some(snapshots) = &snapshots {
            if track.is_none() {
                let text = "[snapshots] needs the ids of [track]: add it, or set snapshots = false here";
                return Err(problem("snapshots", text));
            }
            self.check_snapshots(snapshots, &model, &on_objects)?;
        }
        let publish = self.publish(&name, keys.publish.as_deref())?;
        check_subjects(&publish, track.is_some(), analytics.is_some())?;
        let asks = self.asks(keys.ask.as_deref())?;
        if !asks.is_empty() && analytics.is_none() {
            let text = "[[ask]] needs the events of [analytics]: add it, or write ask = [] here";
            return Err(problem("ask", text));
        }
        Ok(SourceConfig {
            name,
            address,
            stream,
            model,
            on_objects,
            is_loop: keys.r#loop,
            sync: keys.sync,
            max_queued: keys.max_queued,
            schedule: keys.schedule.clone(),
            motion_gate: keys.motion_gate,
            timeout: keys.timeout.0,
            backoff,
            track,
            identities,
            analytics,
            privacy,
            publish,
            record,
            snapshots,
            asks,
            has_view: self.http.is_some(),
            has_output: self.has_outputs,
            has_sei: self.has_sei,
        })
    }

    /// `true` stands for the table of all. Without one, nothing would be hidden or recorded.
    fn check_wanted(&self, keys: &SourceKeys) -> Result<(), KeyError> {
        let all = &self.keys;
        let tables = [
            ("track", keys.track.is_missing(&all.track)),
            ("analytics", keys.analytics.is_missing(&all.analytics)),
            ("privacy", keys.privacy.is_missing(&all.privacy)),
            ("record", keys.record.is_missing(&all.record)),
            ("snapshots", keys.snapshots.is_missing(&all.snapshots)),
        ];
        match tables.into_iter().find(|(_, is_missing)| *is_missing) {
            Some((key, _)) => {
                Err(problem(key, format!("true is [{key}], and there is none: add it, or write a table")))
            }
            None => Ok(()),
        }
    }

    /// What a model finds, by its files: those in use and those that are to take over. Before it runs, the one that is configured.
    fn findings_of(&self, name: &str, running: &[ModelConfig]) -> FileFindings<'_> {
        let of = |running: &ModelConfig| match self.models.contains(running) {
            true => Cow::Borrowed(&self.findings[name]),
            false => Cow::Owned(Findings::of(running)),
        };
        let files: FileFindings<'_> = running.iter().filter(|running| running.name == name).map(of).collect();
        if files.is_empty() { vec![Cow::Borrowed(&self.findings[name])] } else { files }
    }

    fn address(&self, keys: &SourceKeys) -> Result<VideoAddress, KeyError> {
        let wrong = |text: String| problem("address", format!("source “{}”: {text}", keys.name.0));
        let mut address = secrets::expand_address(&keys.address).map_err(wrong)?;
        if let Some(user) = &keys.user {
            let user = secrets::expand(user).map_err(|text| problem("user", text))?;
            address = secrets::with_user(&address, &user).map_err(|text| problem("user", text))?;
        }
        if let Some(file) = &keys.password_file {
            let password = self.secret("password-file", file)?;
            address = secrets::with_password(&address, &password).map_err(|text| problem("password-file", text))?;
        }
        if address.chars().any(char::is_control) {
            return Err(wrong("an address has no control characters. Write such characters as %0A".into()));
        }
        match VideoAddress::parse(&address, &self.folder).map_err(|failure| wrong(failure.to_string()))? {
            VideoAddress::File(path) if path.is_dir() => {
                Err(wrong(format!("{} is a folder. A source is one file of it", path.display())))
            }
            address => Ok(address),
        }
    }

    /// How it is read, which only what comes over the network lets one choose.
    fn stream_options(&self, keys: &SourceKeys, address: &VideoAddress) -> Result<StreamOptions, KeyError> {
        let only = |key, is_given: bool, is_right: bool, what: &str| match is_given && !is_right {
            true => Err(problem(key, format!("only {what} have {key}, and this is {}", address.shown()))),
            false => Ok(()),
        };
        let (is_rtsp, is_remote) = (address.is_rtsp(), matches!(address, VideoAddress::Uri(_)));
        only("transport", keys.transport.is_some(), is_rtsp, "addresses of RTSP")?;
        only("keep-alive", keys.keep_alive.is_some(), is_rtsp, "addresses of RTSP")?;
        only("latency", keys.latency.is_some(), is_remote, "addresses of the network")?;
        only("tls-validation", keys.tls_validation.is_some(), is_remote, "addresses of the network")?;
        only("ca-file", keys.ca_file.is_some(), is_remote, "addresses of the network")?;
        let plain = ["rtsp://", "rtsps://"].iter().any(|scheme| address.shown().starts_with(scheme));
        if keys.transport.is_some_and(|transport| transport != RtpTransport::Auto) && !plain {
            let text = format!("{} says already how it comes. Write rtsp:// or rtsps://", address.shown());
            return Err(problem("transport", text));
        }
        let ca_file = keys.ca_file.as_ref().map(|file| self.folder.join(file));
        if let Some(file) = &ca_file {
            check_ca_file(file).map_err(|failure| problem("ca-file", failure.to_string()))?;
            if keys.tls_validation == Some(false) {
                return Err(problem(
                    "ca-file",
                    "without tls-validation no certificate is looked at: remove one of both",
                ));
            }
        }
        Ok(StreamOptions {
            transport: keys.transport.unwrap_or_default(),
            latency: keys.latency.map(|latency| latency.0),
            keep_alive: keys.keep_alive.unwrap_or(true),
            tls_validation: keys.tls_validation.unwrap_or(true),
            ca_file,
            low_latency: keys.low_latency,
        })
    }

    /// With the contents of the file, so that a change in it is seen.
    fn analytics(
        &self,
        mut zones: ElementProperties<AnalyticsElement>,
    ) -> Result<ElementProperties<AnalyticsElement>, KeyError> {
        let stream = zones.get("config-stream").and_then(|number| number.parse().ok()).unwrap_or_default();
        let (key, shown, text) = match (zones.remove("config-file"), zones.remove("config")) {
            (Some(_), Some(_)) => return Err(problem("config", "there is config-file, too: one of both is enough")),
            (None, None) => return Err(problem("config-file", "config-file or config must say what is counted")),
            (None, Some(text)) => ("config", String::new(), text),
            (Some(file), None) => {
                let path = self.folder.join(file);
                let shown = path.display();
                let text = read_regular(&path, MAX_LENGTH)
                    .map_err(|error| format!("cannot read {shown}: {error}. Check its path and permissions"))
                    .and_then(|bytes| {
                        let wrong = |_| format!("{shown} is not a text in UTF-8. Save it as one");
                        String::from_utf8(bytes).map_err(wrong)
                    })
                    .map_err(|text| problem("config-file", text))?;
                ("config-file", format!("{shown}: "), text)
            }
        };
        parse::parse(&text, stream).map_err(|error| problem(key, format!("{shown}{}", error.message())))?;
        zones.set("config", text);
        Ok(zones)
    }
}
