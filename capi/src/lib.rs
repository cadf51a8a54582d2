// SPDX-License-Identifier: MPL-2.0
//! [`gsttrt_core::session`] for C: the functions that `include/gsttrt.h` declares and documents.
//!
//! It uses the crate without GStreamer, so applications do not need GStreamer. Handles are numbers, not addresses. No panic
//! unwinds into C.

mod buffer;
mod device;
mod dlpack;
mod error;
mod frame;
mod handles;
mod input;
mod memory;
mod process;
mod results;
mod session;
mod tensor;
mod tracker;

pub use buffer::*;
pub use device::*;
pub use dlpack::*;
pub use error::gst_trt_last_error;
pub use frame::GstTrtFrame;
pub use results::*;
pub use session::*;
pub use tensor::*;
pub use tracker::*;
