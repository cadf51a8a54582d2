// SPDX-License-Identifier: MPL-2.0
//! Addresses of models on servers: `grpc://host:8001/model`, or with a version behind it.

use std::fmt;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::redact::redacted;

/// Triton's for gRPC.
const USUAL_PORT: u16 = 8001;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    pub host: String,
    pub port: u16,
    /// The model's name on the server.
    pub model: String,
    /// Empty for the one that the server chooses.
    pub version: String,
}

impl ServerAddress {
    /// # Errors
    /// `Settings`, where it is no such address.
    pub fn parse(path: &Path) -> Result<Self> {
        let text = path.to_string_lossy();
        let failed = |cause: &str, remedy: &str| {
            Error::new(ErrorKind::Settings, format!("Cannot use the address {}", redacted(&text)))
                .cause(cause)
                .remedy(remedy)
        };
        const EXAMPLE: &str = "Give one like grpc://host:8001/model or grpc://host:8001/model/1";
        let Some((scheme, rest)) = text.split_once("://") else { return Err(failed("it has no scheme", EXAMPLE)) };
        if !scheme.eq_ignore_ascii_case("grpc") {
            let remedy = "Use grpc://, in a network that is trusted or by a proxy on this machine that encrypts";
            return Err(failed("connections are not encrypted here", remedy));
        }
        if rest.contains('@') {
            let remedy = "Leave it out; where the server wants one, use a proxy on this machine that adds it";
            return Err(failed("it has a user or a password, which are not sent", remedy));
        }
        if let Some(other) = rest.chars().find(|&c| c.is_control() || c.is_whitespace() || "?#\\\"".contains(c)) {
            return Err(failed(&format!("there is a {other:?} in it"), EXAMPLE));
        }
        let (authority, names) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').unwrap_or("no number"))),
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(failed("it has no host", EXAMPLE));
        }
        let port = match port {
            None => USUAL_PORT,
            Some(port) => port
                .parse()
                .ok()
                .filter(|&port| port > 0)
                .ok_or_else(|| failed("its port is no number from 1 to 65535", EXAMPLE))?,
        };
        let (model, version) = match names.trim_end_matches('/').split_once('/') {
            Some((model, version)) => (model, version),
            None => (names.trim_end_matches('/'), ""),
        };
        if model.is_empty() {
            return Err(failed("it has no model", EXAMPLE));
        }
        if version.contains('/') {
            return Err(failed("there is more in it than a model and a version", EXAMPLE));
        }
        Ok(ServerAddress { host: host.into(), port, model: model.into(), version: version.into() })
    }

    /// Host and port, as HTTP has them.
    pub fn authority(&self) -> String {
        let ServerAddress { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grpc://{}/{}", self.authority(), self.model)?;
        if self.version.is_empty() { Ok(()) } else { write!(f, "/{}", self.version) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_host_port_model_and_version() {
        for (text, authority, model, version) in [
            ("grpc://triton:8001/yolo11n", "triton:8001", "yolo11n", ""),
            ("grpc://triton/yolo11n/", "triton:8001", "yolo11n", ""),
            ("GRPC://10.0.0.7:9000/street.cars/3", "10.0.0.7:9000", "street.cars", "3"),
            ("grpc://[::1]:8081/m/v0.1.0", "[::1]:8081", "m", "v0.1.0"),
            ("grpc://[fe80::1]/m", "[fe80::1]:8001", "m", ""),
        ] {
            let address = ServerAddress::parse(text.as_ref()).unwrap();
            let parts = (address.authority(), address.model.as_str(), address.version.as_str());
            assert_eq!(parts, (authority.to_string(), model, version), "{text}");
            assert_eq!(ServerAddress::parse(address.to_string().as_ref()).unwrap(), address, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_said_without_its_secrets() {
        for (text, says) in [
            ("grpc://triton:8001", "it has no model"),
            ("grpc://triton:8001//1", "it has no model"),
            ("grpc:///yolo11n", "it has no host"),
            ("grpc://triton:none/m", "its port is no number"),
            ("grpc://triton:0/m", "its port is no number"),
            ("grpc://triton:65536/m", "its port is no number"),
            ("grpc://[::1]8001/m", "its port is no number"),
            ("grpc://triton/m/1/2", "more in it than a model and a version"),
            ("grpc://triton/m?x=1", "'?' in it"),
            ("grpc://triton/a b", "' ' in it"),
            ("grpcs://triton/m", "not encrypted"),
            ("grpc://me:Zq9@triton/m", "a user or a password"),
            ("grpc://Zq9@triton/m", "a user or a password"),
            ("grpc://triton/m/token=Zq9/1", "more in it"),
        ] {
            let message = ServerAddress::parse(text.as_ref()).unwrap_err().message();
            assert!(message.starts_with("Cannot use the address ") && message.contains(says), "{text}: {message}");
            assert!(!message.contains("Zq9"), "{message}");
        }
    }
}
