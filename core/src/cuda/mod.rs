// SPDX-License-Identifier: MPL-2.0
//! CUDA without a toolkit: the driver is opened at run time. Without a driver, each call returns that as an error.

pub mod driver;
mod fill;
pub mod graph;
mod node;

use std::ffi::CStr;

/// PTX as the driver takes it: text that ends with NUL.
pub(crate) const fn ptx(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("PTX has no NUL but its last"),
    }
}
