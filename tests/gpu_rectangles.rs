// SPDX-License-Identifier: MPL-2.0
//! Rectangles on a GPU: models with an open input, whose tensors have the shape of the frames, with the boxes of the
//! CPU; and tensors of parts of a frame, with the bytes of the CPU.
//!
//! Needs a GPU, for models also a TensorRT that builds, which `TRT_LIBRARY` names as the property `trt-library`; prints SKIP
//! where one is missing, and fails instead with `REQUIRE_GPU=1`.

use gst_check::Harness;
use gsttrt_core::cuda::driver::{Context, Stream};
use gsttrt_core::image::align::{Alignment, Crop, CropShape};
use gsttrt_core::image::device::DevicePlane;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::image::geometry::{BBox, Rect, ResizeMode};
use gsttrt_core::image::preprocess::align_kernel::AlignKernel;
use gsttrt_core::image::preprocess::aligned::HostAligner;
use gsttrt_core::image::preprocess::antialias_regions::AntialiasedRegionKernel;
use gsttrt_core::image::preprocess::kernel::PreprocessKernel;
use gsttrt_core::image::preprocess::region_kernel::RegionKernel;
use gsttrt_core::image::preprocess::{HostPreprocessor, Preprocessor};
use gsttrt_core::image::rotated::RotatedBox;
use gsttrt_core::image::text_lines::choose_widths;
use gsttrt_core::image::transform::{Chroma, InputSpec};
use gsttrt_core::memory::DevicePool;
use gsttrt_core::session::{Detector, parse_options};

use crate::common::boxes::{Line, SIDE, classifier, embedder, found, grey, model as boxes_model, numbers, wide_reader};
use crate::common::onnx::{F32, Graph, int, ints};
use crate::common::random::Random;
use crate::common::{init, scratch};

/// Wide, high, square, and the first once more.
const FRAMES: [(usize, usize); 4] = [(64, 32), (32, 64), (64, 64), (64, 32)];

/// Where the model takes any size: for each frame a tensor of its size.
const ANY_SIZE: [(usize, usize); 4] = FRAMES;

/// Where it is loaded for one: the first frame's, then the one that takes all.
const TWO_SIZES: [(usize, usize); 4] = [(64, 32), (64, 64), (64, 64), (64, 64)];

/// A detector keeps both.
const BOTH_SIZES: [(usize, usize); 4] = [(64, 32), (64, 64), (64, 64), (64, 32)];

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
    crate::common::gpu::context()?;
    let library = crate::common::gpu::setting("TRT_LIBRARY");
    if library.is_none() {
        crate::common::gpu::skip("TRT_LIBRARY is not set");
    }
    library
}

/// `trtpreprocess ! trtinfer ! trtnms` on frames of sizes that change.
///
/// The box of the model is in the corner of the tensor: in the padding, where the tensor has another shape than the frame.
fn run_elements(name: &str, properties: &str, tensors: [(usize, usize); 4]) {
    init();
    let model = model(&scratch(name));
    let mut harness =
        Harness::new_parse(&format!("trtpreprocess ! trtinfer name=infer model-file={model} {properties} ! trtnms"));
    for ((width, height), tensor) in FRAMES.into_iter().zip(tensors) {
        harness.set_src_caps_str(&format!("video/x-raw,format=RGB,width={width},height={height},framerate=1/1"));
        for _ in 0..2 {
            harness.push(gst::Buffer::from_mut_slice(vec![128; 3 * width * height])).unwrap();
            let buffer = harness.pull().unwrap();
            let boxes = found(&buffer);
            let rects: Vec<_> = boxes.iter().map(|found| found.rect).collect();
            let expected = [(0, 0, 16, 16)];
            let count = usize::from(tensor == (width, height));
            assert_eq!(rects, expected[..count], "{width}x{height} into {tensor:?}");
        }
    }
}

#[test]
fn elements_follow_the_frames_on_the_cpu() {
    run_elements("rectangles-cpu", "backend=rten", ANY_SIZE);
}

