// SPDX-License-Identifier: MPL-2.0
//! Where results are sent: a path, `-`, or an address like `mqtt://user:password@host:1883/topic?qos=1`.
//!
//! Users, passwords and the values of queries stay in here: what is shown or part of an error never has them.

use std::fmt;

use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::redact::{is_secret, redacted, without_values};

/// A text that no log and no error shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Secret::new(text)
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The parts of an address. For files, `-` and Unix sockets only `scheme` and `path` are set.
#[derive(Clone, Default, PartialEq)]
pub struct Address {
    pub scheme: String,
    pub user: Option<String>,
    pub password: Option<Secret>,
    /// Without the brackets of IPv6.
    pub host: String,
    pub port: Option<u16>,
    /// Without the slash at its beginning, decoded.
    pub path: String,
    /// As it was written: path and query of a web address.
    pub target: Secret,
    pub query: Vec<(String, Secret)>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

const WHAT: &str = "location is not an address that trtpublish can send to";

fn wrong(cause: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Settings, WHAT).cause(cause)
}

impl Address {
    /// `schemes` are the known words before `://`.
    ///
    /// # Errors
    /// The location is no address. The error tells what is wrong, without repeating a password.
    pub fn parse(location: &str, schemes: &[&str]) -> Result<Self> {
        if location.is_empty() {
            return Err(Error::new(ErrorKind::Settings, "location is not set").remedy(
                "Set location to a file, to - for standard output, or to an address such as mqtt://host/topic",
            ));
        }
        if location.chars().any(char::is_control) {
            return Err(wrong("it has control characters").remedy("Write such characters as %0A"));
        }
        if location.contains("://") && location.contains("***") {
            return Err(wrong("*** stands for what is not shown of an address")
                .remedy("Write the address as it is, or leave the password out and set password or password-file"));
        }
        if location == "-" {
            return Ok(Address { scheme: "-".into(), ..Address::default() });
        }
        let local = |scheme: &str| location.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(':'));
        for scheme in ["file", "unix"] {
            if let Some(path) = local(scheme) {
                return local_path(scheme, path);
            }
        }
        if let Some((scheme, rest)) = location.split_once("://") {
            return Self::with_authority(scheme, rest, schemes);
        }
        if let Some(scheme) = schemes.iter().find(|scheme| local(scheme).is_some()) {
            return Err(wrong(format!("two slashes are missing behind {scheme}:")).remedy(format!("Write {scheme}://")));
        }
        Ok(Address { scheme: "file".into(), path: location.into(), ..Address::default() })
    }

    fn with_authority(scheme: &str, rest: &str, schemes: &[&str]) -> Result<Self> {
        let scheme = scheme.to_ascii_lowercase();
        if !schemes.contains(&scheme.as_str()) {
            let is_word = scheme.len() <= 20 && scheme.chars().all(|c| c.is_ascii_alphanumeric());
            let cause = if is_word {
                format!("nothing is known about {scheme}://")
            } else {
                "no known word is before ://".into()
            };
            let known: String = schemes.iter().map(|scheme| format!(", {scheme}://")).collect();
            return Err(wrong(cause).remedy(format!("Use a path, - or one of file:, unix:{known}")));
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // The end of a password is not guessed.
        if target.contains('@') {
            return Err(wrong("an @ is behind the first /, ? or #").remedy(
                "In a password write / as %2F, ? as %3F and # as %23, or use password-file; elsewhere write @ as %40",
            ));
        }
        if target.contains('#') && !is_web(&scheme) {
            return Err(wrong("there is a # in it").remedy("Write it as %23; MQTT publishes to no topic with # or +"));
        }
        let (userinfo, host_port) = match authority.rsplit_once('@') {
            Some((userinfo, host_port)) => (Some(userinfo), host_port),
            None => (None, authority),
        };
        let (host, port) = host_and_port(host_port)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = query.split('#').next().unwrap_or_default();
        let mut address = Address { scheme, host, port, target: Secret::new(target), ..Address::default() };
        if let Some(userinfo) = userinfo {
            let (user, password) = match userinfo.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (userinfo, None),
            };
            address.user = Some(decoded(user)?).filter(|user| !user.is_empty());
            address.password = password.map(|password| decoded(password).map(Secret::new)).transpose()?;
        }
        address.path = decoded(path.split('#').next().unwrap_or_default())?;
        if let Some(path) = address.path.strip_prefix('/') {
            address.path = path.into();
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            address.query.push((decoded(name)?, Secret::new(decoded(value)?)));
        }
        Ok(address)
    }

    /// The address for messages: without user, password and query.
    pub fn shown(&self) -> String {
        match self.scheme.as_str() {
            "-" => "standard output".into(),
            "file" => redacted(&self.path),
            "unix" => format!("unix:{}", self.path),
            scheme => {
                let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
                let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
                let path = if self.path.is_empty() { String::new() } else { format!("/{}", self.path) };
                format!("{scheme}://{host}{port}{}", without_values(&path, is_web(scheme)))
            }
        }
    }

    /// Takes the values of the parameters behind `?`.
    pub fn parameters<'a>(&'a self, known: &'a [&'a str]) -> Result<AddressParameters<'a>> {
        for (at, (name, _)) in self.query.iter().enumerate() {
            let remedy = if known.is_empty() {
                format!("Leave out what is behind the ?; {}:// has no parameters", self.scheme)
            } else {
                format!("{}:// has {}", self.scheme, known.join(", "))
            };
            if !known.contains(&name.as_str()) {
                // What is behind a secret may be a part of it.
                let is_behind = self.query[..at].iter().any(|(before, _)| is_secret(before));
                let is_word = name.len() <= 20 && name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
                let is_word = is_word && !is_behind;
                let shown = if is_word { name.as_str() } else { "behind the ?" };
                return Err(wrong(format!("there is no parameter {shown}")).remedy(remedy));
            }
            if self.query[..at].iter().any(|(before, _)| before == name) {
                return Err(wrong(format!("the parameter {name} is there twice")).remedy("Leave one out"));
            }
        }
        Ok(AddressParameters { address: self })
    }
}

