// SPDX-License-Identifier: MPL-2.0
//! The HTTP side of a service: what it does, as JSON, pictures, metrics and a page, and what changes it.
//!
//! * `connections`: one thread, on which each connection is a task with limits on time and size. What looks at files goes
//!   to others.
//! * `access`: who may ask for what. `routes`: which function answers what. `answer`: bodies and errors.
//! * `entries`: sources and models. `whep`: how a browser asks for a video. `recordings`, `pictures`, `metrics`, `health`, `page`:
//!   what their names say.

mod access;
mod answer;
mod connections;
mod entries;
mod health;
mod metrics;
mod page;
mod pictures;
mod recordings;
mod routes;
#[cfg(test)]
mod tests;
mod whep;

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::control::{Control, VideoControl};
use crate::failure::Failure;
use access::Access;

/// Where to listen, and what a request must know to change something.
#[derive(Clone, PartialEq)]
pub struct HttpSettings {
    pub listen: SocketAddr,
    pub token: Option<String>,
}

impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "***");
        f.debug_struct("HttpSettings").field("listen", &self.listen).field("token", &token).finish()
    }
}

/// What one client can take from the others.
#[derive(Clone, Copy, Debug)]
struct ClientLimits {
    /// Connections at a time. More of them wait until one ends.
    connections: usize,
    /// Live views at a time. Fewer than connections, so that they leave room for other requests.
    watchers: usize,
    /// Lists of recordings and snapshots that are made at a time, each of them in much memory.
    lists: usize,
    /// For a request's first line and headers, and for the next request on a connection.
    head: Duration,
    /// For a request's body.
    body: Duration,
    /// Until a source gives its next frame, and until another list is made.
    frame: Duration,
    /// Without a byte taken by the client.
    stalled: Duration,
    /// In place of `head` and `stalled` while more than half of the connections are taken: who only holds them leaves them
    /// to others.
    crowded: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        ClientLimits {
            connections: 256,
            watchers: 64,
            lists: 4,
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            frame: Duration::from_secs(5),
            stalled: Duration::from_secs(30),
            crowded: Duration::from_secs(2),
        }
    }
}

/// What requests are answered with.
struct ServerState {
    service: Arc<dyn Control>,
    /// `None` where browsers have no videos, but pictures.
    videos: Option<Arc<dyn VideoControl>>,
    access: Access,
    limits: ClientLimits,
    watchers: Arc<Semaphore>,
    lists: Arc<Semaphore>,
}

/// Answers requests until it is dropped.
pub struct HttpServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Whether it may be listened there, with that token.
pub fn check(settings: &HttpSettings) -> Result<(), Failure> {
    Access::new(settings).map(drop)
}

/// Listens. Whoever connects waits until it is answered.
pub fn listen(settings: &HttpSettings) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(settings.listen).map_err(|error| refused(settings, error))?;
    listener.set_nonblocking(true).map_err(|error| refused(settings, error))?;
    Ok(listener)
}

fn refused(settings: &HttpSettings, error: std::io::Error) -> Failure {
    let remedy = "Choose another address with listen in [http], or end the program that has it";
    format!("Cannot serve HTTP on {}: {error}. {remedy}.", settings.listen).into()
}

/// Answers in a thread of its own.
pub fn start(
    settings: &HttpSettings,
    listener: TcpListener,
    service: Arc<dyn Control>,
    videos: Option<Arc<dyn VideoControl>>,
) -> Result<HttpServer, Failure> {
    start_within(ClientLimits::default(), settings, listener, service, videos)
}

fn start_within(
    limits: ClientLimits,
    settings: &HttpSettings,
    listener: TcpListener,
    service: Arc<dyn Control>,
    videos: Option<Arc<dyn VideoControl>>,
) -> Result<HttpServer, Failure> {
    let access = Access::new(settings)?;
    let cannot = |error| refused(settings, error);
    let address = listener.local_addr().map_err(cannot)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(cannot)?;

    let [watchers, lists] = [limits.watchers, limits.lists].map(|number| Arc::new(Semaphore::new(number)));
    let context = Arc::new(ServerState { service, videos, access, limits, watchers, lists });
    let (stop, stopped) = oneshot::channel();
    // With the runtime, all connections end. What waits for a disk is left behind.
    let work = move || {
        runtime.block_on(connections::serve(listener, context, stopped));
        runtime.shutdown_background();
    };
    let thread = thread::Builder::new().name("http".into()).spawn(work).map_err(cannot)?;
    Ok(HttpServer { address, stop: Some(stop), thread: Some(thread) })
}

impl HttpServer {
    /// Where it listens, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
