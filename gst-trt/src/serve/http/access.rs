// SPDX-License-Identifier: MPL-2.0
//! Who may ask for what.
//!
//! | | on localhost | beyond |
//! |---|---|---|
//! | the page without its data, `/healthz`, `/readyz` without reasons | all | all |
//! | what is read | all | with the token |
//! | what changes something | with the token | with the token |
//!
//! Web sites that a user visits can send requests from the user's browser. One that gives its own name the address
//! 127.0.0.1 could read the answers: so on localhost the `Host` must be a name of localhost. Beyond, it lacks the
//! token. What changes something must not come from another site either, by the headers that browsers add and scripts
//! cannot set.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use subtle::ConstantTimeEq;

use super::HttpSettings;
use super::answer::ApiError;
use crate::failure::Failure;

/// Characters that a token must have: enough against guessing.
const TOKEN: usize = 16;

pub struct Access {
    token: Option<String>,
    is_local: bool,
}

impl Access {
    pub fn new(settings: &HttpSettings) -> Result<Self, Failure> {
        let is_local = settings.listen.ip().to_canonical().is_loopback();
        match &settings.token {
            Some(token) if token.len() < TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                let rule = format!("it must have {TOKEN} or more ASCII characters, without spaces");
                Err(format!("The token in [http] is not usable: {rule}. Make one with: openssl rand -hex 32.").into())
            }
            None if !is_local => {
                let why = "without a token everyone in the network could see the sources";
                let remedy = "Set token in [http], or listen on 127.0.0.1";
                Err(format!("HTTP is not served on {}: {why}. {remedy}.", settings.listen).into())
            }
            token => Ok(Access { token: token.clone(), is_local }),
        }
    }

    /// For every request.
    pub fn check_origin(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let hosts: Vec<_> = headers.get_all(header::HOST).iter().collect();
        let host = match hosts[..] {
            [host] => host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()),
            _ => None,
        };
        let Some(host) = host else {
            let text = "The request does not name its host. Send one Host header, such as Host: localhost.";
            return Err(ApiError::new(StatusCode::BAD_REQUEST, text));
        };
        // As proxies are asked: GET http://localhost/sources. Which of two hosts was meant is not guessed.
        if uri.authority().is_some_and(|asked| !asked.as_str().eq_ignore_ascii_case(host.as_str())) {
            let text = "The request names two hosts, one in its first line and one in its Host header. Send the same \
                        in both, or only the path in the first line.";
            return Err(ApiError::new(StatusCode::BAD_REQUEST, text));
        }
        if self.is_local && !is_localhost(host.host()) {
            let why = "this service is only for localhost";
            let remedy = "Use localhost, 127.0.0.1 or [::1] in the address; a proxy must send one of them as Host";
            return Err(ApiError::new(StatusCode::FORBIDDEN, format!("The host is refused: {why}. {remedy}.")));
        }
        if !is_read(method) && is_foreign(headers, &host) {
            let text = "The request is refused: it comes from another web site. Send it from the page of this service.";
            return Err(ApiError::new(StatusCode::FORBIDDEN, text));
        }
        Ok(())
    }

    /// Whether what is read may be told.
    pub fn may_read(&self, headers: &HeaderMap) -> bool {
        self.is_local || self.has_token(headers)
    }

    /// For requests that tell what is read, or change something.
    pub fn check_token(&self, method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
        if self.has_token(headers) || is_read(method) && self.is_local {
            return Ok(());
        }
        Err(self.without_token(headers))
    }

    /// For requests that tell what is read, and are none of those that only read.
    pub fn check_read(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if self.may_read(headers) { Ok(()) } else { Err(self.without_token(headers)) }
    }

    fn without_token(&self, headers: &HeaderMap) -> ApiError {
        if self.token.is_none() {
            let text =
                "Nothing can be changed by HTTP: there is no token. Set token in [http], and start the service again.";
            return ApiError::new(StatusCode::FORBIDDEN, text);
        }
        let why = if headers.contains_key(header::AUTHORIZATION) { "the token is wrong" } else { "it needs the token" };
        let remedy = "Send the header Authorization: Bearer TOKEN, with the token in [http]";
        ApiError::new(StatusCode::UNAUTHORIZED, format!("The request is refused: {why}. {remedy}."))
    }

    /// Takes as long for a token that is nearly right.
    fn has_token(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return false };
        let Some(credentials) = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes()) else { return false };
        let Some((scheme, given)) = credentials.split_at_checked("Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && given.ct_eq(token.as_bytes()).into()
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn is_localhost(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Whether a browser sent it for another site. A proxy may change the host, so what the browser has found itself comes
/// first.
fn is_foreign(headers: &HeaderMap, host: &Authority) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site != "same-origin" && site != "none";
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.is_none_or(|(_, origin)| !origin.eq_ignore_ascii_case(host.as_str()))
}
