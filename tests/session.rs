// SPDX-License-Identifier: MPL-2.0
//! The chain without a pipeline: the same boxes as the elements', tensors in and out, and what is said of mistakes.

use std::path::Path;

use gsttrt_core::backends::BackendPreference;
use gsttrt_core::error::ErrorKind;
use gsttrt_core::image::device::DevicePlane;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::image::geometry::{BBox, ResizeMode};
use gsttrt_core::image::transform::{Colors, InputTransform};
use gsttrt_core::memory::MemoryKind;
use gsttrt_core::session::{
    Detector, DeviceFrame, FrameResults, Object, PostprocessOptions, Session, SessionOptions, parse_options,
};
use gsttrt_core::tensor::{DType, Element};
use half::f16;

use crate::common::onnx::{BOOL, F16, F32, Graph, I64, U8, body, int, ints};
use crate::common::{path, scratch, shapes, with};

fn on_cpu() -> SessionOptions {
    with(SessionOptions::default(), |options| options.backend = BackendPreference::Named("rten"))
}

fn open(model: &str) -> Session {
    Session::open(model, &on_cpu()).unwrap()
}

/// A model whose only output is its input of 4x2 RGB, of that type.
fn echo(folder: &Path, elem_type: i32) -> String {
    let dims = &["1", "3", "2", "4"];
    let graph = Graph::new().input("images", elem_type, dims).output("same", elem_type, dims);
    graph.node("Identity", &["images"], &["same"], Vec::new()).save(&folder.join(format!("echo-{elem_type}.onnx")))
}

// ------------------------------------------------------------------ detector

/// A grey frame of that size, in RGB.
fn detect(
    detector: &mut Detector,
    width: usize,
    height: usize,
    bytes: &[u8],
) -> gsttrt_core::error::Result<Vec<Object>> {
    let planes = [Plane { data: bytes, stride: width * 3 }].into_iter().collect();
    detector.detect(&Frame { format: PixelFormat::Rgb, width, height, planes }, Colorimetry::default())
}

/// One box over a quarter of a 64x64 input, for any picture.
fn one_box(folder: &Path) -> String {
    let row = [0.0, 0.0, 32.0, 32.0, 0.9, 1.0];
    let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("output0", &[1, 1, 6], &row);
    graph.metadata("names", "{0: 'cat', 1: 'dog'}").metadata("end2end", "True").save(&folder.join("box.onnx"))
}

