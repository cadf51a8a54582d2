// SPDX-License-Identifier: MPL-2.0
//! Whether a model finds what its sources need.

use std::path::Path;

use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::model::ModelInfo;

use super::super::config::{Findings, ModelConfig, Unmet, ended};
use super::ServedModel;
use crate::failure::Failure;

impl ServedModel {
    /// Checks whether a model has the classes that trtnms is told, and finds what its sources are to hide and to count, and objects
    /// where others are to see them.
    fn check(&self, findings: &Findings) -> Result<(), String> {
        findings.check_settings().map_err(|Unmet { key, text }| format!("{key}: {text}"))?;
        for source in self.sources() {
            // What this one does not find, models on objects may hide. What they find has no ids, and is not counted.
            let hidden = source.privacy.as_ref().filter(|_| source.on_objects.is_empty());
            let met = findings.check_privacy(hidden);
            let met = met.and_then(|()| findings.check_analytics(source.analytics.as_ref()));
            met.map_err(|Unmet { key, text }| format!("source “{}”, {key}: {text}", source.name))?;
            if !source.on_objects.is_empty() && findings.finds_no_objects() {
                let text = "on-objects: it finds no objects, and others are to see them";
                return Err(format!("source “{}”, {text}", source.name));
            }
        }
        Ok(())
    }

    /// Checks what is known of another file before it is loaded.
    pub fn check_file(&self, file: &Path) -> Result<(), Failure> {
        let findings = Findings::of(&ModelConfig { file: file.into(), ..self.config() });
        self.check(&findings).map_err(|text| ended(format!("Cannot use {}: {text}", file.display())).into())
    }

    /// The same once all is known that the library knows which is to run it.
    pub(super) fn check_info(&self, info: &ModelInfo) -> gsttrt_core::error::Result<()> {
        let findings = Findings::of_info(&self.config(), info);
        self.lock().vector_length = findings.vector_length.map(|length| (info.path.clone(), length));
        self.check(&findings).map_err(|text| {
            Error::new(ErrorKind::Settings, format!("Cannot use {}", info.path.display()))
                .cause(text.trim_end_matches('?'))
                .remedy("Use a model that finds this, or change what its sources need first")
        })
    }

    /// Numbers of a vector by the file that is in use, where that is known.
    pub fn vector_length(&self) -> Option<usize> {
        let state = self.lock();
        let of_file = state.vector_length.as_ref().filter(|(file, _)| *file == state.config.file);
        of_file.map(|(_, length)| *length)
    }
}
