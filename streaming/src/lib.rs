// SPDX-License-Identifier: MPL-2.0
//! Tensors that arrive in chunks, assembled directly in host, pinned or GPU memory.
//!
//! A [`Receiver`] stands between the sender of the chunks, a network or another process, and the user of the tensors. The
//! sender announces a tensor under a number and sends its bytes in chunks, in any order. The user takes each tensor
//! once it is whole, in the order of announcement.
//!
//! The memory is bounded by credits. A credit is a byte of room. The sender may announce what it has credits for, so
//! what is on its way, arriving, waiting or in use never exceeds the room of the receiver. With room for two tensors,
//! one arrives while the other is used. A tensor that is dropped gives its credits back.
//!
//! There is no thread here and no queue of chunks: a chunk is copied once, by the thread that brings it. Sizes and
//! offsets are in bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;

#[cfg(test)]
use gsttrt_core::cuda;
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::memory::{Pool, PooledBuffer};
use gsttrt_core::tensor::{Tensor, TensorDesc};

mod pieces;
#[cfg(test)]
#[path = "../../core/src/test.rs"]
mod test;

use pieces::Pieces;

/// Minimum credits of a tensor, for the notes on it: so many tiny tensors cannot fill the memory either.
pub const LEAST_CREDITS: usize = 256;

/// The credits that a tensor takes: its bytes, and [`LEAST_CREDITS`] where it has fewer.
///
/// # Errors
/// `WrongType`, where a dimension is open or the size does not fit.
pub fn credits(desc: &TensorDesc) -> Result<usize> {
    let unknown = || {
        wrong(format!("The size of a tensor {desc} is not known")).remedy("Announce it with the dimensions that it has")
    };
    desc.bytes().map(|bytes| bytes.max(LEAST_CREDITS)).ok_or_else(unknown)
}

/// How much of a tensor is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub sequence: u64,
    /// Bytes that have arrived.
    pub received: usize,
    /// All that it has.
    pub bytes: usize,
}

/// Assembles tensors from chunks. Sender and user may each be several threads.
///
/// A wrong chunk is an error of the call that brings it, and its tensor is dropped: half of it may be wrong too. Other
/// tensors go on.
///
/// ```
/// use gsttrt_core::memory::Pool;
/// use gsttrt_streaming::{Receiver, credits};
/// use gsttrt_core::tensor::{DType, TensorDesc};
///
/// # fn main() -> gsttrt_core::error::Result<()> {
/// let desc = TensorDesc::new("images", DType::F32, &[1, 3, 8, 8]);
/// let receiver = Receiver::new(Pool::default(), 2 * credits(&desc)?);
///
/// // The sender's side.
/// assert_eq!(receiver.grant()?, Some(1536));
/// receiver.announce(0, desc)?;
/// receiver.chunk(0, 700, &[3; 68])?;
/// assert_eq!(receiver.chunk(0, 0, &[2; 500])?.received, 568);
/// receiver.chunk(0, 500, &[2; 200])?;
/// let error = receiver.chunk(0, 500, &[2; 200]).unwrap_err();
/// assert!(error.message().contains("it is complete"));
///
/// // The user's side.
/// let tensor = receiver.take()?.expect("the sender has not closed");
/// assert_eq!((tensor.sequence(), tensor.bytes().unwrap()[699..701].to_vec()), (0, vec![2, 3]));
/// drop(tensor);
/// assert_eq!(receiver.grant()?, Some(768));
/// # Ok(())
/// # }
/// ```
pub struct Receiver {
    pool: Pool,
    room: usize,
    credits: Arc<Credits>,
    /// Lock order: this, then a tensor's memory, then credits. Chunks are copied without this.
    line: Mutex<Pending>,
    /// A tensor is complete or dropped, or this is the end.
    arrived: Condvar,
    #[cfg(test)]
    takers: crate::test::Waiters,
}

/// What was announced and has not been taken.
#[derive(Default)]
struct Pending {
    tensors: BTreeMap<u64, Entry>,
    /// The number announced last.
    last: Option<u64>,
    end: ChannelState,
}

enum Entry {
    Arriving(Arriving),
    Complete(Received),
}

struct Arriving {
    desc: TensorDesc,
    /// What has arrived, or is just being copied.
    pieces: Pieces,
    progress: Progress,
    memory: Arc<Memory>,
}

/// Where a tensor goes to, until it is complete. Threads that still copy keep it, and its credits, when the tensor is
/// dropped.
type Memory = Mutex<Option<(PooledBuffer, Room)>>;

/// Whether anything is still to come.
#[derive(Clone, Default)]
enum ChannelState {
    #[default]
    Open,
    Closed,
    Cancelled(Error),
}

