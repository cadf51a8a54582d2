// SPDX-License-Identifier: MPL-2.0
//! The properties of trtinfer, and what they mean.

use std::path::PathBuf;

use gst::glib;
use gst::prelude::*;

use crate::backends::options::{OptionSpec, OptionValue, Options};
use crate::backends::{self, BACKENDS, Backend, BackendPreference, PREFERENCE};
use crate::core::device::Device;
use crate::gst::options;

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
    /// Options for backends.
    pub options: Options,
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
            options: Options::default(),
        }
    }
}

/// The properties that [`Settings`] hold.
pub fn properties() -> Vec<glib::ParamSpec> {
    let default = Settings::default();
    let mut properties = vec![
            glib::ParamSpecString::builder("model-file")
                .nick("Model file")
                .blurb("ONNX file or TensorRT engine of the model. Set while playing, it is loaded beside, with the properties that were set before, and takes over between two frames. Engines contain code: use only trusted ones")
                .mutable_playing()
                .build(),
            options::property(&PREFERENCE),
            glib::ParamSpecString::builder("input-size")
                .nick("Input size")
                .blurb("Width and height like 640x640, for models that leave them open; auto takes the smallest rectangle that frames need within the size in the file, or that size with shared-model (unset = auto)")
                .mutable_playing()
                .build(),
            glib::ParamSpecUInt::builder("batch-size")
                .nick("Batch size")
                .blurb("Maximum frames per run, of this stream and of those that share its model. The model must have a dynamic batch, or this one. One stream fills batches only if a queue behind trtinfer has room for as many frames")
                .minimum(1)
                .maximum(1024)
                .default_value(default.batch_size)
                .mutable_playing()
                .build(),
            glib::ParamSpecUInt::builder("batch-timeout")
                .nick("Batch timeout")
                .blurb("Maximum microseconds that a frame waits for others to fill its batch")
                .maximum(10_000_000)
                .default_value(default.batch_timeout)
                .mutable_playing()
                .build(),
            glib::ParamSpecString::builder("shared-model")
                .nick("Shared model")
                .blurb("Elements of this process with the same name here (and the same cuda-device-id) run one model, and fill its batches together (unset = a model of its own)")
                .mutable_ready()
                .build(),
            glib::ParamSpecUInt::builder("interval")
                .nick("Interval")
                .blurb("Infer every n-th frame; trtnms repeats the last boxes on the others")
                .minimum(1)
                .maximum(u32::MAX)
                .default_value(default.interval)
                .mutable_playing()
                .build(),
            crate::gst::cuda::device_id_property(),
    ];
    properties.extend(backends::all_options().map(options::property));
    properties.extend([
            glib::ParamSpecBoolean::builder("tensor-meta")
                .nick("Tensor meta")
                .blurb("Attach the outputs as GstTensorMeta too, for GStreamer's own tensor decoders (from GStreamer 1.26 on); trtinfer then waits for them, and copies them where they are on a GPU")
                .default_value(default.tensor_meta)
                .mutable_ready()
                .build(),
            crate::gst::stats::measure_property(),
    ]);
    properties
}

/// The option of a backend that a property is.
fn option(name: &str) -> Option<&'static OptionSpec> {
    backends::all_options().find(|option| option.name == name)
}

impl Settings {
    /// Properties that are not at their defaults and have no effect with this backend, and the backends where they have.
    pub fn without_effect(&self, backend: &dyn Backend) -> (Vec<&'static str>, Vec<&'static dyn Backend>) {
        let ignored: Vec<&OptionSpec> =
            backends::all_options().filter(|option| self.options.has(option) && !backend.has(option)).collect();
        let mut names: Vec<&str> = ignored.iter().map(|option| option.name).collect();
        let is_on_gpu = |other: &dyn Backend| other.device() == Device::Cuda;
        let wants_gpu = backend.device() == Device::Host && self.cuda_device_id >= 0;
        if wants_gpu {
            names.push("cuda-device-id");
        }
        let owns =
            |other: &&dyn Backend| ignored.iter().any(|option| other.has(option)) || wants_gpu && is_on_gpu(*other);
        (names, BACKENDS.iter().copied().filter(owns).collect())
    }

    /// The first of these options that must have an effect as it is set.
    pub fn insists(&self, names: &[&str]) -> Option<&'static OptionSpec> {
        let insists = |option: &&OptionSpec| option.insists.map(OptionValue::Choice) == Some(self.options.get(option));
        names.iter().filter_map(|name| option(name)).find(insists)
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

    /// Takes over what belongs to the model, from an element that shares it.
    pub fn follow(&mut self, other: &Settings) {
        let Settings { interval, measure, tensor_meta, .. } = *self;
        *self = Settings { interval, measure, tensor_meta, ..other.clone() };
    }

