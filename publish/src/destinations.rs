// SPDX-License-Identifier: MPL-2.0
//! The list of destinations, and how one is opened.

use std::io;

use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::files::read_regular;
use gsttrt_core::redact::is_secret;

use super::address::{Address, Secret};
use super::destination::Destination;
use super::options::PublishOptions;
use super::{file, stdout, unix};

type Open = fn(&Address, &PublishOptions) -> Result<Box<dyn Destination>>;

/// A word before `://`.
struct Scheme {
    word: &'static str,
    /// The crate's feature that brings it.
    feature: &'static str,
    has_tls: bool,
    /// `None` where the feature is off.
    open: Option<Open>,
}

/// The function, if the feature is on.
macro_rules! with {
    ($feature:literal, $open:expr) => {{
        #[cfg(feature = $feature)]
        let open: Option<Open> = Some($open);
        #[cfg(not(feature = $feature))]
        let open: Option<Open> = None;
        open
    }};
}

fn list() -> [Scheme; 16] {
    let scheme = |word, feature, has_tls, open| Scheme { word, feature, has_tls, open };
    let mqtt = with!("mqtt", super::mqtt::open);
    let redis = with!("redis", super::redis::open);
    let amqp = with!("amqp", super::amqp::open);
    let kafka = with!("kafka", super::kafka::open);
    let nats = with!("nats", super::nats::open);
    let http = with!("http", super::http::open);
    let websocket = with!("websocket", super::websocket::open);
    [
        scheme("mqtt", "mqtt", false, mqtt),
        scheme("mqtts", "mqtt", true, mqtt),
        scheme("redis", "redis", false, redis),
        scheme("rediss", "redis", true, redis),
        scheme("http", "http", false, http),
        scheme("https", "http", true, http),
        scheme("amqp", "amqp", false, amqp),
        scheme("amqps", "amqp", true, amqp),
        scheme("kafka", "kafka", false, kafka),
        scheme("kafkas", "kafka", true, kafka),
        // A server asks for TLS by itself.
        scheme("nats", "nats", true, nats),
        scheme("tls", "nats", true, nats),
        scheme("ws", "websocket", false, websocket),
        scheme("file", "", false, Some(file::open)),
        scheme("unix", "", false, Some(unix::open)),
        scheme("-", "", false, Some(stdout::open)),
    ]
}

/// The words that may stand before `://`.
pub fn words() -> Vec<&'static str> {
    list().iter().filter(|scheme| !scheme.feature.is_empty()).map(|scheme| scheme.word).collect()
}

/// A destination that was not connected yet.
pub struct Opened {
    pub destination: Box<dyn Destination>,
    /// For messages.
    pub shown: String,
    /// What must not be in messages.
    pub secrets: Vec<Secret>,
}

/// The environment variable that may hold the password.
pub const PASSWORD_VARIABLE: &str = "GST_TRT_PUBLISH_PASSWORD";

