// SPDX-License-Identifier: MPL-2.0
//! The kernels as PTX, a module for each source in `kernels/`, and all of them at once. The driver compiles a module where it is
//! loaded: for seconds, for the largest ones, unless its cache on disk has the outcome. Meanwhile the whole context waits.

use super::driver::Context;
use crate::error::Result;

macro_rules! kernels {
    ($($name:ident = $file:literal,)*) => {
        // The driver wants text that ends with NUL.
        $(pub(crate) static $name: &str = concat!(include_str!(concat!("../../kernels/ptx/", $file, ".ptx")), "\0");)*

        fn all() -> impl Iterator<Item = &'static str> {
            [$($name),*].into_iter()
        }
    };
}

kernels! {
    ALIGN = "align",
    ANTIALIAS = "antialias",
    ANTIALIAS_REGIONS = "antialias_regions",
    CLASSES = "classes",
    CLIP = "clip",
    DECODE = "decode",
    FILL = "fill",
    GATHER = "gather",
    JOIN = "join",
    MAP = "map",
    MAP_TINT = "map_tint",
    MASKS = "masks",
    MATCH = "match",
    MOTION = "motion",
    NMS = "nms",
    NORMALISE = "normalise",
    OVERLAY = "overlay",
    PLAN = "plan",
    PREPROCESS_LUMA16 = "preprocess_luma16",
    PREPROCESS_LUMA8 = "preprocess_luma8",
    PREPROCESS_NV12 = "preprocess_nv12",
    PREPROCESS_P010 = "preprocess_p010",
    PREPROCESS_PLANES16 = "preprocess_planes16",
    PREPROCESS_PLANES8 = "preprocess_planes8",
    PREPROCESS_RGB = "preprocess_rgb",
    PRIVACY = "privacy",
    REGIONS = "regions",
    ROTATED = "rotated",
    STROKES = "strokes",
    TINT = "tint",
}

impl Context {
    /// Loads all kernels of this library, so that none is compiled once frames flow: a drawing that begins then would hold up all
    /// streams of the context for seconds. The first time on a machine it takes some seconds; the driver keeps the outcome in
    /// `~/.nv/ComputeCache`, or where `CUDA_CACHE_PATH` says.
    ///
    /// # Errors
    /// `Library` where the driver refuses a module.
    pub fn load_kernels(&self) -> Result<()> {
        all().try_for_each(|ptx| self.module(ptx).map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that is left out would hold up others.
    #[test]
    fn each_source_is_among_them() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/ptx");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), all().count());
    }

    #[test]
    fn all_kernels_load() {
        let Some(context) = crate::test::gpu() else { return };
        context.load_kernels().unwrap();
    }
}
