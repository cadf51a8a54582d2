// SPDX-License-Identifier: MPL-2.0
//! Whether a server writes the outputs that it says are in memory that both have. What was there before would be taken for them.

use std::hash::{BuildHasher, RandomState};

use super::layout::{Layout, TensorPlace};
use super::shared_memory::SharedRegion;
use crate::cuda::driver::{Context, Stream};
use crate::error::Result;
use crate::memory::Buffer;

/// Bytes at the end of each output.
const MARK: usize = 16;

/// The last bytes of outputs in the memory of a GPU, as they are before a request and after it.
pub struct Marks {
    before: Vec<u8>,
    after: Buffer,
}

/// The last bytes of outputs in the host's memory, as they are before a request.
#[derive(Default)]
pub struct HostMarks(Vec<u8>);

/// Bytes for so many outputs, which no server writes by chance.
fn fresh(outputs: usize) -> Vec<u8> {
    let random = RandomState::new();
    (0..outputs * MARK / 8).flat_map(|at| random.hash_one(at).to_ne_bytes()).collect()
}

/// Of an output, where its mark is; none where there is too little of it to tell.
fn marked((at, bytes): TensorPlace) -> Option<TensorPlace> {
    let length = bytes.min(MARK);
    (length >= 4).then_some((at + bytes - length, length))
}

impl Marks {
    /// # Errors
    /// `Run`, where no more memory can be pinned.
    pub fn new(context: &Context, outputs: usize) -> Result<Self> {
        Ok(Marks { before: Vec::new(), after: Buffer::pinned(context, outputs * MARK)? })
    }

    /// Queues other marks for the next request.
    ///
    /// # Safety
    /// The region at that address has room for the layout. It stays until the work is done, and nothing else uses it.
    pub unsafe fn write(&mut self, stream: &Stream, layout: &Layout, region: u64) -> Result<()> {
        self.before = fresh(layout.outputs.len());
        for (mark, &place) in self.before.chunks(MARK).zip(&layout.outputs) {
            if let Some((at, length)) = marked(place) {
                // SAFETY: the end of an output in the region. Pageable memory is read during the call.
                unsafe { stream.upload(&mark[..length], region + at as u64) }?;
            }
        }
        Ok(())
    }

    /// Reads what is there now, and waits until that is done.
    ///
    /// # Safety
    /// The region at that address has room for the layout, and stays until this returns.
    pub unsafe fn read(&mut self, stream: &Stream, layout: &Layout, region: u64) -> Result<()> {
        let after = self.after.as_mut_bytes().expect("it is pinned memory");
        let queued = stream.queuing();
        for (mark, &place) in after.chunks_mut(MARK).zip(&layout.outputs) {
            if let Some((at, length)) = marked(place) {
                // SAFETY: both stay until this has waited, and nothing else uses them.
                unsafe { stream.download(region + at as u64, &mut mark[..length]) }?;
            }
        }
        queued.record()?.wait()
    }

    /// Whether nothing has written the end of an output, the one of that number.
    pub fn is_unchanged(&self, index: usize, place: TensorPlace) -> bool {
        let after = self.after.as_bytes().unwrap_or_default();
        marked(place).is_some_and(|(_, length)| {
            let end = |marks: &[u8]| marks[index * MARK..][..length].to_vec();
            end(&self.before) == end(after)
        })
    }
}

impl HostMarks {
    /// Writes other marks for the next request.
    pub fn write(&mut self, layout: &Layout, region: &mut SharedRegion) {
        self.0 = fresh(layout.outputs.len());
        for (mark, &place) in self.0.chunks(MARK).zip(&layout.outputs) {
            if let Some((at, length)) = marked(place) {
                region.write(at, &mark[..length]);
            }
        }
    }

    /// As [`Marks::is_unchanged`].
    pub fn is_unchanged(&self, index: usize, place: TensorPlace, region: &SharedRegion) -> bool {
        marked(place).is_some_and(|(at, length)| {
            let mut now = [0; MARK];
            region.read(at, &mut now[..length]);
            now[..length] == self.0[index * MARK..][..length]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_at_the_end_of_its_output() {
        for (place, wanted) in [
            ((256, 1000), Some((1240, 16))),
            ((256, 16), Some((256, 16))),
            ((0, 4), Some((0, 4))),
            ((0, 3), None),
            ((0, 0), None),
        ] {
            assert_eq!(marked(place), wanted, "{place:?}");
        }
    }
}
