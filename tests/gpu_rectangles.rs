// SPDX-License-Identifier: MPL-2.0
//! Rectangles on a GPU: models with an open input, whose tensors have the shape of the frames, with the boxes of the CPU; and
//! tensors of parts of a frame, with the bytes of the CPU.
//!
//! Needs a GPU, for models also a TensorRT that builds, which `TRT_LIBRARY` names as the property `trt-library`; prints SKIP
//! where one is missing, and fails instead with `REQUIRE_GPU=1`.
#![cfg(feature = "gstreamer")]

mod common;

use common::boxes::found;
use common::onnx::{F32, Graph, int, ints};
use common::random::Random;
use common::{init, scratch};
use gst_check::Harness;
use gsttrt::core::cuda::driver::Stream;
use gsttrt::core::memory::DevicePool;
use gsttrt::image::device::DevicePlane;
use gsttrt::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt::image::geometry::{Rect, ResizeMode};
use gsttrt::image::preprocess::HostPreprocessor;
use gsttrt::image::preprocess::kernel::PreprocessKernel;
use gsttrt::image::transform::{Chroma, InputSpec};
use gsttrt::session::{Detector, parse_options};

/// Wide, high, square, and the first once more: for each the tensor's size.
const FRAMES: [((usize, usize), (u32, u32)); 4] =
    [((64, 32), (64, 32)), ((32, 64), (32, 64)), ((64, 64), (64, 64)), ((64, 32), (64, 32))];

/// One box at the corner of the input, of any size.
fn model(folder: &std::path::Path) -> String {
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Graph::new()
        .input("images", F32, &["n", "3", "h", "w"])
        .weight("zero", F32, &[1, 1, 1], floats(&[0.0]))
        .weight("box", F32, &[1, 1, 6], floats(&[0.0, 0.0, 16.0, 16.0, 0.9, 0.0]))
        .node("ReduceMean", &["images"], &["rows"], vec![ints("axes", &[3]), int("keepdims", 0)])
        .node("ReduceMean", &["rows"], &["mean"], vec![ints("axes", &[1, 2]), int("keepdims", 1)])
        .node("Mul", &["mean", "zero"], &["nothing"], Vec::new())
        .node("Add", &["nothing", "box"], &["output0"], Vec::new())
        .output("output0", F32, &["n", "1", "6"])
        .metadata("end2end", "True")
        .metadata("imgsz", "[64, 64]")
        .metadata("stride", "32")
        .save(&folder.join("open.onnx"))
}

/// The TensorRT to use, where there is one.
fn library() -> Option<String> {
    common::gpu::context()?;
    let library = common::gpu::setting("TRT_LIBRARY");
    if library.is_none() {
        common::gpu::skip("TRT_LIBRARY is not set");
    }
    library
}

/// `trtpreprocess ! trtinfer ! trtnms` on frames of sizes that change.
fn run_elements(name: &str, properties: &str) {
    init();
    let model = model(&scratch(name));
    let mut harness =
        Harness::new_parse(&format!("trtpreprocess ! trtinfer name=infer model-file={model} {properties} ! trtnms"));
    for ((width, height), tensor) in FRAMES {
        harness.set_src_caps_str(&format!("video/x-raw,format=RGB,width={width},height={height},framerate=1/1"));
        for _ in 0..2 {
            harness.push(gst::Buffer::from_mut_slice(vec![128; 3 * width * height])).unwrap();
            let buffer = harness.pull().unwrap();
            let boxes = found(&buffer);
            assert_eq!(boxes.len(), 1, "{width}x{height} into {tensor:?}");
            assert_eq!(boxes[0].rect, (0, 0, 16, 16), "{width}x{height} into {tensor:?}");
        }
    }
}

#[test]
fn elements_follow_the_frames_on_the_cpu() {
    run_elements("rectangles-cpu", "backend=cpu");
}

#[test]
fn elements_follow_the_frames_on_a_gpu() {
    let Some(library) = library() else { return };
    let cache = scratch("rectangle-engines");
    run_elements(
        "rectangles-gpu",
        &format!("backend=tensorrt trt-library={library} engine-cache={} optimization-level=0", cache.display()),
    );
}

