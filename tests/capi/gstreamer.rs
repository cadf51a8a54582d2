// SPDX-License-Identifier: MPL-2.0
//! The library together with GStreamer: tensors of frames, and examples that read files.

use crate::common::{init, registry};
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
fn the_python_example_takes_tensors_off_frames() {
    let library = library();
    let run = |model: &str| {
        Command::new("/usr/bin/python3")
            .arg(path("examples/tensors.py"))
            .args([library.to_str().unwrap(), &path("tests/data/sample.mp4"), model])
            .env("GST_PLUGIN_PATH", target())
            .env("GST_REGISTRY", registry())
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

/// A consumer that refuses each tensor at first, and how many were given back when all is over.
const REFUSING: &str = r#"
import atexit, ctypes, numpy

made, freed, wrapped = [], [], {}
Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

def counting(original):
    def free(tensor):
        freed.append(tensor)
        original(tensor)
    return Deleter(free)

def from_dlpack(tensor):
    kind = type(tensor)
    if kind not in wrapped:
        wrapped[kind] = kind.export
        def export(self, stream, versioned=False):
            made.append(wrapped[kind](self, stream, versioned))
            # The deleter of both kinds of DLManagedTensor.
            at = ctypes.addressof(made[-1].contents) + (16 if versioned else 56)
            function = counting(Deleter(ctypes.c_void_p.from_address(at).value))
            made.append(function)
            ctypes.c_void_p.from_address(at).value = ctypes.cast(function, ctypes.c_void_p).value
            return made[-2]
        kind.export = export
    for version in (None, (1, 0)):
        tensor.__dlpack__(max_version=version)
    return numpy.from_dlpack(tensor)

atexit.register(lambda: print("made", len(made) // 2, "freed", len(freed)))
"#;

#[test]
fn the_python_example_frees_what_a_consumer_refuses() {
    let folder = scratch("capi-refused");
    std::fs::write(folder.join("refusing.py"), REFUSING).unwrap();
    let graph = Graph::new().input("images", F32, &["1", "3", "8", "8"]);
    let graph = graph.node("Flatten", &["images"], &["flat"], Vec::new()).output("flat", F32, &["1", "192"]);
    let output = Command::new("/usr/bin/python3")
        .arg(path("examples/tensors.py"))
        .args([library().to_str().unwrap(), &path("tests/data/sample.mp4")])
        .arg(graph.save(&folder.join("flat.onnx")))
        .arg("refusing")
        .env("PYTHONPATH", &folder)
        .env("GST_PLUGIN_PATH", target())
        .env("GST_REGISTRY", registry())
        .output()
        .unwrap();
    let text = printed(output);
    let counts = text.lines().last().unwrap().strip_prefix("made ").unwrap();
    let (made, freed) = counts.split_once(" freed ").unwrap();
    assert!(made == freed && made.parse::<usize>().unwrap() > 150, "{counts}");
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
    assert!(tensor(&of("identity"), 0).unwrap_err().contains("no tensors. Take it behind trtpreprocess or trtinfer"));
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
