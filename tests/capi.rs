// SPDX-License-Identifier: MPL-2.0
//! capi/include/gsttrt.h: it declares what the library exports, its examples run, and mistakes are errors that break nothing.

#![allow(clippy::undocumented_unsafe_blocks, reason = "pointers are to locals, NULL, or as wrong as the test requires")]

mod common;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use common::onnx::{F32, Graph, U8};
use common::{path, scratch, shapes};
use gsttrt::core::dlpack;
use gsttrt::core::error::ErrorKind;
use gsttrt::core::tensor::{DType, Tensor};
use gsttrt_capi::*;

/// Where the library that applications load was built, beside this test.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_path_buf()
}

/// That of the C library.
fn library() -> PathBuf {
    target().join("libgsttrt_capi.so")
}

fn compile(source: &Path, program: &Path) {
    let is_cpp = source.extension().is_some_and(|ending| ending == "cpp");
    let (compiler, standard) = if is_cpp { ("c++", "-std=c++17") } else { ("cc", "-std=c99") };
    let mut command = Command::new(compiler);
    command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", &path("capi/include")]);
    assert!(command.arg(source).arg(library()).arg("-o").arg(program).status().unwrap().success());
}

/// What a program printed, which must have succeeded.
#[track_caller]
fn printed(output: Output) -> String {
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    stdout
}

// ------------------------------------------------------------------ the header

#[test]
fn the_header_declares_what_the_library_exports() {
    let header = std::fs::read_to_string(path("capi/include/gsttrt.h")).unwrap();
    let names = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("gst_trt_")).map(str::to_string).collect::<BTreeSet<_>>()
    };
    let symbols = |library: &Path| {
        names(&printed(Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap()))
    };
    assert_eq!(names(&header), symbols(&library()));
    assert!(symbols(&target().join("libgsttrt.so")).is_empty(), "the plugin is no library for applications");
}

#[test]
fn structures_and_numbers_are_those_of_the_header() {
    let folder = scratch("capi-layout");
    let members = [
        ("struct_size", offset_of!(GstTrtFrame, struct_size)),
        ("format", offset_of!(GstTrtFrame, format)),
        ("width", offset_of!(GstTrtFrame, width)),
        ("height", offset_of!(GstTrtFrame, height)),
        ("color", offset_of!(GstTrtFrame, color)),
        ("reserved", offset_of!(GstTrtFrame, reserved)),
        ("planes", offset_of!(GstTrtFrame, planes)),
        ("strides", offset_of!(GstTrtFrame, strides)),
        ("bytes", offset_of!(GstTrtFrame, bytes)),
    ];
    let kinds = [
        ("SETTINGS", ErrorKind::Settings),
        ("NOT_FOUND", ErrorKind::NotFound),
        ("READ", ErrorKind::Read),
        ("MODEL", ErrorKind::Model),
        ("LIBRARY", ErrorKind::Library),
        ("RUN", ErrorKind::Run),
        ("WRONG_TYPE", ErrorKind::WrongType),
        ("NEGOTIATION", ErrorKind::Negotiation),
    ];
    let mut wanted: Vec<usize> = members.map(|(_, offset)| offset).to_vec();
    wanted.push(size_of::<GstTrtFrame>());
    wanted.extend(kinds.map(|(_, kind)| kind as usize));
    wanted.push(dlpack::exporter::PANIC as usize);
    wanted.extend(0..DType::ALL.len());
    let offsets = members.map(|(member, _)| format!("offsetof (GstTrtFrame, {member})")).to_vec();
    let kinds = kinds.map(|(name, _)| format!("GST_TRT_{name}")).to_vec();
    let types = DType::ALL.map(|dtype| format!("GST_TRT_{}", dtype.to_string().to_uppercase())).to_vec();
    let others = |name: &str| vec![name.to_string()];
    let numbers = [offsets, others("sizeof (GstTrtFrame)"), kinds, others("GST_TRT_PANIC"), types].concat().join(", ");
    let program = format!(
        "#include <gsttrt.h>\n#include <stdio.h>\nint main (void) {{ size_t all[] = {{ {numbers} }}; \
         for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++) printf (\"%zu \", all[i]); return 0; }}\n"
    );
    for ending in ["c", "cpp"] {
        let source = folder.join(format!("layout.{ending}"));
        std::fs::write(&source, &program).unwrap();
        let built = folder.join(format!("layout-{ending}"));
        compile(&source, &built);
        let found = printed(Command::new(built).output().unwrap());
        assert_eq!(found.split_whitespace().map(|number| number.parse().unwrap()).collect::<Vec<usize>>(), wanted);
    }
}

// ------------------------------------------------------------------ the examples

#[test]
fn the_python_example_runs_a_model_and_detects() {
    let script = path("examples/session.py");
    let run = |model: &str| Command::new("/usr/bin/python3").arg(&script).arg(model).arg(library()).output().unwrap();
    let text = printed(run(&shapes()));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["in  images 1x3x512x512, 3145728 bytes", "out output0 1x16128x7, 451584 bytes"]);
    assert!(lines[2].starts_with("greatest ") && lines[2] != "greatest 0.0", "{text}");
    assert!(lines.len() == 4 && lines[3].starts_with("disc 0.") && lines[3].contains(" at "), "{text}");
    let error = String::from_utf8(run("/nowhere.onnx").stderr).unwrap();
    assert!(error.starts_with("Error: There is no model file /nowhere.onnx"), "{error}");
}

// ------------------------------------------------------------------ mistakes

fn open(model: &str, options: &[&str]) -> Result<*mut GstTrtSession, (c_int, String)> {
    let model = CString::new(model).unwrap();
    let texts: Vec<CString> = options.iter().map(|&text| CString::new(text).unwrap()).collect();
    let mut options: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
    options.push(ptr::null());
    let mut session = ptr::null_mut();
    match unsafe { gst_trt_session_open(model.as_ptr(), options.as_ptr(), &mut session) } {
        0 => Ok(session),
        code => {
            assert!(session.is_null());
            Err((code, last_error()))
        }
    }
}

fn last_error() -> String {
    unsafe { CStr::from_ptr(gst_trt_last_error()) }.to_str().unwrap().to_string()
}

/// One box over a quarter of a 64x64 input, for any picture.
fn one_box(test: &str) -> String {
    let row = [0.0, 0.0, 32.0, 32.0, 0.9, 1.0];
    let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("output0", &[1, 1, 6], &row);
    let graph = graph.metadata("names", "{0: 'cat', 1: 'dog'}").metadata("end2end", "True");
    graph.save(&scratch(test).join("box.onnx"))
}

const SIDE: usize = 64;

fn frame(pixels: &[u8]) -> GstTrtFrame {
    GstTrtFrame {
        struct_size: size_of::<GstTrtFrame>(),
        format: c"RGB".as_ptr(),
        width: SIDE as u32,
        height: SIDE as u32,
        color: 0,
        reserved: 0,
        planes: [pixels.as_ptr().cast(), ptr::null(), ptr::null()],
        strides: [SIDE * 3, 0, 0],
        bytes: [pixels.len(), 0, 0],
    }
}

