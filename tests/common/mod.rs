// SPDX-License-Identifier: MPL-2.0
//! What the integration tests share: start-up, launch lines run to their end, fixtures made on the spot.
#![allow(dead_code)] // each test binary uses a part

#[cfg(feature = "gstreamer")]
pub mod boxes;
#[cfg(feature = "gstreamer")]
pub mod brokers;
#[cfg(feature = "gstreamer")]
pub mod elements;
pub mod gpu;
pub mod heap;
pub mod hostile;
#[cfg(feature = "gstreamer")]
pub mod nvmm;
pub mod onnx;
pub mod ort;
#[cfg(feature = "gstreamer")]
pub mod pipeline;
#[cfg(feature = "gstreamer")]
pub mod preprocess;
pub mod quantise;
pub mod random;

use std::path::PathBuf;

#[cfg(feature = "gstreamer")]
#[allow(unused_imports)]
pub use pipeline::*;

/// A file of the project, by its path from the root.
pub fn path(relative: &str) -> String {
    format!("{}/{relative}", env!("CARGO_MANIFEST_DIR"))
}

/// The trained detector of discs and boxes.
pub fn shapes() -> String {
    path("tests/models/shapes.onnx")
}

/// A folder of its own for a test, empty, under target/.
pub fn scratch(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
