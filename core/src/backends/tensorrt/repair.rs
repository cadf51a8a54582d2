// SPDX-License-Identifier: MPL-2.0
//! Engines that compute what their models say: what does not is built again with more numbers in f32.

use std::ffi::c_void;
use std::sync::Arc;

use super::abi::AbiVersion;
use super::builder::{BuildOptions, ExactLayers, Half, Precision};
use super::onnx::WeightType;
use crate::backends::verify::Verdict;
use crate::backends::{LoadContext, LoadEvent, ModelInstance};
use crate::cuda::driver::Fence;
use crate::error::{Error, ErrorKind, Result};
use crate::model::InputValues;
use crate::tensor::Tensors;

/// How an engine is built, where the step before it does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// As the options say.
    Wanted,
    /// With the layers in f32 that lose most in f16.
    SensitiveInSingle,
    /// With all in f32 but convolutions and products with weights.
    OnlyWeightedInHalf,
    /// With the range of f32 and fewer bits than f16.
    Bfloat,
    AllInSingle,
    /// The same, one picture at a time.
    OneByOne,
}

/// What steps depend on.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub abi: AbiVersion,
    /// The GPU multiplies such numbers.
    pub has_bf16: bool,
    /// Of the model file.
    pub numbers: WeightType,
    pub batch: usize,
}

impl Step {
    /// The steps for a model. Where the user chose a precision with fewer bits, there is one, and what differs is said only. The
    /// numbers of a file that has others than f32 itself cannot be made more exact.
    pub fn of(options: &BuildOptions, case: Case) -> Vec<Step> {
        let mut steps = vec![Step::Wanted];
        if options.precision == Precision::Auto && case.numbers == WeightType::F32 {
            // A file that is cast has its sensitive layers in f32 from the first.
            let more = if case.abi.is_strongly_typed() { Step::OnlyWeightedInHalf } else { Step::SensitiveInSingle };
            steps.push(more);
            steps.extend((case.has_bf16 && case.abi != AbiVersion::V8).then_some(Step::Bfloat));
            steps.push(Step::AllInSingle);
        }
        if case.batch > 1 && matches!(options.precision, Precision::Auto | Precision::Fp32) {
            steps.push(Step::OneByOne);
        }
        steps
    }

    pub fn options(self, options: &BuildOptions, numbers: WeightType) -> BuildOptions {
        let precision = match self {
            Step::AllInSingle | Step::OneByOne if numbers == WeightType::F32 => Precision::Fp32,
            _ => options.precision,
        };
        let exact = match self {
            Step::SensitiveInSingle => ExactLayers::Sensitive,
            Step::OnlyWeightedInHalf => ExactLayers::AllButWeighted,
            _ => options.exact,
        };
        let half = if self == Step::Bfloat { Half::Bf16 } else { options.half };
        BuildOptions { precision, exact, half, ..options.clone() }
    }

    /// What it does, in a clause; nothing for the first one.
    pub fn repair(self) -> Option<&'static str> {
        match self {
            Step::Wanted => None,
            Step::SensitiveInSingle => Some("softmax, normalisations and reductions are in fp32"),
            Step::OnlyWeightedInHalf => Some("all but convolutions and products with weights is in fp32"),
            Step::Bfloat => Some("it is in bf16"),
            Step::AllInSingle => Some("all is in fp32"),
            Step::OneByOne => Some("pictures are run one by one"),
        }
    }
}

/// Takes the first step whose model is right; or where the user chose how exact it is, the only one, with a warning. `make` builds
/// and loads the model of a step, and says what was found out about it. Where TensorRT does not take what we made of the file, the
/// next step is the one that leaves the file as it is.
///
/// # Errors
/// Of `make`; `Model`, where no step gives a model that is right.
pub fn settle<M>(
    mut steps: &[Step],
    is_chosen: bool,
    file: &str,
    loading: &LoadContext,
    mut make: impl FnMut(Step) -> Result<(M, Option<Verdict>)>,
) -> Result<M> {
    let mut first = None;
    while let [step, rest @ ..] = steps {
        // The first step casts the file where no flags of TensorRT do that.
        let is_ours = *step != Step::Wanted || rest.first() == Some(&Step::OnlyWeightedInHalf);
        let single = rest.iter().position(|&next| next == Step::AllInSingle).filter(|_| is_ours);
        let (model, verdict) = match (make(*step), single) {
            (Err(error), Some(at))
                if matches!(error.kind(), ErrorKind::Model | ErrorKind::Library) && !loading.is_cancelled() =>
            {
                steps = &rest[at..];
                (loading.report)(LoadEvent::Warning(error.remedy(again(steps).unwrap_or_default())));
                continue;
            }
            (made, _) => made?,
        };
        steps = rest;
        let Some(verdict) = verdict else { return Ok(model) };
        (loading.report)(LoadEvent::Verified(&verdict));
        if verdict.passed() {
            return Ok(model);
        }
        let what = format!("The engine of {file} computes something else than the model in {}", verdict.precision);
        let wrong = Error::new(ErrorKind::Model, what).cause(&verdict);
        match again(steps) {
            Some(next) => {
                first.get_or_insert(verdict);
                (loading.report)(LoadEvent::Warning(wrong.remedy(next)));
            }
            None if is_chosen => {
                let remedy = "Use the ONNX file with precision=auto, which repairs that where it can, or verify=off if it may be so";
                (loading.report)(LoadEvent::Warning(wrong.remedy(remedy)));
                return Ok(model);
            }
            None => {
                first.get_or_insert(verdict);
            }
        }
    }
    let what = format!("No engine of {file} computes what the model says");
    let cause = first.map(|verdict| verdict.to_string()).unwrap_or_default();
    let remedy = "Use backend=cpu, another release of TensorRT or another export; verify=off runs it all the same";
    Err(Error::new(ErrorKind::Model, what).cause(cause).remedy(remedy))
}

