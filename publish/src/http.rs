// SPDX-License-Identifier: MPL-2.0
//! `http://` and `https://`: POST requests to a web server.
//!
//! With a `max-batch` of 1 each message is the body of a request, else the body is an array of messages.

use std::io;
use std::time::Duration;

use gsttrt_core::error::{Error, ErrorKind, Result};

use super::address::{Address, Secret};
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;
use super::web::{self, WebClient};

struct Webhook {
    client: WebClient,
    /// Whether the body is an array.
    is_array: bool,
}

/// Bytes that are read of an answer, which nobody looks at.
const MAX_ANSWER: u64 = 1 << 16;

pub fn open(address: &Address, options: &PublishOptions) -> Result<Box<dyn Destination>> {
    let host = if address.host.contains(':') { format!("[{}]", address.host) } else { address.host.clone() };
    let port = address.port.map(|port| format!(":{port}")).unwrap_or_default();
    let target = address.target.reveal().split('#').next().unwrap_or_default();
    let slash = if target.starts_with('/') { "" } else { "/" };
    let url = format!("{}://{host}{port}{slash}{target}", address.scheme);
    let client = WebClient::new(Secret::new(url), authorization(address), options)?;
    Ok(Box::new(Webhook { client, is_array: options.max_batch != 1 }))
}

/// The header for user and password; a password without a user is a token.
fn authorization(address: &Address) -> Option<Secret> {
    let password = address.password.as_ref().map(Secret::reveal);
    match (&address.user, password) {
        (Some(user), password) => {
            let login = base64(format!("{user}:{}", password.unwrap_or_default()).as_bytes());
            Some(Secret::new(format!("Basic {login}")))
        }
        (None, Some(token)) => Some(Secret::new(format!("Bearer {token}"))),
        (None, None) => None,
    }
}

/// What a request says of who sends it, without the word before it.
///
/// # Errors
/// `Settings`, for a token that no header can hold.
pub fn credentials(address: &Address) -> Result<Option<Secret>> {
    let Some(header) = authorization(address) else { return Ok(None) };
    if !header.reveal().bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        let what = format!("The token for {} cannot be sent by HTTP", address.shown());
        return Err(Error::new(ErrorKind::Settings, what)
            .cause("it has characters that are not of ASCII")
            .remedy("Check the password or the password-file, or set a user, too"));
    }
    Ok(header.reveal().split_once(' ').map(|(_, value)| Secret::new(value)))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = char::from(DIGITS[number >> (18 - 6 * place) & 63]);
            text.push(if place <= three.len() { digit } else { '=' });
        }
    }
    text
}

impl Webhook {
    /// Sends a body, and returns the status of the answer.
    fn post(&self, body: &str) -> io::Result<u16> {
        let answer = self.client.post(body)?;
        let status = answer.status();
        let _ = answer.read(MAX_ANSWER); // it leaves the connection for the next request
        Ok(status)
    }
}

/// The server will never accept this body.
fn is_refusal(status: u16) -> bool {
    matches!(status, 400 | 413 | 415 | 422)
}

impl Destination for Webhook {
    fn connect(&mut self) -> io::Result<()> {
        // Each request connects by itself where it has to.
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        let bodies = if self.is_array {
            vec![(format!("[{}]", messages.join(",")), messages.len())]
        } else {
            messages.iter().map(|message| (message.clone(), 1)).collect()
        };
        let mut delivered = 0;
        for (body, count) in bodies {
            let status = self.post(&body).map_err(|error| Undelivered::after(delivered, error))?;
            if !(200..300).contains(&status) {
                let error = io::Error::other(format!("the server answers {}", web::shown(status)));
                let rejected = if is_refusal(status) { count } else { 0 };
                return Err(Undelivered { delivered, rejected, error });
            }
            delivered += count;
        }
        Ok(())
    }

    fn tend_interval(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xFB, 0xFF]), "+/8=");
    }
}
