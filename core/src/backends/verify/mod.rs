// SPDX-License-Identifier: MPL-2.0
//! Whether an engine computes what its model says.
//!
//! Libraries that build engines choose kernels and precisions by themselves, and nobody looks at what comes out: half precision
//! that made maps of a SegFormer unlike those of the model, and rows of a batch that were another picture's, were returned without
//! a word. So each engine is tried before it is used, on pictures of our own:
//!
//! - against another backend in 32-bit floats on the CPU, where the model's ONNX file is there: by its outputs, and by
//!   the results that its head reads in them;
//! - against itself: each place of each size of a batch, next to other pictures, the first run and those after it, which may be a
//!   CUDA graph's, and after runs of another size.
//!
//! While it plays, a frame may be compared from time to time ([`VERIFY_EVERY`]): what goes wrong once in a thousand runs is seen then.
//!
//! How much may differ is in [`Tolerance`]. What an output holds is right where its numbers are near, or where all that is read in
//! it is the same: rows that are nearly as good as each other may change places.

mod drift;
mod judge;
mod option;
mod outputs;
mod pictures;
mod results;
mod tolerance;
mod trial;
mod verdict;
mod watch;

pub use drift::{ClassDrift, Drift, drift};
pub use option::{VERIFY, Verification};
pub use outputs::Difference;
pub use tolerance::Tolerance;
pub use trial::verify;
pub use verdict::{OutputFigures, Verdict};
pub use watch::{Reference, VERIFY_EVERY, Watch, watch_by, watched};
