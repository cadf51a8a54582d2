//! CUDA without a toolkit: the driver is opened at run time, and where there is none everything says so and nothing breaks.

pub mod driver;
pub mod graph;
pub mod gst;
pub mod kernels;
pub mod pinned;
pub mod preprocess;
