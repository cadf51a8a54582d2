// SPDX-License-Identifier: MPL-2.0
//! From an ONNX file to an engine.
//!
//! What differs between the families is here, so that callers ask for what they want and get an error for what is not
//! available. In TensorRT 8 and 10 a network is weakly typed: flags say to which types the builder may lower it. From
//! 11 on, and in RTX, networks have the types that the file gives, so the file is cast. Progress and cancelling
//! come with TensorRT 10; 8 can be cancelled only between its phases.

use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};

use super::abi::{
    AbiVersion, Builder, BuilderFlag, Config, Hardware, Network, OptProfileSelector, Parser, TimingCache,
};
use super::cache::{self, Key};
use super::exact::keep_exact;
use super::interfaces::{self, BuildProgress, Calibrator, ErrorListener, Level, Monitor};
use super::library::Library;
use super::onnx::{Onnx, WeightType};
use super::turn::turn;
use crate::error::{Error, ErrorKind, Result};
use crate::files;
pub use crate::onnx::cast::Half;
pub use crate::onnx::exact::ExactLayers;
use crate::tensor::Dims;

/// The types in which an engine computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// f16 where the GPU is fast at it, else f32; the file's own types where it has others than f32.
    #[default]
    Auto,
    /// f32 without TF32, whose products have 10 bits.
    Fp32,
    Fp16,
    /// Where the file is quantized, or the calibration gives ranges; f16 elsewhere.
    Int8,
}

impl Precision {
    pub const ALL: [Precision; 4] = [Precision::Auto, Precision::Fp32, Precision::Fp16, Precision::Int8];

    pub const fn name(self) -> &'static str {
        match self {
            Precision::Auto => "auto",
            Precision::Fp32 => "fp32",
            Precision::Fp16 => "fp16",
            Precision::Int8 => "int8",
        }
    }

    /// Whether a file of such numbers is that already.
    fn is_of(self, numbers: WeightType) -> bool {
        match self {
            Precision::Auto => true,
            Precision::Fp32 => numbers == WeightType::F32,
            Precision::Fp16 => numbers == WeightType::Half,
            Precision::Int8 => numbers == WeightType::Quantized,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Precision::ALL.into_iter().find(|precision| precision.name() == text).ok_or_else(|| {
            Error::new(ErrorKind::Settings, format!("“{text}” is not a precision"))
                .remedy("Use auto, fp32, fp16 or int8")
        })
    }
}

/// The dimensions that an engine is to take at an input whose dimensions the model leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub input: String,
    pub smallest: Dims,
    /// The one that the engine is fastest at.
    pub usual: Dims,
    pub largest: Dims,
}

impl Shape {
    /// These dimensions and no other.
    pub fn fixed(input: &str, dims: &Dims) -> Self {
        Shape { input: input.to_string(), smallest: dims.clone(), usual: dims.clone(), largest: dims.clone() }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { input, smallest, usual, largest } = self;
        if smallest == usual && usual == largest {
            write!(f, "{input} {usual}")
        } else {
            write!(f, "{input} {smallest} to {largest}, usually {usual}")
        }
    }
}

/// How to build; the default is what TensorRT does by itself, at the precision that suits the GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildOptions {
    pub precision: Precision,
    pub exact: ExactLayers,
    /// The type in which others are, where a precision has 16 bits. TensorRT 8 has no bf16.
    pub half: Half,
    /// The file of a calibrator, for int8 without quantization in the model.
    pub calibration: Option<PathBuf>,
    /// Maximum GPU memory for temporary results, in MiB; `None` for all there is.
    pub workspace_mib: Option<u32>,
    /// 0 to 5: how long to search for fast kernels. TensorRT's own is 3.
    pub level: Option<u8>,
    /// The engine runs on later versions of TensorRT too, with a part of this one inside it, which is code.
    pub version_compatible: bool,
    /// The engine runs on other GPUs from Ampere on too, more slowly.
    pub hardware_compatible: bool,
    /// For each input with open dimensions; others may be named with the dimensions that they have.
    pub shapes: Vec<Shape>,
    /// The deep-learning accelerator of a Jetson to build for; layers that it cannot run stay on the GPU.
    pub dla_core: Option<i32>,
    /// RTX: GPU generations to build for, like 86 for compute capability 8.6; none for this machine's GPU.
    pub capabilities: Vec<i32>,
}

