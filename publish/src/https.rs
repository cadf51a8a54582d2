// SPDX-License-Identifier: MPL-2.0
//! TLS of `https://` as all other destinations have it, so that each takes the same certificates. ureq's own takes no
//! verifier.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, TcpConnector,
    Transport, TransportAdapter,
};
use ureq::{Agent, Error};

use super::tls;

/// An agent that connects as ureq's own does, but for TLS.
pub fn agent(config: Config, tls: Arc<ClientConfig>) -> Agent {
    let connector = ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default()).chain(Tls(tls));
    Agent::with_parts(config, connector, DefaultResolver::default())
}

#[derive(Debug)]
struct Tls(Arc<ClientConfig>);

impl<In: Transport> Connector<In> for Tls {
    type Out = Either<In, Encrypted>;

    fn connect(&self, details: &ConnectionDetails, connected: Option<In>) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = connected else { return Ok(None) };
        // A proxy is asked by HTTP.
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let mut session = ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)?;
        let mut socket = TransportAdapter::new(Box::new(transport) as Box<dyn Transport>, details.current_time.clone());
        socket.set_timeout(details.timeout);
        session.complete_io(&mut socket).map_err(tls::in_words)?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(Encrypted { buffers, stream: StreamOwned::new(session, socket) })))
    }
}

struct Encrypted {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encrypted")
    }
}

impl Encrypted {
    /// What the server has said before it closed the connection, such as that it wants a certificate.
    fn last_words(&mut self) -> Option<io::Error> {
        let StreamOwned { conn, sock } = &mut self.stream;
        loop {
            let count = conn.read_tls(sock);
            if let Err(error) = conn.process_new_packets() {
                return Some(io::Error::other(error));
            }
            if !count.is_ok_and(|count| count > 0) {
                return None;
            }
        }
    }
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.sock.set_timeout(timeout);
        let sent = self.stream.write_all(&self.buffers.output()[..amount]);
        Ok(sent.map_err(|error| self.last_words().unwrap_or(error))?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.set_timeout(timeout);
        // What could not be written is told here, too.
        let count = self.stream.read(self.buffers.input_append_buf());
        let count = count.map_err(|error| self.last_words().unwrap_or(error))?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
