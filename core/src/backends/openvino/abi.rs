// SPDX-License-Identifier: MPL-2.0
//! OpenVINO's C API: the functions that are used here, by their names, and its objects
//! (<https://github.com/openvinotoolkit/openvino/tree/master/src/bindings/c/include/openvino/c>).
//!
//! No function lets an exception out: they return a status, and the library keeps the text of the last failure.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::slice;

use libloading::os::unix::Library as Dl;

use super::super::foreign::ForeignObject;

/// An object of the library.
pub type OvObject<T> = ForeignObject<T>;

macro_rules! opaque {
    ($($name:ident)*) => {$(pub enum $name {})*};
}

// `ov_core_t`, `ov_model_t`, `ov_compiled_model_t`, `ov_infer_request_t`, `ov_tensor_t`, `ov_output_const_port_t`.
opaque! { OvCore OvGraph OvCompiled OvRequest OvTensor OvPort }

/// `ov_shape_t`, with as many dimensions as its rank.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct OvShape {
    pub rank: i64,
    pub dims: *mut i64,
}

/// `ov_dimension_t`: the least and the most that it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OvDimension {
    pub least: i64,
    pub most: i64,
}

/// `ov_partial_shape_t`.
#[repr(C)]
pub struct OvPartialShape {
    pub rank: OvDimension,
    pub dims: *mut OvDimension,
}

/// `ov_version_t`.
#[repr(C)]
pub struct OvVersion {
    pub build: *const c_char,
    pub description: *const c_char,
}

/// `ov_available_devices_t`.
#[repr(C)]
pub struct OvDevices {
    pub names: *mut *mut c_char,
    pub count: usize,
}

/// `ov_status_e`.
type Status = c_int;

/// A parameter cannot be what was given; the library has no text for it.
const INVALID_C_PARAM: Status = -14;

/// Behind the model that it writes come as many texts as was said before, each name of a property followed by its value.
type Compile =
    unsafe extern "C" fn(*const OvCore, *const OvGraph, *const c_char, usize, *mut *mut OvCompiled, ...) -> Status;

macro_rules! functions {
    ($($name:ident: $function:ty;)*) => {
        /// Functions of the library, whose names begin with `ov_` there.
        #[derive(Clone, Copy)]
        pub struct OvApi {
            $(pub $name: $function,)*
        }

        impl OvApi {
            /// # Errors
            /// The name of a function that is missing.
            ///
            /// # Safety
            /// Where the library has functions of these names, they are OpenVINO's.
            pub unsafe fn read(dl: &Dl) -> Result<Self, &'static str> {
                Ok(OvApi {
                    $($name: {
                        const NAME: &str = concat!("ov_", stringify!($name));
                        // SAFETY: the functions have had these types since OpenVINO 2023.3, by which all of them came.
                        *unsafe { dl.get::<$function>(NAME) }.map_err(|_| NAME)?
                    },)*
                })
            }
        }
    };
}

functions! {
    get_openvino_version: unsafe extern "C" fn(*mut OvVersion) -> Status;
    version_free: unsafe extern "C" fn(*mut OvVersion);
    get_error_info: unsafe extern "C" fn(Status) -> *const c_char;
    get_last_err_msg: unsafe extern "C" fn() -> *const c_char;
    free: unsafe extern "C" fn(*const c_char);
    core_create: unsafe extern "C" fn(*mut *mut OvCore) -> Status;
    core_free: unsafe extern "C" fn(*mut OvCore);
    core_get_property: unsafe extern "C" fn(*const OvCore, *const c_char, *const c_char, *mut *mut c_char) -> Status;
    core_get_available_devices: unsafe extern "C" fn(*const OvCore, *mut OvDevices) -> Status;
    available_devices_free: unsafe extern "C" fn(*mut OvDevices);
    core_read_model_from_memory_buffer: unsafe extern "C" fn(*const OvCore, *const c_char, usize, *const OvTensor, *mut *mut OvGraph) -> Status;
    core_compile_model: Compile;
    model_inputs_size: unsafe extern "C" fn(*const OvGraph, *mut usize) -> Status;
    model_outputs_size: unsafe extern "C" fn(*const OvGraph, *mut usize) -> Status;
    model_const_input_by_index: unsafe extern "C" fn(*const OvGraph, usize, *mut *mut OvPort) -> Status;
    model_const_output_by_index: unsafe extern "C" fn(*const OvGraph, usize, *mut *mut OvPort) -> Status;
    model_reshape_by_port_indexes: unsafe extern "C" fn(*const OvGraph, *const usize, *const OvPartialShape, usize) -> Status;
    model_free: unsafe extern "C" fn(*mut OvGraph);
    port_get_element_type: unsafe extern "C" fn(*const OvPort, *mut c_int) -> Status;
    const_port_get_shape: unsafe extern "C" fn(*const OvPort, *mut OvShape) -> Status;
    output_const_port_free: unsafe extern "C" fn(*mut OvPort);
    shape_free: unsafe extern "C" fn(*mut OvShape) -> Status;
    compiled_model_output_by_index: unsafe extern "C" fn(*const OvCompiled, usize, *mut *mut OvPort) -> Status;
    compiled_model_create_infer_request: unsafe extern "C" fn(*const OvCompiled, *mut *mut OvRequest) -> Status;
    compiled_model_get_property: unsafe extern "C" fn(*const OvCompiled, *const c_char, *mut *mut c_char) -> Status;
    compiled_model_free: unsafe extern "C" fn(*mut OvCompiled);
    infer_request_set_input_tensor_by_index: unsafe extern "C" fn(*mut OvRequest, usize, *const OvTensor) -> Status;
    infer_request_set_output_tensor_by_index: unsafe extern "C" fn(*mut OvRequest, usize, *const OvTensor) -> Status;
    infer_request_get_output_tensor_by_index: unsafe extern "C" fn(*const OvRequest, usize, *mut *mut OvTensor) -> Status;
    infer_request_start_async: unsafe extern "C" fn(*mut OvRequest) -> Status;
    infer_request_wait: unsafe extern "C" fn(*mut OvRequest) -> Status;
    infer_request_cancel: unsafe extern "C" fn(*mut OvRequest) -> Status;
    infer_request_free: unsafe extern "C" fn(*mut OvRequest);
    tensor_create: unsafe extern "C" fn(c_int, OvShape, *mut *mut OvTensor) -> Status;
    tensor_create_from_host_ptr: unsafe extern "C" fn(c_int, OvShape, *mut c_void, *mut *mut OvTensor) -> Status;
    tensor_get_shape: unsafe extern "C" fn(*const OvTensor, *mut OvShape) -> Status;
    tensor_get_byte_size: unsafe extern "C" fn(*const OvTensor, *mut usize) -> Status;
    tensor_data: unsafe extern "C" fn(*const OvTensor, *mut *mut c_void) -> Status;
    tensor_free: unsafe extern "C" fn(*mut OvTensor);
}