/// A tensor that is whole. Its memory returns to the pool, and its credits to the sender, when this is dropped: not before
/// queued work of a GPU that reads it is done. A row or a block of it that is kept longer keeps the memory, without credits.
pub struct Received {
    // Drop order: the memory, then the room for it.
    tensor: Tensor,
    _room: Room,
    sequence: u64,
}

/// What holds the credits: the sender, tensors, or the receiver.
struct Credits {
    counts: Mutex<CreditCounts>,
    /// There are credits to grant, or this is the end.
    freed: Condvar,
    #[cfg(test)]
    askers: crate::test::Waiters,
}

struct CreditCounts {
    /// Not yet granted to the sender.
    free: usize,
    /// The sender may announce tensors for these.
    granted: usize,
    end: ChannelState,
}

/// Credits that a tensor has taken.
struct Room {
    bytes: usize,
    credits: Arc<Credits>,
}

impl Receiver {
    /// Receives into buffers of `pool`, in any kind of memory, with room for tensors of so many bytes in all. Two of
    /// the largest are double buffering. The pool rounds sizes up, by an eighth at most.
    ///
    /// Chunks for `Pool::new(MemoryKind::Device, …)` are copied over the bus as they come, and the tensor is a
    /// [`device`](Tensor::device) one; in all other memory the host sees its [`bytes`](Tensor::bytes).
    pub fn new(pool: Pool, room: usize) -> Self {
        let counts = Mutex::new(CreditCounts { free: room, granted: 0, end: ChannelState::Open });
        let credits = Arc::new(Credits {
            counts,
            freed: Condvar::new(),
            #[cfg(test)]
            askers: crate::test::Waiters::default(),
        });
        let (line, arrived) = Default::default();
        Receiver {
            pool,
            room,
            credits,
            line,
            arrived,
            #[cfg(test)]
            takers: crate::test::Waiters::default(),
        }
    }

    // ---------------------------------------------------------------------------------------- the sender's side

