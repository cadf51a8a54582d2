// SPDX-License-Identifier: MPL-2.0
//! The driver and TensorRT of tests/fakes for the program, which need no GPU.

use std::path::{Path, PathBuf};

use super::compiled::library;
use super::path;

/// In a folder, where the program finds them by `LD_LIBRARY_PATH`.
pub struct Fakes {
    pub folder: PathBuf,
}

impl Fakes {
    pub fn new(folder: &Path) -> Self {
        Self::with(folder, &["cuda.c"])
    }

    /// With a driver that GStreamer's CUDA library takes, that of 1.22, so that elements can be on one of several GPUs.
    pub fn for_gstreamer(folder: &Path) -> Self {
        let fakes = Self::with(folder, &["cuda.c", "gstcuda.c"]);
        std::os::unix::fs::symlink("libcuda.so", folder.join("libcuda.so.1")).unwrap();
        fakes
    }

    fn with(folder: &Path, driver: &[&str]) -> Self {
        for (sources, name, needed) in
            [(driver, "libcuda.so", &[][..]), (&["tensorrt.c"], "libnvinfer.so.10", &["-L.", "-lcuda"])]
        {
            let source = |source: &&str| std::fs::canonicalize(path(&format!("tests/fakes/{source}"))).unwrap();
            library(folder, name, &sources.iter().map(source).collect::<Vec<_>>(), needed);
        }
        let fakes = Fakes { folder: folder.into() };
        fakes.plan("");
        fakes
    }

    /// For the program.
    pub fn variables(&self) -> [(&str, &str); 3] {
        let folder = self.folder.to_str().unwrap();
        [("LD_LIBRARY_PATH", folder), ("GSTTRT_FAKE_PLAN", "plan"), ("XDG_CACHE_HOME", folder)]
    }

    /// What the driver does from now on: "break 700", "lack", "stick", or nothing of that.
    pub fn plan(&self, words: &str) {
        let (file, unfinished) = (self.folder.join("plan"), self.folder.join("unfinished"));
        std::fs::write(&unfinished, words).unwrap();
        std::fs::rename(&unfinished, &file).unwrap();
    }

    /// An engine: one that is read at once, or never to its end.
    pub fn engine(&self, name: &str, ends: bool) -> PathBuf {
        let mut plan = [0; 64];
        plan[..4].copy_from_slice(b"ftrt");
        (plan[16], plan[24], plan[25], plan[63]) = (64, 10, 16, if ends { 1 } else { 2 });
        let file = self.folder.join(name);
        std::fs::write(&file, plan).unwrap();
        file
    }
}
