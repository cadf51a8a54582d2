//! TensorRT.

pub mod cache;
