// SPDX-License-Identifier: MPL-2.0
//! Whether a server writes the outputs that it says are in the memory of a GPU. What was there before would be taken for them.

use std::hash::{BuildHasher, RandomState};

use super::layout::{Layout, TensorPlace};
use crate::cuda::driver::{Context, Stream};
use crate::error::Result;
use crate::memory::Buffer;

/// Bytes at the end of each output.
const MARK: usize = 16;

/// The last bytes of outputs as they are before a request, which no server writes by chance, and after it.
pub struct Marks {
    before: Vec<u8>,
    after: Buffer,
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
        self.before.clear();
        while self.before.len() < self.after.bytes() {
            self.before.extend(RandomState::new().hash_one(self.before.len()).to_ne_bytes());
        }
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