/// What is found in a frame; `status` otherwise.
fn detect(session: *mut GstTrtSession, frame: *const GstTrtFrame) -> Result<*mut GstTrtResults, c_int> {
    let mut results = ptr::dangling_mut();
    match unsafe { gst_trt_session_detect(session, frame, &mut results) } {
        0 => Ok(results),
        status => {
            assert!(results.is_null(), "no handle comes with an error");
            Err(status)
        }
    }
}

fn text<'a>(pointer: *const std::ffi::c_char) -> Option<&'a str> {
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_str().unwrap())
}

/// Whether the session finds the dog.
fn finds(session: *mut GstTrtSession) -> bool {
    let pixels = vec![0; SIDE * SIDE * 3];
    let Ok(results) = detect(session, &frame(&pixels)) else { return false };
    let mut bbox = [f32::NAN; 4];
    let is_dog = unsafe {
        gst_trt_results_count(results) == 1
            && text(gst_trt_results_label(results, 0)) == Some("dog")
            && gst_trt_results_class_id(results, 0) == 1
            && gst_trt_results_confidence(results, 0) == 0.9
            && gst_trt_results_box(results, 0, &mut bbox) == 0
    };
    gst_trt_results_free(results);
    is_dog && bbox == [0.0, 0.0, 32.0, 32.0]
}

#[test]
fn open_errors_name_the_cause() {
    let model = one_box("capi-open");
    for (model, options, code, expected_text) in [
        ("/nowhere.onnx", &[][..], 2, "There is no model file /nowhere.onnx"),
        ("/", &[], 3, "Cannot read"),
        (&path("README.md"), &[], 4, "README.md"),
        (&model, &["backend"], 1, "“backend” has no value"),
        (&model, &["colour=red"], 1, "no option “colour”"),
        (&model, &["input-size=32x32"], 1, "32x32"),
    ] {
        let (found, text) = open(model, options).unwrap_err();
        assert!(found == code && text.contains(expected_text), "{found}: {text}");
    }
    unsafe {
        let mut session = ptr::null_mut();
        assert_eq!(gst_trt_session_open(ptr::null(), ptr::null(), &mut session), 7);
        assert_eq!(last_error(), "The argument model is NULL.");
        assert_eq!(gst_trt_session_open(c"x".as_ptr(), ptr::null(), ptr::null_mut()), 7);
        assert_eq!(last_error(), "The argument session is NULL.");
        assert_eq!(gst_trt_session_open(c"\xff".as_ptr(), ptr::null(), &mut session), 7);
        assert_eq!(last_error(), "The argument model is no UTF-8.");
    }
    assert_eq!(std::thread::spawn(last_error).join().unwrap(), "", "each thread has its own");
}

#[test]
fn wrong_frames_are_errors_and_break_nothing() {
    let session = open(&one_box("capi-frames"), &["backend=rten"]).unwrap();
    let pixels = vec![0u8; SIDE * SIDE * 3];
    type Spoil = fn(&mut GstTrtFrame);
    let mistakes: [(Spoil, c_int, &str); 18] = [
        (|frame| frame.format = ptr::null(), 7, "frame->format is NULL"),
        (|frame| frame.format = c"\xff".as_ptr(), 7, "frame->format is no UTF-8"),
        (|frame| frame.format = c"YUY2".as_ptr(), 7, "YUY2 cannot be used"),
        (|frame| frame.format = c"NV12".as_ptr(), 7, "planes[1] is NULL"),
        (|frame| frame.planes[0] = ptr::null(), 7, "planes[0] is NULL"),
        (|frame| frame.bytes[0] = 9, 7, "has 9 bytes at stride 192"),
        (|frame| frame.bytes[0] = usize::MAX, 7, "no array of"),
        (|frame| frame.strides[0] = 191, 7, "at stride 191"),
        (|frame| frame.strides[0] = usize::MAX, 7, "too few for 64 rows"),
        (|frame| frame.width = 0, 8, "0x64"),
        (|frame| frame.height = u32::MAX, 8, "64x4294967295"),
        (|frame| frame.color = 3, 7, "color 3"),
        (|frame| frame.color = 32, 7, "color 32"),
        (|frame| frame.reserved = 1, 7, "reserved is 1, not 0"),
        (|frame| frame.struct_size = 0, 7, "struct_size 0"),
        (|frame| frame.struct_size -= 1, 7, "struct_size 103"),
        (|frame| frame.struct_size = 4096, 7, "struct_size 4096"),
        (|frame| frame.struct_size = usize::MAX, 7, "Set struct_size to sizeof (GstTrtFrame)"),
    ];
    for (spoil, code, expected_text) in mistakes {
        let mut spoilt = frame(&pixels);
        spoil(&mut spoilt);
        let status = detect(session, &spoilt).unwrap_err();
        assert!(
            status == code && last_error().contains(expected_text),
            "{status}: {} is not “{expected_text}”",
            last_error()
        );
        assert!(finds(session), "{expected_text}");
    }
    assert_eq!(detect(session, ptr::null()), Err(7));
    assert_eq!(last_error(), "The argument frame is NULL.");
    assert_eq!(unsafe { gst_trt_session_detect(session, &frame(&pixels), ptr::null_mut()) }, 7);
    assert_eq!(last_error(), "The argument results is NULL.");
    gst_trt_session_close(session);
}

/// A program that was built for a later version, whose structure is longer.
#[test]
fn frames_of_later_versions_work_without_new_fields() {
    #[repr(C)]
    struct Later {
        frame: GstTrtFrame,
        field: usize,
    }
    let session = open(&one_box("capi-later"), &["backend=rten"]).unwrap();
    let pixels = vec![0; SIDE * SIDE * 3];
    let mut later = Later { frame: frame(&pixels), field: 0 };
    later.frame.struct_size = size_of::<Later>();
    let results = detect(session, (&raw const later).cast()).unwrap();
    assert_eq!(gst_trt_results_count(results), 1);
    gst_trt_results_free(results);
    later.field = 1;
    assert_eq!(detect(session, (&raw const later).cast()), Err(7));
    assert!(last_error().contains("frame uses fields that this library does not know"), "{}", last_error());
    gst_trt_session_close(session);
}