#[test]
fn a_detector_stays_usable_after_mistakes() {
    let model = one_box(&scratch("session-mistakes"));
    let mut detector = Detector::open(&model, &on_cpu(), PostprocessOptions::default()).unwrap();
    let grey = [128; 64 * 64 * 3];
    let found = detect(&mut detector, 64, 64, &grey).unwrap();
    let [dog] = <[Object; 1]>::try_from(found).unwrap();
    assert_eq!((dog.label.as_str(), dog.class_id, dog.confidence), ("dog", 1, 0.9));
    assert_eq!(dog.bbox, BBox::new(0.0, 0.0, 32.0, 32.0));
    assert!(dog.rotated.is_none() && dog.keypoints.is_empty() && dog.mask.is_none());

    let error = detect(&mut detector, 64, 64, &grey[1..]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(error.message().contains("12287") && error.message().contains("64 rows of 192"), "{error}");
    let error = detect(&mut detector, 0, 64, &grey).unwrap_err();
    assert!(error.message().contains("0x64"), "{error}");
    detector.set_options(with(PostprocessOptions::default(), |options| options.classes = "bird".into()));
    let error = detect(&mut detector, 64, 64, &grey).unwrap_err();
    assert!(error.message().contains("no class “bird”"), "{error}");
    detector.set_options(with(PostprocessOptions::default(), |options| options.classes = "cat".into()));
    assert_eq!(detect(&mut detector, 64, 64, &grey).unwrap(), []);
    detector.set_options(PostprocessOptions::default());
    assert_eq!(detect(&mut detector, 64, 64, &grey).unwrap(), std::slice::from_ref(&dog));

    // Of a frame of another size, the box is in its pixels.
    let found = detect(&mut detector, 32, 32, &grey).unwrap();
    assert_eq!(found, [with(dog.clone(), |dog| dog.bbox = BBox::new(0.0, 0.0, 16.0, 16.0))]);

    // The position of the frame in the input is part of the transform.
    let found = detect(&mut detector, 64, 32, &grey).unwrap();
    assert_eq!(found, [with(dog.clone(), |dog| dog.bbox = BBox::new(0.0, 0.0, 32.0, 16.0))]);
    detector.set_transform(InputTransform { fit: ResizeMode::LetterboxTopLeft, ..*detector.transform() });
    let found = detect(&mut detector, 64, 32, &grey).unwrap();
    assert_eq!(found, [dog]);
    detector.set_transform(InputTransform { colors: Colors::Gray, ..*detector.transform() });
    let error = detect(&mut detector, 64, 32, &grey).unwrap_err();
    assert!(error.message().contains("gray has 1 channels, the tensor 3"), "{error}");
}

/// In a rectangle that suits the frame, nothing is above it and at its sides.
#[test]
fn a_detector_takes_the_smallest_rectangle_for_each_frame() {
    let model = Graph::new()
        .input("images", F32, &["n", "3", "h", "w"])
        .constant("output0", &[1, 1, 6], &[0.0, 0.0, 16.0, 16.0, 0.9, 0.0])
        .metadata("names", "{0: 'dog'}")
        .metadata("end2end", "True")
        .metadata("imgsz", "[64, 64]")
        .metadata("stride", "32")
        .save(&scratch("session-rectangle").join("open.onnx"));
    let grey = [128; 64 * 64 * 3];
    let whole = BBox::new(0.0, 0.0, 16.0, 16.0);
    let auto = Session::open(&model, &on_cpu()).unwrap();
    assert_eq!(auto.input().to_string(), "images f32 1x3x64x64", "a session by itself knows no frames");
    let mut detector = Detector::new(auto, PostprocessOptions::default()).unwrap();
    for (width, height) in [(64, 32), (32, 64), (64, 64), (64, 32)] {
        assert_eq!(detect(&mut detector, width, height, &grey).unwrap()[0].bbox, whole, "{width}x{height}");
    }
    detector.set_transform(InputTransform { fit: ResizeMode::Stretch, ..*detector.transform() });
    assert_eq!(
        detect(&mut detector, 64, 32, &grey).unwrap()[0].bbox,
        BBox::new(0.0, 0.0, 16.0, 8.0),
        "the whole input"
    );
    let square = with(on_cpu(), |options| options.input_size = Some((64, 64)));
    let mut detector = Detector::open(&model, &square, PostprocessOptions::default()).unwrap();
    assert_eq!(detect(&mut detector, 64, 32, &grey).unwrap(), [], "all of it is in the padding");
    assert_eq!(detect(&mut detector, 64, 64, &grey).unwrap()[0].bbox, whole);
}

/// A branch behind a suppression reads what was made before it.
#[test]
fn branches_behind_a_suppression_have_what_they_read() {
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let branch =
        |op: &str| Graph::new().node(op, &["best"], &["rows"], Vec::new()).output("rows", F32, &["1", "1", "6"]);
    let model = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .weight("boxes", F32, &[1, 1, 4], floats(&[0.0, 0.0, 32.0, 32.0]))
        .weight("scores", F32, &[1, 1, 1], floats(&[0.9]))
        .weight("most", I64, &[1], 1i64.to_le_bytes().to_vec())
        .weight("row", F32, &[1, 1, 6], floats(&[0.0, 0.0, 32.0, 32.0, 0.9, 0.0]))
        .weight("none", I64, &[], 0i64.to_le_bytes().to_vec())
        .node("Identity", &["row"], &["best"], Vec::new())
        .node("NonMaxSuppression", &["boxes", "scores", "most"], &["picked"], Vec::new())
        .node("Size", &["picked"], &["count"], Vec::new())
        .node("Greater", &["count", "none"], &["any"], Vec::new())
        .node(
            "If",
            &["any"],
            &["output0"],
            vec![body("then_branch", branch("Identity")), body("else_branch", branch("Neg"))],
        )
        .output("output0", F32, &["1", "1", "6"])
        .metadata("end2end", "True")
        .save(&scratch("session-branches").join("branches.onnx"));
    let mut detector = Detector::open(&model, &on_cpu(), PostprocessOptions::default()).unwrap();
    let found = detect(&mut detector, 64, 64, &[128; 64 * 64 * 3]).unwrap();
    assert_eq!(found.iter().map(|object| object.bbox).collect::<Vec<_>>(), [BBox::new(0.0, 0.0, 32.0, 32.0)]);
}

#[test]
fn only_detection_models_detect() {
    let folder = scratch("session-task");
    let graph = Graph::new().input("images", F32, &["1", "3", "8", "8"]).constant("scores", &[1, 2], &[0.25, 0.75]);
    let model = graph.metadata("task", "caption").save(&folder.join("caption.onnx"));
    let mut session = open(&model);
    let mut scores = [0f32; 2];
    session.run(&[0f32; 192], &mut scores).unwrap();
    assert_eq!(scores, [0.25, 0.75], "any model on pictures runs");
    let error = Detector::new(session, PostprocessOptions::default()).err().unwrap();
    assert!(error.message().contains("“caption”"), "{error}");
}

// ------------------------------------------------------------------ lists

/// A model that finds one box in the middle of each picture. Its score is a tenth of the number of pictures that are run together,
/// and its left edge is at 22, and ten times the brightness of the picture to the right of it.
fn batch_counter(folder: &Path, name: &str, dims: &[&str]) -> String {
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Graph::new()
        .input("images", F32, dims)
        .weight("place", F32, &[1, 1, 6], floats(&[22.0, 20.0, 42.0, 44.0, 0.0, 0.0]))
        .weight("left", F32, &[1, 1, 6], floats(&[10.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
        .weight("score", F32, &[1, 1, 6], floats(&[0.0, 0.0, 0.0, 0.0, 0.1, 0.0]))
        .weight("rows", I64, &[3], [-1i64, 1, 1].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .weight("first", I64, &[1], 0i64.to_le_bytes().to_vec())
        .node("ReduceMean", &["images"], &["mean"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)])
        .node("Reshape", &["mean", "rows"], &["column"], vec![])
        .node("Mul", &["column", "left"], &["moved"], vec![])
        .node("Shape", &["images"], &["dims"], vec![])
        .node("Gather", &["dims", "first"], &["whole"], vec![])
        .node("Cast", &["whole"], &["count"], vec![int("to", F32.into())])
        .node("Mul", &["count", "score"], &["scored"], vec![])
        .node("Add", &["scored", "place"], &["placed"], vec![])
        .node("Add", &["moved", "placed"], &["output0"], vec![])
        .output("output0", F32, &[dims[0], "1", "6"])
        .metadata("names", "{0: 'a'}")
        .metadata("end2end", "True")
        .metadata("imgsz", "[64, 64]")
        .metadata("stride", "32")
        .save(&folder.join(name))
}

/// RGB frames of these sizes and brightnesses, in memory that stays as long as the test.
fn frames(kinds: &[(usize, usize, u8)]) -> Vec<(Frame<'static>, Colorimetry)> {
    let frame = |&(width, height, level): &(usize, usize, u8)| {
        let data = vec![level; width * height * 3].leak();
        let planes = [Plane { data, stride: width * 3 }].into_iter().collect();
        (Frame { format: PixelFormat::Rgb, width, height, planes }, Colorimetry::default())
    };
    kinds.iter().map(frame).collect()
}

fn counting(model: &str, batch_size: u32) -> Detector {
    let options = with(on_cpu(), |options| options.batch_size = batch_size);
    let low = with(PostprocessOptions::default(), |options| options.score_threshold = 0.01);
    Detector::open(model, &options, low).unwrap()
}

/// Of each frame, how many were run together.
fn counts(results: &[FrameResults]) -> Vec<u32> {
    results.iter().map(|results| (results.objects[0].confidence * 10.0).round() as u32).collect()
}

#[test]
fn lists_run_in_batches_with_the_results_of_one_by_one() {
    let folder = scratch("session-lists");
    let model = |batch: &str| batch_counter(&folder, &format!("{batch}.onnx"), &[batch, "3", "64", "64"]);
    let kinds = [(64, 64, 10), (90, 40, 200), (64, 64, 30), (20, 60, 90), (90, 40, 50), (64, 64, 250)];
    let frames = frames(&kinds);
    for (batch, batch_size, together) in [
        ("n", 0, [1; 6]),
        ("n", 4, [4, 4, 4, 2, 2, 4]),
        ("n", 6, [6; 6]),
        ("n", 64, [6; 6]),
        // The last one is filled up with black.
        ("4", 0, [4; 6]),
        ("4", 4, [4; 6]),
        ("1", 0, [1; 6]),
    ] {
        let mut detector = counting(&model(batch), batch_size);
        let results = detector.detect_batch(&frames).unwrap();
        assert_eq!(counts(&results), together, "{batch}, batch-size={batch_size}");
        for (results, (frame, color)) in results.iter().zip(&frames) {
            let one = detector.detect(frame, *color).unwrap();
            assert_eq!((results.objects.len(), results.objects[0].bbox), (1, one[0].bbox));
            assert!(results.classes.is_empty() && results.map.is_none());
        }
        assert_eq!(detector.detect_batch(&[]).unwrap(), []);
    }
    let fixed = Session::open(model("4"), &on_cpu()).unwrap();
    assert_eq!((fixed.batch_size(), fixed.input().to_string()), (4, "images f32 1x3x64x64".into()));
    assert_eq!(fixed.outputs()[0].to_string(), "output0 f32 1x1x6");
    let error = Session::open(model("4"), &with(on_cpu(), |options| options.batch_size = 3)).unwrap_err();
    assert!(error.message().contains("batch-size is 3, but the model takes batches of 4"), "{error}");
}

/// Pictures that come to one size of the input are run together, wherever they are in the list.
#[test]
fn lists_of_frames_of_any_size_are_grouped_by_the_size_of_the_input() {
    let model = batch_counter(&scratch("session-grouped"), "open.onnx", &["n", "3", "h", "w"]);
    let mut detector = counting(&model, 2);
    let kinds = [(64, 32, 10), (32, 64, 20), (128, 64, 30), (64, 64, 40), (32, 64, 50), (64, 32, 60)];
    let results = detector.detect_batch(&frames(&kinds)).unwrap();
    assert_eq!(counts(&results), [2, 2, 1, 1, 2, 2]);
    for (results, (width, height, level)) in results.iter().zip(kinds) {
        let scale = width.max(height) as f32 / 64.0;
        let left = (22.0 + 10.0 * f32::from(level) / 255.0) * scale;
        let found = results.objects[0].bbox.x1;
        assert!((found - left).abs() < 0.01, "{width}x{height}: {found}, not {left}");
    }
}

/// All that a model finds, as one by one.
#[test]
fn each_task_has_its_results_in_lists() {
    let folder = scratch("session-tasks");
    let pictures: &'static [_] = elements::pictures("RGB").leak();
    let frame = |(pixels, width, height): &'static (Vec<u8>, usize, usize)| {
        let planes = [Plane { data: pixels, stride: width * 3 }].into_iter().collect();
        (Frame { format: PixelFormat::Rgb, width: *width, height: *height, planes }, Colorimetry::default())
    };
    let frames: Vec<_> = pictures.iter().map(frame).collect();
    for name in ["shapes", "shapes-seg", "figures-pose", "shapes-obb", "shapes-cls", "shapes-sem", "rooms-depth"] {
        let file = path(&format!("tests/models/{name}.onnx"));
        let model = Graph::load(&file).with_batch("n").save(&folder.join(format!("{name}.onnx")));
        let options = with(on_cpu(), |options| options.batch_size = 2);
        // Not all of them know what is in the clip.
        let low = with(PostprocessOptions::default(), |options| options.score_threshold = 1e-5);
        let mut detector = Detector::open(&model, &options, low).unwrap();
        let together = detector.detect_batch(&frames).unwrap();
        let mut found = 0;
        for (results, (frame, color)) in together.iter().zip(&frames) {
            assert_eq!(results.objects, detector.detect(frame, *color).unwrap(), "{name}");
            assert_eq!((&results.classes, results.map.as_ref()), (&detector.classes(), detector.map()), "{name}");
            found += results.objects.len() + results.classes.len() + usize::from(results.map.is_some());
        }
        assert!(found > 0, "{name}");
    }
}

#[test]
fn a_wrong_frame_of_a_list_is_named_and_breaks_nothing() {
    let model = batch_counter(&scratch("session-wrong"), "n.onnx", &["n", "3", "64", "64"]);
    let mut detector = counting(&model, 2);
    let good = frames(&[(64, 64, 10), (64, 64, 20), (32, 32, 30), (64, 64, 40)]);
    for (spoil, kind, says) in [
        ((|frame: &mut Frame| frame.planes[0].stride = 9) as fn(&mut Frame), ErrorKind::WrongType, "stride 9"),
        (|frame| frame.width = 0, ErrorKind::Negotiation, "0x32"),
    ] {
        let mut frames = good.clone();
        spoil(&mut frames[2].0);
        let error = detector.detect_batch(&frames).unwrap_err();
        assert!(error.kind() == kind && error.message().starts_with("frames[2]: "), "{error}");
        assert!(error.message().contains(says), "{error}");
        assert_eq!(counts(&detector.detect_batch(&good).unwrap()), [2, 2, 2, 2]);
    }
}

#[test]
fn a_session_runs_lists_too() {
    let folder = scratch("session-run-lists");
    for (batch, batch_size) in [("n", 0), ("n", 2), ("2", 0), ("1", 0)] {
        let dims = &[batch, "3", "2", "4"];
        let graph = Graph::new().input("images", F32, dims).output("same", F32, dims);
        let graph = graph.node("Identity", &["images"], &["same"], Vec::new());
        let model = graph.save(&folder.join(format!("{batch}.onnx")));
        let mut session = Session::open(&model, &with(on_cpu(), |options| options.batch_size = batch_size)).unwrap();
        let pictures: Vec<Vec<f32>> = (0..5).map(|picture| vec![picture as f32; 24]).collect();
        let inputs: Vec<&[u8]> = pictures.iter().map(|picture| bytemuck::cast_slice(picture)).collect();
        let outputs = session.run_batch(&inputs).unwrap();
        assert_eq!(outputs.len(), 5);
        for (outputs, picture) in outputs.iter().zip(&pictures) {
            assert_eq!(outputs[0].desc().to_string(), "same f32 1x3x2x4");
            assert_eq!(outputs[0].as_slice::<f32>().unwrap(), picture);
        }
        let error = session.run_batch(&[inputs[0], &inputs[1][1..]]).unwrap_err();
        assert!(error.kind() == ErrorKind::WrongType && error.message().starts_with("inputs[1]: "), "{error}");
        let mut output = [0f32; 24];
        session.run(&pictures[3], &mut output).unwrap();
        assert_eq!(output, [3.0; 24]);
        session.copy_input_to_device(&pictures[4]).unwrap();
        session.run_buffers().unwrap();
        session.copy_output_to_host(0, &mut output).unwrap();
        assert_eq!(output, [4.0; 24]);
    }
}

// ------------------------------------------------------------------ options without effect

#[test]
fn options_without_effect_are_told() {
    let model = one_box(&scratch("session-ignored"));
    let warnings = |texts: &[&str]| {
        let (options, _) = parse_options([&["backend=rten"], texts].concat()).unwrap();
        let session = Session::open(&model, &options).unwrap();
        session.warnings().iter().map(|warning| warning.message()).collect::<Vec<_>>()
    };
    for (option, named) in [
        ("precision=fp16", "precision has no effect: the model runs on the CPU (rten)"),
        ("execution-providers=cpu", "execution-providers has no effect"),
        ("cuda-device-id=0", "cuda-device-id has no effect"),
        ("upload=mapped", "upload has no effect"),
        ("workspace-mib=64", "workspace-mib has no effect"),
    ] {
        let [warning] = <[String; 1]>::try_from(warnings(&[option])).unwrap();
        assert!(warning.starts_with(named) && warning.contains("Set backend="), "{warning}");
    }
    for option in ["threads=2", "batch-size=1", "score-threshold=0.4", "precision=auto", "upload=auto"] {
        assert_eq!(warnings(&[option]), [""; 0], "{option}");
    }
    let (options, _) = parse_options(["backend=rten", "cuda-graph=on"]).unwrap();
    let error = Session::open(&model, &options).unwrap_err();
    assert!(error.kind() == ErrorKind::Settings && error.message().contains("cuda-graph=on needs TensorRT"), "{error}");
}

/// What the elements tell as INFO messages.
#[test]
fn what_is_guessed_of_a_model_is_told_once() {
    let model = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 1, 6], &[0.0, 0.0, 32.0, 32.0, 0.9, 1.0])
        .save(&scratch("session-guess").join("guess.onnx"));
    let mut detector = Detector::open(&model, &on_cpu(), PostprocessOptions::default()).unwrap();
    assert!(detector.session().warnings().is_empty(), "no frame was seen");
    let grey = [128; 64 * 64 * 3];
    for _ in 0..2 {
        detect(&mut detector, 64, 64, &grey).unwrap();
        let warnings = detector.session().warnings();
        assert!(warnings.iter().any(|warning| warning.message().contains("by the dimensions of its outputs")));
        let texts: std::collections::BTreeSet<String> = warnings.iter().map(|warning| warning.message()).collect();
        assert_eq!(texts.len(), warnings.len());
        detector.set_options(with(PostprocessOptions::default(), |options| options.score_threshold = 0.1));
    }
}

// ------------------------------------------------------------------ session

#[test]
fn a_session_describes_itself() {
    let mut session = open(&shapes());
    assert_eq!((session.backend(), session.reason(), session.warnings()), ("rten", None, &[][..]));
    assert_eq!(session.input().to_string(), "images f32 1x3x512x512");
    assert_eq!(session.outputs().iter().map(|desc| desc.to_string()).collect::<Vec<_>>(), ["output0 f32 1x16128x7"]);
    assert_eq!(session.model().labels, ["disc", "box"]);
    // The same numbers whether they are asked for as such or as bytes.
    let picture: Vec<f32> = (0..3 * 512 * 512).map(|i| (i % 251) as f32 / 250.0).collect();
    let mut rows = vec![0f32; 16128 * 7];
    session.run(&picture, &mut rows).unwrap();
    let tensors = session.run_bytes(bytemuck::cast_slice(&picture)).unwrap();
    assert_eq!(tensors[0].as_slice::<f32>().unwrap(), rows);
    assert!(rows.iter().any(|&value| value != 0.0));
}

#[test]
fn auto_gives_the_reason_for_the_cpu() {
    if !crate::common::gpu::is_hidden("session::auto_gives_the_reason_for_the_cpu") {
        return;
    }
    let model = echo(&scratch("session-auto"), F32);
    let session = Session::open(&model, &SessionOptions::default()).unwrap();
    assert!(session.backend() == "rten" && session.reason().unwrap().contains("driver"), "{:?}", session.reason());
    let options = with(SessionOptions::default(), |options| options.backend = BackendPreference::Named("tensorrt"));
    assert_eq!(Session::open(&model, &options).unwrap_err().kind(), ErrorKind::Library);
}

#[test]
fn each_type_goes_in_and_out() {
    fn same<T: Element + PartialEq + std::fmt::Debug>(folder: &Path, elem_type: i32, value: fn(u8) -> T) {
        let mut session = open(&echo(folder, elem_type));
        let picture: Vec<T> = (0..24).map(value).collect();
        let mut output = vec![value(99); 24];
        session.run(&picture, &mut output).unwrap();
        assert_eq!(output, picture);
    }
    let folder = scratch("session-types");
    same::<f32>(&folder, F32, |i| f32::from(i) / 7.0);
    same::<f16>(&folder, F16, |i| f16::from_f32(f32::from(i) / 7.0));
    same::<u8>(&folder, U8, |i| i.wrapping_mul(10));
}

#[test]
fn a_sessions_own_buffers_can_be_used_again() {
    let mut session = open(&echo(&scratch("session-buffers"), F32));
    let mut output = [0f32; 24];
    for i in 0..3 {
        let input = [i as f32; 24];
        session.copy_input_to_device(&input).unwrap();
        assert!(session.run_buffers().unwrap().is_none(), "on the CPU it is done");
        session.copy_output_to_host(0, &mut output).unwrap();
        assert_eq!(output, input);
    }
    let buffers = session.buffers().unwrap();
    assert_eq!((buffers.input.kind(), buffers.input.bytes()), (MemoryKind::Host, 96));
    assert_eq!(buffers.outputs[0].as_slice::<f32>().unwrap(), [2.0; 24]);

    for (error, parts) in [
        (session.copy_input_to_device(&[0f32; 23]), ["24 elements", "23 are given"]),
        (session.copy_input_to_device(&[0u8; 24]), ["f32 1x3x2x4", "given as u8"]),
        (session.copy_bytes_to_device(&[0; 95]), ["96 bytes", "95 are given"]),
        (session.copy_output_to_host(0, &mut output[1..]), ["96 bytes", "room for 92"]),
        (session.copy_output_to_host(0, &mut [0u8; 96]), ["f32 1x3x2x4", "asked for as u8"]),
        (session.copy_output_to_host(1, &mut output), ["no output 1", "of 1"]),
        (session.copy_bytes_to_host(7, &mut []), ["no output 7", "of 1"]),
    ] {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert!(parts.iter().all(|part| error.message().contains(part)), "{error}");
    }
    session.copy_output_to_host(0, &mut output).unwrap();
    assert_eq!(output, [2.0; 24], "nothing is lost");
}

#[test]
fn without_a_gpu_device_runs_are_errors() {
    let model = one_box(&scratch("session-device"));
    let mut detector = Detector::open(&model, &on_cpu(), PostprocessOptions::default()).unwrap();
    let planes = [DevicePlane { address: 256, stride: 192 }].into_iter().collect();
    let frame = DeviceFrame { format: PixelFormat::Rgb, width: 64, height: 64, planes };
    // SAFETY: nothing is read.
    let errors = unsafe {
        [
            detector.session_mut().run_device(256, &[512], std::ptr::null_mut()).map(drop),
            detector.detect_device(&frame, Colorimetry::default(), std::ptr::null_mut()).map(drop),
        ]
    };
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::Library);
        assert!(error.message().contains("does not run on a GPU: it was opened for the CPU"), "{error}");
    }
    assert_eq!(detect(&mut detector, 64, 64, &[128; 64 * 64 * 3]).unwrap().len(), 1);
}

