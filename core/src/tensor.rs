// SPDX-License-Identifier: MPL-2.0
//! Tensors: a description, and memory that is used again.
//!
//! [`Tensor`] is a [description](TensorDesc) with its bytes, on the host or on a GPU; they come from a [`Pool`] or a
//! [`DevicePool`](crate::memory::DevicePool) and return to it when the last owner lets go. [`Tensors`] are what
//! one piece of work makes, with the fence after which they may be read.

use std::fmt;
use std::sync::Arc;

use crate::cuda::driver::{Fence, Stream};
#[doc(hidden)]
pub use crate::dtype::list;
pub use crate::dtype::{DType, Dims, Element, TensorDesc};
use crate::error::Result;
use crate::memory::{DeviceBlock, HostBlock, MemoryKind, Pool, PooledBuffer};

/// A named array. Written once, then only read.
pub struct Tensor {
    desc: TensorDesc,
    storage: Storage,
}

/// Where a tensor's bytes are.
enum Storage {
    Host(HostBlock),
    Device(DeviceBlock),
}

impl Tensor {
    /// Takes host memory of the right size from `pool` and lets `fill` write all of it.
    ///
    /// # Errors
    /// As `fill`, and as [`Pool::take`].
    ///
    /// # Panics
    /// If `desc` has open dimensions, or `pool` is of memory that the host does not see.
    #[doc(hidden)]
    pub fn fill(pool: &Pool, desc: TensorDesc, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Self> {
        let mut block = pool.take(desc.bytes().expect("a tensor has fixed dimensions"))?;
        fill(block.as_mut_bytes().expect("a pool of host memory"))?;
        Ok(Tensor::on_host(desc, HostBlock::new(block)))
    }

    /// A tensor in host memory.
    ///
    /// # Panics
    /// If there are not as many bytes as `desc` says, or it has open dimensions.
    #[doc(hidden)]
    pub fn on_host(desc: TensorDesc, block: HostBlock) -> Self {
        assert!(Some(block.bytes().len()) == desc.bytes());
        Tensor { desc, storage: Storage::Host(block) }
    }

    /// A tensor in a buffer of any kind of memory, which holds its bytes.
    ///
    /// # Panics
    /// If the buffer is smaller than `desc` says, or `desc` has open dimensions.
    #[doc(hidden)]
    pub fn in_buffer(desc: TensorDesc, buffer: PooledBuffer) -> Self {
        let bytes = desc.bytes().expect("a tensor has fixed dimensions");
        match buffer.kind() {
            MemoryKind::Device => Tensor::on_device(desc, DeviceBlock::new(buffer)),
            _ => Tensor::on_host(desc, HostBlock::new(buffer).part(0, bytes)),
        }
    }

    /// A tensor in GPU memory, whose bytes work that is queued is about to write.
    ///
    /// # Panics
    /// If the block is smaller than `desc` says, or `desc` has open dimensions.
    #[doc(hidden)]
    pub fn on_device(desc: TensorDesc, block: DeviceBlock) -> Self {
        assert!(block.bytes() >= desc.bytes().expect("a tensor has fixed dimensions"));
        Tensor { desc, storage: Storage::Device(block) }
    }

    /// A tensor outside any pool, for tests and one-off inputs.
    ///
    /// # Panics
    /// If the number of values is not what `dims` say.
    pub fn from_slice<T: Element>(name: &str, dims: &[i64], values: &[T]) -> Self {
        let desc = TensorDesc::new(name, T::DTYPE, dims);
        let copy = |bytes: &mut [u8]| {
            bytes.copy_from_slice(bytemuck::cast_slice(values));
            Ok(())
        };
        Tensor::fill(&Pool::default(), desc, copy).expect("there is no limit")
    }

    pub fn desc(&self) -> &TensorDesc {
        &self.desc
    }

    /// The bytes, if they are on the host.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.host().map(HostBlock::bytes)
    }

    /// The elements, if they are on the host and `T` is their type.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        self.bytes().filter(|_| T::DTYPE == self.desc.dtype).map(bytemuck::cast_slice)
    }

    /// The memory, if it is on the host.
    #[doc(hidden)]
    pub fn host(&self) -> Option<&HostBlock> {
        match &self.storage {
            Storage::Host(block) => Some(block),
            Storage::Device(_) => None,
        }
    }

    /// The memory, if it is on a GPU. To be read behind the fence that travels with the tensor.
    #[doc(hidden)]
    pub fn device(&self) -> Option<&DeviceBlock> {
        match &self.storage {
            Storage::Host(..) => None,
            Storage::Device(block) => Some(block),
        }
    }

    /// One row of a batch, as a tensor of its own in the same memory.
    ///
    /// # Panics
    /// If there is no such row.
    #[doc(hidden)]
    pub fn row(&self, row: usize) -> Tensor {
        let mut desc = self.desc.clone();
        let rows = usize::try_from(std::mem::replace(&mut desc.dims.0[0], 1)).expect("fixed dimensions");
        assert!(row < rows);
        let bytes = desc.bytes().expect("fixed dimensions");
        let storage = match &self.storage {
            Storage::Host(block) => Storage::Host(block.part(row * bytes, bytes)),
            Storage::Device(block) => Storage::Device(block.part(row * bytes, bytes)),
        };
        Tensor { desc, storage }
    }
}

