// SPDX-License-Identifier: MPL-2.0
//! The properties of trtinfer, and what they mean.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use gst::prelude::*;
use gsttrt_core::backends::batcher::BatchTimeout;
use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::{self, Backend, BackendPreference, PREFERENCE, Placement, effect};
use gsttrt_core::error::{Error, Result};
use gsttrt_core::image::options::INPUT_SIZE;
use gsttrt_core::options::{OptionKind, Setting, setting};

use crate::gst::options::{MUTABLE_PLAYING, MUTABLE_READY};
use crate::gst::property::{PropertyTable, property};
use crate::gst::{cuda, options, stats};

/// What the user typed.
#[derive(Clone)]
pub struct Settings {
    pub model_file: Option<PathBuf>,
    pub backend: BackendPreference,
    pub input_size: String,
    pub batch_size: u32,
    /// Microseconds; -1 is automatic.
    pub batch_timeout: i32,
    /// Of a backend on the CPU; 0 for as many as fill it.
    pub parallel_runs: u32,
    /// Empty for a model of one's own.
    pub shared_model: String,
    /// -1 follows the pipeline.
    pub cuda_device_id: i32,
    /// Options for backends.
    pub options: Options,
    /// What elements that share a model need not have in common.
    pub own: OwnSettings,
}

/// The settings of an element, not of its model.
#[derive(Clone)]
pub struct OwnSettings {
    /// 0 is automatic.
    pub interval: u32,
    /// Takes the GPU's time for each batch.
    pub measure: bool,
    /// Publishes outputs as GstTensorMeta.
    pub tensor_meta: bool,
    /// Nanoseconds; 0 for no limit, [`AS_LIVE`] for one in live streams.
    pub run_timeout: u64,
}

/// `GST_CLOCK_TIME_NONE`
const AS_LIVE: u64 = u64::MAX;
/// Of live streams. A run takes milliseconds, on a slow CPU seconds.
const LIVE_LIMIT: Duration = Duration::from_secs(30);

impl Default for Settings {
    fn default() -> Self {
        Settings {
            model_file: None,
            backend: BackendPreference::Auto,
            input_size: String::new(),
            batch_size: 1,
            batch_timeout: -1,
            parallel_runs: 1,
            shared_model: String::new(),
            cuda_device_id: -1,
            options: Options::default(),
            own: OwnSettings { interval: 1, measure: false, tensor_meta: false, run_timeout: AS_LIVE },
        }
    }
}

static MODEL_FILE: Setting<Settings> = setting!(
    "model-file",
    "Model file",
    "ONNX file or TensorRT engine of the model, or its address on a server, like grpc://host:8001/model. Set while playing, it is loaded in the background, with the properties that were \
     set before, and takes over between two frames. Engines contain code: use only trusted ones",
    OptionKind::Path,
    model_file
);

static BATCH_SIZE: Setting<Settings> = setting!(
    "batch-size",
    "Batch size",
    "Maximum frames per run, of this stream and of those that share its model. The model must have a dynamic batch, \
     or this one. One stream fills batches only if a queue behind trtinfer has room for as many frames",
    OptionKind::UInt(1..=1024),
    batch_size
);

static BATCH_TIMEOUT: Setting<Settings> = setting!(
    "batch-timeout",
    "Batch timeout",
    "Maximum microseconds that a frame waits for others to fill its batch (-1 = automatic: once the model is free, as long as \
     waiting pays, up to 5000; 0 = as long as the model runs other frames)",
    OptionKind::Int(-1..=10_000_000),
    batch_timeout
);

static PARALLEL_RUNS: Setting<Settings> = setting!(
    "parallel-runs",
    "Parallel runs",
    "Runs at the same time: on the CPU each with as many threads as threads says (0 = as many as there are cores, up to 8), on \
     a server each a request (0 = 8), on a GPU each in an execution context, which takes memory (0 = 4, as shared-model has without batches). Those of one stream \
     need a queue behind trtinfer with room for as many frames",
    OptionKind::UInt(0..=64),
    parallel_runs
);

static SHARED_MODEL: Setting<Settings> = setting!(
    "shared-model",
    "Shared model",
    "Elements of this process with the same name here (and the same cuda-device-id) run one model on each GPU that \
     frames come from, and fill its batches together (unset = a model of its own)",
    OptionKind::Text,
    shared_model
);

static RUN_TIMEOUT: Setting<Settings> = setting!(
    "run-timeout",
    "Run timeout",
    "Maximum nanoseconds that a run of the model may take. Then the element posts an error, and the model is given up \
     (0 = no maximum, 18446744073709551615 = 30 s for live frames on the CPU, else none)",
    OptionKind::UInt64,
    own.run_timeout
);

