// SPDX-License-Identifier: MPL-2.0
//! The user's options for TensorRT.

use std::path::PathBuf;

use super::builder::{BuildOptions, Precision};
use super::engine::RuntimeOptions;
use crate::backends::options::{BackendOption, INPUT_VALUES, MAX_INPUT_WIDTH, Options};
use crate::backends::verify::{VERIFY, VERIFY_EVERY, Verification};
use crate::options::{Choice, OptionKind, OptionSpec, OptionValue};

static LIBRARY: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "trt-library",
        nick: "TensorRT library",
        blurb: "File or folder of the TensorRT library to use (unset = the newest that is found)",
        kind: OptionKind::Path,
    },
    default: OptionValue::Path(None),
    is_in_key: false, // the key has its release
    insists: &[],
};

static ALLOW_HOST_CODE: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "allow-host-code",
        nick: "Allow host code",
        blurb: "Let an engine run CPU code that it carries, as version-compatible engines do. Such code can do all \
                that this user can: only for engines you trust",
        kind: OptionKind::Flag,
    },
    default: OptionValue::Flag(false),
    is_in_key: false,
    insists: &[],
};

static DLA_CORE: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "dla-core",
        nick: "DLA core",
        blurb: "Deep-learning accelerator of a Jetson to run on (-1 = the GPU)",
        kind: OptionKind::Int(-1..=15),
    },
    default: OptionValue::Int(-1),
    is_in_key: true,
    insists: &[],
};

pub(in crate::backends) static PRECISION: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "precision",
        nick: "Precision",
        blurb: "Precision of the engine built from an ONNX file, and of what OpenVINO computes",
        kind: OptionKind::Choice {
            type_name: "GstTrtPrecision",
            choices: &[
                Choice {
                    word: Precision::Auto.name(),
                    blurb: "FP16 where the file is in FP32 and the GPU is fast at it, else the types in the file; with OpenVINO \
                            what its device prefers, such as BF16 on a CPU with AMX",
                },
                Choice { word: Precision::Fp32.name(), blurb: "32-bit float" },
                Choice { word: Precision::Fp16.name(), blurb: "16-bit float where it is faster" },
                Choice {
                    word: Precision::Int8.name(),
                    blurb: "8-bit integers where they are faster, by the model's Q/DQ nodes or a calibration cache",
                },
            ],
        },
    },
    default: OptionValue::Choice(Precision::Auto.name()),
    is_in_key: true,
    insists: &[],
};

static CALIBRATION: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "int8-calibration-cache",
        nick: "INT8 calibration cache",
        blurb: "Calibration table for precision=int8, as TensorRT's calibrators write it",
        kind: OptionKind::Path,
    },
    default: OptionValue::Path(None),
    is_in_key: true,
    insists: &[],
};

static WORKSPACE: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "workspace-mib",
        nick: "Workspace",
        blurb: "Maximum MiB of GPU memory for the layers' work (0 = no limit)",
        kind: OptionKind::UInt(0..=u32::MAX),
    },
    default: OptionValue::UInt(0),
    is_in_key: true,
    insists: &[],
};

static LEVEL: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "optimization-level",
        nick: "Optimization level",
        blurb: "How long TensorRT may look for faster kernels: 0 builds in seconds, 5 in many minutes",
        kind: OptionKind::UInt(0..=5),
    },
    default: OptionValue::UInt(3),
    is_in_key: true,
    insists: &[],
};

static ENGINE_BUILD: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "engine-build",
        nick: "Engine build",
        blurb: "Whether to build an engine from an ONNX file that has none in the cache",
        kind: OptionKind::Choice {
            type_name: "GstTrtEngineBuild",
            choices: &[
                Choice { word: "auto", blurb: "Build what the cache does not have" },
                Choice { word: "never", blurb: "Fail instead; for machines that must not spend minutes on it" },
            ],
        },
    },
    default: OptionValue::Choice("auto"),
    is_in_key: false,
    insists: &[],
};

pub(in crate::backends) static ENGINE_CACHE: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "engine-cache",
        nick: "Engine cache",
        blurb: "Folder of built engines and of what OpenVINO has compiled (unset = gst-plugin-trt/engines in the user's cache)",
        kind: OptionKind::Path,
    },
    default: OptionValue::Path(None),
    is_in_key: false,
    insists: &[],
};

static CUDA_GRAPH: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "cuda-graph",
        nick: "CUDA graph",
        blurb: "Whether TensorRT's work for a frame is captured in a CUDA graph and launched by one call",
        kind: OptionKind::Choice {
            type_name: "GstTrtCudaGraph",
            choices: &[
                Choice { word: "auto", blurb: "Record runs where the engine allows it" },
                Choice { word: "on", blurb: "Record runs, and fail where that is impossible" },
                Choice { word: "off", blurb: "Queue the kernels of each run one by one" },
            ],
        },
    },
    default: OptionValue::Choice("auto"),
    is_in_key: false,
    insists: &["on"],
};

