// SPDX-License-Identifier: MPL-2.0
//! Sessions: what opens, what is detected, and what is an error.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::*;
use crate::common::onnx::{int, ints};

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
        assert_eq!(gst_trt_session_open(c"\xff".as_ptr(), ptr::null(), &mut session), 2);
        assert!(last_error().starts_with("There is no model file \u{fffd}"), "{}", last_error());
        let options = [c"label-file=\xff".as_ptr(), ptr::null()];
        assert_eq!(gst_trt_session_open(c"x".as_ptr(), options.as_ptr(), &mut session), 7);
        assert_eq!(last_error(), "The argument options is no UTF-8.");
        // A path has any bytes.
        let name = OsStr::from_bytes(b"caf\xe9.onnx");
        let copied = Path::new(&model).with_file_name(name);
        std::fs::copy(&model, &copied).unwrap();
        let copied = CString::new(copied.into_os_string().into_vec()).unwrap();
        let options = [c"backend=rten".as_ptr(), ptr::null()];
        assert_eq!(gst_trt_session_open(copied.as_ptr(), options.as_ptr(), &mut session), 0, "{}", last_error());
        assert!(finds(session));
        gst_trt_session_close(session);
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
fn frames_of_another_video_begin_a_clip() {
    let brightness = vec![ints("axes", &[1, 3, 4]), int("keepdims", 0)];
    let graph = Graph::new().input("clip", F32, &["1", "3", "2", "8", "8"]).output("output0", F32, &["1", "2"]);
    let graph = graph.node("ReduceMean", &["clip"], &["output0"], brightness).metadata("task", "classify");
    let model = graph.save(&scratch("capi-clips").join("clip.onnx"));
    let session = open(&model, &["backend=rten", "class-scores=probabilities", "score-threshold=0"]).unwrap();
    let pixels = vec![100; SIDE * SIDE * 3];
    let classes = || {
        let results = detect(session, &frame(&pixels)).unwrap();
        let count = gst_trt_results_frame_class_count(results);
        gst_trt_results_free(results);
        count
    };
    assert_eq!([classes(), classes(), classes()], [0, 2, 2]);
    assert_eq!(gst_trt_session_begin_clip(session), 0);
    assert_eq!([classes(), classes()], [0, 2]);
    gst_trt_session_close(session);
    assert_eq!(gst_trt_session_begin_clip(session), 7);
    let other = open(&one_box("capi-no-clips"), &["backend=rten"]).unwrap();
    assert!(gst_trt_session_begin_clip(other) == 0 && finds(other));
    gst_trt_session_close(other);
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

/// What is wrong in a layout file is known when the session opens; its text may be given without a file.
#[test]
fn layouts_come_from_files_or_texts() {
    let model = one_box("capi-layout");
    let file = path("tests/layouts/end-to-end.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    for option in [format!("layout-file={file}"), format!("layout={text}")] {
        let session = open(&model, &["backend=rten", &option]).unwrap();
        assert!(finds(session), "{option}");
        gst_trt_session_close(session);
    }
    let (code, error) = open(&model, &["backend=rten", "layout-file=/nowhere.toml"]).unwrap_err();
    assert!(code == 2 && error.contains("no layout file /nowhere.toml"), "{error}");
}

#[test]
fn frames_of_a_list_have_results_in_their_order() {
    let model = brightness("n").metadata("end2end", "True").save(&scratch("capi-list").join("n.onnx"));
    let session = open(&model, &["backend=rten", "batch-size=2", "score-threshold=0"]).unwrap();
    assert_eq!(gst_trt_session_batch_size(session), 2);
    let (mut width, mut height) = (0, 0);
    assert_eq!(unsafe { gst_trt_session_input_size(session, 640, 360, &mut width, &mut height) }, 0);
    assert_eq!((width, height), (64, 64), "of a file with one size");
    assert_eq!(unsafe { gst_trt_session_input_size(session, 640, 360, &mut width, ptr::null_mut()) }, 7);
    let levels = [10u8, 250, 90, 30, 170];
    let pixels = levels.map(|level| vec![level; SIDE * SIDE * 3]);
    let frames = pixels.each_ref().map(|pixels| frame(pixels));
    let mut pointers = frames.each_ref().map(|frame| &raw const *frame);
    let mut results = [ptr::dangling_mut(); 5];
    let detect = |frames: *const *const GstTrtFrame, count, to: &mut [*mut GstTrtResults; 5]| unsafe {
        gst_trt_session_detect_batch(session, frames, count, to.as_mut_ptr())
    };
    assert_eq!(detect(pointers.as_ptr(), 5, &mut results), 0, "{}", last_error());
    for (results, level) in results.into_iter().zip(levels) {
        let confidence = gst_trt_results_confidence(results, 0);
        assert!((confidence - f32::from(level) / 255.0).abs() < 1e-5, "{confidence} of {level}");
        gst_trt_results_free(results);
    }
    assert_eq!(detect(ptr::null(), 0, &mut results), 0, "none of none");

    let mut spoilt = frames[2];
    spoilt.strides[0] = 9;
    for (wrong, says) in [(&raw const spoilt, "frames[2]: "), (ptr::null(), "frames[2]: The argument frame is NULL")] {
        pointers[2] = wrong;
        results = [ptr::dangling_mut(); 5];
        assert_eq!(detect(pointers.as_ptr(), 5, &mut results), 7);
        assert!(last_error().starts_with(says), "{}", last_error());
        assert_eq!(results, [ptr::null_mut(); 5], "no handle comes with an error");
    }
    results = [ptr::dangling_mut(); 5];
    assert_eq!(detect(ptr::null(), 5, &mut results), 7);
    assert_eq!((last_error().as_str(), results), ("The argument frames is NULL.", [ptr::null_mut(); 5]));
    assert_eq!(detect(pointers.as_ptr(), usize::MAX, &mut results), 7);
    assert!(last_error().contains("no array of"), "{}", last_error());
    let null = unsafe { gst_trt_session_detect_batch(session, pointers.as_ptr(), 5, ptr::null_mut()) };
    assert_eq!((null, last_error().as_str()), (7, "The argument results is NULL."));
    let status = unsafe {
        gst_trt_session_detect_device_batch(session, pointers.as_ptr(), 2, ptr::null_mut(), results.as_mut_ptr())
    };
    assert_eq!((status, results[0]), (5, ptr::null_mut()), "there is no GPU");
    gst_trt_session_close(session);
    assert_eq!(gst_trt_session_batch_size(session), 0);
}

#[test]
fn several_inputs_run_at_once() {
    let dims = &["n", "3", "2", "2"];
    let graph = Graph::new().input("images", U8, dims).output("same", U8, dims);
    let graph = graph.node("Identity", &["images"], &["same"], Vec::new());
    let session = open(&graph.save(&scratch("capi-inputs").join("n.onnx")), &["backend=rten", "batch-size=2"]).unwrap();
    let input: Vec<u8> = (0..36).collect();
    let mut output = [0u8; 36];
    let out = output.as_mut_ptr().cast::<c_void>();
    let run = |bytes: usize, room: usize| unsafe {
        gst_trt_session_run(session, input.as_ptr().cast(), bytes, &out, &room, 1)
    };
    assert_eq!(run(36, 36), 0, "{}", last_error());
    assert_eq!(output[..], input);
    for (bytes, room, says) in [(35, 35, "12 elements, and 35 are given"), (0, 12, "0 are given"), (36, 12, "36 bytes")]
    {
        assert_eq!(run(bytes, room), 7);
        assert!(last_error().contains(says), "{}", last_error());
    }
    gst_trt_session_close(session);
}

#[test]
fn warnings_are_told() {
    let warning = |session, index| text(gst_trt_session_warning(session, index)).map(str::to_string);
    let session = open(&one_box("capi-warnings"), &["backend=rten", "precision=fp16"]).unwrap();
    let said = warning(session, 0).unwrap();
    assert!(said.starts_with("precision has no effect: the model runs on the CPU (rten)"), "{said}");
    assert_eq!((warning(session, 1), warning(session, usize::MAX)), (None, None));
    assert!(finds(session) && warning(session, 0) == Some(said));
    assert_eq!(warning(session, 1), None);
    gst_trt_session_close(session);
    let session = open(&one_box("capi-useless"), &["backend=rten", "top-k=3"]).unwrap();
    assert!(warning(session, 0).is_none() && finds(session), "what the model gives is known after the first frame");
    let said = warning(session, 0).unwrap();
    assert!(said.starts_with("top-k has no effect: ") && said.contains("is for classifiers"), "{said}");
    assert_eq!(warning(session, 1), None);
    gst_trt_session_close(session);
    assert_eq!(warning(session, 0), None);
    let (code, error) = open(&one_box("capi-insists"), &["backend=rten", "cuda-graph=on"]).unwrap_err();
    assert!(code == 1 && error.contains("cuda-graph=on needs TensorRT"), "{error}");
}

/// As after an overflow.
#[test]
fn what_is_wrong_with_the_numbers_of_a_later_frame_is_told() {
    let warning = |session, index| text(gst_trt_session_warning(session, index)).map(str::to_string);
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let root = Graph::new().input("images", F32, &["1", "3", "64", "64"]);
    let root = root.weight("half", F32, &[1], floats(&[0.5]));
    let root = root.weight("box", F32, &[1, 1, 6], floats(&[0.0, 0.0, 32.0, 32.0, 0.0, 1.0]));
    let root = root.weight("score", F32, &[1, 1, 6], floats(&[0.0, 0.0, 0.0, 0.0, 1.0, 0.0]));
    let root = root.node("ReduceMean", &["images"], &["mean"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)]);
    let root = root.node("Sub", &["half", "mean"], &["left"], vec![]).node("Sqrt", &["left"], &["root"], vec![]);
    let root = root.node("Mul", &["root", "score"], &["scored"], vec![]);
    let root = root.node("Add", &["scored", "box"], &["output0"], vec![]).output("output0", F32, &["1", "1", "6"]);
    let root = root.metadata("names", "{0: 'cat', 1: 'dog'}").metadata("end2end", "True");
    let session = open(&root.save(&scratch("capi-root").join("root.onnx")), &["backend=rten"]).unwrap();
    let found = |level: u8| {
        let pixels = vec![level; SIDE * SIDE * 3];
        let results = detect(session, &frame(&pixels)).unwrap();
        let count = gst_trt_results_count(results);
        gst_trt_results_free(results);
        (count, warning(session, 0))
    };
    assert_eq!(found(10), (1, None));
    let (count, said) = found(250);
    let said = said.unwrap();
    assert!(count == 0 && said.contains("gives numbers that are not finite"), "{said}");
    assert_eq!((found(250), warning(session, 1)), ((0, Some(said)), None), "each is told once");
    gst_trt_session_close(session);
}

