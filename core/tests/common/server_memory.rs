// SPDX-License-Identifier: MPL-2.0
//! Memory of a GPU that a [server](super::kserve_server) for tests opens by its handle, as another process would.
#![allow(dead_code)] // each test program uses a part

use std::sync::{Arc, Mutex};
use std::{ptr, slice};

use cudarc::driver::sys;
use gsttrt_core::cuda::driver::Context;

use super::kserve_server::ServerGpu;

/// A server's view of the GPU of tests/fakes, whose memory is the host's.
pub struct ServerMemory {
    context: Context,
    opened: Mutex<Vec<u64>>,
}

impl ServerMemory {
    pub fn new(context: Context) -> Arc<Self> {
        Arc::new(ServerMemory { context, opened: Mutex::default() })
    }

    /// As when the server's process ends.
    pub fn close_all(&self) {
        let opened = std::mem::take(&mut *self.opened.lock().unwrap());
        opened.into_iter().for_each(|address| self.close(address));
    }
}

impl ServerGpu for ServerMemory {
    fn open(&self, handle: &[u8], device: i64) -> Option<u64> {
        let handle = sys::CUipcMemHandle { reserved: <[u8; 64]>::try_from(handle).ok()?.map(|byte| byte as _) };
        let mut address = 0;
        // SAFETY: writes an address.
        let opened = self.context.with(|| unsafe { sys::cuIpcOpenMemHandle_v2(&mut address, handle, 1) });
        opened.ok().filter(|_| device == 0)?.result().ok()?;
        self.opened.lock().unwrap().push(address);
        Some(address)
    }

    fn close(&self, address: u64) {
        self.opened.lock().unwrap().retain(|&opened| opened != address);
        // SAFETY: it was opened, and is no longer used.
        let _ = self.context.with(|| unsafe { sys::cuIpcCloseMemHandle(address) });
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        // SAFETY: it is the host's memory, and the client has so many bytes there.
        bytes.copy_from_slice(unsafe { slice::from_raw_parts(address as *const u8, bytes.len()) });
        Some(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Option<()> {
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
        Some(())
    }
}
