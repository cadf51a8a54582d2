// SPDX-License-Identifier: MPL-2.0
//! Buffers that are used again.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, Weak};

use smallvec::SmallVec;

use super::{Buffer, MemoryKind};
use crate::counters;
use crate::cuda::driver::{Context, Fence};
use crate::error::{Error, ErrorKind, Result};

/// A buffer that is idle during so many returns of others is left from a burst: minutes of one stream, seconds of many.
const STALE_RETURNS: u64 = 16_384;
/// A large one sooner, as it keeps more from others: that of a batch of pictures, 39 MB, after 1,763 returns.
const STALE_BYTES: u64 = 64 << 30;
/// One of them is freed each so many returns, since freeing memory of a GPU waits for the GPU.
const RETURNS_PER_LOOK: u64 = 64;

/// Maximum sizes of a pool, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Beyond this, [`Pool::take`] is an error.
    pub in_use: usize,
    /// Beyond this, buffers that come back are freed, the ones that were idle longest first.
    pub idle: usize,
}

impl Limits {
    /// No limits: for pipelines, which ask for the same sizes again and again.
    pub const NONE: Limits = Limits { in_use: usize::MAX, idle: usize::MAX };
    /// Keeps no more than a few frames' worth: for sizes that change.
    #[doc(hidden)]
    pub const LEAN: Limits = Limits { in_use: usize::MAX, idle: 64 << 20 };
    /// Keeps nothing: to look for mistakes with a sanitizer.
    #[doc(hidden)]
    pub const NO_REUSE: Limits = Limits { in_use: usize::MAX, idle: 0 };
}

impl Default for Limits {
    fn default() -> Self {
        Limits::NONE
    }
}

/// Counts of a pool. Bytes count as allocated, which is up to an eighth more than was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
#[non_exhaustive]
pub struct PoolStats {
    /// Buffers that were there already.
    pub hits: u64,
    /// Buffers that had to be allocated.
    pub misses: u64,
    /// Buffers that are given away now, and their bytes.
    pub in_use: usize,
    pub in_use_bytes: usize,
    /// Bytes of those that wait to be used again.
    pub idle_bytes: usize,
    /// Maximum of the bytes in use.
    pub peak_bytes: usize,
}

impl PoolStats {
    /// The share of hits, 0 to 1.
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}

/// Buffers of one kind of memory that are used again, by classes of size. Clones are the same pool.
///
/// ```
/// use gsttrt_core::memory::{Limits, Pool};
///
/// # fn main() -> gsttrt_core::error::Result<()> {
/// let pool = Pool::host(Limits::NONE);
/// for _ in 0..100 {
///     let buffer = pool.take(640 * 640 * 3 * 4)?;
///     assert_eq!(buffer.bytes(), 640 * 640 * 3 * 4);
/// } // goes back here
/// assert_eq!((pool.stats().hits, pool.stats().misses, pool.stats().in_use), (99, 1, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pool {
    kind: MemoryKind,
    context: Option<Context>,
    limits: Limits,
    free_lists: Arc<Mutex<FreeLists>>,
}

#[derive(Default)]
struct FreeLists {
    /// By size; of each, those that came back last at the end.
    idle: BTreeMap<usize, Vec<IdleBlocks>>,
    /// How often something came back.
    returns: u64,
    stats: PoolStats,
}

struct IdleBlocks {
    // Drop order: the wait first.
    after: PendingFence,
    buffer: Buffer,
    /// Which of all returns it was.
    returned: u64,
}

/// The fences to be passed before a buffer may be used or freed. Dropping it waits for them.
#[derive(Default)]
struct PendingFence(SmallVec<[Fence; 1]>);

impl Drop for PendingFence {
    fn drop(&mut self) {
        // Drop cannot report an error of the GPU; the next call that waits for results does.
        for fence in &self.0 {
            let _ = fence.wait();
        }
    }
}

/// A buffer that goes back to its pool when dropped. It still has the bytes that its last user wrote.
pub struct PooledBuffer {
    /// Until drop.
    buffer: Option<Buffer>,
    /// What it was allocated as.
    class: usize,
    after: PendingFence,
    limits: Limits,
    home: Weak<Mutex<FreeLists>>,
}

/// Sizes are rounded up to these, eight or more between a power of two and the next.
pub(super) fn class(bytes: usize) -> usize {
    const LEAST: usize = 256;
    let unit = (bytes.checked_next_power_of_two().unwrap_or(usize::MAX) / 16).max(LEAST);
    bytes.max(1).checked_next_multiple_of(unit).unwrap_or(bytes)
}

impl Pool {
    pub fn host(limits: Limits) -> Self {
        Pool { kind: MemoryKind::Host, context: None, limits, free_lists: Arc::default() }
    }

    /// Of memory that has to do with a GPU.
    #[doc(hidden)]
    pub fn new(kind: MemoryKind, context: &Context, limits: Limits) -> Self {
        Pool { kind, context: Some(context.clone()), limits, free_lists: Arc::default() }
    }

    #[doc(hidden)]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    #[doc(hidden)]
    pub fn context(&self) -> Option<&Context> {
        self.context.as_ref()
    }

    #[doc(hidden)]
    pub fn stats(&self) -> PoolStats {
        self.free_lists.lock().unwrap().stats
    }

