//! include/gsttrt.h: it declares what the library exports, its examples run, and mistakes are errors that break nothing.

#![allow(clippy::undocumented_unsafe_blocks, reason = "pointers are to locals, NULL, or as wrong as the test says")]

mod common;

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use common::onnx::{F32, Graph, U8};
use common::{init, path, scratch, shapes};
use gst::prelude::*;
use gsttrt::capi::*;
use gsttrt::core::dlpack;
use gsttrt::core::tensor::Tensor as Ours;

/// Where the library that applications load was built, beside this test.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_path_buf()
}

fn compile(source: &Path, program: &Path) {
    let built = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I", &path("include")])
        .arg(source)
        .arg("-L")
        .arg(target())
        .args(["-lgsttrt", &format!("-Wl,-rpath,{}", target().display()), "-o"])
        .arg(program)
        .status();
    assert!(built.unwrap().success());
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
    let header = std::fs::read_to_string(path("include/gsttrt.h")).unwrap();
    let names = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("gst_trt_")).map(str::to_string).collect::<BTreeSet<_>>()
    };
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(target().join("libgsttrt.so")).output();
    assert_eq!(names(&header), names(&printed(symbols.unwrap())));
}

#[test]
fn structures_lie_as_the_header_says() {
    let folder = scratch("capi-layout");
    let source = folder.join("layout.c");
    let members = [
        ("GstTrtTensor", "name", offset_of!(Tensor, name)),
        ("GstTrtTensor", "type", offset_of!(Tensor, dtype)),
        ("GstTrtTensor", "rank", offset_of!(Tensor, rank)),
        ("GstTrtTensor", "dims", offset_of!(Tensor, dims)),
        ("GstTrtTensor", "bytes", offset_of!(Tensor, bytes)),
        ("GstTrtFrame", "format", offset_of!(Frame, format)),
        ("GstTrtFrame", "width", offset_of!(Frame, width)),
        ("GstTrtFrame", "height", offset_of!(Frame, height)),
        ("GstTrtFrame", "color", offset_of!(Frame, color)),
        ("GstTrtFrame", "planes", offset_of!(Frame, planes)),
        ("GstTrtFrame", "strides", offset_of!(Frame, strides)),
        ("GstTrtFrame", "bytes", offset_of!(Frame, bytes)),
        ("GstTrtObject", "label", offset_of!(Object, label)),
        ("GstTrtObject", "class_id", offset_of!(Object, class_id)),
        ("GstTrtObject", "confidence", offset_of!(Object, confidence)),
        ("GstTrtObject", "x", offset_of!(Object, x)),
        ("GstTrtObject", "height", offset_of!(Object, height)),
    ];
    let mut wanted: Vec<usize> = members.map(|(.., offset)| offset).to_vec();
    wanted.extend([size_of::<Tensor>(), size_of::<Frame>(), size_of::<Object>()]);
    let offsets = members.map(|(structure, member, _)| format!("offsetof ({structure}, {member})"));
    let sizes = ["GstTrtTensor", "GstTrtFrame", "GstTrtObject"].map(|structure| format!("sizeof ({structure})"));
    let numbers = [&offsets[..], &sizes].concat().join(", ");
    let program = format!(
        "#include <gsttrt.h>\n#include <stdio.h>\nint main (void) {{ size_t all[] = {{ {numbers} }}; \
         for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++) printf (\"%zu \", all[i]); return 0; }}\n"
    );
    std::fs::write(&source, program).unwrap();
    compile(&source, &folder.join("layout"));
    let found = printed(Command::new(folder.join("layout")).output().unwrap());
    assert_eq!(found.split_whitespace().map(|number| number.parse().unwrap()).collect::<Vec<usize>>(), wanted);
}

