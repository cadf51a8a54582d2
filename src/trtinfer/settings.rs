//! What the user says to trtinfer: each property, and what it means.

use std::path::PathBuf;

use gst::glib;
use gst::prelude::*;

use super::{CudaGraph, EngineBuild, Precision};
use crate::backends::BackendPreference;
use crate::backends::tensorrt::Options;
use crate::backends::tensorrt::builder::BuildOptions;
use crate::backends::tensorrt::engine;

/// What the user typed.
#[derive(Clone)]
pub struct Settings {
    pub model_file: Option<PathBuf>,
    pub backend: BackendPreference,
    pub input_size: String,
    pub batch_size: u32,
    /// Microseconds.
    pub batch_timeout: u32,
    /// Empty for a model of one's own.
    pub shared_model: String,
    pub interval: u32,
    /// -1 follows the pipeline.
    pub cuda_device_id: i32,
    /// Takes the GPU's time for each batch.
    pub measure: bool,
    /// Publishes outputs as GstTensorMeta.
    pub tensor_meta: bool,
    pub trt_library: Option<PathBuf>,
    pub allow_host_code: bool,
    /// -1 is none.
    pub dla_core: i32,
    pub precision: Precision,
    pub int8_calibration_cache: Option<PathBuf>,
    /// 0 leaves it to TensorRT.
    pub workspace_mib: u32,
    pub optimization_level: u32,
    pub engine_build: EngineBuild,
    pub engine_cache: Option<PathBuf>,
    pub cuda_graph: CudaGraph,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            model_file: None,
            backend: BackendPreference::Auto,
            input_size: String::new(),
            batch_size: 1,
            batch_timeout: 10_000,
            shared_model: String::new(),
            interval: 1,
            cuda_device_id: -1,
            measure: false,
            tensor_meta: false,
            trt_library: None,
            allow_host_code: false,
            dla_core: -1,
            precision: Precision::Auto,
            int8_calibration_cache: None,
            workspace_mib: 0,
            optimization_level: Options::LEVEL.into(),
            engine_build: EngineBuild::Auto,
            engine_cache: None,
            cuda_graph: CudaGraph::Auto,
        }
    }
}

/// The properties that [`Settings`] hold.
pub fn properties() -> Vec<glib::ParamSpec> {
    let default = Settings::default();
    vec![
            glib::ParamSpecString::builder("model-file")
                .nick("Model file")
                .blurb("ONNX file or TensorRT engine of the detector; engines are programs, so use only trusted ones")
                .mutable_ready()
                .build(),
            glib::ParamSpecEnum::builder_with_default("backend", default.backend)
                .nick("Backend")
                .blurb("What runs the model")
                .mutable_ready()
                .build(),
            glib::ParamSpecString::builder("input-size")
                .nick("Input size")
                .blurb("Width and height like 640x640, for models that leave them open (unset = as the file says)")
                .mutable_ready()
                .build(),
            glib::ParamSpecUInt::builder("batch-size")
                .nick("Batch size")
                .blurb("Most frames that are inferred at once, of this stream and of those that share its model. For those of one stream, a queue behind trtinfer must have room for as many")
                .minimum(1)
                .maximum(1024)
                .default_value(default.batch_size)
                .mutable_ready()
                .build(),
            glib::ParamSpecUInt::builder("batch-timeout")
                .nick("Batch timeout")
                .blurb("Microseconds after which a frame is inferred with fewer than batch-size frames")
                .maximum(10_000_000)
                .default_value(default.batch_timeout)
                .mutable_ready()
                .build(),
            glib::ParamSpecString::builder("shared-model")
                .nick("Shared model")
                .blurb("Elements of this process with the same name here (and the same cuda-device-id) run one model, and fill its batches together (unset = a model of its own)")
                .mutable_ready()
                .build(),
            glib::ParamSpecUInt::builder("interval")
                .nick("Interval")
                .blurb("Infer every n-th frame and let the others pass")
                .minimum(1)
                .maximum(u32::MAX)
                .default_value(default.interval)
                .mutable_playing()
                .build(),
            crate::gst::cuda::device_id_property(),
            glib::ParamSpecString::builder("trt-library")
                .nick("TensorRT library")
                .blurb("File or folder of the TensorRT library to use (unset = the newest that is found)")
                .mutable_ready()
                .build(),
            glib::ParamSpecBoolean::builder("allow-host-code")
                .nick("Allow host code")
                .blurb("Let an engine run CPU code that it carries, which version-compatible engines do. Such code can do whatever this user can: only for engines you trust")
                .default_value(default.allow_host_code)
                .mutable_ready()
                .build(),
            glib::ParamSpecInt::builder("dla-core")
                .nick("DLA core")
                .blurb("Deep-learning accelerator of a Jetson to run on (-1 = the GPU)")
                .minimum(-1)
                .maximum(15)
                .default_value(default.dla_core)
                .mutable_ready()
                .build(),
            glib::ParamSpecEnum::builder_with_default("precision", default.precision)
                .nick("Precision")
                .blurb("Precision of the engine built from an ONNX file")
                .mutable_ready()
                .build(),
            glib::ParamSpecString::builder("int8-calibration-cache")
                .nick("INT8 calibration cache")
                .blurb("Calibration table for precision=int8, as TensorRT's calibrators write it")
                .mutable_ready()
                .build(),
            glib::ParamSpecUInt::builder("workspace-mib")
                .nick("Workspace")
                .blurb("MiB of GPU memory that layers may use to work in (0 = all there is)")
                .default_value(default.workspace_mib)
                .mutable_ready()
                .build(),
            glib::ParamSpecUInt::builder("optimization-level")
                .nick("Optimization level")
                .blurb("How long TensorRT may look for faster kernels: 0 builds in seconds, 5 in many minutes")
                .maximum(5)
                .default_value(default.optimization_level)
                .mutable_ready()
                .build(),
            glib::ParamSpecEnum::builder_with_default("engine-build", default.engine_build)
                .nick("Engine build")
                .blurb("Whether to build an engine from an ONNX file that has none in the cache")
                .mutable_ready()
                .build(),
            glib::ParamSpecString::builder("engine-cache")
                .nick("Engine cache")
                .blurb("Folder of built engines (unset = gst-plugin-trt/engines in the user's cache)")
                .mutable_ready()
                .build(),
            glib::ParamSpecEnum::builder_with_default("cuda-graph", default.cuda_graph)
                .nick("CUDA graph")
                .blurb("Whether TensorRT's work for a frame is recorded and then queued by one call")
                .mutable_ready()
                .build(),
            glib::ParamSpecBoolean::builder("tensor-meta")
                .nick("Tensor meta")
                .blurb("Attach the outputs as GstTensorMeta too, for GStreamer's own tensor decoders (from GStreamer 1.26 on); trtinfer then waits for them, and copies them where they are on a GPU")
                .default_value(default.tensor_meta)
                .mutable_ready()
                .build(),
            crate::gst::stats::measure_property(),
        ]
}

