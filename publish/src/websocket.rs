// SPDX-License-Identifier: MPL-2.0
//! `ws://`: a server that sends each message to all WebSocket clients. A client that does not keep up is disconnected.
//!
//! Any page that a user's browser shows may open a WebSocket to this machine, but browsers say in `Origin` which one it
//! is. So there are two kinds of clients: those with the token, and, where there is no token, programs and pages of this
//! machine. Beyond localhost there must be a token.
//!
//! All is done by the thread that sends: nothing waits for a client.

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use gsttrt_core::error::{Error, ErrorKind, Result};
use subtle::ConstantTimeEq;
use tungstenite::handshake::server::{Callback, ErrorResponse, Request, Response, ServerHandshake};
use tungstenite::handshake::{HandshakeError, MidHandshake};
use tungstenite::http::{StatusCode, Uri, header};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

use super::address::{Address, Secret};
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;

/// Clients at a time, also those that are not let in yet.
const MAX_CLIENTS: usize = 256;
/// Bytes that may wait for a client.
const MAX_WAITING: usize = 4 << 20;
/// Bytes of what a client sends at once. All of it is ignored.
const MAX_RECEIVED: usize = 4 << 10;
/// Messages of a client that are read at once; the rest waits.
const RECEIVED: usize = 16;
/// The longest time for what a client asks.
const HANDSHAKE: Duration = Duration::from_secs(2);

struct WebSocketServer {
    host: String,
    port: u16,
    gate: Gate,
    listener: Option<TcpListener>,
    arriving: Vec<(Instant, MidHandshake<ServerHandshake<TcpStream, Gate>>)>,
    clients: Vec<WebSocket<TcpStream>>,
}

/// Who is let in.
#[derive(Clone)]
struct Gate {
    path: String,
    token: Option<Secret>,
}

pub fn open(address: &Address, _options: &PublishOptions) -> Result<Box<dyn Destination>> {
    let parameters = address.parameters(&["token"])?;
    let token = parameters.text("token").map(Secret::new).or_else(|| address.password.clone());
    let token = token.filter(|token| !token.reveal().is_empty());
    if token.is_none() && !is_localhost(&address.host) {
        return Err(Error::new(ErrorKind::Settings, format!("{} has no token", address.shown()))
            .cause("without one everyone in the network could read the results")
            .remedy("Set password-file to a file with a token, or use ws://127.0.0.1"));
    }
    Ok(Box::new(WebSocketServer {
        host: address.host.clone(),
        port: address.port.unwrap_or(80),
        gate: Gate { path: format!("/{}", address.path), token },
        listener: None,
        arriving: Vec::new(),
        clients: Vec::new(),
    }))
}

fn is_localhost(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

impl Gate {
    fn refusal(&self, request: &Request) -> Option<StatusCode> {
        let headers = request.headers();
        if request.uri().path() != self.path {
            return Some(StatusCode::NOT_FOUND);
        }
        if let Some(token) = &self.token {
            let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
            let header = header.and_then(|value| value.strip_prefix("Bearer "));
            // Pages cannot send headers.
            let query = request.uri().query().unwrap_or_default();
            let given = header.or_else(|| query.split('&').find_map(|pair| pair.strip_prefix("token=")));
            let is_right = given.is_some_and(|given| given.as_bytes().ct_eq(token.reveal().as_bytes()).into());
            return (!is_right).then_some(StatusCode::UNAUTHORIZED);
        }
        let origin = headers.get(header::ORIGIN)?;
        let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
        let is_local = origin.and_then(|origin| origin.host().map(is_localhost)).unwrap_or(false);
        (!is_local).then_some(StatusCode::FORBIDDEN)
    }
}

impl Callback for Gate {
    fn on_request(self, request: &Request, response: Response) -> std::result::Result<Response, ErrorResponse> {
        match self.refusal(request) {
            None => Ok(response),
            Some(status) => {
                let mut refusal = ErrorResponse::new(None);
                *refusal.status_mut() = status;
                Err(refusal)
            }
        }
    }
}

/// Whether there is nothing to read or no room to write at the moment.
fn is_slow(error: &tungstenite::Error) -> bool {
    let is_slow = |kind| matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
    matches!(error, tungstenite::Error::Io(error) if is_slow(error.kind()))
}

/// Whether the client is still there. What it sends is read, and pings are answered.
fn is_there(client: &mut WebSocket<TcpStream>) -> bool {
    for _ in 0..RECEIVED {
        match client.read() {
            Ok(_) => {}
            Err(error) if is_slow(&error) => break,
            Err(_) => return false,
        }
    }
    client.flush().map_or_else(|error| is_slow(&error), |()| true)
}

impl WebSocketServer {
    /// Takes the clients that have come, and goes on with those that are asking.
    fn welcome(&mut self) {
        let Some(listener) = &self.listener else { return };
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_RECEIVED))
            .max_frame_size(Some(MAX_RECEIVED))
            .max_write_buffer_size(MAX_WAITING);
        let mut steps = Vec::new();
        while self.arriving.len() + self.clients.len() + steps.len() < MAX_CLIENTS {
            let Ok((stream, _)) = listener.accept() else { break };
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_ok() {
                let step = tungstenite::accept_hdr_with_config(stream, self.gate.clone(), Some(config));
                steps.push((Instant::now() + HANDSHAKE, step));
            }
        }
        let now = Instant::now();
        let arriving = self.arriving.drain(..).filter(|(until, _)| now < *until);
        steps.extend(arriving.map(|(until, asking)| (until, asking.handshake())));
        for (until, step) in steps {
            match step {
                Ok(client) => self.clients.push(client),
                Err(HandshakeError::Interrupted(asking)) => self.arriving.push((until, asking)),
                Err(HandshakeError::Failure(_)) => {}
            }
        }
    }
}

