// SPDX-License-Identifier: MPL-2.0
//! Which GPUs a configuration names.

use std::collections::BTreeSet;

use super::ini::IniGroup;
use super::written::{NoteKind, WrittenConfig};
use crate::failure::Failure;

/// The numbers of GPUs of all groups that count.
#[derive(Default)]
pub struct NamedGpus {
    numbers: BTreeSet<u32>,
}

impl NamedGpus {
    /// The first of these that names one counts.
    ///
    /// # Errors
    /// It is no number.
    pub fn add<'a>(&mut self, groups: impl IntoIterator<Item = &'a IniGroup>) -> Result<(), Failure> {
        let mut first = None;
        for group in groups {
            let global = group.number::<u32>("global-gpu-id")?;
            let own = group.number::<u32>("gpu-id")?;
            first = first.or(own).or(global);
        }
        self.numbers.extend(first);
        Ok(())
    }

    /// The key of the service, where they are others than the first one.
    pub fn write(&self, file: &str, group: &str, into: &mut WrittenConfig) {
        match self.numbers.iter().collect::<Vec<_>>()[..] {
            [] | [0] => {}
            [gpu] => into.set("gpus", format!("[{gpu}]")),
            ref several => {
                into.set("gpus", format!("{several:?}"));
                let why =
                    "sources are spread over these GPUs, and each model is on all of them: docs/serve.md#several-gpus";
                into.note(NoteKind::NoEffect, file, group, "gpu-id", why);
            }
        }
    }
}
