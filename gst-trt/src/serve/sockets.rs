// SPDX-License-Identifier: MPL-2.0
//! Connections of clients that may be slow, or gone.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// The kernel ends a connection whose client has taken nothing for that time, or is gone without a word. This frees
/// what waits to write to it.
pub fn limit_stall(stream: &TcpStream, time: Duration) {
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_user_timeout(Some(time));
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(time));
}