#[test]
fn models_with_several_outputs_give_all_of_them() {
    let dims = &["1", "3", "2", "4"];
    let graph = Graph::new()
        .input("images", U8, dims)
        .output("wide", I64, dims)
        .output("flags", BOOL, dims)
        .node("Cast", &["images"], &["wide"], vec![int("to", I64.into())])
        .node("Cast", &["images"], &["flags"], vec![int("to", BOOL.into())]);
    let mut session = open(&graph.save(&scratch("session-outputs").join("two.onnx")));
    let picture: Vec<u8> = (0..24).collect();
    let tensors = session.run_bytes(&picture).unwrap();
    let descs: Vec<String> = tensors.iter().map(|tensor| tensor.desc().to_string()).collect();
    assert_eq!(descs, ["wide i64 1x3x2x4", "flags bool 1x3x2x4"]);
    assert_eq!(tensors[0].as_slice::<i64>().unwrap(), (0..24).collect::<Vec<i64>>());
    assert_eq!(tensors[1].bytes().unwrap()[..3], [0, 1, 1]);
    let error = session.run(&picture, &mut [0i64; 24]).unwrap_err();
    assert!(error.message().contains("2 outputs") && error.message().contains("run_bytes"), "{error}");
}

#[test]
fn open_dimensions_are_found_out() {
    let dims = &["batch", "3", "h", "w"];
    let graph = Graph::new().input("images", F32, dims).output("same", F32, dims);
    let model = graph.node("Identity", &["images"], &["same"], Vec::new());
    let model = model.save(&scratch("session-open").join("open.onnx"));
    let error = Session::open(&model, &on_cpu()).unwrap_err();
    assert!(error.kind() == ErrorKind::Settings && error.message().contains("input-size"), "{error}");
    let session = Session::open(&model, &with(on_cpu(), |options| options.input_size = Some((8, 4)))).unwrap();
    assert_eq!((session.input().to_string(), session.outputs()[0].to_string()), {
        ("images f32 1x3x4x8".to_string(), "same f32 1x3x4x8".to_string())
    });
}

