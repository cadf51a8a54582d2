// SPDX-License-Identifier: MPL-2.0
//! When models are verified.

use crate::backends::options::{BackendOption, Options};
use crate::options::{Choice, OptionKind, OptionSpec, OptionValue};

pub static VERIFY: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "verify",
        nick: "Verify",
        blurb: "When the outputs of a loaded model are compared with those of another backend on the CPU",
        kind: OptionKind::Choice {
            type_name: "GstTrtVerify",
            choices: &[
                Choice {
                    word: "auto",
                    blurb: "Once for each TensorRT engine and for what OpenVINO computes in 16 bits; the verdict is kept",
                },
                Choice { word: "always", blurb: "Each time that the model is loaded" },
                Choice { word: "off", blurb: "Never" },
            ],
        },
    },
    default: OptionValue::Choice("auto"),
    is_in_key: false,
    insists: &["always"],
};

/// When a model is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    #[default]
    Auto,
    Always,
    Off,
}

impl Verification {
    pub(in crate::backends) fn of(options: &Options) -> Self {
        match options.word(&VERIFY) {
            "always" => Verification::Always,
            "off" => Verification::Off,
            _ => Verification::Auto,
        }
    }
}