static INTERVAL: Setting<Settings> = setting!(
    "interval",
    "Interval",
    "Infer every n-th frame; trtnms repeats the last boxes on the others (0 = automatic: as many frames as the model can, \
     an equal part for each stream that shares it)",
    OptionKind::UInt(0..=u32::MAX),
    own.interval
);

static TENSOR_META: Setting<Settings> = setting!(
    "tensor-meta",
    "Tensor meta",
    "Attach the outputs as GstTensorMeta too, for GStreamer's own tensor decoders (from GStreamer 1.26 on); trtinfer \
     then waits for them, and copies them where they are on a GPU",
    OptionKind::Flag,
    own.tensor_meta
);

pub static PROPERTIES: LazyLock<PropertyTable<Settings>> = LazyLock::new(|| {
    let live = |setting: &Setting<Settings>| options::property(setting, MUTABLE_PLAYING, |settings| settings);
    let ready = |setting: &Setting<Settings>| options::property(setting, MUTABLE_READY, |settings| settings);
    let mut properties = vec![
        live(&MODEL_FILE),
        live(&Setting { spec: &PREFERENCE, field: |settings| &mut settings.backend }),
        live(&Setting { spec: &INPUT_SIZE, field: |settings| &mut settings.input_size }),
        live(&BATCH_SIZE),
        live(&BATCH_TIMEOUT),
        live(&PARALLEL_RUNS),
        ready(&SHARED_MODEL),
        ready(&RUN_TIMEOUT),
        live(&INTERVAL),
        property!(cuda::device_id_property(), cuda_device_id),
    ];
    properties.extend(backends::all_options().map(|option| {
        options::of_backend(option, |settings: &Settings| &settings.options, |settings| &mut settings.options)
    }));
    properties.push(ready(&TENSOR_META));
    properties.push(property!(stats::measure_property(), own.measure));
    PropertyTable::new(properties)
});

impl OwnSettings {
    /// How long a run may take.
    pub fn run_limit(&self, is_live: impl FnOnce() -> bool) -> Option<Duration> {
        match self.run_timeout {
            0 => None,
            AS_LIVE => is_live().then_some(LIVE_LIMIT),
            nanoseconds => Some(Duration::from_nanos(nanoseconds)),
        }
    }
}

impl Settings {
    /// How long a frame may wait for others to fill its batch.
    pub fn latency(&self) -> Duration {
        match self.batch_size {
            1 => Duration::ZERO,
            _ => self.batch_timeout().longest(),
        }
    }

    pub fn batch_timeout(&self) -> BatchTimeout {
        match u64::try_from(self.batch_timeout) {
            Ok(microseconds) => BatchTimeout::Fixed(Duration::from_micros(microseconds)),
            Err(_) => BatchTimeout::Auto,
        }
    }

    /// Whether each frame waits for others, even if none come.
    pub fn waits_in_vain(&self) -> bool {
        self.batch_size > 1 && self.batch_timeout > 0
    }

    /// Whether elements with the same name for it share the model.
    pub fn is_shared(&self) -> bool {
        !self.shared_model.is_empty()
    }

    /// Whether a GPU is to run the model, as far as can be told before it is read.
    pub fn is_for_gpu(&self) -> bool {
        let file = self.model_file.as_deref();
        file.is_some_and(|file| Placement::is_for_gpu(file, self.backend, &self.options))
    }

    /// A warning of properties that are not at their defaults and have no effect with this backend, if there are any.
    ///
    /// # Errors
    /// `Settings`, where one of them must have its effect.
    pub fn without_effect(&self, backend: &dyn Backend) -> Result<Option<Error>> {
        let for_gpus: &[&str] = if self.cuda_device_id >= 0 { &["cuda-device-id"] } else { &[] };
        effect::without_effect(&self.options, for_gpus, backend)
    }

    /// The first property by which models of these settings are not the same, with both values.
    pub fn difference(&self, other: &Settings) -> Option<(&'static str, String, String)> {
        let text = |settings: &Settings, name: &str| match PROPERTIES.get(settings, name).serialize() {
            Ok(text) => text.to_string(),
            Err(_) => "unset".into(), // texts that are NULL
        };
        let other = Settings { own: self.own.clone(), ..other.clone() };
        PROPERTIES.specs().map(|property| property.name()).find_map(|name| {
            let (mine, theirs) = (text(self, name), text(&other, name));
            (mine != theirs).then_some((name, mine, theirs))
        })
    }

    /// Takes over what belongs to the model, from an element that shares it.
    pub fn follow(&mut self, other: &Settings) {
        *self = Settings { own: self.own.clone(), ..other.clone() };
    }
}

#[cfg(test)]
mod tests {
    use gst::glib;
    use gsttrt_core::backends::{rten, tensorrt};

    use super::*;

