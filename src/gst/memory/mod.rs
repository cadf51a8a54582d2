//! Memory for frames.

pub mod pinned;
