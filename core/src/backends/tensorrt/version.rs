// SPDX-License-Identifier: MPL-2.0
//! Which TensorRT: its products and their releases.

use std::fmt;

/// The two products whose plans are not each other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    TensorRt,
    /// For RTX GPUs; compiles kernels when a plan is loaded.
    Rtx,
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Product::TensorRt => "TensorRT",
            Product::Rtx => "TensorRT-RTX",
        })
    }
}

/// A release of TensorRT, "10.16.1" or "8.6.0.12".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
    pub build: Option<u32>,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        self.build.map_or(Ok(()), |build| write!(f, ".{build}"))
    }
}
