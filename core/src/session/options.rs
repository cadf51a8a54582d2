// SPDX-License-Identifier: MPL-2.0
//! Options as text, under the names of the elements' properties: `backend=cpu`, `score-threshold=0.5`.

use std::iter;
use std::sync::LazyLock;

use super::{PostprocessOptions, SessionOptions};
use crate::backends::{self, PREFERENCE};
use crate::error::{Error, ErrorKind, Result};
use crate::image::options::{
    CHROMA_SAMPLING, FRAME_STEP, FRAMES, INPUT_SIZE, MEAN, PAD_VALUE, RESIZE, SCALE, SHORTEST_EDGE, STD, TENSOR_COLORS,
    UPLOAD, check_std,
};
use crate::image::preprocess::device::Upload;
use crate::options::{OptionKind, OptionSpec, Setting, name_and_value};
use crate::postprocess::options as postprocess;

/// Elements take their pipeline's too.
static CUDA_DEVICE_ID: OptionSpec = OptionSpec {
    name: "cuda-device-id",
    nick: "CUDA device id",
    blurb: "The index of the GPU",
    kind: OptionKind::Int(0..=i32::MAX),
};

/// Elements run batches of frames of several streams, and have 1 by default.
static BATCH_SIZE: OptionSpec = OptionSpec {
    name: "batch-size",
    nick: "Batch size",
    blurb: "Maximum pictures per run, for models with a dynamic batch (0 = as many as the model fixes, else 1)",
    kind: OptionKind::UInt(0..=1024),
};

/// Elements have it for pictures too, and repeat results.
pub(super) static INTERVAL: OptionSpec = OptionSpec {
    name: "interval",
    nick: "Interval",
    blurb: "With clips: the model sees the clip of every n-th frame, if one ends with it; the other frames have no results",
    kind: OptionKind::UInt(0..=u32::MAX),
};

/// The options of trtinfer and trtpreprocess; those of backends are declared there.
static SETTINGS: LazyLock<[Setting<SessionOptions>; 16]> = LazyLock::new(|| {
    [
        Setting { spec: &PREFERENCE, field: |options| &mut options.backend },
        Setting { spec: &INPUT_SIZE, field: |options| &mut options.input_size },
        Setting { spec: &BATCH_SIZE, field: |options| &mut options.batch_size },
        Setting { spec: &CUDA_DEVICE_ID, field: |options| &mut options.cuda_device_id },
        Setting { spec: &CHROMA_SAMPLING, field: |options| &mut options.chroma_sampling },
        Setting { spec: &MEAN, field: |options| &mut options.mean },
        Setting { spec: &STD, field: |options| &mut options.std },
        Setting { spec: &SHORTEST_EDGE, field: |options| &mut options.shortest_edge },
        Setting { spec: &RESIZE, field: |options| &mut options.resize },
        Setting { spec: &TENSOR_COLORS, field: |options| &mut options.tensor_colors },
        Setting { spec: &SCALE, field: |options| &mut options.scale },
        Setting { spec: &PAD_VALUE, field: |options| &mut options.pad_value },
        Setting { spec: &UPLOAD, field: |options| &mut options.upload },
        Setting { spec: &FRAMES, field: |options| &mut options.frames },
        Setting { spec: &FRAME_STEP, field: |options| &mut options.frame_step },
        Setting { spec: &INTERVAL, field: |options| &mut options.interval },
    ]
});

static LAYOUT: LazyLock<Setting<PostprocessOptions>> =
    LazyLock::new(|| Setting { spec: &postprocess::LAYOUT, field: |options| &mut options.layout });

/// The options of trtnms.
fn postprocess_settings() -> impl Iterator<Item = &'static Setting<PostprocessOptions>> {
    iter::once(&*LAYOUT).chain(&postprocess::SETTINGS)
}

/// What is set of the options that each backend on a GPU heeds, and no other one.
pub(super) fn for_gpus(options: &SessionOptions) -> Vec<&'static str> {
    let set = [(options.cuda_device_id.is_some(), &CUDA_DEVICE_ID), (options.upload != Upload::default(), &UPLOAD)];
    set.into_iter().filter(|(is_set, _)| *is_set).map(|(_, spec)| spec.name).collect()
}

/// The names of all options.
fn names() -> impl Iterator<Item = &'static str> {
    let own = SETTINGS.iter().map(|setting| setting.spec.name);
    own.chain(postprocess_settings().map(|setting| setting.spec.name))
        .chain(backends::all_options().map(|option| option.spec.name))
}

