// SPDX-License-Identifier: MPL-2.0
//! trtinfer: what each property changes, what is read from model files, and tensors in and out.

use std::sync::Arc;

use gst::prelude::*;
use gst_check::Harness;
use gsttrt::gst::meta::tensor::{Payload, TensorMeta};
use gsttrt_core::backends::batcher::CancelToken;
use gsttrt_core::tensor::{DType, Tensor};

use crate::common::onnx::{BOOL, F16, F32, Graph, I8, I32, I64, U8, int};
use crate::common::{init, launch, path, scratch, shapes};

const SOURCE: &str = "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=64";

/// Plays one frame through `trtpreprocess ! trtinfer …`.
#[track_caller]
fn infer(properties: &str) -> crate::common::Outcome {
    launch(&format!("{SOURCE} ! trtpreprocess ! trtinfer {properties} ! fakesink"))
}

/// A model with an input of these dimensions and a small output of its own.
fn constant_head(dims: &[&str]) -> Graph {
    Graph::new().input("images", F32, dims).constant("output0", &[1, 1, 6], &[0.0; 6])
}

/// `trtpreprocess ! trtinfer` between a test's hands.
struct Bench {
    harness: Harness,
    pushed: u64,
}

impl Bench {
    fn new(properties: &str, caps: &str) -> Self {
        init();
        let mut harness = Harness::new_parse(&format!("trtpreprocess ! trtinfer name=infer {properties}"));
        harness.set_src_caps_str(caps);
        Bench { harness, pushed: 0 }
    }

    fn trtinfer(&self) -> gst::Element {
        self.harness.element().unwrap().downcast::<gst::Bin>().unwrap().by_name("infer").unwrap()
    }

    fn push(&mut self, frame: &[u8]) -> Arc<Payload> {
        let mut buffer = gst::Buffer::from_slice(frame.to_vec());
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_seconds(self.pushed));
        self.pushed += 1;
        self.harness.push(buffer).unwrap();
        TensorMeta::get(&self.harness.pull().unwrap()).expect("a tensor")
    }

    /// The outputs for a frame.
    fn outputs(&mut self, frame: &[u8]) -> Vec<(String, Vec<f32>)> {
        let payload = self.push(frame);
        let Payload::Output { outputs, .. } = &*payload else { panic!("{payload:?}") };
        outputs[0]
            .wait(&CancelToken::default())
            .unwrap()
            .iter()
            .map(|tensor| (tensor.desc().to_string(), values(tensor)))
            .collect()
    }
}

fn values(tensor: &Tensor) -> Vec<f32> {
    use gsttrt_core::tensor::Element;
    fn all<T: Element>(tensor: &Tensor) -> Vec<f32> {
        tensor.as_slice::<T>().unwrap().iter().map(|&value| value.to_f32()).collect()
    }
    match tensor.desc().dtype {
        DType::F32 => all::<f32>(tensor),
        DType::F16 => all::<half::f16>(tensor),
        DType::U8 => all::<u8>(tensor),
        DType::I8 => all::<i8>(tensor),
        DType::I32 => all::<i32>(tensor),
        DType::I64 => all::<i64>(tensor),
        DType::Bool => tensor.bytes().unwrap().iter().map(|&byte| byte.into()).collect(),
        other => panic!("{other:?}"),
    }
}

/// A 4x2 RGB frame with a different value at each place, from 0 to 115.
const RGB: &str = "video/x-raw,format=RGB,width=4,height=2,framerate=1/1";

fn frame() -> Vec<u8> {
    (0..24).map(|i| i * 5).collect()
}

/// The same frame with its channels as planes.
fn planar() -> Vec<f32> {
    let frame = frame();
    (0..24).map(|i| frame[i % 8 * 3 + i / 8].into()).collect()
}

#[track_caller]
fn assert_close(found: &[f32], wanted: &[f32], tolerance: f32) {
    assert_eq!(found.len(), wanted.len());
    let close = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() <= tolerance);
    assert!(close, "{found:?} is not {wanted:?}");
}

// ------------------------------------------------------------------ properties

#[test]
fn the_trained_model_runs() {
    let outcome = infer(&format!("model-file={}", shapes()));
    outcome.expect_success();
    assert!(outcome.progress[0].starts_with("Loading shapes-320.onnx for the rten backend"), "{outcome:?}");
    assert!(outcome.progress[1].starts_with("Loaded shapes-320.onnx in "), "{outcome:?}");
    assert_eq!(outcome.progress.len(), 2);
}

