// SPDX-License-Identifier: MPL-2.0
//! The host and the port in the address of a stream. GStreamer's elements read a wrong one as another, such as port 99999 as
//! 34463, and say that there is no answer.

use std::net::Ipv6Addr;

/// Schemes whose addresses name a host, and the port that it has without one.
const OF_HOSTS: [(&str, u16); 20] = [
    ("rtsp", 554),
    ("rtspt", 554),
    ("rtspu", 554),
    ("rtsph", 554),
    ("rtsps", 322),
    ("rtspst", 322),
    ("rtspsu", 322),
    ("rtspsh", 322),
    ("http", 80),
    ("https", 443),
    ("icy", 80),
    ("icyx", 80),
    ("rtmp", 1935),
    ("rtmpe", 1935),
    ("rtmpte", 1935),
    ("rtmfp", 1935),
    ("rtmpt", 80),
    ("rtmps", 443),
    ("rtmpts", 443),
    ("rfb", 5900),
];

/// Those that may listen, and then name a port alone.
const OF_LISTENERS: [&str; 4] = ["udp", "rtp", "srt", "rist"];

/// Those that are known here.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    OF_HOSTS.iter().map(|(scheme, _)| *scheme).chain(OF_LISTENERS)
}

/// What is connected to, by TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteHost {
    /// Without the brackets of IPv6.
    pub name: String,
    pub port: u16,
}

