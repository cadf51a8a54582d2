// SPDX-License-Identifier: MPL-2.0
//! Model files that cannot be used: each is refused on the bus, with the cause and what to do.

use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::{BackendPreference, LoadContext, LoadRequest};
use gsttrt_core::image::frame::{Frame, PixelFormat, Plane};
use gsttrt_core::memory::Pool;
use gsttrt_core::model::ModelInfo;
use gsttrt_core::session::Detector;
use gsttrt_core::tensor::{Tensor, Tensors};

use crate::common::onnx::{BF16, BOOL, F16, F32, F64, Graph, I32, I64, STRING, int, ints};
use crate::common::{scratch, shapes};

/// One frame to the model; the error must name the file and end in a remedy.
#[track_caller]
fn refused(file: &str, domain: &str, parts: &[&str]) {
    for text in [error_of(file, domain), error_of_a_session(file)] {
        println!("{text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} is missing in: {text}");
        let sentences = text.split_inclusive(". ").count();
        assert!(sentences > 1 && text.ends_with('.'), "no remedy in: {text}");
    }
}

#[track_caller]
fn error_of(file: &str, domain: &str) -> String {
    let outcome = crate::common::launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=8,height=8 ! trtpreprocess ! \
         trtinfer model-file=\"{file}\" ! trtnms ! fakesink"
    ));
    outcome.expect_error(domain, &[]);
    outcome.error_text().to_string()
}

