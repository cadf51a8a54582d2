// SPDX-License-Identifier: MPL-2.0
//! Parts of pooled GPU memory.
//!
//! Memory that returns to its pool is idle: no enqueued work reads or writes it any more. Its last user sees to that,
//! by waiting for the fence of the work.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::raw;
use super::{Limits, MemoryKind, Pool, PooledBuffer};
use crate::cuda::driver::{Context, Fence};
use crate::error::Result;

/// A [`Pool`] of GPU memory.
#[derive(Clone)]
pub struct DevicePool {
    context: Context,
    pool: Pool,
}

/// GPU memory from a [`DevicePool`], or a part of it; goes back there when the last part is dropped. Alone, its bytes are
/// unspecified.
pub struct DeviceBlock {
    context: Context,
    address: u64,
    bytes: usize,
    owner: Arc<SharedBlock>,
}

/// The memory that blocks are parts of.
struct SharedBlock {
    owner: BlockOwner,
    /// Fences of work that the owners of its parts do not wait for.
    used: Mutex<Vec<Fence>>,
}

enum BlockOwner {
    Pool(PooledBuffer),
    /// Kept for its drop.
    Foreign {
        _kept: Arc<dyn Send + Sync>,
    },
}

impl Drop for SharedBlock {
    fn drop(&mut self) {
        let used = self.used.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..);
        match &mut self.owner {
            BlockOwner::Pool(lease) => used.for_each(|fence| lease.release_after(fence)),
            // If the GPU failed, its next call returns the error.
            BlockOwner::Foreign { .. } => used.for_each(|fence| drop(fence.wait())),
        }
    }
}

impl DevicePool {
    pub fn new(context: &Context) -> Self {
        DevicePool { context: context.clone(), pool: Pool::new(MemoryKind::Device, context, Limits::NONE) }
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// All that is allocated.
    pub(crate) fn bytes(&self) -> usize {
        let stats = self.pool.stats();
        stats.in_use_bytes + stats.idle_bytes
    }

    /// A block of so many bytes, aligned to 256.
    ///
    /// # Errors
    /// `Run`, where the GPU has no memory left.
    pub fn take(&self, bytes: usize) -> Result<DeviceBlock> {
        self.pool.take(bytes).map(DeviceBlock::new)
    }
}

/// Device memory for things of one size, of which some lie in a row: a batch's pictures, so that they need not be copied
/// together. Blocks taken one after the other are neighbours.
#[derive(Clone)]
pub struct BatchPool {
    pool: DevicePool,
    bytes: usize,
    count: usize,
    /// The memory whose slots are being given away, and how many are.
    open: Arc<Mutex<(Option<DeviceBlock>, usize)>>,
}

impl BatchPool {
    /// TensorRT wants tensors to begin at multiples of this.
    pub const ALIGN: usize = 256;

    /// Slots of so many bytes, `count` of them in a row where their size allows it.
    pub fn new(context: &Context, bytes: usize, count: usize) -> Self {
        let count = if bytes.is_multiple_of(BatchPool::ALIGN) { count } else { 1 };
        BatchPool { pool: DevicePool::new(context), bytes, count, open: Arc::default() }
    }

    pub fn context(&self) -> &Context {
        &self.pool.context
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the slots of both are of one GPU and size, and as many lie in a row.
    pub fn is_like(&self, other: &BatchPool) -> bool {
        (self.context(), self.bytes, self.count) == (other.context(), other.bytes, other.count)
    }

    /// The next slot.
    ///
    /// # Errors
    /// `Run`, where the GPU has no memory left.
    pub fn take(&self) -> Result<DeviceBlock> {
        self.next(&mut self.open.lock().unwrap())
    }

    /// The next so many slots are neighbours, where as many lie in a row: what is left of a row that has fewer is not given away.
    pub fn begin_row(&self, count: usize) {
        let mut open = self.open.lock().unwrap();
        if self.count - open.1 < count {
            *open = (None, 0);
        }
    }

    /// The next slots: neighbours, but where one memory ends and the next begins, whoever else takes some.
    ///
    /// # Errors
    /// As for [`BatchPool::take`].
    pub fn take_many(&self, count: usize) -> Result<Vec<DeviceBlock>> {
        let mut open = self.open.lock().unwrap();
        (0..count).map(|_| self.next(&mut open)).collect()
    }

    fn next(&self, open: &mut (Option<DeviceBlock>, usize)) -> Result<DeviceBlock> {
        let (memory, given) = open;
        let memory = match memory {
            Some(memory) => memory,
            None => memory.insert(self.pool.take(self.bytes * self.count)?),
        };
        let slot = memory.part(*given * self.bytes, self.bytes);
        *given += 1;
        if *given == self.count {
            *open = (None, 0);
        }
        Ok(slot)
    }
}

impl SharedBlock {
    fn new(owner: BlockOwner) -> Arc<Self> {
        Arc::new(SharedBlock { owner, used: Mutex::default() })
    }
}

impl DeviceBlock {
    /// All of a buffer of a GPU.
    pub(crate) fn new(lease: PooledBuffer) -> Self {
        let context = lease.context().expect("it is of a GPU").clone();
        let (address, bytes) = (lease.address().expect("it is of a GPU"), lease.bytes());
        DeviceBlock { context, address, bytes, owner: SharedBlock::new(BlockOwner::Pool(lease)) }
    }

