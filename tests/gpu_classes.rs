// SPDX-License-Identifier: MPL-2.0
//! Classifiers on a GPU: the classes of the CPU, and written alike.
//!
//! Needs a GPU and a TensorRT that builds, which `TRT_LIBRARY` names as the property `trt-library`; says SKIP where one
//! is missing, and fails instead with `REQUIRE_GPU=1`.

use gst::meta::CustomMeta;
use gst_check::Harness;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::session::{Detector, parse_options};

use crate::common::onnx::{F32, Graph, int, ints};
use crate::common::random::Random;
use crate::common::{init, scratch};

/// Larger than the input both ways, and smaller; wide, and high.
const FRAMES: [(usize, usize); 4] = [(320, 180), (90, 200), (40, 24), (32, 32)];

/// The means of red, green and blue, of which the second output makes probabilities.
fn model(folder: &std::path::Path, softmax: bool) -> String {
    let graph = Graph::new().input("images", F32, &["n", "3", "32", "32"]).node(
        "ReduceMean",
        &["images"],
        &["means"],
        vec![ints("axes", &[2, 3]), int("keepdims", 0)],
    );
    let graph = if softmax {
        graph.node("Softmax", &["means"], &["output0"], vec![int("axis", 1)])
    } else {
        graph.node("Identity", &["means"], &["output0"], Vec::new())
    };
    let graph = graph.output("output0", F32, &["n", "3"]).metadata("names", "{0: 'red', 1: 'green', 2: 'blue'}");
    graph.metadata("task", "classify").save(&folder.join(format!("means-{softmax}.onnx")))
}

/// Much of green, less of red, and little of blue.
fn picture((width, height): (usize, usize)) -> Vec<u8> {
    let mut random = Random(5);
    let mut sample = |i: usize| (random.below(80) + [90, 170, 10][i % 3]) as u8;
    (0..width * height * 3).map(&mut sample).collect()
}

/// Class ids and confidences.
type Classes = Vec<(u32, f64)>;

/// What hangs on a frame of each size, and its pixels.
fn elements(model: &str, infer: &str) -> Vec<(Classes, Vec<u8>)> {
    init();
    let line = format!("trtpreprocess ! trtinfer model-file={model} {infer} ! trtnms score-threshold=0");
    let mut harness = Harness::new_parse(&line);
    let mut run = |size: (usize, usize)| {
        let (width, height) = size;
        harness.set_src_caps_str(&format!("video/x-raw,format=RGBA,width={width},height={height},framerate=1/1"));
        let pixels: Vec<u8> =
            picture(size).chunks_exact(3).flat_map(|pixel| [pixel[0], pixel[1], pixel[2], 255]).collect();
        harness.push(gst::Buffer::from_mut_slice(pixels)).unwrap();
        let buffer = harness.pull().unwrap();
        let meta = CustomMeta::from_buffer(&buffer, "GstTrtClassificationMeta").unwrap();
        let class = |value: &gst::glib::SendValue| {
            let class = value.get::<gst::Structure>().unwrap();
            (class.get("class-id").unwrap(), class.get("confidence").unwrap())
        };
        let classes = meta.structure().get::<gst::Array>("classes").unwrap().iter().map(class).collect();
        (classes, buffer.map_readable().unwrap().to_vec())
    };
    FRAMES.into_iter().map(&mut run).collect()
}

/// What a session tells of the same frames.
fn detector(model: &str, options: &[String]) -> Vec<Classes> {
    let texts = options.iter().map(String::as_str).chain(["score-threshold=0"]);
    let (options, wishes) = parse_options(texts).unwrap();
    let mut detector = Detector::open(model, &options, wishes).unwrap();
    let mut run = |size: (usize, usize)| {
        let ((width, height), pixels) = (size, picture(size));
        let planes = [Plane { data: &pixels[..], stride: 3 * width }].into_iter().collect();
        let frame = Frame { format: PixelFormat::Rgb, width, height, planes };
        assert_eq!(detector.detect(&frame, Colorimetry::default()).unwrap(), []);
        detector.classes().iter().map(|found| (found.class_id, f64::from(found.confidence))).collect()
    };
    FRAMES.into_iter().map(&mut run).collect()
}

#[track_caller]
fn assert_same(found: &Classes, expected: &Classes) {
    let is_near = |(a, b): (&(u32, f64), &(u32, f64))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-4;
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(is_near), "{found:?}, not {expected:?}");
}

#[test]
fn classes_on_a_gpu_are_those_of_the_cpu() {
    let library = crate::common::gpu::context().and_then(|_| crate::common::gpu::setting("TRT_LIBRARY"));
    let folder = scratch("gpu-classes");
    for softmax in [false, true] {
        let model = model(&folder, softmax);
        let expected = elements(&model, "backend=rten");
        for (classes, _) in &expected {
            assert_eq!(classes.iter().map(|class| class.0).collect::<Vec<_>>(), [1, 0, 2], "{classes:?}");
        }
        for (found, (expected, _)) in detector(&model, &["backend=rten".into()]).iter().zip(&expected) {
            assert_same(found, expected);
        }
        let Some(library) = &library else {
            crate::common::gpu::skip("there is no GPU, or TRT_LIBRARY is not set");
            continue;
        };
        let options = ["backend=tensorrt".into(), format!("trt-library={library}")];
        let options = options.into_iter().chain([format!("engine-cache={}", folder.display())]);
        let options: Vec<String> = options.chain(["optimization-level=0".into()]).collect();
        for ((classes, pixels), (expected, drawn)) in elements(&model, &options.join(" ")).iter().zip(&expected) {
            assert_same(classes, expected);
            assert!(pixels == drawn, "written alike");
        }
        for (found, (expected, _)) in detector(&model, &options).iter().zip(&expected) {
            assert_same(found, expected);
        }
    }
}
