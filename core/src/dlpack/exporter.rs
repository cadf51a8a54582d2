// SPDX-License-Identifier: MPL-2.0
//! What the plugin and the C library agree on, so that the library can export tensors of frames.
//!
//! They are two files, perhaps of two versions, and the tensors of a frame are the plugin's. So the library asks the
//! plugin, by one function with the ABI of C. The plugin attaches it to the type of its meta by `g_type_set_qdata()`,
//! so the library needs no GStreamer.

use std::ffi::{CStr, c_char, c_int, c_void};

/// The name of the meta's API type.
pub const META_API: &CStr = c"GstTrtTensorMetaAPI";

/// The name of the type's data that is an [`ExportTensor`]; the number changes with the function's type.
pub const DATA: &CStr = c"gst-trt-export-tensor-1";

/// Exports a tensor of a frame.
///
/// * `buffer`: a `GstBuffer`.
/// * `index`: which of its tensors, counted from 0.
/// * `stream`: where the caller works on it, as [`Consumer::from_raw`](super::Consumer::from_raw) takes it.
/// * `versioned`: not 0 for a `DLManagedTensorVersioned`, else `tensor` becomes a `DLManagedTensor`.
/// * `error`: what failed, a text to be freed with `free()`.
///
/// Returns 0, the number of an [`ErrorKind`](crate::error::ErrorKind), or [`PANIC`].
pub type ExportTensor = unsafe extern "C" fn(
    buffer: *const c_void,
    index: usize,
    stream: *mut c_void,
    versioned: c_int,
    tensor: *mut *mut c_void,
    error: *mut *mut c_char,
) -> c_int;

/// `GST_TRT_PANIC`, which is no kind of error but a bug.
pub const PANIC: c_int = 9;