#[test]
fn auto_posts_once_why_it_runs_on_the_cpu() {
    if !crate::common::gpu::is_hidden("trtinfer::auto_posts_once_why_it_runs_on_the_cpu") {
        return;
    }
    let model = constant_head(&["1", "3", "64", "64"]).save(&scratch("auto").join("head.onnx"));
    let outcome = infer(&format!("model-file={model}"));
    outcome.expect_success();
    let reason = outcome.infos.first().and_then(|info| info.strip_prefix("Running the model on the CPU (rten): "));
    assert!(outcome.infos.len() == 1 && reason.is_some_and(|reason| reason.contains("driver")), "{:?}", outcome.infos);
    let outcome = infer(&format!("model-file={model} backend=rten"));
    outcome.expect_success();
    assert_eq!(outcome.infos, [""; 0], "the CPU was asked for");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    if !crate::common::gpu::is_hidden("trtinfer::settings_that_make_no_sense_are_refused") {
        return;
    }
    let folder = scratch("settings");
    let dynamic = constant_head(&["1", "3", "h", "w"]).save(&folder.join("dynamic.onnx"));
    let stride = constant_head(&["1", "3", "h", "w"]).metadata("stride", "32").save(&folder.join("stride.onnx"));
    let fixed = constant_head(&["1", "3", "64", "64"]).save(&folder.join("fixed.onnx"));
    let low = constant_head(&["1", "3", "64", "w"]).save(&folder.join("low.onnx"));
    let wide = constant_head(&["1", "3", "64", "w"]).metadata("stride", "32").save(&folder.join("wide.onnx"));
    let unread = constant_head(&["1", "3", "h", "w"]).metadata("imgsz", "[[[1]]]").save(&folder.join("unread.onnx"));
    let settings = "ResourceError::Settings";
    for (properties, domain, parts) in [
        ("", settings, &["no model", "Set model-file"][..]),
        ("model-file=\"\"", settings, &["no model", "Set model-file"]),
        ("backend=tensorrt", settings, &["no model"]), // the first thing to set right
        (&format!("model-file={fixed} backend=tensorrt"), "LibraryError::Init", &["Cannot use CUDA", "backend=cpu"]),
        (&format!("model-file={fixed} batch-size=2"), settings, &["batch-size is 2", "Set batch-size=1"]),
        (&format!("model-file={fixed} input-size=32x32"), settings, &["32x32", "1x3x64x64", "Leave input-size unset"]),
        (&format!("model-file={dynamic}"), settings, &["images f32 1x3x?x?", "such as input-size=640x640."]),
        (&format!("model-file={unread}"), settings, &["images f32 1x3x?x?", "such as input-size=640x640."]),
        (&format!("model-file={low}"), settings, &["images f32 1x3x64x?", "such as input-size=640x64."]),
        (&format!("model-file={low} input-size=96x96"), settings, &["1x3x64x?", "Set input-size=96x64"]),
        (&format!("model-file={dynamic} input-size=640"), settings, &["input-size=640", "Write width and height"]),
        (&format!("model-file={dynamic} input-size=64x"), settings, &["input-size=64x", "Write width and height"]),
        (&format!("model-file={dynamic} input-size=0x64"), settings, &["input-size=0x64", "Write width and height"]),
        (&format!("model-file={dynamic} input-size=-1x8"), settings, &["input-size=-1x8", "Write width and height"]),
        (&format!("model-file={dynamic} input-size=99999x8"), settings, &["input-size=99999x8", "16384"]),
        (&format!("model-file={stride} input-size=64x48"), settings, &["64x48", "stride is 32", "Set input-size"]),
        (&format!("model-file={wide} input-size=48x64"), settings, &["48x64", "stride is 32"]),
    ] {
        infer(properties).expect_error(domain, parts);
    }
}

