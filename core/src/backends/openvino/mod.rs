// SPDX-License-Identifier: MPL-2.0
//! Models by OpenVINO, on the CPU or another device that it has. The library is found at run time.
//!
//! A device computes in the type that it prefers, on CPUs with AMX in BF16. What is computed in 16 bits is verified, as
//! engines are, and so is what may be: AUTO does not say in which type it computes. Where that is wrong, it is computed in 32 bits.

mod abi;
mod compiled;
mod library;
mod net;
mod options;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use self::abi::OvDimension;
use self::library::OvLibrary;
use self::net::{OvNet, Property, fixed_shapes, shapes};
use self::options::{CPU, LIBRARY, OPTIONS, OvOptions};
use super::host::{HostModel, parallel_runs, threads_of_a_run};
use super::options::{BackendOption, Options};
use super::tensorrt::cache::{Cache, VerdictFile};
use super::tensorrt::onnx::{Onnx, WeightType};
use super::verify::{self, Tolerance, Verdict, Verification};
use super::{
    Backend, LoadContext, LoadEvent, LoadRequest, ModelInstance, OpenedModel, TensorNet, Unsupported, contained,
    refuse_others,
};
use crate::cuda::driver::Context;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{ModelFile, ModelInfo};
use crate::tensor::Dims;

/// The backend.
pub struct OpenVino;

fn library(options: &Options) -> Result<&'static OvLibrary> {
    OvLibrary::open(options.path(&LIBRARY).as_deref())
}

impl Backend for OpenVino {
    fn name(&self) -> &'static str {
        "openvino"
    }

    fn title(&self) -> &'static str {
        "OpenVINO"
    }

    fn blurb(&self) -> &'static str {
        "OpenVINO on the CPU, or on openvino-device"
    }

    /// Other devices copy from and to the host by themselves.
    fn device(&self, _: &Options) -> Device {
        Device::Host
    }

    fn options(&self) -> &'static [&'static BackendOption] {
        &OPTIONS
    }

    fn probe(&self, file: &ModelFile, options: &Options) -> std::result::Result<(), Unsupported> {
        refuse_others(file, self.title())?;
        library(options).map(drop).map_err(Unsupported::Missing)
    }

    fn describe(&self, file: &ModelFile, options: &Options, _: Option<&Context>) -> Result<Arc<dyn OpenedModel>> {
        let library = library(options)?;
        let options = OvOptions::new(options)?;
        let info = Arc::new(ModelInfo::of_onnx(&*file.contents()?)?);
        Ok(Arc::new(OvModel { info, library, options }))
    }

    /// In 32-bit floats, for nothing compares such a model with another backend.
    fn load_for_tensors(
        &self,
        info: &Arc<ModelInfo>,
        file: &ModelFile,
        dims: &[Dims],
        options: &Options,
    ) -> Result<Box<dyn TensorNet>> {
        let model = OvModel { info: info.clone(), library: library(options)?, options: OvOptions::new(options)? };
        let precision = model.options.precision.unwrap_or("f32");
        let never = LoadContext::silent().cancelled;
        Ok(Box::new(model.net(info, file, &fixed_shapes(dims), 1, Some(precision), never)?))
    }

    /// One that is compiled for one size is faster.
    fn takes_any_size(&self) -> bool {
        false
    }

    /// Its kernels for other CPUs are no faster than those of the others.
    fn is_automatic(&self) -> bool {
        cfg!(target_arch = "x86_64")
    }

    fn is_exact(&self) -> bool {
        false
    }
}

/// A model that is described.
struct OvModel {
    info: Arc<ModelInfo>,
    library: &'static OvLibrary,
    options: OvOptions,
}

impl OpenedModel for OvModel {
    fn info(&self) -> &Arc<ModelInfo> {
        &self.info
    }

