// SPDX-License-Identifier: MPL-2.0
//! What the elements do with frames, a session does as well.

use gst::prelude::*;
use gsttrt_core::cuda::driver::Stream;
use gsttrt_core::memory::Buffer;

use super::*;
use crate::common::gpu::setting;
use crate::common::{init, path};

/// Frames of the sample clip in that format.
fn frames(format: &str) -> Vec<(gst_video::VideoInfo, gst::Buffer)> {
    init();
    let line = format!(
        "filesrc location={} ! decodebin ! videoconvert ! video/x-raw,format={format} ! appsink name=out sync=false",
        setting("GPU_CLIP").unwrap_or_else(|| path("tests/data/sample.mp4"))
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let out = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut frames = Vec::new();
    while frames.len() < 3 {
        let sample = out.pull_sample().unwrap();
        let info = gst_video::VideoInfo::from_caps(sample.caps().unwrap()).unwrap();
        frames.push((info, sample.buffer_owned().unwrap()));
    }
    pipeline.set_state(gst::State::Null).unwrap();
    frames
}

/// The pixels of frames of the sample clip, side by side, with width and height.
pub fn pictures(format: &str) -> Vec<(Vec<u8>, usize, usize)> {
    let picture = |(info, buffer): (gst_video::VideoInfo, gst::Buffer)| {
        let (width, height) = (info.width() as usize, info.height() as usize);
        (buffer.map_readable().unwrap()[..width * height * 3].to_vec(), width, height)
    };
    frames(format).into_iter().map(picture).collect()
}

/// Label, class; confidence, left, top, width and height.
type Plain = (String, u32, [f32; 5]);

fn plain(object: Object) -> Plain {
    let BBox { x1, y1, .. } = object.bbox;
    let numbers = [object.confidence, x1, y1, object.bbox.width(), object.bbox.height()];
    (object.label, object.class_id, numbers)
}

/// What the elements find in frames, by their messages: numbers as they are, not rounded to pixels.
fn objects_of_the_elements(frames: &[(gst_video::VideoInfo, gst::Buffer)], infer: &str, nms: &str) -> Vec<Vec<Plain>> {
    let line = format!("trtpreprocess ! trtinfer {infer} ! trtnms draw=false post-messages=true {nms}");
    let (mut harness, bus) = crate::common::elements::harness(&line);
    harness.set_src_caps(frames[0].0.to_caps().unwrap());
    let objects = |(_, buffer): &(gst_video::VideoInfo, gst::Buffer)| {
        harness.push_and_pull(buffer.copy()).unwrap();
        let message = bus.timed_pop_filtered(gst::ClockTime::from_seconds(5), &[gst::MessageType::Element]).unwrap();
        let detections = message.structure().unwrap().get::<gst::Array>("detections").unwrap();
        let objects = detections.iter().map(|value| {
            let detection = value.get::<gst::Structure>().unwrap();
            let number = |key: &str| detection.get::<f64>(key).unwrap();
            (
                detection.get::<String>("label").unwrap(),
                detection.get::<u32>("class-id").unwrap(),
                ["confidence", "x", "y", "w", "h"].map(number),
            )
        });
        objects
            // Width and height are differences; kept as they came.
            .map(|(label, class_id, numbers)| (label, class_id, numbers.map(|number| number as f32)))
            .collect()
    };
    frames.iter().map(objects).collect()
}

/// Compares what a detector finds in frames with what the elements find.
fn assert_same(detector: &mut Detector, pixels: PixelFormat, infer: &str, nms: &str) {
    let frames = frames(pixels.name());
    let wanted = objects_of_the_elements(&frames, infer, nms);
    assert!(wanted.iter().all(|objects| !objects.is_empty()), "{pixels:?}");
    for ((info, buffer), wanted) in frames.iter().zip(&wanted) {
        let color = gsttrt::gst::video::Format::from_caps(&info.to_caps().unwrap()).unwrap().color;
        let mapped = buffer.map_readable().unwrap();
        let planes = info.offset().iter().zip(info.stride());
        let planes = planes.map(|(&offset, &stride)| Plane { data: &mapped[offset..], stride: stride as usize });
        let (width, height) = (info.width() as usize, info.height() as usize);
        let frame = Frame { format: pixels, width, height, planes: planes.collect() };
        let found = detector.detect(&frame, color).unwrap();
        assert!(found.iter().all(|object| object.keypoints.is_empty() && object.mask.is_none()), "{pixels:?}");
        let found: Vec<Plain> = found.into_iter().map(plain).collect();
        assert_eq!(&found, wanted, "{pixels:?}");
    }
}

#[test]
fn the_detector_finds_what_the_elements_find() {
    for (pixels, nms, postprocess) in [
        (PixelFormat::I420, "", PostprocessOptions::default()),
        (PixelFormat::Nv12, "score-threshold=0.01 iou-threshold=0.9", {
            with(PostprocessOptions::default(), |options| {
                (options.score_threshold, options.iou_threshold) = (0.01, 0.9);
            })
        }),
        (PixelFormat::Bgrx, "classes=box max-detections=2", {
            with(PostprocessOptions::default(), |options| {
                (options.classes, options.max_detections) = ("box".into(), 2);
            })
        }),
    ] {
        let mut detector = Detector::open(shapes(), &on_cpu(), postprocess).unwrap();
        assert_same(&mut detector, pixels, &format!("model-file={} backend=rten", shapes()), nms);
    }
}

/// Needs a GPU and TensorRT, by `GPU_CLIP`, `GPU_MODEL` and `TRT_PROPERTIES` as tests/gpu_chain.rs does.
#[test]
fn on_the_gpu_too() {
    if crate::common::gpu::context().is_none() {
        return;
    }
    let Some(properties) = setting("TRT_PROPERTIES") else {
        return crate::common::gpu::skip("TRT_PROPERTIES is not set.");
    };
    let model = setting("GPU_MODEL").unwrap_or_else(shapes);
    let texts = properties.split_whitespace().chain(["backend=tensorrt"]);
    let (options, postprocess) = gsttrt_core::session::parse_options(texts).unwrap();
    let mut detector = Detector::open(&model, &options, postprocess).unwrap();
    assert_eq!(detector.session().backend(), "tensorrt");
    for pixels in [PixelFormat::Nv12, PixelFormat::Rgb] {
        assert_same(&mut detector, pixels, &format!("model-file={model} {properties} backend=tensorrt"), "");
    }
    // Host tensors come and go: the same input gives the same output.
    let session = detector.session_mut();
    let bytes = session.input().bytes().unwrap();
    let mut run = |value: u8| session.run_bytes(&vec![value; bytes]).unwrap()[0].bytes().unwrap().to_vec();
    let (zeros, others) = (run(0), run(52)); // an f32 of 2e-7 or an f16 of 0.26 in each element
    assert!(zeros == run(0) && others == run(52));
}

/// Needs a GPU and TensorRT, as [`on_the_gpu_too`].
#[test]
fn device_memory_is_used_in_place() {
    let Some(context) = crate::common::gpu::context() else { return };
    let Some(properties) = setting("TRT_PROPERTIES") else {
        return crate::common::gpu::skip("TRT_PROPERTIES is not set.");
    };
    let model = setting("GPU_MODEL").unwrap_or_else(shapes);
    let texts = properties.split_whitespace().chain(["backend=tensorrt"]);
    let (options, postprocess) = gsttrt_core::session::parse_options(texts).unwrap();
    let mut detector = Detector::open(&model, &options, postprocess).unwrap();
    let session = detector.session_mut();
    let (bytes, outputs) = (session.input().bytes().unwrap(), session.outputs().to_vec());
    let picture: Vec<u8> = (0..bytes).map(|i| (i % 61) as u8).collect(); // any bits, of small numbers
    let expected: Vec<Vec<u8>> =
        session.run_bytes(&picture).unwrap().iter().map(|tensor| tensor.bytes().unwrap().to_vec()).collect();

    // Its own.
    session.copy_bytes_to_device(&picture).unwrap();
    for _ in 0..4 {
        session.run_buffers().unwrap().expect("it is queued");
    }
    for (i, expected) in expected.iter().enumerate() {
        let mut found = vec![0; expected.len()];
        session.copy_bytes_to_host(i, &mut found).unwrap();
        assert!(found == *expected, "output {i}");
    }
    assert_eq!(session.buffers().unwrap().input.kind(), MemoryKind::Device);

    // The caller's, on the caller's stream.
    let stream = Stream::new(&context).unwrap();
    let mut input = Buffer::device(&context, bytes).unwrap();
    input.write(0, &picture).unwrap();
    let mut results: Vec<Buffer> =
        outputs.iter().map(|desc| Buffer::device(&context, desc.bytes().unwrap()).unwrap()).collect();
    let addresses: Vec<u64> = results.iter().map(|result| result.address().unwrap()).collect();
    let at = input.address().unwrap();
    for raw in [stream.raw(), std::ptr::null_mut()] {
        // SAFETY: all of it stays until the end.
        let fence = unsafe { session.run_device(at, &addresses, raw) }.unwrap();
        fence.wait().unwrap();
        for (result, expected) in results.iter().zip(&expected) {
            let mut found = vec![0; expected.len()];
            result.read(0, &mut found).unwrap();
            assert!(found == *expected);
        }
    }

    // On two streams in turn, among runs on its own, without a wait on the host: each behind what its stream was
    // given before, and before what that was given later. Only the session knows that runs share the memory that
    // they work in.
    let pictures = [picture.clone(), picture.iter().rev().copied().collect::<Vec<u8>>()];
    let of_each = pictures.each_ref().map(|picture| session.run_bytes(picture).unwrap()[0].bytes().unwrap().to_vec());
    assert!(of_each[0] != of_each[1]);
    let banks = pictures.map(|picture| {
        let mut bank = Buffer::device(&context, bytes).unwrap();
        bank.write(0, &picture).unwrap();
        bank
    });
    let sizes: Vec<usize> = expected.iter().map(Vec::len).collect();
    let streams = [Stream::new(&context).unwrap(), Stream::new(&context).unwrap()];
    let memory = [0, 1]
        .map(|_| [&[bytes], &sizes[..]].concat().into_iter().map(|bytes| Buffer::device(&context, bytes).unwrap()));
    let memory = memory.map(Iterator::collect::<Vec<_>>);
    let kept = [0; 30].map(|_| Buffer::device(&context, sizes[0]).unwrap());
    for (i, kept) in kept.iter().enumerate() {
        let (stream, bank) = (&streams[i % 2], &banks[i / 2 % 2]);
        let places: Vec<u64> = memory[i % 2].iter().filter_map(Buffer::address).collect();
        if i % 5 == 4 {
            session.run_buffers().unwrap();
        }
        // SAFETY: as above.
        unsafe {
            stream.copy((&context, bank.address().unwrap()), places[0], bytes).unwrap();
            session.run_device(places[0], &places[1..], stream.raw()).unwrap();
            stream.copy((&context, places[1]), kept.address().unwrap(), sizes[0]).unwrap();
        }
    }
    for stream in &streams {
        stream.synchronize().unwrap();
    }
    for (i, kept) in kept.iter().enumerate() {
        let mut found = vec![0; sizes[0]];
        kept.read(0, &mut found).unwrap();
        assert!(found == of_each[i / 2 % 2], "run {i}");
    }

    // In more buffers than there may be captured graphs.
    let place = |_| {
        let mut place = Buffer::device(&context, bytes).unwrap();
        place.write(0, &picture).unwrap();
        place
    };
    let places: Vec<Buffer> = (0..20).map(place).collect();
    for place in places.iter().cycle().take(50) {
        results[0].write(0, &vec![0xa5; expected[0].len()]).unwrap();
        // SAFETY: as above.
        let fence = unsafe { session.run_device(place.address().unwrap(), &addresses, std::ptr::null_mut()) }.unwrap();
        fence.wait().unwrap();
        let mut found = vec![0; expected[0].len()];
        results[0].read(0, &mut found).unwrap();
        assert!(found == expected[0]);
    }

    // What cannot be.
    let (host, small) = (Buffer::mapped(&context, bytes).unwrap(), Buffer::device(&context, 256).unwrap());
    for (input, expected_text) in [
        (host.address().unwrap(), "not memory of a GPU"),
        (at + 4, "multiple of 256"),
        (0, "multiple of 256"),
        (1 << 60, ""),
        (small.address().unwrap(), ""), // it may have neighbours
    ] {
        // SAFETY: it is refused, or there are neighbours.
        let outcome = unsafe { session.run_device(input, &addresses, std::ptr::null_mut()) };
        match outcome {
            Err(error) => assert!(error.message().contains(expected_text), "{error}"),
            Ok(fence) => {
                assert_eq!(expected_text, "");
                fence.wait().unwrap();
            }
        }
    }
    // SAFETY: it is refused.
    let error = unsafe { session.run_device(at, &[], std::ptr::null_mut()) }.unwrap_err();
    assert!(error.message().contains("0 are given"), "{error}");

    // Frames.
    let (info, buffer) = frames("NV12").remove(0);
    let (width, height) = (info.width() as usize, info.height() as usize);
    let map = buffer.map_readable().unwrap();
    let strides = [info.stride()[0] as usize, info.stride()[1] as usize];
    let rows = [&map[..strides[0] * height], &map[info.offset()[1]..][..strides[1] * height / 2]];
    let planes = rows.iter().zip(strides).map(|(&data, stride)| Plane { data, stride }).collect();
    let frame = Frame { format: PixelFormat::Nv12, width, height, planes };
    let blocks = rows.map(|rows| {
        let mut block = Buffer::device(&context, rows.len()).unwrap();
        block.write(0, rows).unwrap();
        block
    });
    let planes = blocks.iter().zip(strides);
    let planes = planes.map(|(block, stride)| DevicePlane { address: block.address().unwrap(), stride }).collect();
    let on_device = DeviceFrame { format: PixelFormat::Nv12, width, height, planes };
    let expected = detector.detect(&frame, Colorimetry::default()).unwrap();
    // SAFETY: the frame stays.
    let found = unsafe { detector.detect_device(&on_device, Colorimetry::default(), stream.raw()) }.unwrap();
    assert!(!expected.is_empty());
    assert_eq!(found, expected);
}
