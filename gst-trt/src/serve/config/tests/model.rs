// SPDX-License-Identifier: MPL-2.0
//! Settings of a model with which each of its sources would fail.

use gst::prelude::*;

use super::{load, of_tests, right, shapes};
use crate::chain::{self, InferenceElements, element};
use crate::scratch::scratch;

#[test]
fn labels_fit_a_layout_that_is_set() {
    let folder = scratch("config-labels_fit_a_layout_that_is_set");
    for (model, layout) in [("shapes.onnx", "yolov5"), ("shapes-v8.onnx", "yolov8"), ("shapes-cls.onnx", "classify")] {
        let with = |labels: &str, layout: &str| {
            std::fs::write(folder.join("labels.txt"), labels).unwrap();
            let keys = format!("name = \"m\"\nlabels = \"labels.txt\"\nnms = \"layout={layout}\"");
            let config = right().replace(&shapes(), &of_tests(model)).replace("name = \"m\"", &keys);
            load(&folder, "layout.toml", config.as_bytes())
        };
        let error = with("one\n", layout).unwrap_err();
        assert!(error.contains("line 3: ") && error.contains("against 1 label."), "{error}");
        assert!(error.contains("Set labels in [[model]] to"), "{error}");
        let right = if model == "shapes-cls.onnx" { "one\ntwo\nthree\n" } else { "one\ntwo\n" };
        assert_eq!(with(right, layout).unwrap().warnings, Vec::<String>::new(), "{layout}");
        let error = with(right, "efficientnms").unwrap_err();
        assert!(error.contains("line 4: ") && error.contains("layout=efficientnms"), "{error}");
    }
}

#[test]
fn with_other_labels_in_its_file_it_is_another_model() {
    let folder = scratch("config-with_other_labels_in_its_file");
    let with = |labels: &str| {
        std::fs::write(folder.join("labels.txt"), labels).unwrap();
        let config = right().replace("name = \"m\"", "name = \"m\"\nlabels = \"labels.txt\"");
        load(&folder, "labels.toml", config.as_bytes()).unwrap().models.remove(0)
    };
    let model = with("one\ntwo\n");
    assert_eq!(with("one\ntwo\n"), model);
    assert_ne!(with("one\nthree\n"), model);
}

#[test]
fn what_trtnms_would_refuse_is_refused() {
    let folder = scratch("config-what_trtnms_would_refuse_is_refused");
    let with = |keys: &str| {
        let config = right().replace("name = \"m\"", &format!("name = \"m\"\n{keys}"));
        load(&folder, "refused.toml", config.as_bytes())
    };
    for (keys, said) in [
        ("nms = \"class-thresholds=1=1.1\"", "class-thresholds: “1=1.1” cannot be read"),
        ("nms = \"class-thresholds=7=0.5\"", "class-thresholds: the model has no class “7”"),
        ("nms = \"classes=2\"", "classes: the model has no class “2”"),
        ("nms = \"layout=yolox\"", "do not form the grid of yolox"),
        ("nms = \"layout=yolo5\"", "There is no layout “yolo5”"),
        ("preprocess = \"slices=0x1\"", "slices"),
    ] {
        let error = with(keys).map(drop).unwrap_err();
        assert!(error.contains("line 3") && error.contains(said), "{keys}: {error}");
    }
    let twin = |name: &str| format!("layout-file = \"{}/../tests/layouts/{name}\"", env!("CARGO_MANIFEST_DIR"));
    for (name, said) in [
        ("none.toml", "There is no file"),
        ("yolox.toml", "the strides 8, 16, 32 with 1 for each cell give 5376 over an input of 512x512"),
        ("ssd.toml", "the model has no output “detection_boxes”"),
    ] {
        let error = with(&twin(name)).map(drop).unwrap_err();
        assert!(error.contains("line 3") && error.contains(said), "{name}: {error}");
    }
    assert_eq!(with(&twin("yolov5.toml")).unwrap().warnings, Vec::<String>::new());
    for (labels, said) in
        [(&b"a\n\nb\n"[..], "Line 2 of the label file"), (b"a\n\xff\n", "is not UTF-8"), (b"", "is empty")]
    {
        std::fs::write(folder.join("labels.txt"), labels).unwrap();
        let error = with("labels = \"labels.txt\"").map(drop).unwrap_err();
        assert!(error.contains("line 3: ") && error.contains(said), "{error}");
    }
    with("nms = \"class-thresholds=1=1,0=0.2 classes=1\"").unwrap();
}