/// What a function failed with.
#[derive(Debug)]
pub struct OvFailure(pub String);

impl OvApi {
    /// # Safety
    /// `status` was returned by a function of this table just now.
    pub unsafe fn check(&self, status: Status) -> Result<(), OvFailure> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the text of a status stays, the other one is the caller's to free. That is of the last failure of any thread,
        // which is nearly always this one.
        let text = unsafe {
            let last = (self.get_last_err_msg)();
            let is_said = !last.is_null() && status != INVALID_C_PARAM;
            let text = copied(if is_said { last } else { (self.get_error_info)(status) });
            if !last.is_null() {
                (self.free)(last);
            }
            text
        };
        Err(OvFailure(readable(&text)))
    }

    /// The object that `make` writes.
    ///
    /// # Safety
    /// `make` calls a function of this table, which writes an object or fails, and `release` is that of such objects.
    pub unsafe fn make<T>(
        &self,
        release: unsafe extern "C" fn(*mut T),
        make: impl FnOnce(*mut *mut T) -> Status,
    ) -> Result<OvObject<T>, OvFailure> {
        let mut raw = ptr::null_mut();
        // SAFETY: the caller's promise.
        unsafe { self.check(make(&mut raw)) }?;
        let raw = NonNull::new(raw).ok_or_else(|| OvFailure("it gave no object".into()))?;
        // SAFETY: it was made for the caller, who says what releases it.
        Ok(unsafe { OvObject::from_raw(raw, release) })
    }

    /// The text that `get` writes.
    ///
    /// # Safety
    /// `get` calls a function of this table, which writes a text that is the caller's, or fails.
    pub unsafe fn text(&self, get: impl FnOnce(*mut *mut c_char) -> Status) -> Result<String, OvFailure> {
        let mut raw = ptr::null_mut();
        // SAFETY: the caller's promise.
        unsafe {
            self.check(get(&mut raw))?;
            let text = copied(raw);
            if !raw.is_null() {
                (self.free)(raw);
            }
            Ok(text)
        }
    }

    /// The dimensions that `get` writes; `None` where it fails, as for those that are open.
    ///
    /// # Safety
    /// `get` calls a function of this table, which writes a shape that is the caller's, or fails.
    pub unsafe fn dims(&self, get: impl FnOnce(*mut OvShape) -> Status) -> Option<Vec<i64>> {
        let mut shape = OvShape { rank: 0, dims: ptr::null_mut() };
        // SAFETY: the caller's promise; there are as many dimensions as the rank says.
        unsafe {
            self.check(get(&mut shape)).ok()?;
            let rank = usize::try_from(shape.rank).unwrap_or(0);
            let dims = match shape.dims.is_null() {
                true => Vec::new(),
                false => slice::from_raw_parts(shape.dims, rank).to_vec(),
            };
            (self.shape_free)(&mut shape);
            Some(dims)
        }
    }
}

/// A text of the library's; an empty one for none.
///
/// # Safety
/// It is null or a C string.
pub unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A text of the library in one line, without the places in its code.
fn readable(text: &str) -> String {
    let is_place = |line: &&str| line.starts_with("Exception from ") || line.starts_with("Check '");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !is_place(line));
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_in_one_line() {
        let text = "Exception from src/inference/src/cpp/core.cpp:105:\nCheck 'false' failed at src/report.cpp:151:\n\
                    Model wasn't fully converted.\n\n  No rule for Frobnicate-13 \n";
        assert_eq!(readable(text), "Model wasn't fully converted. No rule for Frobnicate-13");
        assert_eq!(readable(""), "");
    }
}
