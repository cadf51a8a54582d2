// SPDX-License-Identifier: MPL-2.0
//! Memory where it is needed: on the host, pinned, or on a GPU; pools of it, and copies between all of them.
//!
//! [`Buffer`] owns memory of one [`MemoryKind`]. A [`Pool`] gives buffers away and takes them back, so that what runs
//! again and again allocates nothing. Tensors are in a [`HostBlock`] or [`DeviceBlock`]: a part of such memory, or of
//! foreign memory.

mod device;
mod host;
mod pool;
mod raw;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cuda::driver::Context;
use crate::dtype::Element;
use crate::error::{Error, ErrorKind, Result};
#[doc(hidden)]
pub use device::{BatchPool, DeviceBlock, DevicePool};
#[doc(hidden)]
pub use host::HostBlock;
pub use pool::{Limits, Pool, PoolStats, PooledBuffer};
#[doc(hidden)]
pub use raw::Mapped;
use raw::{DeviceMemory, Host, Unified};

/// What kind of memory a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Ordinary memory of the process.
    Host,
    /// Page-locked host memory, which a GPU copies from and to by itself and at full speed.
    Pinned,
    /// The same, mapped for the GPU, whose kernels read and write it in place: over the bus, or on an integrated GPU at full
    /// speed.
    Mapped,
    /// Memory of a GPU, which the host does not see.
    Device,
    /// Managed memory, which moves to the host or the GPU as it is used.
    Unified,
}

impl MemoryKind {
    #[doc(hidden)]
    pub const ALL: [MemoryKind; 5] =
        [MemoryKind::Host, MemoryKind::Pinned, MemoryKind::Mapped, MemoryKind::Device, MemoryKind::Unified];

