// SPDX-License-Identifier: MPL-2.0
//! Which GPUs a configuration names. A service has one, which is chosen when it is started.

use super::ini::IniGroup;
use super::written::WrittenConfig;
use crate::failure::Failure;

/// The numbers of GPUs of all groups that count.
#[derive(Default)]
pub struct NamedGpus {
    numbers: Vec<u32>,
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

    /// The only one.
    fn one(&self) -> Option<u32> {
        let (first, others) = self.numbers.split_first()?;
        others.iter().all(|other| other == first).then_some(*first)
    }

    /// Whether models are to name theirs.
    pub fn are_several(&self) -> bool {
        !self.numbers.is_empty() && self.one().is_none()
    }

    pub fn note(&self, file: &str, group: &str, into: &mut WrittenConfig) {
        match self.one() {
            Some(0) => {}
            Some(gpu) => {
                let why = format!("start the service with CUDA_VISIBLE_DEVICES={gpu}: docs/serve.md#several-gpus");
                into.note(file, group, &format!("gpu-id={gpu}"), &why);
            }
            None if self.numbers.is_empty() => {}
            None => {
                // Each of the elements follows its frames, and refuses those of another GPU than it is told.
                let why = "a service is for one GPU, on which its frames are decoded. A model with another cuda-device-id refuses \
                           them. Leave it out, or start a service for each GPU: docs/serve.md#several-gpus";
                into.note(file, group, "gpu-id", why);
            }
        }
    }
}