    fn load(&self, request: &LoadRequest, loading: &LoadContext) -> Result<Box<dyn ModelInstance>> {
        let first = self.options.precision;
        let mut wrong: Option<(String, Verdict)> = None;
        // What the device prefers may be 16 bits; those are what the user wants where they are named.
        for precision in [first, Some("f32")] {
            let is_unsaid = wrong.as_ref().is_some_and(|(former, _)| former.is_empty());
            let (mut model, computes_in) = match self.compile(request, precision, loading.cancelled) {
                // A device that does not say its type may not take one either.
                Err(error) if is_unsaid && error.kind() == ErrorKind::Model => break,
                compiled => compiled?,
            };
            let is_verified = match self.options.verification {
                Verification::Off => false,
                Verification::Auto => may_be_short(&computes_in) || wrong.is_some(),
                Verification::Always => true,
            };
            let types = (computes_in.as_str(), precision);
            let verdict = if is_verified { self.verdict(request, &mut model, types, loading)? } else { None };
            let Some(mut verdict) = verdict else { return Ok(Box::new(model)) };
            if let Some((former, _)) = wrong.as_ref().filter(|_| verdict.passed()) {
                verdict.repair = Some(format!("it is computed in f32, for in {} it was not", said(former)));
            }
            (loading.report)(LoadEvent::Verified(&verdict));
            if verdict.passed() {
                if let Some(wrong) = &wrong {
                    (loading.report)(LoadEvent::Warning(self.is_slower(wrong)));
                }
                return Ok(Box::new(model));
            }
            let is_last = first.is_some() || wrong.is_some() || !may_be_short(&computes_in);
            wrong = Some((computes_in, verdict));
            if is_last {
                break;
            }
        }
        let what = format!("OpenVINO computes something else of {} than another backend on the CPU", self.file());
        let wrong = wrong.map(|(computes_in, verdict)| format!("in {}, {verdict}", said(&computes_in)));
        let wrong = wrong.unwrap_or_default();
        Err(Error::new(ErrorKind::Model, what).cause(wrong).remedy("Set precision=fp32 or backend=onnxruntime"))
    }
}

impl OvModel {
    fn file(&self) -> impl std::fmt::Display {
        self.info.path.display()
    }

    /// The model, compiled to compute in that type or in the one that the device prefers, and the type.
    fn compile(
        &self,
        request: &LoadRequest,
        precision: Option<&str>,
        cancelled: &AtomicBool,
    ) -> Result<(HostModel<OvNet>, String)> {
        let runs = parallel_runs(request);
        let net = self.net(request.model(), &request.file, &shapes(request)?, runs, precision, cancelled)?;
        let computes_in = net.precision();
        Ok((HostModel::new(net, request)?, computes_in))
    }

    /// A file, compiled for inputs of these dimensions and so many runs at the same time.
    fn net(
        &self,
        model: &Arc<ModelInfo>,
        file: &ModelFile,
        shapes: &[Vec<OvDimension>],
        runs: usize,
        precision: Option<&str>,
        cancelled: &AtomicBool,
    ) -> Result<OvNet> {
        let what = format!("OpenVINO cannot load {}", self.file());
        let folder = compiled::folder(self.options.cache.as_deref());
        let mut properties = self.properties(runs);
        properties.extend(precision.map(|precision| ("INFERENCE_PRECISION_HINT", precision.to_string())));
        properties.extend(folder.as_ref().map(|folder| ("CACHE_DIR", folder.to_string_lossy().into_owned())));
        let device = self.options.device.as_str();
        let load = || {
            let contents = file.contents()?;
            let compile = || OvNet::load(self.library, model, &contents, shapes, device, &properties);
            let compiled = match &folder {
                None => compile(),
                Some(folder) => {
                    let how = format!("{} {device} {shapes:?} {properties:?}", self.library.name());
                    compiled::compiling(folder, &compiled::name(contents.bytes(), &how), cancelled, compile)
                }
            };
            compiled.map_err(|error| self.of_device(error, device).about(&what))
        };
        let net = contained(ErrorKind::Model, &what, load)?;
        if let Some(folder) = &folder {
            compiled::trim(folder);
        }
        Ok(net)
    }

    /// Those that do not depend on what is found out about the model.
    fn properties(&self, runs: usize) -> Vec<Property> {
        if self.options.device != CPU {
            let hint = if runs > 1 { "THROUGHPUT" } else { "LATENCY" };
            return vec![("PERFORMANCE_HINT", hint.to_string())];
        }
        let of_a_run = threads_of_a_run(self.options.threads, runs);
        vec![
            ("NUM_STREAMS", runs.to_string()),
            ("INFERENCE_NUM_THREADS", (runs * of_a_run).to_string()),
            // Threads that are bound to cores hold up what else of a pipeline, or of another model, is on these.
            ("ENABLE_CPU_PINNING", "NO".to_string()),
        ]
    }

