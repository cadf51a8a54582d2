// SPDX-License-Identifier: MPL-2.0
//! Surfaces that are mapped, by all threads that read them.

use std::sync::Mutex;

use gsttrt_core::error::Result;

use super::library::{ALL, MAP_READ, Surface, SurfaceParams, done, library};

/// For whom a surface is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedFor {
    Host,
    EglImage,
}

/// A surface that is mapped, and for how many threads.
struct SharedMapping {
    surface: usize,
    view: MappedFor,
    users: usize,
    /// Another element had mapped it, which also unmaps it.
    is_theirs: bool,
}

/// The library writes addresses into the surface, and takes them away when it is unmapped. The threads behind a tee have
/// the same surface, so the first one maps it and the last one unmaps it. The lock is held while the library does so.
static SHARED: Mutex<Vec<SharedMapping>> = Mutex::new(Vec::new());

/// A surface that is mapped, until this is dropped.
pub struct OpenMapping {
    surface: *mut Surface,
    view: MappedFor,
}

impl OpenMapping {
    /// # Safety
    /// The surface has that one picture, and both structures stay until the result is dropped.
    pub unsafe fn new(surface: *mut Surface, params: *mut SurfaceParams, view: MappedFor) -> Result<Self> {
        let library = library()?;
        let mut shared = SHARED.lock().unwrap();
        let is_it = |mapping: &&mut SharedMapping| mapping.surface == surface.addr() && mapping.view == view;
        if let Some(mapping) = shared.iter_mut().find(is_it) {
            mapping.users += 1;
            return Ok(OpenMapping { surface, view });
        }
        // SAFETY: the structures stay by the caller's promise, and what is mapped by this process is locked.
        let (is_theirs, outcome, call) = unsafe {
            let mapped = &raw const (*params).mapped;
            match view {
                MappedFor::Host if !(*mapped).address[0].is_null() => (true, 0, ""),
                MappedFor::Host => (false, (library.map)(surface, 0, ALL, MAP_READ), "NvBufSurfaceMap"),
                MappedFor::EglImage if !(*mapped).egl_image.is_null() => (true, 0, ""),
                MappedFor::EglImage => (false, (library.map_egl_image)(surface, 0), "NvBufSurfaceMapEglImage"),
            }
        };
        done(outcome, call)?;
        shared.push(SharedMapping { surface: surface.addr(), view, users: 1, is_theirs });
        Ok(OpenMapping { surface, view })
    }
}

impl Drop for OpenMapping {
    fn drop(&mut self) {
        let mut shared = SHARED.lock().unwrap();
        let is_it = |mapping: &SharedMapping| mapping.surface == self.surface.addr() && mapping.view == self.view;
        let Some(index) = shared.iter().position(is_it) else { return };
        shared[index].users -= 1;
        if shared[index].users > 0 {
            return;
        }
        let mapping = shared.swap_remove(index);
        if let (false, Ok(library)) = (mapping.is_theirs, library()) {
            // SAFETY: it was mapped, and what made this keeps the surface. Nothing can be done about a failure.
            let _ = unsafe {
                match self.view {
                    MappedFor::Host => (library.unmap)(self.surface, 0, ALL),
                    MappedFor::EglImage => (library.unmap_egl_image)(self.surface, 0),
                }
            };
        }
    }
}