#[test]
fn results_stay_until_they_are_freed() {
    let session = open(&one_box("capi-results"), &["backend=rten"]).unwrap();
    let pixels = vec![0; SIDE * SIDE * 3];
    let first = detect(session, &frame(&pixels)).unwrap();
    let second = detect(session, &frame(&pixels)).unwrap();
    gst_trt_session_close(session);
    gst_trt_results_free(second);
    let label = gst_trt_results_label(first, 0);
    assert_eq!(text(label), Some("dog"));
    let json = gst_trt_results_json(first, 0);
    assert_eq!(gst_trt_results_json(first, 0), json, "it is written once");
    let json: serde_json::Value = serde_json::from_str(text(json).unwrap()).unwrap();
    let dog = r#"{"label":"dog","class-id":1,"confidence":0.8999999761581421,"x":0.0,"y":0.0,"w":32.0,"h":32.0}"#;
    assert_eq!(json, serde_json::from_str::<serde_json::Value>(dog).unwrap());

    // What this model does not find.
    assert_eq!((gst_trt_results_keypoint_count(first), gst_trt_results_keypoint_name(first, 0)), (0, ptr::null()));
    let expect = |is_error: bool, expected_text: &str| {
        assert!(is_error && last_error().contains(expected_text), "{}", last_error())
    };
    unsafe {
        let (mut point, mut bbox) = ([7.0; 3], [7.0; 4]);
        expect(gst_trt_results_keypoint(first, 0, 0, &mut point) == 7, "no keypoint 0: an object has 0");
        expect(gst_trt_results_box(first, 0, ptr::null_mut()) == 7, "box is NULL");
        expect(gst_trt_results_corners(first, 0, ptr::null_mut()) == 7, "corners is NULL");
        // What is not there.
        expect(gst_trt_results_box(first, 1, &mut bbox) == 7, "no object 1: 1 were found");
        let mut corners = [[7.0; 2]; 4];
        expect(gst_trt_results_corners(first, 1, &mut corners) == 7, "no object 1: 1 were found");
        assert_eq!(corners, [[7.0; 2]; 4], "nothing was written");
        expect(gst_trt_results_keypoint(first, 1, 0, &mut point) == 7, "no object 1: 1 were found");
        assert_eq!((point, bbox), ([7.0; 3], [7.0; 4]), "nothing was written");
        let mut rect = [7; 4];
        assert!(gst_trt_results_mask(first, 0, &mut rect).is_null(), "this model gives no masks");
        expect(gst_trt_results_mask(first, 1, &mut rect).is_null(), "no object 1: 1 were found");
        assert_eq!(rect, [7; 4], "nothing was written");
    }
    expect(gst_trt_results_label(first, 1).is_null(), "no object 1");
    expect(gst_trt_results_json(first, usize::MAX).is_null(), "no object");
    expect(gst_trt_results_confidence(first, 1).is_nan(), "no object 1");
    expect(gst_trt_results_angle(first, 1).is_nan(), "no object 1");
    expect(gst_trt_results_class_id(first, 1) == 0, "no object 1");

    gst_trt_results_free(first);
    gst_trt_results_free(first);
    gst_trt_results_free(ptr::null_mut());
    for (results, expected_text) in
        [(first, "closed already"), (ptr::null_mut(), "it is NULL"), (session.cast(), "closed already")]
    {
        let mut point = [0.0; 3];
        expect(gst_trt_results_count(results) == 0, expected_text);
        expect(gst_trt_results_label(results, 0).is_null(), expected_text);
        expect(gst_trt_results_confidence(results, 0).is_nan(), expected_text);
        expect(gst_trt_results_json(results, 0).is_null(), expected_text);
        expect(unsafe { gst_trt_results_box(results, 0, &mut [0.0; 4]) } == 7, expected_text);
        expect(gst_trt_results_angle(results, 0).is_nan(), expected_text);
        expect(unsafe { gst_trt_results_corners(results, 0, &mut [[0.0; 2]; 4]) } == 7, expected_text);
        expect(unsafe { gst_trt_results_keypoint(results, 0, 0, &mut point) } == 7, expected_text);
        expect(gst_trt_results_keypoint_name(results, 0).is_null(), expected_text);
        expect(unsafe { gst_trt_results_mask(results, 0, &mut [0; 4]) }.is_null(), expected_text);
    }
}

/// A tracker with these options; `status` otherwise.
fn tracker(options: &[&str]) -> Result<*mut GstTrtTracker, c_int> {
    let texts: Vec<CString> = options.iter().map(|option| CString::new(*option).unwrap()).collect();
    let pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
    let mut tracker = ptr::dangling_mut();
    match unsafe { gst_trt_tracker_new(pointers.as_ptr(), &mut tracker) } {
        0 => Ok(tracker),
        status => {
            assert!(tracker.is_null(), "no handle comes with an error");
            Err(status)
        }
    }
}

