// SPDX-License-Identifier: MPL-2.0
//! If any call of the driver fails, work that was enqueued before is waited for, so that no memory is released while it
//! is in use. The driver and TensorRT are those of tests/fakes, and need no GPU.

use std::path::Path;
use std::sync::Arc;

use super::{Detector, DeviceFrame, Session, SessionOptions};

use crate::backends::options::Options;
use crate::backends::{BackendPreference, LoadContext, LoadRequest, ModelInstance};
use crate::cuda::driver::{Context, Stream, find_contexts_by};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{ErrorKind, Result};
use crate::fakes::Fakes;
use crate::heads::{Decoder, HeadFormat, ModelHints, Thresholds, end_to_end, retinaface, scrfd};
use crate::image::align::{Crop, CropShape, FaceLandmarks};
use crate::image::device::{DevicePlane, DevicePlanes};
use crate::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use crate::image::geometry::Rect;
use crate::image::preprocess::device::DevicePreprocessor;
use crate::memory::{DeviceBlock, DevicePool};
use crate::model::ModelInfo;
use crate::postprocess::suppress::Nms;
use crate::postprocess::suppress::device::DeviceDecoder;
use crate::postprocess::{PostprocessOptions, Postprocessor};
use crate::tensor::{Tensor, TensorDesc, Tensors};

fn block(context: &Context, bytes: usize) -> DeviceBlock {
    DevicePool::new(context).take(bytes).unwrap()
}

#[test]
fn making_tensors() {
    let Some(fakes) = Fakes::of(module_path!(), "making_tensors") else { return };
    let context = fakes.context();
    let spec = "cuda f32 1x3x32x32 nchw rgb letterbox:114 scale:0.003921569 images".parse().unwrap();
    let new = || DevicePreprocessor::new(&context, PixelFormat::Nv12, (64, 48), Colorimetry::default(), &spec);
    let bytes = vec![128; 64 * 48 * 3 / 2];
    let (luma, chroma) = bytes.split_at(64 * 48);
    let planes = [luma, chroma].map(|data| Plane { data, stride: 64 });
    let frame = Frame { format: PixelFormat::Nv12, width: 64, height: 48, planes: planes.into_iter().collect() };
    let mut preprocessor = new().unwrap();
    fakes.each_call_fails("a frame of the host", || preprocessor.of_host(&frame));
    let memory = block(&context, bytes.len());
    let planes = [0, 64 * 48].map(|offset| DevicePlane { address: memory.address() + offset, stride: 64 });
    // SAFETY: the planes are of such a frame, and stay.
    fakes.each_call_fails("a frame of the GPU", || unsafe { preprocessor.of_gpu(&planes) });
    let several = vec![planes.into_iter().collect::<DevicePlanes>(); 10];
    // SAFETY: as above.
    fakes.each_call_fails("frames of the GPU", || unsafe { preprocessor.batch_of_gpu(&several) });
    fakes.each_call_fails("the first frame", || new()?.of_host(&frame));
}

/// Each frame has other regions, and their tables are read until its tensors are made.
#[test]
fn making_tensors_of_regions() {
    let Some(fakes) = Fakes::of(module_path!(), "making_tensors_of_regions") else { return };
    let context = fakes.context();
    let memory = block(&context, 64 * 48 * 3 / 2);
    let planes = [0, 64 * 48].map(|offset| DevicePlane { address: memory.address() + offset, stride: 64 });
    // By tables, and in one launch.
    for resize in ["center-crop:0", "letterbox:114"] {
        let spec = format!("cuda f32 1x3x32x32 nchw rgb {resize} scale:0.003921569 images").parse().unwrap();
        let new = || DevicePreprocessor::new(&context, PixelFormat::Nv12, (64, 48), Colorimetry::default(), &spec);
        let mut preprocessor = new().unwrap();
        let mut side = 16;
        let mut make = || {
            side = 16 + side % 32;
            let upright = [side, side + 1].map(|side| Crop::from(Rect { left: 0, top: 0, right: side, bottom: side }));
            let eyes_and_mouth = [[20.0, 20.0], [28.0, 20.0], [24.0, 25.0], [21.0, 30.0], [27.0, 30.0]];
            let face = Crop { shape: Some(CropShape::Face(FaceLandmarks(eyes_and_mouth))), ..upright[0] };
            // SAFETY: the planes are of such a frame, and stay.
            unsafe { preprocessor.regions_of_gpu(&planes, &[upright[0], face, upright[1]]) }
        };
        let frames = [(); 4].map(|()| make().unwrap());
        assert!(fakes.count(c"fake_pending") > 0, "nothing has waited for them");
        assert_eq!(fakes.count(c"fake_frees_during_work"), 0, "{resize}");
        drop(frames);
        fakes.each_call_fails(&format!("regions, {resize}"), make);
        fakes.each_call_fails(&format!("the first regions, {resize}"), || {
            let sources = [Crop::from(Rect { left: 1, top: 1, right: 33, bottom: 17 }); 2];
            // SAFETY: as above.
            unsafe { new()?.regions_of_gpu(&planes, &sources) }
        });
    }
}