    #[doc(hidden)]
    pub fn name(self) -> &'static str {
        match self {
            MemoryKind::Host => "host",
            MemoryKind::Pinned => "pinned",
            MemoryKind::Mapped => "mapped",
            MemoryKind::Device => "device",
            MemoryKind::Unified => "unified",
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes in memory of one kind, zeroed on the host and unspecified on a GPU.
///
/// Some kinds the host sees while a GPU works on them. Functions that enqueue such work are `unsafe`: their caller
/// promises that nothing else uses the memory until it is done, not even through these functions.
///
/// ```
/// use gsttrt_core::memory::{Buffer, MemoryKind};
///
/// # fn main() -> gsttrt_core::error::Result<()> {
/// let mut picture = Buffer::host(8);
/// picture.as_mut_slice::<f32>()?.copy_from_slice(&[0.5, 1.0]);
///
/// // Without a GPU this is host memory too, and `why` has the reason.
/// let (mut copy, why) = Buffer::try_device(None, 8);
/// copy.copy_from(&picture)?;
/// assert_eq!(copy.kind(), MemoryKind::Host);
/// assert!(why.unwrap().message().starts_with("Using host memory"));
///
/// let mut bytes = [0; 4];
/// copy.read(4, &mut bytes)?;
/// assert_eq!(f32::from_ne_bytes(bytes), 1.0);
/// assert!(copy.read(6, &mut bytes).is_err());
/// # Ok(())
/// # }
/// ```
pub struct Buffer {
    memory: Memory,
    /// No more than there are.
    bytes: usize,
}

enum Memory {
    Host(Host),
    Pinned(Mapped),
    Mapped(Mapped),
    Device(DeviceMemory),
    Unified(Unified),
}

impl Buffer {
    /// Begins on a cache line, so that elements of every type are aligned.
    pub fn host(bytes: usize) -> Self {
        Buffer { memory: Memory::Host(Host::new(bytes)), bytes }
    }

    /// # Errors
    /// `Run`, where no more memory can be pinned.
    #[doc(hidden)]
    pub fn pinned(context: &Context, bytes: usize) -> Result<Self> {
        Ok(Buffer { memory: Memory::Pinned(Mapped::pinned(context, bytes)?), bytes })
    }

    /// # Errors
    /// `Run`, where no more memory can be pinned.
    #[doc(hidden)]
    pub fn mapped(context: &Context, bytes: usize) -> Result<Self> {
        Ok(Buffer { memory: Memory::Mapped(Mapped::new(context, bytes)?), bytes })
    }

    /// # Errors
    /// `Run`, where the GPU has no memory left.
    #[doc(hidden)]
    pub fn device(context: &Context, bytes: usize) -> Result<Self> {
        Ok(Buffer { memory: Memory::Device(DeviceMemory::new(context, bytes)?), bytes })
    }

    /// # Errors
    /// `Library`, where host and GPU cannot use such memory at the same time; `Run`, where there is none left.
    #[doc(hidden)]
    pub fn unified(context: &Context, bytes: usize) -> Result<Self> {
        Ok(Buffer { memory: Memory::Unified(Unified::new(context, bytes)?), bytes })
    }

    /// On the GPU where there is one and it has memory left, else on the host. The reason for host memory is returned
    /// for the first buffer of a process only, for that is worth one warning.
    #[doc(hidden)]
    pub fn try_device(context: Option<&Context>, bytes: usize) -> (Self, Option<Error>) {
        static REPORTED: AtomicBool = AtomicBool::new(false);
        Buffer::on_device_or_host(context, bytes, &REPORTED)
    }

    fn on_device_or_host(context: Option<&Context>, bytes: usize, reported: &AtomicBool) -> (Self, Option<Error>) {
        let missing = || Error::new(ErrorKind::Library, "there is no CUDA context");
        let device = context.ok_or_else(missing).and_then(|context| Buffer::device(context, bytes));
        or_else(device, "Using host memory in place of the GPU's", reported, || Buffer::host(bytes))
    }

    /// Unified where host and GPU can share it, else on the GPU; with why, for the first buffer of a process.
    ///
    /// # Errors
    /// `Run`, where the GPU has no memory left.
    #[doc(hidden)]
    pub fn try_unified(context: &Context, bytes: usize) -> Result<(Self, Option<Error>)> {
        static REPORTED: AtomicBool = AtomicBool::new(false);
        let what = "Using the GPU's memory in place of unified memory";
        let unified = Buffer::unified(context, bytes).map(Ok);
        let (buffer, why) = or_else(unified, what, &REPORTED, || Buffer::device(context, bytes));
        buffer.map(|buffer| (buffer, why))
    }

    fn new(kind: MemoryKind, context: Option<&Context>, bytes: usize) -> Result<Self> {
        let context = || {
            context.ok_or_else(|| {
                Error::new(ErrorKind::Settings, format!("There is no {kind} memory without a CUDA context"))
                    .remedy("Give the pool a context, or use host memory")
            })
        };
        match kind {
            MemoryKind::Host => Ok(Buffer { memory: Memory::Host(Host::try_new(bytes)?), bytes }),
            MemoryKind::Pinned => Buffer::pinned(context()?, bytes),
            MemoryKind::Mapped => Buffer::mapped(context()?, bytes),
            MemoryKind::Device => Buffer::device(context()?, bytes),
            MemoryKind::Unified => Buffer::unified(context()?, bytes),
        }
    }

    pub fn kind(&self) -> MemoryKind {
        match self.memory {
            Memory::Host(_) => MemoryKind::Host,
            Memory::Pinned(_) => MemoryKind::Pinned,
            Memory::Mapped(_) => MemoryKind::Mapped,
            Memory::Device(_) => MemoryKind::Device,
            Memory::Unified(_) => MemoryKind::Unified,
        }
    }

    /// How many there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The context of its GPU; `None` for ordinary memory.
    #[doc(hidden)]
    pub fn context(&self) -> Option<&Context> {
        match &self.memory {
            Memory::Host(_) => None,
            Memory::Pinned(memory) | Memory::Mapped(memory) => Some(memory.context()),
            Memory::Device(memory) => Some(memory.context()),
            Memory::Unified(memory) => Some(memory.context()),
        }
    }

    /// The device address; `None` for host memory that the GPU cannot access.
    pub fn address(&self) -> Option<u64> {
        match &self.memory {
            Memory::Host(_) | Memory::Pinned(_) => None,
            Memory::Mapped(memory) => Some(memory.address()),
            Memory::Device(memory) => Some(memory.address()),
            Memory::Unified(memory) => Some(memory.address()),
        }
    }

    /// The bytes, where the host sees them. No queued work writes them: see [`Buffer`].
    pub fn as_bytes(&self) -> Option<&[u8]> {
        let all = match &self.memory {
            Memory::Host(memory) => memory.bytes(),
            Memory::Pinned(memory) | Memory::Mapped(memory) => memory.host(),
            Memory::Device(_) => return None,
            Memory::Unified(memory) => memory.host(),
        };
        Some(&all[..self.bytes])
    }

    /// The same, to be written. No queued work uses them: see [`Buffer`].
    pub fn as_mut_bytes(&mut self) -> Option<&mut [u8]> {
        let all = match &mut self.memory {
            Memory::Host(memory) => memory.bytes_mut(),
            Memory::Pinned(memory) | Memory::Mapped(memory) => memory.host_mut(),
            Memory::Device(_) => return None,
            Memory::Unified(memory) => memory.host_mut(),
        };
        Some(&mut all[..self.bytes])
    }

    /// The elements.
    ///
    /// # Errors
    /// `WrongType`, where they are on the GPU, or the bytes are no whole number of elements.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.check_elements::<T>()?;
        self.as_bytes().map(bytemuck::cast_slice).ok_or_else(unseen)
    }

    /// The elements, to be written.
    ///
    /// # Errors
    /// As [`Buffer::as_slice`].
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.check_elements::<T>()?;
        self.as_mut_bytes().map(bytemuck::cast_slice_mut).ok_or_else(unseen)
    }