#[test]
fn objects_are_numbered_by_a_tracker() {
    let session = open(&one_box("capi-tracker"), &["backend=rten"]).unwrap();
    let pixels = vec![0; SIDE * SIDE * 3];
    let follow = |tracker, at: u64| {
        let results = detect(session, &frame(&pixels)).unwrap();
        assert_eq!(gst_trt_results_track_id(results, 0), 0, "not yet");
        assert_eq!(gst_trt_tracker_update(tracker, results, at * 40_000_000, 40_000_000), 0, "{}", last_error());
        (results, gst_trt_results_track_id(results, 0))
    };
    for algorithm in ["bytetrack", "botsort-iou", "ocsort", "iou"] {
        let tracker = tracker(&[&format!("tracker={algorithm}"), "lost-after=1000000000"]).unwrap();
        for at in 0..3 {
            let (results, id) = follow(tracker, at);
            assert_eq!(id, 1, "{algorithm}");
            let json = text(gst_trt_results_json(results, 0)).unwrap();
            assert!(json.contains(r#""track-id":1"#), "{json}");
            assert_eq!(gst_trt_results_track_id(results, 1), 0);
            assert!(last_error().contains("no object 1"), "{}", last_error());
            assert_eq!(gst_trt_tracker_update(tracker, results, 0, 0), 7);
            assert!(last_error().contains("have ids already"), "{}", last_error());
            gst_trt_results_free(results);
            assert_eq!(gst_trt_tracker_update(tracker, results, 0, 0), 7);
            assert!(last_error().contains("results is not open"), "{}", last_error());
        }
        assert_eq!(gst_trt_tracker_reset(tracker), 0);
        let (results, id) = follow(tracker, 0);
        assert_eq!(id, 2, "{algorithm}");
        gst_trt_tracker_free(tracker);
        gst_trt_tracker_free(tracker);
        assert_eq!(gst_trt_tracker_reset(tracker), 7);
        assert!(last_error().contains("tracker is not open"), "{}", last_error());
        gst_trt_results_free(results);
    }
    gst_trt_session_close(session);
    let mut made = ptr::dangling_mut();
    assert_eq!(unsafe { gst_trt_tracker_new(ptr::null(), &mut made) }, 0);
    gst_trt_tracker_free(made);
    assert_eq!(unsafe { gst_trt_tracker_new(ptr::null(), ptr::null_mut()) }, 7);
    assert!(tracker(&["tracker=none"]).is_err());
    assert!(last_error().contains("bytetrack, botsort-iou"), "{}", last_error());
}

#[test]
fn rotated_boxes_have_angles_and_corners() {
    let rotation = |results| {
        let mut corners = [[0.0; 2]; 4];
        assert_eq!(unsafe { gst_trt_results_corners(results, 0, &mut corners) }, 0, "{}", last_error());
        (gst_trt_results_angle(results, 0), corners)
    };
    let upright = [[32.0, 32.0], [32.0, 0.0], [0.0, 0.0], [0.0, 32.0]];
    let found = |path: &str| {
        let session = open(path, &["backend=rten"]).unwrap();
        let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap_or_else(|_| panic!("{}", last_error()));
        gst_trt_session_close(session);
        results
    };
    let results = found(&one_box("capi-upright"));
    assert_eq!(rotation(results), (0.0, upright), "this model has no rotated boxes");
    assert_eq!(gst_trt_results_kinds(results), 0);
    gst_trt_results_free(results);

    // Of 16x8 around (28, 28), by an eighth of a turn clockwise: the lower right corner comes straight down or so.
    let angle = std::f32::consts::FRAC_PI_4;
    let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).metadata("task", "obb");
    let graph = graph.constant("output0", &[1, 1, 7], &[28.0, 28.0, 16.0, 8.0, 0.9, 0.0, angle]);
    let graph = graph.metadata("end2end", "True").metadata("names", "{0: 'ship'}");
    let results = found(&graph.save(&scratch("capi-obb").join("obb.onnx")));
    let (read, corners) = rotation(results);
    assert_eq!((read, gst_trt_results_kinds(results)), (angle, 1));
    let (far, near) = (12.0 * 0.5f32.sqrt(), 4.0 * 0.5f32.sqrt());
    let wanted = [[near, far], [far, near], [-near, -far], [-far, -near]].map(|corner| corner.map(|at| at + 28.0));
    let apart = corners.iter().flatten().zip(wanted.iter().flatten()).map(|(a, b)| (a - b).abs());
    assert!(apart.fold(0.0, f32::max) < 1e-4, "{corners:?} is not {wanted:?}");
    let mut bbox = [0.0; 4];
    assert_eq!(unsafe { gst_trt_results_box(results, 0, &mut bbox) }, 0);
    assert!((bbox[0] - (28.0 - far)).abs() < 1e-4 && (bbox[2] - 2.0 * far).abs() < 1e-4, "{bbox:?} is not around it");
    let json = text(gst_trt_results_json(results, 0)).unwrap();
    assert!(json.contains(r#""angle":0.785"#) && json.contains(r#""corners":["#), "{json}");
    gst_trt_results_free(results);
}

#[test]
fn masks_are_read() {
    // The left half of the box, which is the left upper quarter of the frame.
    let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).metadata("task", "segment");
    let graph =
        graph.constant("output0", &[1, 1, 7], &[0.0, 0.0, 32.0, 32.0, 0.9, 0.0, 2.0]).metadata("end2end", "True");
    let graph = graph.constant("output1", &[1, 1, 1, 4], &[1.0, -1.0, -1.0, -1.0]).metadata("names", "{0: 'cat'}");
    let session = open(&graph.save(&scratch("capi-segment").join("segment.onnx")), &["backend=rten"]).unwrap();
    let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap_or_else(|_| panic!("{}", last_error()));
    gst_trt_session_close(session);
    assert_eq!(gst_trt_results_kinds(results), 4);
    let mut rect = [0; 4];
    let mask = unsafe { gst_trt_results_mask(results, 0, &mut rect) };
    assert_eq!(rect, [0, 0, 32, 32], "{}", last_error());
    assert_eq!(unsafe { gst_trt_results_mask(results, 0, &mut rect) }, mask, "it is written once");
    // SAFETY: a byte for each pixel, until the results are freed.
    let pixels = unsafe { std::slice::from_raw_parts(mask, 32 * 32) };
    let row: Vec<u8> = [[255; 16], [0; 16]].concat();
    assert!(pixels.chunks_exact(32).all(|pixels| pixels == row), "{:?}", &pixels[..32]);
    assert!(unsafe { gst_trt_results_mask(results, 0, ptr::null_mut()) }.is_null());
    assert!(last_error().contains("rect is NULL"), "{}", last_error());
    let json = text(gst_trt_results_json(results, 0)).unwrap();
    let mask = r#""mask-x":0,"mask-y":0,"mask-width":32,"mask-height":32,"mask-counts":"0PP""#;
    assert!(json.contains(&mask[..mask.len() - 5]), "{json}");
    gst_trt_results_free(results);
}

#[test]
fn keypoints_are_read_and_may_lack_names_and_visibility() {
    let model = |dims: usize, row: &[f32]| {
        let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).metadata("task", "pose");
        let graph = graph.constant("output0", &[1, 1, row.len() as i64], row).metadata("end2end", "True");
        graph.metadata("kpt_shape", &format!("[2, {dims}]")).metadata("names", "{0: 'cat'}")
    };
    let found = |graph: Graph| {
        let path = graph.save(&scratch("capi-pose").join("pose.onnx"));
        let session = open(&path, &["backend=rten"]).unwrap();
        let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap_or_else(|_| panic!("{}", last_error()));
        gst_trt_session_close(session);
        assert_eq!((gst_trt_results_count(results), gst_trt_results_keypoint_count(results)), (1, 2));
        assert_eq!(gst_trt_results_kinds(results), 2);
        results
    };
    let point = |results, keypoint| {
        let mut point = [0.0; 3];
        assert_eq!(unsafe { gst_trt_results_keypoint(results, 0, keypoint, &mut point) }, 0, "{}", last_error());
        point
    };
    let with_visibility = model(3, &[0.0, 0.0, 32.0, 32.0, 0.9, 0.0, 4.0, 5.0, 0.75, 6.0, 7.0, 0.25]);
    let results = found(with_visibility.metadata("kpt_names", "{0: ['nose', 'tail']}"));
    assert_eq!([point(results, 0), point(results, 1)], [[4.0, 5.0, 0.75], [6.0, 7.0, 0.25]]);
    let name = |keypoint| text(gst_trt_results_keypoint_name(results, keypoint));
    assert_eq!([name(0), name(1), name(2)], [Some("nose"), Some("tail"), None]);
    assert_eq!(unsafe { gst_trt_results_keypoint(results, 0, 2, &mut [0.0; 3]) }, 7);
    assert!(last_error().contains("no keypoint 2: an object has 2"), "{}", last_error());
    assert_eq!(unsafe { gst_trt_results_keypoint(results, 0, 0, ptr::null_mut()) }, 7);
    assert!(text(gst_trt_results_json(results, 0)).unwrap().contains(r#""keypoint-names":["nose","tail"]"#));
    gst_trt_results_free(results);

    let results = found(model(2, &[0.0, 0.0, 32.0, 32.0, 0.9, 0.0, 4.0, 5.0, 6.0, 7.0]));
    let points = [point(results, 0), point(results, 1)];
    assert_eq!(points.map(|point| (point[0], point[1])), [(4.0, 5.0), (6.0, 7.0)]);
    assert!(points.iter().all(|point| point[2].is_nan()));
    assert!(gst_trt_results_keypoint_name(results, 0).is_null());
    gst_trt_results_free(results);
}

#[test]
fn wrong_arrays_are_errors_and_break_nothing() {
    let session = open(&one_box("capi-arrays"), &["backend=rten"]).unwrap();
    assert_eq!(unsafe { CStr::from_ptr(gst_trt_session_backend(session)) }, c"rten");
    assert!(gst_trt_session_reason(session).is_null());
    assert_eq!(gst_trt_session_output_count(session), 1);
    let picture = vec![0f32; 3 * SIDE * SIDE];
    let mut result = [7f32; 6];
    let (input, out) = (picture.as_ptr().cast::<c_void>(), result.as_mut_ptr().cast::<c_void>());
    let (bytes, none) = (size_of_val(&picture[..]), ptr::null_mut());
    let expect = |status: c_int, expected_text: &str| {
        assert!(
            status == 7 && last_error().contains(expected_text),
            "{status}: {} is not “{expected_text}”",
            last_error()
        );
        assert!(finds(session), "{expected_text}");
    };
    let none_of = |tensor: *const GstTrtTensorInfo| if tensor.is_null() { 7 } else { 0 };
    unsafe {
        let run = |input, bytes, out, size, count| gst_trt_session_run(session, input, bytes, &out, &size, count);
        expect(run(input, bytes - 4, out, 24, 1), "12288 elements, and 12287 are given");
        expect(run(input, bytes - 1, out, 24, 1), "49152 bytes, and 49151 are given");
        expect(run(ptr::null(), bytes, out, 24, 1), "input is NULL");
        expect(run(input, bytes, none, 24, 1), "outputs is NULL");
        expect(run(input, bytes, out, 23, 1), "24 bytes, and there is room for 23");
        expect(run(input, bytes, out, 25, 1), "24 bytes, and there is room for 25");
        expect(run(input, bytes, out, 24, 2), "1 outputs, and 2 are given");
        expect(gst_trt_session_run(session, input, bytes, ptr::null(), &24, 1), "outputs is NULL");
        expect(gst_trt_session_run(session, input, bytes, &out, ptr::null(), 1), "output_bytes is NULL");
        expect(none_of(gst_trt_session_output(session, 1)), "no output 1: the model has 1");
        assert_eq!(result, [7.0; 6], "nothing was written");
        assert_eq!(run(input, bytes, out, 24, 1), 0);
        assert_eq!(result, [0.0, 0.0, 32.0, 32.0, 0.9, 1.0]);
    }
    gst_trt_session_close(session);
}

#[test]
fn a_sessions_buffers_are_run_on() {
    let session = echo("capi-buffers");
    let picture: [u8; 12] = std::array::from_fn(|i| i as u8);
    let mut result = [99u8; 12];
    let (input, out, none) = (picture.as_ptr().cast::<c_void>(), result.as_mut_ptr().cast::<c_void>(), ptr::null_mut());
    let expect = |status: c_int, wanted: c_int, expected_text: &str| {
        assert!(
            status == wanted && last_error().contains(expected_text),
            "{status}: {} is not “{expected_text}”",
            last_error()
        );
    };
    unsafe {
        expect(gst_trt_session_copy_input(session, input, 11), 7, "12 elements, and 11 are given");
        expect(gst_trt_session_copy_input(session, ptr::null(), 12), 7, "input is NULL");
        expect(gst_trt_session_copy_output(session, 0, out, 11), 7, "12 bytes, and there is room for 11");
        expect(gst_trt_session_copy_output(session, 0, out, usize::MAX), 7, "12 bytes");
        expect(gst_trt_session_copy_output(session, 1, out, 12), 7, "no output 1");
        expect(gst_trt_session_copy_output(session, 0, none, 12), 7, "output is NULL");
        assert_eq!(result, [99; 12], "nothing was written");
        assert_eq!(gst_trt_session_copy_input(session, input, 12), 0);
        assert_eq!(gst_trt_session_run_buffers(session), 0);
        assert_eq!(gst_trt_session_copy_output(session, 0, out, 12), 0);
        assert_eq!(result, picture);

        // Functions that need a GPU return that as the error.
        let (mut at, mut outputs) = (none, [none]);
        expect(gst_trt_session_buffers(session, &mut at, outputs.as_mut_ptr(), 1), 5, "does not run on a GPU");
        expect(gst_trt_session_buffers(session, &mut at, outputs.as_mut_ptr(), 2), 7, "1 outputs, and 2 are given");
        expect(gst_trt_session_buffers(session, &mut at, ptr::null_mut(), 1), 7, "outputs is NULL");
        expect(gst_trt_session_run_device(session, none, outputs.as_ptr(), 1, none), 5, "does not run on a GPU");
        expect(gst_trt_session_run_device(session, none, ptr::null(), 1, none), 7, "outputs is NULL");
        expect(gst_trt_session_run_device(session, none, outputs.as_ptr(), 0, none), 7, "0 are given");
        gst_trt_session_close(session);
        expect(gst_trt_session_copy_input(session, input, 12), 7, "closed already");
        expect(gst_trt_session_run_buffers(session), 7, "closed already");
        expect(gst_trt_session_copy_output(session, 0, out, 12), 7, "closed already");
        expect(gst_trt_session_run_device(session, none, ptr::null(), 0, none), 7, "closed already");
    }
    let session = open(&one_box("capi-device"), &["backend=rten"]).unwrap();
    let frame = frame(&[0; SIDE * SIDE * 3]);
    let mut results = ptr::dangling_mut();
    unsafe {
        expect(gst_trt_session_detect_device(session, &frame, none, &mut results), 5, "GPU");
        expect(gst_trt_session_detect_device(session, ptr::null(), none, &mut results), 7, "frame is NULL");
        assert!(results.is_null());
        expect(gst_trt_session_detect_device(session, &frame, none, ptr::null_mut()), 7, "results is NULL");
    }
    assert!(finds(session));
    gst_trt_session_close(session);
}

/// A model that returns its input of 12 bytes.
fn echo(test: &str) -> *mut GstTrtSession {
    let dims = &["1", "3", "2", "2"];
    let graph = Graph::new().input("images", U8, dims).output("same", U8, dims);
    let graph = graph.node("Identity", &["images"], &["same"], Vec::new());
    open(&graph.save(&scratch(test).join("echo.onnx")), &["backend=rten"]).unwrap()
}

#[test]
fn dlpack_tensors_are_run_and_outlive_the_session() {
    let session = echo("capi-dlpack");
    let picture = Arc::new(Vec::from_iter(0..12u8));
    let tensor = Tensor::from_slice("any", &[1, 3, 2, 2], &picture);
    // SAFETY: it is on the host, where there is no stream.
    let give = |tensor: &Tensor| {
        unsafe { dlpack::export(tensor, Box::new(picture.clone()), dlpack::Consumer::Unknown) }.as_ptr()
    };
    let (mut outputs, none) = ([ptr::null_mut()], ptr::null_mut());
    let expect = |status: c_int, expected_text: &str| {
        assert!(
            status == 7 && last_error().contains(expected_text),
            "{status}: {} is not “{expected_text}”",
            last_error()
        );
        assert_eq!(Arc::strong_count(&picture), 1, "the input is consumed: {expected_text}");
    };
    unsafe {
        let out = outputs.as_mut_ptr();
        expect(gst_trt_session_run_dlpack(session, ptr::null_mut(), none, out, 1), "input is NULL");
        expect(gst_trt_session_run_dlpack(session, give(&tensor), none, ptr::null_mut(), 1), "outputs is NULL");
        expect(gst_trt_session_run_dlpack(session, give(&tensor), none, out, 2), "1 outputs, and 2 are given");
        expect(gst_trt_session_run_dlpack(ptr::null_mut(), give(&tensor), none, out, 1), "session is not open");
        let other = Tensor::from_slice("any", &[1, 12], &picture);
        expect(gst_trt_session_run_dlpack(session, give(&other), none, out, 1), "u8 1x3x2x2 is given as u8 1x12");
        let floats = Tensor::from_slice("any", &[1, 3, 2, 2], &[0f32; 12]);
        expect(gst_trt_session_run_dlpack(session, give(&floats), none, out, 1), "given as f32 1x3x2x2");

        assert_eq!(gst_trt_session_run_dlpack(session, give(&tensor), none, out, 1), 0);
        gst_trt_session_close(session);
        let output = dlpack::import(NonNull::new(outputs[0]).unwrap(), "same").unwrap();
        assert_eq!(output.as_slice::<u8>().unwrap(), &picture[..]);
    }
}

#[test]
fn gpus_are_counted_or_the_error_has_the_reason() {
    let mut count = 99;
    match unsafe { gst_trt_gpu_count(&mut count) } {
        0 => assert!(count > 0),
        status => {
            assert_eq!((status, count), (5, 0));
            assert!(last_error().starts_with("Cannot use CUDA: "), "{}", last_error());
        }
    }
    assert_eq!(unsafe { gst_trt_gpu_count(ptr::null_mut()) }, 7);
}

#[test]
fn closed_sessions_are_errors() {
    let session = open(&one_box("capi-closed"), &["backend=rten"]).unwrap();
    gst_trt_session_close(session);
    gst_trt_session_close(session);
    gst_trt_session_close(ptr::null_mut());
    let closed = |session, expected_text: &str| unsafe {
        assert!(gst_trt_session_input(session).is_null());
        assert!(last_error().contains(expected_text), "{}", last_error());
        assert!(gst_trt_session_output(session, 0).is_null());
        assert_eq!(detect(session, &frame(&[])), Err(7));
        assert_eq!(gst_trt_session_run(session, ptr::null(), 0, ptr::null(), ptr::null(), 0), 7);
        assert!(gst_trt_session_backend(session).is_null() && gst_trt_session_reason(session).is_null());
        assert_eq!(gst_trt_session_output_count(session), 0);
    };
    closed(session, "closed already");
    closed(ptr::null_mut(), "it is NULL");
    closed(ptr::without_provenance_mut(usize::MAX), "never was one");
}

#[test]
fn tensors_are_described_until_the_session_is_closed() {
    let session = open(&shapes(), &["backend=rten"]).unwrap();
    let (input, output) = (gst_trt_session_input(session), gst_trt_session_output(session, 0));
    assert_eq!((text(gst_trt_tensor_info_name(input)), gst_trt_tensor_info_type(input)), (Some("images"), 0));
    let dims = |tensor| {
        let dim = |axis| gst_trt_tensor_info_dim(tensor, axis);
        (0..gst_trt_tensor_info_rank(tensor)).map(dim).collect::<Vec<_>>()
    };
    assert_eq!((dims(input), dims(output)), (vec![1, 3, 512, 512], vec![1, 16128, 7]));
    assert_eq!((gst_trt_tensor_info_bytes(input), gst_trt_tensor_info_bytes(output)), (3145728, 451584));
    assert_eq!(gst_trt_tensor_info_dim(input, 4), 0);
    assert!(last_error().contains("no axis 4: images f32 1x3x512x512 has 4"), "{}", last_error());
    gst_trt_session_close(session);
    for tensor in [input, output, ptr::null(), session.cast_const().cast()] {
        assert!(gst_trt_tensor_info_name(tensor).is_null());
        assert!(last_error().contains("tensor is not open"), "{}", last_error());
        assert_eq!((gst_trt_tensor_info_type(tensor), gst_trt_tensor_info_rank(tensor)), (-1, 0));
        assert_eq!((gst_trt_tensor_info_dim(tensor, 0), gst_trt_tensor_info_bytes(tensor)), (0, 0));
    }
}

#[test]
fn classes_have_names() {
    let label = |session, class| text(gst_trt_session_class_label(session, class));
    let model = one_box("capi-labels");
    let session = open(&model, &["backend=rten"]).unwrap();
    assert_eq!(gst_trt_session_class_count(session), 2);
    assert_eq!([0, 1, 2, u32::MAX].map(|class| label(session, class)), [Some("cat"), Some("dog"), None, None]);
    assert!(last_error().contains("no class 4294967295: 2 have names"), "{}", last_error());
    gst_trt_session_close(session);
    assert_eq!((gst_trt_session_class_count(session), label(session, 0)), (0, None));
    assert!(last_error().contains("closed already"), "{}", last_error());
    assert_eq!(gst_trt_results_kinds(ptr::null()), 0);
    assert!(last_error().contains("it is NULL"), "{}", last_error());

    let file = scratch("capi-label-file").join("labels.txt");
    std::fs::write(&file, "Katze\nHund\n").unwrap();
    let session = open(&model, &["backend=rten", &format!("label-file={}", file.display())]).unwrap();
    assert_eq!([0, 1].map(|class| label(session, class)), [Some("Katze"), Some("Hund")]);
    gst_trt_session_close(session);
    let (code, error) = open(&model, &["backend=rten", "label-file=/nowhere.txt"]).unwrap_err();
    assert!(code == 2 && error.contains("no label file /nowhere.txt"), "{error}");
}

#[test]
fn threads_take_turns() {
    let session = open(&one_box("capi-threads"), &["backend=rten"]).unwrap().addr();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || (0..50).for_each(|_| assert!(finds(ptr::without_provenance_mut(session)))));
        }
    });
    gst_trt_session_close(ptr::without_provenance_mut(session));
}