#[test]
fn elements_follow_the_frames_on_a_gpu() {
    let Some(library) = library() else { return };
    let cache = scratch("rectangle-engines");
    run_elements(
        "rectangles-gpu",
        &format!("backend=tensorrt trt-library={library} engine-cache={} optimization-level=0", cache.display()),
        TWO_SIZES,
    );
}

fn run_detector(name: &str, options: &[String], tensors: [(usize, usize); 4]) {
    let model = model(&scratch(name));
    let (options, wishes) = parse_options(options.iter().map(String::as_str)).unwrap();
    let mut detector = Detector::open(&model, &options, wishes).unwrap();
    for ((width, height), tensor) in FRAMES.into_iter().zip(tensors) {
        let grey = vec![128; 3 * width * height];
        let planes = [Plane { data: &grey, stride: 3 * width }].into_iter().collect();
        let frame = Frame { format: PixelFormat::Rgb, width, height, planes };
        let objects = detector.detect(&frame, Colorimetry::default()).unwrap();
        let corners: Vec<_> = objects.iter().map(|object| object.bbox).map(|b| [b.x1, b.y1, b.x2, b.y2]).collect();
        let count = usize::from(tensor == (width, height));
        assert_eq!(corners, [[0.0, 0.0, 16.0, 16.0]][..count], "{width}x{height} into {tensor:?}");
    }
    // By itself it is still what it was.
    assert_eq!(detector.session().input().dims.to_string(), "1x3x64x64");
}

#[test]
fn a_detector_follows_the_frames_on_the_cpu() {
    run_detector("detector-rectangles-cpu", &["backend=rten".into()], ANY_SIZE);
}

#[test]
fn a_detector_follows_the_frames_on_a_gpu() {
    let Some(library) = library() else { return };
    let cache = format!("engine-cache={}", scratch("detector-rectangle-engines").display());
    let library = format!("trt-library={library}");
    run_detector(
        "detector-rectangles-gpu",
        &["backend=tensorrt".into(), library, cache, "optimization-level=0".into()],
        BOTH_SIZES,
    );
}

