// SPDX-License-Identifier: MPL-2.0
//! The chain without a pipeline: the same boxes as the elements', tensors in and out, and what is said of mistakes.

mod elements;
mod lists;

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
    let graph = graph.metadata("author", "Ultralytics").metadata("task", "caption");
    let model = graph.save(&folder.join("caption.onnx"));
    let mut session = open(&model);
    let mut scores = [0f32; 2];
    session.run(&[0f32; 192], &mut scores).unwrap();
    assert_eq!(scores, [0.25, 0.75], "any model on pictures runs");
    let error = Detector::new(session, PostprocessOptions::default()).err().unwrap();
    assert!(error.message().contains("“caption”"), "{error}");
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

#[test]
fn options_without_effect_on_what_the_model_gives_are_told_with_the_first_frame() {
    let model = one_box(&scratch("session-useless"));
    let warnings = |texts: &[&str]| {
        let (options, postprocess) = parse_options([&["backend=rten"], texts].concat()).unwrap();
        let mut detector = Detector::open(&model, &options, postprocess.clone()).unwrap();
        for _ in 0..2 {
            detect(&mut detector, 64, 64, &[128; 64 * 64 * 3]).unwrap();
        }
        detector.set_options(with(postprocess, |options| options.score_threshold = 0.1));
        detect(&mut detector, 64, 64, &[128; 64 * 64 * 3]).unwrap();
        detector.session().warnings().iter().map(|warning| warning.message()).collect::<Vec<_>>()
    };
    for (options, named) in [
        (&["top-k=3"][..], "top-k has no effect: "),
        (&["mask-output=none"], "mask-output has no effect: "),
        (
            &["shortest-edge=64"],
            "shortest-edge has no effect: it is for center-crop, and pictures are prepared by letterbox",
        ),
        (
            &["resize=stretch", "pad-value=0"],
            "pad-value has no effect: it is for letterbox and letterbox-top-left, and pictures are prepared by stretch",
        ),
        (&["top-k=3", "class-scores=logits", "background-class=last"], "top-k, class-scores, background-class have no"),
    ] {
        let [warning] = <[String; 1]>::try_from(warnings(options)).unwrap();
        assert!(warning.starts_with(named) && warning.contains("Leave "), "{warning}");
    }
    for options in [
        &["top-k=5"][..],
        &["mask-output=objects"],
        &["max-detections=3", "score-threshold=0.5", "classes=1"],
        &["pad-value=0", "tensor-colors=bgr", "scale=1"],
        &["resize=center-crop", "shortest-edge=64", "pad-value=-1"],
    ] {
        assert_eq!(warnings(options), [""; 0], "{options:?}");
    }
    let mut detector = Detector::open(&model, &on_cpu(), PostprocessOptions::default()).unwrap();
    detect(&mut detector, 64, 64, &[128; 64 * 64 * 3]).unwrap();
    detector.set_options(with(PostprocessOptions::default(), |options| options.top_k = 3));
    detect(&mut detector, 64, 64, &[128; 64 * 64 * 3]).unwrap();
    assert_eq!(detector.session().warnings().len(), 1, "set later");
}

/// What the elements tell as INFO messages.
#[test]
fn what_is_guessed_of_a_model_is_told_once() {
    let model = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 1, 6], &[0.0, 0.0, 32.0, 32.0, 0.9, 1.0])
        .save(&scratch("session-guess").join("guess.onnx"));
    let mut detector = Detector::open(&model, &on_cpu(), PostprocessOptions::default()).unwrap();
    assert!(detector.session().notes().is_empty(), "no frame was seen");
    let grey = [128; 64 * 64 * 3];
    for _ in 0..2 {
        detect(&mut detector, 64, 64, &grey).unwrap();
        assert!(detector.session().warnings().is_empty());
        let notes = detector.session().notes();
        assert!(notes.iter().any(|note| note.message().contains("by the dimensions of its outputs")));
        let texts: std::collections::BTreeSet<String> = notes.iter().map(|note| note.message()).collect();
        assert_eq!(texts.len(), notes.len());
        detector.set_options(with(PostprocessOptions::default(), |options| options.score_threshold = 0.1));
    }
}

/// It may be what is used without it.
#[test]
fn what_the_user_says_of_the_input_is_not_asked_for() {
    let model = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 3], &[0.0, 1.0, 2.0])
        .save(&scratch("session-input").join("classes.onnx"));
    let notes = |options: &SessionOptions, transform: Option<InputTransform>| {
        let mut detector = Detector::open(&model, options, PostprocessOptions::default()).unwrap();
        transform.into_iter().for_each(|transform| detector.set_transform(transform));
        detect(&mut detector, 64, 64, &[128; 64 * 64 * 3]).unwrap();
        let notes = detector.session().notes().iter();
        notes.filter(|note| note.message().contains("the normalisation of its input")).count()
    };
    let set = |option: fn(&mut SessionOptions)| with(on_cpu(), option);
    assert_eq!(notes(&on_cpu(), None), 1);
    assert_eq!(notes(&set(|options| options.mean = Some([0.0; 3])), None), 0);
    assert_eq!(notes(&set(|options| options.std = Some([1.0; 3])), None), 0);
    assert_eq!(notes(&on_cpu(), Some(InputTransform::default())), 0);
}

// ------------------------------------------------------------------ session

#[test]
fn a_session_describes_itself() {
    let mut session = open(&shapes());
    assert_eq!((session.backend(), session.reason(), session.warnings()), ("rten", None, &[][..]));
    assert_eq!(session.input().to_string(), "images f32 1x3x320x320");
    assert_eq!(session.outputs().iter().map(|desc| desc.to_string()).collect::<Vec<_>>(), ["output0 f32 1x6300x7"]);
    assert_eq!(session.model().labels, ["disc", "box"]);
    // The same numbers whether they are asked for as such or as bytes.
    let picture: Vec<f32> = (0..3 * 320 * 320).map(|i| (i % 251) as f32 / 250.0).collect();
    let mut rows = vec![0f32; 6300 * 7];
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
