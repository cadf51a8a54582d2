// SPDX-License-Identifier: MPL-2.0
//! Properties of an element as a text of a launch line: `interval=2 precision=fp16`.

use std::path::{Path, PathBuf};

use gst::prelude::*;

use super::keys::RunsOn;
use super::time;
use crate::assignments::{assignments, check_text};
use crate::chain;
use crate::failure::Failure;

/// What a source or a model sets itself, by the key that is for it.
const TAKEN: [(&str, &[(&str, &str)]); 3] = [
    ("preprocess", &[("name", "")]),
    (
        "infer",
        &[
            ("name", ""),
            ("shared-model", ""),
            ("model-file", "file"),
            ("backend", "backend"),
            ("batch-size", "batch-size"),
        ],
    ),
    ("nms", &[("name", ""), ("label-file", "labels"), ("layout-file", "layout-file")]),
];
/// The same of trtpreprocess for a model that sees objects.
const TAKEN_ON_OBJECTS: [(&str, &str); 2] = [("regions", "on"), ("object-classes", "classes")];

/// Paths that begin at the folder of the configuration, as its other ones do.
const PATHS: [&str; 5] = ["engine-cache", "int8-calibration-cache", "openvino-library", "ort-library", "trt-library"];

/// The property that has an input and its file, or several with commas between them: `txt_feats=words.npy`.
const INPUT_VALUES: &str = "input-values";

/// The text, with paths that begin at that folder.
pub fn with_paths(mut text: String, element: &gst::Element, folder: &Path) -> String {
    let names = PATHS.into_iter().chain([INPUT_VALUES]);
    for name in names.filter(|name| element.find_property(name).is_some()) {
        let value = element.property::<Option<String>>(name).unwrap_or_default();
        let path = match name {
            INPUT_VALUES => with_files(&value, folder),
            _ if value.is_empty() || Path::new(&value).is_absolute() => continue,
            _ => folder.join(&value).to_string_lossy().into_owned(),
        };
        if path != value {
            let path = path.replace('\\', "\\\\").replace('"', "\\\"");
            text += &format!(" {name}=\"{path}\""); // the last one counts
        }
    }
    text
}

/// The text of `input-values`, with files that begin at that folder. What cannot be read stays as it is: trtinfer tells of it.
fn with_files(text: &str, folder: &Path) -> String {
    // A comma, an equals sign and a backslash of a name have a backslash before them there.
    let folder = folder.join("").to_string_lossy().replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
    let begun = |entry: &str| match entry.split_once(plain('=')).map(|(input, file)| (input, file.trim())) {
        Some((input, file)) if !file.is_empty() && Path::new(file.strip_prefix('\\').unwrap_or(file)).is_relative() => {
            format!("{input}={folder}{file}")
        }
        _ => entry.into(),
    };
    text.split(plain(',')).map(begun).collect::<Vec<String>>().join(",")
}

/// The text of `input-values` of an element, with files that begin at that folder.
pub fn input_values(element: &gst::Element, folder: &Path) -> String {
    let values = element.property::<Option<String>>(INPUT_VALUES).unwrap_or_default();
    with_files(&values, folder)
}

/// The files of `input-values` of an element, with paths that begin at that folder, and those with names of their words.
pub fn value_files(element: &gst::Element, folder: &Path) -> Vec<PathBuf> {
    let unescaped = |text: &str| {
        let (mut chars, mut name) = (text.chars(), String::new());
        while let Some(c) = chars.next() {
            name.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
        }
        name
    };
    let values = input_values(element, folder);
    let files = values
        .split(plain(','))
        .filter_map(|entry| Some(PathBuf::from(unescaped(entry.split_once(plain('='))?.1.trim()))));
    files.flat_map(|file| [file.with_extension("txt"), file.with_extension("names"), file]).collect()
}

/// Whether the next character of a text is such a separator. One behind a backslash is none.
fn plain(separator: char) -> impl FnMut(char) -> bool {
    let mut is_escaped = false;
    move |c| {
        let is_plain = !is_escaped;
        is_escaped = is_plain && c == '\\';
        is_plain && c == separator
    }
}