#[test]
fn an_open_input_takes_the_size_that_is_asked_for() {
    let folder = scratch("sizes");
    let model = |name: &str, dims, metadata: &[(&str, &str)]| {
        let graph = metadata.iter().fold(constant_head(dims), |graph, (key, text)| graph.metadata(key, text));
        graph.save(&folder.join(name))
    };
    let open: &[&str] = &["n", "3", "h", "w"];
    for (model, properties, dims) in [
        (model("open", open, &[]), "input-size=96x64", "1x3x64x96"),
        (model("imgsz", open, &[("imgsz", "[32, 64]")]), "", "1x3x32x64"), // height first
        (model("imgsz", open, &[("imgsz", "[32, 64]")]), "input-size=96x64", "1x3x64x96"),
        (model("one", open, &[("imgsz", "48")]), "", "1x3x48x48"),
        (model("half", &["1", "3", "32", "w"], &[]), "input-size=64x32", "1x3x32x64"),
        (model("fixed", &["1", "3", "32", "64"], &[("imgsz", "[8, 8]")]), "", "1x3x32x64"), // the graph decides
        (model("fixed", &["1", "3", "32", "64"], &[]), "input-size=64x32", "1x3x32x64"),
        (model("odd", &["1", "3", "30", "50"], &[("stride", "32")]), "", "1x3x30x50"), // the graph takes it
        (model("no-stride", open, &[("stride", "0")]), "input-size=50x30", "1x3x30x50"),
    ] {
        let mut bench = Bench::new(&format!("model-file={model} {properties}"), RGB);
        let info = bench.trtinfer().property::<gst::Structure>("model-info");
        assert!(info.get::<&str>("tensor").unwrap().contains(dims), "{info}");
        let payload = bench.push(&frame());
        let letterbox = &payload.inputs().list[0].letterbox;
        assert!(dims.ends_with(&format!("{}x{}", letterbox.tensor_height, letterbox.tensor_width)), "{dims}");
    }
}

#[test]
fn an_open_input_takes_the_size_set_on_trtpreprocess() {
    let model = constant_head(&["1", "3", "h", "w"]).save(&scratch("open-input").join("open.onnx"));
    let line = format!("trtpreprocess tensor-size=32x16 ! trtinfer model-file={model} input-size=64x64 ! trtnms");
    launch(&format!("{SOURCE} ! {line} ! fakesink")).expect_success();
}

/// The tensor's size for frames of that size, which model-info has too; twice, as the next frame finds all made.
fn tensor_size(bench: &mut Bench, (width, height): (usize, usize)) -> (u32, u32) {
    bench.harness.set_src_caps_str(&format!("video/x-raw,format=RGB,width={width},height={height},framerate=1/1"));
    let stride = (3 * width).next_multiple_of(4);
    let sizes = [0; 2].map(|_| {
        let payload = bench.push(&vec![128; stride * height]);
        let letterbox = &payload.inputs().list[0].letterbox;
        (letterbox.tensor_width, letterbox.tensor_height)
    });
    assert_eq!(sizes[0], sizes[1]);
    let info = bench.trtinfer().property::<gst::Structure>("model-info");
    let dims = format!(" 1x3x{}x{} ", sizes[0].1, sizes[0].0);
    assert!(info.get::<&str>("tensor").unwrap().contains(&dims), "{info}");
    sizes[0]
}

#[test]
fn an_open_input_is_the_smallest_rectangle_for_the_frames() {
    let folder = scratch("rectangles");
    let model = |name: &str, dims, metadata: &[(&str, &str)]| {
        let graph = metadata.iter().fold(constant_head(dims), |graph, (key, text)| graph.metadata(key, text));
        graph.save(&folder.join(name))
    };
    let (open, metadata): (&[&str], &[_]) = (&["n", "3", "h", "w"], &[("imgsz", "[128, 128]"), ("stride", "32")]);
    let adaptive = model("adaptive", open, metadata);
    let wide = model("wide", open, &[("imgsz", "[64, 128]"), ("stride", "32")]);
    let half = model("half", &["1", "3", "128", "w"], metadata);
    let silent = model("silent", open, &[("imgsz", "[128, 128]")]);
    let many = model("many", &["n", "3", "h", "w"], metadata);
    for (properties, sizes) in [
        // Frames that grow, shrink and turn in mid-stream.
        (format!("model-file={adaptive}"), [((160, 90), (128, 96)), ((90, 160), (96, 128)), ((64, 64), (128, 128))]),
        (
            format!("model-file={adaptive} input-size=auto"),
            [((64, 16), (128, 32)), ((64, 33), (128, 96)), ((1, 90), (32, 128))],
        ),
        (format!("model-file={wide}"), [((160, 90), (128, 64)), ((90, 160), (64, 64)), ((64, 64), (64, 64))]),
        // What is asked for is not changed.
        (format!("model-file={adaptive} input-size=96x64"), [((160, 90), (96, 64)); 3]),
        (format!("model-file={half}"), [((160, 90), (128, 128)); 3]),
        // Without a stride it is not known that other sizes will do.
        (format!("model-file={silent}"), [((160, 90), (128, 128)); 3]),
        // Frames of several streams are batched.
        (format!("model-file={adaptive} shared-model=rectangles"), [((160, 90), (128, 128)); 3]),
        (
            format!("model-file={many} batch-size=2 batch-timeout=0"),
            [((160, 90), (128, 96)), ((90, 160), (96, 128)), ((160, 90), (128, 96))],
        ),
    ] {
        let mut bench = Bench::new(&format!("backend=rten {properties}"), RGB);
        for (frame, tensor) in sizes {
            assert_eq!(tensor_size(&mut bench, frame), tensor, "{properties}, {frame:?}");
        }
    }
}

