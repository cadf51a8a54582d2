// SPDX-License-Identifier: MPL-2.0
//! Connections: each is a task on one thread, and ends when the client is too slow.

use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};

use super::RtspState;
use super::client::RtspClient;
use crate::serve::log::log_error;
use crate::serve::sockets::limit_stall;

/// When no connection can be accepted, for lack of file descriptors most likely.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stopped`, or its sender is dropped.
pub async fn serve(listener: std::net::TcpListener, state: Arc<RtspState>, stopped: oneshot::Receiver<()>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log_error("serve", &format!("RTSP is not served: {error}.")),
    };
    tokio::spawn(accept(listener, state));
    let _ = stopped.await;
}

async fn accept(listener: TcpListener, state: Arc<RtspState>) {
    let mut limits = state.limits;
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let is_crowded = places.available_permits() < limits.connections / 2;
        let or_crowded = |time| if is_crowded { state.limits.crowded } else { time };
        limits.request = or_crowded(state.limits.request);
        limits.stalled = or_crowded(state.limits.stalled);
        limit_stall(&stream, limits.stalled);
        let _ = SockRef::from(&stream).set_send_buffer_size(limits.unsent);
        let client = RtspClient::new(stream, state.clone(), limits);
        tokio::spawn(async move {
            // Clients that go away in the middle are no concern of ours.
            let _ = client.work().await;
            drop(place);
        });
    }
}
