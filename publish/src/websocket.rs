// SPDX-License-Identifier: MPL-2.0
//! `ws://`: a server that sends each message to all WebSocket clients. A client that does not keep up is disconnected.

use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gsttrt_core::error::Result;
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::http::StatusCode;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

use super::address::Address;
use super::destination::{Destination, Undelivered};
use super::options::PublishOptions;

/// Clients at a time.
const MAX_CLIENTS: usize = 256;
/// Bytes that may wait for a client.
const MAX_WAITING: usize = 4 << 20;
/// The longest time for what a client asks.
const HANDSHAKE: Duration = Duration::from_secs(2);

type Clients = Arc<Mutex<Vec<WebSocket<TcpStream>>>>;

struct WebSocketServer {
    host: String,
    port: u16,
    path: String,
    clients: Clients,
    server: Option<Server>,
}

/// The thread that accepts clients.
struct Server {
    address: std::net::SocketAddr,
    is_over: Arc<AtomicBool>,
}

pub fn open(address: &Address, _options: &PublishOptions) -> Result<Box<dyn Destination>> {
    address.parameters(&[])?;
    Ok(Box::new(WebSocketServer {
        host: address.host.clone(),
        port: address.port.unwrap_or(80),
        path: format!("/{}", address.path),
        clients: Clients::default(),
        server: None,
    }))
}

/// Answers what a client asks; `None` if it asks for something else, or too slowly.
fn handshake(stream: TcpStream, path: &str) -> Option<WebSocket<TcpStream>> {
    stream.set_read_timeout(Some(HANDSHAKE)).ok()?;
    stream.set_write_timeout(Some(HANDSHAKE)).ok()?;
    stream.set_nodelay(true).ok()?;
    #[expect(clippy::result_large_err, reason = "tungstenite's type")]
    let check = |request: &Request, response: Response| {
        if request.uri().path() == path {
            Ok(response)
        } else {
            let mut refusal = ErrorResponse::new(None);
            *refusal.status_mut() = StatusCode::NOT_FOUND;
            Err(refusal)
        }
    };
    let config = WebSocketConfig::default().max_message_size(Some(1 << 16)).max_write_buffer_size(MAX_WAITING);
    let client = tungstenite::accept_hdr_with_config(stream, check, Some(config)).ok()?;
    client.get_ref().set_nonblocking(true).ok()?;
    Some(client)
}

fn serve(listener: &TcpListener, path: &str, clients: &Clients, is_over: &AtomicBool) {
    for stream in listener.incoming() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let Some(client) = stream.ok().and_then(|stream| handshake(stream, path)) else { continue };
        let mut clients = clients.lock().unwrap();
        if clients.len() < MAX_CLIENTS {
            clients.push(client);
        }
    }
}

/// Whether the client is still there. What it sends is read, and pings are answered.
fn is_there(client: &mut WebSocket<TcpStream>) -> bool {
    let is_slow = |error: &tungstenite::Error| matches!(error, tungstenite::Error::Io(error) if error.kind() == io::ErrorKind::WouldBlock);
    loop {
        match client.read() {
            Ok(_) => {}
            Err(error) if is_slow(&error) => break,
            Err(_) => return false,
        }
    }
    client.flush().map_or_else(|error| is_slow(&error), |()| true)
}

impl Destination for WebSocketServer {
    fn connect(&mut self) -> io::Result<()> {
        if self.server.is_some() {
            return Ok(());
        }
        let addresses: Vec<_> = (&*self.host, self.port).to_socket_addrs()?.collect();
        let listener = TcpListener::bind(&addresses[..])?;
        let address = listener.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (clients, path, is_it_over) = (self.clients.clone(), self.path.clone(), is_over.clone());
        let work = move || serve(&listener, &path, &clients, &is_it_over);
        thread::Builder::new().name("trtpublish-ws".into()).spawn(work)?;
        self.server = Some(Server { address, is_over });
        Ok(())
    }

    fn send(&mut self, messages: &[String]) -> std::result::Result<(), Undelivered> {
        let mut clients = self.clients.lock().unwrap();
        for message in messages {
            // What does not fit into the socket waits in the client's buffer; only a full one is an error of its own.
            let keeps_up = |client: &mut WebSocket<TcpStream>| match client.write(Message::text(message.as_str())) {
                Ok(()) => true,
                Err(tungstenite::Error::Io(error)) => error.kind() == io::ErrorKind::WouldBlock,
                Err(_) => false,
            };
            clients.retain_mut(keeps_up);
        }
        clients.retain_mut(is_there);
        Ok(())
    }

    fn tend_interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    fn tend(&mut self) -> io::Result<()> {
        self.clients.lock().unwrap().retain_mut(is_there);
        Ok(())
    }

    fn close(&mut self) {
        for client in self.clients.lock().unwrap().iter_mut() {
            let _ = client.close(None);
            let _ = client.flush();
        }
    }
}

impl Drop for WebSocketServer {
    fn drop(&mut self) {
        if let Some(Server { mut address, is_over }) = self.server.take() {
            is_over.store(true, Ordering::Relaxed);
            // The thread waits for a client: this is the last one.
            if address.ip().is_unspecified() {
                let local: std::net::IpAddr = if address.is_ipv4() {
                    std::net::Ipv4Addr::LOCALHOST.into()
                } else {
                    std::net::Ipv6Addr::LOCALHOST.into()
                };
                address.set_ip(local);
            }
            let _ = TcpStream::connect_timeout(&address, HANDSHAKE);
        }
    }
}
