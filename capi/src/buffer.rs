// SPDX-License-Identifier: MPL-2.0
//! Tensors of GStreamer's buffers, which the plugin exports: see [`exporter`].

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::{mem, ptr};

use gsttrt_core::dlpack::exporter::{self, ExportTensor};
use gsttrt_core::dlpack::{DlManagedVersioned, Managed};
use gsttrt_core::error::Result;
use libloading::os::unix::{Library, RTLD_LAZY};

use crate::error::{contained, failed, null, wrong};
use crate::memory::give;

/// `struct _GstBuffer`
pub enum GstBuffer {}

/// See `gsttrt.h`.
///
/// # Safety
/// * `buffer` is NULL or a `GstBuffer` that stays, and is not changed, until this returns.
/// * `stream` is `GST_TRT_STREAM_UNKNOWN`, or a stream of the tensors' CUDA context that stays until the tensor's
///   deleter has been called. For tensors on the host it is not used.
/// * `tensor` is NULL or room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_buffer_tensor(
    buffer: *const GstBuffer,
    index: usize,
    stream: *mut c_void,
    tensor: *mut *mut Managed,
) -> c_int {
    // SAFETY: this function requires the same of its arguments as `export`; `Managed` goes with `versioned` = false.
    unsafe { export(buffer, index, stream, false, tensor) }
}

/// See `gsttrt.h`.
///
/// # Safety
/// As for [`gst_trt_buffer_tensor`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gst_trt_buffer_tensor_versioned(
    buffer: *const GstBuffer,
    index: usize,
    stream: *mut c_void,
    tensor: *mut *mut DlManagedVersioned,
) -> c_int {
    // SAFETY: as in `gst_trt_buffer_tensor`; `DlManagedVersioned` goes with `versioned` = true.
    unsafe { export(buffer, index, stream, true, tensor) }
}

/// # Safety
/// As for [`gst_trt_buffer_tensor`]. `T` is `DlManagedVersioned` if `versioned` is true, else `Managed`.
unsafe fn export<T>(
    buffer: *const GstBuffer,
    index: usize,
    stream: *mut c_void,
    versioned: bool,
    tensor: *mut *mut T,
) -> c_int {
    let prepared = contained(|| {
        // SAFETY: `tensor` is NULL, which `give` refuses, or room for a pointer.
        unsafe { give("tensor", tensor, ptr::null_mut()) }?;
        if buffer.is_null() {
            return Err(null("buffer"));
        }
        plugin()
    });
    let export = match prepared {
        Ok(export) => export,
        Err(code) => return code,
    };
    let mut error = ptr::null_mut();
    // SAFETY: neither `buffer` nor `tensor` is NULL, which was checked. So `buffer` is a `GstBuffer`, `tensor` has room for
    // a pointer, and `stream` is of the buffer's context: this function requires that. `error` is a local variable. The
    // plugin made its text with `strdup`, so it ends with zero and is freed with `free`.
    unsafe {
        let code = export(buffer.cast(), index, stream, versioned.into(), tensor.cast(), &mut error);
        if !error.is_null() {
            failed(code, &CStr::from_ptr(error).to_string_lossy());
            libc::free(error.cast());
        }
        code
    }
}

/// The function that the plugin exports.
fn plugin() -> Result<ExportTensor> {
    static FOUND: OnceLock<ExportTensor> = OnceLock::new();
    if let Some(&found) = FOUND.get() {
        return Ok(found);
    }
    let function = glib_data(exporter::META_API, exporter::DATA).filter(|data| !data.is_null()).ok_or_else(|| {
        wrong("The buffer has no tensors")
            .cause("no trtpreprocess or trtinfer of this library's version is in the program")
            .remedy("Take it behind them, and install plugin and library of one version")
    })?;
    // SAFETY: the plugin stored an `ExportTensor` under this name. The number in the name changes with the function's type.
    // GStreamer never unloads plugins, so it stays.
    let function = unsafe { mem::transmute::<*mut c_void, ExportTensor>(function) };
    Ok(*FOUND.get_or_init(|| function))
}

/// Data that GLib keeps for a type under a name. `None` in a program without GLib, which has no buffers.
fn glib_data(type_name: &CStr, name: &CStr) -> Option<*mut c_void> {
    type Quark = unsafe extern "C" fn(*const c_char) -> u32;
    type TypeFromName = unsafe extern "C" fn(*const c_char) -> usize;
    type TypeData = unsafe extern "C" fn(usize, u32) -> *mut c_void;
    // SAFETY: RTLD_NOLOAD runs no initialisers: it finds only a library that the program has loaded. The types are
    // those of GLib's headers, and GObject links GLib, so `g_quark_try_string` is found through it. Both names are C
    // strings.
    unsafe {
        let gobject = Library::open(Some("libgobject-2.0.so.0"), RTLD_LAZY | libc::RTLD_NOLOAD).ok()?;
        let quark = gobject.get::<Quark>(c"g_quark_try_string").ok()?(name.as_ptr());
        let kind = gobject.get::<TypeFromName>(c"g_type_from_name").ok()?(type_name.as_ptr());
        let data = gobject.get::<TypeData>(c"g_type_get_qdata").ok()?;
        (kind != 0).then(|| data(kind, quark))
    }
}
