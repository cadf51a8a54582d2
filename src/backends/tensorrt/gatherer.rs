// SPDX-License-Identifier: MPL-2.0
//! Pictures that do not lie in one block, copied together for a batch.
//!
//! Streams that share a model make their pictures side by side, so one may join a batch before another whose place is in
//! front of it: with 16 streams in 35 to 83 % of the batches, by traces of three networks. The copies have a stream of
//! their own. On that of the model, behind the run of the batch before, they would delay the next run by 60 to 300 µs.

use crate::core::cuda::driver::{Fence, Stream};
use crate::core::error::Result;
use crate::core::memory::{DeviceBlock, DevicePool};

pub struct Gatherer {
    /// Dropped before the blocks, which it may still write to; that waits.
    stream: Stream,
    /// Two, so that the next batch is copied while a run reads the last one.
    batches: [GatheredBatch; 2],
    /// Which of them was written last.
    last: usize,
}

struct GatheredBatch {
    block: DeviceBlock,
    /// Passed when the last run on it is done.
    read: Option<Fence>,
}

impl Gatherer {
    /// For batches of so many bytes, in a pool's context.
    pub fn new(pool: &DevicePool, bytes: usize) -> Result<Self> {
        let batch = || Ok(GatheredBatch { block: pool.take(bytes)?, read: None });
        Ok(Gatherer { stream: Stream::of_batches(pool.context())?, batches: [batch()?, batch()?], last: 0 })
    }

    /// Queues copies of these pictures, of so many bytes each, one behind the other, and returns their address. They may be read by
    /// what is queued on `reader` after this.
    ///
    /// # Safety
    /// The pictures are complete once the fences `ready` are passed, and stay until what is queued on `reader` after this is
    /// done. Together they are not larger than a batch.
    pub unsafe fn gather<'a>(
        &mut self,
        pictures: &[&DeviceBlock],
        size: usize,
        ready: impl Iterator<Item = &'a Fence>,
        reader: &Stream,
    ) -> Result<u64> {
        self.last = (self.last + 1) % self.batches.len();
        let GatheredBatch { block, read } = &self.batches[self.last];
        read.iter().try_for_each(|run| self.stream.wait(run))?;
        self.stream.wait_for_all(ready)?;
        let queued = self.stream.queuing();
        let mut row = 0;
        while let [picture, others @ ..] = &pictures[row..] {
            // Those of a frame are neighbours, so they are one copy.
            let is_next = |(at, other): &(usize, &&DeviceBlock)| picture.is_followed_by(other, (at + 1) * size);
            let count = 1 + others.iter().enumerate().take_while(is_next).count();
            let from = (picture.context(), picture.address());
            // SAFETY: both have so many bytes, as the caller said of the pictures. They stay until the copy is done: the caller's
            // reader waits for it, and the drop of the stream.
            unsafe { self.stream.copy(from, block.address() + (row * size) as u64, count * size) }?;
            row += count;
        }
        let copied = queued.record()?;
        if let Err(error) = reader.wait(&copied) {
            let _ = copied.wait(); // what the caller frees next is in use until then
            return Err(error);
        }
        Ok(block.address())
    }

    /// The run on what was gathered last is done once this is passed.
    pub fn read_until(&mut self, run: &Fence) {
        self.batches[self.last].read = Some(run.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each batch has its own bytes, though all are queued before the first one is read.
    #[test]
    fn batches_are_gathered_while_others_are_read() {
        const SIZE: usize = 1 << 20;
        let Some(context) = crate::test::gpu() else { return };
        let pool = DevicePool::new(&context);
        let reader = Stream::new(&context).unwrap();
        let mut gatherer = Gatherer::new(&pool, 4 * SIZE).unwrap();
        let picture = |value: u8| {
            let mut block = pool.take(SIZE).unwrap();
            block.write(&vec![value; SIZE]).unwrap();
            block
        };
        let pictures: Vec<DeviceBlock> = (0..20).map(picture).collect();
        let copies: Vec<DeviceBlock> = (0..5).map(|_| pool.take(4 * SIZE).unwrap()).collect();
        let ready = reader.record().unwrap();
        for (batch, copy) in pictures.chunks(4).zip(&copies) {
            let backwards: Vec<&DeviceBlock> = batch.iter().rev().collect();
            // SAFETY: the pictures are complete, and stay until the reader is idle; four of them are a batch, which the copy has
            // room for.
            unsafe {
                let address = gatherer.gather(&backwards, SIZE, [&ready].into_iter(), &reader).unwrap();
                reader.copy((&context, address), copy.address(), 4 * SIZE).unwrap();
            }
            gatherer.read_until(&reader.record().unwrap());
        }
        reader.synchronize().unwrap();
        for (batch, copy) in copies.iter().enumerate() {
            let bytes = copy.read().unwrap();
            let expected = (0..4).rev().flat_map(|at| vec![(4 * batch + at) as u8; SIZE]);
            assert!(bytes.into_iter().eq(expected), "batch {batch}");
        }
    }
}