impl Settings {
    /// What of it is for TensorRT.
    pub fn tensorrt(&self) -> Options {
        Options {
            library: self.trt_library.clone(),
            engine: engine::Options {
                allow_host_code: self.allow_host_code,
                dla_core: (self.dla_core >= 0).then_some(self.dla_core),
            },
            build: BuildOptions {
                precision: self.precision.into(),
                calibration: self.int8_calibration_cache.clone(),
                workspace_mib: (self.workspace_mib > 0).then_some(self.workspace_mib),
                level: u8::try_from(self.optimization_level).ok(),
                dla_core: (self.dla_core >= 0).then_some(self.dla_core),
                ..BuildOptions::default()
            },
            never_build: self.engine_build == EngineBuild::Never,
            cache: self.engine_cache.clone(),
            graphs: self.cuda_graph.into(),
        }
    }

    /// The first property by which models of these settings are not the same, with both values.
    pub fn difference(&self, other: &Settings) -> Option<(&'static str, String, String)> {
        let text = |settings: &Settings, name: &str| match settings.get(name).serialize() {
            Ok(text) => text.to_string(),
            Err(_) => "unset".into(), // texts that are NULL
        };
        let own = ["interval", "measure", "tensor-meta"]; // of each element
        properties().into_iter().map(|property| property.name()).filter(|name| !own.contains(name)).find_map(|name| {
            let (mine, theirs) = (text(self, name), text(other, name));
            (mine != theirs).then_some((name, mine, theirs))
        })
    }

    /// Takes over a property, whose type and range GObject has checked.
    pub fn set(&mut self, name: &str, value: &glib::Value) {
        fn get<'a, T: glib::value::FromValue<'a>>(value: &'a glib::Value) -> T {
            value.get().unwrap_or_else(|_| unreachable!("checked by GObject"))
        }
        let path = || get::<Option<PathBuf>>(value).filter(|path| !path.as_os_str().is_empty());
        match name {
            "model-file" => self.model_file = path(),
            "backend" => self.backend = get(value),
            "input-size" => self.input_size = get::<Option<String>>(value).unwrap_or_default(),
            "batch-size" => self.batch_size = get(value),
            "batch-timeout" => self.batch_timeout = get(value),
            "shared-model" => self.shared_model = get::<Option<String>>(value).unwrap_or_default(),
            "interval" => self.interval = get(value),
            "cuda-device-id" => self.cuda_device_id = get(value),
            "measure" => self.measure = get(value),
            "tensor-meta" => self.tensor_meta = get(value),
            "trt-library" => self.trt_library = path(),
            "allow-host-code" => self.allow_host_code = get(value),
            "dla-core" => self.dla_core = get(value),
            "precision" => self.precision = get(value),
            "int8-calibration-cache" => self.int8_calibration_cache = path(),
            "workspace-mib" => self.workspace_mib = get(value),
            "optimization-level" => self.optimization_level = get(value),
            "engine-build" => self.engine_build = get(value),
            "engine-cache" => self.engine_cache = path(),
            "cuda-graph" => self.cuda_graph = get(value),
            other => unreachable!("property {other}"),
        }
    }