/// The text as GStreamer takes it, with an element that has these properties.
///
/// # Errors
/// It does something other than to set properties, or sets one that is set already.
pub fn check(key: &str, text: &str, on: RunsOn) -> Result<(String, gst::Element), Failure> {
    if text.chars().any(char::is_control) {
        return Err("it has control characters, which no property has".into());
    }
    check_text(text)?;
    let element = gst::ElementFactory::make(&format!("trt{key}")).build()?;
    let mut line = String::with_capacity(text.len());
    let mut copied = 0;
    for (name, value) in assignments(text) {
        let name = text[name].replace('_', "-");
        let taken = TAKEN.iter().find(|(element, _)| *element == key).map_or(&[][..], |(_, names)| names);
        let of_objects = TAKEN_ON_OBJECTS.iter().filter(|_| key == "preprocess" && on == RunsOn::Objects);
        match taken.iter().chain(of_objects).find(|(taken, _)| *taken == name) {
            Some((_, "")) => return Err(format!("{name} is set by the service. Leave it out").into()),
            Some((_, key)) => return Err(format!("{name} is set by the service. Use the key {key}").into()),
            None => {}
        }
        if let Some(unit) = element.find_property(&name).and_then(|spec| time::unit(&spec)) {
            line.push_str(&text[copied..value.start]);
            line.push_str(&time::in_unit(text[value.clone()].trim_matches(['"', '\'']), unit));
            copied = value.end;
        }
    }
    line.push_str(&text[copied..]);
    // A pipeline in a text of properties would be one in each source.
    let pipeline = chain::parse(&format!("trt{key} name=checked {line} ! fakesink name=end"))?;
    match pipeline.by_name("checked") {
        Some(element) if pipeline.children().len() == 2 => {
            if key != "infer" {
                check_start(key, &pipeline, &element, on)?;
            }
            Ok((line, element))
        }
        _ => Err("it is a text of properties, such as \"interval=2\"".into()),
    }
}