/// Reads the address and the files that the options name. Nothing is connected.
///
/// # Errors
/// A part of the options makes no sense, names what is not in this build, or cannot be read.
pub fn open(options: &PublishOptions) -> Result<Opened> {
    if options.location.reveal() == "sei:" {
        return Err(Error::new(ErrorKind::Settings, "sei: is for trtpublish in a pipeline that encodes")
            .remedy("For videos of gst-trt serve set sei = true in [rtsp]"));
    }
    let location = options.location.reveal();
    let list = list();
    let is_written =
        |scheme: &&Scheme| location.split_once(':').is_some_and(|(word, _)| word.eq_ignore_ascii_case(scheme.word));
    if let Some(scheme) = list.iter().filter(|scheme| scheme.open.is_none()).find(is_written) {
        return Err(Error::new(
            ErrorKind::Settings,
            format!("This build of the plugin cannot send to {}://", scheme.word),
        )
        .remedy(format!("Build it with the cargo feature {}", scheme.feature)));
    }
    // What this build has not is not offered either.
    let offered = || list.iter().filter(|scheme| scheme.open.is_some() && !scheme.feature.is_empty());
    let mut address = Address::parse(location, &offered().map(|scheme| scheme.word).collect::<Vec<_>>())?;
    let of_address = |scheme: &Scheme| scheme.open.filter(|_| scheme.word == address.scheme);
    let (scheme, open) =
        list.iter().find_map(|scheme| Some((scheme, of_address(scheme)?))).expect("parse knows these words alone");
    if options.key_file.is_some() != options.cert_file.is_some() {
        return Err(
            Error::new(ErrorKind::Settings, "cert-file and key-file belong together").remedy("Set both or none")
        );
    }
    let named = [("ca-file", &options.ca_file), ("cert-file", &options.cert_file)];
    if let Some((name, _)) = named.iter().find(|(_, file)| file.is_some() && !scheme.has_tls) {
        let tls: Vec<_> =
            offered().filter(|scheme| scheme.has_tls).map(|scheme| format!("{}://", scheme.word)).collect();
        return Err(Error::new(
            ErrorKind::Settings,
            format!("{name} is set, but {} is not encrypted", address.shown()),
        )
        .remedy(format!("Use one of {}, or leave {name} unset", tls.join(", "))));
    }
    if !["-", "file", "unix"].contains(&address.scheme.as_str()) {
        find_password(&mut address, options)?;
    } else {
        let named = [("password", options.password.is_some()), ("password-file", options.password_file.is_some())];
        if let Some((name, _)) = named.iter().find(|(_, is_set)| *is_set) {
            let what = format!("{name} is set, but {} has no password", address.shown());
            return Err(Error::new(ErrorKind::Settings, what).remedy(format!("Leave {name} unset")));
        }
    }
    let mut secrets: Vec<Secret> = address.password.iter().cloned().collect();
    secrets.extend(address.user.as_deref().map(Secret::new));
    let is_hidden = |name: &str| scheme.feature == "http" || is_secret(name);
    secrets.extend(address.query.iter().filter(|(name, _)| is_hidden(name)).map(|(_, value)| value.clone()));
    #[cfg(feature = "http")]
    if scheme.feature == "http" {
        // Servers may repeat what they were sent.
        secrets.extend(super::http::credentials(&address)?);
        let path = address.path.split(['/', '?']);
        secrets.extend(path.filter(|word| gsttrt_core::redact::is_token(word)).map(Secret::new));
    }
    secrets.retain(|secret| !secret.reveal().is_empty());
    // One may begin with another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.reveal().len()));
    Ok(Opened { destination: open(&address, options)?, shown: address.shown(), secrets })
}

/// Bytes of a password-file.
const MAX_PASSWORD: u64 = 64 << 10;

/// The password of the address, of the options or of the file, else that of the environment.
fn find_password(address: &mut Address, options: &PublishOptions) -> Result<()> {
    let places = [
        ("location", address.password.is_some()),
        ("password", options.password.is_some()),
        ("password-file", options.password_file.is_some()),
    ];
    let set: Vec<_> = places.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    if set.len() > 1 {
        return Err(Error::new(ErrorKind::Settings, format!("There is a password in each of {}", set.join(" and ")))
            .remedy("Leave one of them out"));
    }
    if let Some(file) = &options.password_file {
        let text =
            read_regular(file, MAX_PASSWORD).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let text = text.map_err(|error| {
            Error::new(ErrorKind::Read, format!("Cannot read the password-file {}", file.display()))
                .cause(error)
                .remedy("Check its path and permissions")
        })?;
        address.password = Some(Secret::new(text.trim_end_matches(['\n', '\r'])));
    } else if let Some(password) = &options.password {
        address.password = Some(password.clone());
    } else if address.password.is_none() {
        address.password = std::env::var(PASSWORD_VARIABLE).ok().filter(|text| !text.is_empty()).map(Secret::new);
    }
    Ok(())
}