/// Of every format, from odd pixels on too.
#[test]
fn tensors_of_parts_of_a_frame_are_those_of_the_cpu() {
    let Some(context) = crate::common::gpu::context() else { return };
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

/// Of every format, 70 rectangles by two launches: of one pixel, at the edges, overlapping, and the whole frame.
#[test]
fn tensors_of_many_parts_made_together_are_those_of_the_cpu() {
    let Some(context) = crate::common::gpu::context() else { return };
    let (stream, pool, mut random) = (Stream::new(&context).unwrap(), DevicePool::new(&context), Random(9));
    for (round, format) in PixelFormat::ALL.into_iter().flat_map(|format| [format; 8]).enumerate() {
        let (width, height) = (1 + random.below(90), 1 + random.below(90));
        let mut between = |size: usize| {
            let start = random.below(size);
            (start as u32, (start + 1 + random.below(size - start)) as u32)
        };
        let mut sources: Vec<Rect> = (0..68)
            .map(|_| {
                let ((left, right), (top, bottom)) = (between(width), between(height));
                Rect { left, top, right, bottom }
            })
            .collect();
        sources.push((width as u32, height as u32).into());
        let (right, bottom) = (width as u32, height as u32);
        sources.push(Rect { left: right - 1, top: bottom - 1, right, bottom });
        let color = Colorimetry {
            chroma_left: random.one_of(&[false, true]),
            chroma_top: random.one_of(&[false, true]),
            ..Colorimetry::default()
        };
        // Of an odd width elements are written one by one.
        let tensor = ["f32 1x3x24x40 nchw", "f16 1x24x40x3 nhwc", "u8 1x3x23x39 nchw", "f16 1x3x24x39 nchw"][round % 4];
        let mut spec: InputSpec = format!("cuda {tensor} rgb letterbox:114 scale:0.003921569 images").parse().unwrap();
        spec.transform.chroma = random.one_of(&Chroma::ALL);
        spec.transform.fit = random.one_of(&ResizeMode::ALL);
        spec.transform.shortest_edge = random.one_of(&[0, 0, 40, 57]);

        let planes: Vec<(usize, Vec<u8>)> = (format.planes(width, height).into_iter())
            .map(|(row, rows)| (row, (0..row * rows).map(|_| random.next() as u8).collect()))
            .collect();
        let frame = planes.iter().map(|(stride, data)| Plane { data, stride: *stride }).collect();
        let frame = Frame { format, width, height, planes: frame };
        let upload = |bytes: &[u8]| {
            let mut block = pool.take(bytes.len()).unwrap();
            block.write(bytes).unwrap();
            block
        };
        let blocks: Vec<_> = planes.iter().map(|(_, data)| upload(data)).collect();
        let on_device: Vec<_> = (blocks.iter().zip(&planes))
            .map(|(block, (stride, _))| DevicePlane { address: block.address(), stride: *stride })
            .collect();
        let bytes = spec.desc.bytes().unwrap();
        let tensors: Vec<_> = sources.iter().map(|_| upload(&vec![0; bytes])).collect();
        let regions = sources.iter().copied().zip(tensors.iter().map(|tensor| tensor.address()));
        // SAFETY: all have their sizes, and live until the work is done.
        unsafe {
            if spec.transform.fit == ResizeMode::CenterCrop {
                let kernel = AntialiasedRegionKernel::new(&context, format, (width, height), color, &spec);
                let mut kernel = kernel.unwrap().expect("antialiased");
                kernel.launch(&stream, &on_device, &regions.collect::<Vec<_>>()).unwrap();
                stream.synchronize().unwrap();
            } else {
                let kernel = RegionKernel::new(&context, format, (width, height), color, &spec).unwrap();
                kernel.expect("bilinear").launch(&stream, &on_device, regions).unwrap();
                stream.synchronize().unwrap();
            }
        }
        for (&source, tensor) in sources.iter().zip(&tensors) {
            let mut wanted = vec![0; bytes];
            let mut host = HostPreprocessor::of_region(format, (width, height), source, color, &spec).unwrap();
            host.run(&frame, &mut wanted).unwrap();
            assert!(tensor.read().unwrap() == wanted, "{} {width}x{height} {source:?} {spec}", format.name());
        }
    }
}

/// Of every format, 70 faces and boxes by two launches: turned and scaled in any way, in the frame, over its edges and outside.
#[test]
fn tensors_of_aligned_faces_are_those_of_the_cpu() {
    let Some(context) = crate::common::gpu::context() else { return };
    let (stream, pool, mut random) = (Stream::new(&context).unwrap(), DevicePool::new(&context), Random(11));
    for (round, format) in PixelFormat::ALL.into_iter().flat_map(|format| [format; 8]).enumerate() {
        let (width, height) = (1 + random.below(90), 1 + random.below(90));
        let mut faces: Vec<Alignment> = (0..68)
            .map(|_| Alignment {
                across: [random.between(-3.0, 3.0), random.between(-3.0, 3.0)],
                below: [random.between(-3.0, 3.0), random.between(-3.0, 3.0)],
                origin: [random.between(-40.0, 130.0), random.between(-40.0, 130.0)],
                extent: random.one_of(&[[40, 24], [17, 24], [40, 5], [1, 1]]),
            })
            .collect();
        faces.push(Alignment { across: [1.0, 0.0], below: [0.0, 1.0], origin: [0.0, 0.0], extent: [40, 24] });
        let corner = [width as f32 - 0.5, -0.5];
        faces.push(Alignment { across: [0.0, 0.5], below: [-0.5, 0.0], origin: corner, extent: [40, 24] });
        let color = Colorimetry {
            chroma_left: random.one_of(&[false, true]),
            chroma_top: random.one_of(&[false, true]),
            ..Colorimetry::default()
        };
        let tensor = ["f32 1x3x24x40 nchw", "f16 1x24x40x3 nhwc", "u8 1x3x23x39 nchw", "f16 1x1x24x39 nchw"][round % 4];
        let colors = if round % 4 == 3 { "gray" } else { "bgr" };
        let mut spec: InputSpec =
            format!("cuda {tensor} {colors} letterbox:114 scale:0.003921569 images").parse().unwrap();
        spec.transform.chroma = random.one_of(&Chroma::ALL);

        let planes: Vec<(usize, Vec<u8>)> = (format.planes(width, height).into_iter())
            .map(|(row, rows)| (row, (0..row * rows).map(|_| random.next() as u8).collect()))
            .collect();
        let frame = planes.iter().map(|(stride, data)| Plane { data, stride: *stride }).collect();
        let frame = Frame { format, width, height, planes: frame };
        let upload = |bytes: &[u8]| {
            let mut block = pool.take(bytes.len()).unwrap();
            block.write(bytes).unwrap();
            block
        };
        let blocks: Vec<_> = planes.iter().map(|(_, data)| upload(data)).collect();
        let on_device: Vec<_> = (blocks.iter().zip(&planes))
            .map(|(block, (stride, _))| DevicePlane { address: block.address(), stride: *stride })
            .collect();
        let bytes = spec.desc.bytes().unwrap();
        let tensors: Vec<_> = faces.iter().map(|_| upload(&vec![0xa5; bytes])).collect();
        let kernel = AlignKernel::new(&context, format, (width, height), color, &spec).unwrap();
        let all = faces.iter().copied().zip(tensors.iter().map(|tensor| tensor.address()));
        // SAFETY: all have their sizes, and live until the work is done.
        unsafe { kernel.launch(&stream, &on_device, all) }.unwrap();
        stream.synchronize().unwrap();
        let mut host = HostAligner::new(format, (width, height), color, &spec).unwrap();
        for (face, tensor) in faces.iter().zip(&tensors) {
            let mut wanted = vec![0; bytes];
            host.run(&frame, face, &mut wanted).unwrap();
            assert!(tensor.read().unwrap() == wanted, "{} {width}x{height} {face:?} {spec}", format.name());
        }
    }
}

/// Lines of text of several widths, of which some are upside down.
#[test]
fn lines_have_the_tensors_of_the_cpu() {
    let Some(context) = crate::common::gpu::context() else { return };
    let spec = |device: &str| -> InputSpec {
        let text = format!("{device} f16 1x3x16x64 nchw bgr letterbox:127 scale:0.003921569 max-width:200 images");
        text.parse().unwrap()
    };
    let (format, (width, height), color) = (PixelFormat::Nv12, (320, 96), Colorimetry::default());
    let mut random = Random(5);
    let planes: Vec<(usize, Vec<u8>)> = (format.planes(width, height).into_iter())
        .map(|(row, rows)| (row, (0..row * rows).map(|_| random.next() as u8).collect()))
        .collect();
    let frame = planes.iter().map(|(stride, data)| Plane { data, stride: *stride }).collect();
    let frame = Frame { format, width, height, planes: frame };
    let mut crops: Vec<Crop> = (0..80)
        .map(|number| {
            let (x, y) = (random.between(0.0, 320.0), random.between(0.0, 96.0));
            let bbox = BBox::from_center(x, y, random.between(4.0, 300.0), random.between(0.5, 30.0));
            let corners = RotatedBox { bbox, angle: random.between(0.0, 3.0) }.corners();
            let upright = Crop::from(Rect { left: 0, top: 0, right: 16, bottom: 8 });
            let shape = if number % 2 == 0 { CropShape::Box(corners) } else { CropShape::Line(corners) };
            Crop { shape: Some(shape), is_turned: number % 3 == 0, ..upright }
        })
        .collect();
    choose_widths(&mut crops, &spec("cuda"));
    let made = |context: Option<&Context>, device: &str| {
        let mut preprocessor = Preprocessor::new(context, format, (width, height), color, &spec(device)).unwrap();
        preprocessor.regions_of_host(&frame, &crops).unwrap()
    };
    let (here, there) = (made(None, "cpu"), made(Some(&context), "cuda"));
    for ((here, there), crop) in here.iter().zip(&there).zip(&crops) {
        there.wait().unwrap();
        assert_eq!(there[0].desc().dims, here[0].desc().dims, "{crop:?}");
        assert!(there[0].device().unwrap().read().unwrap() == here[0].bytes().unwrap(), "{crop:?}");
    }
}

#[test]
fn lines_are_as_wide_as_they_need_on_a_gpu() {
    let Some(library) = library() else { return };
    let folder = scratch("lines-gpu");
    let boxes: [[f32; 6]; 3] =
        [[0.0, 0.0, 64.0, 8.0, 0.9, 0.0], [8.0, 20.0, 60.0, 44.0, 0.8, 1.0], [0.0, 56.0, 64.0, 60.0, 0.7, 2.0]];
    let short: [[f32; 6]; 4] = [0.6, 0.5, 0.4, 0.3].map(|score| [0.0, 10.0, 16.0, 18.0, score, 0.0]);
    let (first, second) = (boxes_model(&folder, &[&boxes[..], &short].concat()), wide_reader(&folder));
    let alphabet = folder.join("alphabet.txt");
    std::fs::write(&alphabet, "H\ni\n_\n").unwrap();
    for batch in [1, 3] {
        let mut line = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={first} backend=rten ! trtnms draw=false ! trtpreprocess regions=objects align=box \
             min-object-size=4 ! trtinfer model-file={second} input-size=64x16 max-input-width=200 batch-size={batch} \
             backend=tensorrt trt-library={library} engine-cache={} optimization-level=0 ! trtnms layout=slots label-file={}",
            folder.join("engines").display(),
            alphabet.display()
        ));
        for _ in 0..3 {
            let buffer = line.push(grey(64 * 64 * 3));
            let lengths: Vec<usize> = buffer
                .iter_meta::<gst_video::VideoRegionOfInterestMeta>()
                .map(|meta| meta.param("classification").unwrap().get::<&str>("label").unwrap().len())
                .collect();
            assert_eq!(lengths, [128, 128, 200, 128, 128, 128, 128], "{batch}");
        }
        assert_eq!(line.said(), [""; 0], "{batch}");
    }
}

