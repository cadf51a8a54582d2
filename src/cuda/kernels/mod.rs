//! The kernels' Rust faces.

pub mod boxes;

use std::ffi::CStr;

const fn text(ptx: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(ptx.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!(),
    }
}

static DECODE: &CStr = text(concat!(include_str!("../../../kernels/ptx/decode.ptx"), "\0"));
static NMS: &CStr = text(concat!(include_str!("../../../kernels/ptx/nms.ptx"), "\0"));
