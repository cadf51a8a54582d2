// SPDX-License-Identifier: MPL-2.0
//! Memory for frames.

pub mod nvmm;
pub mod pinned;
