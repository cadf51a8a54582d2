//! Frame to tensor: on the host, and on a GPU with the same result in every bit.

pub mod color;
pub mod device;
pub mod host;
pub mod kernel;
pub(crate) mod sampler;

pub use host::{HostPreprocessor, MAX_SIDE};
