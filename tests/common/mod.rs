// SPDX-License-Identifier: MPL-2.0
//! What the tests of elements share: start-up, launch lines run to their end, fixtures made on the spot.
#![allow(dead_code)] // each test program uses a part

pub mod boxes;
pub mod brokers;
#[path = "../../core/tests/common/cases.rs"]
mod cases;
pub mod compared;
#[path = "../../core/tests/common/mod.rs"]
mod core;
pub mod elements;
pub mod hostile_brokers;
pub mod hostile_peer;
pub mod libraries;
pub mod nvmm;
pub mod pipeline;
pub mod preprocess;

#[allow(unused_imports)]
pub use cases::cases;
#[allow(unused_imports)]
pub use core::*;
#[allow(unused_imports)]
pub use pipeline::*;
