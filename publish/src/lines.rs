// SPDX-License-Identifier: MPL-2.0
//! Lines to what may not take them at once, such as a socket or a pipe, within a time limit.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use super::destination::Undelivered;

/// What a pipe takes without waiting, once it takes anything.
const PIECE: usize = libc::PIPE_BUF;

/// Writes each message as a line. `half` is how many bytes of the first one were written before: it is gone on with, so
/// that no line is spoilt by a time limit.
pub fn write_lines(
    out: &mut (impl Write + AsFd),
    half: &mut usize,
    messages: &[String],
    timeout: Duration,
) -> Result<(), Undelivered> {
    let deadline = Instant::now() + timeout;
    let lines: Vec<u8> = messages.iter().flat_map(|message| message.bytes().chain([b'\n'])).collect();
    let mut written = *half;
    let mut outcome = Ok(());
    while written < lines.len() && outcome.is_ok() {
        let piece = &lines[written..lines.len().min(written + PIECE)];
        match wait_until_writable(out, deadline).and_then(|()| out.write(piece)) {
            Ok(0) => outcome = Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            // Another writer may have been faster.
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => outcome = Err(error),
        }
    }
    let mut delivered = 0;
    let mut rest = written;
    while delivered < messages.len() && rest > messages[delivered].len() {
        rest -= messages[delivered].len() + 1;
        delivered += 1;
    }
    *half = rest;
    outcome.map_err(|error| Undelivered::after(delivered, error))
}

fn wait_until_writable(out: &impl AsFd, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: out.as_fd().as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        let wait = left.as_millis().clamp(0, i32::MAX as u128) as i32;
        // SAFETY: one structure, which lives during the call, of a descriptor that is open.
        match unsafe { libc::poll(&mut poll, 1, wait) } {
            0 => return Err(io::ErrorKind::TimedOut.into()),
            1.. => return Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_line_that_was_begun_is_gone_on_with() {
        let (mut writer, mut reader) = UnixStream::pair().unwrap();
        writer.set_nonblocking(true).unwrap();
        let messages: Vec<String> = (0..40).map(|number| number.to_string().repeat(20_000)).collect();
        let mut half = 0;
        let mut rest = &messages[..];
        let reading = std::thread::spawn(move || {
            let mut all = String::new();
            reader.read_to_string(&mut all).unwrap();
            all
        });
        let mut failures = 0;
        while !rest.is_empty() {
            match write_lines(&mut writer, &mut half, rest, Duration::from_micros(1)) {
                Ok(()) => rest = &[],
                Err(undelivered) => {
                    assert_eq!(undelivered.error.kind(), io::ErrorKind::TimedOut);
                    (rest, failures) = (&rest[undelivered.delivered..], failures + 1);
                }
            }
        }
        drop(writer);
        assert_eq!(reading.join().unwrap().lines().collect::<Vec<_>>(), messages);
        assert!(half == 0 && failures < 1_000_000);
    }

    #[test]
    fn nobody_is_waited_for_longer() {
        let (mut writer, _reader) = UnixStream::pair().unwrap();
        writer.set_nonblocking(true).unwrap();
        let messages = vec!["x".repeat(1 << 20); 3];
        let mut half = 0;
        let undelivered = write_lines(&mut writer, &mut half, &messages, Duration::from_millis(1)).unwrap_err();
        assert_eq!((undelivered.error.kind(), undelivered.delivered), (io::ErrorKind::TimedOut, 0));
        assert!(half > 0);
    }
}
