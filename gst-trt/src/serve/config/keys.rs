// SPDX-License-Identifier: MPL-2.0
//! The configuration as it is written: its tables, their keys and defaults.

mod identities;
mod otel;
mod overrides;
mod webrtc;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

use super::picture_size::PictureSize;
use super::properties::{
    AnalyticsElement, ElementProperties, MatchElement, PrivacyElement, PublishElement, TrackElement,
};
use super::rate::Rate;
use super::schedule::Schedule;
use super::{size, time};
use crate::serve::log::LogSettings;
use crate::source::options::RtpTransport;

pub use identities::{IdentityKeys, SourceLinkKeys};
pub use otel::OtelKeys;
pub use overrides::Override;
pub use webrtc::WebrtcKeys;

#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConfigKeys {
    /// Which of the sources are run here; all, where it is left out.
    pub shard: Option<String>,
    /// Which GPUs sources are spread over; the first one alone, where it is left out.
    pub gpus: Option<GpuChoice>,
    #[serde(default)]
    pub source: Vec<SourceKeys>,
    #[serde(default)]
    pub model: Vec<ModelKeys>,
    pub track: Option<ElementProperties<TrackElement>>,
    pub identities: Option<IdentityKeys>,
    pub analytics: Option<ElementProperties<AnalyticsElement>>,
    pub privacy: Option<ElementProperties<PrivacyElement>>,
    #[serde(default)]
    pub publish: Vec<ElementProperties<PublishElement>>,
    pub record: Option<RecordKeys>,
    pub snapshots: Option<SnapshotKeys>,
    #[serde(default)]
    pub ask: Vec<AskKeys>,
    pub http: Option<HttpKeys>,
    pub rtsp: Option<RtspKeys>,
    pub webrtc: Option<WebrtcKeys>,
    #[serde(default)]
    pub log: LogSettings,
    pub otel: Option<OtelKeys>,
}

/// Which GPUs are used.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(try_from = "toml::Value")]
pub enum GpuChoice {
    /// All that CUDA shows.
    All,
    /// Numbers as of nvidia-smi, or UUIDs of GPUs and of parts of one (MIG).
    These(Vec<String>),
}

impl TryFrom<toml::Value> for GpuChoice {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let wrong = || {
            "gpus are \"all\", or a list of numbers or UUIDs as nvidia-smi -L shows them, all of one kind: [0, 1], or \
             [\"GPU-0dc9d0f5-1234-5678-9abc-def012345678\"]"
                .to_string()
        };
        let name = |value: &toml::Value| match value {
            toml::Value::Integer(number @ 0..=1023) => Some(number.to_string()),
            toml::Value::String(uuid) => Some(uuid.clone()).filter(|uuid| is_uuid(uuid)),
            _ => None,
        };
        match &value {
            toml::Value::String(word) if word == "all" => Ok(GpuChoice::All),
            toml::Value::Array(values) => {
                let names: Vec<String> = values.iter().map(name).collect::<Option<_>>().ok_or_else(wrong)?;
                let is_twice = |(number, name): (usize, &String)| names[..number].contains(name);
                if let Some((_, name)) = names.iter().enumerate().find(|at| is_twice(*at)) {
                    return Err(format!("gpus names {name} twice"));
                }
                let uuids = names.iter().filter(|name| is_uuid(name)).count();
                if names.is_empty() || uuids > 0 && uuids < names.len() {
                    return Err(wrong());
                }
                Ok(GpuChoice::These(names))
            }
            _ => Err(wrong()),
        }
    }
}

fn is_uuid(text: &str) -> bool {
    let kind = ["GPU-", "MIG-"].iter().find_map(|kind| text.strip_prefix(kind));
    kind.is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-/".contains(&byte))
    })
}

