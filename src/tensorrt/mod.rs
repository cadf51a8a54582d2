//! TensorRT without its SDK: found at run time, whichever of 8.6, 10, 11 or RTX is there.
//!
//! # Layout
//!
//! * [`library`]: finds and opens it, and says which release it is.
//! * [`abi`]: its C++ classes as tables of numbers; [`interfaces`]: the C++ objects that it calls.
//! * [`header`]: what an engine file says of itself; [`engine`]: running one.
//! * [`builder`]: from ONNX to an engine; [`onnx`]: what it asks the file itself; [`cache`]: engines built before.
//!
//! Nothing here knows of GStreamer or of frames: tensors are addresses on the GPU.

pub mod abi;
pub mod builder;
pub mod cache;
pub mod engine;
pub mod exit;
pub mod header;
pub mod interfaces;
pub mod library;
pub mod onnx;