// ------------------------------------------------------------------ the examples

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
    let run =
        |model: &str| Command::new(folder.join("session")).args([model, "picture.ppm"]).current_dir(&folder).output();
    let text = printed(run(&shapes()).unwrap());
    assert!(text.lines().count() > 1, "{text}");
    assert!(text.lines().all(|line| line.starts_with("disc ") || line.starts_with("box ")), "{text}");
    let mut rust = Command::new(target().join("examples/session"));
    assert_eq!(printed(rust.args([&shapes(), "picture.ppm"]).current_dir(&folder).output().unwrap()), text);

    let output = run("/nowhere.onnx").unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.starts_with("Error: There is no model file /nowhere.onnx"), "{error}");
}

#[test]
fn the_python_example_runs_a_model() {
    let script = path("examples/session.py");
    let library = target().join("libgsttrt.so");
    let run = |model: &str| Command::new("/usr/bin/python3").arg(&script).arg(&library).arg(model).output().unwrap();
    let text = printed(run(&shapes()));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["in  images 1x3x512x512, 3145728 bytes", "out output0 1x16128x7, 451584 bytes"]);
    assert!(lines[2].starts_with("greatest ") && lines[2] != "greatest 0.0", "{text}");
    let error = String::from_utf8(run("/nowhere.onnx").stderr).unwrap();
    assert!(error.starts_with("Error: There is no model file /nowhere.onnx"), "{error}");
}