impl BuildOptions {
    /// The key of the engine in the cache. `gpu` is as in [`Key::gpu`].
    ///
    /// # Errors
    /// `NotFound`, when the calibration cannot be read; `Model`, when weights cannot; `Run`, when it was cancelled.
    pub fn key(&self, library: &Library, onnx: &Onnx, gpu: &str, cancelled: &AtomicBool) -> Result<Key> {
        let shapes = self.shapes.iter().map(Shape::to_string).collect::<Vec<_>>().join("; ");
        let mut options = self.to_string();
        if library.abi() == AbiVersion::V8 && !self.shapes.is_empty() {
            options += ", contexts share profiles";
        }
        Ok(Key {
            model: onnx.path().to_path_buf(),
            contents: onnx.fingerprint(cancelled)?,
            library: library.name(),
            gpu: gpu.to_string(),
            precision: self.precision_of_key(library.abi(), onnx)?,
            shapes,
            options,
        })
    }

    fn precision_of_key(&self, abi: AbiVersion, onnx: &Onnx) -> Result<String> {
        let mut precision = self.precision.to_string();
        let cast = self.casts(abi, onnx);
        if cast || !abi.is_strongly_typed() && self.precision != Precision::Fp32 {
            let exact = if cast { self.exact.at_least_sensitive() } else { self.exact };
            precision += match exact {
                ExactLayers::Head => ", head in fp32",
                ExactLayers::Sensitive => ", head, softmax, normalisations and reductions in fp32",
                ExactLayers::AllButWeighted => ", all but convolutions and products with weights in fp32",
            };
        }
        if cast {
            precision += &format!(", the file cast to {}", self.half.name());
        }
        if let Some(path) = &self.calibration {
            precision += &format!(", calibrated by {}", &cache::hex(Sha256::new_with_prefix(calibration(path)?))[..16]);
        }
        Ok(precision)
    }

