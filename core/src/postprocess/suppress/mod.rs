// SPDX-License-Identifier: MPL-2.0
//! Suppression of boxes that repeat a better one, on the host and, together with decoding, on a GPU.

pub mod device;
mod extents;
mod host;
mod join;
mod params;
mod rotated;
mod sizes;
#[cfg(test)]
mod tests;

pub use host::Nms;
