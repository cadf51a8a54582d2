// SPDX-License-Identifier: MPL-2.0
//! Models by ONNX Runtime, on the CPU or by another of its execution providers. The library is found at run time.

mod abi;
mod library;
mod net;
mod providers;

use std::sync::Arc;

use self::library::OrtLibrary;
use self::net::OrtNet;
use self::providers::ExecutionProvider;
use super::host::{HostModel, THREADS, parallel_runs, threads_of_a_run, usual_threads, wanted_threads};
use super::options::{BackendOption, INPUT_VALUES, MAX_INPUT_WIDTH, Options};
use super::verify::{self, Tolerance, VERIFY, VERIFY_EVERY, Verification};
use super::{
    Backend, LoadContext, LoadEvent, LoadRequest, ModelInstance, OpenedModel, TensorNet, Unsupported, contained,
    refuse_others,
};
use crate::cuda::driver::Context;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{ModelFile, ModelInfo};
use crate::options::{OptionKind, OptionSpec, OptionValue};
use crate::tensor::Dims;

/// The backend.
pub struct OnnxRuntime;

static LIBRARY: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "ort-library",
        nick: "ONNX Runtime library",
        blurb: "File or folder of the ONNX Runtime library; it contains code: use only a trusted one (unset = \
                ORT_DYLIB_PATH, else what is installed)",
        kind: OptionKind::Path,
    },
    default: OptionValue::Path(None),
    is_in_key: false,
    insists: &[],
};

pub(super) static PROVIDERS: BackendOption = BackendOption {
    spec: OptionSpec {
        name: "execution-providers",
        nick: "Execution providers",
        blurb: "What ONNX Runtime computes with, the preferred one first, like openvino:device_type=GPU,cpu (unset = cpu)",
        kind: OptionKind::Text,
    },
    default: OptionValue::Text(String::new()),
    is_in_key: false,
    insists: &[],
};

fn library(options: &Options) -> Result<&'static OrtLibrary> {
    OrtLibrary::open(options.path(&LIBRARY).as_deref())
}

impl Backend for OnnxRuntime {
    fn name(&self) -> &'static str {
        "onnxruntime"
    }

    fn title(&self) -> &'static str {
        "ONNX Runtime"
    }

    fn blurb(&self) -> &'static str {
        "ONNX Runtime on the CPU, or by execution-providers"
    }

    /// Other devices' providers copy from and to the host by themselves.
    fn device(&self, _: &Options) -> Device {
        Device::Host
    }

    fn options(&self) -> &'static [&'static BackendOption] {
        static OPTIONS: [&BackendOption; 7] =
            [&LIBRARY, &PROVIDERS, &THREADS, &VERIFY, &VERIFY_EVERY, &INPUT_VALUES, &MAX_INPUT_WIDTH];
        &OPTIONS
    }

    fn probe(&self, file: &ModelFile, options: &Options) -> std::result::Result<(), Unsupported> {
        refuse_others(file, self.title())?;
        library(options).map(drop).map_err(Unsupported::Missing)
    }

    fn describe(&self, file: &ModelFile, options: &Options, _: Option<&Context>) -> Result<Arc<dyn OpenedModel>> {
        let library = library(options)?;
        let providers = providers::parse(&options.text(&PROVIDERS), library)?;
        let info = Arc::new(ModelInfo::of_onnx(&*file.contents()?)?);
        let is_verified = Verification::of(options) == Verification::Always;
        Ok(Arc::new(OrtModel { info, library, threads: wanted_threads(options), providers, is_verified }))
    }

    fn load_for_tensors(
        &self,
        info: &Arc<ModelInfo>,
        file: &ModelFile,
        _dims: &[Dims],
        options: &Options,
    ) -> Result<Box<dyn TensorNet>> {
        let library = library(options)?;
        let providers = providers::parse(&options.text(&PROVIDERS), library)?;
        let threads = wanted_threads(options).unwrap_or_else(usual_threads);
        Ok(Box::new(load(library, info, file, threads, &providers)?))
    }

    fn takes_any_size(&self) -> bool {
        true
    }
}

/// A file, loaded to be run with so many threads.
fn load(
    library: &'static OrtLibrary,
    info: &Arc<ModelInfo>,
    file: &ModelFile,
    threads: usize,
    providers: &[ExecutionProvider],
) -> Result<OrtNet> {
    let what = format!("ONNX Runtime cannot load {}", info.path.display());
    contained(ErrorKind::Model, &what, || {
        OrtNet::load(library, info, &*file.contents()?, threads, providers).map_err(|error| error.about(&what))
    })
}

/// A model that is described.
struct OrtModel {
    info: Arc<ModelInfo>,
    library: &'static OrtLibrary,
    threads: Option<usize>,
    providers: Vec<ExecutionProvider>,
    is_verified: bool,
}

impl OpenedModel for OrtModel {
    fn info(&self) -> &Arc<ModelInfo> {
        &self.info
    }

    fn load(&self, request: &LoadRequest, loading: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        let OrtModel { info, library, threads, providers, is_verified } = self;
        let runs = parallel_runs(request);
        let of_a_run = threads_of_a_run(*threads, runs);
        // A run computes in its own thread too, and the others are for all.
        let threads = runs * of_a_run.saturating_sub(1) + 1;
        let mut model = HostModel::new(load(library, info, &request.file, threads, providers)?, request)?;
        if *is_verified {
            // As much as for files in f16, which this computes in f16.
            let verdict = verify::verify(request, &mut model, request.on_cpu(), &Tolerance::HALF, loading)?;
            (loading.report)(LoadEvent::Verified(&verdict));
            if !verdict.passed() {
                let file = info.path.display();
                let what = format!("ONNX Runtime computes something else of {file} than another backend on the CPU");
                let remedy = "Use another of execution-providers, or backend=rten";
                return Err(Error::new(ErrorKind::Model, what).cause(verdict).remedy(remedy));
            }
        }
        Ok(Box::new(model))
    }
}
