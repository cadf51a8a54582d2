// SPDX-License-Identifier: MPL-2.0
//! Why a camera cannot be reached. GStreamer's elements say that it cannot, whatever the cause is; so it is looked for where
//! they have failed.

use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::source::{RemoteHost, VideoAddress};
use crate::threads::Threads;

/// How long a name and a host may take to answer, until nothing more is said.
const TIMEOUT: Duration = Duration::from_secs(3);
/// What GStreamer says where it could not connect: RTSP, then HTTP.
const UNREACHED: [&str; 3] = ["Could not open resource", "Internal data stream error", "Could not connect"];

/// The sentence about a failure, with its cause or a remedy where these are known.
pub fn explained(sentence: String, address: &VideoAddress, threads: &Threads, subject: &str) -> String {
    if sentence.contains("Unauthorized") {
        return format!("{sentence} Check user and password in the address.");
    }
    if !UNREACHED.iter().any(|text| sentence.contains(text)) {
        return sentence;
    }
    let Some(host) = address.host() else { return sentence };
    let (sender, found) = channel();
    // The system's search for a name cannot be stopped.
    let search = move || {
        let _ = sender.send(search(&host));
    };
    if threads.spawn("src-cause".into(), subject, search).is_err() {
        return sentence;
    }
    match found.recv_timeout(TIMEOUT) {
        Ok(Some(cause)) => format!("{} ({cause}).", sentence.trim_end_matches('.')),
        _ => sentence,
    }
}

/// What is wrong with the way to a host; `None` where nothing is.
fn search(RemoteHost { name, port }: &RemoteHost) -> Option<String> {
    let Ok(mut found) = (name.as_str(), *port).to_socket_addrs() else {
        return Some(format!("there is no host {name}: check the name, and the DNS server"));
    };
    let error = TcpStream::connect_timeout(&found.next()?, TIMEOUT / 2).err()?;
    Some(match error.kind() {
        ErrorKind::ConnectionRefused => {
            format!("connection refused: nothing listens at port {port} of {name}")
        }
        ErrorKind::TimedOut => format!("{name} does not answer at port {port}"),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => format!("no route to {name}"),
        _ => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_cause_is_said_without_a_password() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let threads = Threads::default();
        let said = |sentence: &str, uri: String| {
            explained(sentence.into(), &VideoAddress::Uri(uri), &threads, "the source gate")
        };
        const RTSP: &str = "Cannot read rtsp://camera: Could not open resource for reading and writing.";
        let refused = said(RTSP, format!("rtsp://me:hush@127.0.0.1:{port}/x"));
        assert!(
            refused.ends_with(&format!("writing (connection refused: nothing listens at port {port} of 127.0.0.1).")),
            "{refused}"
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = said(RTSP, format!("rtsp://{}/x", listener.local_addr().unwrap()));
        assert_eq!(there, RTSP);
        assert!(said("Unauthorized.", "rtsp://h/".into()).ends_with("Check user and password in the address."));
        assert_eq!(said("The pipeline does not start.", "rtsp://h/".into()), "The pipeline does not start.");
        assert!(threads.wait(Duration::from_secs(60)).is_empty());
    }
}
