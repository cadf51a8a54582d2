// SPDX-License-Identifier: MPL-2.0
//! OpenVINO in tests. tests/openvino/fetch.sh brings it; where it is not, tests are skipped, and fail with
//! `REQUIRE_OPENVINO=1`.

use std::path::{Path, PathBuf};

/// The newest release and the oldest that were tried.
pub const NEWEST: &str = "openvino-2026.4.0";
pub const OLDEST: &str = "openvino-2024.3.0";

/// The folder of a fetched library, if it is there.
fn find(name: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?;
    Some(cache.join("gst-plugin-trt/openvino").join(name)).filter(|folder| folder.is_dir())
}

/// Properties of trtinfer, or options of a session, that take that library, and keep what it compiles among the files of
/// tests; without it, it prints SKIP.
pub fn options(name: &str) -> Option<[String; 3]> {
    let Some(folder) = find(name) else {
        let text = format!("{name} is not there; tests/openvino/fetch.sh brings it");
        assert!(std::env::var_os("REQUIRE_OPENVINO").is_none_or(|value| value != "1"), "{text}");
        println!("SKIP: {text}");
        return None;
    };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openvino-cache");
    let library = format!("openvino-library={}", folder.display());
    Some(["backend=openvino".into(), library, format!("engine-cache={}", cache.display())])
}