#[test]
fn parts_outside_the_frame_are_refused_before_the_launch() {
    let Some(context) = crate::common::gpu::context() else { return };
    let stream = Stream::new(&context).unwrap();
    let spec: InputSpec = "cuda f32 1x3x24x40 nchw rgb letterbox:114 scale:0.003921569 images".parse().unwrap();
    let (format, color) = (PixelFormat::Rgb, Colorimetry::default());
    let kernel = RegionKernel::new(&context, format, (16, 8), color, &spec).unwrap().expect("bilinear");
    let cropped: InputSpec = "cuda f32 1x3x24x40 nchw rgb center-crop:0 scale:1 images".parse().unwrap();
    let antialiased = AntialiasedRegionKernel::new(&context, format, (16, 8), color, &cropped).unwrap();
    let mut antialiased = antialiased.expect("antialiased");
    for source in [Rect { left: 0, top: 0, right: 17, bottom: 8 }, Rect { left: 4, top: 2, right: 4, bottom: 8 }] {
        let planes = [DevicePlane { address: 256, stride: 48 }];
        // SAFETY: nothing is launched.
        let refused = unsafe { kernel.launch(&stream, &planes, [(source, 512)].into_iter()) }.unwrap_err();
        assert!(refused.message().contains("a part of the frame"), "{refused}");
        // SAFETY: nothing is launched.
        let refused = unsafe { antialiased.launch(&stream, &planes, &[(source, 512)]) }.unwrap_err();
        assert!(refused.message().contains("a part of the frame"), "{refused}");
    }
    assert!(RegionKernel::new(&context, format, (16, 8), color, &cropped).unwrap().is_none());
    assert!(AntialiasedRegionKernel::new(&context, format, (16, 8), color, &spec).unwrap().is_none());
}

