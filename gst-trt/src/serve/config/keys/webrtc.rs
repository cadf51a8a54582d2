// SPDX-License-Identifier: MPL-2.0
//! `[webrtc]` as it is written.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::de::{self, Deserialize, Deserializer};

use super::listen;

const PORT: u16 = 8189;

#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WebrtcKeys {
    /// On all addresses: what comes there is of somebody who was let in by HTTP, or it is left.
    #[serde(default = "everywhere", deserialize_with = "listen::<PORT, _>")]
    pub listen: SocketAddr,
    #[serde(default)]
    pub addresses: Vec<OwnAddress>,
}

/// How others reach this machine: an address, with a port where that is another one there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnAddress(pub SocketAddr);

impl<'de> Deserialize<'de> for OwnAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = "write it like 203.0.113.7, or 203.0.113.7:8189 where its port is another one";
        let wrong = |what: &str| de::Error::custom(format!("{what}: {form}"));
        let text = String::deserialize(deserializer).map_err(|_| wrong("an address is a text"))?;
        let without_port = || text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 0));
        let shown: String = text.chars().take(64).collect();
        let address = text.parse::<SocketAddr>().or_else(|_| without_port());
        let address = address.map_err(|_| wrong(&format!("“{shown}” is no address in numbers")))?;
        if address.ip().is_unspecified() || address.ip().is_multicast() {
            return Err(wrong(&format!("nobody can be reached at “{shown}”")));
        }
        Ok(OwnAddress(address))
    }
}

fn everywhere() -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, PORT).into()
}