impl Destination for WebSocketServer {
    fn connect(&mut self) -> io::Result<()> {
        if self.listener.is_none() {
            let addresses: Vec<_> = (&*self.host, self.port).to_socket_addrs()?.collect();
            let listener = TcpListener::bind(&addresses[..])?;
            listener.set_nonblocking(true)?;
            self.listener = Some(listener);
        }
        Ok(())
    }

    fn is_server(&self) -> bool {
        true
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        self.welcome();
        for message in messages {
            // What does not fit into the socket waits in the client's buffer; only a full one is an error of its own.
            let keeps_up = |client: &mut WebSocket<TcpStream>| {
                client.write(Message::text(message.as_str())).map_or_else(|error| is_slow(&error), |()| true)
            };
            self.clients.retain_mut(keeps_up);
        }
        self.clients.retain_mut(is_there);
        Ok(())
    }

    fn tend_interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    fn tend(&mut self) -> io::Result<()> {
        self.welcome();
        self.clients.retain_mut(is_there);
        Ok(())
    }

    fn close(&mut self) {
        for client in &mut self.clients {
            let _ = client.close(None);
            let _ = client.flush();
        }
        // Who begins again listens there, before all else of this has ended.
        self.listener = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::tests::wait::{LIMIT, wait_until};

    fn server(location: &str) -> (Box<dyn Destination>, u16) {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let location = location.replace("PORT", &port.to_string());
        let options = PublishOptions { location: location.into(), ..PublishOptions::default() };
        let mut server = super::super::destinations::open(&options).unwrap().destination;
        server.connect().unwrap();
        (server, port)
    }

    /// The first line of the answer to a client that sends these headers.
    fn answer(server: &mut dyn Destination, port: u16, target: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut said = Vec::new();
        while !said.contains(&b'\n') {
            server.tend().unwrap();
            let mut bytes = [0; 512];
            match stream.read(&mut bytes) {
                Ok(count) => said.extend_from_slice(&bytes[..count]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        String::from_utf8(said).unwrap().lines().next().unwrap()[9..12].to_string()
    }

    #[test]
    fn pages_of_other_sites_are_not_let_in() {
        let (mut server, port) = server("ws://127.0.0.1:PORT/live");
        for (headers, status) in [
            ("", "101"),
            ("Origin: http://localhost:3000\r\n", "101"),
            ("Origin: http://[::1]\r\n", "101"),
            ("Origin: https://evil.example\r\n", "403"),
            ("Origin: http://127.0.0.1.evil.example\r\n", "403"),
            ("Origin: null\r\n", "403"),
        ] {
            assert_eq!(answer(&mut *server, port, "/live", headers), status, "{headers}");
        }
        assert_eq!(answer(&mut *server, port, "/other", ""), "404");
    }

    #[test]
    fn a_token_is_asked_for() {
        let (mut server, port) = server("ws://0.0.0.0:PORT/live?token=abc");
        for (target, headers, status) in [
            ("/live", "", "401"),
            ("/live?token=ab", "", "401"),
            ("/live?token=abc", "Origin: https://dashboard.example\r\n", "101"),
            ("/live", "Authorization: Bearer abc\r\n", "101"),
            ("/live?token=abc", "Authorization: Bearer x\r\n", "401"),
        ] {
            assert_eq!(answer(&mut *server, port, target, headers), status, "{target} {headers}");
        }
        let options = PublishOptions { location: "ws://0.0.0.0:8080/live".into(), ..PublishOptions::default() };
        let error = super::super::destinations::open(&options).map(|_| ()).unwrap_err().message();
        assert!(error.contains("has no token") && error.contains("password-file"), "{error}");
    }

    /// As a pipeline does that stops and starts: it does not wait until the thread of before has ended.
    #[test]
    fn the_port_is_free_once_it_is_closed() {
        let (mut server, port) = server("ws://127.0.0.1:PORT/live");
        server.close();
        TcpListener::bind(("127.0.0.1", port)).unwrap();
    }

    /// It would keep a place from others.
    #[test]
    fn a_client_that_never_asks_is_disconnected() {
        let (mut server, port) = server("ws://127.0.0.1:PORT/");
        let mut silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
        silent.set_nonblocking(true).unwrap();
        wait_until("the end of the connection", LIMIT, || {
            server.tend().unwrap();
            matches!(silent.read(&mut [0; 9]), Ok(0))
        });
    }

    #[test]
    fn nobody_waits_for_a_client_that_is_slow_or_sends_without_end() {
        let (mut server, port) = server("ws://127.0.0.1:PORT/");
        let _silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut flooding, _) = {
            let client = std::thread::spawn(move || tungstenite::connect(format!("ws://127.0.0.1:{port}/")).unwrap());
            while !client.is_finished() {
                server.tend().unwrap();
            }
            client.join().unwrap()
        };
        server.send(&["1".into(), "2".into()]).unwrap();
        for text in ["1", "2"] {
            assert_eq!(flooding.read().unwrap().into_text().unwrap(), text);
        }
        let flood = std::thread::spawn(move || while flooding.send(Message::text("x".repeat(1000))).is_ok() {});
        for _ in 0..100 {
            server.send(&["{}".into()]).unwrap();
        }
        assert_eq!(answer(&mut *server, port, "/", ""), "101");
        drop(server);
        flood.join().unwrap();
    }
}