/// Slices of the frames of the test detector, which TensorRT runs in batches that fill and in such that do not: the
/// boxes are those of the CPU, to a pixel. With 16 bits the edges of discs that others cover are up to three pixels elsewhere.
#[test]
fn slices_have_the_objects_of_the_cpu() {
    let Some(library) = library() else { return };
    init();
    let folder = scratch("slices-gpu");
    let open = Graph::load(&crate::common::shapes()).with_batch("n").save(&folder.join("shapes-n.onnx"));
    let cache = folder.display();
    let objects = |infer: &str| {
        let mut harness = Harness::new_parse(&format!(
            "trtpreprocess slices=2x2 ! trtinfer {infer} ! trtnms draw=false score-threshold=0.4"
        ));
        harness.set_src_caps_str("video/x-raw,format=RGB,width=1280,height=720,framerate=1/1");
        let mut random = Random(5);
        let mut pixels = vec![96u8; 3 * 1280 * 720];
        for _ in 0..40 {
            let (x, y, radius) = (random.between(40.0, 1240.0), random.between(40.0, 680.0), random.between(8.0, 30.0));
            let color = [random.below(256) as u8, 240, random.below(64) as u8];
            for (row, column) in (0..720).flat_map(|row| (0..1280).map(move |column| (row, column))) {
                if (column as f32 - x).hypot(row as f32 - y) < radius {
                    pixels[3 * (row * 1280 + column)..][..3].copy_from_slice(&color);
                }
            }
        }
        let frames = (0..3).map(|_| {
            harness.push(gst::Buffer::from_slice(pixels.clone())).unwrap();
            found(&harness.pull().unwrap())
        });
        frames.collect::<Vec<_>>()
    };
    let wanted = objects(&format!("model-file={} backend=rten", crate::common::shapes()));
    assert!(wanted[0].len() > 10, "{}", wanted[0].len());
    for batch in [1, 4, 5] {
        let found = objects(&format!(
            "model-file={open} backend=tensorrt precision=fp32 trt-library={library} engine-cache={cache} optimization-level=0 \
             batch-size={batch}"
        ));
        for (found, wanted) in found.iter().zip(&wanted) {
            // A score near the threshold may be above it with one of both only.
            for wanted in wanted.iter().filter(|wanted| wanted.confidence > 0.5) {
                let is_near = |a: u32, b: u32| a.abs_diff(b) <= 1;
                let (x, y, w, h) = wanted.rect;
                let same = found.iter().find(|found| {
                    let (a, b, c, d) = found.rect;
                    is_near(a, x) && is_near(b, y) && c.abs_diff(w) <= 2 && d.abs_diff(h) <= 2
                });
                let same = same.unwrap_or_else(|| panic!("batch-size={batch}: {wanted:?} is missing in {found:?}"));
                assert!((same.confidence - wanted.confidence).abs() < 0.02 && same.label == wanted.label);
            }
        }
    }
}