/// What models of each task give.
#[test]
fn reading_outputs() {
    let Some(fakes) = Fakes::of(module_path!(), "reading_outputs") else { return };
    let context = fakes.context();
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models"));
    for name in ["shapes-seg", "figures-pose", "shapes-obb", "shapes-cls", "shapes-sem", "rooms-depth"] {
        let model = Arc::new(ModelInfo::read(&folder.join(format!("{name}.onnx"))).unwrap());
        let on_gpu = |desc: &TensorDesc| Tensor::on_device(desc.clone(), block(&context, desc.bytes().unwrap()));
        let outputs = Tensors::new(model.outputs.iter().map(on_gpu).collect(), None, None);
        let letterbox = model.input_spec(None, 1, Device::Host).unwrap().letterbox((64, 48));
        let new = |max_detections| {
            let options = PostprocessOptions { max_detections, ..PostprocessOptions::default() };
            Postprocessor::new(options, &model, &outputs, &letterbox)
        };
        fakes.each_call_fails(name, || new(300)?.find(&outputs, &letterbox));
        let mut processor = new(300).unwrap();
        // What a frame that failed has enqueued is waited for by the next one, or by the drop.
        fakes.each_call_fails(&format!("{name}, the next frame"), || {
            let failed = processor.find(&outputs, &letterbox);
            processor.find(&outputs, &letterbox).and(failed)
        });
        // Two are queued at the same time, and an error waits for both.
        if processor.has_boxes() {
            let (frames, mut found) = ([(&outputs, &letterbox); 3], Vec::new());
            fakes.each_call_fails(&format!("{name}, three frames"), || {
                processor.find_each(&frames, |_, number| found.push(number))
            });
            assert!(found.ends_with(&[0, 1, 2]), "{found:?}");
        }
        fakes.each_call_fails(&format!("{name}, more objects"), || {
            let mut processor = new(1)?;
            processor.find(&outputs, &letterbox)?;
            processor.adjust(PostprocessOptions { max_detections: 1000, ..processor.options().clone() })?;
            let failed = processor.find(&outputs, &letterbox);
            processor.find(&outputs, &letterbox).and(failed)
        });
    }
}