#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SourceKeys {
    pub name: ConfigName,
    pub address: String,
    /// Instead of one in the address.
    pub user: Option<String>,
    /// The password of the user.
    pub password_file: Option<PathBuf>,
    pub transport: Option<RtpTransport>,
    pub latency: Option<Seconds>,
    pub keep_alive: Option<bool>,
    pub tls_validation: Option<bool>,
    pub ca_file: Option<PathBuf>,
    #[serde(default)]
    pub low_latency: bool,
    /// The only one that sees frames, where it is left out.
    pub model: Option<String>,
    /// Names of models that see its objects; all, where it is left out.
    pub on_objects: Option<Vec<String>>,
    #[serde(default)]
    pub r#loop: bool,
    /// Frames of a file at their own time.
    #[serde(default)]
    pub sync: bool,
    /// Frames that wait for the model.
    #[serde(default = "four")]
    pub max_queued: u32,
    /// Part of the picture that must have changed for a frame to be inferred.
    pub motion_gate: Option<f32>,
    /// When it is on; always, where it is left out.
    pub schedule: Option<Schedule>,
    #[serde(default = "seconds::<10_000>")]
    pub timeout: Seconds,
    #[serde(default = "seconds::<500>")]
    pub backoff_min: Seconds,
    #[serde(default = "seconds::<30_000>")]
    pub backoff_max: Seconds,
    #[serde(default)]
    pub track: Override<ElementProperties<TrackElement>>,
    #[serde(default)]
    pub analytics: Override<ElementProperties<AnalyticsElement>>,
    #[serde(default)]
    pub privacy: Override<ElementProperties<PrivacyElement>>,
    /// Names; all, where it is left out.
    pub publish: Option<Vec<String>>,
    #[serde(default)]
    pub record: Override<RecordKeys>,
    #[serde(default)]
    pub snapshots: Override<SnapshotKeys>,
    /// Names; all, where it is left out.
    pub ask: Option<Vec<String>>,
}

#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ModelKeys {
    pub name: ConfigName,
    pub file: PathBuf,
    #[serde(default)]
    pub on: RunsOn,
    /// Classes of objects; all, where it is left out.
    pub classes: Option<Vec<String>>,
    pub labels: Option<PathBuf>,
    pub layout_file: Option<PathBuf>,
    pub backend: Option<String>,
    #[serde(default = "one")]
    pub batch_size: u32,
    #[serde(default)]
    pub preprocess: String,
    #[serde(default)]
    pub infer: String,
    #[serde(default)]
    pub nms: String,
    /// Names for the vectors that it gives.
    pub r#match: Option<ElementProperties<MatchElement>>,
}

/// What a model sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunsOn {
    #[default]
    Frames,
    /// Each object that other models have found, as a picture of its own.
    Objects,
}

#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RecordKeys {
    pub folder: PathBuf,
    /// Kinds of events; all, where it is left out.
    pub events: Option<Vec<String>>,
    #[serde(default = "seconds::<5_000>")]
    pub pre_roll: Seconds,
    #[serde(default = "seconds::<10_000>")]
    pub post_roll: Seconds,
    #[serde(default = "seconds::<300_000>")]
    pub max_length: Seconds,
    /// Whether all is recorded, too, and after what time another file is begun.
    #[serde(default)]
    pub continuous: bool,
    pub segment: Option<Seconds>,
    /// How long recordings are kept.
    pub keep: Option<Age>,
    /// ByteSize of a source, of all in the folder, and of the disk that stay free.
    pub keep_bytes: Option<ByteSize>,
    pub total_bytes: Option<ByteSize>,
    pub free_bytes: Option<ByteSize>,
    /// ByteSize of a source that are kept in memory for it.
    #[serde(default = "bytes::<{ 32 << 20 }>")]
    pub pre_roll_bytes: ByteSize,
    #[serde(default)]
    pub container: Container,
    #[serde(default = "yes")]
    pub audio: bool,
    /// Whether objects are drawn.
    #[serde(default)]
    pub draw: bool,
}

/// What recordings are written as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Container {
    #[default]
    Mp4,
    Mkv,
}

