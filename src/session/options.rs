//! Options as text, under the names of the elements' properties: `backend=cpu`, `score-threshold=0.5`.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use super::{PostprocessOptions, SessionOptions};
use crate::backends::BackendPreference;
use crate::backends::tensorrt::GraphMode;
use crate::backends::tensorrt::builder::Precision;
use crate::core::error::{Error, ErrorKind, Result};
use crate::heads::HeadFormat;
use crate::image::preprocess::device::Upload;
use crate::image::transform::parse_size;

/// All names: those of trtinfer, of trtpreprocess, of trtnms.
const NAMES: [&str; 22] = [
    "backend",
    "input-size",
    "cuda-device-id",
    "trt-library",
    "precision",
    "int8-calibration-cache",
    "engine-build",
    "engine-cache",
    "optimization-level",
    "workspace-mib",
    "allow-host-code",
    "dla-core",
    "cuda-graph",
    "upload",
    "layout",
    "label-file",
    "score-threshold",
    "class-thresholds",
    "classes",
    "iou-threshold",
    "max-detections",
    "class-agnostic",
];

/// Reads options from texts like `backend=cpu`.
///
/// ```
/// let (options, postprocess) = gsttrt::session::parse_options(["input-size=640x480", "classes=person,car"]).unwrap();
/// assert_eq!(options.input_size, Some((640, 480)));
/// assert_eq!(postprocess.classes, "person,car");
/// ```
///
/// # Errors
/// `Settings`, where there is no such option, or its value cannot be read or is out of range.
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
    let path = || Some(PathBuf::from(value)).filter(|path| !path.as_os_str().is_empty());
    let (engine, build) = (&mut options.tensorrt.engine, &mut options.tensorrt.build);
    match name {
        "backend" => {
            options.backend = one_of(
                name,
                value,
                &["auto", "tensorrt", "cpu"],
                &[BackendPreference::Auto, BackendPreference::TensorRt, BackendPreference::Cpu],
            )?
        }
        "input-size" => options.input_size = parse_size(name, value)?,
        "cuda-device-id" => options.cuda_device_id = number(name, value, 0, i32::MAX)?,
        "trt-library" => options.tensorrt.library = path(),
        "precision" => build.precision = one_of(name, value, &Precision::ALL.map(Precision::name), &Precision::ALL)?,
        "int8-calibration-cache" => build.calibration = path(),
        "engine-build" => options.tensorrt.never_build = one_of(name, value, &["auto", "never"], &[false, true])?,
        "engine-cache" => options.tensorrt.cache = path(),
        "optimization-level" => build.level = Some(number(name, value, 0, 5)?),
        "workspace-mib" => build.workspace_mib = Some(number(name, value, 0, u32::MAX)?).filter(|&mib| mib > 0),
        "allow-host-code" => engine.allow_host_code = boolean(name, value)?,
        "dla-core" => {
            engine.dla_core = Some(number(name, value, -1, 15)?).filter(|&core| core >= 0);
            build.dla_core = engine.dla_core;
        }
        "cuda-graph" => {
            options.tensorrt.graphs =
                one_of(name, value, &["auto", "on", "off"], &[GraphMode::Auto, GraphMode::On, GraphMode::Off])?
        }
        "upload" => {
            options.upload =
                one_of(name, value, &["auto", "copy", "mapped"], &[Upload::Auto, Upload::Copy, Upload::Mapped])?
        }
        "layout" => postprocess.layout = if value == "auto" { None } else { Some(HeadFormat::of_name(value)?) },
        "label-file" => postprocess.label_file = path(),
        "score-threshold" => postprocess.score_threshold = number(name, value, 0.0, 1.0)?,
        "class-thresholds" => postprocess.class_thresholds = value.into(),
        "classes" => postprocess.classes = value.into(),
        "iou-threshold" => postprocess.iou_threshold = number(name, value, 0.0, 1.0)?,
        "max-detections" => postprocess.max_detections = number(name, value, 1, 65536)?,
        "class-agnostic" => postprocess.class_agnostic = boolean(name, value)?,
        _ => {
            return Err(Error::new(ErrorKind::Settings, format!("There is no option “{name}”"))
                .remedy(format!("Use {}", NAMES.join(", "))));
        }
    }
    Ok(())
}

fn one_of<T: Copy>(name: &str, value: &str, names: &[&str], values: &[T]) -> Result<T> {
    let found = names.iter().position(|&known| known == value);
    found.map(|i| values[i]).ok_or_else(|| unreadable(name, value, format!("Use one of {}", names.join(", "))))
}

fn boolean(name: &str, value: &str) -> Result<bool> {
    one_of(name, value, &["true", "false"], &[true, false])
}

fn number<T: FromStr + PartialOrd + Display>(name: &str, value: &str, least: T, most: T) -> Result<T> {
    let parsed = value.parse().ok().filter(|number| (&least..=&most).contains(&number));
    parsed.ok_or_else(|| unreadable(name, value, format!("Use a number from {least} to {most}")))
}

fn unreadable(name: &str, value: &str, remedy: String) -> Error {
    Error::new(ErrorKind::Settings, format!("The option {name}={value} cannot be read")).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heads::yolox;

    #[test]
    fn each_option_shows() {
        let values: [&str; NAMES.len()] = [
            "cpu", "64x32", "1", "/lib", "fp16", "/table", "never", "/cache", "2", "100", "true", "1", "off", "copy",
            "yolox", "/names", "0.5", "a=0.1", "a,b", "0.6", "7", "true",
        ];
        let defaults = format!("{:?}", (SessionOptions::default(), PostprocessOptions::default()));
        for (name, value) in NAMES.iter().zip(values) {
            let set = parse_options([format!("{name}={value}").as_str()]).unwrap();
            assert_ne!(format!("{set:?}"), defaults, "{name}");
        }
        let texts: Vec<String> = NAMES.iter().zip(values).map(|(name, value)| format!("{name}={value}")).collect();
        let (options, postprocess) = parse_options(texts.iter().map(String::as_str)).unwrap();
        assert_eq!((options.backend, options.input_size), (BackendPreference::Cpu, Some((64, 32))));
        assert_eq!((options.tensorrt.build.level, options.tensorrt.never_build), (Some(2), true));
        assert_eq!((postprocess.layout, postprocess.class_thresholds.as_str()), (Some(&yolox::HEAD), "a=0.1"));
        assert_eq!((postprocess.iou_threshold, postprocess.max_detections, postprocess.class_agnostic), (0.6, 7, true));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("cpu", "“cpu” has no value"),
            ("colour=red", "no option “colour”"),
            ("backend=gpu", "auto, tensorrt, cpu"),
            ("score-threshold=nan", "from 0 to 1"),
            ("score-threshold=1.5", "from 0 to 1"),
            ("max-detections=0", "from 1 to 65536"),
            ("cuda-device-id=-1", "from 0"),
            ("class-agnostic=yes", "true, false"),
            ("layout=cubist", "no layout “cubist”"),
            ("input-size=64", "input-size=64"),
        ] {
            let message = parse_options([text]).unwrap_err().message();
            assert!(message.contains(says), "{text}: {message}");
        }
    }
}