    /// The settings with a property as gst-launch-1.0 sets it.
    fn with(name: &str, text: &str) -> Settings {
        let property = PROPERTIES.specs().find(|property| property.name() == name).unwrap();
        let value = glib::Value::deserialize_with_pspec(text, &property).unwrap();
        let mut settings = Settings::default();
        PROPERTIES.set(&mut settings, name, &value);
        settings
    }

    #[test]
    fn options_of_backends_are_properties() {
        gst::init().unwrap();
        for option in backends::all_options() {
            let text = match &option.spec.kind {
                OptionKind::Choice { choices, .. } => choices[1].word,
                OptionKind::Flag => "true",
                _ => "2",
            };
            let settings = with(option.spec.name, text);
            assert_eq!(settings.options.get(option), option.spec.parse(text).unwrap(), "{}", option.spec.name);
            assert_eq!(PROPERTIES.get(&settings, option.spec.name).serialize().unwrap(), text);
        }
        let engine_cache = backends::all_options().find(|option| option.spec.name == "engine-cache").unwrap();
        assert!(!with("engine-cache", "").options.has(engine_cache), "as if unset");
        assert_eq!(with("backend", "cpu").backend, BackendPreference::Named("cpu"));
    }

    #[test]
    fn properties_that_a_backend_ignores_are_named() {
        gst::init().unwrap();
        let said = |settings: &Settings| settings.without_effect(&rten::Rten).unwrap().map(|text| text.message());
        assert_eq!(said(&Settings::default()), None);
        let settings = Settings { cuda_device_id: 0, ..with("precision", "fp16") };
        assert!(said(&settings).unwrap().starts_with("precision, cuda-device-id have no effect"));
        assert!(settings.without_effect(&tensorrt::TensorRt).unwrap().is_none());
    }

    #[test]
    fn elements_that_share_a_model_may_differ_only_in_their_own_settings() {
        gst::init().unwrap();
        let other = [
            ("model-file", "/var/model.onnx"),
            ("batch-size", "4"),
            ("precision", "fp16"),
            ("engine-cache", "/var/engines"),
        ];
        for (name, value) in other {
            let (settings, mut changed) = (Settings::default(), Settings::default());
            assert_eq!(settings.difference(&changed), None);
            PROPERTIES.set(&mut changed, "interval", &7u32.into());
            PROPERTIES.set(&mut changed, "measure", &true.into());
            assert_eq!(settings.difference(&changed), None);
            PROPERTIES.set(&mut changed, name, &PROPERTIES.get(&with(name, value), name));
            assert_eq!(settings.difference(&changed).map(|(property, ..)| property), Some(name));
        }
    }

    #[test]
    fn a_batch_timeout_is_automatic_or_of_microseconds() {
        gst::init().unwrap();
        let limit = BatchTimeout::Auto.longest();
        assert_eq!(limit, Duration::from_micros(5000), "as the property says");
        for (text, timeout, latency, in_vain) in [
            ("-1", BatchTimeout::Auto, limit, false),
            ("0", BatchTimeout::Fixed(Duration::ZERO), Duration::ZERO, false),
            ("7000", BatchTimeout::Fixed(Duration::from_millis(7)), Duration::from_millis(7), true),
        ] {
            let of = |batch_size| Settings { batch_size, ..with("batch-timeout", text) };
            let (one, four) = (of(1), of(4));
            assert_eq!([one.batch_timeout(), four.batch_timeout()], [timeout; 2], "{text}");
            assert_eq!([one.latency(), four.latency()], [Duration::ZERO, latency], "{text}");
            assert_eq!([one.waits_in_vain(), four.waits_in_vain()], [false, in_vain], "{text}");
        }
        assert_eq!(Settings::default().batch_timeout(), BatchTimeout::Auto);
    }

    #[test]
    fn runs_are_limited_in_live_streams_or_where_that_is_asked_for() {
        let limit = |run_timeout, is_live| OwnSettings { run_timeout, ..Settings::default().own }.run_limit(|| is_live);
        let default = Settings::default().own.run_timeout;
        assert_eq!([limit(default, true), limit(default, false)], [Some(Duration::from_secs(30)), None]);
        assert_eq!([limit(0, true), limit(0, false)], [None; 2]);
        assert_eq!([limit(7, true), limit(7, false)], [Some(Duration::from_nanos(7)); 2]);
    }

    #[test]
    fn properties_are_read_back() {
        gst::init().unwrap();
        let settings = Settings::default();
        for property in PROPERTIES.specs() {
            let mut changed = settings.clone();
            PROPERTIES.set(&mut changed, property.name(), &PROPERTIES.get(&settings, property.name()));
            let [was, is] = [&settings, &changed].map(|settings| PROPERTIES.get(settings, property.name()));
            assert_eq!(format!("{was:?}"), format!("{is:?}"), "{}", property.name());
        }
    }
}
