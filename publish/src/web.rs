// SPDX-License-Identifier: MPL-2.0
//! A web server that takes POST requests.

use std::io;
use std::time::Duration;

use gsttrt_core::error::{Error, ErrorKind, Result};
use ureq::http::{Response, StatusCode, Uri};
use ureq::{Agent, Body};

use super::address::Secret;
use super::options::PublishOptions;
use super::{clock, https, tls};

/// A server may ask for patience, up to that.
const MOST_PATIENCE: Duration = Duration::from_secs(300);

pub struct WebClient {
    agent: Agent,
    url: Secret,
    authorization: Option<Secret>,
}

impl WebClient {
    /// A client of an address of `http://` or `https://`, with what the header `Authorization` says. Nothing is connected.
    /// `timeout` of the options is for the whole of a request and its answer. No redirection is followed, as it would take the
    /// header elsewhere.
    ///
    /// # Errors
    /// It is no such address, or the certificates cannot be used.
    pub fn new(url: Secret, authorization: Option<Secret>, options: &PublishOptions) -> Result<Self> {
        let uri = url.reveal().parse::<Uri>().map_err(|_| {
            Error::new(ErrorKind::Settings, "The path of the web address has characters that it must not have")
                .remedy("Write spaces and others with %, such as %20")
        })?;
        let config = Agent::config_builder()
            .timeout_global(Some(options.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("trtpublish/", env!("CARGO_PKG_VERSION")))
            .build();
        let agent = if uri.scheme_str() == Some("https") {
            https::agent(config, tls::client(options)?)
        } else {
            Agent::new_with_config(config)
        };
        Ok(WebClient { agent, url, authorization })
    }

    /// Sends a text of JSON, and returns when the answer begins.
    ///
    /// # Errors
    /// The server cannot be reached, or does not answer in time. A status that tells of a failure is an answer, too.
    pub fn post(&self, body: &str) -> io::Result<WebAnswer> {
        self.post_as("application/json", &[], body.as_bytes())
    }

    /// The same of bytes of that type, with further headers.
    ///
    /// # Errors
    /// As [`WebClient::post`].
    pub fn post_as(&self, content_type: &str, headers: &[(String, Secret)], body: &[u8]) -> io::Result<WebAnswer> {
        let mut request = self.agent.post(self.url.reveal()).content_type(content_type);
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization.reveal());
        }
        for (name, value) in headers {
            request = request.header(name, value.reveal());
        }
        request.send(body).map(WebAnswer).map_err(io_error)
    }
}

pub struct WebAnswer(Response<Body>);

impl WebAnswer {
    pub fn status(&self) -> u16 {
        self.0.status().as_u16()
    }

    /// After what time the server is to be asked again, where it says so, in seconds or by a date: 5 min at most.
    pub fn retry_after(&self) -> Option<Duration> {
        let text = self.0.headers().get("Retry-After")?.to_str().ok()?.trim();
        let by_date = || Some(clock::of_http_date(text)?.saturating_sub(clock::now() / 1_000_000_000));
        let seconds = text.parse().ok().or_else(by_date)?;
        Some(Duration::from_secs(seconds).min(MOST_PATIENCE))
    }

    /// The body. Read to its end, it leaves the connection for the next request.
    ///
    /// # Errors
    /// It has more than `max` bytes, is cut off, or does not come in time.
    pub fn read(mut self, max: u64) -> io::Result<Vec<u8>> {
        self.0.body_mut().with_config().limit(max).read_to_vec().map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => io::Error::other(format!("the answer has more than {max} bytes")),
            error => io_error(error),
        })
    }
}

/// A status with its words: `404 Not Found`.
pub fn shown(status: u16) -> String {
    StatusCode::from_u16(status).map_or_else(|_| status.to_string(), |status| status.to_string())
}

fn io_error(error: ureq::Error) -> io::Error {
    match error {
        ureq::Error::Timeout(_) => io::ErrorKind::TimedOut.into(),
        ureq::Error::Io(error) => error,
        error => io::Error::other(error.to_string()),
    }
}
