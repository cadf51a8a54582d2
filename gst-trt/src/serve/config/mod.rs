// SPDX-License-Identifier: MPL-2.0
//! The configuration: read, checked, and with everything that a source needs in one place.

mod keys;
mod properties;
mod resolved;
#[cfg(test)]
mod tests;
mod wording;

pub use resolved::{Config, ModelConfig, PublishConfig, RecordConfig, SourceConfig};