/// As labels are: wherever the program was started.
#[test]
fn a_layout_file_lies_by_the_configuration() {
    let folder = scratch("config-a_layout_file_lies_by_the_configuration");
    let head = std::fs::read_to_string(of_tests("../layouts/yolov5.toml")).unwrap();
    let with = |head: &str, more: &str| {
        std::fs::write(folder.join("head.toml"), head).unwrap();
        let config = right().replace("name = \"m\"", &format!("name = \"m\"\nlayout-file = \"head.toml\"{more}"));
        load(&folder, "layout-file.toml", config.as_bytes())
    };
    let config = with(&head, "").unwrap();
    assert_eq!(config.warnings, Vec::<String>::new());
    // trtnms is told where it is.
    let elements = config.models[0].elements();
    let all = InferenceElements { first: elements, ..InferenceElements::default() };
    let pipeline = chain::parse(&format!("fakesrc ! {} ! fakesink", all.launch_line(false))).unwrap();
    all.configure(&pipeline);
    let told = element(&pipeline, "nms").property::<Option<String>>("layout-file");
    assert_eq!(told.as_deref(), folder.join("head.toml").to_str());
    for (head, more, said) in [
        ("rows = 1\nnonsense = 2\n", "", "head.toml"),
        (&*head, "\nnms = \"layout=yolov5\"", "nms has layout=yolov5, and layout-file is "),
        (&head, "\nnms = \"layout-file=head.toml\"", "Use the key layout-file"),
    ] {
        let error = with(head, more).map(drop).unwrap_err();
        let line = if more.contains("file=head") { "line 4, nms: " } else { "line 3: " };
        assert!(error.contains(line) && error.contains(said), "{error}");
    }
    let missing = right().replace("name = \"m\"", "name = \"m\"\nlayout-file = \"none.toml\"");
    let error = load(&folder, "missing.toml", missing.as_bytes()).map(drop).unwrap_err();
    assert!(
        error.contains("line 3, layout-file: ") && error.contains(folder.join("none.toml").to_str().unwrap()),
        "{error}"
    );
}

/// One source gets each result sooner where all cores work on one frame.
#[test]
fn several_sources_have_several_runs_at_the_same_time_on_a_cpu() {
    const OTHER: &str = "[[source]]\nname = \"t\"\naddress = \"rtsp://camera/2\"\n";
    let folder = scratch("config-several_sources_have_several_runs");
    let runs = |backend: &str, infer: &str, others: &str| {
        let keys = format!("name = \"m\"\nbackend = \"{backend}\"\ninfer = \"{infer}\"");
        let config = right().replace("name = \"m\"", &keys) + others;
        let elements = load(&folder, "several.toml", config.as_bytes()).unwrap().models[0].elements();
        let chain = InferenceElements { first: elements, ..InferenceElements::default() };
        let pipeline = chain::parse(&format!("fakesrc ! {} ! fakesink", chain.launch_line(false))).unwrap();
        element(&pipeline, "infer").property::<u32>("parallel-runs")
    };
    for (backend, infer, others, wanted) in [
        ("rten", "", "", 1),
        ("rten", "interval=2", OTHER, 0),
        ("rten", "parallel-runs=3", OTHER, 3),
        ("rten", "threads=1", OTHER, 1),
        ("tensorrt", "", OTHER, 1),
    ] {
        assert_eq!(runs(backend, infer, others), wanted, "{backend} {infer}");
    }
    // Those of another model do not count.
    let other = format!("model = \"m\"\n{OTHER}model = \"n\"\n[[model]]\nname = \"n\"\nfile = \"{}\"\n", shapes());
    assert_eq!(runs("rten", "", &other), 1);
}
