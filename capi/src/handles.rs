// SPDX-License-Identifier: MPL-2.0
//! Handles, by which the program refers to objects: numbers, not addresses, and none is given twice. So a closed or
//! invalid handle is an error like any other.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use gsttrt_core::error::Result;

use crate::error::wrong;

/// The open objects of one type.
pub(crate) struct Handles<T> {
    /// The argument's name.
    name: &'static str,
    /// The function that makes such an object.
    source: &'static str,
    open: RwLock<BTreeMap<usize, Arc<T>>>,
}

impl<T> Handles<T> {
    pub const fn new(name: &'static str, source: &'static str) -> Self {
        Handles { name, source, open: RwLock::new(BTreeMap::new()) }
    }

    /// Makes a handle, whose type in C is `H`.
    pub fn add<H>(&self, object: T) -> *mut H {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(object));
        ptr::without_provenance_mut(number)
    }

    pub fn find<H>(&self, handle: *const H) -> Result<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle.addr()).cloned().ok_or_else(|| {
            let cause = if handle.is_null() { "it is NULL" } else { "it is closed already, or never was one" };
            wrong(format!("The argument {} is not open", self.name))
                .cause(cause)
                .remedy(format!("Take it from {}", self.source))
        })
    }

    /// Closes a handle. The object is dropped when no other thread uses it.
    pub fn remove<H>(&self, handle: *const H) -> Option<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.addr())
    }
}