/// Objects of a first model on a second one: the attributes of the CPU, wherever the pictures of a batch lie, and a frame without
/// objects.
#[test]
fn objects_have_the_attributes_of_the_cpu() {
    let Some(library) = library() else { return };
    init();
    let folder = scratch("regions-gpu");
    let rows =
        [[0.0, 0.0, 32.0, 32.0, 0.9, 0.0], [32.0, 32.0, 56.0, 56.0, 0.8, 0.0], [36.0, 0.0, 60.0, 20.0, 0.7, 1.0]];
    let (first, second) = (boxes_model(&folder, &rows), classifier(&folder, "n"));
    let attributes = |infer: &str, classes: &str| -> Vec<(String, f64)> {
        let mut harness = Harness::new_parse(&format!(
            "trtpreprocess ! trtinfer model-file={first} backend=rten ! trtnms draw=false classes={classes} \
             ! trtpreprocess regions=objects ! trtinfer model-file={second} {infer} ! trtnms draw=false"
        ));
        harness.set_src_caps_str("video/x-raw,format=RGB,width=64,height=64,framerate=1/1");
        let pixels = (0..64 * 64).flat_map(|at| [if at % 64 < 32 && at / 64 < 32 { 230 } else { 20 }; 3]);
        let pixels: Vec<u8> = pixels.collect();
        // Of some frames, pictures are in the places of two batches.
        let frames: Vec<Vec<(String, f64)>> = (0..6)
            .map(|_| {
                harness.push(gst::Buffer::from_mut_slice(pixels.clone())).unwrap();
                let buffer = harness.pull().unwrap();
                let params = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>().map(|meta| {
                    let param = meta.param("classification").expect("each object has one");
                    (param.get("label").unwrap(), param.get("confidence").unwrap())
                });
                params.collect()
            })
            .collect();
        assert!(frames.iter().all(|attributes| *attributes == frames[0]), "{frames:?}");
        frames[0].clone()
    };
    let wanted = attributes("backend=rten", "a,b");
    assert_eq!(wanted.iter().map(|(label, _)| label.as_str()).collect::<Vec<_>>(), ["bright", "dark", "dark"]);
    let cache = folder.display();
    for batch in [1, 2, 8] {
        let infer = format!(
            "backend=tensorrt trt-library={library} engine-cache={cache} optimization-level=0 batch-size={batch}"
        );
        let found = attributes(&infer, "a,b");
        assert_eq!(found.len(), 3);
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!(found.0 == wanted.0 && (found.1 - wanted.1).abs() < 0.01, "{batch}: {found:?} {wanted:?}");
        }
        assert!(attributes(&infer, "c").is_empty());
    }
}