#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SnapshotKeys {
    pub folder: PathBuf,
    /// All, where it is left out.
    pub classes: Option<Vec<String>>,
    #[serde(default = "half")]
    pub min_confidence: f32,
    #[serde(default = "number::<768>")]
    pub max_size: u32,
    #[serde(default = "a_minute::<60>")]
    pub at_most: Rate,
    /// As for recordings.
    pub keep: Option<Age>,
    pub keep_bytes: Option<ByteSize>,
    pub total_bytes: Option<ByteSize>,
    pub free_bytes: Option<ByteSize>,
}

#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AskKeys {
    pub name: ConfigName,
    pub url: String,
    pub model: String,
    pub question: String,
    /// Kinds of events, names of zones and lines, and classes; all, where they are left out.
    pub events: Option<Vec<String>>,
    pub names: Option<Vec<String>>,
    pub classes: Option<Vec<String>>,
    #[serde(default)]
    pub picture: AskedPicture,
    #[serde(default = "number::<768>")]
    pub max_size: u32,
    #[serde(default = "a_minute::<6>")]
    pub at_most: Rate,
    #[serde(default = "four")]
    pub max_queued: u32,
    #[serde(default = "seconds::<30_000>")]
    pub timeout: Seconds,
    #[serde(default = "number::<200>")]
    pub max_tokens: u32,
    pub api_key: Option<String>,
    pub api_key_file: Option<PathBuf>,
    pub ca_file: Option<PathBuf>,
}

/// What is shown to the one who is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AskedPicture {
    /// The object, with a little around it; the frame, where an event has no object.
    #[default]
    Object,
    Frame,
}

#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HttpKeys {
    #[serde(default = "localhost::<HTTP_PORT>", deserialize_with = "listen::<HTTP_PORT, _>")]
    pub listen: SocketAddr,
    /// For everything that changes something; without it nothing can be changed.
    pub token: Option<String>,
    pub token_file: Option<PathBuf>,
}

#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RtspKeys {
    #[serde(default = "localhost::<RTSP_PORT>", deserialize_with = "listen::<RTSP_PORT, _>")]
    pub listen: SocketAddr,
    #[serde(default = "viewer")]
    pub user: String,
    /// Beyond localhost there must be one.
    pub password: Option<String>,
    pub password_file: Option<PathBuf>,
    /// Whether results are in the videos themselves, too.
    #[serde(default)]
    pub sei: bool,
    #[serde(default)]
    pub tiles: Vec<TilesKeys>,
}

/// Many sources in one picture.
#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TilesKeys {
    pub name: ConfigName,
    /// Names; all, where it is left out.
    pub sources: Option<Vec<String>>,
    /// As many as rows, where it is left out.
    pub columns: Option<u32>,
    #[serde(default = "full_hd")]
    pub size: PictureSize,
    #[serde(default = "number::<15>")]
    pub framerate: u32,
}

const HTTP_PORT: u16 = 8090;
const RTSP_PORT: u16 = 8554;

fn viewer() -> String {
    "viewer".into()
}

fn full_hd() -> PictureSize {
    PictureSize { width: 1920, height: 1080 }
}

fn localhost<const PORT: u16>() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, PORT).into()
}

fn listen<'de, const PORT: u16, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let local = localhost::<PORT>();
    let Ok(text) = String::deserialize(deserializer) else {
        return Err(de::Error::custom(format!("an address and a port are a text. Write it like {local}")));
    };
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        de::Error::custom(format!("“{shown}” is no address with a port. Write it like {}", meant(&text, local)))
    })
}

/// The address that a text was probably meant to be: a port alone, an address alone, or one of localhost.
fn meant(text: &str, local: SocketAddr) -> SocketAddr {
    // Of IPv6, the port is behind brackets.
    if let Some((address, port)) = text.rsplit_once(':')
        && let (Ok(address), Ok(port)) = (address.trim_matches(['[', ']']).parse::<Ipv6Addr>(), port.parse())
    {
        return SocketAddr::new(address.into(), port);
    }
    let port = text.trim_start_matches("localhost").trim_start_matches(':').parse();
    match text.parse() {
        Ok(address) => SocketAddr::new(address, local.port()),
        Err(_) => SocketAddr::new(local.ip(), port.unwrap_or(local.port())),
    }
}

fn one() -> u32 {
    1
}

