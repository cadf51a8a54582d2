//! One typed launch per kernel. Each has its Rust twin in [`vision`](crate::vision), to which it is equal in every bit.
//!
//! A kernel takes one structure by value, mirrored here field by field. The sources are in `kernels/`; `kernels/build.sh`
//! compiles them to the PTX that is embedded here.

pub mod boxes;

use std::ffi::CStr;

/// PTX as CUDA wants it: text that ends with NUL.
const fn text(ptx: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(ptx.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("PTX is text"),
    }
}

static DECODE: &CStr = text(concat!(include_str!("../../../kernels/ptx/decode.ptx"), "\0"));
static NMS: &CStr = text(concat!(include_str!("../../../kernels/ptx/nms.ptx"), "\0"));