    /// Takes over a property, whose type and range GObject has checked.
    pub fn set(&mut self, name: &str, value: &glib::Value) {
        fn get<'a, T: glib::value::FromValue<'a>>(value: &'a glib::Value) -> T {
            value.get().unwrap_or_else(|_| unreachable!("checked by GObject"))
        }
        let path = || get::<Option<PathBuf>>(value).filter(|path| !path.as_os_str().is_empty());
        match name {
            "model-file" => self.model_file = path(),
            "backend" => {
                if let OptionValue::Choice(word) = options::from_value(&PREFERENCE, value) {
                    self.backend = word.into();
                }
            }
            "input-size" => self.input_size = get::<Option<String>>(value).unwrap_or_default(),
            "batch-size" => self.batch_size = get(value),
            "batch-timeout" => self.batch_timeout = get(value),
            "shared-model" => self.shared_model = get::<Option<String>>(value).unwrap_or_default(),
            "interval" => self.interval = get(value),
            "cuda-device-id" => self.cuda_device_id = get(value),
            "measure" => self.measure = get(value),
            "tensor-meta" => self.tensor_meta = get(value),
            name => {
                let option = option(name).unwrap_or_else(|| unreachable!("property {name}"));
                self.options.set(option, options::from_value(option, value));
            }
        }
    }

    pub fn get(&self, name: &str) -> glib::Value {
        match name {
            "model-file" => self.model_file.as_deref().to_value(),
            "backend" => options::to_value(&PREFERENCE, &OptionValue::Choice(self.backend.word())),
            "input-size" => (!self.input_size.is_empty()).then_some(&self.input_size).to_value(),
            "batch-size" => self.batch_size.to_value(),
            "batch-timeout" => self.batch_timeout.to_value(),
            "shared-model" => (!self.shared_model.is_empty()).then_some(&self.shared_model).to_value(),
            "interval" => self.interval.to_value(),
            "cuda-device-id" => self.cuda_device_id.to_value(),
            "measure" => self.measure.to_value(),
            "tensor-meta" => self.tensor_meta.to_value(),
            name => {
                let option = option(name).unwrap_or_else(|| unreachable!("property {name}"));
                options::to_value(option, &self.options.get(option))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::options::OptionKind;
    use crate::backends::{rten, tensorrt};

    /// The settings with a property as gst-launch-1.0 sets it.
    fn with(name: &str, text: &str) -> Settings {
        let property = properties().into_iter().find(|property| property.name() == name).unwrap();
        let value = glib::Value::deserialize_with_pspec(text, &property).unwrap();
        let mut settings = Settings::default();
        settings.set(name, &value);
        settings
    }

    #[test]
    fn options_of_backends_are_properties() {
        gst::init().unwrap();
        for option in backends::all_options() {
            let text = match &option.kind {
                OptionKind::Choice { choices, .. } => choices[1].word,
                OptionKind::Flag => "true",
                _ => "2",
            };
            let settings = with(option.name, text);
            assert_eq!(settings.options.get(option), option.parse(text).unwrap(), "{}", option.name);
            assert_eq!(settings.get(option.name).serialize().unwrap(), text);
        }
        assert!(!with("engine-cache", "").options.has(option("engine-cache").unwrap()), "as if unset");
        assert_eq!(with("backend", "cpu").backend, BackendPreference::Named("cpu"));
    }

    #[test]
    fn options_that_a_backend_ignores_are_named() {
        gst::init().unwrap();
        let of = |settings: &Settings, backend: &dyn Backend| {
            let (names, owners) = settings.without_effect(backend);
            (names.join(" "), owners.iter().map(|owner| owner.name()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of(&Settings::default(), &rten::Rten), (String::new(), String::new()));
        let mut settings = with("cuda-graph", "on");
        settings.cuda_device_id = 0;
        assert_eq!(of(&settings, &rten::Rten), ("cuda-graph cuda-device-id".into(), "tensorrt".into()));
        assert_eq!(of(&settings, &tensorrt::TensorRt), (String::new(), String::new()));
        let names = ["cuda-device-id", "precision", "cuda-graph"];
        assert_eq!(settings.insists(&names).map(|option| option.name), Some("cuda-graph"));
        assert!(with("cuda-graph", "off").insists(&names).is_none());
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
            changed.set("interval", &7u32.into());
            changed.set("measure", &true.into());
            assert_eq!(settings.difference(&changed), None);
            changed.set(name, &with(name, value).get(name));
            assert_eq!(settings.difference(&changed).map(|(property, ..)| property), Some(name));
        }
    }

    #[test]
    fn properties_are_read_back() {
        let settings = Settings::default();
        for property in properties() {
            let mut changed = settings.clone();
            changed.set(property.name(), &settings.get(property.name()));
            let (was, is) = (settings.get(property.name()), changed.get(property.name()));
            assert_eq!(format!("{was:?}"), format!("{is:?}"), "{}", property.name());
        }
    }
}