/// Where an element between changes the aspect, the frames behind it count.
#[test]
fn scaled_frames_get_the_rectangle_of_the_size_that_arrives() {
    let model = constant_head(&["n", "3", "h", "w"]).metadata("imgsz", "[128, 128]").metadata("stride", "32");
    let model = model.save(&scratch("scaled-rectangle").join("open.onnx"));
    let (outcome, inputs) = crate::common::preprocess::tensors(&format!(
        "{SOURCE} ! trtpreprocess name=p ! videoscale ! video/x-raw,width=64,height=32 ! \
         trtinfer backend=rten model-file={model} ! fakesink"
    ));
    outcome.expect_success();
    assert_eq!(inputs[0].desc(), "images f32 1x3x64x128");
}

#[test]
fn boxes_of_a_rectangle_lie_in_the_frame() {
    let model = Graph::new()
        .input("images", F32, &["n", "3", "h", "w"])
        .constant("output0", &[1, 1, 6], &[8.0, 8.0, 24.0, 24.0, 0.9, 0.0])
        .metadata("end2end", "True")
        .metadata("imgsz", "[64, 64]")
        .metadata("stride", "32");
    let model = model.save(&scratch("rectangle-boxes").join("constant.onnx"));
    for (properties, y) in [("", 8.0), ("input-size=64x64", -8.0)] {
        let outcome = launch(&format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=64,height=32 ! trtpreprocess ! \
             trtinfer model-file={model} {properties} ! trtnms post-messages=true ! fakesink"
        ));
        outcome.expect_success();
        let detections = outcome.elements.iter().find(|s| s.name() == "trt-detections").unwrap();
        let object = detections.get::<gst::ArrayRef>("detections").unwrap()[0].get::<gst::Structure>().unwrap();
        // In the square, 16 rows above the frame are padding.
        let (top, bottom) = (f64::max(y, 0.0), y + 16.0);
        let place = ["x", "y", "w", "h"].map(|side| object.get::<f64>(side).unwrap());
        assert_eq!(place, [8.0, top, 16.0, bottom - top], "{properties}");
    }
}

#[test]
fn every_nth_frame_is_inferred() {
    let model = constant_head(&["1", "3", "2", "4"]).save(&scratch("interval").join("head.onnx"));
    let mut bench = Bench::new(&format!("model-file={model} interval=3"), RGB);
    let pattern = |bench: &mut Bench, frames| -> String {
        let kind = |payload: Arc<Payload>| if matches!(*payload, Payload::Skipped { .. }) { '-' } else { 'x' };
        (0..frames).map(|_| kind(bench.push(&frame()))).collect()
    };
    assert_eq!(pattern(&mut bench, 8), "x--x--x-");
    bench.trtinfer().set_property("interval", 2u32);
    assert_eq!(pattern(&mut bench, 5), "x-x-x", "from the next frame on");
    bench.trtinfer().set_property("interval", 1u32);
    assert_eq!(pattern(&mut bench, 3), "xxx");

    let stats = bench.trtinfer().property::<gst::Structure>("stats");
    let count = |name| stats.get::<u64>(name).unwrap();
    assert_eq!([count("frames"), count("inferred"), count("skipped")], [16, 9, 7]);
    assert!(stats.get::<f64>("mean-ms").unwrap() > 0.0 && stats.get::<f64>("last-ms").unwrap() > 0.0, "{stats}");
}

