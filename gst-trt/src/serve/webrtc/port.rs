// SPDX-License-Identifier: MPL-2.0
//! The port that all viewers share: whose a datagram is, is known by its address, or by the session that it names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::select;
use tokio::net::UdpSocket;
use tokio::sync::oneshot;

use super::viewer::Viewer;

/// Bytes of a datagram. Viewers send shorter ones.
const DATAGRAM: usize = 2048;
/// When the system cannot receive.
const PAUSE: Duration = Duration::from_millis(100);

/// Those who watch, by their sessions.
#[derive(Default)]
pub struct Viewers(Mutex<BTreeMap<String, Arc<Viewer>>>);

/// Takes a viewer away when this is dropped.
pub struct Leaving {
    viewers: Arc<Viewers>,
    session: String,
}

impl Viewers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Viewer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, session: &str, viewer: Arc<Viewer>) {
        self.lock().insert(session.into(), viewer);
    }

    pub fn remove(&self, session: &str) -> Option<Arc<Viewer>> {
        self.lock().remove(session)
    }

    pub fn leave_at_end(self: Arc<Self>, session: &str) -> Leaving {
        Leaving { viewers: self, session: session.into() }
    }

    pub fn end_all(&self) {
        self.lock().values().for_each(|viewer| viewer.end());
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Gives it to the one whose it is. What is nobody's is left.
    fn give(&self, source: SocketAddr, datagram: &[u8]) {
        let viewers: Vec<_> = self.lock().values().cloned().collect();
        let _ = viewers.iter().any(|viewer| viewer.take(source, datagram));
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.viewers.remove(&self.session);
    }
}

/// Receives until `stopped`, or its sender is dropped.
pub async fn serve(socket: Arc<UdpSocket>, viewers: &Viewers, stopped: oneshot::Receiver<()>) {
    select(stopped, pin!(receive(&socket, viewers))).await;
}

async fn receive(socket: &UdpSocket, viewers: &Viewers) {
    let mut bytes = [0; DATAGRAM];
    loop {
        let Ok((length, source)) = socket.recv_from(&mut bytes).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let source = SocketAddr::new(source.ip().to_canonical(), source.port());
        viewers.give(source, &bytes[..length]);
        // So that it is answered before the next one comes.
        tokio::task::yield_now().await;
    }
}
