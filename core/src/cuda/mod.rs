// SPDX-License-Identifier: MPL-2.0
//! CUDA without a toolkit: the driver is opened at run time. Without a driver, each call returns that as an error.

pub mod driver;
mod fill;
pub mod graph;
pub(crate) mod kernels;
mod node;