#[test]
fn counts_start_at_zero() {
    let model = constant_head(&["1", "3", "64", "64"]).save(&scratch("stats").join("head.onnx"));
    let line = format!("{SOURCE} ! trtpreprocess ! trtinfer name=infer model-file={model} ! fakesink");
    init();
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let infer = pipeline.by_name("infer").unwrap();
    let frames = || infer.property::<gst::Structure>("stats").get::<u64>("frames").unwrap();
    assert_eq!(frames(), 0);
    for _ in 0..2 {
        crate::common::run(&pipeline).expect_success();
        assert_eq!(frames(), 1, "to be read after the end");
    }
}

#[test]
fn model_info_has_the_files_description() {
    let names = r#"{0: "it's", 1: 'say "hi"', 2: 'both \' and "', 3: 'straße 日本', 4: 'a: {b}, c'}"#;
    let model = Graph::new()
        .input("images", F32, &["batch", "3", "h", "w"])
        .constant("boxes", &[1, 1, 4], &[0.0; 4])
        .constant("scores", &[1, 1, 5], &[0.0; 5])
        .metadata("names", names)
        .metadata("stride", "16")
        .metadata("task", "detect")
        .metadata("imgsz", "[32, 48]")
        .metadata("description", "A test's model")
        .metadata("my key", "its value")
        .save(&scratch("model-info").join("info.onnx"));
    init();
    let infer = gst::ElementFactory::make("trtinfer").property("model-file", &model).build().unwrap();
    assert!(infer.property::<Option<gst::Structure>>("model-info").is_none());
    infer.set_state(gst::State::Paused).unwrap();
    let info = infer.property::<gst::Structure>("model-info");
    infer.set_state(gst::State::Null).unwrap();
    assert!(infer.property::<Option<gst::Structure>>("model-info").is_none());

    let text = |name| info.get::<String>(name).unwrap();
    assert_eq!(text("file"), model);
    assert_eq!(text("producer"), "A test's model");
    assert_eq!(text("backend"), "rten");
    assert_eq!(text("task"), "detect");
    assert_eq!(text("tensor"), "cpu f32 1x3x32x48 nchw rgb letterbox:114 scale:0.003921569 images");
    assert_eq!(info.get::<u32>("stride").unwrap(), 16);
    assert_eq!(info.get::<gst::Structure>("metadata").unwrap().get::<&str>("my-key").unwrap(), "its value");
    let list = |name| -> Vec<String> {
        info.get::<gst::ArrayRef>(name).unwrap().iter().map(|value| value.get().unwrap()).collect()
    };
    assert_eq!(list("labels"), ["it's", "say \"hi\"", "both ' and \"", "straße 日本", "a: {b}, c"]);
    assert_eq!(list("inputs"), ["images f32 ?x3x?x?"]);
    assert_eq!(list("outputs"), ["boxes f32 1x1x4", "scores f32 1x1x5"]);
}

#[test]
fn model_info_of_a_bare_model_has_every_field() {
    let model = constant_head(&["1", "3", "8", "8"]).save(&scratch("bare").join("bare.onnx"));
    let bench = Bench::new(&format!("model-file={model}"), RGB);
    let info = bench.trtinfer().property::<gst::Structure>("model-info");
    assert_eq!(info.get::<&str>("producer"), Ok(""));
    assert_eq!(info.get::<Option<&str>>("task"), Ok(None));
    assert_eq!(info.get::<u32>("stride"), Ok(0));
    assert!(info.get::<gst::ArrayRef>("labels").unwrap().is_empty());
}

// --------------------------------------------------------------------- tensors

