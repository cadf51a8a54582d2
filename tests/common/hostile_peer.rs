// SPDX-License-Identifier: MPL-2.0
//! Peers of the network that do all but what they should: brokers, cameras.
#![allow(dead_code)] // each test program uses a part

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// What a peer does next on a connection.
#[derive(Clone, Debug)]
pub enum Act {
    /// Reads what the client has to say.
    Hear,
    Say(Vec<u8>),
    /// Says it again and again.
    Flood(Vec<u8>),
    /// Says it again and again whenever the client has said something.
    Reply(Vec<u8>),
    /// Says it byte by byte, a few each second.
    Drip(Vec<u8>),
    /// Does nothing more, and does not close.
    Hang,
    /// Breaks the connection off.
    Reset,
}

/// A peer that does the same on each connection.
pub struct HostilePeer {
    pub name: &'static str,
    pub location: String,
    connections: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl HostilePeer {
    /// `location` has PORT for the port.
    pub fn new(name: &'static str, location: &str, acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let location = location.replace("PORT", &listener.local_addr().unwrap().port().to_string());
        let (connections, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, end) = (connections.clone(), is_over.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::Relaxed);
                let (acts, end) = (acts.clone(), end.clone());
                thread::spawn(move || acts.iter().try_for_each(|act| act_out(act, &stream, &end)));
            }
        });
        HostilePeer { name, location, connections, is_over }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for HostilePeer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Between two bytes.
const DRIP: Duration = Duration::from_millis(50);

/// Waits for what the client says, at most so long; false if it has gone.
fn hear(mut stream: &TcpStream, wait: Duration) -> bool {
    stream.set_read_timeout(Some(wait)).unwrap();
    match stream.read(&mut [0; 1 << 16]) {
        Ok(count) => count > 0,
        Err(error) => matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    }
}

/// `None` at the end of the connection.
fn act_out(act: &Act, mut stream: &TcpStream, is_over: &AtomicBool) -> Option<()> {
    let goes_on = || !is_over.load(Ordering::Relaxed);
    match act {
        Act::Hear => {
            stream.set_read_timeout(None).ok()?;
            stream.read(&mut [0; 1 << 16]).ok().filter(|&count| count > 0)?;
        }
        Act::Say(bytes) => stream.write_all(bytes).ok()?,
        Act::Flood(bytes) => {
            let bytes = bytes.repeat(1 + (1 << 16) / bytes.len());
            while goes_on() {
                stream.write_all(&bytes).ok()?;
            }
        }
        Act::Reply(bytes) => {
            while goes_on() && hear(stream, DRIP * 4) {
                stream.write_all(bytes).ok()?;
            }
        }
        Act::Drip(bytes) => {
            for byte in bytes.iter().cycle() {
                stream.write_all(&[*byte]).ok()?;
                if !goes_on() || !hear(stream, DRIP) {
                    return None;
                }
            }
        }
        Act::Hang => while goes_on() && hear(stream, DRIP * 4) {},
        Act::Reset => {
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            let size = size_of::<libc::linger>() as libc::socklen_t;
            // SAFETY: the socket is open, and the option's value lives during the call.
            unsafe {
                let value = (&raw const linger).cast();
                libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, size)
            };
            return None;
        }
    }
    Some(())
}
