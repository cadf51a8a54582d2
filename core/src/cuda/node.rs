// SPDX-License-Identifier: MPL-2.0
//! Nodes of CUDA graphs.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use cudarc::driver::sys;

use super::driver::{Check, Function, Launch};
use crate::error::Result;

/// A kernel with its parameters.
pub struct KernelNode<'a> {
    function: &'a Function,
    shape: Launch,
    parameters: *const c_void,
    borrowed: PhantomData<&'a ()>,
}

impl<'a> KernelNode<'a> {
    /// `parameters` is the one structure that the kernel takes by value.
    pub fn new<P: Copy>(function: &'a Function, shape: Launch, parameters: &'a P) -> Self {
        KernelNode { function, shape, parameters: ptr::from_ref(parameters).cast(), borrowed: PhantomData }
    }

    /// Calls `take` with the structure of CUDA's functions, which copy all of it.
    pub(super) fn with_raw(&self, take: impl FnOnce(&sys::CUDA_KERNEL_NODE_PARAMS) -> sys::CUresult) -> Result<()> {
        let Launch { grid, block, shared } = self.shape;
        let mut parameters = [self.parameters.cast_mut()];
        let node = sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.function.raw,
            gridDimX: grid.0,
            gridDimY: grid.1,
            gridDimZ: grid.2,
            blockDimX: block.0,
            blockDimY: block.1,
            blockDimZ: block.2,
            sharedMemBytes: shared,
            kernelParams: parameters.as_mut_ptr(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        };
        take(&node).result().or_fail("Cannot make a CUDA graph of kernels")
    }
}