pub(super) static OPTIONS: [&BackendOption; 14] = [
    &LIBRARY,
    &ALLOW_HOST_CODE,
    &DLA_CORE,
    &PRECISION,
    &CALIBRATION,
    &WORKSPACE,
    &LEVEL,
    &ENGINE_BUILD,
    &ENGINE_CACHE,
    &CUDA_GRAPH,
    &VERIFY,
    &VERIFY_EVERY,
    &INPUT_VALUES,
    &MAX_INPUT_WIDTH,
];

/// The options as TensorRT takes them.
#[derive(Clone, Debug)]
pub struct TrtOptions {
    /// File or folder; the newest that is found by default.
    pub library: Option<PathBuf>,
    pub runtime: RuntimeOptions,
    /// Without shapes, which depend on the model.
    pub build: BuildOptions,
    /// Take engines from the cache, and build none.
    pub never_build: bool,
    /// The user's own by default.
    pub cache: Option<PathBuf>,
    pub graphs: GraphMode,
    pub verification: Verification,
}

/// Whether runs are captured as CUDA graphs, which cost the host one call each instead of one for each kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphMode {
    /// Where the engine can be captured.
    #[default]
    Auto,
    /// It is an error where it cannot.
    On,
    Off,
}

impl From<&Options> for TrtOptions {
    fn from(options: &Options) -> Self {
        let dla_core = Some(options.number(&DLA_CORE) as i32).filter(|&core| core >= 0);
        TrtOptions {
            library: options.path(&LIBRARY),
            runtime: RuntimeOptions { allow_host_code: options.flag(&ALLOW_HOST_CODE), dla_core },
            build: BuildOptions {
                precision: options.word(&PRECISION).parse().unwrap_or_default(),
                calibration: options.path(&CALIBRATION),
                workspace_mib: Some(options.number(&WORKSPACE) as u32).filter(|&mib| mib > 0),
                level: Some(options.number(&LEVEL) as u8),
                dla_core,
                ..BuildOptions::default()
            },
            never_build: options.word(&ENGINE_BUILD) == "never",
            cache: options.path(&ENGINE_CACHE),
            graphs: match options.word(&CUDA_GRAPH) {
                "on" => GraphMode::On,
                "off" => GraphMode::Off,
                _ => GraphMode::Auto,
            },
            verification: Verification::of(options),
        }
    }
}

impl Default for TrtOptions {
    fn default() -> Self {
        TrtOptions::from(&Options::default())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn with(name: &str, value: &str) -> TrtOptions {
        let option = OPTIONS.into_iter().find(|option| option.spec.name == name).unwrap();
        let mut options = Options::default();
        options.set(option, option.spec.parse(value).unwrap());
        TrtOptions::from(&options)
    }

    #[test]
    fn each_option_reaches_tensorrt() {
        let usual = TrtOptions::default();
        assert_eq!((usual.library, usual.cache, usual.never_build), (None, None, false));
        assert_eq!(usual.build, BuildOptions { level: Some(3), ..BuildOptions::default() });
        assert!(!usual.runtime.allow_host_code && usual.runtime.dla_core.is_none());

        assert_eq!(with("trt-library", "/opt/tensorrt").library.as_deref(), Some(Path::new("/opt/tensorrt")));
        assert_eq!(with("trt-library", "").library, None, "as if unset");
        assert_eq!(with("engine-cache", "/var/engines").cache.as_deref(), Some(Path::new("/var/engines")));
        assert!(with("engine-build", "never").never_build);
        assert!(with("allow-host-code", "true").runtime.allow_host_code);
        let on_dla = with("dla-core", "1");
        assert_eq!((on_dla.runtime.dla_core, on_dla.build.dla_core), (Some(1), Some(1)));
        assert_eq!(with("dla-core", "-1").build.dla_core, None);
        assert_eq!(with("workspace-mib", "256").build.workspace_mib, Some(256));
        assert_eq!(with("workspace-mib", "0").build.workspace_mib, None);
        assert_eq!(with("optimization-level", "5").build.level, Some(5));
        for precision in Precision::ALL {
            assert_eq!(with("precision", precision.name()).build.precision, precision);
        }
        for (word, mode) in [("auto", GraphMode::Auto), ("on", GraphMode::On), ("off", GraphMode::Off)] {
            assert_eq!(with("cuda-graph", word).graphs, mode);
        }
        let table = with("int8-calibration-cache", "/var/table").build.calibration;
        assert_eq!(table.as_deref(), Some(Path::new("/var/table")));
    }

    /// The key of the cache is made of [`BuildOptions`].
    #[test]
    fn the_key_has_what_changes_the_build_and_nothing_else() {
        for option in OPTIONS {
            let other = match &option.spec.kind {
                OptionKind::Flag => "true",
                OptionKind::Int(_) | OptionKind::UInt(_) => "1",
                OptionKind::Choice { choices, .. } => choices[1].word,
                _ => "/var/file",
            };
            let changes = with(option.spec.name, other).build != TrtOptions::default().build;
            assert_eq!(changes, option.is_in_key, "{}", option.spec.name);
        }
    }
}
