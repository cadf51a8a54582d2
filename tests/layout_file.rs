// SPDX-License-Identifier: MPL-2.0
//! Heads from files: in pipelines, in sessions, in a model's own metadata, and as the page shows them.

use gsttrt_core::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::heads::{ModelHints, layout_file, recognise};
use gsttrt_core::image::geometry::ResizeMode;
use gsttrt_core::session::{Detector, FrameResults, SessionOptions, parse_options};
use gsttrt_core::tensor::TensorDesc;

use crate::common::boxes::{Line, SIDE, grey};
use crate::common::onnx::{F32, Graph};
use crate::common::{launch, path, scratch};

/// Rows of score, class and box, in an order that no layout of ours has; the first number is not read.
const OWN: &str = "name = \"own\"\ntask = \"detect\"\nsuppression = \"none\"\n\n[[output]]\nname = \"found\"\n\
                   dims = [\"batch\", \"rows\", \"columns\"]\n\
                   columns = [{ column = \"score\", at = 1 }, \"class-id\", { column = \"box\", encoding = \"corners\" }]\n";

fn save(folder: &std::path::Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// A model whose rows are as [`OWN`] has them.
fn graph() -> Graph {
    let rows = [[7.0, 0.9, 1.0, 8.0, 8.0, 24.0, 24.0], [7.0, 0.1, 0.0, 0.0, 0.0, 9.0, 9.0]];
    Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("found", &[1, 2, 7], rows.as_flattened())
        .metadata("names", "{0: 'a', 1: 'b'}")
}

#[test]
fn trtnms_reads_outputs_as_the_file_says() {
    let folder = scratch("layout-file");
    let (model, head) = (graph().save(&folder.join("own.onnx")), save(&folder, "own.toml", OWN));
    let mut line = Line::new(&model, &format!("layout-file={head}"));
    line.caps("RGB", SIDE, SIDE);
    let found = line.found();
    let found: Vec<_> = found.iter().map(|found| (found.label.as_str(), found.rect)).collect();
    assert_eq!(found, [("b", (8, 8, 16, 16))]);
    // Without it nothing fits, or something else does.
    let mut line = Line::new(&model, "");
    line.caps("RGB", SIDE, SIDE);
    let plain = line.try_push(grey(SIDE * SIDE * 3));
    assert!(plain.is_err(), "{plain:?}");
}

#[test]
fn a_model_may_carry_its_layout() {
    let folder = scratch("layout-metadata");
    let model = graph().metadata("gsttrt", OWN).save(&folder.join("own.onnx"));
    let mut line = Line::new(&model, "");
    line.caps("RGB", SIDE, SIDE);
    assert_eq!(line.labels(), ["b"]);
    // What is wrong in it is an error, not a reason to guess.
    let model = graph().metadata("gsttrt", &OWN.replace("score", "scroe")).save(&folder.join("wrong.onnx"));
    let outcome = launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess ! trtinfer model-file={model} ! \
         trtnms ! fakesink"
    ));
    let (_, error, _) = outcome.error.expect("the layout has a slip");
    assert!(error.contains("the model's metadata (key gsttrt): line 8: there is no column word “scroe”"), "{error}");
}

#[test]
fn trtpreprocess_makes_what_the_file_says() {
    let folder = scratch("layout-input");
    let model = graph().save(&folder.join("own.onnx"));
    let text = OWN.replace("[[output]]", "[input]\ncolors = \"bgr\"\nfit = \"stretch\"\nscale = 1\n\n[[output]]");
    let head = save(&folder, "own.toml", &text);
    let warnings = |settings: &str| {
        let outcome = launch(&format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=32 ! trtpreprocess {settings} ! \
             trtinfer model-file={model} ! queue ! trtnms layout-file={head} ! fakesink"
        ));
        outcome.expect_success();
        outcome.warnings
    };
    assert_eq!(warnings(""), [""; 0]);
    let said = warnings("resize=letterbox");
    assert!(said.len() == 1 && said[0].contains("set resize=stretch on trtpreprocess"), "{said:?}");
}

#[test]
fn wrong_files_are_errors_with_a_remedy() {
    let folder = scratch("layout-wrong");
    let model = graph().save(&folder.join("own.onnx"));
    let own = save(&folder, "own.toml", OWN);
    let slip = save(&folder, "slip.toml", &OWN.replace("columns = [", "colums = ["));
    let other = save(&folder, "other.toml", &OWN.replace("\"found\"", "\"fund\""));
    for (nms, says) in [
        (format!("layout-file={}/none.toml", folder.display()), "There is no layout file"),
        (format!("layout-file={}", folder.display()), "it is a folder"),
        (format!("layout-file={slip}"), "slip.toml: line 8: there is no key “colums”; did you mean “columns”?"),
        (format!("layout-file={other}"), "the model has no output “fund”, but found f32 1x2x7; did you mean “found”?"),
        (format!("layout-file={own} layout=yolov8"), "layout is yolov8, and layout-file is"),
    ] {
        let outcome = launch(&format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64 ! trtpreprocess ! trtinfer model-file={model} ! \
             trtnms {nms} ! fakesink"
        ));
        let (_, error, _) = outcome.error.unwrap_or_else(|| panic!("{nms}"));
        assert!(error.contains(says), "{nms}: {error}");
    }
}

