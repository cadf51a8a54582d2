// SPDX-License-Identifier: MPL-2.0
//! Where tensors lie and models run.

use std::fmt;
use std::str::FromStr;

use super::error::{Error, ErrorKind, Result};

/// The host or a GPU. The CUDA context of the memory determines which GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    #[default]
    Host,
    Cuda,
}

impl Device {
    pub const ALL: [Device; 2] = [Device::Host, Device::Cuda];

    /// As in the caps field `tensor`.
    pub const fn name(self) -> &'static str {
        match self {
            Device::Host => "cpu",
            Device::Cuda => "cuda",
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Device::ALL.into_iter().find(|device| device.name() == text).ok_or_else(|| {
            Error::new(ErrorKind::Settings, format!("There is no device “{text}”")).remedy("Use cpu or cuda")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_devices_are_devices() {
        for device in Device::ALL {
            assert_eq!(device.name().parse(), Ok(device));
        }
        for text in ["", "gpu", "CPU", "cuda:0", "host", "cpu "] {
            let error = text.parse::<Device>().unwrap_err().message();
            assert_eq!(error, format!("There is no device “{text}”. Use cpu or cuda."));
        }
    }
}