    /// Credits that the sender does not have yet: first all the room, then what tensors give back. Waits for some. `None`
    /// once the sender has closed, for it needs no more.
    ///
    /// To be forwarded to the sender, which adds them to those it has, and takes [`credits`] off for each tensor it
    /// announces.
    ///
    /// # Errors
    /// `Run`, once this is cancelled.
    pub fn grant(&self) -> Result<Option<usize>> {
        let mut counts = self.credits.counts.lock().unwrap();
        loop {
            if let Poll::Ready(granted) = counts.grant()? {
                return Ok(granted);
            }
            #[cfg(test)]
            let _waiting = self.credits.askers.enter();
            counts = self.credits.freed.wait(counts).unwrap();
        }
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// As [`Receiver::grant`].
    pub fn try_grant(&self) -> Result<Poll<Option<usize>>> {
        self.credits.counts.lock().unwrap().grant()
    }

    /// Takes memory for a tensor, whose chunks may come then. Numbers increase, and may leave some out.
    ///
    /// # Errors
    /// `WrongType`, where its size is not known, where it does not fit the room or takes more credits than the sender
    /// has, where the number is not higher than the last one, or after the sender has closed; `Run`, where the pool has
    /// no memory, or once this is cancelled. Credits that it has taken by then are given back.
    pub fn announce(&self, sequence: u64, desc: TensorDesc) -> Result<()> {
        let what = format!("Cannot receive tensor {sequence}, {desc}");
        self.admit(sequence, desc).map_err(|error| error.about(&what))
    }

    /// Writes bytes of a tensor, from byte `at` on, and returns when they are there. Chunks of different tensors are
    /// copied at the same time, those of one tensor one after the other.
    ///
    /// # Errors
    /// `WrongType`, where the chunk is empty, ends beyond the tensor, or has bytes that are there already, the same
    /// ones too; where what has arrived is in too many pieces to be noted, about one per 256 bytes; where the tensor is
    /// not announced, or complete or dropped by now. `Run`, where the GPU fails, or once this is cancelled. The tensor
    /// is dropped, if it is still arriving.
    pub fn chunk(&self, sequence: u64, at: usize, bytes: &[u8]) -> Result<Progress> {
        let late = || {
            wrong(format!("Cannot receive a chunk of tensor {sequence}"))
                .cause("it is complete, or was dropped, or left out")
                .remedy("Send every byte once, and a tensor again under a new number")
        };
        let claim = |arriving: &mut Arriving| arriving.pieces.add(at, bytes.len()).map(|()| arriving.memory.clone());
        let memory = self.with(sequence, claim)?.ok_or_else(late)?;
        let written = match &mut *memory.lock().unwrap() {
            Some((lease, _)) => lease.write(at, bytes),
            None => Ok(()), // never, for these bytes are missing
        };
        let count = |arriving: &mut Arriving| {
            written?;
            arriving.progress.received += bytes.len();
            Ok(arriving.progress)
        };
        self.with(sequence, count)?.ok_or_else(late)
    }

    /// The sender sends no more of this tensor: after its last chunk, or because it cannot go on. Without that,
    /// `take` waits for a chunk that was lost. Nothing happens where it is complete, or was dropped for an error.
    ///
    /// # Errors
    /// `WrongType`, where bytes are missing, and the tensor is dropped; where it is not announced. `Run`, once this is
    /// cancelled.
    pub fn finish(&self, sequence: u64) -> Result<()> {
        self.with(sequence, |arriving| Err(arriving.short())).map(|_: Option<()>| ())
    }

    /// The sender announces no more tensors and sends no more of those announced. `take` returns
    /// those that are complete, and then `None`.
    ///
    /// # Errors
    /// `WrongType`, where bytes are missing, for the first such tensor, and all such are dropped. `Run`, once this is
    /// cancelled.
    pub fn close(&self) -> Result<()> {
        let mut line = self.line.lock().unwrap();
        line.end.check()?;
        line.end = ChannelState::Closed;
        let arriving = |_: &u64, entry: &mut Entry| matches!(entry, Entry::Arriving(_));
        let short: Vec<Entry> = line.tensors.extract_if(.., arriving).map(|(_, entry)| entry).collect();
        self.credits.end(ChannelState::Closed);
        drop(line);
        self.arrived.notify_all();
        short.iter().find_map(Entry::arriving).map_or(Ok(()), |arriving| Err(arriving.dropped(arriving.short())))
    }

    // ---------------------------------------------------------------------------------------- the user's side

    /// The next tensor, in the order of announcement. Waits until it is complete; those that are dropped for an error are
    /// passed over. `None` once the sender has closed and all are taken.
    ///
    /// # Errors
    /// `Run`, once this is cancelled.
    pub fn take(&self) -> Result<Option<Received>> {
        let mut line = self.line.lock().unwrap();
        loop {
            if let Poll::Ready(next) = line.next()? {
                return Ok(next);
            }
            #[cfg(test)]
            let _waiting = self.takers.enter();
            line = self.arrived.wait(line).unwrap();
        }
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// As [`Receiver::take`].
    pub fn try_take(&self) -> Result<Poll<Option<Received>>> {
        self.line.lock().unwrap().next()
    }

    /// The tensors that are arriving, in the order of announcement.
    pub fn progress(&self) -> Vec<Progress> {
        let line = self.line.lock().unwrap();
        line.tensors.values().filter_map(Entry::arriving).map(|arriving| arriving.progress).collect()
    }

    // ---------------------------------------------------------------------------------------- both

    /// Ends all waits, on both sides, and all later calls with an error that has the reason. What was not taken is
    /// dropped; what was stays with its user.
    pub fn cancel(&self, why: impl fmt::Display) {
        let mut line = self.line.lock().unwrap();
        if line.end.check().is_err() {
            return; // the first reason is kept
        }
        line.end = ChannelState::Cancelled(Error::new(ErrorKind::Run, "Receiving tensors was cancelled").cause(why));
        self.credits.end(line.end.clone());
        let dropped = std::mem::take(&mut line.tensors);
        drop(line);
        self.arrived.notify_all();
        drop(dropped); // no longer under the lock, for it may take a while
    }

    fn admit(&self, sequence: u64, desc: TensorDesc) -> Result<()> {
        let cost = credits(&desc)?;
        if cost > self.room {
            return Err(wrong(format!("it takes {cost} bytes, and there is room for {}", self.room))
                .remedy("Give the receiver room for two of the largest tensors"));
        }
        let room = self.credits.spend(cost)?;
        let bytes = desc.bytes().expect("its cost is known");
        let lease = self.pool.take(bytes)?;

        let mut line = self.line.lock().unwrap();
        line.end.check()?;
        if matches!(line.end, ChannelState::Closed) {
            return Err(wrong("the sender has closed").remedy("Announce tensors before closing"));
        }
        if let Some(last) = line.last.filter(|&last| sequence <= last) {
            return Err(wrong(format!("the last one was {last}")).remedy("Count upwards"));
        }
        line.last = Some(sequence);
        let (memory, progress) = (Arc::new(Mutex::new(Some((lease, room)))), Progress { sequence, received: 0, bytes });
        let arriving = Arriving { desc, pieces: Pieces::new(bytes), progress, memory };
        line.tensors.insert(sequence, Entry::Arriving(arriving));
        if line.complete(sequence) {
            self.arrived.notify_all(); // it has no bytes
        }
        Ok(())
    }

    /// Does something with a tensor that is arriving; `None` where it no longer is. One that is whole then is complete, and
    /// one that this fails on is dropped.
    fn with<T>(&self, sequence: u64, act: impl FnOnce(&mut Arriving) -> Result<T>) -> Result<Option<T>> {
        let mut line = self.line.lock().unwrap();
        let Some(arriving) = line.arriving(sequence)? else { return Ok(None) };
        let outcome = act(arriving).map_err(|error| arriving.dropped(error));
        let (moved, dropped) = match outcome {
            Ok(_) => (line.complete(sequence), None),
            Err(_) => (true, line.tensors.remove(&sequence)),
        };
        drop(line);
        if moved {
            self.arrived.notify_all(); // the next one may be complete already
        }
        drop(dropped);
        outcome.map(Some)
    }
}

impl Pending {
    /// `None` where it no longer is.
    fn arriving(&mut self, sequence: u64) -> Result<Option<&mut Arriving>> {
        self.end.check()?;
        if self.last.is_none_or(|last| sequence > last) {
            let last = self.last.map_or("nothing was so far".into(), |last| format!("the last one was {last}"));
            return Err(wrong(format!("Tensor {sequence} is not announced")).cause(last).remedy("Announce it first"));
        }
        match self.tensors.get_mut(&sequence) {
            Some(Entry::Arriving(arriving)) => Ok(Some(arriving)),
            Some(Entry::Complete(_)) | None => Ok(None),
        }
    }

    /// Makes a tensor one to be taken, if all of it is there.
    fn complete(&mut self, sequence: u64) -> bool {
        let Some(entry) = self.tensors.get_mut(&sequence) else { return false };
        let Some(arriving) = entry.arriving().filter(|arriving| arriving.is_whole()) else { return false };
        let (lease, room) = arriving.memory.lock().unwrap().take().expect("it is not complete before");
        let tensor = Tensor::in_buffer(arriving.desc.clone(), lease);
        *entry = Entry::Complete(Received { tensor, _room: room, sequence });
        true
    }

    fn next(&mut self) -> Result<Poll<Option<Received>>> {
        self.end.check()?;
        match self.tensors.pop_first() {
            Some((_, Entry::Complete(received))) => Ok(Poll::Ready(Some(received))),
            Some((sequence, arriving)) => {
                self.tensors.insert(sequence, arriving);
                Ok(Poll::Pending)
            }
            None if matches!(self.end, ChannelState::Closed) => Ok(Poll::Ready(None)),
            None => Ok(Poll::Pending),
        }
    }
}

impl Entry {
    fn arriving(&self) -> Option<&Arriving> {
        match self {
            Entry::Arriving(arriving) => Some(arriving),
            Entry::Complete(_) => None,
        }
    }
}

impl Arriving {
    fn is_whole(&self) -> bool {
        self.progress.received == self.progress.bytes
    }

    fn short(&self) -> Error {
        let Progress { received, bytes, .. } = self.progress;
        wrong(format!("{received} of its {bytes} bytes have arrived"))
            .remedy("Finish a tensor after its last chunk, and send it again under a new number")
    }

    fn dropped(&self, error: Error) -> Error {
        error.about(&format!("Tensor {}, {}, is dropped", self.progress.sequence, self.desc))
    }
}

impl ChannelState {
    fn check(&self) -> Result<()> {
        match self {
            ChannelState::Cancelled(error) => Err(error.clone()),
            ChannelState::Open | ChannelState::Closed => Ok(()),
        }
    }
}

impl Credits {
    /// The sender's credits become a tensor's.
    fn spend(self: &Arc<Self>, bytes: usize) -> Result<Room> {
        let mut counts = self.counts.lock().unwrap();
        counts.end.check()?;
        counts.granted = counts.granted.checked_sub(bytes).ok_or_else(|| {
            wrong(format!("it takes {bytes} credits, and the sender has {}", counts.granted))
                .remedy("Wait for grants before announcing")
        })?;
        Ok(Room { bytes, credits: self.clone() })
    }

    fn end(&self, end: ChannelState) {
        self.counts.lock().unwrap().end = end;
        self.freed.notify_all();
    }
}

impl CreditCounts {
    fn grant(&mut self) -> Result<Poll<Option<usize>>> {
        self.end.check()?;
        match (&self.end, self.free) {
            (ChannelState::Open, 0) => Ok(Poll::Pending),
            (ChannelState::Open, free) => {
                (self.free, self.granted) = (0, self.granted + free);
                Ok(Poll::Ready(Some(free)))
            }
            _ => Ok(Poll::Ready(None)),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.credits.counts.lock().unwrap().free += self.bytes;
        self.credits.freed.notify_all();
    }
}

impl Received {
    /// The number that it was announced under.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Deref for Received {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Received({}: {:?})", self.sequence, self.tensor)
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.lock().unwrap();
        let arriving = line.tensors.values().filter_map(Entry::arriving).count();
        let complete = line.tensors.len() - arriving;
        write!(f, "Receiver(room for {} bytes, {arriving} arriving, {complete} complete)", self.room)
    }
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::WrongType, what)
}

#[cfg(test)]
mod tests;
