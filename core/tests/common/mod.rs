// SPDX-License-Identifier: MPL-2.0
//! What tests of the core, of the elements and of the program share, without GStreamer.
#![allow(dead_code)] // each test program uses a part

pub mod compiled;
pub mod endless;
pub mod gpu;
pub mod heap;
pub mod hostile;
pub mod npy;
pub mod onnx;
pub mod openvino;
pub mod ort;
pub mod port;
pub mod quantise;
pub mod random;
pub mod wait;

use std::path::{Path, PathBuf};

/// A file of the project, by its path from the root.
pub fn path(relative: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.join("tests/models").is_dir());
    root.expect("tests run in a checkout").join(relative).display().to_string()
}

/// The trained detector of discs and boxes.
pub fn shapes() -> String {
    path("tests/models/shapes-320.onnx")
}

/// The same for a test that needs some objects, and runs the model a thousand times: it sees two of three, in a quarter of the time.
pub fn quick_shapes() -> String {
    path("tests/models/shapes-160.onnx")
}

/// A folder of its own for a test, empty, under target/.
pub fn scratch(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A value with some fields changed: structures that may get more fields cannot be written out.
pub fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}