#[test]
fn a_constant_head_is_found() {
    let model = Graph::new()
        .input("images", F32, &["1", "3", "64", "64"])
        .constant("output0", &[1, 2, 6], &[8.0, 8.0, 24.0, 24.0, 0.9, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        .metadata("names", "{0: 'a', 1: 'b'}")
        .metadata("end2end", "True")
        .save(&scratch("constant-head").join("constant.onnx"));
    let outcome = launch(&format!(
        "{SOURCE} ! trtpreprocess ! trtinfer model-file={model} ! trtnms post-messages=true ! fakesink"
    ));
    outcome.expect_success();
    let detections = outcome.elements.iter().find(|s| s.name() == "trt-detections").unwrap();
    let detections = detections.get::<gst::ArrayRef>("detections").unwrap();
    assert_eq!(detections.len(), 1);
    let object = detections[0].get::<gst::Structure>().unwrap();
    let place = ["x", "y", "w", "h"].map(|side| object.get::<f64>(side).unwrap());
    assert_eq!(
        (object.get("label"), place),
        (Ok("b"), [8.0, 8.0, 16.0, 16.0]),
        "corners, as end2end models write them"
    );
}

#[test]
fn inputs_of_each_type_and_order_hold_the_frame() {
    let folder = scratch("inputs");
    let scaled = |value: &f32| value / 255.0;
    let chw: Vec<f32> = planar().iter().map(scaled).collect();
    let hwc: Vec<f32> = frame().iter().map(|&value| f32::from(value) / 255.0).collect();
    for (name, elem_type, dims, wanted, tolerance) in [
        ("f32", F32, ["1", "3", "2", "4"], chw.clone(), 1e-7),
        ("f16", F16, ["1", "3", "2", "4"], chw, 3e-4),
        ("u8", U8, ["1", "3", "2", "4"], planar(), 0.0), // such models normalise by themselves
        ("f32-nhwc", F32, ["1", "2", "4", "3"], hwc, 1e-7),
        ("u8-nhwc", U8, ["1", "2", "4", "3"], frame().iter().map(|&value| value.into()).collect(), 0.0),
    ] {
        let model = Graph::new()
            .input("images", elem_type, &dims)
            .node("Identity", &["images"], &["output0"], Vec::new())
            .output("output0", elem_type, &dims)
            .save(&folder.join(format!("{name}.onnx")));
        let outputs = Bench::new(&format!("model-file={model}"), RGB).outputs(&frame());
        let dtype = name.split('-').next().unwrap();
        assert_eq!(outputs[0].0, format!("output0 {dtype} {}", dims.join("x")));
        assert_close(&outputs[0].1, &wanted, tolerance);
    }
}

#[test]
fn a_one_channel_model_sees_luma() {
    let dims = ["1", "1", "2", "4"];
    let model = Graph::new()
        .input("images", U8, &dims)
        .node("Identity", &["images"], &["output0"], Vec::new())
        .output("output0", U8, &dims)
        .save(&scratch("gray").join("gray.onnx"));
    let caps = "video/x-raw,format=GRAY8,width=4,height=2,framerate=1/1,colorimetry=1:4:0:0";
    let outputs = Bench::new(&format!("model-file={model}"), caps).outputs(&[0, 10, 20, 30, 40, 50, 60, 250]);
    assert_eq!(outputs[0].1, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 250.0]);
}

#[test]
fn outputs_keep_their_order_types_and_values() {
    let types = [("i64", I64), ("f16", F16), ("bool", BOOL), ("f32", F32), ("i8", I8), ("u8", U8), ("i32", I32)];
    let mut graph = Graph::new().input("images", U8, &["1", "3", "2", "4"]);
    for (name, elem_type) in types {
        graph = graph.node("Cast", &["images"], &[name], vec![int("to", elem_type.into())]).output(
            name,
            elem_type,
            &["1", "3", "2", "4"],
        );
    }
    let model = graph.save(&scratch("outputs").join("casts.onnx"));
    let outputs = Bench::new(&format!("model-file={model}"), RGB).outputs(&frame());
    assert_eq!(outputs.len(), types.len());
    for ((name, _), (desc, found)) in types.into_iter().zip(&outputs) {
        assert_eq!(*desc, format!("{name} {name} 1x3x2x4"));
        let wanted = match name {
            "bool" => planar().iter().map(|&value| f32::from(value != 0.0)).collect(),
            _ => planar(),
        };
        assert_eq!(*found, wanted, "{name}");
    }
}

#[test]
fn outputs_have_the_dimensions_that_were_computed() {
    let model = Graph::new()
        .input("images", F32, &["1", "3", "2", "4"])
        .node("Identity", &["images"], &["output0"], Vec::new())
        .output("output0", F32, &["1", "300", "6"])
        .save(&scratch("declared").join("declared.onnx"));
    let outputs = Bench::new(&format!("model-file={model}"), RGB).outputs(&frame());
    assert_eq!(outputs[0].0, "output0 f32 1x3x2x4");
}

#[test]
fn inputs_other_than_the_picture_are_filled() {
    let folder = scratch("side-inputs");
    for (name, elem_type, wanted) in [
        ("orig_target_sizes", I64, "i64"), // width first
        ("orig_target_sizes", I32, "i32"),
        ("im_shape", F32, "f32"), // height first
        ("scale_factor", F32, "f32"),
    ] {
        let model = Graph::new()
            .input(name, elem_type, &["n", "2"])
            .input("images", F32, &["n", "3", "32", "64"])
            .node("Identity", &[name], &["output0"], Vec::new())
            .output("output0", elem_type, &["n", "2"])
            .save(&folder.join(format!("{name}-{wanted}.onnx")));
        let outputs = Bench::new(&format!("model-file={model}"), RGB).outputs(&frame());
        let values = match name {
            "orig_target_sizes" => [64.0, 32.0],
            "im_shape" => [32.0, 64.0],
            _ => [1.0, 1.0],
        };
        assert_eq!(outputs, [(format!("output0 {wanted} 1x2"), values.to_vec())]);
    }
}

#[test]
fn weights_among_the_inputs_are_no_inputs() {
    let model = Graph::new()
        .input("weight", F32, &["1"]) // as files before IR version 4 have it
        .input("images", F32, &["1", "3", "2", "4"])
        .weight("weight", F32, &[1], 255f32.to_le_bytes().into())
        .node("Mul", &["images", "weight"], &["output0"], Vec::new())
        .output("output0", F32, &["1", "3", "2", "4"])
        .save(&scratch("old-ir").join("old.onnx"));
    let outputs = Bench::new(&format!("model-file={model}"), RGB).outputs(&frame());
    assert_close(&outputs[0].1, &planar(), 1e-4);
}

#[test]
fn any_file_name_will_do() {
    let folder = scratch("file names");
    for name in ["modèle numéro 1.onnx", "MODEL.ONNX", "model.bin", "model"] {
        let model = constant_head(&["1", "3", "64", "64"]).save(&folder.join(name));
        infer(&format!("model-file=\"{model}\"")).expect_success();
    }
}

// --------------------------------------------------------------- in a pipeline

#[test]
fn frames_that_lack_the_right_tensor_are_refused() {
    let folder = scratch("wrong-tensors");
    let fixed = constant_head(&["1", "3", "64", "64"]).save(&folder.join("fixed.onnx"));
    let wrong = "StreamError::WrongType";
    let decoded = "video/x-raw,format=NV12,width=64,height=64,framerate=30/1,pixel-aspect-ratio=1/1,\
                   interlace-mode=progressive,colorimetry=bt709,chroma-site=mpeg2";
    for (line, parts) in [
        (format!("trtinfer model-file={fixed}"), &["without a tensor", "trtpreprocess ! trtinfer"][..]),
        (format!("videoconvert ! {decoded} ! trtinfer model-file={fixed}"), &["without a tensor"]),
        (
            format!("trtpreprocess ! trtinfer model-file={fixed} ! trtinfer model-file={fixed}"),
            &["another trtinfer", "trtpreprocess ! trtinfer"],
        ),
        (
            format!("trtpreprocess tensor-size=32x32 ! trtinfer model-file={fixed}"),
            &["images f32 1x3x32x32", "images f32 1x3x64x64", "tensor-…"],
        ),
        (format!("trtpreprocess tensor-type=f16 ! trtinfer model-file={fixed}"), &["images f16", "images f32"]),
        (format!("trtpreprocess tensor-type=u8 ! trtinfer model-file={fixed}"), &["images u8", "images f32"]),
        (format!("trtpreprocess tensor-order=nhwc ! trtinfer model-file={fixed}"), &["1x64x64x3", "1x3x64x64"]),
        (format!("trtpreprocess tensor-colors=gray ! trtinfer model-file={fixed}"), &["1x1x64x64", "1x3x64x64"]),
    ] {
        launch(&format!("{SOURCE} ! {line} ! fakesink")).expect_error(wrong, parts);
    }
}

#[test]
fn elements_and_fixed_caps_may_be_in_between() {
    let caps = "video/x-raw,format=I420,width=64,height=48,framerate=30/1";
    launch(&format!(
        "videotestsrc num-buffers=2 ! videoconvert ! capsfilter caps={caps} ! trtpreprocess ! queue ! \
         trtinfer model-file={} ! queue ! trtnms ! capsfilter caps={caps} ! fakesink",
        path("tests/models/shapes.onnx")
    ))
    .expect_success();
}