    /// A buffer of so many bytes, which no queued work uses.
    ///
    /// # Errors
    /// `Run`, where there is no more memory, or as much in use as the limits allow.
    pub fn take(&self, bytes: usize) -> Result<PooledBuffer> {
        let class = class(bytes);
        let mut free_lists = self.free_lists.lock().unwrap();
        if free_lists.stats.in_use_bytes.saturating_add(class) > self.limits.in_use {
            return Err(Error::new(ErrorKind::Run, format!("The pool of {} memory is exhausted", self.kind))
                .cause(format!("{} bytes are in use, of {}", free_lists.stats.in_use_bytes, self.limits.in_use))
                .remedy("Let go of buffers sooner, or raise the limit"));
        }
        let idle = free_lists.take(class, IdleBlocks::is_free);
        let is_hit = idle.is_some();
        counters::pooled(is_hit);
        free_lists.stats.count(class, is_hit);
        drop(free_lists);
        let buffer = match idle {
            Some(idle) => Ok(idle.buffer),
            None => self.allocate(class),
        };
        let mut buffer = buffer.inspect_err(|_| self.free_lists.lock().unwrap().stats.count_return(class))?;
        buffer.bytes = bytes;
        let home = Arc::downgrade(&self.free_lists);
        Ok(PooledBuffer { buffer: Some(buffer), class, after: PendingFence::default(), limits: self.limits, home })
    }

    /// Where there is no more memory, what waits for its fence will do, and what is idle in other sizes is freed.
    fn allocate(&self, class: usize) -> Result<Buffer> {
        let new = || Buffer::new(self.kind, self.context.as_ref(), class);
        new().or_else(|error| {
            let mut free_lists = self.free_lists.lock().unwrap();
            let pending = free_lists.take(class, |_| true);
            let freed = if pending.is_none() { free_lists.clear() } else { Vec::new() };
            drop(free_lists);
            match pending {
                Some(IdleBlocks { buffer, .. }) => Ok(buffer), // once its fence is passed
                None if freed.is_empty() => Err(error),
                None => {
                    drop(freed);
                    new()
                }
            }
        })
    }

    /// Frees all that is idle.
    #[doc(hidden)]
    pub fn clear(&self) {
        let idle = self.free_lists.lock().unwrap().clear();
        drop(idle); // no longer under the lock, for it may take a while
    }
}

impl Default for Pool {
    fn default() -> Self {
        Pool::host(Limits::NONE)
    }
}

impl IdleBlocks {
    fn is_free(&self) -> bool {
        self.after.0.iter().all(Fence::is_passed)
    }
}

impl FreeLists {
    /// The one that came back last is the one most likely in a cache.
    fn take(&mut self, class: usize, suits: impl Fn(&IdleBlocks) -> bool) -> Option<IdleBlocks> {
        let idle = self.idle.get_mut(&class)?;
        let found = idle.iter().rposition(suits)?;
        self.stats.idle_bytes -= class;
        Some(idle.remove(found))
    }

    fn clear(&mut self) -> Vec<IdleBlocks> {
        self.stats.idle_bytes = 0;
        std::mem::take(&mut self.idle).into_values().flatten().collect()
    }

    /// What is beyond the limit, and now and then one that a burst has left and nothing needed since.
    fn evict(&mut self, limit: usize) -> Vec<IdleBlocks> {
        let mut evicted = Vec::new();
        while self.stats.idle_bytes > limit {
            let Some(oldest) = self.take_oldest(|_, _| true) else { break };
            evicted.push(oldest);
        }
        if self.returns.is_multiple_of(RETURNS_PER_LOOK) {
            let returns = self.returns;
            evicted.extend(self.take_oldest(|returned, class| {
                let idle = returns - returned;
                idle > STALE_RETURNS || idle.saturating_mul(class as u64) > STALE_BYTES
            }));
        }
        evicted
    }

    /// The one that has been idle longest of those that suit, by the return that they came back with and their size.
    fn take_oldest(&mut self, suits: impl Fn(u64, usize) -> bool) -> Option<IdleBlocks> {
        let oldest = self.idle.iter().filter_map(|(&class, idle)| Some((idle.first()?.returned, class)));
        let (_, class) = oldest.filter(|&(returned, class)| suits(returned, class)).min()?;
        self.stats.idle_bytes -= class;
        Some(self.idle.get_mut(&class).expect("just seen").remove(0))
    }
}

impl PoolStats {
    fn count(&mut self, class: usize, is_hit: bool) {
        if is_hit {
            self.hits += 1
        } else {
            self.misses += 1
        }
        self.in_use += 1;
        self.in_use_bytes += class;
        self.peak_bytes = self.peak_bytes.max(self.in_use_bytes);
    }

    fn count_return(&mut self, class: usize) {
        self.in_use -= 1;
        self.in_use_bytes -= class;
    }
}

impl PooledBuffer {
    /// Work that is queued uses the buffer until this is passed, so the pool gives it away only after that. There may
    /// be several such.
    pub fn release_after(&mut self, fence: Fence) {
        self.after.0.retain(|earlier| !earlier.is_passed());
        self.after.0.push(fence);
    }
}

impl Deref for PooledBuffer {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        self.buffer.as_ref().expect("until drop")
    }
}

impl DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut Buffer {
        self.buffer.as_mut().expect("until drop")
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        let after = std::mem::take(&mut self.after);
        let Some(home) = self.home.upgrade() else {
            drop(after);
            drop(buffer);
            return;
        };
        let mut free_lists = home.lock().unwrap();
        free_lists.returns += 1;
        let returned = free_lists.returns;
        free_lists.idle.entry(self.class).or_default().push(IdleBlocks { after, buffer, returned });
        free_lists.stats.count_return(self.class);
        free_lists.stats.idle_bytes += self.class;
        let evicted = free_lists.evict(self.limits.idle);
        drop(free_lists);
        drop(evicted); // no longer under the lock, for it may take a while
    }
}
