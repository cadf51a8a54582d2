// SPDX-License-Identifier: MPL-2.0
//! Whether a model finds what its sources need.

use std::path::Path;

use gsttrt_core::error::{Error, ErrorKind};
use gsttrt_core::model::ModelInfo;

use super::super::config::{Findings, ModelConfig, Unmet, ended};
use super::ServedModel;
use crate::failure::Failure;

impl ServedModel {
    /// Checks whether a model has the classes that trtnms is told, and finds what its sources are to hide and to count.
    fn check(&self, findings: &Findings) -> Result<(), String> {
        findings.check_settings().map_err(|Unmet { key, text }| format!("{key}: {text}"))?;
        let sources = self.lock().sources.clone();
        // What this one does not find, models on objects may.
        for source in sources.iter().filter(|source| source.on_objects.is_empty()) {
            let privacy = findings.check_privacy(source.privacy.as_ref());
            let met = privacy.and_then(|()| findings.check_analytics(source.analytics.as_ref()));
            met.map_err(|Unmet { key, text }| format!("source “{}”, {key}: {text}", source.name))?;
        }
        Ok(())
    }

    /// Checks what is known of another file before it is loaded.
    pub fn check_file(&self, file: &Path) -> Result<(), Failure> {
        let findings = Findings::of(&ModelConfig { file: file.into(), ..self.config() });
        let met = self.check(&findings).and_then(|()| self.check_objects(&findings));
        met.map_err(|text| ended(format!("Cannot use {}: {text}", file.display())).into())
    }

    /// Checks that models on objects get some, as the configuration does.
    fn check_objects(&self, findings: &Findings) -> Result<(), String> {
        let source = self.lock().sources.iter().find(|source| !source.on_objects.is_empty()).cloned();
        match source.filter(|_| findings.finds_no_objects()) {
            Some(source) => {
                Err(format!("source “{}”, on-objects: it finds no objects, and others are to see them", source.name))
            }
            None => Ok(()),
        }
    }

    /// The same once all is known that the library knows which is to run it.
    pub(super) fn check_info(&self, info: &ModelInfo) -> gsttrt_core::error::Result<()> {
        let findings = Findings::of_info(&self.config(), info);
        self.lock().vector_length = findings.vector_length.map(|length| (info.path.clone(), length));
        self.check(&findings).map_err(|text| {
            Error::new(ErrorKind::Settings, format!("Cannot use {}", info.path.display()))
                .cause(text.trim_end_matches('?'))
                .remedy("Use a model that finds this, or change what is hidden and counted first")
        })
    }

    /// Numbers of a vector by the file that is in use, where that is known.
    pub fn vector_length(&self) -> Option<usize> {
        let state = self.lock();
        let of_file = state.vector_length.as_ref().filter(|(file, _)| *file == state.config.file);
        of_file.map(|(_, length)| *length)
    }
}