#[test]
fn mistakes_name_both_sides_and_break_nothing() {
    let mut session = open(&echo(&scratch("session-sizes"), F32));
    let mut output = [0f32; 24];
    for (error, parts) in [
        (session.run(&[0f32; 23], &mut output), ["24 elements", "23 are given"]),
        (session.run::<f32, f32>(&[], &mut output), ["24 elements", "0 are given"]),
        (session.run(&[0f32; 24], &mut output[..7]), ["24 elements", "room for 7"]),
        (session.run(&[0u8; 24], &mut output), ["f32 1x3x2x4", "given as u8"]),
        (session.run(&[0f32; 24], &mut [0u8; 24]), ["f32 1x3x2x4", "asked for as u8"]),
        (session.run_bytes(&[0; 95]).map(drop), ["96 bytes", "95 are given"]),
    ] {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert!(parts.iter().all(|part| error.message().contains(part)), "{error}");
        session.run(&[0.5f32; 24], &mut output).unwrap();
        assert_eq!(output, [0.5; 24]);
    }
    assert_eq!(session.input().dtype, DType::F32);
    for (model, kind) in [
        ("/nowhere.onnx", ErrorKind::NotFound),
        ("README.md", ErrorKind::Model),
        ("/nowhere.engine", ErrorKind::Settings),
    ] {
        assert_eq!(Session::open(model, &on_cpu()).unwrap_err().kind(), kind, "{model}");
    }
}