fn four() -> u32 {
    4
}

fn number<const NUMBER: u32>() -> u32 {
    NUMBER
}

fn a_minute<const NUMBER: u32>() -> Rate {
    Rate { number: NUMBER, each: Duration::from_secs(60) }
}

fn half() -> f32 {
    0.5
}

fn yes() -> bool {
    true
}

fn bytes<const BYTES: u64>() -> ByteSize {
    ByteSize(BYTES)
}

fn seconds<const MILLISECONDS: u64>() -> Seconds {
    Seconds(Duration::from_millis(MILLISECONDS))
}

/// A name that may be part of the name of a file and of an address.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigName(pub String);

/// What names have, for errors. Letters such as ü are none of these.
pub const NAME_FORM: &str = "1 to 64 ASCII letters (a to z, A to Z), digits, -, _ and .";

/// Whether a source, a model or another table can be called so.
pub fn is_config_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= 64 && name.chars().all(is_plain) && !name.starts_with('.')
}

impl<'de> Deserialize<'de> for ConfigName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if is_config_name(&name) {
            Ok(ConfigName(name))
        } else {
            Err(de::Error::custom(format!("a name has {NAME_FORM}, and does not begin with a dot")))
        }
    }
}

/// A time: a number of seconds, or a text with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seconds(pub Duration);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecondsVisitor)
    }
}

struct SecondsVisitor;

impl SecondsVisitor {
    fn checked<E: de::Error>(self, time: Option<Duration>) -> Result<Seconds, E> {
        let time = time.filter(|time| *time <= Duration::from_secs(1_000_000));
        let time = time.ok_or_else(|| E::custom("a time is 0 to 1000000 seconds"))?;
        if !time.is_zero() && time < time::SHORTEST {
            return Err(E::custom(format!("a time is 0, or a millisecond or more: {}", time::FORM)));
        }
        Ok(Seconds(time))
    }
}

impl Visitor<'_> for SecondsVisitor {
    type Value = Seconds;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time, such as \"2s\" or \"500ms\", or a number of seconds, such as 0.5")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Seconds, E> {
        self.checked(u64::try_from(value).ok().map(Duration::from_secs))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Seconds, E> {
        self.checked(Some(Duration::from_secs(value)))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Seconds, E> {
        self.checked(Duration::try_from_secs_f64(value).ok())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Seconds, E> {
        match time::parse(value) {
            Some(time) => self.checked(Some(time)),
            None => {
                let shown: String = value.chars().take(64).collect();
                Err(E::custom(format!("“{shown}” is no time: {}", time::FORM)))
            }
        }
    }
}

/// A time of days: a text with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Age(pub Duration);

impl<'de> Deserialize<'de> for Age {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = "write it with its unit, such as \"30d\" or \"12h\"";
        let text =
            String::deserialize(deserializer).map_err(|_| de::Error::custom(format!("a time is a text: {form}")))?;
        let shown: String = text.chars().take(64).collect();
        let days = text.trim().strip_suffix('d').and_then(|days| days.trim().parse::<f64>().ok());
        let days = days.and_then(|days| Duration::try_from_secs_f64(days * 86_400.0).ok());
        days.or_else(|| time::parse(&text))
            .filter(|age| !age.is_zero() && *age <= Duration::from_secs(100 * 366 * 86_400))
            .map(Age)
            .ok_or_else(|| de::Error::custom(format!("“{shown}” is no time for which something is kept: {form}")))
    }
}

/// A size: a number of bytes, or a text with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ByteSize(pub u64);

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByteSizeVisitor)
    }
}

struct ByteSizeVisitor;

impl Visitor<'_> for ByteSizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size, such as \"500MB\" or \"20GiB\", or a number of bytes")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<ByteSize, E> {
        u64::try_from(value).map(ByteSize).map_err(|_| E::custom("a size is 0 or more"))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<ByteSize, E> {
        size::parse(value).map(ByteSize).ok_or_else(|| {
            let shown: String = value.chars().take(64).collect();
            E::custom(format!("“{shown}” is no size: {}", size::FORM))
        })
    }
}