    /// Whether an engine that was built now is one of that key: for the build, the calibration was read again, maybe minutes later.
    ///
    /// # Errors
    /// `Read`, where it was changed; and as of the key.
    pub fn check_unchanged(&self, key: &Key, library: &Library, onnx: &Onnx) -> Result<()> {
        match &self.calibration {
            Some(path) if self.precision_of_key(library.abi(), onnx)? != key.precision => {
                let what = format!("The calibration {} was changed while an engine was built with it", path.display());
                Err(Error::new(ErrorKind::Read, what).remedy("Load the model again, once the file is there"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the file itself is given 16-bit types: where no flag does that, and for bf16.
    fn casts(&self, abi: AbiVersion, onnx: &Onnx) -> bool {
        let has_half = matches!(self.precision, Precision::Auto | Precision::Fp16);
        let is_typed = abi.is_strongly_typed() || self.half == Half::Bf16 && abi != AbiVersion::V8;
        has_half && is_typed && onnx.numbers() == WeightType::F32
    }

    /// With `auto`, a file that cannot be cast, such as one of too many bytes, is built as it is.
    fn cast(&self, onnx: &Onnx, cancelled: &AtomicBool) -> Result<Option<Vec<u8>>> {
        match onnx.cast(self.half, self.exact, cancelled) {
            Err(error) if self.precision == Precision::Auto && error.kind() == ErrorKind::Model => {
                interfaces::log(Level::Warning, &format!("{}; so it is built in fp32", error.as_clause()));
                Ok(None)
            }
            cast => cast,
        }
    }

    /// Refuses options that are not available, before anything slow is done.
    fn check(&self, library: &Library, onnx: &Onnx) -> Result<()> {
        let (precision, numbers) = (self.precision, onnx.numbers());
        let abi = library.abi();
        let name = onnx.path().display();
        if self.level.is_some_and(|level| level > 5) {
            return Err(Error::new(ErrorKind::Settings, "The optimization level is 0 to 5"));
        }
        let is_cast = precision == Precision::Fp16 && numbers == WeightType::F32;
        if abi.is_strongly_typed() && !precision.is_of(numbers) && !is_cast {
            let has = match numbers {
                WeightType::F32 => "f32",
                WeightType::Half => "f16 or bf16",
                WeightType::Quantized => "quantized",
            };
            let convert = match precision {
                Precision::Int8 => "Give the model Q/DQ nodes: gst-trt quantize MODEL PICTURE…",
                _ => "Export the model in f32",
            };
            return Err(Error::new(
                ErrorKind::Settings,
                format!("{} cannot build {name} with precision={precision}", library.name()),
            )
            .cause(format!("it computes in the types that the model has, and this one is {has}"))
            .remedy(format!("{convert}, or use precision=auto")));
        }
        if numbers == WeightType::Quantized && !matches!(precision, Precision::Auto | Precision::Int8) {
            return Err(Error::new(ErrorKind::Settings, format!("Cannot build {name} with precision={precision}"))
                .cause("the model is quantized: it has QuantizeLinear or DequantizeLinear nodes")
                .remedy("Use precision=auto, or the model from before its quantization"));
        }
        if precision == Precision::Int8 && numbers != WeightType::Quantized && self.calibration.is_none() {
            return Err(Error::new(ErrorKind::Settings, format!("Cannot build {name} with precision=int8"))
                .cause("the model is not quantized, and there is no calibration")
                .remedy(
                    "Give the model Q/DQ nodes: gst-trt quantize MODEL PICTURE…; or set int8-calibration-cache to the file that \
                     a calibrator wrote for this model",
                ));
        }
        Ok(())
    }
}

/// What changes the engine, apart from precision and shapes.
impl fmt::Display for BuildOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Some(level) => write!(f, "optimization level {level}")?,
            None => write!(f, "default optimization level")?,
        }
        if let Some(mib) = self.workspace_mib {
            write!(f, ", {mib} MiB workspace")?;
        }
        if self.version_compatible {
            write!(f, ", version-compatible")?;
        }
        if self.hardware_compatible {
            write!(f, ", hardware-compatible")?;
        }
        if let Some(core) = self.dla_core {
            write!(f, ", for DLA core {core}")?;
        }
        for capability in &self.capabilities {
            write!(f, ", for compute capability {}.{}", capability / 10, capability % 10)?;
        }
        Ok(())
    }
}

/// The result of a build.
pub struct Built {
    pub engine: Vec<u8>,
    /// For the next build with this library on this GPU.
    pub timing: Option<Vec<u8>>,
}

/// Builds an engine, for the GPU whose CUDA context is current in this thread: seconds to many minutes, nearly all of
/// them in one call of TensorRT.
///
/// `timing` is what an earlier build gave, with the same library on the same GPU. `progress` is called from threads of
/// TensorRT. After `cancelled` is set the build ends at TensorRT's next step, with an error; that may take seconds, and in
/// TensorRT 8 until the engine is done.
///
/// All inputs and outputs of the engine are dense, in the order of their dimensions.
///
/// # Errors
/// * `Settings`: options that this ABI version or model cannot have.
/// * `Model`: what TensorRT cannot parse, with the node and its operator.
/// * `Library`: everything else that TensorRT refuses, in its words.
pub fn build(
    library: &'static Library,
    onnx: &Onnx,
    options: &BuildOptions,
    timing: Option<&[u8]>,
    progress: &(dyn Fn(BuildProgress<'_>) + Send + Sync),
    cancelled: &AtomicBool,
) -> Result<Built> {
    options.check(library, onnx)?;
    let go_on = |progressed: BuildProgress<'_>| {
        progress(progressed);
        !cancelled.load(Ordering::Relaxed)
    };
    let step = |phase, fraction| match go_on(BuildProgress { phase, fraction }) {
        true => Ok(()),
        false => Err(stopped(onnx)),
    };
    let heard = ErrorListener::listen();
    let impossible = |what: &str| {
        heard
            .error(ErrorKind::Library, format!("{} cannot {what}", library.name()))
            .remedy("See the rest of TensorRT's log: GST_DEBUG=trt*:6")
    };

    let _turn =
        turn(cancelled, || progress(BuildProgress { phase: "waiting for another engine to be built", fraction: 0.0 }))
            .ok_or_else(|| stopped(onnx))?;
    step("reading the model", 0.0)?;
    let is_cast = options.casts(library.abi(), onnx);
    let cast = if is_cast { options.cast(onnx, cancelled)? } else { None };
    let parsed = onnx.with_channels(cast);
    // In this order, since each is dropped before those that it was made by, and the network's weights are the parser's.
    let mut builder = library.builder()?;
    // SAFETY: the builder is dropped after the network.
    let mut network = unsafe { builder.network(is_cast) }.ok_or_else(|| impossible("make a network"))?;
    // SAFETY: the network is dropped after the parser.
    let mut parser = unsafe { library.parser(&network) }?;
    parse(&mut parser, onnx, parsed.as_deref().unwrap_or(onnx.bytes()), &heard)?;
    drop(parsed); // the parser has all of it
    // Empty files are valid protobuf, and the parser accepts them.
    if network.output_count() == 0 {
        return Err(Error::new(ErrorKind::Model, format!("TensorRT cannot read the model {}", onnx.path().display()))
            .cause("it has no outputs")
            .remedy("Check that it is an ONNX file and was copied or exported completely"));
    }

    // SAFETY: the builder is dropped after the configuration.
    let mut config = unsafe { builder.config() }.ok_or_else(|| impossible("make a builder configuration"))?;
    configure(&mut config, &builder, library, options)?;
    set_shapes(&builder, &mut config, &network, onnx, options)?;
    let _calibrator = set_precision(&builder, &mut config, &network, onnx, options)?;
    let timing = set_timing(&mut config, timing);
    let monitor = Monitor::new(go_on);
    // SAFETY: the monitor lives until the end of this function.
    let _ = unsafe { config.set_progress_monitor(monitor.as_raw()) }; // in 8 there are only the steps below

    step("building the engine", 0.0)?;
    let Some(engine) = builder.build(&mut network, &mut config) else {
        if cancelled.load(Ordering::Relaxed) {
            return Err(stopped(onnx));
        }
        let remedy = if heard.is_out_of_memory() {
            "End other programs on the GPU, or set workspace-mib to less"
        } else {
            "Export the model with another opset or without what TensorRT names, or use backend=cpu"
        };
        let what = format!("{} cannot build an engine of {}", library.name(), onnx.path().display());
        return Err(heard.error(ErrorKind::Library, what).remedy(remedy));
    };
    step("the engine is built", 1.0)?;
    Ok(Built {
        engine: engine.bytes().to_vec(),
        timing: timing.and_then(|timing| Some(timing.serialize()?.bytes().to_vec())),
    })
}

fn stopped(onnx: &Onnx) -> Error {
    Error::new(ErrorKind::Run, format!("Building an engine of {} was cancelled", onnx.path().display()))
}

/// Reads the model into the network.
fn parse(parser: &mut Parser, onnx: &Onnx, bytes: &[u8], heard: &ErrorListener) -> Result<()> {
    let path = CString::new(onnx.path().as_os_str().as_bytes()).unwrap_or_default();
    if parser.parse(bytes, &path) {
        return Ok(());
    }
    let name = onnx.path().display();
    let remedy = "Export the model with another opset or without that operator, or use backend=cpu";
    let Some(error) = parser.errors().next() else {
        return Err(heard.error(ErrorKind::Model, format!("TensorRT cannot read the model {name}")).remedy(remedy));
    };
    let (mut node, mut operator) = error.node_and_operator();
    // TensorRT 8 gives only the node's number.
    let numbered = usize::try_from(error.node()).ok().and_then(|index| onnx.node(index));
    if let Some((name, op_type)) = numbered.filter(|_| operator.is_empty()) {
        (node, operator) = (name.into(), op_type.into());
    }
    let what = match (node.is_empty(), operator.is_empty()) {
        (_, true) => format!("TensorRT cannot read the model {name}"),
        (true, false) => format!("TensorRT cannot take the operator {operator} in the model {name}"),
        (false, false) => {
            format!("TensorRT cannot take the operator {operator} of the node “{node}” in the model {name}")
        }
    };
    Err(Error::new(ErrorKind::Model, what).cause(error.description()).remedy(remedy))
}

/// Options that are numbers and flags.
fn configure(config: &mut Config, builder: &Builder, library: &Library, options: &BuildOptions) -> Result<()> {
    if let Some(level) = options.level {
        config.set_builder_optimization_level(level.into());
    }
    if let Some(mib) = options.workspace_mib {
        config.set_workspace((mib as usize) << 20);
    }
    if config.abi() == AbiVersion::V8 {
        // Not cuBLAS and cuDNN, or the engine would run only where they are.
        const EDGE_MASK_CONVOLUTIONS: u32 = 1 << 3;
        const JIT_CONVOLUTIONS: u32 = 1 << 4;
        config.set_tactic_sources(EDGE_MASK_CONVOLUTIONS | JIT_CONVOLUTIONS);
    }
    if options.version_compatible {
        let _ = config.set(BuilderFlag::VersionCompatible, true); // every ABI version has it
    }
    if options.hardware_compatible {
        config.set_hardware_compatibility(Hardware::AmperePlus);
    }
    if let Some(core) = options.dla_core {
        // TensorRT 8 would use the GPU without a warning.
        let cores = builder.dla_cores();
        if core >= cores {
            let there = if cores > 0 { format!("DLA cores 0 to {}", cores - 1) } else { "no DLA".into() };
            return Err(Error::new(
                ErrorKind::Settings,
                format!("There is no DLA core {core} to build the engine for"),
            )
            .cause(format!("this GPU has {there}"))
            .remedy("Set dla-core to one that the machine has, which are Jetsons only, or leave it out"));
        }
        const DLA: i32 = 1;
        config.set_default_device_type(DLA);
        config.set_dla_core(core);
        let _ = config.set(BuilderFlag::GpuFallback, true); // every ABI version has it
    }
    if !options.capabilities.is_empty() && !config.set_compute_capabilities(&options.capabilities) {
        return Err(Error::new(
            ErrorKind::Settings,
            format!("{} cannot build for the compute capabilities {:?}", library.name(), options.capabilities),
        )
        .remedy("TensorRT-RTX builds for 75, 80, 86, 89 and 120, other libraries for this machine's GPU only"));
    }
    Ok(())
}

/// Gives every input that leaves dimensions open the range that the engine takes there, and makes all tensors dense, in
/// the order of their dimensions.
fn set_shapes(
    builder: &Builder,
    config: &mut Config,
    network: &Network,
    onnx: &Onnx,
    options: &BuildOptions,
) -> Result<()> {
    let name = onnx.path().display();
    let mut profile = None;
    for mut input in network.inputs() {
        input.set_linear();
        let (input, dims) = (input.name(), input.dims().unwrap_or_default());
        let text = input.to_string_lossy();
        let shape = options.shapes.iter().find(|shape| shape.input == text);
        if let Some(shape) = shape {
            let wrong = [&shape.smallest, &shape.usual, &shape.largest].into_iter().find(|wanted| !wanted.fits(&dims));
            if let Some(wrong) = wrong {
                return Err(Error::new(
                    ErrorKind::Settings,
                    format!("The input {text} of {name} is {dims} and cannot be {wrong}"),
                )
                .remedy("Set input-size to one that the model takes"));
            }
        }
        if dims.is_static() {
            continue;
        }
        let shape = shape.ok_or_else(|| {
            Error::new(ErrorKind::Settings, format!("The input {text} of {name} leaves dimensions open ({dims})"))
                .remedy("Export the model with fixed dimensions there")
        })?;
        if profile.is_none() {
            profile = builder.profile();
        }
        let extents = [
            (OptProfileSelector::Smallest, &shape.smallest),
            (OptProfileSelector::Usual, &shape.usual),
            (OptProfileSelector::Largest, &shape.largest),
        ];
        let set = |profile: &mut super::abi::Profile<'_>| {
            extents.iter().all(|(extent, dims)| profile.set(&input, *extent, dims))
        };
        if !profile.as_mut().is_some_and(set) {
            return Err(Error::new(ErrorKind::Settings, format!("TensorRT cannot build {name} for {shape}"))
                .remedy("The dimensions should grow from the smallest to the largest"));
        }
    }
    for mut output in network.outputs() {
        output.set_linear();
    }
    if let Some(profile) = profile {
        config.share_profiles();
        config.add_profile(&profile).ok_or_else(|| {
            let shapes = options.shapes.iter().map(Shape::to_string).collect::<Vec<_>>().join("; ");
            Error::new(ErrorKind::Settings, format!("TensorRT cannot build {name} for {shapes}"))
                .remedy("The dimensions should grow from the smallest to the largest")
        })?;
    }
    Ok(())
}

/// The calibrator must live until the engine is built.
fn set_precision(
    builder: &Builder,
    config: &mut Config,
    network: &Network,
    onnx: &Onnx,
    options: &BuildOptions,
) -> Result<Option<Box<Calibrator>>> {
    let abi = config.abi();
    if options.precision == Precision::Fp32 {
        let _ = config.set(BuilderFlag::Tf32, false); // every ABI version has it
    }
    if abi.is_strongly_typed() || options.casts(abi, onnx) {
        return Ok(None); // there are no such flags
    }
    let quantized = onnx.numbers() == WeightType::Quantized;
    let half = match options.precision {
        Precision::Auto => builder.platform_has_fast_fp16(),
        Precision::Fp32 => false,
        Precision::Fp16 | Precision::Int8 => true,
    };
    // Weakly typed families have both flags.
    let _ = config.set(BuilderFlag::Fp16, half);
    let _ = config.set(BuilderFlag::Int8, quantized || options.precision == Precision::Int8);
    if half {
        let _ = config.set(BuilderFlag::PreferPrecisionConstraints, true);
        keep_exact(network, options.exact);
    }
    let table = options.calibration.as_deref().filter(|_| options.precision == Precision::Int8 && !quantized);
    table
        .map(|path| {
            let calibrator = Calibrator::new(abi, calibration(path)?)
                .map_err(|error| error.about(&format!("Cannot use the calibration {}", path.display())))?;
            // SAFETY: the caller keeps it until the engine is built.
            let _ = unsafe { config.set_int8_calibrator(calibrator.as_raw()) };
            Ok(calibrator)
        })
        .transpose()
}

fn calibration(path: &Path) -> Result<Vec<u8>> {
    files::read_regular(path, 64 << 20).map_err(|error| {
        Error::new(ErrorKind::NotFound, format!("Cannot read the calibration {}", path.display()))
            .cause(error)
            .remedy("Set int8-calibration-cache to the file that a calibrator wrote for this model")
    })
}

/// The timing cache, with `bytes` if they are of this version and GPU; it must live until the engine is built. RTX has
/// none: it does not measure kernels.
fn set_timing(config: &mut Config, bytes: Option<&[u8]>) -> Option<TimingCache> {
    if config.abi().is_rtx() {
        return None;
    }
    // One of another version or GPU is refused, and an empty one is used.
    [bytes, Some(&[])].into_iter().flatten().find_map(|bytes| {
        // SAFETY: the caller drops the cache before the builder, and after the build.
        unsafe {
            let timing = config.timing_cache(bytes)?;
            config.set_timing_cache(&timing).then_some(timing)
        }
    })
}