    /// Memory of another owner.
    ///
    /// # Safety
    /// There are so many bytes of that context's GPU, as long as `owner` is there.
    pub unsafe fn foreign(context: &Context, address: u64, bytes: usize, owner: Arc<dyn Send + Sync>) -> Self {
        DeviceBlock {
            context: context.clone(),
            address,
            bytes,
            owner: SharedBlock::new(BlockOwner::Foreign { _kept: owner }),
        }
    }

    /// Enqueued work uses this until the fence is passed. Only then does the pool give it away again, or does its owner
    /// get it back. Not needed for work that is waited for before the block is dropped.
    pub fn release_after(&self, fence: Fence) {
        let mut used = self.owner.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|earlier| !earlier.is_passed());
        used.push(fence);
    }

    /// Its device address.
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Whether both are parts of the same block.
    pub fn shares_block_with(&self, other: &DeviceBlock) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
    }

    /// The same memory, which both keep from its pool.
    pub(crate) fn share(&self) -> DeviceBlock {
        self.part(0, self.bytes)
    }

    /// Whether this is the only reference to its memory, parts included, and no enqueued work uses it.
    pub(crate) fn is_only_one(&mut self) -> bool {
        let Some(shared) = Arc::get_mut(&mut self.owner) else { return false };
        shared.used.get_mut().unwrap_or_else(PoisonError::into_inner).iter().all(Fence::is_passed)
    }

    /// Whether the other one is a part of the same block, and begins so many bytes behind this one.
    pub fn is_followed_by(&self, other: &DeviceBlock, bytes: usize) -> bool {
        self.shares_block_with(other) && other.address == self.address + bytes as u64
    }

    /// A part of it, which keeps the whole from its pool.
    ///
    /// # Panics
    /// If it does not lie within.
    pub fn part(&self, offset: usize, bytes: usize) -> DeviceBlock {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes));
        let (context, owner) = (self.context.clone(), self.owner.clone());
        DeviceBlock { context, address: self.address + offset as u64, bytes, owner }
    }

    /// Copies the bytes to the host and waits for that; for tests, tools and the CPU.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes];
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// The same into `bytes`. No more than there are.
    pub fn read_into(&self, bytes: &mut [u8]) -> Result<()> {
        assert!(bytes.len() <= self.bytes);
        // SAFETY: the block has as many bytes, which its owner keeps.
        unsafe { raw::read(self.context(), self.address, bytes) }
    }

    /// Copies from the host and waits for that. No more bytes than there are.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() <= self.bytes);
        // SAFETY: the block has as many bytes, which its owner keeps. Callers have waited for enqueued work that uses them.
        unsafe { raw::write(self.context(), self.address, bytes) }
    }
}