#[test]
fn the_python_example_takes_tensors_off_frames() {
    let library = target().join("libgsttrt.so");
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

// ------------------------------------------------------------------ mistakes

fn open(model: &str, options: &[&str]) -> Result<*mut SessionHandle, (c_int, String)> {
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

/// One box over a quarter of a 64x64 input, whatever the picture.
fn one_box(test: &str) -> String {
    let row = [0.0, 0.0, 32.0, 32.0, 0.9, 1.0];
    let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("output0", &[1, 1, 6], &row);
    let graph = graph.metadata("names", "{0: 'cat', 1: 'dog'}").metadata("end2end", "True");
    graph.save(&scratch(test).join("box.onnx"))
}

const SIDE: usize = 64;

fn frame(pixels: &[u8]) -> Frame {
    Frame {
        format: c"RGB".as_ptr(),
        width: SIDE as u32,
        height: SIDE as u32,
        color: 0,
        planes: [pixels.as_ptr().cast(), ptr::null(), ptr::null()],
        strides: [SIDE * 3, 0, 0],
        bytes: [pixels.len(), 0, 0],
    }
}

/// Whether the session finds the dog.
fn finds(session: *mut SessionHandle) -> bool {
    let pixels = vec![0; SIDE * SIDE * 3];
    let mut objects = [const { std::mem::MaybeUninit::<Object>::uninit() }; 2];
    let mut found = 0;
    let status =
        unsafe { gst_trt_session_detect(session, &frame(&pixels), objects.as_mut_ptr().cast(), 2, &mut found) };
    let object = unsafe { objects[0].assume_init() };
    let label = unsafe { CStr::from_ptr(object.label) };
    let bbox = [object.x, object.y, object.width, object.height];
    status == 0 && found == 1 && label == c"dog" && object.class_id == 1 && bbox == [0.0, 0.0, 32.0, 32.0]
}

#[test]
fn opening_says_what_is_wrong() {
    let model = one_box("capi-open");
    for (model, options, code, says) in [
        ("/nowhere.onnx", &[][..], 2, "There is no model file /nowhere.onnx"),
        ("/", &[], 3, "Cannot read"),
        (&path("README.md"), &[], 4, "README.md"),
        (&model, &["backend"], 1, "“backend” has no value"),
        (&model, &["colour=red"], 1, "no option “colour”"),
        (&model, &["input-size=32x32"], 1, "32x32"),
    ] {
        let (found, text) = open(model, options).unwrap_err();
        assert!(found == code && text.contains(says), "{found}: {text}");
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
    let session = open(&one_box("capi-frames"), &["backend=cpu"]).unwrap();
    let pixels = vec![0u8; SIDE * SIDE * 3];
    type Spoil = fn(&mut Frame);
    let mistakes: [(Spoil, c_int, &str); 13] = [
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
    ];
    for (spoil, code, says) in mistakes {
        let mut spoilt = frame(&pixels);
        spoil(&mut spoilt);
        let status = unsafe { detect_of(session, &spoilt) };
        assert!(status == code && last_error().contains(says), "{status}: {} is not “{says}”", last_error());
        assert!(finds(session), "{says}");
    }
    let good = frame(&pixels);
    let mut found = 99;
    unsafe {
        assert_eq!(gst_trt_session_detect(session, ptr::null(), ptr::null_mut(), 0, &mut found), 7);
        assert_eq!(last_error(), "The argument frame is NULL.");
        assert_eq!(gst_trt_session_detect(session, &good, ptr::null_mut(), 1, &mut found), 7);
        assert_eq!(last_error(), "The argument objects is NULL.");
        assert_eq!(gst_trt_session_detect(session, &good, ptr::null_mut(), 0, ptr::null_mut()), 7);
        assert_eq!(last_error(), "The argument found is NULL.");
        assert_eq!(found, 99);
        assert_eq!(gst_trt_session_detect(session, &good, ptr::null_mut(), 0, &mut found), 0, "only the number");
        assert_eq!(found, 1);
    }
    gst_trt_session_close(session);
}

#[test]
fn wrong_arrays_are_errors_and_break_nothing() {
    let session = open(&one_box("capi-arrays"), &["backend=cpu"]).unwrap();
    assert_eq!(unsafe { CStr::from_ptr(gst_trt_session_backend(session)) }, c"cpu");
    assert!(gst_trt_session_reason(session).is_null());
    assert_eq!(gst_trt_session_output_count(session), 1);
    let picture = vec![0f32; 3 * SIDE * SIDE];
    let mut result = [7f32; 6];
    let (input, out) = (picture.as_ptr().cast::<c_void>(), result.as_mut_ptr().cast::<c_void>());
    let (bytes, none) = (size_of_val(&picture[..]), ptr::null_mut());
    let mut tensor = std::mem::MaybeUninit::uninit();
    let expect = |status: c_int, says: &str| {
        assert!(status == 7 && last_error().contains(says), "{status}: {} is not “{says}”", last_error());
        assert!(finds(session), "{says}");
    };
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
        expect(gst_trt_session_input(session, ptr::null_mut()), "input is NULL");
        expect(gst_trt_session_output(session, 0, ptr::null_mut()), "output is NULL");
        expect(gst_trt_session_output(session, 1, tensor.as_mut_ptr()), "no output 1: the model has 1");
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
    let expect = |status: c_int, wanted: c_int, says: &str| {
        assert!(status == wanted && last_error().contains(says), "{status}: {} is not “{says}”", last_error());
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

        // What needs a GPU says so.
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
    let session = open(&one_box("capi-device"), &["backend=cpu"]).unwrap();
    let frame = frame(&[0; SIDE * SIDE * 3]);
    let mut found = 0;
    unsafe {
        expect(gst_trt_session_detect_device(session, &frame, none, ptr::null_mut(), 0, &mut found), 5, "GPU");
        expect(
            gst_trt_session_detect_device(session, ptr::null(), none, ptr::null_mut(), 0, &mut found),
            7,
            "frame is NULL",
        );
    }
    assert!(finds(session));
    gst_trt_session_close(session);
}

/// A model that returns its input of 12 bytes.
fn echo(test: &str) -> *mut SessionHandle {
    let dims = &["1", "3", "2", "2"];
    let graph = Graph::new().input("images", U8, dims).output("same", U8, dims);
    let graph = graph.node("Identity", &["images"], &["same"], Vec::new());
    open(&graph.save(&scratch(test).join("echo.onnx")), &["backend=cpu"]).unwrap()
}

#[test]
fn dlpack_tensors_are_run_and_outlive_the_session() {
    let session = echo("capi-dlpack");
    let picture = Arc::new(Vec::from_iter(0..12u8));
    let tensor = Ours::from_slice("any", &[1, 3, 2, 2], &picture);
    // SAFETY: it is on the host, where there is no stream.
    let give = |tensor: &Ours| {
        unsafe { dlpack::export(tensor, Box::new(picture.clone()), dlpack::Consumer::Unknown) }.as_ptr()
    };
    let (mut outputs, none) = ([ptr::null_mut()], ptr::null_mut());
    let expect = |status: c_int, says: &str| {
        assert!(status == 7 && last_error().contains(says), "{status}: {} is not “{says}”", last_error());
        assert_eq!(Arc::strong_count(&picture), 1, "the input is consumed: {says}");
    };
    unsafe {
        let out = outputs.as_mut_ptr();
        expect(gst_trt_session_run_dlpack(session, ptr::null_mut(), none, out, 1), "input is NULL");
        expect(gst_trt_session_run_dlpack(session, give(&tensor), none, ptr::null_mut(), 1), "outputs is NULL");
        expect(gst_trt_session_run_dlpack(session, give(&tensor), none, out, 2), "1 outputs, and 2 are given");
        expect(gst_trt_session_run_dlpack(ptr::null_mut(), give(&tensor), none, out, 1), "no open session");
        let other = Ours::from_slice("any", &[1, 12], &picture);
        expect(gst_trt_session_run_dlpack(session, give(&other), none, out, 1), "u8 1x3x2x2 is given as u8 1x12");
        let floats = Ours::from_slice("any", &[1, 3, 2, 2], &[0f32; 12]);
        expect(gst_trt_session_run_dlpack(session, give(&floats), none, out, 1), "given as f32 1x3x2x2");

        assert_eq!(gst_trt_session_run_dlpack(session, give(&tensor), none, out, 1), 0);
        gst_trt_session_close(session);
        let output = dlpack::import(NonNull::new(outputs[0]).unwrap(), "same").unwrap();
        assert_eq!(output.as_slice::<u8>().unwrap(), &picture[..]);
    }
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
        match gst_trt_buffer_tensor(buffer.as_ptr(), index, ptr::null_mut(), &mut tensor) {
            0 => Ok(dlpack::import(NonNull::new(tensor).unwrap(), "t").unwrap()),
            status => {
                assert!(status == 7 && tensor.is_null());
                Err(last_error())
            }
        }
    };
    let infer = format!("trtpreprocess ! trtinfer backend=cpu model-file={model}");
    let inferred = of(&infer);
    let output = tensor(&inferred, 0).unwrap();
    assert!(tensor(&inferred, 1).unwrap_err().contains("no tensor 1: 1 are there"));
    drop(inferred);
    assert_eq!(output.as_slice::<f32>().unwrap(), [0.0, 0.0, 32.0, 32.0, 0.9, 1.0]);
    let input = tensor(&of("trtpreprocess tensor-size=8x8 tensor-type=u8"), 0).unwrap();
    assert_eq!(input.desc().to_string(), "t u8 1x3x8x8");
    assert!(tensor(&of("identity"), 0).unwrap_err().contains("no tensors. Take it behind trtpreprocess or trtinfer"));
    assert!(tensor(&of(&format!("{infer} ! trtnms")), 0).unwrap_err().contains("no tensors"));
    assert_eq!(unsafe { gst_trt_buffer_tensor(ptr::null(), 0, ptr::null_mut(), &mut ptr::null_mut()) }, 7);
    assert_eq!(unsafe { gst_trt_buffer_tensor(gst::Buffer::new().as_ptr(), 0, ptr::null_mut(), ptr::null_mut()) }, 7);
}

#[test]
fn gpus_are_counted_or_it_is_said_why_not() {
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

unsafe fn detect_of(session: *mut SessionHandle, frame: &Frame) -> c_int {
    unsafe { gst_trt_session_detect(session, frame, ptr::null_mut(), 0, &mut 0) }
}

#[test]
fn sessions_that_are_no_more_are_errors() {
    let session = open(&one_box("capi-closed"), &["backend=cpu"]).unwrap();
    gst_trt_session_close(session);
    gst_trt_session_close(session);
    gst_trt_session_close(ptr::null_mut());
    let closed = |session, says: &str| unsafe {
        let mut tensor = std::mem::MaybeUninit::uninit();
        assert_eq!(gst_trt_session_input(session, tensor.as_mut_ptr()), 7);
        assert!(last_error().contains(says), "{}", last_error());
        assert_eq!(detect_of(session, &frame(&[])), 7);
        assert_eq!(gst_trt_session_run(session, ptr::null(), 0, ptr::null(), ptr::null(), 0), 7);
        assert!(gst_trt_session_backend(session).is_null() && gst_trt_session_reason(session).is_null());
        assert_eq!(gst_trt_session_output_count(session), 0);
    };
    closed(session, "closed already");
    closed(ptr::null_mut(), "it is NULL");
    closed(ptr::without_provenance_mut(usize::MAX), "never was one");
}

#[test]
fn threads_take_turns() {
    let session = open(&one_box("capi-threads"), &["backend=cpu"]).unwrap().addr();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || (0..50).for_each(|_| assert!(finds(ptr::without_provenance_mut(session)))));
        }
    });
    gst_trt_session_close(ptr::without_provenance_mut(session));
}