/// Starts an element and stops it again: then it reads what it can without a model and frames, such as `slices` and `layout`.
/// trtinfer would load its model.
fn check_start(key: &str, pipeline: &gst::Pipeline, element: &gst::Element, on: RunsOn) -> Result<(), Failure> {
    pipeline.remove(element)?;
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    if key == "preprocess" && on == RunsOn::Objects {
        element.set_property_from_str("regions", "objects"); // as it will be there
    }
    let started = element.set_state(gst::State::Paused);
    let said = bus.pop_filtered(&[gst::MessageType::Error]);
    let stopped = element.set_state(gst::State::Null);
    element.set_bus(None);
    match said.as_ref().map(|message| message.view()) {
        Some(gst::MessageView::Error(error)) => Err(error.error().to_string().into()),
        _ => started.and(stopped).map(drop).map_err(Failure::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_service_sets_is_refused_and_times_have_units() {
        chain::start_gstreamer().unwrap();
        for (key, text, said) in [
            ("nms", "name=q", "name is set by the service"),
            ("preprocess", "name = q", "name is set by the service"),
            ("infer", "interval=2 model_file=x.onnx", "Use the key file"),
            ("infer", "shared-model=zz", "shared-model is set"),
            ("infer", "batch-size=2", "Use the key batch-size"),
            ("infer", "backend=cpu", "Use the key backend"),
            ("nms", "label-file=x", "Use the key labels"),
            ("nms", "layout_file=x", "Use the key layout-file"),
            ("nms", "\0", "control characters"),
            ("preprocess", "\u{1b}[31m", "control characters"),
            ("infer", "engine-cache=", "engine-cache has no value"),
            ("nms", "score-threshold=0.5 classes=\"car", "the value of classes has no end"),
            ("infer", "interval=2 ! identity", "a text of properties"),
            ("infer", "intervall=2", "did you mean “interval”?"),
            ("nms", "layout=yolov55", "There is no layout “yolov55”"),
            ("nms", "class-thresholds=1=1.1", "class-thresholds: “1=1.1” cannot be read"),
            ("preprocess", "slices=0x2", "slices"),
            ("preprocess", "slices=2x2 slice-size=64x64", "exclude each other"),
            ("preprocess", "tensor-size=wide", "tensor-size"),
            ("preprocess", "mean=a", "mean"),
            ("preprocess", "regions=list region-list=0,0,1", "region-list"),
        ] {
            let failure = check(key, text, RunsOn::Frames).map(|(line, _)| line).unwrap_err().to_string();
            assert!(failure.contains(said) && !failure.contains('\u{1b}'), "{key} {text}: {failure}");
        }
        let of_objects = [
            ("regions=list", "Use the key on"),
            ("object_classes=a", "Use the key classes"),
            ("slices=2x2", "regions is objects"),
        ];
        for (text, said) in of_objects {
            let failure = check("preprocess", text, RunsOn::Objects).map(|(line, _)| line).unwrap_err().to_string();
            assert!(failure.contains(said), "{text}: {failure}");
        }
        let check = |key, text| check(key, text, RunsOn::Frames);
        check("preprocess", "regions=list region-list=0,0,1,1").unwrap();
        let (line, element) = check("infer", "batch-timeout=2ms interval=3").unwrap();
        assert_eq!(line, "batch-timeout=2000 interval=3");
        assert_eq!((element.property::<i32>("batch-timeout"), element.property::<u32>("interval")), (2000, 3));
        assert_eq!(check("infer", "batch-timeout = \"1s\"").unwrap().0, "batch-timeout = 1000000");
        assert_eq!(check("infer", "batch-timeout=500").unwrap().1.property::<i32>("batch-timeout"), 500);
        let (line, element) = check("infer", "batch-timeout=-1").unwrap();
        assert_eq!((line.as_str(), element.property::<i32>("batch-timeout")), ("batch-timeout=-1", -1));
    }

    /// What the program was started in has nothing to do with them.
    #[test]
    fn paths_begin_at_the_folder_of_the_configuration() {
        chain::start_gstreamer().unwrap();
        let folder = Path::new("/a \"b\"\\c");
        let paths = |text: &str| {
            let (line, element) = check("infer", text, RunsOn::Frames).unwrap();
            let line = with_paths(line, &element, folder);
            let (again, element) = check("infer", &line, RunsOn::Frames).unwrap();
            assert_eq!(with_paths(again, &element, folder), line, "it is so for good");
            PATHS.map(|name| element.property::<Option<String>>(name).unwrap_or_default())
        };
        let in_folder = |name: &str| folder.join(name).to_str().unwrap().to_string();
        let empty = String::new;
        assert_eq!(
            paths("engine-cache=engines ort_library=\"./my lib\""),
            [in_folder("engines"), empty(), empty(), in_folder("./my lib"), empty()]
        );
        assert_eq!(
            paths("int8-calibration-cache = t.table trt-library=/opt/trt"),
            [empty(), in_folder("t.table"), empty(), empty(), "/opt/trt".into()]
        );
        assert_eq!(paths("interval=2"), [(); 5].map(|()| empty()));
    }

    #[test]
    fn files_of_input_values_begin_at_the_folder_of_the_configuration() {
        chain::start_gstreamer().unwrap();
        let values = |text: &str, folder: &Path| {
            let (line, element) = check("infer", text, RunsOn::Frames).unwrap();
            let line = with_paths(line, &element, folder);
            let (again, element) = check("infer", &line, RunsOn::Frames).unwrap();
            assert_eq!(with_paths(again, &element, folder), line, "it is so for good");
            element.property::<Option<String>>(INPUT_VALUES).unwrap_or_default()
        };
        for (text, expected) in [
            ("input-values=txt_feats=words.npy", "txt_feats=/etc/gst-trt/words.npy"),
            (
                "input_values=\"tpe = w.npy, b=/opt/b.npy,c=../c d.npy\"",
                "tpe =/etc/gst-trt/w.npy, b=/opt/b.npy,c=/etc/gst-trt/../c d.npy",
            ),
            (r#"input-values="a\\=b=red\\,blue.npy""#, r"a\=b=/etc/gst-trt/red\,blue.npy"),
            ("input-values=words.npy", "words.npy"),
            ("input-values=a=", "a="),
            ("interval=2", ""),
        ] {
            assert_eq!(values(text, Path::new("/etc/gst-trt")), expected, "{text}");
        }
        let (_, element) = check("infer", r#"input-values="a=red\\,blue.npy,b=/opt/b.npy""#, RunsOn::Frames).unwrap();
        let files =
            ["/f/red,blue.txt", "/f/red,blue.names", "/f/red,blue.npy", "/opt/b.txt", "/opt/b.names", "/opt/b.npy"];
        assert_eq!(value_files(&element, Path::new("/f")), files.map(PathBuf::from));
        let odd = Path::new("/a,b \"c\"\\d=e");
        assert_eq!(values("input-values=x=w.npy", odd), r#"x=/a\,b "c"\\d\=e/w.npy"#);
    }
}