/// Reads options from texts like `backend=cpu`.
///
/// ```
/// let (options, postprocess) = gsttrt_core::session::parse_options(["input-size=640x480", "classes=person,car"]).unwrap();
/// assert_eq!(options.input_size, Some((640, 480)));
/// assert_eq!(postprocess.classes, "person,car");
/// ```
///
/// # Errors
/// `Settings`, if there is no such option, or its value cannot be parsed or is out of range.
pub fn parse_options<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<(SessionOptions, PostprocessOptions)> {
    let (mut options, mut postprocess) = (SessionOptions::default(), PostprocessOptions::default());
    for text in texts {
        let (name, value) = name_and_value(text)?;
        if let Some(setting) = SETTINGS.iter().find(|setting| setting.spec.name == name) {
            setting.parse(&mut options, value)?;
        } else if let Some(setting) = postprocess_settings().find(|setting| setting.spec.name == name) {
            setting.parse(&mut postprocess, value)?;
        } else if let Some(option) = backends::all_options().find(|option| option.spec.name == name) {
            options.options.set(option, option.spec.parse(value)?);
        } else {
            return Err(Error::new(ErrorKind::Settings, format!("There is no option “{name}”"))
                .remedy(format!("Use {}", names().collect::<Vec<_>>().join(", "))));
        }
    }
    check_std(options.std)?;
    Ok((options, postprocess))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::BackendPreference;
    use crate::backends::tensorrt::TrtOptions;
    use crate::heads::yolox;

    #[test]
    fn each_option_shows() {
        let own = [
            "cpu", "64x32", "4", "1", "sited", "0.5", "1,2,4", "256", "stretch", "bgr", "1", "0", "copy", "8", "2",
            "4", "yolox", "/layout", "/names", "0.5", "a=0.1", "a,b", "0.6", "7", "true", "none", "0.5", "1.6", "true",
            "5", "3", "logits", "last",
        ];
        let of_backends = [
            "/lib", "true", "1", "fp16", "/table", "100", "2", "never", "/cache", "off", "always", "60", "a=/b.npy",
            "640", "/lib", "GPU", "2", "/lib", "cpu", "7", "on",
        ];
        let values = || own.into_iter().chain(of_backends);
        assert_eq!(names().count(), values().count());
        let defaults = format!("{:?}", (SessionOptions::default(), PostprocessOptions::default()));
        for (name, value) in names().zip(values()) {
            let set = parse_options([format!("{name}={value}").as_str()]).unwrap();
            assert_ne!(format!("{set:?}"), defaults, "{name}");
        }
        let texts: Vec<String> = names().zip(values()).map(|(name, value)| format!("{name}={value}")).collect();
        let (options, postprocess) = parse_options(texts.iter().map(String::as_str)).unwrap();
        assert_eq!((options.backend, options.input_size), (BackendPreference::Named("cpu"), Some((64, 32))));
        let tensorrt = TrtOptions::from(&options.options);
        assert_eq!((tensorrt.build.level, tensorrt.never_build), (Some(2), true));
        assert_eq!((postprocess.layout, postprocess.class_thresholds.as_str()), (Some(&yolox::HEAD), "a=0.1"));
        assert_eq!((postprocess.iou_threshold, postprocess.max_detections, postprocess.class_agnostic), (0.6, 7, true));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("cpu", "“cpu” has no value"),
            ("colour=red", "no option “colour”"),
            ("backend=gpu", "auto, cpu, tensorrt, openvino, onnxruntime, rten"),
            ("score-threshold=nan", "from 0 to 1"),
            ("score-threshold=1.5", "from 0 to 1"),
            ("max-detections=0", "from 1 to 65536"),
            ("cuda-device-id=-1", "from 0"),
            ("batch-size=1025", "from 0 to 1024"),
            ("class-agnostic=yes", "true, false"),
            ("mask-output=all", "none, objects, map"),
            ("top-k=0", "from 1 to 65536"),
            ("mean=1,2", "0.485,0.456,0.406"),
            ("std=0", "cannot be 0"),
            ("shortest-edge=-1", "from 0 to 16384"),
            ("resize=crop", "auto, letterbox, letterbox-top-left, stretch, center-crop"),
            ("tensor-colors=yuv", "auto, rgb, bgr, gray"),
            ("scale=-1", "from 0 to"),
            ("pad-value=256", "from -1 to 255"),
            ("frames=257", "from 0 to 256"),
            ("frame-step=0", "from 1 to 1024"),
            ("class-scores=softmax", "auto, probabilities, logits"),
            ("background-class=0", "auto, none, first, last"),
            ("layout=cubist", "no layout “cubist”"),
            ("input-size=64", "input-size=64"),
            ("chroma-sampling=left", "nearest, sited"),
        ] {
            let message = parse_options([text]).unwrap_err().message();
            assert!(message.contains(says), "{text}: {message}");
        }
    }
}
