// SPDX-License-Identifier: MPL-2.0
//! `http://` and `https://`: POST requests to a web server.
//!
//! With a `max-batch` of 1 each message is the body of a request, else the body is an array of messages.

use std::io;
use std::time::Duration;

use gsttrt_core::base64;
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
            let login = base64::encode(format!("{user}:{}", password.unwrap_or_default()).as_bytes());
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

impl Webhook {
    /// Sends a body, and returns the status of the answer, and how long to wait, where it says so.
    fn post(&self, body: &str) -> io::Result<(u16, Option<Duration>)> {
        let answer = self.client.post(body)?;
        let (status, retry_after) = (answer.status(), answer.retry_after());
        let _ = answer.read(MAX_ANSWER); // it leaves the connection for the next request
        Ok((status, retry_after))
    }

    /// Sends messages in one body. If it is refused, because it is too long or for one of them, each half has its own.
    fn send_together(&self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        let body = messages.join(",");
        let body = if self.is_array { format!("[{body}]") } else { body };
        let (status, retry_after) = self.post(&body)?;
        if (200..300).contains(&status) {
            return Ok(());
        }
        if is_refusal(status) && messages.len() > 1 {
            let (first, second) = messages.split_at(messages.len() / 2);
            self.send_together(first)?;
            let sent = self.send_together(second);
            return sent.map_err(|rest| Undelivered { delivered: first.len() + rest.delivered, ..rest });
        }
        let error = io::Error::other(format!("the server answers {}", web::shown(status)));
        Err(Undelivered { delivered: 0, rejected: is_refusal(status).into(), error, retry_after })
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
        let together = if self.is_array { messages.len().max(1) } else { 1 };
        let mut delivered = 0;
        for messages in messages.chunks(together) {
            let sent = self.send_together(messages);
            sent.map_err(|rest| Undelivered { delivered: delivered + rest.delivered, ..rest })?;
            delivered += messages.len();
        }
        Ok(())
    }

    fn tend_interval(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, channel};

    use super::super::destinations;
    use super::*;

    /// The body of the next request.
    fn body(reader: &mut BufReader<TcpStream>) -> Option<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).ok().filter(|&count| count > 0)?;
        }
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).ok()?;
        String::from_utf8(body).ok()
    }

    /// A server of one connection that refuses longer bodies, and those that it has taken.
    fn server(most: usize) -> (String, Receiver<String>) {
        answering(move |body| if body.len() > most { "413 Too Long".into() } else { "200 OK".into() })
    }

    /// A server of one connection with that status and those headers for a body, and the bodies.
    fn answering(head: impl Fn(&str) -> String + Send + 'static) -> (String, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let location = format!("http://{}/x", listener.local_addr().unwrap());
        let (bodies, taken) = channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(listener.accept().unwrap().0);
            while let Some(body) = body(&mut reader) {
                let answer = format!("HTTP/1.1 {}\r\nContent-Length: 2\r\n\r\nok", head(&body));
                bodies.send(body).unwrap();
                reader.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        });
        (location, taken)
    }

    #[test]
    fn a_server_is_given_the_time_that_it_asks_for() {
        for (said, wanted) in [
            ("7", Some(7)),
            (" 86400 ", Some(300)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(300)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("soon", None),
        ] {
            let (location, _bodies) = answering(move |_| format!("503 Busy\r\nRetry-After: {said}"));
            let options = PublishOptions { location: location.as_str().into(), ..PublishOptions::default() };
            let mut webhook = destinations::open(&options).unwrap().destination;
            let undelivered = webhook.send(&["1".to_string()]).unwrap_err();
            assert_eq!(undelivered.retry_after, wanted.map(Duration::from_secs), "{said}");
        }
    }

    /// After a break many wait, and are more together than a server takes at once.
    #[test]
    fn only_what_is_too_long_by_itself_is_refused() {
        let (location, taken) = server(13);
        let options = PublishOptions { location: location.as_str().into(), ..PublishOptions::default() };
        let mut webhook = destinations::open(&options).unwrap().destination;
        let messages: Vec<String> = (0..10).map(|number| format!("\"{number}\"")).collect();
        webhook.send(&messages).unwrap();
        let taken: Vec<String> = taken.try_iter().filter(|body| body.len() <= 13).collect();
        let of_bodies = taken.iter().map(|body| body.trim_matches(['[', ']'])).collect::<Vec<_>>();
        assert_eq!(of_bodies.join(","), messages.join(","));
        let long = format!("\"{}\"", "x".repeat(13));
        let messages = [&messages[0], &messages[1], &long, &messages[2]].map(String::clone);
        let undelivered = webhook.send(&messages).unwrap_err();
        assert_eq!((undelivered.delivered, undelivered.rejected), (2, 1), "{}", undelivered.error);
    }
}