/// What is done with the first of these steps.
fn again(steps: &[Step]) -> Option<String> {
    Some(format!("It is built again so that {}", steps.first()?.repair()?))
}

/// A model that is right with one picture only.
pub struct OneByOne(pub Box<dyn ModelInstance>);

impl ModelInstance for OneByOne {
    fn run(&mut self, pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
        let mut outputs = Vec::with_capacity(pictures.len());
        for picture in pictures {
            outputs.extend(self.0.run(std::slice::from_ref(picture))?);
        }
        Ok(outputs)
    }

    fn set_values(&mut self, values: &Arc<InputValues>) -> Result<()> {
        self.0.set_values(values)
    }

    fn only_queues(&self) -> bool {
        self.0.only_queues()
    }

    fn runs_at_once(&self) -> usize {
        self.0.runs_at_once()
    }

    unsafe fn run_at(&mut self, picture: u64, outputs: &[u64], stream: Option<*mut c_void>) -> Result<Fence> {
        // SAFETY: the caller promises the same.
        unsafe { self.0.run_at(picture, outputs, stream) }
    }

    fn working_bytes(&self) -> u64 {
        self.0.working_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn verdict(fault: Option<&str>) -> Verdict {
        Verdict {
            faults: fault.map(str::to_string).into_iter().collect(),
            reference: Ok("the CPU".into()),
            precision: "fp16".into(),
            pictures: 4,
            runs: 30,
            largest_batch: 4,
            outputs: Vec::new(),
            results: None,
            repair: None,
            milliseconds: 1,
        }
    }

    /// What is taken of those steps where the first so many are wrong, and what was said.
    fn settled(steps: &[Step], is_chosen: bool, wrong: usize) -> (Result<Step>, Vec<String>) {
        let mut made = 0;
        settled_by(steps, is_chosen, |step| {
            made += 1;
            Ok((step, Some(verdict((made <= wrong).then_some("output0 differs by 90 %")))))
        })
    }

    fn settled_by(
        steps: &[Step],
        is_chosen: bool,
        make: impl FnMut(Step) -> Result<(Step, Option<Verdict>)>,
    ) -> (Result<Step>, Vec<String>) {
        let said = Mutex::default();
        let report = |event: LoadEvent<'_>| match event {
            LoadEvent::Warning(warning) => Vec::push(&mut said.lock().unwrap(), warning.message()),
            LoadEvent::Verified(verdict) => said.lock().unwrap().push(format!("passed: {}", verdict.passed())),
            LoadEvent::Progress(..) => {}
        };
        let cancelled = AtomicBool::new(false);
        let loading = LoadContext { report: &report, cancelled: &cancelled, slots: None, contexts: 1 };
        let taken = settle(steps, is_chosen, "m.onnx", &loading, make);
        (taken, said.into_inner().unwrap())
    }

    /// Several contexts run at the same time.
    #[test]
    fn a_model_that_is_run_one_by_one_has_as_many_runs_at_once() {
        struct Several;
        impl ModelInstance for Several {
            fn run(&mut self, _pictures: &[Arc<Tensors>]) -> Result<Vec<Tensors>> {
                Ok(Vec::new())
            }

            fn runs_at_once(&self) -> usize {
                3
            }
        }
        assert_eq!(OneByOne(Box::new(Several)).runs_at_once(), 3);
    }

    const CASE: Case = Case { abi: AbiVersion::V8, has_bf16: false, numbers: WeightType::F32, batch: 4 };

