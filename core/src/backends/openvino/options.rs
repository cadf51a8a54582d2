// SPDX-License-Identifier: MPL-2.0
//! The user's options for OpenVINO.

use std::path::PathBuf;

use crate::backends::host::{THREADS, wanted_threads};
use crate::backends::options::{BackendOption, INPUT_VALUES, MAX_INPUT_WIDTH, Options};
use crate::backends::tensorrt::{ENGINE_CACHE, PRECISION};
use crate::backends::verify::{VERIFY, VERIFY_EVERY, Verification};
use crate::error::{Error, ErrorKind, Result};
use crate::options::{OptionKind, OptionSpec, OptionValue};

pub static LIBRARY: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "openvino-library",
        nick: "OpenVINO library",
        blurb: "File or folder of the OpenVINO library; it contains code: use only a trusted one (unset = \
                INTEL_OPENVINO_DIR, else what is installed)",
        kind: OptionKind::Path,
    },
    default: OptionValue::Path(None),
    is_in_key: false,
    insists: &[],
};

static DEVICE: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "openvino-device",
        nick: "OpenVINO device",
        blurb: "What OpenVINO computes with: CPU, GPU or NPU, one of several like GPU.1, or several like AUTO:GPU,CPU (unset = CPU)",
        kind: OptionKind::Text,
    },
    default: OptionValue::Text(String::new()),
    is_in_key: false,
    insists: &[],
};

pub static OPTIONS: [&BackendOption; 9] =
    [&LIBRARY, &DEVICE, &THREADS, &PRECISION, &ENGINE_CACHE, &VERIFY, &VERIFY_EVERY, &INPUT_VALUES, &MAX_INPUT_WIDTH];

/// The CPU, as OpenVINO calls it.
pub const CPU: &str = "CPU";

/// The options as OpenVINO takes them.
pub struct OvOptions {
    /// As it spells devices.
    pub device: String,
    /// Of a run, on the CPU.
    pub threads: Option<usize>,
    /// The type that is asked for; `None` leaves it to the device.
    pub precision: Option<&'static str>,
    /// Where compiled models and verdicts are kept; the user's own folder by default.
    pub cache: Option<PathBuf>,
    pub verification: Verification,
}

impl OvOptions {
    /// # Errors
    /// `Settings`, where the device is one of CUDA's.
    pub fn new(options: &Options) -> Result<Self> {
        let text = options.text(&DEVICE);
        let device = match text.trim() {
            "" => CPU.to_string(),
            device => device.to_ascii_uppercase(),
        };
        if device.starts_with("CUDA") || device.starts_with(|first: char| first.is_ascii_digit()) {
            let what = format!("openvino-device={text} is no device of OpenVINO");
            return Err(Error::new(ErrorKind::Settings, what)
                .remedy("Use CPU, GPU or NPU; for GPUs of NVIDIA set backend=tensorrt and cuda-device-id"));
        }
        Ok(OvOptions {
            device,
            threads: wanted_threads(options),
            precision: match options.word(&PRECISION) {
                "fp32" => Some("f32"),
                "fp16" => Some("f16"),
                _ => None, // steps in 8 bits are those of the file
            },
            cache: options.path(&ENGINE_CACHE),
            verification: Verification::of(options),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Result<OvOptions> {
        let option = OPTIONS.into_iter().find(|option| option.spec.name == name).unwrap();
        let mut options = Options::default();
        options.set(option, option.spec.parse(value).unwrap());
        OvOptions::new(&options)
    }

    #[test]
    fn each_option_reaches_openvino() {
        let usual = OvOptions::new(&Options::default()).unwrap();
        assert_eq!((usual.device.as_str(), usual.precision, usual.cache), ("CPU", None, None));
        assert_eq!(with("openvino-device", "gpu.1").unwrap().device, "GPU.1");
        assert_eq!(with("openvino-device", "AUTO:GPU,CPU").unwrap().device, "AUTO:GPU,CPU");
        for (word, precision) in [("auto", None), ("fp32", Some("f32")), ("fp16", Some("f16")), ("int8", None)] {
            assert_eq!(with("precision", word).unwrap().precision, precision, "{word}");
        }
        assert_eq!(with("threads", "1").unwrap().threads, Some(1));
        assert_eq!(with("engine-cache", "/cache").unwrap().cache, Some("/cache".into()));
        assert_eq!(with("verify", "always").unwrap().verification, Verification::Always);
        for device in ["cuda:0", "0"] {
            let error = with("openvino-device", device).err().expect("it is CUDA's");
            assert!(error.message().contains("backend=tensorrt"), "{error}");
        }
    }
}
