// SPDX-License-Identifier: MPL-2.0
//! ONNX Runtime's C API: the functions that are used here, by their place in its table, and its objects.
//!
//! The table only ever grows at its end, so that a place means the same function in each release from the one that
//! brought it
//! (<https://github.com/microsoft/onnxruntime/blob/main/include/onnxruntime/core/session/onnxruntime_c_api.h>). No
//! function lets an exception out: they return a status.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use super::super::foreign::ForeignObject;

/// The release of the API whose functions are used: that of ONNX Runtime 1.18.
pub const API_VERSION: u32 = 18;

macro_rules! opaque {
    ($($name:ident)*) => {$(pub enum $name {})*};
}

opaque! { OrtEnv OrtStatus OrtSession OrtSessionOptions OrtRunOptions OrtValue OrtMemoryInfo OrtTensorInfo OrtCudaOptions }

/// `OrtLoggingFunction`: parameter, severity, category, identifier of the logger, place in the code, message.
pub type LogFunction =
    unsafe extern "C" fn(*mut c_void, c_int, *const c_char, *const c_char, *const c_char, *const c_char);

/// What the library exports.
#[repr(C)]
pub struct OrtApiBase {
    pub api: unsafe extern "C" fn(u32) -> *const *const c_void,
    pub version: unsafe extern "C" fn() -> *const c_char,
}

type Status = *mut OrtStatus;
type Texts = *const *const c_char;

macro_rules! functions {
    ($($place:literal $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of `OrtApi`.
        #[derive(Clone, Copy)]
        pub struct OrtApi {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl OrtApi {
            /// # Safety
            /// `table` is what `GetApi` returned for [`API_VERSION`].
            pub unsafe fn read(table: *const *const c_void) -> Self {
                // SAFETY: there are functions of these types at these places, and never null.
                unsafe { OrtApi { $($name: std::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(*table.add($place)),)* } }
            }
        }
    };
}

functions! {
    2 get_error_message(*const OrtStatus) -> *const c_char;
    4 create_env_with_custom_logger(LogFunction, *mut c_void, c_int, *const c_char, *mut *mut OrtEnv) -> Status;
    8 create_session_from_array(*const OrtEnv, *const c_void, usize, *const OrtSessionOptions, *mut *mut OrtSession) -> Status;
    9 run(*mut OrtSession, *const OrtRunOptions, Texts, *const *const OrtValue, usize, Texts, usize, *mut *mut OrtValue) -> Status;
    10 create_session_options(*mut *mut OrtSessionOptions) -> Status;
    24 set_intra_op_num_threads(*mut OrtSessionOptions, c_int) -> Status;
    25 set_inter_op_num_threads(*mut OrtSessionOptions, c_int) -> Status;
    39 create_run_options(*mut *mut OrtRunOptions) -> Status;
    46 run_options_set_terminate(*mut OrtRunOptions) -> Status;
    47 run_options_unset_terminate(*mut OrtRunOptions) -> Status;
    49 create_tensor_with_data_as_ort_value(*const OrtMemoryInfo, *mut c_void, usize, *const i64, usize, c_int, *mut *mut OrtValue) -> Status;
    50 is_tensor(*const OrtValue, *mut c_int) -> Status;
    51 get_tensor_mutable_data(*mut OrtValue, *mut *mut c_void) -> Status;
    60 get_tensor_element_type(*const OrtTensorInfo, *mut c_int) -> Status;
    61 get_dimensions_count(*const OrtTensorInfo, *mut usize) -> Status;
    62 get_dimensions(*const OrtTensorInfo, *mut i64, usize) -> Status;
    65 get_tensor_type_and_shape(*const OrtValue, *mut *mut OrtTensorInfo) -> Status;
    69 create_cpu_memory_info(c_int, c_int, *mut *mut OrtMemoryInfo) -> Status;
    93 release_status(Status);
    94 release_memory_info(*mut OrtMemoryInfo);
    95 release_session(*mut OrtSession);
    96 release_value(*mut OrtValue);
    97 release_run_options(*mut OrtRunOptions);
    99 release_tensor_info(*mut OrtTensorInfo);
    100 release_session_options(*mut OrtSessionOptions);
    125 get_available_providers(*mut *mut *mut c_char, *mut c_int) -> Status;
    126 release_available_providers(*mut *mut c_char, c_int) -> Status;
    130 add_session_config_entry(*mut OrtSessionOptions, *const c_char, *const c_char) -> Status;
    204 append_execution_provider_cuda(*mut OrtSessionOptions, *const OrtCudaOptions) -> Status;
    205 create_cuda_provider_options(*mut *mut OrtCudaOptions) -> Status;
    206 update_cuda_provider_options(*mut OrtCudaOptions, Texts, Texts, usize) -> Status;
    208 release_cuda_provider_options(*mut OrtCudaOptions);
    216 append_execution_provider(*mut OrtSessionOptions, *const c_char, Texts, Texts, usize) -> Status;
    279 add_external_initializers_from_files_in_memory(*mut OrtSessionOptions, Texts, *const *const c_char, *const usize, usize) -> Status;
}

/// What a function failed with.
#[derive(Debug)]
pub struct OrtFailure(pub String);

impl OrtApi {
    /// # Safety
    /// `status` was returned by a function of this table, and is given here once.
    pub unsafe fn check(&self, status: Status) -> Result<(), OrtFailure> {
        if status.is_null() {
            return Ok(());
        }
        // SAFETY: it is a status, whose text lives until it is released.
        unsafe {
            let text = CStr::from_ptr((self.get_error_message)(status)).to_string_lossy().into_owned();
            (self.release_status)(status);
            // Some are spread over lines.
            Err(OrtFailure(text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")))
        }
    }

    /// The object that `make` writes.
    ///
    /// # Safety
    /// `make` calls a function of this table, which writes an object or fails, and `release` is that of such objects.
    pub unsafe fn make<T>(
        &self,
        release: unsafe extern "C" fn(*mut T),
        make: impl FnOnce(*mut *mut T) -> Status,
    ) -> Result<OrtObject<T>, OrtFailure> {
        let mut raw = ptr::null_mut();
        // SAFETY: the caller's promise.
        unsafe { self.check(make(&mut raw)) }?;
        let raw = NonNull::new(raw).ok_or_else(|| OrtFailure("it gave no object".into()))?;
        // SAFETY: it was made for the caller, who says what releases it.
        Ok(unsafe { OrtObject::from_raw(raw, release) })
    }
}

/// An object of the library.
pub type OrtObject<T> = ForeignObject<T>;