/// Vectors of the objects of a first model are those of the CPU, wherever the pictures of a batch lie.
#[test]
fn objects_have_the_vectors_of_the_cpu() {
    let Some(library) = library() else { return };
    let folder = scratch("vectors-gpu");
    let rows =
        [[0.0, 0.0, 32.0, 32.0, 0.9, 0.0], [32.0, 32.0, 56.0, 56.0, 0.8, 0.0], [36.0, 0.0, 60.0, 20.0, 0.7, 1.0]];
    let (first, second) = (boxes_model(&folder, &rows), embedder(&folder, "n"));
    // Each part of the frame has its own mean.
    let pixels: Vec<u8> = (0..SIDE * SIDE)
        .flat_map(|at| [at % SIDE * 4, at / SIDE * 4, 255 - at % SIDE])
        .map(|value| value as u8)
        .collect();
    let vectors = |infer: &str, classes: &str| -> Vec<Vec<f32>> {
        let mut line = Line::parse(&format!(
            "trtpreprocess ! trtinfer model-file={first} backend=rten ! trtnms draw=false classes={classes} \
             ! trtpreprocess regions=objects ! trtinfer model-file={second} {infer} ! trtnms"
        ));
        let frames: Vec<Vec<Vec<f32>>> = (0..6)
            .map(|_| {
                let buffer = line.push(gst::Buffer::from_mut_slice(pixels.clone()));
                buffer
                    .iter_meta::<gst_video::VideoRegionOfInterestMeta>()
                    .map(|meta| numbers(meta.param("vector").expect("each object has one")))
                    .collect()
            })
            .collect();
        assert!(frames.iter().all(|vectors| *vectors == frames[0]), "{frames:?}");
        frames[0].clone()
    };
    let wanted = vectors("backend=rten", "a,b");
    assert_eq!(wanted.len(), 3);
    let is_near = |a: &[f32], b: &[f32], by: f32| a.iter().zip(b).all(|(a, b)| (a - b).abs() < by);
    assert!(!is_near(&wanted[0], &wanted[1], 0.05) && !is_near(&wanted[0], &wanted[2], 0.05), "{wanted:?}");
    let cache = folder.display();
    for batch in [1, 2, 8] {
        let infer = format!(
            "backend=tensorrt precision=fp32 trt-library={library} engine-cache={cache} optimization-level=0 batch-size={batch}"
        );
        let found = vectors(&infer, "a,b");
        assert_eq!(found.len(), wanted.len(), "{batch}");
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!(found.len() == 3 && is_near(found, wanted, 1e-4), "{batch}: {found:?} {wanted:?}");
        }
        assert!(vectors(&infer, "c").is_empty(), "{batch}");
    }
}