#[test]
fn what_is_guessed_is_noted() {
    let note = |session, index| text(gst_trt_session_note(session, index)).map(str::to_string);
    let graph = Graph::new().input("images", F32, &["1", "3", "64", "64"]);
    let graph = graph.constant("output0", &[1, 1, 6], &[0.0, 0.0, 32.0, 32.0, 0.9, 1.0]);
    let session = open(&graph.save(&scratch("capi-notes").join("guess.onnx")), &["backend=rten"]).unwrap();
    assert!(note(session, 0).is_none() && !finds(session), "its class has no name");
    let notes: Vec<String> = (0..).map_while(|index| note(session, index)).collect();
    assert!(notes.iter().any(|note| note.contains("by the dimensions of its outputs")), "{notes:?}");
    assert_eq!(text(gst_trt_session_warning(session, 0)), None);
    gst_trt_session_close(session);
    assert_eq!(note(session, 0), None);
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
fn only_detection_models_detect_but_others_run() {
    let graph = Graph::new().input("images", U8, &["1", "3", "2", "2"]).constant("scores", &[1, 2], &[0.25, 0.75]);
    let graph = graph.metadata("author", "Ultralytics").metadata("task", "caption");
    let model = graph.save(&scratch("capi-task").join("caption.onnx"));
    let session = open(&model, &["backend=rten"]).unwrap();
    assert_eq!(detect(session, &frame(&[0; SIDE * SIDE * 3])), Err(4));
    assert!(last_error().contains("“caption”"), "{}", last_error());
    let mut scores = [0f32; 2];
    let out = scores.as_mut_ptr().cast::<c_void>();
    assert_eq!(unsafe { gst_trt_session_run(session, [0u8; 12].as_ptr().cast(), 12, &out, &8, 1) }, 0);
    assert_eq!(scores, [0.25, 0.75]);
    gst_trt_session_close(session);
}
