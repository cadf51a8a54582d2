// SPDX-License-Identifier: MPL-2.0
//! Memory of a GPU that other processes open.

use cudarc::driver::sys;

use super::{Check, Context};
use crate::error::Result;

impl Context {
    /// The handle by which another process on this machine opens memory of this one, as bytes to be sent. Where a process has it
    /// open, the memory may be freed only once that has closed it, or has ended.
    ///
    /// # Errors
    /// `Run`, where no allocation of `cuMemAlloc` begins there, or the GPU shares none.
    pub(crate) fn ipc_handle(&self, address: u64) -> Result<[u8; 64]> {
        let _entered = self.enter()?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: writes a handle.
        unsafe { sys::cuIpcGetMemHandle(&mut handle, address) }
            .result()
            .or_fail("Cannot share memory of the GPU with another process")?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }
}
