// SPDX-License-Identifier: MPL-2.0
//! The list of destinations, and how one is opened.

use std::io;

use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::files::read_regular;

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

fn list() -> [Scheme; 13] {
    let scheme = |word, feature, has_tls, open| Scheme { word, feature, has_tls, open };
    let mqtt = with!("mqtt", super::mqtt::open);
    let redis = with!("redis", super::redis::open);
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
        // A server asks for TLS by itself.
        scheme("nats", "nats", true, nats),
        scheme("ws", "websocket", false, websocket),
        scheme("kafka", "kafka", false, with!("kafka", super::kafka::open)),
        scheme("kafkas", "kafka-tls", true, with!("kafka-tls", super::kafka::open)),
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
    let mut address = Address::parse(&options.location, &words())?;
    let list = list();
    let scheme = list.iter().find(|scheme| scheme.word == address.scheme).expect("parse knows these words alone");
    let Some(open) = scheme.open else {
        return Err(Error::new(
            ErrorKind::Settings,
            format!("This build of the plugin cannot send to {}://", scheme.word),
        )
        .remedy(format!("Build it with the cargo feature {}", scheme.feature)));
    };
    if options.key_file.is_some() != options.cert_file.is_some() {
        return Err(
            Error::new(ErrorKind::Settings, "cert-file and key-file belong together").remedy("Set both or none")
        );
    }
    let named = [("ca-file", &options.ca_file), ("cert-file", &options.cert_file)];
    if let Some((name, _)) = named.iter().find(|(_, file)| file.is_some() && !scheme.has_tls) {
        let tls: Vec<_> =
            list.iter().filter(|scheme| scheme.has_tls).map(|scheme| format!("{}://", scheme.word)).collect();
        return Err(Error::new(
            ErrorKind::Settings,
            format!("{name} is set, but {} is not encrypted", address.shown()),
        )
        .remedy(format!("Use one of {}, or leave {name} unset", tls.join(", "))));
    }
    if !["-", "file", "unix", "ws"].contains(&address.scheme.as_str()) {
        find_password(&mut address, options)?;
    } else if options.password_file.is_some() {
        return Err(Error::new(
            ErrorKind::Settings,
            format!("password-file is set, but {} has no password", address.shown()),
        )
        .remedy("Leave password-file unset"));
    }
    let mut secrets: Vec<Secret> = address.password.iter().cloned().collect();
    secrets.extend(address.query.iter().map(|(_, value)| value.clone()).filter(|_| scheme.feature == "http"));
    secrets.retain(|secret| !secret.reveal().is_empty());
    Ok(Opened { destination: open(&address, options)?, shown: address.shown(), secrets })
}

/// Bytes of a password-file.
const MAX_PASSWORD: u64 = 64 << 10;

/// The password of the address, else that of the file, else that of the environment where there is a user.
fn find_password(address: &mut Address, options: &PublishOptions) -> Result<()> {
    if let Some(file) = &options.password_file {
        if address.password.is_some() {
            return Err(Error::new(ErrorKind::Settings, "There is a password in location, and password-file is set")
                .remedy("Leave one of them out"));
        }
        let text =
            read_regular(file, MAX_PASSWORD).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let text = text.map_err(|error| {
            Error::new(ErrorKind::Read, format!("Cannot read the password-file {}", file.display()))
                .cause(error)
                .remedy("Check its path and permissions")
        })?;
        address.password = Some(Secret::new(text.trim_end_matches(['\n', '\r'])));
    } else if address.password.is_none() {
        address.password = std::env::var(PASSWORD_VARIABLE).ok().filter(|text| !text.is_empty()).map(Secret::new);
    }
    Ok(())
}
