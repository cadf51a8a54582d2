// SPDX-License-Identifier: MPL-2.0
//! The configuration: read, checked, and with everything that a source needs in one place.

mod keys;
mod plan;
mod properties;
#[cfg(test)]
mod tests;
mod wording;

pub use plan::{Config, ModelPlan, PublishPlan, RecordPlan, StreamPlan};