    fn check_elements<T: Element>(&self) -> Result<()> {
        if self.bytes.is_multiple_of(size_of::<T>()) {
            Ok(())
        } else {
            Err(Error::new(
                ErrorKind::WrongType,
                format!("{} bytes are no whole number of {} elements", self.bytes, T::DTYPE),
            ))
        }
    }

    /// Copies bytes of the host to `at`, and waits until they are there.
    ///
    /// # Errors
    /// `WrongType`, where they do not fit; `Run`, where the GPU fails.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        self.check_range(at, bytes.len())?;
        match &mut self.memory {
            Memory::Device(memory) => memory.write(at, bytes),
            _ => {
                self.as_mut_bytes().ok_or_else(unseen)?[at..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Copies the bytes from `at` on to the host, and waits until they are there.
    ///
    /// # Errors
    /// `WrongType`, where there are not as many; `Run`, where the GPU fails.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        self.check_range(at, bytes.len())?;
        match &self.memory {
            Memory::Device(memory) => memory.read(at, bytes),
            _ => {
                bytes.copy_from_slice(&self.as_bytes().ok_or_else(unseen)?[at..][..bytes.len()]);
                Ok(())
            }
        }
    }

    /// Copies all of a buffer of the same size, in memory of any kind, and waits until it is done.
    ///
    /// # Errors
    /// `WrongType`, where it has another size; `Run`, where a GPU fails.
    #[doc(hidden)]
    pub fn copy_from(&mut self, other: &Buffer) -> Result<()> {
        if other.bytes != self.bytes {
            return Err(Error::new(ErrorKind::WrongType, "Cannot copy a buffer to one of another size")
                .cause(format!("{} bytes to {}", other.bytes, self.bytes))
                .remedy("Copy parts with read and write"));
        }
        match (&mut self.memory, &other.memory) {
            (Memory::Device(to), Memory::Device(from)) => to.copy(from, other.bytes),
            (Memory::Device(to), _) => to.write(0, other.as_bytes().ok_or_else(unseen)?),
            _ => other.read(0, self.as_mut_bytes().ok_or_else(unseen)?),
        }
    }

    fn check_range(&self, at: usize, bytes: usize) -> Result<()> {
        if at.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::WrongType, "The range is not within the buffer")
                .cause(format!("{bytes} bytes from {at} on, of {}", self.bytes)))
        }
    }
}

/// `wanted`, or else `other`; the first time with the reason.
fn or_else<T>(wanted: Result<T>, what: &str, reported: &AtomicBool, other: impl FnOnce() -> T) -> (T, Option<Error>) {
    match wanted {
        Ok(it) => (it, None),
        Err(missing) => (other(), (!reported.swap(true, Ordering::Relaxed)).then(|| missing.about(what))),
    }
}

fn unseen() -> Error {
    Error::new(ErrorKind::WrongType, "The host does not see the GPU's memory").remedy("Copy it with read or copy_from")
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes, {})", self.bytes, self.kind())
    }
}

#[cfg(test)]
mod tests;
