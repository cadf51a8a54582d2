// SPDX-License-Identifier: MPL-2.0
//! The GPUs of the service, and which of them a source is on.

use std::path::Path;

use gsttrt_core::cuda::driver;
use gsttrt_core::files::{endless_key, read_regular};

use super::config::{GpuChoice, MAX_LENGTH};
use crate::failure::Failure;

/// What CUDA reads when it starts.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
const ORDER: &str = "CUDA_DEVICE_ORDER";

/// Shows CUDA the GPUs that a configuration names, and no others: those of other processes stay free of contexts, and of the
/// parts of a GPU (MIG) CUDA shows only one that is named. Called before CUDA and any thread has been started. What is wrong in the
/// file is said when it is loaded.
pub fn show(file: &Path) -> Result<(), Failure> {
    let Some(GpuChoice::These(gpus)) = choice(file) else { return Ok(()) };
    if let Ok(visible) = std::env::var(VISIBLE) {
        return Err(format!(
            "gpus names GPUs, and {VISIBLE}={visible} in the environment does, too. Write gpus = \"all\" for those, or \
             remove the variable."
        )
        .into());
    }
    // SAFETY: there is no other thread yet that could read the environment.
    unsafe {
        std::env::set_var(VISIBLE, gpus.join(","));
        // As nvidia-smi counts them.
        if std::env::var_os(ORDER).is_none() {
            std::env::set_var(ORDER, "PCI_BUS_ID");
        }
    }
    Ok(())
}

fn choice(file: &Path) -> Option<GpuChoice> {
    #[derive(serde::Deserialize)]
    struct Keys {
        gpus: Option<GpuChoice>,
    }
    let text = String::from_utf8(read_regular(file, MAX_LENGTH).ok()?).ok()?;
    if endless_key(&text).is_some() { None } else { toml::from_str::<Keys>(&text).ok()?.gpus }
}

/// GPUs that sources are spread over, by CUDA's numbers from 0.
#[derive(Clone, Copy, Default)]
pub struct Gpus {
    count: usize,
}

impl Gpus {
    /// Those that CUDA shows, and what is missing. Without a choice there are none: all is on the first one then, as everywhere.
    pub fn find(choice: Option<&GpuChoice>) -> (Self, Option<String>) {
        let count = match choice {
            Some(_) => driver::device_count(),
            None => return (Gpus::default(), None),
        };
        let warning = match (choice, &count) {
            (_, Err(error)) => Some(format!("gpus: there is none here, so all is on the CPU: {}", error.message())),
            (Some(GpuChoice::These(named)), Ok(count)) if (*count as usize) < named.len() => Some(format!(
                "gpus names {}, and CUDA shows {count} of {}: it passes over a GPU that it does not know, and over those behind \
                 it. nvidia-smi -L lists them",
                named.join(", "),
                named.len()
            )),
            (Some(GpuChoice::All), Ok(0)) => Some("gpus: there is none here, so all is on the CPU".into()),
            _ => None,
        };
        (Gpus { count: count.map_or(0, |count| count as usize) }, warning)
    }

    /// The one with the fewest sources, where these have one each.
    pub fn place(self, taken: impl Iterator<Item = i32>) -> Option<i32> {
        let mut counts = vec![0u32; self.count];
        taken.for_each(|gpu| counts[gpu as usize] += 1);
        counts.iter().enumerate().min_by_key(|(_, count)| **count).map(|(gpu, _)| gpu as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_go_where_there_are_the_fewest() {
        let gpus = Gpus { count: 3 };
        let mut places = Vec::new();
        for _ in 0..7 {
            places.extend(gpus.place(places.iter().copied()));
        }
        assert_eq!(places, [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(gpus.place([0, 0, 2].into_iter()), Some(1));
        assert_eq!(Gpus::default().place(std::iter::empty()), None);
    }
}