/// The host of an address, whose scheme is in small letters. `None` for other addresses, and where it is not clear where a
/// password ends and the host begins.
///
/// # Errors
/// What is wrong with host or port, without a word of them, as they may be a part of a password.
pub fn host(scheme: &str, rest: &str) -> Result<Option<RemoteHost>, String> {
    let default = OF_HOSTS.iter().find(|(known, _)| *known == scheme).map(|(_, port)| *port);
    if default.is_none() && !OF_LISTENERS.contains(&scheme) {
        return Ok(None);
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (userinfo, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    name_and_port(host, default.is_some())
        .and_then(|(name, port)| match port.or(default) {
            // GStreamer takes the first one for the end of the password.
            _ if scheme.starts_with("rtsp") && userinfo.contains('@') => Err("it has more than one @ before its host"),
            Some(port) if default.is_some() && !path.contains('@') => Ok(Some(RemoteHost { name: name.into(), port })),
            _ => Ok(None),
        })
        .map_err(|what| match rest.contains('@') && (path.contains('@') || userinfo.contains('@')) {
            true => format!("{what}. In a password, write / as %2F, ? as %3F, # as %23 and @ as %40"),
            false => what.into(),
        })
}

/// The parts of `name:port`, `name`, `[::1]:port`.
fn name_and_port(host: &str, needs_name: bool) -> Result<(&str, Option<u16>), &'static str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(host) => {
            let (name, behind) = host.split_once(']').ok_or("the bracket of its IPv6 address is not closed")?;
            // Behind a percent sign is an interface.
            if name.split('%').next().is_none_or(|name| name.parse::<Ipv6Addr>().is_err()) {
                return Err("what it has in brackets is no IPv6 address");
            }
            let port = behind.strip_prefix(':').or(behind.is_empty().then_some(""));
            (name, port.ok_or("behind the brackets of its host comes a colon with a port, or nothing")?)
        }
        None => host.split_once(':').unwrap_or((host, "")),
    };
    if port.contains(':') {
        return Err("its host has several colons. Write an IPv6 address in brackets, such as [::1]");
    }
    let number = port.parse().ok().filter(|number| *number > 0 && !port.starts_with('+'));
    if !port.is_empty() && number.is_none() {
        return Err("its port is no number from 1 to 65535");
    }
    if needs_name && name.is_empty() {
        return Err("it has no host");
    }
    if name.contains(|c: char| c.is_whitespace() || c.is_control() || "<>\"\\^`{|}[]".contains(c)) {
        return Err("its host has characters that no host has");
    }
    let numbers: Vec<&str> = name.split('.').collect();
    let are_numbers = numbers.iter().all(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    if numbers.len() == 4 && are_numbers && numbers.iter().any(|text| text.parse::<u8>().is_err()) {
        return Err("its host is no IPv4 address: each of the four numbers is at most 255");
    }
    Ok((name, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Result<Option<(String, u16)>, String> {
        let (scheme, rest) = address.split_once("://").unwrap();
        host(scheme, rest).map(|host| host.map(|host| (host.name, host.port)))
    }

    #[test]
    fn hosts_and_ports_are_found() {
        for (address, name, port) in [
            ("rtsp://camera", "camera", 554),
            ("rtsps://camera/", "camera", 322),
            ("rtspt://me:p:w@host/a:5", "host", 554),
            ("rtsp://me:p%40w@host:8554/a", "host", 8554),
            ("rtsp://host:/a", "host", 554),
            ("http://host?x", "host", 80),
            ("https://[::1]:8443/", "::1", 8443),
            ("http://[fe80::1%25eth0]/", "fe80::1%25eth0", 80),
            ("http://127.1:65535/", "127.1", 65535),
            ("rtmp://192.168.1.255/live", "192.168.1.255", 1935),
            ("http://büro-kamera:1/", "büro-kamera", 1),
            ("http://me:a@b@host/", "host", 80),
        ] {
            assert_eq!(of(address), Ok(Some((name.into(), port))), "{address}");
        }
        for address in [
            "udp://:5000",
            "udp://@:5000",
            "udp://239.0.0.1:5000",
            "srt://:7001?mode=listener",
            "rtp://host",
            "v4l2:///dev/video0",
            "x-y://:99999",
            "rtsp://me:5/w@host/a",
            "rtsp://camera/user=me@home",
        ] {
            assert_eq!(of(address), Ok(None), "{address}");
        }
    }

    #[test]
    fn hosts_and_ports_that_cannot_be_are_refused() {
        for (address, said) in [
            ("rtsp://h:99999/x", "no number from 1 to 65535"),
            ("rtsp://h:65536", "no number from 1 to 65535"),
            ("http://h:0/", "no number from 1 to 65535"),
            ("http://h:-1/", "no number from 1 to 65535"),
            ("http://h:+80/", "no number from 1 to 65535"),
            ("http://h: 80/", "no number from 1 to 65535"),
            ("http://h:80x/", "no number from 1 to 65535"),
            ("udp://127.0.0.1:70000", "no number from 1 to 65535"),
            ("srt://:x?mode=listener", "no number from 1 to 65535"),
            ("http://[::1]:99999/", "no number from 1 to 65535"),
            ("http://", "no host"),
            ("http:///live", "no host"),
            ("http://?x", "no host"),
            ("rtsp://:554/x", "no host"),
            ("rtsp://me:hush@", "no host"),
            ("rtsp://me:hush@:554/x", "no host"),
            ("rtsp://my camera/x", "characters that no host has"),
            ("rtsp://<ip>/x", "characters that no host has"),
            ("rtsp://{camera}/x", "characters that no host has"),
            ("rtsp://192.168.1.256/x", "at most 255"),
            ("rtsp://192.168.1.2000/x", "at most 255"),
            ("rtsp://::1/x", "in brackets, such as [::1]"),
            ("rtsp://fe80::1:554/x", "in brackets, such as [::1]"),
            ("rtsp://[::1/x", "not closed"),
            ("rtsp://[camera]/x", "no IPv6 address"),
            ("rtsp://[::1]554/x", "a colon with a port"),
            ("rtsp://me:hush/hush@host/x", "write / as %2F"),
            ("rtsp://me:hush@hush@host/x", "and @ as %40"),
        ] {
            let error = of(address).expect_err(address);
            assert!(error.contains(said) && !error.contains("hush"), "{address}: {error}");
        }
    }

    /// All ways to put parts together, of which some can be and some cannot.
    #[test]
    fn an_address_is_right_where_each_of_its_parts_is() {
        const USERS: [(&str, bool); 6] =
            [("", true), ("me@", true), ("me:hush@", true), (":@", true), ("me:hu%2Fsh@", true), ("me:hu@sh@", false)];
        const NAMES: [(&str, bool); 14] = [
            ("h", true),
            ("a-b.c_d", true),
            ("10.0.0.255", true),
            ("[::1]", true),
            ("[fe80::1%25e0]", true),
            ("xn--bro-hoa", true),
            ("", false),
            ("h h", false),
            ("10.0.0.256", false),
            ("[]", false),
            ("[::1", false),
            ("::1]", false),
            ("::1", false),
            ("[10.0.0.1]", false),
        ];
        const PORTS: [(&str, bool); 12] = [
            ("", true),
            (":", true),
            (":1", true),
            (":0554", true),
            (":65535", true),
            (":65536", false),
            (":0", false),
            (":-1", false),
            (":1x", false),
            (":99999999999999999999", false),
            (":1:1", false),
            (":\u{661}", false),
        ];
        const PATHS: [&str; 6] = ["", "/", "/a:70000", "?a=b:c", "#a", "/a/b?c#d"];
        let mut count = 0;
        for ((user, has_user), (name, has_name), (port, has_port)) in USERS
            .iter()
            .flat_map(|user| NAMES.iter().flat_map(move |name| PORTS.iter().map(move |port| (*user, *name, *port))))
        {
            for path in PATHS {
                let address = format!("rtsp://{user}{name}{port}{path}");
                assert_eq!(of(&address).is_ok(), has_user && has_name && has_port, "{address}: {:?}", of(&address));
                count += 1;
            }
        }
        assert_eq!(count, USERS.len() * NAMES.len() * PORTS.len() * PATHS.len());
    }
}