// ------------------------------------------------------------------ frames that GStreamer decodes

/// What the elements do with frames, a session does as well.
mod elements {
    use gst::prelude::*;
    use gst_check::Harness;
    use gsttrt_core::cuda::driver::Stream;
    use gsttrt_core::memory::Buffer;

    use super::*;
    use crate::common::gpu::setting;
    use crate::common::{init, path};

    /// Frames of the sample clip in that format.
    fn frames(format: &str) -> Vec<(gst_video::VideoInfo, gst::Buffer)> {
        init();
        let line = format!(
            "filesrc location={} ! decodebin ! videoconvert ! video/x-raw,format={format} ! appsink name=out sync=false",
            setting("GPU_CLIP").unwrap_or_else(|| path("tests/data/sample.mp4"))
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let out = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        let mut frames = Vec::new();
        while frames.len() < 3 {
            let sample = out.pull_sample().unwrap();
            let info = gst_video::VideoInfo::from_caps(sample.caps().unwrap()).unwrap();
            frames.push((info, sample.buffer_owned().unwrap()));
        }
        pipeline.set_state(gst::State::Null).unwrap();
        frames
    }

    /// The pixels of frames of the sample clip, side by side, with width and height.
    pub fn pictures(format: &str) -> Vec<(Vec<u8>, usize, usize)> {
        let picture = |(info, buffer): (gst_video::VideoInfo, gst::Buffer)| {
            let (width, height) = (info.width() as usize, info.height() as usize);
            (buffer.map_readable().unwrap()[..width * height * 3].to_vec(), width, height)
        };
        frames(format).into_iter().map(picture).collect()
    }

    /// Label, class; confidence, left, top, width and height.
    type Plain = (String, u32, [f32; 5]);

    fn plain(object: Object) -> Plain {
        let BBox { x1, y1, .. } = object.bbox;
        let numbers = [object.confidence, x1, y1, object.bbox.width(), object.bbox.height()];
        (object.label, object.class_id, numbers)
    }

    /// What the elements find in frames, by their messages: numbers as they are, not rounded to pixels.
    fn objects_of_the_elements(
        frames: &[(gst_video::VideoInfo, gst::Buffer)],
        infer: &str,
        nms: &str,
    ) -> Vec<Vec<Plain>> {
        let line = format!("trtpreprocess ! trtinfer {infer} ! trtnms draw=false post-messages=true {nms}");
        let mut harness = Harness::new_parse(&line);
        let bus = gst::Bus::new();
        harness.element().unwrap().set_bus(Some(&bus));
        harness.set_src_caps(frames[0].0.to_caps().unwrap());
        let objects = |(_, buffer): &(gst_video::VideoInfo, gst::Buffer)| {
            harness.push_and_pull(buffer.copy()).unwrap();
            let message =
                bus.timed_pop_filtered(gst::ClockTime::from_seconds(5), &[gst::MessageType::Element]).unwrap();
            let detections = message.structure().unwrap().get::<gst::Array>("detections").unwrap();
            let objects = detections.iter().map(|value| {
                let detection = value.get::<gst::Structure>().unwrap();
                let number = |key: &str| detection.get::<f64>(key).unwrap();
                (
                    detection.get::<String>("label").unwrap(),
                    detection.get::<u32>("class-id").unwrap(),
                    ["confidence", "x", "y", "w", "h"].map(number),
                )
            });
            objects
                // Width and height are differences; kept as they came.
                .map(|(label, class_id, numbers)| (label, class_id, numbers.map(|number| number as f32)))
                .collect()
        };
        frames.iter().map(objects).collect()
    }

    /// Compares what a detector finds in frames with what the elements find.
    fn assert_same(detector: &mut Detector, pixels: PixelFormat, infer: &str, nms: &str) {
        let frames = frames(pixels.name());
        let wanted = objects_of_the_elements(&frames, infer, nms);
        assert!(wanted.iter().all(|objects| !objects.is_empty()), "{pixels:?}");
        for ((info, buffer), wanted) in frames.iter().zip(&wanted) {
            let color = gsttrt::gst::video::Format::from_caps(&info.to_caps().unwrap()).unwrap().color;
            let mapped = buffer.map_readable().unwrap();
            let planes = info.offset().iter().zip(info.stride());
            let planes = planes.map(|(&offset, &stride)| Plane { data: &mapped[offset..], stride: stride as usize });
            let (width, height) = (info.width() as usize, info.height() as usize);
            let frame = Frame { format: pixels, width, height, planes: planes.collect() };
            let found = detector.detect(&frame, color).unwrap();
            assert!(found.iter().all(|object| object.keypoints.is_empty() && object.mask.is_none()), "{pixels:?}");
            let found: Vec<Plain> = found.into_iter().map(plain).collect();
            assert_eq!(&found, wanted, "{pixels:?}");
        }
    }

    #[test]
    fn the_detector_finds_what_the_elements_find() {
        for (pixels, nms, postprocess) in [
            (PixelFormat::I420, "", PostprocessOptions::default()),
            (PixelFormat::Nv12, "score-threshold=0.01 iou-threshold=0.9", {
                with(PostprocessOptions::default(), |options| {
                    (options.score_threshold, options.iou_threshold) = (0.01, 0.9);
                })
            }),
            (PixelFormat::Bgrx, "classes=box max-detections=2", {
                with(PostprocessOptions::default(), |options| {
                    (options.classes, options.max_detections) = ("box".into(), 2);
                })
            }),
        ] {
            let mut detector = Detector::open(shapes(), &on_cpu(), postprocess).unwrap();
            assert_same(&mut detector, pixels, &format!("model-file={} backend=rten", shapes()), nms);
        }
    }

    /// Needs a GPU and TensorRT, by `GPU_CLIP`, `GPU_MODEL` and `TRT_PROPERTIES` as tests/gpu_chain.rs does.
    #[test]
    fn on_the_gpu_too() {
        if crate::common::gpu::context().is_none() {
            return;
        }
        let Some(properties) = setting("TRT_PROPERTIES") else {
            return crate::common::gpu::skip("TRT_PROPERTIES is not set.");
        };
        let model = setting("GPU_MODEL").unwrap_or_else(shapes);
        let texts = properties.split_whitespace().chain(["backend=tensorrt"]);
        let (options, postprocess) = gsttrt_core::session::parse_options(texts).unwrap();
        let mut detector = Detector::open(&model, &options, postprocess).unwrap();
        assert_eq!(detector.session().backend(), "tensorrt");
        for pixels in [PixelFormat::Nv12, PixelFormat::Rgb] {
            assert_same(&mut detector, pixels, &format!("model-file={model} {properties} backend=tensorrt"), "");
        }
        // Host tensors come and go: the same input gives the same output.
        let session = detector.session_mut();
        let bytes = session.input().bytes().unwrap();
        let mut run = |value: u8| session.run_bytes(&vec![value; bytes]).unwrap()[0].bytes().unwrap().to_vec();
        let (zeros, others) = (run(0), run(52)); // an f32 of 2e-7 or an f16 of 0.26 in each element
        assert!(zeros == run(0) && others == run(52));
    }

    /// Needs a GPU and TensorRT, as [`on_the_gpu_too`].
    #[test]
    fn device_memory_is_used_in_place() {
        let Some(context) = crate::common::gpu::context() else { return };
        let Some(properties) = setting("TRT_PROPERTIES") else {
            return crate::common::gpu::skip("TRT_PROPERTIES is not set.");
        };
        let model = setting("GPU_MODEL").unwrap_or_else(shapes);
        let texts = properties.split_whitespace().chain(["backend=tensorrt"]);
        let (options, postprocess) = gsttrt_core::session::parse_options(texts).unwrap();
        let mut detector = Detector::open(&model, &options, postprocess).unwrap();
        let session = detector.session_mut();
        let (bytes, outputs) = (session.input().bytes().unwrap(), session.outputs().to_vec());
        let picture: Vec<u8> = (0..bytes).map(|i| (i % 61) as u8).collect(); // any bits, of small numbers
        let expected: Vec<Vec<u8>> =
            session.run_bytes(&picture).unwrap().iter().map(|tensor| tensor.bytes().unwrap().to_vec()).collect();

        // Its own.
        session.copy_bytes_to_device(&picture).unwrap();
        for _ in 0..4 {
            session.run_buffers().unwrap().expect("it is queued");
        }
        for (i, expected) in expected.iter().enumerate() {
            let mut found = vec![0; expected.len()];
            session.copy_bytes_to_host(i, &mut found).unwrap();
            assert!(found == *expected, "output {i}");
        }
        assert_eq!(session.buffers().unwrap().input.kind(), MemoryKind::Device);

        // The caller's, on the caller's stream.
        let stream = Stream::new(&context).unwrap();
        let mut input = Buffer::device(&context, bytes).unwrap();
        input.write(0, &picture).unwrap();
        let mut results: Vec<Buffer> =
            outputs.iter().map(|desc| Buffer::device(&context, desc.bytes().unwrap()).unwrap()).collect();
        let addresses: Vec<u64> = results.iter().map(|result| result.address().unwrap()).collect();
        let at = input.address().unwrap();
        for raw in [stream.raw(), std::ptr::null_mut()] {
            // SAFETY: all of it stays until the end.
            let fence = unsafe { session.run_device(at, &addresses, raw) }.unwrap();
            fence.wait().unwrap();
            for (result, expected) in results.iter().zip(&expected) {
                let mut found = vec![0; expected.len()];
                result.read(0, &mut found).unwrap();
                assert!(found == *expected);
            }
        }

        // On two streams in turn, among runs on its own, without a wait on the host: each behind what its stream was
        // given before, and before what that was given later. Only the session knows that runs share the memory that
        // they work in.
        let pictures = [picture.clone(), picture.iter().rev().copied().collect::<Vec<u8>>()];
        let of_each =
            pictures.each_ref().map(|picture| session.run_bytes(picture).unwrap()[0].bytes().unwrap().to_vec());
        assert!(of_each[0] != of_each[1]);
        let banks = pictures.map(|picture| {
            let mut bank = Buffer::device(&context, bytes).unwrap();
            bank.write(0, &picture).unwrap();
            bank
        });
        let sizes: Vec<usize> = expected.iter().map(Vec::len).collect();
        let streams = [Stream::new(&context).unwrap(), Stream::new(&context).unwrap()];
        let memory = [0, 1]
            .map(|_| [&[bytes], &sizes[..]].concat().into_iter().map(|bytes| Buffer::device(&context, bytes).unwrap()));
        let memory = memory.map(Iterator::collect::<Vec<_>>);
        let kept = [0; 30].map(|_| Buffer::device(&context, sizes[0]).unwrap());
        for (i, kept) in kept.iter().enumerate() {
            let (stream, bank) = (&streams[i % 2], &banks[i / 2 % 2]);
            let places: Vec<u64> = memory[i % 2].iter().filter_map(Buffer::address).collect();
            if i % 5 == 4 {
                session.run_buffers().unwrap();
            }
            // SAFETY: as above.
            unsafe {
                stream.copy((&context, bank.address().unwrap()), places[0], bytes).unwrap();
                session.run_device(places[0], &places[1..], stream.raw()).unwrap();
                stream.copy((&context, places[1]), kept.address().unwrap(), sizes[0]).unwrap();
            }
        }
        for stream in &streams {
            stream.synchronize().unwrap();
        }
        for (i, kept) in kept.iter().enumerate() {
            let mut found = vec![0; sizes[0]];
            kept.read(0, &mut found).unwrap();
            assert!(found == of_each[i / 2 % 2], "run {i}");
        }

        // In more buffers than there may be captured graphs.
        let place = |_| {
            let mut place = Buffer::device(&context, bytes).unwrap();
            place.write(0, &picture).unwrap();
            place
        };
        let places: Vec<Buffer> = (0..20).map(place).collect();
        for place in places.iter().cycle().take(50) {
            results[0].write(0, &vec![0xa5; expected[0].len()]).unwrap();
            // SAFETY: as above.
            let fence =
                unsafe { session.run_device(place.address().unwrap(), &addresses, std::ptr::null_mut()) }.unwrap();
            fence.wait().unwrap();
            let mut found = vec![0; expected[0].len()];
            results[0].read(0, &mut found).unwrap();
            assert!(found == expected[0]);
        }

        // What cannot be.
        let (host, small) = (Buffer::mapped(&context, bytes).unwrap(), Buffer::device(&context, 256).unwrap());
        for (input, expected_text) in [
            (host.address().unwrap(), "not memory of a GPU"),
            (at + 4, "multiple of 256"),
            (0, "multiple of 256"),
            (1 << 60, ""),
            (small.address().unwrap(), ""), // it may have neighbours
        ] {
            // SAFETY: it is refused, or there are neighbours.
            let outcome = unsafe { session.run_device(input, &addresses, std::ptr::null_mut()) };
            match outcome {
                Err(error) => assert!(error.message().contains(expected_text), "{error}"),
                Ok(fence) => {
                    assert_eq!(expected_text, "");
                    fence.wait().unwrap();
                }
            }
        }
        // SAFETY: it is refused.
        let error = unsafe { session.run_device(at, &[], std::ptr::null_mut()) }.unwrap_err();
        assert!(error.message().contains("0 are given"), "{error}");

        // Frames.
        let (info, buffer) = frames("NV12").remove(0);
        let (width, height) = (info.width() as usize, info.height() as usize);
        let map = buffer.map_readable().unwrap();
        let strides = [info.stride()[0] as usize, info.stride()[1] as usize];
        let rows = [&map[..strides[0] * height], &map[info.offset()[1]..][..strides[1] * height / 2]];
        let planes = rows.iter().zip(strides).map(|(&data, stride)| Plane { data, stride }).collect();
        let frame = Frame { format: PixelFormat::Nv12, width, height, planes };
        let blocks = rows.map(|rows| {
            let mut block = Buffer::device(&context, rows.len()).unwrap();
            block.write(0, rows).unwrap();
            block
        });
        let planes = blocks.iter().zip(strides);
        let planes = planes.map(|(block, stride)| DevicePlane { address: block.address().unwrap(), stride }).collect();
        let on_device = DeviceFrame { format: PixelFormat::Nv12, width, height, planes };
        let expected = detector.detect(&frame, Colorimetry::default()).unwrap();
        // SAFETY: the frame stays.
        let found = unsafe { detector.detect_device(&on_device, Colorimetry::default(), stream.raw()) }.unwrap();
        assert!(!expected.is_empty());
        assert_eq!(found, expected);
    }
}
