// SPDX-License-Identifier: MPL-2.0
//! ONNX Runtime in tests. tests/onnxruntime/fetch.sh brings it; where it is not, tests are skipped, and fail with
//! `REQUIRE_ORT=1`.

use std::path::{Path, PathBuf};

/// The newest release that was tried, and the oldest whose wheel has the library.
pub const NEWEST: &str = "onnxruntime-1.32.0";
pub const OLDEST: &str = "onnxruntime-1.20.0";
/// Fetched only when asked for.
pub const OPENVINO: &str = "onnxruntime-openvino-1.24.1";

/// The folder of a fetched library, if it is there.
pub fn find(name: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?;
    Some(cache.join("gst-plugin-trt/onnxruntime").join(name)).filter(|folder| folder.is_dir())
}

/// Properties of trtinfer, or options of a session, that take that library; without it, it prints SKIP.
pub fn options(name: &str) -> Option<[String; 2]> {
    let Some(folder) = find(name) else {
        let text = format!("{name} is not there; tests/onnxruntime/fetch.sh brings it");
        assert!(std::env::var_os("REQUIRE_ORT").is_none_or(|value| value != "1"), "{text}");
        println!("SKIP: {text}");
        return None;
    };
    Some(["backend=onnxruntime".into(), format!("ort-library={}", folder.display())])
}
