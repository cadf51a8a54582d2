// SPDX-License-Identifier: MPL-2.0
//! Connections of clients that may be slow, or gone.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a client is heard out.
const FAREWELL: Duration = Duration::from_secs(1);

/// The kernel ends a connection whose client has taken nothing for that time, or is gone without a word. This frees
/// what waits to write to it.
pub fn limit_stall(stream: &TcpStream, time: Duration) {
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_user_timeout(Some(time));
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(time));
}

/// Ends a connection after the last answer. What the client still sends would reset it, and that what it has not read yet. So it
/// is heard out; one that goes on is cut off.
pub async fn hear_out(stream: TcpStream) {
    let rest = async {
        SockRef::from(&stream).shutdown(Shutdown::Write)?;
        let mut unheard = [0; 16 << 10];
        loop {
            stream.readable().await?;
            match stream.try_read(&mut unheard) {
                Ok(0) => return io::Result::Ok(()),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    };
    let _ = timeout(FAREWELL, rest).await;
}