/// The same of a session, in the same words.
#[track_caller]
fn error_of_a_session(file: &str) -> String {
    let planes = [Plane { data: &[128; 192], stride: 24 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: 8, height: 8, planes };
    let found = Detector::open(file, &Default::default(), Default::default())
        .and_then(|mut detector| detector.detect(&frame, Default::default()));
    found.expect_err("the model is refused").message()
}

/// An 8x8 picture goes in.
fn picture() -> Graph {
    Graph::new().input("images", F32, &["1", "3", "8", "8"])
}

fn head(graph: Graph) -> Graph {
    graph.constant("output0", &[1, 1, 6], &[0.0; 6])
}

/// Reproducible noise (xorshift64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

#[test]
fn paths_that_are_no_files() {
    let folder = scratch("no-files");
    refused("/nowhere/x.onnx", "ResourceError::NotFound", &["/nowhere/x.onnx", "Check the path of the model file"]);
    refused(&folder.display().to_string(), "ResourceError::OpenRead", &["no-files: it is a folder"]);
    refused("/dev/zero", "ResourceError::OpenRead", &["/dev/zero: it is a device"]);
    let pipe = folder.join("pipe.onnx").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    refused(&pipe, "ResourceError::OpenRead", &["pipe.onnx"]);
}

#[test]
fn files_that_are_no_models() {
    let folder = scratch("no-models");
    let whole = std::fs::read(shapes()).unwrap();
    let cut = |length: usize| whole[..length].to_vec();
    for (name, bytes, part) in [
        ("empty.onnx", Vec::new(), "is empty"),
        ("text.onnx", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n".to_vec(), "git lfs pull"),
        ("page.onnx", b"<!DOCTYPE html>\n<html><body>Not Found</body></html>\n".to_vec(), "it is a text file"),
        ("nvinfer.txt", b"[property]\nonnx-file=m.onnx\n".to_vec(), "Give the file that it names in onnx-file"),
        ("zeros.onnx", vec![0; 4096], "not a whole ONNX model"),
        ("archive.onnx", b"PK\x03\x04\x14\0\0\0\x08\0".repeat(9), "not a whole ONNX model"),
        ("cut-1.onnx", cut(1), "not a whole ONNX model"),
        ("cut-2.onnx", cut(2), "no graph"),
        ("cut-100.onnx", cut(100), "not a whole ONNX model"),
        ("cut-half.onnx", cut(whole.len() / 2), "not a whole ONNX model"),
        ("cut-in-metadata.onnx", cut(whole.len() - 100), "not a whole ONNX model"),
        ("cut-last.onnx", cut(whole.len() - 1), "not a whole ONNX model"),
        ("no-graph.onnx", vec![8, 8], "it has no graph"), // ir_version = 8
        ("no-outputs.onnx", picture().bytes(), "its graph has no outputs"),
    ] {
        let file = folder.join(name);
        std::fs::write(&file, bytes).unwrap();
        refused(&file.display().to_string(), "LibraryError::Init", &[name, part]);
    }
    for (name, bytes, part) in [
        ("cut.engine", &b"ftrt\0\0\0\0"[..], "cut short"),
        ("noise.plan", &b"no engine at all"[..], "not a TensorRT engine"),
        ("renamed.engine", &whole[..], "looks like an ONNX file. Name it .onnx"),
        ("empty.engine", &[], "is empty"),
    ] {
        let file = folder.join(name);
        std::fs::write(&file, bytes).unwrap();
        refused(&file.display().to_string(), "LibraryError::Init", &[name, part]);
    }
}

#[test]
fn noise_is_no_model() {
    let folder = scratch("noise");
    for (seed, length) in [(1, 1), (2, 7), (3, 64), (4, 1000), (5, 4096), (6, 65536), (7, 1 << 20)] {
        let file = folder.join(format!("noise-{seed}.onnx"));
        std::fs::write(&file, Noise(seed).bytes(length)).unwrap();
        refused(&file.display().to_string(), "LibraryError::Init", &["not a whole ONNX model"]);
    }
    let file = folder.join("many.onnx");
    let mut noise = Noise(8);
    for _ in 0..2000 {
        let length = noise.next() as usize % 200;
        std::fs::write(&file, noise.bytes(length)).unwrap();
        assert!(ModelInfo::read(&file).is_err());
    }
}

/// Any fault of a file is returned as an error, never as a panic.
#[test]
fn damaged_models_run_or_are_refused() {
    let file = scratch("damaged").join("damaged.onnx");
    let weights = (0..108u8).flat_map(|i| (f32::from(i) / 99.0).to_le_bytes()).collect();
    let whole = picture()
        .weight("weight", F32, &[4, 3, 3, 3], weights)
        .node("Conv", &["images", "weight"], &["conv"], vec![ints("kernel_shape", &[3, 3])])
        .node("Relu", &["conv"], &["relu"], Vec::new())
        .weight("shape", I64, &[3], [1i64, 4, -1].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .node("Reshape", &["relu", "shape"], &["rows"], Vec::new())
        .node("Softmax", &["rows"], &["output0"], vec![int("axis", 1)])
        .output("output0", F32, &["1", "4", "36"])
        .metadata("names", "{0: 'a'}")
        .bytes();
    let mut noise = Noise(9);
    let mut ran = 0;
    for _ in 0..500 {
        let mut bytes = whole.clone();
        for _ in 0..=noise.next() % 2 {
            let at = noise.next() as usize % bytes.len();
            bytes[at] = noise.next() as u8;
        }
        std::fs::write(&file, &bytes).unwrap();
        let run = || run_once(&file).is_ok();
        ran += u32::from(catch_unwind(run).unwrap_or_else(|_| panic!("panicked on {bytes:?}")));
    }
    assert!((1..500).contains(&ran), "{ran} ran");
}

fn run_once(file: &Path) -> gsttrt_core::error::Result<Vec<Tensor>> {
    let cpu = BackendPreference::Named("rten");
    let request = LoadRequest::new(file, cpu, None, 1, Options::default(), || unreachable!("it is no GPU"))?;
    if request.spec.desc.bytes().is_none_or(|bytes| bytes > 1 << 24) {
        return Ok(Vec::new()); // allowed, and not worth the memory here
    }
    let mut backend = request.load(&LoadContext::silent())?;
    let picture = Tensor::fill(&Pool::default(), request.spec.desc, |_| Ok(()))?;
    backend.run(&[Arc::new(Tensors::new(vec![picture], None, None))])?.remove(0).into_ready()
}

#[test]
fn graphs_that_take_no_picture() {
    let folder = scratch("no-picture");
    let init = "LibraryError::Init";
    let typed = |elem_type, dims: &[&str]| head(Graph::new().input("images", elem_type, dims));
    let nchw = &["1", "3", "8", "8"];
    for (name, graph, parts) in [
        ("no-input", head(Graph::new()), &["no input for a picture, and no other"][..]),
        ("rank-2", typed(F32, &["1", "192"]), &["no input for a picture", "images f32 1x192", "1x3xHxW"]),
        ("rank-3", typed(F32, &["3", "8", "8"]), &["images f32 3x8x8"]),
        ("rank-6", typed(F32, &["1", "1", "1", "3", "8", "8"]), &["images f32 1x1x1x3x8x8"]),
        ("channels", typed(F32, &["1", "4", "8", "8"]), &["images f32 1x4x8x8"]),
        ("integers", typed(I32, nchw), &["images i32 1x3x8x8", "f32, f16 or u8"]),
        ("bools", typed(BOOL, nchw), &["images bool 1x3x8x8"]),
        ("bf16", typed(BF16, nchw), &["images", "bfloat16", "Export it with f32"]),
        ("double", typed(F64, nchw), &["images", "double", "Export it with f32"]),
        ("string", typed(STRING, nchw), &["images", "string", "Export it with f32"]),
        ("unknown-type", typed(99, nchw), &["images", "99", "Export it with f32"]),
        ("no-pixels", typed(F32, &["1", "3", "0", "8"]), &["images f32 1x3x0x8", "no elements"]),
        ("no-frame", typed(F32, &["0", "3", "8", "8"]), &["images f32 0x3x8x8", "no elements"]),
        ("huge", typed(F32, &["1", "3", "8", "4294967304"]), &["4294967304x8", "16384"]), // 2³² + 8
        ("imgsz-16384", typed(F32, &["1", "3", "h", "w"]).metadata("imgsz", "[16384, 16384]"), &["33554432 pixels"]),
        ("imgsz-0", typed(F32, &["1", "3", "h", "w"]).metadata("imgsz", "[0, 0]"), &["0x0", "from 1 to 16384"]),
        ("second-input", head(picture().input("prompt", I64, &["1", "7"])), &["prompt i64 1x7", "only input"]),
        ("side-type", head(picture().input("im_shape", F16, &["1", "2"])), &["im_shape f16 1x2"]),
        ("output-type", picture().output("output0", STRING, &["1"]), &["output0", "string", "Export it with f32"]),
    ] {
        let name = format!("{name}.onnx");
        let file = graph.save(&folder.join(&name));
        refused(&file, init, &[&[name.as_str()], parts].concat());
    }
}

#[test]
fn metadata_that_contradicts_the_model() {
    let folder = scratch("metadata");
    let long = "x".repeat(100_000);
    for (name, key, text, parts) in [
        ("segment", "task", "segment", &["No layout fits", "output0 f32 1x1x6", "without prototypes of masks"][..]),
        ("pose", "task", "pose", &["output0 f32 1x1x6", "without kpt_shape"]),
        ("obb", "task", "obb", &["No layout fits", "output0 f32 1x1x6", "obb or obb-end-to-end"]),
        ("classify", "task", "classify", &["No layout fits", "output0 f32 1x1x6", "classify"]),
        ("task", "task", &long, &["xxx", "only “detect”", "Use the detection model"]),
    ] {
        // Of others, an unknown task says nothing.
        let author = if name == "task" { "Ultralytics" } else { "" };
        let graph = head(picture()).metadata(key, text).metadata("author", author);
        refused(&graph.save(&folder.join(format!("{name}.onnx"))), "LibraryError::Init", &[&[name], parts].concat());
    }
}

/// A model that needs nothing of what cannot be read is used without; one note for each entry says so.
#[test]
fn metadata_that_cannot_be_read_is_done_without() {
    let folder = scratch("metadata-unread");
    let nested = format!("{}1{}", "[".repeat(30), "]".repeat(30));
    for (name, key, text, parts) in [
        ("nested", "stride", &*nested, &["no stride that can be read: stride = “[[[[", "It is used without"][..]),
        ("negative", "stride", "-1", &["stride = “-1”", "with stride as a positive whole number like 32."]),
        ("quoted", "stride", "'32'", &["stride = “'32'”"]),
        ("size", "imgsz", "large", &["no input size that can be read: imgsz = “large”", "like [480, 640]."]),
        (
            "points",
            "kpt_shape",
            "[0, 3]",
            &["no shape of keypoints that can be read: kpt_shape = “[0, 3]”", "like [17, 3]."],
        ),
    ] {
        let file = head(picture()).metadata("names", "{0: 'a'}").metadata(key, text);
        let file = file.save(&folder.join(format!("{name}.onnx")));
        let outcome = crate::common::launch(&format!(
            "videotestsrc num-buffers=3 ! video/x-raw,format=RGB,width=8,height=8 ! trtpreprocess ! \
             trtinfer model-file=\"{file}\" ! trtnms layout=end-to-end ! fakesink"
        ));
        outcome.expect_success();
        let notes: Vec<&String> = outcome.infos.iter().filter(|note| note.contains("that can be read")).collect();
        let [note] = &notes[..] else { panic!("{name}: {:?}", outcome.infos) };
        assert!(parts.iter().all(|part| note.contains(part)), "{parts:?} is missing in: {note}");
        let open = head(Graph::new().input("images", F32, &["1", "3", "h", "w"])).metadata(key, text);
        let open = open.save(&folder.join(format!("{name}-open.onnx")));
        refused(&open, "ResourceError::Settings", &["leaves the size of its input open", "Set input-size, such as"]);
    }
    // A pose without the shape of its keypoints is none.
    for text in ["[0, 3]", "[17, 4]", "17"] {
        let file = picture().constant("output0", &[1, 56, 84], &[0.0; 56 * 84]).metadata("task", "pose");
        let file = file.metadata("kpt_shape", text).save(&folder.join("pose.onnx"));
        let quoted = format!("kpt_shape = “{text}”");
        let parts = ["the shape of keypoints in its metadata cannot be read", &quoted, "like [17, 3]."];
        refused(&file, "LibraryError::Init", &parts);
    }
}

#[test]
fn graphs_that_cannot_be_loaded() {
    let folder = scratch("not-loaded");
    let pipe = folder.join("pipe.data");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let output = |graph: Graph, op: &str, inputs: &[&str]| {
        graph.node(op, inputs, &["output0"], Vec::new()).output("output0", F32, &["1", "3", "8", "8"])
    };
    for (name, graph, parts) in [
        (
            "operator",
            output(picture(), "Frobnicate", &["images"]),
            &["Frobnicate", "“node_output0”", "another opset"][..],
        ),
        (
            "attribute",
            picture().node("Cast", &["images"], &["output0"], vec![int("to", 8)]).output("output0", F32, &[]),
            &["“node_output0”", "attribute \"to\""],
        ),
        ("dangling", output(picture(), "Identity", &["nothing"]), &["nothing", "Export the model again"]),
        ("cycle", output(picture(), "Identity", &["output0"]), &["cycle", "Export the model again"]),
        ("unmade", picture().output("output0", F32, &["1"]), &["output0", "Export the model again"]),
        ("short", output(picture().weight("w", F32, &[4], floats(&[1.0])), "Identity", &["w"]), &["“w”", "Export"]),
        (
            "external",
            output(picture().external_weight("w", "missing.data"), "Mul", &["images", "w"]),
            &["missing.data", "next to the model"],
        ),
        (
            "other-ending",
            output(picture().external_weight("w", "weights.bin"), "Mul", &["images", "w"]),
            &["weights.bin", ".onnx_data", "Export the model as one file"],
        ),
        (
            "pipe",
            output(picture().external_weight("w", "pipe.data"), "Mul", &["images", "w"]),
            &["pipe.data", "it is a pipe", "next to the model"],
        ),
        (
            "alloc",
            picture()
                .weight("shape", I64, &[1], (26i64 << 40).to_le_bytes().to_vec())
                .node("ConstantOfShape", &["shape"], &["output0"], Vec::new())
                .output("output0", F32, &["n"]),
            &["ConstantOfShape", "more memory"],
        ),
        (
            "elsewhere",
            output(picture().external_weight("w", "../w.data"), "Mul", &["images", "w"]),
            &["../w.data", "may not be read", "next to the model"],
        ),
    ] {
        let name = format!("{name}.onnx");
        let file = graph.save(&folder.join(&name));
        refused(&file, "LibraryError::Init", &[&[name.as_str()], parts].concat());
    }
}

#[test]
fn graphs_that_cannot_be_run() {
    let folder = scratch("not-run");
    let reshaped = picture()
        .weight("shape", I64, &[2], [7i64, 7].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .node("Reshape", &["images", "shape"], &["output0"], Vec::new())
        .output("output0", F32, &["7", "7"]);
    let mistyped =
        picture().node("Identity", &["images"], &["output0"], Vec::new()).output("output0", I64, &["1", "3", "8", "8"]);
    for (name, graph, parts) in [
        ("reshape", reshaped, &["reshape.onnx", "node_output0", "Check that the model"][..]),
        ("mistyped", mistyped, &["output0", "i64", "f32", "Export the model again"]),
    ] {
        let file = graph.save(&folder.join(format!("{name}.onnx")));
        refused(&file, "LibraryError::Failed", parts);
    }
}

/// As deep as rten's planner goes down: the threads of GStreamer have no stack for that.
#[test]
fn long_paths_run() {
    let folder = scratch("long-paths");
    let chain = |count: usize| {
        let mut graph = picture();
        for i in 0..count {
            let (from, to) = (format!("v{i}"), format!("v{}", i + 1));
            let from = if i == 0 { "images" } else { from.as_str() };
            graph = graph.node("Relu", &[from], &[&to], Vec::new());
        }
        let name = format!("chain-{count}.onnx");
        graph
            .node("Identity", &[&format!("v{count}")], &["output0"], Vec::new())
            .output("output0", F32, &["1", "3", "8", "8"])
            .save(&folder.join(name))
    };
    // On a stack that is smaller than any that it would get.
    let path = chain(19_000);
    let small = std::thread::Builder::new().stack_size(256 << 10);
    small.spawn(move || assert_eq!(run_once(Path::new(&path)).unwrap().len(), 1)).unwrap().join().unwrap();
    refused(&chain(30_000), "LibraryError::Init", &["30001 nodes", "20000"]);
}

/// The smallest integer by -1 has no result in 32 bits, and rten panics over it: while it loads where both are constants,
/// and else while it runs.
#[test]
fn a_panic_of_the_library_is_an_error() {
    let folder = scratch("panics");
    let i32s = |graph: Graph, name, value: i32| graph.weight(name, I32, &[1], value.to_le_bytes().into());
    let constants = i32s(i32s(picture(), "min", i32::MIN), "minus", -1);
    let load = constants.node("Div", &["min", "minus"], &["output0"], Vec::new()).output("output0", I32, &["1"]);
    refused(&load.save(&folder.join("load.onnx")), "LibraryError::Init", &["cannot load", "panicked", "opset"]);

    let constants = i32s(i32s(i32s(picture(), "min", i32::MIN), "minus", -1), "zero", 0);
    let run = constants
        .node("Cast", &["images"], &["integers"], vec![int("to", I32.into())])
        .node("Mul", &["integers", "zero"], &["zeros"], Vec::new())
        .node("Add", &["zeros", "min"], &["mins"], Vec::new())
        .node("Div", &["mins", "minus"], &["output0"], Vec::new())
        .output("output0", I32, &["1", "3", "8", "8"]);
    refused(&run.save(&folder.join("run.onnx")), "LibraryError::Failed", &["failed to run", "panicked", "opset"]);
}