    #[test]
    fn the_first_step_that_is_right_is_taken_and_each_is_said() {
        use Step::{AllInSingle, Bfloat, OneByOne, OnlyWeightedInHalf, SensitiveInSingle, Wanted};
        let of = |abi, has_bf16| Step::of(&BuildOptions::default(), Case { abi, has_bf16, ..CASE });
        assert_eq!(of(AbiVersion::V10, true), [Wanted, SensitiveInSingle, Bfloat, AllInSingle, OneByOne]);
        for abi in [AbiVersion::V11, AbiVersion::RtxOld, AbiVersion::RtxNew] {
            assert_eq!(of(abi, true), [Wanted, OnlyWeightedInHalf, Bfloat, AllInSingle, OneByOne]);
            assert_eq!(of(abi, false), [Wanted, OnlyWeightedInHalf, AllInSingle, OneByOne]);
        }
        assert_eq!(of(AbiVersion::V8, false), of(AbiVersion::V8, true), "it has no bf16");
        let steps = of(AbiVersion::V8, true);
        assert_eq!(steps, [Wanted, SensitiveInSingle, AllInSingle, OneByOne]);
        for (wrong, expected) in steps.iter().enumerate() {
            let (taken, said) = settled(&steps, false, wrong);
            assert_eq!((taken.unwrap(), said.len()), (*expected, 2 * wrong + 1), "{said:?}");
            assert_eq!(said.last().unwrap(), "passed: true");
        }
        let begin = "No engine of m.onnx computes what the model says: output0 differs by 90 %. Use backend=cpu";
        for steps in [&steps[..1], &steps] {
            let error = settled(steps, false, 4).0.unwrap_err().message();
            assert!(error.starts_with(begin), "{error}");
        }
        let (_, said) = settled(&steps, false, 4);
        assert_eq!(
            said[1],
            "The engine of m.onnx computes something else than the model in fp16: output0 differs by 90 %. It is built again \
             so that softmax, normalisations and reductions are in fp32."
        );
    }

    #[test]
    fn what_cannot_be_built_as_we_cast_it_is_built_in_single() {
        use Step::{AllInSingle, Bfloat, OneByOne, OnlyWeightedInHalf, SensitiveInSingle, Wanted};
        // These cannot be built; of the others, those in f32 are right.
        let settled = |steps: &[Step], refused: &[Step], kind: ErrorKind| {
            let (taken, said) = settled_by(steps, false, |step| match step {
                _ if refused.contains(&step) => Err(Error::new(kind, format!("{step:?} is refused"))),
                AllInSingle | OneByOne => Ok((step, Some(verdict(None)))),
                _ => Ok((step, Some(verdict(Some("output0 differs by 90 %"))))),
            });
            (taken.map_err(|error| error.message()), said)
        };
        let typed = [Wanted, OnlyWeightedInHalf, Bfloat, AllInSingle, OneByOne];
        for refused in [Wanted, OnlyWeightedInHalf, Bfloat] {
            let (taken, said) = settled(&typed, &[refused], ErrorKind::Library);
            assert_eq!(taken, Ok(AllInSingle));
            let warning = format!("{refused:?} is refused. It is built again so that all is in fp32.");
            assert!(said.contains(&warning), "{said:?}");
        }
        let error = |steps: &[Step], refused: &[Step], kind| settled(steps, refused, kind).0.unwrap_err();
        assert_eq!(error(&typed, &[Wanted, AllInSingle], ErrorKind::Model), "AllInSingle is refused.");
        let flagged = [Wanted, SensitiveInSingle, AllInSingle];
        assert_eq!(error(&flagged, &[Wanted], ErrorKind::Library), "Wanted is refused.", "the file was as it is");
        for kind in [ErrorKind::Settings, ErrorKind::Run, ErrorKind::DeviceLost] {
            assert_eq!(error(&typed, &[Bfloat], kind), "Bfloat is refused.", "{kind:?} is not of the build");
        }
    }

    #[test]
    fn a_precision_that_was_chosen_is_kept_with_a_warning() {
        for precision in [Precision::Fp16, Precision::Int8] {
            let options = BuildOptions { precision, ..BuildOptions::default() };
            let steps = Step::of(&options, CASE);
            assert_eq!(steps, [Step::Wanted]);
            let (taken, said) = settled(&steps, true, 1);
            assert_eq!(taken.unwrap(), Step::Wanted);
            assert!(said[1].contains("differs by 90 %. Use the ONNX file with precision=auto"), "{said:?}");
        }
    }

    #[test]
    fn steps_are_other_engines() {
        let options = BuildOptions::default();
        let of = |step: Step| {
            let built = step.options(&options, WeightType::F32);
            (built.precision, built.exact, built.half)
        };
        assert_eq!(of(Step::Wanted), (Precision::Auto, ExactLayers::Head, Half::F16));
        assert_eq!(of(Step::SensitiveInSingle), (Precision::Auto, ExactLayers::Sensitive, Half::F16));
        assert_eq!(of(Step::OnlyWeightedInHalf), (Precision::Auto, ExactLayers::AllButWeighted, Half::F16));
        assert_eq!(of(Step::Bfloat), (Precision::Auto, ExactLayers::Head, Half::Bf16));
        assert_eq!((of(Step::AllInSingle).0, of(Step::OneByOne).0), (Precision::Fp32, Precision::Fp32));
        for numbers in [WeightType::Quantized, WeightType::Half] {
            let steps = Step::of(&options, Case { numbers, ..CASE });
            assert_eq!(steps, [Step::Wanted, Step::OneByOne], "the file says how exact");
            assert_eq!(Step::OneByOne.options(&options, numbers), options);
        }
        let single = BuildOptions { precision: Precision::Fp32, ..BuildOptions::default() };
        assert_eq!(Step::of(&single, CASE), [Step::Wanted, Step::OneByOne]);
        assert_eq!(Step::of(&single, Case { batch: 1, ..CASE }), [Step::Wanted]);
    }
}
