// SPDX-License-Identifier: MPL-2.0
//! Parts of host memory that an owner keeps.

use std::ptr::NonNull;
use std::sync::Arc;

use super::PooledBuffer;

/// Host memory, or a part of it, that is only read from now on. The last part releases its owner.
#[derive(Clone)]
pub struct HostBlock {
    begin: NonNull<u8>,
    bytes: usize,
    /// Kept for its drop.
    owner: Arc<dyn Send + Sync>,
}

// SAFETY: plain memory that is only read, of an owner that any thread may keep.
unsafe impl Send for HostBlock {}
// SAFETY: as above.
unsafe impl Sync for HostBlock {}

impl HostBlock {
    /// # Panics
    /// If the host does not see the memory.
    pub fn new(lease: PooledBuffer) -> Self {
        let bytes = lease.as_bytes().expect("memory of the host");
        let (begin, bytes) = (NonNull::from(bytes).cast(), bytes.len());
        HostBlock { begin, bytes, owner: Arc::new(lease) }
    }

    /// Memory of another owner.
    ///
    /// # Safety
    /// There are so many bytes. As long as `owner` lives they stay, and nothing writes them.
    pub unsafe fn foreign(begin: NonNull<u8>, bytes: usize, owner: Arc<dyn Send + Sync>) -> Self {
        HostBlock { begin, bytes, owner }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the owner keeps them, and nothing writes them.
        unsafe { std::slice::from_raw_parts(self.begin.as_ptr(), self.bytes) }
    }

    /// A part of it, which keeps the whole.
    ///
    /// # Panics
    /// If it does not lie within.
    pub fn part(&self, offset: usize, bytes: usize) -> Self {
        let begin = NonNull::from(&self.bytes()[offset..][..bytes]).cast();
        HostBlock { begin, bytes, owner: self.owner.clone() }
    }
}