fn run_detector(name: &str, options: &[String]) {
    let model = model(&scratch(name));
    let (options, wishes) = parse_options(options.iter().map(String::as_str)).unwrap();
    let mut detector = Detector::open(&model, &options, wishes).unwrap();
    for ((width, height), tensor) in FRAMES {
        let grey = vec![128; 3 * width * height];
        let planes = [Plane { data: &grey, stride: 3 * width }].into_iter().collect();
        let frame = Frame { format: PixelFormat::Rgb, width, height, planes };
        let objects = detector.detect(&frame, Colorimetry::default()).unwrap();
        assert_eq!(objects.len(), 1, "{width}x{height} into {tensor:?}");
        let bbox = objects[0].bbox;
        assert_eq!([bbox.x1, bbox.y1, bbox.x2, bbox.y2], [0.0, 0.0, 16.0, 16.0], "{width}x{height} into {tensor:?}");
    }
    // By itself it is still what it was.
    assert_eq!(detector.session().input().dims.to_string(), "1x3x64x64");
}

#[test]
fn a_detector_follows_the_frames_on_the_cpu() {
    run_detector("detector-rectangles-cpu", &["backend=cpu".into()]);
}

#[test]
fn a_detector_follows_the_frames_on_a_gpu() {
    let Some(library) = library() else { return };
    let cache = format!("engine-cache={}", scratch("detector-rectangle-engines").display());
    let library = format!("trt-library={library}");
    run_detector(
        "detector-rectangles-gpu",
        &["backend=tensorrt".into(), library, cache, "optimization-level=0".into()],
    );
}

/// Of every format, from odd pixels on too.
#[test]
fn tensors_of_parts_of_a_frame_are_those_of_the_cpu() {
    let Some(context) = common::gpu::context() else { return };
    let (stream, pool, mut random) = (Stream::new(&context).unwrap(), DevicePool::new(&context), Random(7));
    for format in PixelFormat::ALL.into_iter().flat_map(|format| [format; 24]) {
        let (width, height) = (1 + random.below(90), 1 + random.below(90));
        let mut between = |size: usize| {
            let start = random.below(size);
            (start as u32, (start + 1 + random.below(size - start)) as u32)
        };
        let ((left, right), (top, bottom)) = (between(width), between(height));
        let source = Rect { left, top, right, bottom };
        let color = Colorimetry {
            chroma_left: random.one_of(&[false, true]),
            chroma_top: random.one_of(&[false, true]),
            ..Colorimetry::default()
        };
        let mut spec: InputSpec = "cuda f32 1x3x24x40 nchw rgb letterbox:114 scale:0.003921569 images".parse().unwrap();
        spec.transform.chroma = random.one_of(&Chroma::ALL);
        spec.transform.fit = random.one_of(&ResizeMode::ALL);
        spec.transform.shortest_edge = random.one_of(&[0, 0, 40, 57]);

        let planes: Vec<(usize, Vec<u8>)> = (format.planes(width, height).into_iter())
            .map(|(row, rows)| (row, (0..row * rows).map(|_| random.next() as u8).collect()))
            .collect();
        let frame = planes.iter().map(|(stride, data)| Plane { data, stride: *stride }).collect();
        let mut wanted = vec![0; spec.desc.bytes().unwrap()];
        let mut host = HostPreprocessor::of_region(format, (width, height), source, color, &spec).unwrap();
        host.run(&Frame { format, width, height, planes: frame }, &mut wanted).unwrap();

        let upload = |bytes: &[u8]| {
            let mut block = pool.take(bytes.len()).unwrap();
            block.write(bytes).unwrap();
            block
        };
        let kernel = PreprocessKernel::of_region(&context, format, (width, height), source, color, &spec).unwrap();
        assert_eq!(kernel.letterbox(), host.letterbox());
        let (blocks, tensor): (Vec<_>, _) =
            (planes.iter().map(|(_, data)| upload(data)).collect(), upload(&vec![0; wanted.len()]));
        let on_device: Vec<_> = (blocks.iter().zip(&planes))
            .map(|(block, (stride, _))| DevicePlane { address: block.address(), stride: *stride })
            .collect();
        // SAFETY: all have their sizes, and live until the work is done.
        unsafe { kernel.launch(&stream, &on_device, tensor.address()) }.unwrap();
        stream.synchronize().unwrap();
        assert!(tensor.read().unwrap() == wanted, "{} {width}x{height} {source:?} {spec}", format.name());
    }
}