impl fmt::Debug for DeviceBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBlock({} bytes at {:#x})", self.bytes, self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters;
    use crate::memory::Mapped;
    use crate::test::gpu;

    #[test]
    fn blocks_come_back() {
        let Some(context) = gpu() else { return };
        let pool = DevicePool::new(&context);
        let first = pool.take(100).unwrap().address();
        assert_eq!(pool.take(101).unwrap().address(), first, "the same block again");
        let (a, b) = (pool.take(100).unwrap(), pool.take(100).unwrap());
        assert_ne!(a.address(), b.address());
        drop(pool);
        drop((a, b)); // a block may outlive its pool
    }

    #[test]
    fn slots_are_neighbours() {
        let Some(context) = gpu() else { return };
        let slots = BatchPool::new(&context, 512, 3);
        let taken: Vec<DeviceBlock> = (0..6).map(|_| slots.take().unwrap()).collect();
        for row in taken.chunks(3) {
            let at: Vec<u64> = row.iter().map(|slot| slot.address() - row[0].address()).collect();
            assert_eq!(at, [0, 512, 1024]);
            assert!(row.iter().all(|slot| slot.shares_block_with(&row[0])));
        }
        assert!(!taken[0].shares_block_with(&taken[3]));
        assert!(taken[0].is_followed_by(&taken[2], 1024) && !taken[0].is_followed_by(&taken[2], 512));
        assert!(!taken[2].is_followed_by(&taken[3], 512), "even if it were");
        let first = taken[0].address();
        drop(taken);
        let one = slots.take().unwrap();
        slots.begin_row(2);
        let two = slots.take_many(2).unwrap();
        assert!(one.is_followed_by(&two[0], 512) && two[0].is_followed_by(&two[1], 512));
        let one = slots.take_many(2).unwrap();
        slots.begin_row(2);
        let two = slots.take_many(2).unwrap();
        assert!(!one[1].shares_block_with(&two[0]) && two[0].is_followed_by(&two[1], 512), "a row of its own");
        slots.begin_row(3);
        drop((one, two));
        let again = slots.take_many(6).unwrap();
        assert!(again[1].is_followed_by(&again[2], 512) && again[4].is_followed_by(&again[5], 512));
        assert!(again.iter().any(|slot| slot.address() == first), "the memory comes back with its last slot");

        let odd = BatchPool::new(&context, 100, 3);
        let (one, other) = (odd.take().unwrap(), odd.take().unwrap());
        assert!(!one.shares_block_with(&other), "TensorRT could not begin at the second one");
    }

    #[test]
    fn blocks_live_as_long_as_their_last_reference() {
        let Some(context) = gpu() else { return };
        let mut block = DevicePool::new(&context).take(100).unwrap();
        let other = block.share();
        assert!(other.address() == block.address() && other.bytes() == block.bytes() && !block.is_only_one());
        drop(other);
        assert!(block.is_only_one());
    }

    #[test]
    fn blocks_come_back_once_their_fences_are_passed() {
        let Some(context) = gpu() else { return };
        let (pool, stream) = (DevicePool::new(&context), crate::cuda::driver::Stream::new(&context).unwrap());
        let mut block = pool.take(64 << 20).unwrap();
        let address = block.address();
        // SAFETY: the memory stays until the fence is passed, as this is about.
        (0..200).for_each(|_| unsafe { stream.clear(address, 64 << 20) }.unwrap());
        let fence = stream.record().unwrap();
        block.release_after(fence.clone());
        assert_eq!(block.is_only_one(), fence.is_passed());
        drop(block);
        let next = pool.take(64 << 20).unwrap();
        assert!(next.address() != address || fence.is_passed());
        stream.synchronize().unwrap();
    }

    #[test]
    fn bytes_go_there_and_back() {
        let Some(context) = gpu() else { return };
        let mut block = DevicePool::new(&context).take(5).unwrap();
        block.write(&[1, 2, 3, 4, 5]).unwrap();
        assert_eq!(block.read().unwrap(), [1, 2, 3, 4, 5]);
        let mut mapped = Mapped::new(&context, 3).unwrap();
        mapped.host_mut()[1] = 7;
        assert_eq!(mapped.host(), [0, 7, 0]);
        assert_ne!(mapped.address(), 0);
    }

    #[test]
    fn the_cost_of_a_frame_is_counted() {
        let Some(context) = gpu() else { return };
        let (pool, costs) = (DevicePool::new(&context), counters::Stats::default());
        let stage = counters::Span::begin(false);
        for _ in 0..3 {
            let mut block = pool.take(5).unwrap();
            block.write(&[1, 2, 3]).unwrap();
            block.read().unwrap();
        }
        costs.add(stage, 0);
        let counters = costs.read().counters;
        let counted = [counters.uploaded, counters.downloaded, counters.pool_hits, counters.pool_misses];
        assert_eq!(counted, [9, 15, 2, 1]);
    }
}
