// SPDX-License-Identifier: MPL-2.0
//! Ports for servers that are started later.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A port at which nothing listens, below those that Linux gives to clients and to servers of any port: so nobody takes it before
/// its server is there, or while it is away.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let of_this_process = std::process::id().wrapping_mul(16);
    let next = || {
        let number = of_this_process.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        10_000 + (number % 22_000) as u16
    };
    std::iter::repeat_with(next).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}
