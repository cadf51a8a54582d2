// SPDX-License-Identifier: MPL-2.0
//! `GstTrtTensorInfo`: inputs and outputs of a model.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use gsttrt_core::error::Result;
use gsttrt_core::tensor::{DType, TensorDesc};

use crate::error::{c_string, contained, wrong};
use crate::handles::Handles;

/// Opaque: only pointers to it exist.
pub enum GstTrtTensorInfo {}

/// `GST_TRT_NO_TYPE`
const NO_TYPE: c_int = -1;

pub(crate) static TENSORS: Handles<TensorInfo> =
    Handles::new("tensor", "gst_trt_session_input or gst_trt_session_output, of a session that is not closed");

/// The object of a handle.
pub(crate) struct TensorInfo {
    name: CString,
    desc: TensorDesc,
}

impl TensorInfo {
    pub fn new(desc: &TensorDesc) -> Self {
        TensorInfo { name: c_string(&desc.name), desc: desc.clone() }
    }
}

fn get<T>(tensor: *const GstTrtTensorInfo, what: impl FnOnce(&TensorInfo) -> Result<T>) -> Option<T> {
    contained(|| what(&*TENSORS.find(tensor)?)).ok()
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_tensor_info_name(tensor: *const GstTrtTensorInfo) -> *const c_char {
    get(tensor, |tensor| Ok(tensor.name.as_ptr())).unwrap_or(ptr::null())
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_tensor_info_type(tensor: *const GstTrtTensorInfo) -> c_int {
    let number = |tensor: &TensorInfo| {
        let all = DType::ALL.iter().position(|&dtype| dtype == tensor.desc.dtype);
        Ok(all.expect("all are there") as c_int)
    };
    get(tensor, number).unwrap_or(NO_TYPE)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_tensor_info_rank(tensor: *const GstTrtTensorInfo) -> usize {
    get(tensor, |tensor| Ok(tensor.desc.dims.len())).unwrap_or(0)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_tensor_info_dim(tensor: *const GstTrtTensorInfo, axis: usize) -> i64 {
    let dim = |tensor: &TensorInfo| {
        let found = tensor.desc.dims.get(axis).copied();
        found.ok_or_else(|| wrong(format!("There is no axis {axis}: {} has {}", tensor.desc, tensor.desc.dims.len())))
    };
    get(tensor, dim).unwrap_or(0)
}

/// See `gsttrt.h`.
#[unsafe(no_mangle)]
pub extern "C" fn gst_trt_tensor_info_bytes(tensor: *const GstTrtTensorInfo) -> usize {
    get(tensor, |tensor| Ok(tensor.desc.bytes().expect("a session's tensors have fixed dimensions"))).unwrap_or(0)
}
