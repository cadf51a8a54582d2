// SPDX-License-Identifier: MPL-2.0
//! The configuration: read, checked, and with everything that a source needs in one place.

mod findings;
mod head;
mod keys;
mod launch;
mod model;
mod model_file;
#[cfg(feature = "otel")]
mod otel_environment;
mod picture_size;
mod places;
mod properties;
pub mod rate;
mod resolved;
pub mod schedule;
mod secrets;
mod shard;
mod size;
#[cfg(test)]
mod tests;
mod time;
mod web_address;
mod wording;

pub use findings::{Findings, Unmet};
pub use head::HeadSettings;
pub use keys::{AskedPicture, Container, GpuChoice, NAME_FORM, RunsOn, is_config_name};
pub use model::ModelConfig;
pub use model_file::{ModelOutcome, ModelSettings};
#[cfg(feature = "otel")]
pub use resolved::OtelConfig;
pub use resolved::{
    AskConfig, Config, IdentitiesConfig, MAX_LENGTH, PublishConfig, RecordConfig, SnapshotConfig, SourceConfig,
    check_files, check_folders,
};
pub use time::parse as parse_time;
pub use wording::{ended, nul};