#[test]
fn finding_boxes() {
    let Some(fakes) = Fakes::of(module_path!(), "finding_boxes") else { return };
    let context = fakes.context();
    let by_stride = [[32, 1], [8, 1], [2, 1], [32, 4], [8, 4], [2, 4], [32, 10], [8, 10], [2, 10]];
    let heads: [(&'static HeadFormat, &[[i64; 2]]); 3] = [
        (&end_to_end::HEAD, &[[8, 6]]),
        // Joined first, and with points.
        (&scrfd::HEAD, &by_stride),
        // With prior boxes.
        (&retinaface::HEAD, &[[42, 4], [42, 2], [42, 10]]),
    ];
    for (head, outputs) in heads {
        let descs: Vec<TensorDesc> = outputs
            .iter()
            .map(|[rows, columns]| TensorDesc::new("output0", DType::F32, &[1, *rows, *columns]))
            .collect();
        let on_device = |desc: &TensorDesc| Tensor::on_device(desc.clone(), block(&context, desc.bytes().unwrap()));
        let outputs: Vec<Tensor> = descs.iter().map(on_device).collect();
        let hints = ModelHints { input: Some((32, 32)), ..ModelHints::default() };
        let decoder = Decoder::new(Some(head), &descs, &hints).unwrap();
        let outputs = decoder.pick(&outputs).unwrap();
        let (stream, nms) = (Arc::new(Stream::new(&context).unwrap()), Nms::new(0.5, 8, false));
        // What a frame that failed has enqueued is waited for by the next one, or by the drop.
        fakes.each_call_fails(&format!("a frame of {head}"), || {
            let mut device = DeviceDecoder::new(&context, &decoder)?;
            device.launch(&stream, &outputs, &Thresholds::new(vec![0.5, 0.5], 0.5), &nms)?;
            device.detections().map(drop)
        });
        let mut device = DeviceDecoder::new(&context, &decoder).unwrap();
        fakes.each_call_fails(&format!("the frame after one of {head} that failed"), || {
            let mut launch = |threshold| {
                device.launch(&stream, &outputs, &Thresholds::new(vec![threshold; 2], threshold), &nms)?;
                device.detections().map(drop)
            };
            let failed = launch(0.25);
            launch(0.5).and(failed)
        });
    }
}

/// The engine of tests/fakes/tensorrt.c.
fn load(fakes: &Fakes, context: &Context, batch: usize) -> Result<Box<dyn ModelInstance>> {
    let tensorrt = BackendPreference::Named("tensorrt");
    let request = LoadRequest::new(&fakes.engine(), tensorrt, None, batch, Options::default(), || Ok(context.clone()))?;
    request.load(&LoadContext::silent())
}

#[test]
fn running_engines() {
    let Some(fakes) = Fakes::of(module_path!(), "running_engines") else { return };
    let context = fakes.context();
    let desc = TensorDesc::new("images", DType::F32, &[1, 3, 8, 8]);
    let picture = || {
        let tensor = Tensor::on_device(desc.clone(), DevicePool::new(&context).take(desc.bytes().unwrap())?);
        Ok(Arc::new(Tensors::new(vec![tensor], None, None)))
    };
    let pictures = [(); 2].map(|()| picture().unwrap());
    let (stream, output) = (Stream::new(&context).unwrap(), block(&context, desc.bytes().unwrap()));
    for batch in [1, 2] {
        let mut model = load(&fakes, &context, batch).unwrap();
        for count in 1..=batch {
            // Runs are counted, captured and launched, behind one of a picture that is new.
            for run in ["first", "second", "third"] {
                let what = format!("the {run} runs of {count} pictures, a batch has {batch}");
                fakes.each_call_fails(&what, || Ok([model.run(&[picture()?])?, model.run(&pictures[..count])?]));
            }
        }
        for stream in [None, Some(stream.raw())] {
            let address = pictures[0][0].device().unwrap().address();
            // SAFETY: the memory has the tensors' sizes and stays; the stream is of this context.
            let mut run = || unsafe { model.run_at(address, &[output.address()], stream) }?.wait();
            fakes.each_call_fails(&format!("a caller's memory, stream {}", stream.is_some()), &mut run);
        }
        fakes.each_call_fails("loading", || load(&fakes, &context, batch));
    }
}

/// Runs share the memory that they work in.
#[test]
fn a_run_is_behind_the_one_on_a_callers_stream_also_where_its_wait_failed_at_first() {
    let name = "a_run_is_behind_the_one_on_a_callers_stream_also_where_its_wait_failed_at_first";
    let Some(fakes) = Fakes::of(module_path!(), name) else { return };
    let context = fakes.context();
    let mut model = load(&fakes, &context, 1).unwrap();
    let callers = Stream::new(&context).unwrap();
    let [picture, output] = [(); 2].map(|()| block(&context, 3 * 8 * 8 * 4));
    // SAFETY: the memory has the tensors' sizes and stays; the stream is of this context.
    let mut run = |stream| unsafe { model.run_at(picture.address(), &[output.address()], stream) };
    // The first one is counted, the second one captured, and the third one is launched on the caller's stream.
    (0..3).for_each(|_| drop(run(Some(callers.raw())).unwrap()));
    assert!(fakes.count(c"fake_pending") > 0);
    fakes.fail(0);
    run(None).map(drop).unwrap_err();
    assert_eq!((fakes.has_failed(), &*fakes.last_call()), (true, "cuStreamWaitEvent"));
    run(None).unwrap().wait().unwrap();
    assert_eq!(fakes.count(c"fake_pending"), 0);
}

/// The engine of tests/fakes/tensorrt.c, for batches of two.
fn session(fakes: &Fakes) -> Session {
    let mut options = SessionOptions { batch_size: 2, ..SessionOptions::default() };
    let cuda_graph = crate::backends::all_options().find(|option| option.spec.name == "cuda-graph").unwrap();
    options.options.set(cuda_graph, cuda_graph.spec.parse("off").unwrap());
    Session::open(fakes.engine(), &options).unwrap()
}

#[test]
fn lists_run_in_batches_on_a_gpu() {
    let Some(fakes) = Fakes::of(module_path!(), "lists_run_in_batches_on_a_gpu") else { return };
    let mut session = session(&fakes);
    assert_eq!((session.batch_size(), session.backend()), (2, "tensorrt"));
    let pictures: Vec<Vec<f32>> = (0..5).map(|picture| vec![picture as f32; 3 * 8 * 8]).collect();
    let inputs: Vec<&[u8]> = pictures.iter().map(|picture| bytemuck::cast_slice(picture)).collect();
    let outputs = session.run_batch(&inputs).unwrap();
    for (number, (outputs, picture)) in outputs.iter().zip(&pictures).enumerate() {
        let output = outputs[0].as_slice::<f32>().unwrap();
        assert_eq!(output[1..], picture[1..], "picture {number}");
        assert_eq!(1024.0 * output[0], if number == 4 { 1.0 } else { 2.0 }, "run with so many");
    }
    assert_eq!(outputs.len(), 5);
    fakes.each_call_fails("a list of pictures", || session.run_batch(&inputs));
}

#[test]
fn detecting_in_lists_of_frames() {
    let Some(fakes) = Fakes::of(module_path!(), "detecting_in_lists_of_frames") else { return };
    let options =
        PostprocessOptions { layout: Some(&crate::heads::semantic_logits::HEAD), ..PostprocessOptions::default() };
    let mut detector = Detector::new(session(&fakes), options).unwrap();
    let bytes = vec![128; 64 * 48 * 3];
    let frame = |width: usize, height: usize| {
        let planes = [Plane { data: &bytes, stride: width * 3 }].into_iter().collect();
        (Frame { format: PixelFormat::Rgb, width, height, planes }, Colorimetry::default())
    };
    // The first batch has frames of two kinds.
    let frames = [frame(64, 48), frame(32, 16), frame(32, 16)];
    let results = detector.detect_batch(&frames).unwrap();
    assert!(results.len() == 3 && results.iter().all(|results| results.map.is_some()));
    fakes.each_call_fails("three frames", || detector.detect_batch(&frames));
    // While the results of a batch are read, the model runs the next one.
    let mut frames = vec![frame(64, 48); 5];
    let mut seen = Vec::new();
    let is_busy = || fakes.count(c"fake_pending") > 0;
    detector.detect_batch_instances(&frames, |number, _| seen.push((number, is_busy()))).unwrap();
    assert_eq!(seen, [(0, true), (1, true), (2, true), (3, true), (4, false)]);
    // A frame that is wrong in the last batch is named, and the batch before it has ended.
    frames[4].0.planes[0].stride = 9;
    let error = detector.detect_batch(&frames).unwrap_err();
    assert!(error.message().starts_with("frames[4]: "), "{error}");
    assert!(!is_busy());
    assert_eq!(detector.detect_batch(&frames[..4]).unwrap().len(), 4);
    let planes = [DevicePlane { address: bytes.as_ptr().addr() as u64, stride: 64 * 3 }].into_iter().collect();
    let frame = DeviceFrame { format: PixelFormat::Rgb, width: 64, height: 48, planes };
    fakes.memory(bytes.as_ptr(), bytes.len(), 0, false);
    let frames = vec![(frame, Colorimetry::default()); 3];
    let mut found = Vec::new();
    // SAFETY: the planes stay, and are of such frames.
    let mut detect = || unsafe {
        detector.detect_device_batch_instances(&frames, std::ptr::null_mut(), |number, _| found.push(number))
    };
    detect().unwrap();
    fakes.each_call_fails("three frames of the GPU", &mut detect);
    assert_eq!(found[..3], [0, 1, 2]);
}

/// Where GStreamer pipelines of the process have made the context, as `run_device` says.
#[test]
fn frames_of_another_context_are_refused() {
    let Some(fakes) = Fakes::of(module_path!(), "frames_of_another_context_are_refused") else { return };
    find_contexts_by(|device| {
        let context = Context::primary(device).ok()?;
        // SAFETY: it is a context on that device, which its owner keeps.
        unsafe { Context::wrap(context.raw(), device, Box::new(context.clone())) }.ok()
    });
    let options =
        PostprocessOptions { layout: Some(&crate::heads::semantic_logits::HEAD), ..PostprocessOptions::default() };
    let mut detector = Detector::new(session(&fakes), options).unwrap();
    assert!(!detector.session().cuda().unwrap().is_primary());
    let bytes = vec![128u8; 64 * 48 * 3];
    let planes = [DevicePlane { address: bytes.as_ptr().addr() as u64, stride: 64 * 3 }].into_iter().collect();
    let frame = DeviceFrame { format: PixelFormat::Rgb, width: 64, height: 48, planes };
    let frames = vec![(frame.clone(), Colorimetry::default()); 2];
    fakes.memory(bytes.as_ptr(), bytes.len(), 0, true);
    // SAFETY: the planes stay, and are of such frames.
    let (one, list) = unsafe {
        let none = std::ptr::null_mut();
        let one = detector.detect_device(&frame, Colorimetry::default(), none).unwrap_err();
        (one, detector.detect_device_batch_instances(&frames, none, |_, _| ()).unwrap_err())
    };
    assert_eq!((one.kind(), list.kind()), (ErrorKind::WrongType, ErrorKind::WrongType));
    assert!(one.message().contains("another CUDA context than the session's"), "{one}");
    assert!(list.message().starts_with("frames[0]: Cannot use the frame: It was allocated in another"), "{list}");
    fakes.memory(bytes.as_ptr(), bytes.len(), 0, false);
    // SAFETY: as above.
    unsafe { detector.detect_device(&frame, Colorimetry::default(), std::ptr::null_mut()) }.unwrap();
}

/// What fails within TensorRT, which does not say so. Without a look at the GPU, an engine would be built again, and a good one be
/// thrown out of the cache.
#[test]
fn a_gpu_that_is_lost_in_an_engine() {
    let Some(fakes) = Fakes::of(module_path!(), "a_gpu_that_is_lost_in_an_engine") else { return };
    let context = fakes.context();
    let desc = TensorDesc::new("images", DType::F32, &[1, 3, 8, 8]);
    let tensor = Tensor::on_device(desc.clone(), block(&context, desc.bytes().unwrap()));
    let picture = Arc::new(Tensors::new(vec![tensor], None, None));
    let (mut model, mut never_used) = (load(&fakes, &context, 2).unwrap(), load(&fakes, &context, 1).unwrap());
    let outputs = model.run(std::slice::from_ref(&picture)).unwrap();
    fakes.break_gpu(719, -1);
    let error = model.run(&[picture.clone(), picture.clone()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    let text = error.message();
    assert!(
        text.starts_with("TensorRT 10.16.0 (lean) failed to run the engine: this process can use GPU 0 no more"),
        "{text}"
    );
    assert!(text.contains("CUDA_ERROR_LAUNCH_FAILED"), "{text}");
    assert_eq!(never_used.run(std::slice::from_ref(&picture)).unwrap_err().id(), error.id());
    assert_eq!(load(&fakes, &context, 1).map(drop).unwrap_err().kind(), ErrorKind::DeviceLost);
    drop((outputs, model, never_used, picture, context));
    assert_eq!(fakes.calls_when_dead(), 0);
}
