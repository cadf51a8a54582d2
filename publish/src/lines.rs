// SPDX-License-Identifier: MPL-2.0
//! Lines to what may not take them at once, such as a socket or a pipe, within a time limit.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::destination::Undelivered;

/// What a pipe takes without waiting, once it takes anything, and what no other process's bytes get into.
const PIECE: usize = libc::PIPE_BUF;

/// Device and number of what a descriptor is of. It is the same for all destinations on standard output.
type FileId = (u64, u64);

/// What destinations of this process write to now.
static TAKEN: Mutex<BTreeSet<FileId>> = Mutex::new(BTreeSet::new());
static FREED: Condvar = Condvar::new();

/// Until it is dropped, no other destination of this process writes there.
struct Turn(FileId);

impl Turn {
    fn wait(out: &impl AsFd, deadline: Instant) -> io::Result<Self> {
        let id = file_id(out)?;
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        while !taken.insert(id) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            taken = FREED.wait_timeout(taken, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(Turn(id))
    }
}

fn file_id(out: &impl AsFd) -> io::Result<FileId> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a structure that lives during the call, which fills it, of a descriptor that is open.
    match unsafe { libc::fstat(out.as_fd().as_raw_fd(), stat.as_mut_ptr()) } {
        // SAFETY: it was filled.
        0 => Ok(unsafe { stat.assume_init() }).map(|stat| (stat.st_dev, stat.st_ino)),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        FREED.notify_all();
    }
}

/// Writes messages as lines.
#[derive(Default)]
pub struct LineWriter {
    /// Bytes of the next message that are written: it is gone on with, so that no line is spoilt by a time limit.
    half: usize,
    /// As long as a line is half written.
    turn: Option<Turn>,
}

impl LineWriter {
    pub fn write(
        &mut self,
        out: &mut (impl Write + AsFd),
        messages: &[String],
        timeout: Duration,
    ) -> Result<(), Undelivered> {
        let deadline = Instant::now() + timeout;
        let turn = self.turn.take().map_or_else(|| Turn::wait(out, deadline), Ok)?;
        let lines: Vec<u8> = messages.iter().flat_map(|message| message.bytes().chain([b'\n'])).collect();
        let mut written = self.half;
        let mut outcome = Ok(());
        while written < lines.len() && outcome.is_ok() {
            let piece = piece(&lines[written..]);
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
        self.half = rest;
        self.turn = (rest > 0).then_some(turn);
        outcome.map_err(|error| Undelivered::after(delivered, error))
    }
}

/// What is written at once: whole lines, where one fits.
fn piece(lines: &[u8]) -> &[u8] {
    let most = &lines[..lines.len().min(PIECE)];
    most.iter().rposition(|&byte| byte == b'\n').map_or(most, |end| &most[..=end])
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

/// In this thread, what is written to a pipe that nobody reads any more is an error from now on. Programs in C may have left it to the
/// system, which ends them by a signal.
pub fn without_signal() {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call fills the set, which lives during all of them, and the last one changes this thread alone.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut());
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
        let mut lines = LineWriter::default();
        let mut rest = &messages[..];
        let reading = std::thread::spawn(move || {
            let mut all = String::new();
            reader.read_to_string(&mut all).unwrap();
            all
        });
        let mut failures = 0;
        while !rest.is_empty() {
            match lines.write(&mut writer, rest, Duration::from_micros(1)) {
                Ok(()) => rest = &[],
                Err(undelivered) => {
                    assert_eq!(undelivered.error.kind(), io::ErrorKind::TimedOut);
                    (rest, failures) = (&rest[undelivered.delivered..], failures + 1);
                }
            }
        }
        drop(writer);
        assert_eq!(reading.join().unwrap().lines().collect::<Vec<_>>(), messages);
        assert!(lines.half == 0 && failures < 1_000_000);
    }

    #[test]
    fn nobody_is_waited_for_longer() {
        let (mut writer, _reader) = UnixStream::pair().unwrap();
        writer.set_nonblocking(true).unwrap();
        let messages = vec!["x".repeat(1 << 20); 3];
        let mut lines = LineWriter::default();
        let undelivered = lines.write(&mut writer, &messages, Duration::from_millis(1)).unwrap_err();
        assert_eq!((undelivered.error.kind(), undelivered.delivered), (io::ErrorKind::TimedOut, 0));
        assert!(lines.half > 0);
    }

    /// As sources do that write to standard output.
    #[test]
    fn lines_of_several_do_not_mix() {
        let (mut reader, writer) = io::pipe().unwrap();
        let line = |number: usize| number.to_string().repeat(if number.is_multiple_of(3) { 30_000 } else { 700 });
        let writers: Vec<_> = (0..4)
            .map(|number| {
                let mut writer = writer.try_clone().unwrap();
                std::thread::spawn(move || {
                    let messages: Vec<String> = (0..60).map(|_| line(number)).collect();
                    LineWriter::default().write(&mut writer, &messages, Duration::from_secs(60)).unwrap();
                })
            })
            .collect();
        drop(writer);
        let mut all = String::new();
        reader.read_to_string(&mut all).unwrap();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(all.lines().count(), 240);
        for found in all.lines() {
            assert_eq!(found, line(found[..1].parse().unwrap()));
        }
    }

    #[test]
    fn a_line_that_was_begun_is_ended_before_another_begins() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let mut other = writer.try_clone().unwrap();
        let (mut first, mut second) = (LineWriter::default(), LineWriter::default());
        let (long, short) = (["x".repeat(1 << 20)], ["y".to_string()]);
        let short_time = Duration::from_millis(1);
        first.write(&mut writer, &long, short_time).unwrap_err();
        assert!(first.half > 0);
        let reading = std::thread::spawn(move || {
            let mut all = String::new();
            reader.read_to_string(&mut all).unwrap();
            all
        });
        let undelivered = second.write(&mut other, &short, short_time).unwrap_err();
        assert_eq!((undelivered.error.kind(), undelivered.delivered), (io::ErrorKind::TimedOut, 0));
        first.write(&mut writer, &long, Duration::from_secs(60)).unwrap();
        second.write(&mut other, &short, Duration::from_secs(60)).unwrap();
        drop((writer, other));
        assert_eq!(reading.join().unwrap(), format!("{}\ny\n", long[0]));

        // One that is given up makes room.
        let (_reader, mut writer) = io::pipe().unwrap();
        let mut other = writer.try_clone().unwrap();
        first.write(&mut writer, &long, short_time).unwrap_err();
        drop(first);
        let undelivered = second.write(&mut other, &short, short_time).unwrap_err();
        assert_eq!(undelivered.error.kind(), io::ErrorKind::TimedOut, "the pipe is full");
        assert!(second.turn.is_none() && TAKEN.lock().unwrap().len() < 100);
    }
}