impl Tensor {
    /// The same memory, which both keep.
    pub(crate) fn share(&self) -> Tensor {
        let storage = match &self.storage {
            Storage::Host(block) => Storage::Host(block.part(0, block.bytes().len())),
            Storage::Device(block) => Storage::Device(block.share()),
        };
        Tensor { desc: self.desc.clone(), storage }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.device().is_some() { "on the GPU" } else { "on the host" };
        write!(f, "Tensor({} {side})", self.desc)
    }
}

/// Tensors that were made together.
///
/// Those on a GPU are written by work that is still queued when this is made. A consumer makes its own stream wait for
/// [`Tensors::ready`]. The host waits only when they are dropped earlier: then nothing returns to a pool, and no frame
/// to its decoder, while the GPU still uses it.
#[derive(Debug)]
pub struct Tensors {
    list: Vec<Tensor>,
    ready: Option<Fence>,
    /// Where that work was queued, if others may queue there what is done with them.
    stream: Option<Arc<Stream>>,
    /// What that work reads.
    _source: Option<Arc<Tensors>>,
}

impl Tensors {
    /// `ready` is passed once the work that writes them is done; `None` where they are there already. That work reads
    /// `source`, which is kept as long as these are.
    pub fn new(list: Vec<Tensor>, ready: Option<Fence>, source: Option<Arc<Tensors>>) -> Self {
        Tensors { list, ready, stream: None, _source: source }
    }

    /// Records the producer's stream, so that consumers can enqueue on it instead of waiting on another. A GPU takes
    /// work from few queues at once, and one that waits holds up others: with 16 streams and one model that cost a
    /// tenth of the frames.
    #[doc(hidden)]
    pub fn on(mut self, stream: Arc<Stream>) -> Self {
        self.stream = Some(stream);
        self
    }

    /// Lets consumers enqueue elsewhere, next to what the producer enqueues meanwhile.
    pub(crate) fn without_stream(mut self) -> Self {
        self.stream = None;
        self
    }

    #[doc(hidden)]
    pub fn stream(&self) -> Option<&Arc<Stream>> {
        self.stream.as_ref()
    }

    pub fn ready(&self) -> Option<&Fence> {
        self.ready.as_ref()
    }

    /// The same memory, which both keep.
    pub(crate) fn share(&self) -> Tensors {
        Tensors::new(self.list.iter().map(Tensor::share).collect(), self.ready.clone(), None)
    }

    /// Waits on the host until they are there.
    ///
    /// # Errors
    /// `Run`, where the GPU failed.
    pub fn wait(&self) -> Result<()> {
        self.ready.as_ref().map_or(Ok(()), Fence::wait)
    }

    /// The same, and returns them.
    ///
    /// # Errors
    /// As [`Tensors::wait`].
    pub fn into_ready(mut self) -> Result<Vec<Tensor>> {
        self.wait()?;
        Ok(std::mem::take(&mut self.list))
    }
}

impl std::ops::Deref for Tensors {
    type Target = [Tensor];

    fn deref(&self) -> &[Tensor] {
        &self.list
    }
}

impl Drop for Tensors {
    fn drop(&mut self) {
        // Drop cannot report an error of the GPU; the next call that waits for results does.
        if let Some(ready) = &self.ready {
            let _ = ready.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_share_the_memory_of_their_batch() {
        let batch = Tensor::from_slice("t", &[3, 2], &[1i64, 2, 3, 4, 5, 6]);
        let rows: Vec<Tensor> = (0..3).map(|row| batch.row(row)).collect();
        drop(batch);
        let seen: Vec<_> = rows.iter().map(|row| (row.desc().to_string(), row.as_slice::<i64>().unwrap())).collect();
        assert_eq!(seen, [[1, 2], [3, 4], [5, 6]].iter().map(|row| ("t i64 1x2".into(), &row[..])).collect::<Vec<_>>());
        assert_eq!(rows[2].row(0).as_slice::<i64>().unwrap(), [5, 6]);
    }

    #[test]
    fn elements_are_typed() {
        let tensor = Tensor::from_slice("t", &[2], &[1i64, 2]);
        assert_eq!(tensor.as_slice::<i64>(), Some(&[1, 2][..]));
        assert_eq!(tensor.as_slice::<f32>(), None);
        assert_eq!(tensor.desc().to_string(), "t i64 2");
    }
}