#[test]
fn classes_of_the_frame_are_told() {
    let graph =
        Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("scores", &[1, 3], &[-9.0, 0.0, 9.0]);
    let graph = graph.metadata("task", "classify").metadata("names", "{0: 'cat', 1: 'dog', 2: 'bird'}");
    let model = graph.save(&scratch("capi-classes").join("classify.onnx"));
    let session = open(&model, &["backend=rten", "top-k=2", "score-threshold=0"]).unwrap();
    let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
    gst_trt_session_close(session);
    assert_eq!((gst_trt_results_count(results), gst_trt_results_frame_class_count(results)), (0, 2));
    assert_eq!(gst_trt_results_kinds(results), 8);
    assert_eq!(text(gst_trt_results_frame_class_label(results, 0)), Some("bird"));
    assert_eq!([0, 1].map(|rank| gst_trt_results_frame_class_id(results, rank)), [2, 1]);
    let confidence = gst_trt_results_frame_class_confidence(results, 0);
    assert!((confidence - 0.999_876_6).abs() < 1e-6, "{confidence}");
    let json = text(gst_trt_results_frame_class_json(results, 1)).unwrap();
    assert!(json.starts_with(r#"{"label":"dog","class-id":1,"confidence":0.000123"#), "{json}");
    assert!(gst_trt_results_frame_class_confidence(results, 2).is_nan());
    assert!(last_error().contains("no class 2 of the frame: there are 2"), "{}", last_error());
    assert!(gst_trt_results_frame_class_label(results, 2).is_null());
    assert!(gst_trt_results_frame_class_json(results, 2).is_null());
    assert_eq!(gst_trt_results_frame_class_id(results, 2), 0);
    gst_trt_results_free(results);
    assert_eq!(gst_trt_results_frame_class_count(results), 0);
    let model = one_box("capi-no-classes");
    let session = open(&model, &["backend=rten"]).unwrap();
    let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
    assert_eq!(gst_trt_results_frame_class_count(results), 0, "it finds objects");
    gst_trt_results_free(results);
    gst_trt_session_close(session);
}

#[test]
fn maps_of_the_frame_are_given() {
    let folder = scratch("capi-maps");
    let graph = |dims: &[i64], values: &[f32], task: &str| {
        let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("output0", dims, values);
        graph.metadata("task", task).metadata("names", "{0: 'road', 1: 'car'}")
    };
    let results = |graph: Graph, options: &[&str]| {
        let model = graph.save(&folder.join("model.onnx"));
        let session = open(&model, &[&["backend=rten"], options].concat()).unwrap();
        let results = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
        gst_trt_session_close(session);
        results
    };
    let values = |results: *const GstTrtResults| {
        let mut size = [0; 2];
        // SAFETY: there is room for the size; the values are as many, and the results are not freed before they are copied.
        unsafe {
            let values = gst_trt_results_map(results, &raw mut size);
            (!values.is_null()).then(|| std::slice::from_raw_parts(values, (size[0] * size[1]) as usize).to_vec())
        }
    };
    // A car in the upper half.
    let found = results(graph(&[1, 2, 2, 1], &[0.0, 1.0, 1.0, 0.0], "semantic"), &[]);
    let half = SIDE * SIDE / 2;
    assert_eq!(gst_trt_results_kinds(found), 16);
    assert_eq!(values(found), Some([vec![1; half], vec![0; half]].concat()));
    assert_eq!(gst_trt_results_map_region_count(found), 2);
    assert_eq!(text(gst_trt_results_map_region_label(found, 1)), Some("car"));
    let mut numbers = [0; 3];
    // SAFETY: there is room for three numbers, and for two.
    unsafe {
        assert_eq!(gst_trt_results_map_region(found, 1, &raw mut numbers), 0);
        assert_eq!(numbers, [1, 1, half as u32]);
        assert_ne!(gst_trt_results_map_region(found, 2, &raw mut numbers), 0);
        assert!(last_error().contains("no region 2 of the map: it has 2"), "{}", last_error());
        let mut range = [0.0; 2];
        assert_ne!(gst_trt_results_map_range(found, &raw mut range), 0);
    }
    let json = text(gst_trt_results_map_json(found)).unwrap();
    let region = r#"{"id":1,"label":"car","class-id":1,"share":0.5}"#;
    assert!(json.contains(r#""kind":"classes""#) && json.contains(region), "{json}");
    gst_trt_results_free(found);
    assert_eq!(values(found), None);
    let found = results(graph(&[1, 1, 1, 2], &[2.0, 4.0], "depth"), &[]);
    let mut range = [0.0; 2];
    // SAFETY: there is room for two numbers.
    assert_eq!(unsafe { gst_trt_results_map_range(found, &raw mut range) }, 0);
    assert_eq!((range, values(found).unwrap()[0]), ([2.0, 4.0], 0));
    assert_eq!(gst_trt_results_map_region_count(found), 0);
    gst_trt_results_free(found);
    let found = results(graph(&[1, 1, 1, 2], &[2.0, 4.0], "depth"), &["mask-output=none"]);
    assert_eq!(values(found), None);
    gst_trt_results_free(found);
    let session = open(&one_box("capi-no-map"), &["backend=rten"]).unwrap();
    let found = detect(session, &frame(&[0; SIDE * SIDE * 3])).unwrap();
    assert_eq!((values(found), text(gst_trt_results_map_json(found))), (None, None));
    gst_trt_results_free(found);
    gst_trt_session_close(session);
}

#[test]
fn only_detection_models_detect_but_others_run() {
    let graph = Graph::new().input("images", U8, &["1", "3", "2", "2"]).constant("scores", &[1, 2], &[0.25, 0.75]);
    let model = graph.metadata("task", "caption").save(&scratch("capi-task").join("caption.onnx"));
    let session = open(&model, &["backend=rten"]).unwrap();
    assert_eq!(detect(session, &frame(&[0; SIDE * SIDE * 3])), Err(4));
    assert!(last_error().contains("“caption”"), "{}", last_error());
    let mut scores = [0f32; 2];
    let out = scores.as_mut_ptr().cast::<c_void>();
    assert_eq!(unsafe { gst_trt_session_run(session, [0u8; 12].as_ptr().cast(), 12, &out, &8, 1) }, 0);
    assert_eq!(scores, [0.25, 0.75]);
    gst_trt_session_close(session);
}

/// What it registered to run at the end of a program must still be there then.
#[test]
fn a_program_that_closes_the_library_ends_well() {
    let folder = scratch("capi-dlclose");
    let source = folder.join("close.c");
    std::fs::write(
        &source,
        r#"
#include <dlfcn.h>
#include <gsttrt.h>
#include <stdio.h>

int
main (int argc, char **argv)
{
  void *library = dlopen (argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
  GstTrtStatus (*gpu_count) (uint32_t *);
  uint32_t count;
  if (!library)
    return 1;
  *(void **) &gpu_count = dlsym (library, "gst_trt_gpu_count");
  if (!gpu_count)
    return 2;
  gpu_count (&count);
  if (dlclose (library))
    return 3;
  puts (dlopen (argv[argc - 1], RTLD_NOW | RTLD_NOLOAD) ? "stays" : "is gone");
  return 0;
}
"#,
    )
    .unwrap();
    let program = folder.join("close");
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-D_GNU_SOURCE", "-I", &path("capi/include")]).arg(&source).args(["-ldl", "-o"]).arg(&program);
    assert!(cc.status().unwrap().success());
    let output = Command::new(&program).arg(library()).output().unwrap();
    assert_eq!(printed(output), "stays\n");
}

// ------------------------------------------------------------------ beside GStreamer

#[cfg(feature = "gstreamer")]
mod gstreamer {
    use common::init;
    use gst::prelude::*;

    use super::*;

    #[test]
    fn the_c_and_rust_examples_detect_the_same() {
        init();
        let folder = scratch("capi-c");
        // The first frame of the sample clip.
        let line = format!(
            "filesrc location={} ! decodebin ! videoconvert ! video/x-raw,format=RGB ! appsink name=out sync=false",
            path("tests/data/sample.mp4")
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
        let out = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        let sample = out.pull_sample().unwrap();
        pipeline.set_state(gst::State::Null).unwrap();
        let mut picture = b"P6 640 360 255\n".to_vec();
        picture.extend_from_slice(&sample.buffer().unwrap().map_readable().unwrap());
        std::fs::write(folder.join("picture.ppm"), picture).unwrap();

        compile(Path::new(&path("examples/session.c")), &folder.join("session"));
        let run = |model: &str| {
            Command::new(folder.join("session")).args([model, "picture.ppm"]).current_dir(&folder).output()
        };
        let text = printed(run(&shapes()).unwrap());
        assert!(text.lines().count() > 1, "{text}");
        assert!(text.lines().all(|line| line.starts_with("disc ") || line.starts_with("box ")), "{text}");
        let mut rust = Command::new(target().join("examples/session"));
        assert_eq!(printed(rust.args([&shapes(), "picture.ppm"]).current_dir(&folder).output().unwrap()), text);

        let output = run("/nowhere.onnx").unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && error.starts_with("Error: There is no model file /nowhere.onnx"),
            "{error}"
        );
    }

    #[test]
    fn the_python_example_takes_tensors_off_frames() {
        let library = library();
        let run = |model: &str| {
            Command::new("/usr/bin/python3")
                .arg(path("examples/tensors.py"))
                .args([library.to_str().unwrap(), &path("tests/data/sample.mp4"), model])
                .env("GST_PLUGIN_PATH", target())
                .env("GST_REGISTRY", scratch("capi-tensors").join("registry.bin"))
                .output()
                .unwrap()
        };
        let graph = Graph::new().input("images", F32, &["1", "3", "8", "8"]);
        let graph = graph.node("Flatten", &["images"], &["flat"], Vec::new()).output("flat", F32, &["1", "192"]);
        let text = printed(run(&graph.save(&scratch("capi-flat").join("flat.onnx"))));
        assert!(text.lines().count() > 50, "{text}");
        for (i, line) in text.lines().enumerate() {
            let greatest = line.strip_prefix(&format!("frame {i}: float32 (1, 192) on the host, greatest ")).unwrap();
            let greatest = greatest.parse::<f32>().unwrap();
            assert!(greatest > 0.4 && greatest <= 1.0, "{line}"); // the padding alone has 0.447
        }
        let error = String::from_utf8(run("/nowhere.onnx").stderr).unwrap();
        assert!(error.contains("Error: There is no model file /nowhere.onnx"), "{error}");
    }

    #[test]
    fn tensors_are_taken_off_frames() {
        init();
        let model = one_box("capi-frames");
        let of = |line: &str| {
            let mut harness = gst_check::Harness::new_parse(line);
            harness.set_src_caps_str("video/x-raw,format=RGB,width=64,height=64,framerate=30/1");
            harness.push(gst::Buffer::from_slice([128u8; SIDE * SIDE * 3])).unwrap();
            harness.pull().unwrap()
        };
        let tensor = |buffer: &gst::Buffer, index: usize| unsafe {
            let mut tensor = ptr::null_mut();
            match gst_trt_buffer_tensor(buffer.as_ptr().cast(), index, ptr::null_mut(), &mut tensor) {
                0 => Ok(dlpack::import(NonNull::new(tensor).unwrap(), "t").unwrap()),
                status => {
                    assert!(status == 7 && tensor.is_null());
                    Err(last_error())
                }
            }
        };
        let infer = format!("trtpreprocess ! trtinfer backend=rten model-file={model}");
        let inferred = of(&infer);
        let output = tensor(&inferred, 0).unwrap();
        assert!(tensor(&inferred, 1).unwrap_err().contains("no tensor 1: 1 are there"));
        drop(inferred);
        assert_eq!(output.as_slice::<f32>().unwrap(), [0.0, 0.0, 32.0, 32.0, 0.9, 1.0]);
        let input = tensor(&of("trtpreprocess tensor-size=8x8 tensor-type=u8"), 0).unwrap();
        assert_eq!(input.desc().to_string(), "t u8 1x3x8x8");
        assert!(
            tensor(&of("identity"), 0).unwrap_err().contains("no tensors. Take it behind trtpreprocess or trtinfer")
        );
        assert!(tensor(&of(&format!("{infer} ! trtnms")), 0).unwrap_err().contains("no tensors"));
        assert_eq!(unsafe { gst_trt_buffer_tensor(ptr::null(), 0, ptr::null_mut(), &mut ptr::null_mut()) }, 7);
        assert_eq!(
            unsafe { gst_trt_buffer_tensor(gst::Buffer::new().as_ptr().cast(), 0, ptr::null_mut(), ptr::null_mut()) },
            7
        );
    }

    #[test]
    fn tensors_of_frames_cannot_be_written_by_mistake() {
        init();
        let mut harness = gst_check::Harness::new_parse("trtpreprocess tensor-size=64x64 tensor-type=u8 scale=1");
        harness.set_src_caps_str("video/x-raw,format=RGB,width=64,height=64,framerate=30/1");
        harness.push(gst::Buffer::from_slice([128u8; SIDE * SIDE * 3])).unwrap();
        let buffer = harness.pull().unwrap();
        unsafe {
            let mut versioned = ptr::null_mut();
            let unknown = ptr::without_provenance_mut(usize::MAX);
            assert_eq!(
                gst_trt_buffer_tensor_versioned(buffer.as_ptr().cast(), 0, unknown, &mut versioned),
                0,
                "{}",
                last_error()
            );
            let ours = &*versioned;
            assert_eq!((ours.version, ours.flags), ([1, 0], dlpack::READ_ONLY));

            // The old structure has no such flag, so what may be written is a copy.
            let mut old = ptr::null_mut();
            assert_eq!(gst_trt_buffer_tensor(buffer.as_ptr().cast(), 0, ptr::null_mut(), &mut old), 0);
            let bytes = |view: &dlpack::DlTensor| std::slice::from_raw_parts_mut(view.data.cast::<u8>(), 3 * 64 * 64);
            assert!(bytes(&(*old).view) == bytes(&ours.view));
            bytes(&(*old).view).fill(1);
            assert!(bytes(&ours.view).iter().all(|&byte| byte == 128));
            ((*old).deleter.unwrap())(old);

            drop(buffer);
            assert_eq!(bytes(&ours.view)[0], 128, "it stays until the deleter is called");
            (ours.deleter.unwrap())(versioned);

            let empty = gst::Buffer::new();
            assert_eq!(gst_trt_buffer_tensor_versioned(empty.as_ptr().cast(), 0, ptr::null_mut(), &mut versioned), 7);
            assert!(versioned.is_null() && last_error().contains("no tensors"), "{}", last_error());
        }
    }
}
