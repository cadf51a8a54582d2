// SPDX-License-Identifier: MPL-2.0
//! The RTSP side of a service: what was found, drawn, as video for players, recorders and other pipelines.
//!
//! Packets come in the connection of the requests alone, which all clients can do: so nothing is sent where nobody has
//! connected from, and the connection's end is the session's.
//!
//! * `connections`: one thread, on which each client is a task with limits on time and size. `client`: what is done for one.
//! * `request`: what a client sends. `access`: who may watch.

mod access;
mod client;
mod connections;
mod request;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::control::OutputControl;
use crate::failure::Failure;
use access::RtspAccess;

/// Where to listen, and who may watch.
#[derive(Clone, PartialEq)]
pub struct RtspSettings {
    pub listen: SocketAddr,
    pub user: String,
    pub password: Option<String>,
}

impl fmt::Debug for RtspSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        f.debug_struct("RtspSettings").field("listen", &self.listen).field("password", &password).finish()
    }
}

/// What one client can take from the others.
#[derive(Clone, Copy, Debug)]
struct RtspLimits {
    /// Connections at a time. More of them wait until one ends.
    connections: usize,
    /// Those that watch. Fewer than connections, so that there is room to refuse others.
    watchers: usize,
    /// For a request, until it watches.
    request: Duration,
    /// For a part of a frame, and without a byte taken by the client.
    stalled: Duration,
    /// In place of both while more than half of the connections are taken: who only holds them leaves them to others.
    crowded: Duration,
    /// Bytes that wait in the system for a client.
    unsent: usize,
}

impl Default for RtspLimits {
    fn default() -> Self {
        RtspLimits {
            connections: 128,
            watchers: 64,
            request: Duration::from_secs(10),
            stalled: Duration::from_secs(10),
            crowded: Duration::from_secs(2),
            unsent: 256 << 10,
        }
    }
}

/// What clients are served from.
struct RtspState {
    service: Arc<dyn OutputControl>,
    access: RtspAccess,
    limits: RtspLimits,
    watchers: Arc<Semaphore>,
}

/// Serves clients until it is dropped.
pub struct RtspServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Whether it may be listened there, with that user and password; else the key that is wrong, and why.
pub fn check(settings: &RtspSettings) -> Result<(), (&'static str, Failure)> {
    access::check_user(&settings.user).map_err(|failure| ("user", failure))?;
    RtspAccess::new(settings).map(drop).map_err(|failure| ("password", failure))
}

/// Listens. Whoever connects waits until it is answered.
pub fn listen(settings: &RtspSettings) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(settings.listen).map_err(|error| refused(settings, error))?;
    listener.set_nonblocking(true).map_err(|error| refused(settings, error))?;
    Ok(listener)
}

fn refused(settings: &RtspSettings, error: std::io::Error) -> Failure {
    let remedy = "Choose another address with listen in [rtsp], or end the program that has it";
    format!("Cannot serve RTSP on {}: {error}. {remedy}.", settings.listen).into()
}

/// Serves in a thread of its own.
pub fn start(
    settings: &RtspSettings,
    listener: TcpListener,
    service: Arc<dyn OutputControl>,
) -> Result<RtspServer, Failure> {
    start_within(RtspLimits::default(), settings, listener, service)
}

fn start_within(
    limits: RtspLimits,
    settings: &RtspSettings,
    listener: TcpListener,
    service: Arc<dyn OutputControl>,
) -> Result<RtspServer, Failure> {
    let access = RtspAccess::new(settings)?;
    let cannot = |error| refused(settings, error);
    let address = listener.local_addr().map_err(cannot)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(cannot)?;
    let watchers = Arc::new(Semaphore::new(limits.watchers));
    let state = Arc::new(RtspState { service, access, limits, watchers });
    let (stop, stopped) = oneshot::channel();
    // With the runtime, all connections end.
    let work = move || runtime.block_on(connections::serve(listener, state, stopped));
    let thread = thread::Builder::new().name("rtsp".into()).spawn(work).map_err(cannot)?;
    Ok(RtspServer { address, stop: Some(stop), thread: Some(thread) })
}

impl RtspServer {
    /// Where it listens, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RtspServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