    pub fn get(&self, name: &str) -> glib::Value {
        match name {
            "model-file" => self.model_file.as_deref().to_value(),
            "backend" => self.backend.to_value(),
            "input-size" => (!self.input_size.is_empty()).then_some(&self.input_size).to_value(),
            "batch-size" => self.batch_size.to_value(),
            "batch-timeout" => self.batch_timeout.to_value(),
            "shared-model" => (!self.shared_model.is_empty()).then_some(&self.shared_model).to_value(),
            "interval" => self.interval.to_value(),
            "cuda-device-id" => self.cuda_device_id.to_value(),
            "measure" => self.measure.to_value(),
            "tensor-meta" => self.tensor_meta.to_value(),
            "trt-library" => self.trt_library.as_deref().to_value(),
            "allow-host-code" => self.allow_host_code.to_value(),
            "dla-core" => self.dla_core.to_value(),
            "precision" => self.precision.to_value(),
            "int8-calibration-cache" => self.int8_calibration_cache.as_deref().to_value(),
            "workspace-mib" => self.workspace_mib.to_value(),
            "optimization-level" => self.optimization_level.to_value(),
            "engine-build" => self.engine_build.to_value(),
            "engine-cache" => self.engine_cache.as_deref().to_value(),
            "cuda-graph" => self.cuda_graph.to_value(),
            other => unreachable!("property {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::backends::tensorrt::GraphMode;

    fn set(name: &str, value: impl Into<glib::Value>) -> Options {
        let mut settings = Settings::default();
        settings.set(name, &value.into());
        settings.tensorrt()
    }

    #[test]
    fn each_property_says_something_to_tensorrt() {
        let usual = Settings::default().tensorrt();
        assert_eq!((usual.library, usual.cache, usual.never_build), (None, None, false));
        assert_eq!(usual.build, BuildOptions { level: Some(3), ..BuildOptions::default() });
        assert_eq!(usual.build, Options::default().build, "sessions find the engines of elements");
        assert!(!usual.engine.allow_host_code && usual.engine.dla_core.is_none());

        assert_eq!(set("trt-library", "/opt/tensorrt").library.as_deref(), Some(Path::new("/opt/tensorrt")));
        assert_eq!(set("trt-library", "").library, None, "as if unset");
        assert_eq!(set("engine-cache", "/var/engines").cache.as_deref(), Some(Path::new("/var/engines")));
        assert!(set("engine-build", EngineBuild::Never).never_build);
        assert!(set("allow-host-code", true).engine.allow_host_code);
        let on_dla = set("dla-core", 1);
        assert_eq!((on_dla.engine.dla_core, on_dla.build.dla_core), (Some(1), Some(1)));
        assert_eq!(set("workspace-mib", 256u32).build.workspace_mib, Some(256));
        assert_eq!(set("workspace-mib", 0u32).build.workspace_mib, None);
        assert_eq!(set("optimization-level", 5u32).build.level, Some(5));
        assert_eq!(set("precision", Precision::Fp16).build.precision.name(), "fp16");
        assert_eq!(set("cuda-graph", CudaGraph::Off).graphs, GraphMode::Off);
        let table = set("int8-calibration-cache", "/var/table").build.calibration;
        assert_eq!(table.as_deref(), Some(Path::new("/var/table")));
    }

    #[test]
    fn settings_of_one_model_differ_in_nothing_but_what_is_of_each_element() {
        gst::init().unwrap();
        let other: [(&str, glib::Value); 4] = [
            ("model-file", "/var/model.onnx".into()),
            ("batch-size", 4u32.into()),
            ("precision", Precision::Fp16.into()),
            ("engine-cache", "/var/engines".into()),
        ];
        for (name, value) in other {
            let (settings, mut changed) = (Settings::default(), Settings::default());
            assert_eq!(settings.difference(&changed), None);
            changed.set("interval", &7u32.into());
            changed.set("measure", &true.into());
            assert_eq!(settings.difference(&changed), None);
            changed.set(name, &value);
            assert_eq!(settings.difference(&changed).map(|(property, ..)| property), Some(name));
        }
    }

    #[test]
    fn what_is_set_is_read_again() {
        let settings = Settings::default();
        for property in properties() {
            let mut changed = settings.clone();
            changed.set(property.name(), &settings.get(property.name()));
            let (was, is) = (settings.get(property.name()), changed.get(property.name()));
            assert_eq!(format!("{was:?}"), format!("{is:?}"), "{}", property.name());
        }
    }
}