    /// A device that is not here is no fault of the model.
    fn of_device(&self, error: Error, device: &str) -> Error {
        if device == CPU || error.kind() != ErrorKind::Model {
            return error;
        }
        let devices = self.library.devices();
        let is_missing = |name: &str| {
            let kind = name.split('.').next().unwrap_or(name);
            !OF_SEVERAL.contains(&kind) && !devices.iter().any(|here| here.split('.').next() == Some(kind))
        };
        match device.split([':', ',']).find(|&name| is_missing(name)) {
            Some(missing) => Error::new(ErrorKind::Library, format!("there is no {missing} for it here"))
                .cause(error.as_clause())
                .remedy(format!("Install the driver of the device, or use one of {}", devices.join(", "))),
            None => error,
        }
    }

    /// What is known of a model that computes in that type and was asked to in that one, or what its runs show now; `None` where they
    /// show nothing.
    fn verdict(
        &self,
        request: &LoadRequest,
        model: &mut HostModel<OvNet>,
        (computes_in, asked): (&str, Option<&str>),
        loading: &LoadContext,
    ) -> Result<Option<Verdict>> {
        // Where the first is not said, what was asked for tells two models from each other.
        let of_type = if computes_in.is_empty() { asked.unwrap_or_default() } else { computes_in };
        let file = self.verdict_file(request, of_type, loading);
        if self.options.verification == Verification::Auto
            && let Some(known) = file.as_ref().and_then(|file| file.load(|| request.references()))
        {
            return Ok(Some(known));
        }
        let numbers = Onnx::from(request.file.contents()?).numbers();
        let tolerance = match (numbers, computes_in) {
            (WeightType::Quantized, _) => &Tolerance::EIGHT,
            (_, "bf16") => &Tolerance::BFLOAT,
            (WeightType::F32, "f32") => &Tolerance::SINGLE,
            _ => &Tolerance::HALF,
        };
        match verify::verify(request, model, request.on_cpu(), tolerance, loading) {
            Ok(verdict) => {
                if let Some(file) = &file {
                    let _ = file.save(&verdict, &request.references()); // it is only verified again
                }
                Ok(Some(verdict))
            }
            Err(error) if loading.is_cancelled() => Err(error),
            Err(error) => {
                let what = format!("Cannot verify {} with {}", self.file(), self.library.name());
                (loading.report)(LoadEvent::Warning(error.about(&what)));
                Ok(None)
            }
        }
    }

    /// Where the verdict is kept, if it can be.
    fn verdict_file(&self, request: &LoadRequest, computes_in: &str, loading: &LoadContext) -> Option<VerdictFile> {
        let cache = Cache::open(self.options.cache.as_deref()).ok()?;
        let contents = Onnx::from(request.file.contents().ok()?).fingerprint(loading.cancelled).ok()?;
        let device = format!("{}, {computes_in}", self.library.device_name(&self.options.device));
        let LoadRequest { spec, batch, values, .. } = request;
        let runs = format!("{}{} in batches of {batch}", spec.desc.dims, values.shapes());
        Some(cache.verdict_of_file(&contents, &self.library.name(), &device, &runs))
    }

    fn is_slower(&self, (computes_in, verdict): &(String, Verdict)) -> Error {
        let computes_in = said(computes_in);
        let what = format!("{} is computed in f32, which is slower than {computes_in}", self.file());
        let why = format!("in {computes_in} it is something else than on another backend: {verdict}");
        Error::new(ErrorKind::Model, what).cause(why).remedy("Set precision=fp32 to have that without this warning")
    }
}

/// What OpenVINO calls devices that are made of others.
const OF_SEVERAL: [&str; 4] = ["AUTO", "BATCH", "HETERO", "MULTI"];

/// Whether a type has 16 bits, or is not said.
fn may_be_short(computes_in: &str) -> bool {
    ["bf16", "f16", ""].contains(&computes_in)
}

/// A type, for people.
fn said(computes_in: &str) -> &str {
    if computes_in.is_empty() { "the device's own type" } else { computes_in }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_not_said_may_have_16_bits() {
        assert!(["bf16", "f16", ""].into_iter().all(may_be_short));
        assert!(!["f32", "f64"].into_iter().any(may_be_short));
        assert_eq!([said("bf16"), said("")], ["bf16", "the device's own type"]);
    }
}
