// SPDX-License-Identifier: MPL-2.0
//! Who may watch: on localhost all, unless there is a password; beyond, those who know it. They prove it by a digest
//! (RFC 2617), so the password itself is never sent.

use std::hash::{BuildHasher, RandomState};

use gst::glib;
use subtle::ConstantTimeEq;

use super::RtspSettings;
use super::request::RtspRequest;
use crate::failure::Failure;

/// Characters that a password must have: enough against guessing.
const PASSWORD: usize = 16;
const REALM: &str = "gst-trt";

pub struct RtspAccess {
    user: String,
    password: Option<String>,
}

/// A number that no other connection has, so that what was heard on one is of no use on another.
pub struct Nonce(String);

impl Nonce {
    pub fn new() -> Self {
        // The standard library's hashers have random keys.
        let random = || RandomState::new().hash_one(());
        Nonce(format!("{:016x}{:016x}", random(), random()))
    }

    /// As the name of a session.
    pub fn id(self) -> String {
        self.0
    }

    /// What a client is asked for.
    pub fn challenge(&self) -> String {
        format!("WWW-Authenticate: Digest realm=\"{REALM}\", nonce=\"{}\"\r\n", self.0)
    }
}

impl RtspAccess {
    pub fn new(settings: &RtspSettings) -> Result<Self, Failure> {
        let RtspSettings { listen, user, password } = settings;
        check_user(user)?;
        match password {
            Some(password) if password.len() < PASSWORD || !password.bytes().all(|byte| byte.is_ascii_graphic()) => {
                let rule = format!("it must have {PASSWORD} or more ASCII characters, without spaces");
                Err(format!("The password in [rtsp] is not usable: {rule}. Make one with: openssl rand -hex 8.").into())
            }
            None if !listen.ip().to_canonical().is_loopback() => {
                let why = "without a password everyone in the network could see the sources";
                let remedy = "Set password in [rtsp], or listen on 127.0.0.1";
                Err(format!("RTSP is not served on {listen}: {why}. {remedy}.").into())
            }
            password => Ok(RtspAccess { user: user.clone(), password: password.clone() }),
        }
    }

    pub fn permits(&self, request: &RtspRequest, nonce: &Nonce) -> bool {
        let Some(password) = &self.password else { return true };
        let Some(given) = request.header("authorization").and_then(Credentials::parse) else { return false };
        let known = md5(&format!("{}:{REALM}:{password}", self.user));
        let asked = md5(&format!("{}:{}", request.method, given.uri));
        let expected = md5(&format!("{known}:{}:{asked}", nonce.0));
        // Takes as long for one that is nearly right.
        let is_right = given.response.to_ascii_lowercase().as_bytes().ct_eq(expected.as_bytes());
        given.user == self.user && given.nonce == nonce.0 && is_right.into()
    }
}

/// A name that stands in quotes, and before a colon.
pub fn check_user(user: &str) -> Result<(), Failure> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\":\\".contains(&byte);
    if user.is_empty() || !user.bytes().all(is_plain) {
        let rule = "it has ASCII characters without spaces, quotes, colons and backslashes";
        return Err(format!("The user in [rtsp] is not usable: {rule}.").into());
    }
    Ok(())
}

fn md5(text: &str) -> String {
    let sum = glib::compute_checksum_for_string(glib::ChecksumType::Md5, text);
    sum.expect("GLib has MD5").to_string()
}

/// What a client has computed of the password.
struct Credentials<'a> {
    user: &'a str,
    nonce: &'a str,
    uri: &'a str,
    response: &'a str,
}

impl<'a> Credentials<'a> {
    fn parse(header: &'a str) -> Option<Self> {
        let (scheme, rest) = header.split_once(' ')?;
        let mut found = Credentials { user: "", nonce: "", uri: "", response: "" };
        let mut rest = Some(rest).filter(|_| scheme.eq_ignore_ascii_case("digest"))?.trim_start();
        while !rest.is_empty() {
            let (name, value) = rest.split_once('=')?;
            let (value, following) = match value.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => value.split_at(value.find(',').unwrap_or(value.len())),
            };
            match name.trim() {
                "username" => found.user = value,
                "nonce" => found.nonce = value,
                "uri" => found.uri = value,
                "response" => found.response = value,
                _ => {}
            }
            rest = following.trim_start().trim_start_matches(',').trim_start();
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::RtspInput;
    use super::*;

    fn access(listen: &str, user: &str, password: Option<&str>) -> Result<RtspAccess, String> {
        let settings =
            RtspSettings { listen: listen.parse().unwrap(), user: user.into(), password: password.map(String::from) };
        assert!(!format!("{settings:?}").contains("hush"), "no secret in a log");
        RtspAccess::new(&settings).map_err(|failure| failure.to_string())
    }

    fn request(authorization: &str) -> RtspRequest {
        let mut input = RtspInput::default();
        input.push(format!("DESCRIBE rtsp://h/gate RTSP/1.0\r\nAuthorization: {authorization}\r\n\r\n").as_bytes());
        input.request().unwrap().unwrap()
    }

    #[test]
    fn beyond_localhost_there_is_a_password() {
        assert!(access("127.0.0.1:8554", "me", None).is_ok() && access("[::1]:8554", "me", None).is_ok());
        for (listen, user, password, said) in [
            ("0.0.0.0:8554", "me", None, "Set password in [rtsp], or listen on 127.0.0.1."),
            ("127.0.0.1:8554", "me", Some("hush"), "it must have 16 or more ASCII characters"),
            ("127.0.0.1:8554", "me", Some("hush hush hush hush"), "without spaces"),
            ("127.0.0.1:8554", "m\"e", None, "The user in [rtsp] is not usable"),
            ("127.0.0.1:8554", "", None, "The user in [rtsp] is not usable"),
        ] {
            let error = access(listen, user, password).map(drop).unwrap_err();
            assert!(error.contains(said) && !error.contains("hush"), "{error}");
        }
    }

    /// The numbers of an example that was computed by md5sum.
    #[test]
    fn the_digest_is_that_of_the_standard() {
        let access = access("0.0.0.0:8554", "me", Some("hush-hush-hush-1")).unwrap();
        let nonce = Nonce("0123456789abcdef".into());
        let right = "da39def8d00f41d16cea6b04fb297b8e";
        let digest = |user: &str, nonce: &str, response: &str| {
            format!(
                "Digest username=\"{user}\", realm=\"gst-trt\", nonce=\"{nonce}\", uri=\"rtsp://h/gate\", algorithm=MD5, response=\"{response}\""
            )
        };
        assert!(access.permits(&request(&digest("me", &nonce.0, right)), &nonce));
        for wrong in [
            digest("you", &nonce.0, right),
            digest("me", "0123456789abcdee", right),
            digest("me", &nonce.0, &right.replace(&right[..1], "x")),
            digest("me", &nonce.0, ""),
            "Basic bWU6aHVzaC1odXNoLWh1c2gtMQ==".into(),
            "Digest".into(),
            "Digest username=\"me".into(),
            "Digest =,=,,=\"\"\"".into(),
        ] {
            assert!(!access.permits(&request(&wrong), &nonce), "{wrong}");
        }
        assert!(Nonce::new().0 != Nonce::new().0);
    }
}