/// The known parameters of an address.
pub struct AddressParameters<'a> {
    address: &'a Address,
}

impl<'a> AddressParameters<'a> {
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.address.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.reveal())
    }

    /// A whole number of that range.
    pub fn number(&self, name: &str, range: std::ops::RangeInclusive<u64>, default: u64) -> Result<u64> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let (first, last) = (range.start(), range.end());
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            wrong(format!("{name} has to be a number")).remedy(format!("Give {name} a number from {first} to {last}"))
        })
    }

    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.text(name) {
            None => Ok(default),
            Some("true" | "1" | "") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(_) => {
                Err(wrong(format!("{name} has to be true or false"))
                    .remedy(format!("Write {name}=true or {name}=false")))
            }
        }
    }
}

fn local_path(scheme: &str, path: &str) -> Result<Address> {
    // file:///a, file:/a and file:a; file://host/a is elsewhere.
    let path = match path.strip_prefix("//") {
        Some(path) if path.is_empty() || path.starts_with('/') => path,
        Some(_) => return Err(wrong(format!("{scheme}:// names a host")).remedy(format!("Write {scheme}:///path"))),
        None => path,
    };
    if path.is_empty() {
        return Err(wrong(format!("there is no path behind {scheme}:")).remedy(format!("Write {scheme}:/path")));
    }
    Ok(Address { scheme: scheme.into(), path: decoded(path)?, ..Address::default() })
}

fn host_and_port(text: &str) -> Result<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest
                .split_once(']')
                .ok_or_else(|| wrong("the bracket of an IPv6 address is not closed").remedy("Write [::1]:1883"))?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(wrong("what is in brackets is not an IPv6 address").remedy("Write [::1]:1883"));
            }
            (host, port.strip_prefix(':').or((!port.is_empty()).then_some(port)))
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(wrong("the host has several colons").remedy("Write IPv6 addresses in brackets: [::1]:1883"));
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if host.is_empty() || host.len() > 253 || !host.chars().all(is_host) {
        return Err(wrong("there is no host in it, or one with characters that no host has")
            .remedy("Write scheme://host:port/…"));
    }
    let port = port.filter(|port| !port.is_empty()).map(|port| {
        let number = port.parse().ok().filter(|&number| number > 0u16);
        number.ok_or_else(|| wrong("the port is not a number from 1 to 65535").remedy("Write scheme://host:port/…"))
    });
    Ok((host.into(), port.transpose()?))
}

/// Without percent signs.
fn decoded(text: &str) -> Result<String> {
    let bad = || wrong("behind a % there are not two hexadecimal digits of UTF-8 text").remedy("Write % as %25");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or_else(bad);
        bytes.push((digit()? * 16 + digit()?) as u8);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

fn is_web(scheme: &str) -> bool {
    scheme == "http" || scheme == "https"
}