#[test]
fn only_detection_models_detect_but_others_run() {
    let graph = Graph::new().input("images", U8, &["1", "3", "2", "2"]).constant("scores", &[1, 2], &[0.25, 0.75]);
    let model = graph.metadata("task", "classify").save(&scratch("capi-task").join("classify.onnx"));
    let session = open(&model, &["backend=cpu"]).unwrap();
    assert_eq!(unsafe { detect_of(session, &frame(&[0; SIDE * SIDE * 3])) }, 4);
    assert!(last_error().contains("classify"), "{}", last_error());
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
    cc.args(["-std=c99", "-D_GNU_SOURCE", "-I", &path("include")]).arg(&source).args(["-ldl", "-o"]).arg(&program);
    assert!(cc.status().unwrap().success());
    let output = Command::new(&program).arg(target().join("libgsttrt.so")).output().unwrap();
    assert_eq!(printed(output), "stays\n");
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
        assert_eq!(gst_trt_buffer_tensor_versioned(buffer.as_ptr(), 0, unknown, &mut versioned), 0, "{}", last_error());
        let ours = &*versioned;
        assert_eq!((ours.version, ours.flags), ([1, 0], dlpack::READ_ONLY));

        // The old structure has no such flag, so what may be written is a copy.
        let mut old = ptr::null_mut();
        assert_eq!(gst_trt_buffer_tensor(buffer.as_ptr(), 0, ptr::null_mut(), &mut old), 0);
        let bytes = |view: &dlpack::DlTensor| std::slice::from_raw_parts_mut(view.data.cast::<u8>(), 3 * 64 * 64);
        assert!(bytes(&(*old).view) == bytes(&ours.view));
        bytes(&(*old).view).fill(1);
        assert!(bytes(&ours.view).iter().all(|&byte| byte == 128));
        ((*old).deleter.unwrap())(old);

        drop(buffer);
        assert_eq!(bytes(&ours.view)[0], 128, "it stays until the deleter is called");
        (ours.deleter.unwrap())(versioned);

        let empty = gst::Buffer::new();
        assert_eq!(gst_trt_buffer_tensor_versioned(empty.as_ptr(), 0, ptr::null_mut(), &mut versioned), 7);
        assert!(versioned.is_null() && last_error().contains("no tensors"), "{}", last_error());
    }
}
