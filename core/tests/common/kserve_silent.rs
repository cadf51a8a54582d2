// SPDX-License-Identifier: MPL-2.0
//! A server that says nothing to whoever connects, as behind a firewall that drops packets.
#![allow(dead_code)] // each test program uses a part

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

pub struct SilentServer {
    pub address: SocketAddr,
    listener: TcpListener,
    /// There is room for no more, and nobody takes them.
    waiting: Vec<TcpStream>,
}

impl SilentServer {
    /// At that port, or at any with 0.
    pub fn at(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        // SAFETY: a socket that listens already, which does so again with the shortest queue.
        let done = unsafe { libc::listen(listener.as_raw_fd(), 0) };
        assert_eq!(done, 0);
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
        let waiting = std::iter::from_fn(connect).collect();
        SilentServer { address, listener, waiting }
    }
}
