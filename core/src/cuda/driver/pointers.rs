// SPDX-License-Identifier: MPL-2.0
//! The driver's attributes of addresses that are not ours.

use std::ffi::c_void;

use cudarc::driver::sys;

use super::{Check, Context};
use crate::error::{Error, ErrorKind, Result};

/// Whether the driver knows the memory that it was asked about.
///
/// # Errors
/// `DeviceLost`.
fn is_known(answer: sys::CUresult) -> Result<bool> {
    match answer.result().or_fail("Cannot ask what memory that is") {
        Err(error) if error.kind() == ErrorKind::DeviceLost => Err(error),
        answer => Ok(answer.is_ok()),
    }
}

impl Context {
    /// Whether the GPU reads host memory as fast as its own: it shares it (Jetson), or a coherent link (Grace Hopper, GB10).
    pub fn reads_host_memory_well(&self) -> Result<bool> {
        use sys::CUdevice_attribute::*;
        let asked = [CU_DEVICE_ATTRIBUTE_INTEGRATED, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES];
        asked.into_iter().try_fold(false, |found, attribute| Ok(found || self.attribute(attribute)? != 0))
    }

    /// The device address of host memory; `None` where the GPU cannot access it: only some GPUs can access ordinary memory.
    pub fn address_of(&self, host: *const u8) -> Result<Option<u64>> {
        use sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS;
        match self.address_of_pinned(host)? {
            None if self.attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)? != 0 => Ok(Some(host as u64)),
            address => Ok(address),
        }
    }

    /// The device address of pinned memory; `None` for other memory of the host.
    pub fn address_of_pinned(&self, host: *const u8) -> Result<Option<u64>> {
        let _entered = self.enter()?;
        let mut address = 0u64;
        // SAFETY: writes an address; any may be asked for.
        let known = is_known(unsafe {
            sys::cuPointerGetAttribute(
                (&raw mut address).cast(),
                sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                host as u64,
            )
        })?;
        Ok((known && address != 0).then_some(address))
    }

    /// Whether memory at an address was allocated in another context, whose memory this one cannot access. Where that
    /// is not known, it was not.
    pub fn is_of_another(&self, address: u64) -> Result<bool> {
        let _entered = self.enter()?;
        let mut owner: sys::CUcontext = std::ptr::null_mut();
        // SAFETY: writes a handle; any address may be asked for.
        let known = is_known(unsafe {
            sys::cuPointerGetAttribute(
                (&raw mut owner).cast(),
                sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
                address,
            )
        })?;
        Ok(known && !owner.is_null() && owner.cast() != self.raw())
    }

    /// Whether there are so many bytes of this GPU's memory.
    ///
    /// # Errors
    /// `WrongType`, with what is there instead.
    pub fn check_memory(&self, address: u64, bytes: usize) -> Result<()> {
        use sys::CUpointer_attribute::*;
        let _entered = self.enter()?;
        let end = address.saturating_add(bytes as u64);
        let mut at = address;
        // Memory that is mapped piece by piece is known piece by piece.
        while at < end {
            let (mut kind, mut device, mut start, mut size) = (0u32, -1i32, 0u64, 0usize);
            let mut asked = [
                CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            ];
            let mut answers: [*mut c_void; 4] =
                [(&raw mut kind).cast(), (&raw mut device).cast(), (&raw mut start).cast(), (&raw mut size).cast()];
            // SAFETY: as many variables of the attributes' types; any address may be queried.
            unsafe { sys::cuPointerGetAttributes(4, asked.as_mut_ptr(), answers.as_mut_ptr(), at) }
                .result()
                .or_fail("Cannot ask what memory that is")?;
            let wrong = |cause: String| Err(Error::new(ErrorKind::WrongType, "The memory cannot be used").cause(cause));
            if kind != sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32 {
                return wrong(format!("{at:#x} is not memory of a GPU"));
            }
            if device != self.device() {
                return wrong(format!("{at:#x} is memory of GPU {device}, not of GPU {}", self.device()));
            }
            let piece = start.saturating_add(size as u64);
            if piece <= at {
                return wrong(format!(
                    "{} bytes are needed from {address:#x} on, and {} are there",
                    bytes,
                    at - address
                ));
            }
            at = piece;
        }
        Ok(())
    }
}
