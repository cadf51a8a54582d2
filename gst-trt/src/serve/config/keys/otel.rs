// SPDX-License-Identifier: MPL-2.0
//! `[otel]` as it is written. What is left out, variables of the environment say.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Seconds;

#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OtelKeys {
    pub endpoint: Option<String>,
    pub protocol: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    pub headers_file: Option<PathBuf>,
    pub ca_file: Option<PathBuf>,
    /// For the whole of a request with its answer.
    pub timeout: Option<Seconds>,
    pub metrics: Option<bool>,
    pub metric_export_interval: Option<Seconds>,
    pub logs: Option<bool>,
    /// Part of all frames, 0 to 1.
    pub traces_sampling_ratio: Option<f64>,
    pub service_name: Option<String>,
    #[serde(default)]
    pub resource_attributes: BTreeMap<String, String>,
}
