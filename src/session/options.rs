// SPDX-License-Identifier: MPL-2.0
//! Options as text, under the names of the elements' properties: `backend=cpu`, `score-threshold=0.5`.

use super::{PostprocessOptions, SessionOptions};
use crate::backends::options::{OptionValue, boolean, number, one_of, path};
use crate::backends::{self, PREFERENCE};
use crate::core::error::{Error, ErrorKind, Result};
use crate::heads::{BackgroundClass, HeadFormat};
use crate::image::masks::MaskOutput;
use crate::image::preprocess::device::Upload;
use crate::image::transform::{Chroma, parse_input_size, parse_triple};
use crate::postprocess::ClassScores;

/// The options of trtinfer, trtpreprocess and trtnms. Those of backends are declared there.
const OWN: [&str; 20] = [
    "backend",
    "input-size",
    "cuda-device-id",
    "chroma-sampling",
    "mean",
    "std",
    "shortest-edge",
    "upload",
    "layout",
    "label-file",
    "score-threshold",
    "class-thresholds",
    "classes",
    "iou-threshold",
    "max-detections",
    "class-agnostic",
    "mask-output",
    "top-k",
    "class-scores",
    "background-class",
];

/// The names of all options.
fn names() -> impl Iterator<Item = &'static str> {
    OWN.into_iter().chain(backends::all_options().map(|option| option.name))
}

/// Reads options from texts like `backend=cpu`.
///
/// ```
/// let (options, postprocess) = gsttrt::session::parse_options(["input-size=640x480", "classes=person,car"]).unwrap();
/// assert_eq!(options.input_size, Some((640, 480)));
/// assert_eq!(postprocess.classes, "person,car");
/// ```
///
/// # Errors
/// `Settings`, if there is no such option, or its value cannot be parsed or is out of range.
pub fn parse_options<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<(SessionOptions, PostprocessOptions)> {
    let (mut options, mut postprocess) = (SessionOptions::default(), PostprocessOptions::default());
    for text in texts {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            Error::new(ErrorKind::Settings, format!("The option “{text}” has no value"))
                .remedy("Write name=value, like backend=cpu")
        })?;
        set(&mut options, &mut postprocess, name, value)?;
    }
    Ok((options, postprocess))
}

fn set(options: &mut SessionOptions, postprocess: &mut PostprocessOptions, name: &str, value: &str) -> Result<()> {
    match name {
        "backend" => {
            if let OptionValue::Choice(word) = PREFERENCE.parse(value)? {
                options.backend = word.into();
            }
        }
        "input-size" => options.input_size = parse_input_size(value)?,
        "cuda-device-id" => options.cuda_device_id = number(name, value, 0, i32::MAX)?,
        "chroma-sampling" => {
            options.chroma_sampling = one_of(name, value, &Chroma::ALL.map(Chroma::name), &Chroma::ALL)?
        }
        "mean" => options.mean = Some(triple(name, value)?),
        "std" => {
            let std = triple(name, value)?;
            if std.contains(&0.0) {
                return Err(
                    Error::new(ErrorKind::Settings, "std divides, so it cannot be 0").remedy("Use 1 for no effect")
                );
            }
            options.std = Some(std);
        }
        "shortest-edge" => options.shortest_edge = number(name, value, 0, 16384)?,
        "upload" => {
            options.upload =
                one_of(name, value, &["auto", "copy", "mapped"], &[Upload::Auto, Upload::Copy, Upload::Mapped])?
        }
        "layout" => postprocess.layout = if value == "auto" { None } else { Some(HeadFormat::of_name(value)?) },
        "label-file" => postprocess.label_file = path(value),
        "score-threshold" => postprocess.score_threshold = number(name, value, 0.0, 1.0)?,
        "class-thresholds" => postprocess.class_thresholds = value.into(),
        "classes" => postprocess.classes = value.into(),
        "iou-threshold" => postprocess.iou_threshold = number(name, value, 0.0, 1.0)?,
        "max-detections" => postprocess.max_detections = number(name, value, 1, 65536)?,
        "class-agnostic" => postprocess.class_agnostic = boolean(name, value)?,
        "mask-output" => {
            let all = [MaskOutput::None, MaskOutput::Objects, MaskOutput::Map];
            postprocess.mask_output = one_of(name, value, &["none", "objects", "map"], &all)?
        }
        "top-k" => postprocess.top_k = number(name, value, 1, 65536)?,
        "class-scores" => {
            postprocess.class_scores = one_of(name, value, &ClassScores::ALL.map(ClassScores::name), &ClassScores::ALL)?
        }
        "background-class" => {
            let names = BackgroundClass::ALL.map(BackgroundClass::name);
            postprocess.background_class = one_of(name, value, &names, &BackgroundClass::ALL)?
        }
        _ => {
            let option = backends::all_options().find(|option| option.name == name).ok_or_else(|| {
                Error::new(ErrorKind::Settings, format!("There is no option “{name}”"))
                    .remedy(format!("Use {}", names().collect::<Vec<_>>().join(", ")))
            })?;
            options.options.set(option, option.parse(value)?);
        }
    }
    Ok(())
}

/// Three numbers, or one for all channels.
fn triple(name: &str, value: &str) -> Result<[f32; 3]> {
    parse_triple(value, ',').ok_or_else(|| {
        Error::new(ErrorKind::Settings, format!("{name}={value} cannot be read"))
            .remedy("Write one number, or one for each channel like 0.485,0.456,0.406")
    })
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
            "cpu", "64x32", "1", "sited", "0.5", "1,2,4", "256", "copy", "yolox", "/names", "0.5", "a=0.1", "a,b",
            "0.6", "7", "true", "none", "3", "logits", "last",
        ];
        let of_backends =
            ["/lib", "true", "1", "fp16", "/table", "100", "2", "never", "/cache", "off", "/lib", "cpu", "2"];
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
            ("backend=gpu", "auto, cpu, tensorrt, onnxruntime, rten"),
            ("score-threshold=nan", "from 0 to 1"),
            ("score-threshold=1.5", "from 0 to 1"),
            ("max-detections=0", "from 1 to 65536"),
            ("cuda-device-id=-1", "from 0"),
            ("class-agnostic=yes", "true, false"),
            ("mask-output=all", "none, objects, map"),
            ("top-k=0", "from 1 to 65536"),
            ("mean=1,2", "0.485,0.456,0.406"),
            ("std=0", "cannot be 0"),
            ("shortest-edge=-1", "from 0 to 16384"),
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
