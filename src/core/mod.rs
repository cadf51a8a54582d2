// SPDX-License-Identifier: MPL-2.0
//! What everything else stands on: errors, tensors, memory, CUDA, libraries found at run time. Nothing here knows GStreamer, models or pictures.

pub mod counters;
pub mod cuda;
pub mod device;
pub mod dlpack;
pub mod dtype;
pub(crate) mod dylib;
pub mod error;
pub mod files;
pub mod memory;
pub mod options;
pub mod tensor;
pub mod words;