/// What a picture of discs and boxes on grey gives.
fn detected(model: &str, layout: &str) -> FrameResults {
    let (width, height) = (320, 320);
    let mut pixels = vec![110u8; width * height * 3];
    for (left, top, color) in [(30, 40, [220, 40, 40]), (180, 60, [40, 200, 60]), (90, 190, [50, 60, 230])] {
        for (y, x) in (0..70).flat_map(|y| (0..70).map(move |x| (y, x))) {
            let is_inside = left == 180 || (x as i32 - 35).pow(2) + (y as i32 - 35).pow(2) < 35 * 35;
            if is_inside {
                pixels[((top + y) * width + left + x) * 3..][..3].copy_from_slice(&color);
            }
        }
    }
    let (_, postprocess) = parse_options([layout, "score-threshold=0.02"]).unwrap();
    let mut detector = Detector::open(model, &SessionOptions::default(), postprocess).unwrap();
    let planes = [Plane { data: &pixels, stride: width * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width, height, planes };
    detector.detect_batch(&[(frame, Colorimetry::default())]).unwrap().remove(0)
}

/// Whole models, from the picture to boxes, masks, poses and classes.
#[test]
fn twins_give_the_objects_of_their_layouts() {
    let mut objects = 0;
    for (model, layout) in [
        ("shapes", "yolov5"),
        ("shapes-v8", "yolov8"),
        ("shapes-e2e", "end-to-end"),
        ("shapes-seg", "segment"),
        ("shapes-obb", "obb"),
        ("shapes-cls", "classify"),
        ("figures-pose", "pose"),
    ] {
        let model = path(&format!("tests/models/{model}.onnx"));
        let own = detected(&model, &format!("layout={layout}"));
        let file = detected(&model, &format!("layout-file={}", path(&format!("tests/layouts/{layout}.toml"))));
        assert_eq!(own, file, "{layout}");
        objects += own.objects.len();
    }
    assert!(objects > 3, "{objects}");
}

#[test]
fn a_session_takes_a_file_or_its_text() {
    let folder = scratch("layout-session");
    let model = graph().save(&folder.join("own.onnx"));
    let file = save(&folder, "own.toml", &OWN.replace("[[output]]", "[input]\nfit = \"stretch\"\n[[output]]"));
    let open = |text: &str| Detector::open(&model, &SessionOptions::default(), parse_options([text]).unwrap().1);
    let mut detector = open(&format!("layout-file={file}")).unwrap();
    assert_eq!(detector.transform().fit, ResizeMode::Stretch);
    let pixels = [128u8; 64 * 64 * 3];
    let planes = [Plane { data: &pixels, stride: 64 * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: 64, height: 64, planes };
    let labels = |detector: &mut Detector| {
        let found = detector.detect(&frame, Colorimetry::default()).unwrap();
        found.into_iter().map(|object| object.label).collect::<Vec<_>>()
    };
    assert_eq!(labels(&mut detector), ["b"]);
    let mut detector = open(&format!("layout={OWN}")).unwrap();
    assert_eq!((labels(&mut detector), detector.transform().fit), (vec!["b".to_string()], ResizeMode::Letterbox));
    detector.set_options(parse_options([format!("layout-file={file}").as_str()]).unwrap().1);
    assert_eq!((labels(&mut detector), detector.transform().fit), (vec!["b".to_string()], ResizeMode::Stretch));
    let cut = OWN.replace("[[output]]", "[input]\nfit = \"center-crop\"\nshortest-edge = 80\n[[output]]");
    let edge = open(&format!("layout={cut}")).unwrap().transform().shortest_edge;
    assert_eq!(edge, 80, "no option says another one");
    let error = open("layout-file=/nowhere.toml").err().unwrap();
    assert!(error.message().contains("There is no layout file /nowhere.toml"), "{error}");
}

/// Each example of the pages is a layout file, and is that of the model that the sentence above it describes.
#[test]
fn the_examples_of_the_pages_are_layout_files() {
    let pages = ["docs/layout-file.md", "docs/tasks/who.md"];
    let page = pages.map(|page| std::fs::read_to_string(path(page)).unwrap()).concat();
    let mut examples = 0;
    let parts: Vec<&str> = page.split("```").collect();
    for (before, block) in parts.iter().step_by(2).zip(parts.iter().skip(1).step_by(2)) {
        let Some(text) = block.strip_prefix("toml\n") else { continue };
        let outputs: Vec<TensorDesc> = before
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|code| {
                let [name, dtype, dims] = code.split(' ').collect::<Vec<_>>()[..] else { return None };
                Some(TensorDesc { name: name.into(), dtype: dtype.parse().ok()?, dims: dims.parse().ok()? })
            })
            .collect();
        assert!(!outputs.is_empty(), "the outputs are named above\n{text}");
        let head = layout_file::of_text("the page", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let hints = ModelHints { input: Some((640, 640)), ..ModelHints::default() };
        recognise(Some(head), &outputs, &hints).unwrap_or_else(|error| panic!("{error}\n{text}"));
        examples += 1;
    }
    assert!(examples >= 9, "{examples}");
}
