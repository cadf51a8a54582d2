// SPDX-License-Identifier: MPL-2.0
//! Frames in GStreamer's CUDA memory: mapped where they lie, in one context for a whole pipeline, copied on the GPU; and
//! frames in pinned memory, made by elements that know nothing of it.
//!
//! Needs a GPU and nvcodec; prints SKIP where there is none, and fails instead with `REQUIRE_GPU=1`. `GPU_CLIP` names
//! an MP4 of H.264 other than the sample. The same binary runs on GStreamer 1.22, whose CUDA memory has no streams, and
//! on those after it, whose frames come while they are still written.

mod pinned_memory;

use gst::prelude::*;
use gst_app::AppSink;
use gst_video::{VideoMeta, VideoRegionOfInterestMeta};
use gsttrt::gst::cuda;
use gsttrt::gst::cuda::CudaContextSlot;
use gsttrt::gst::memory::pinned;
use gsttrt::gst::meta::tensor::{Payload, TensorMeta};
use gsttrt::gst::video::{Format, FramePool};
use gsttrt_core::cuda::driver::{Context, Stream, device_count};
use gsttrt_core::error::ErrorKind;
use gsttrt_core::image::device::DevicePlanes;
use gsttrt_core::memory::{DeviceBlock, DevicePool};
use gsttrt_core::tensor::Tensor;

const FORMATS: [&str; 7] = ["NV12", "P010_10LE", "I420", "RGBA", "BGRA", "RGB", "BGR"];

#[must_use]
fn gpu_or_skip() -> bool {
    crate::common::init();
    let missing = match cuda::available() {
        Err(error) => error.to_string(),
        Ok(()) if gst::ElementFactory::find("nvh264dec").is_none() => "there is no nvh264dec".into(),
        Ok(()) => return true,
    };
    crate::common::gpu::skip(missing);
    false
}

/// The sample clip, decoded by an element with such properties.
fn decoded(properties: &str) -> String {
    let named = std::env::var("GPU_CLIP").ok().filter(|path| !path.is_empty());
    let clip = named.unwrap_or_else(|| crate::common::path("tests/data/sample.mp4"));
    format!("filesrc location={clip} ! qtdemux ! h264parse ! nvh264dec {properties}")
}

/// A pipeline with an appsink called out.
struct Line {
    pipeline: gst::Pipeline,
    out: AppSink,
}

impl Line {
    fn new(line: &str) -> Self {
        crate::common::init();
        let line = format!("{line} ! appsink name=out sync=false max-buffers=2");
        let pipeline = gst::parse::launch(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
        if let Some(overlay) = pipeline.by_name("overlay") {
            add_regions(&overlay);
        }
        let out = pipeline.by_name("out").unwrap().downcast().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        Line { pipeline, out }
    }

    /// The next frame, and its format.
    #[track_caller]
    fn frame(&self) -> Option<(Format, gst::Buffer)> {
        let Ok(sample) = self.out.pull_sample() else {
            let said = self.pipeline.bus().unwrap().pop_filtered(&[gst::MessageType::Error]);
            assert!(said.is_none(), "{said:?}");
            return None;
        };
        Some((Format::from_caps(sample.caps().unwrap()).unwrap(), sample.buffer_owned().unwrap()))
    }

    fn frames(&self) -> impl Iterator<Item = (Format, gst::Buffer)> {
        std::iter::from_fn(|| self.frame())
    }

    fn element(&self, name: &str) -> gst::Element {
        self.pipeline.by_name(name).unwrap()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.pipeline.set_state(gst::State::Null).unwrap();
    }
}

/// Puts two regions that overlap on each frame before it reaches the element.
fn add_regions(element: &gst::Element) {
    let add = |_: &gst::Pad, info: &mut gst::PadProbeInfo| {
        let buffer = info.buffer_mut().unwrap().make_mut();
        for (label, rect) in [("disc", (20, 30, 90, 60)), ("box", (60, 40, 100, 150))] {
            VideoRegionOfInterestMeta::add(buffer, label, rect);
        }
        gst::PadProbeReturn::Ok
    };
    element.static_pad("sink").unwrap().add_probe(gst::PadProbeType::BUFFER, add);
}

/// The rows of each plane, without what is between them.
type Pixels = Vec<Vec<u8>>;

fn sizes(format: &Format) -> Vec<(usize, usize)> {
    let (width, height) = format.size();
    format.pixels.planes(width as usize, height as usize).to_vec()
}

/// What our own stream finds on the GPU.
fn on_gpu(format: &Format, buffer: &gst::BufferRef) -> Pixels {
    let frame = format.on_gpu(buffer, false).unwrap().expect("CUDA memory");
    let stream = Stream::new(&frame.context).unwrap();
    frame.order(&stream).unwrap();
    let blocks = copies(&stream, &frame.planes, &sizes(format));
    stream.synchronize().unwrap();
    blocks.iter().map(|block| block.read().unwrap()).collect()
}

fn copies(stream: &Stream, planes: &DevicePlanes, sizes: &[(usize, usize)]) -> Vec<DeviceBlock> {
    let pool = DevicePool::new(stream.context());
    let copy = |(plane, &(row, rows)): (&gsttrt_core::image::device::DevicePlane, &(usize, usize))| {
        let block = pool.take(row * rows).unwrap();
        // SAFETY: both have these rows, and the caller waits for the stream.
        unsafe { stream.copy_rows((plane.address, plane.stride), (block.address(), row), row, rows) }.unwrap();
        block
    };
    planes.iter().zip(sizes).map(copy).collect()
}

/// What a program that knows nothing of CUDA finds.
fn on_host(format: &Format, buffer: &gst::BufferRef) -> Pixels {
    let read = |frame: &gsttrt_core::image::frame::Frame| {
        let rows = |(plane, (row, _)): (&gsttrt_core::image::frame::Plane, (usize, usize))| {
            plane.data.chunks(plane.stride).flat_map(|line| &line[..row]).copied().collect()
        };
        Ok(frame.planes.iter().zip(sizes(format)).map(rows).collect())
    };
    format.read(buffer, &format.locate(buffer).unwrap(), read).unwrap()
}

fn context_of(buffer: &gst::BufferRef) -> Context {
    cuda::memory(buffer).expect("CUDA memory").context().unwrap()
}

/// The bytes of the tensor that rides on a frame, wherever they are.
fn tensor_bytes(buffer: &gst::BufferRef) -> Vec<u8> {
    with_tensor(buffer, |tensor| match tensor.device() {
        Some(block) => block.read().unwrap(),
        None => tensor.bytes().unwrap().to_vec(),
    })
}

fn with_tensor<T>(buffer: &gst::BufferRef, read: impl FnOnce(&Tensor) -> T) -> T {
    let payload = TensorMeta::get(buffer).expect("a tensor");
    assert!(matches!(*payload, Payload::Input(_)), "{payload:?}");
    let tensors = &payload.inputs().list[0].tensors;
    tensors.ready().map_or(Ok(()), |ready| ready.wait()).unwrap();
    read(&tensors[0])
}

/// Compares all frames of two pipelines, and returns how many there were.
#[track_caller]
fn compare<T: PartialEq>(
    (ours, ours_as): (&str, fn(&Format, &gst::BufferRef) -> T),
    (theirs, theirs_as): (&str, fn(&Format, &gst::BufferRef) -> T),
) -> usize {
    let (left, right) = (Line::new(ours), Line::new(theirs));
    let mut count = 0;
    for (format, buffer) in left.frames() {
        let (other, expected) = right.frame().expect("as many frames");
        assert!(ours_as(&format, &buffer) == theirs_as(&other, &expected), "frame {count} of {ours}");
        count += 1;
    }
    assert!(right.frame().is_none());
    count
}

#[test]
fn decoded_frames_equal_those_of_cudadownload() {
    if !gpu_or_skip() {
        return;
    }
    let downloaded = format!("{} ! cudadownload ! video/x-raw", decoded(""));
    let mut decoders = vec!["".to_string()];
    // From 1.24 on, frames may be the decoder's own surfaces.
    let decoder = gst::ElementFactory::make("nvh264dec").build().unwrap();
    if decoder.find_property("num-output-surfaces").is_some() {
        decoders.extend(["num-output-surfaces=0".to_string(), "num-output-surfaces=4".to_string()]);
    }
    for properties in decoders {
        let line = format!("{} ! video/x-raw(memory:CUDAMemory)", decoded(&properties));
        let count = compare((&line, on_gpu), (&downloaded, on_host));
        println!("nvh264dec {properties}: {count} frames equal");
        assert!(count > 10);
    }
}

#[test]
fn uploaded_frames_of_each_format_arrive() {
    if !gpu_or_skip() {
        return;
    }
    for format in FORMATS {
        let source = format!("videotestsrc num-buffers=3 ! video/x-raw,format={format},width=322,height=242");
        let line = format!("{source} ! cudaupload ! video/x-raw(memory:CUDAMemory)");
        assert_eq!(compare((&line, on_gpu), (&source, on_host)), 3, "{format}");
    }
}

#[test]
fn tensors_are_the_same_wherever_frames_are() {
    if !gpu_or_skip() {
        return;
    }
    fn read(_: &Format, buffer: &gst::BufferRef) -> Vec<u8> {
        tensor_bytes(buffer)
    }
    let preprocess = "trtpreprocess tensor-size=96x64";
    let cuda = format!("{} ! video/x-raw(memory:CUDAMemory) ! {preprocess}", decoded(""));
    // Where cudadownload passes CUDA memory on, only its caps are of system memory.
    let downloaded = format!("{} ! cudadownload ! video/x-raw ! {preprocess}", decoded(""));
    let count = compare((&cuda, read), (&downloaded, read));
    println!("{count} tensors equal");
    assert!(count > 10);
}

#[test]
fn trtoverlay_draws_the_same_wherever_frames_are() {
    if !gpu_or_skip() {
        return;
    }
    // What is hidden lies below what is drawn, and is hidden alone in the last.
    for privacy in ["", "blur=* mask=0.5,0.1,0.9,0.2,0.7,0.8", "draw=false pixelate=*"] {
        compare_overlays(&format!("trtoverlay name=overlay {privacy}"));
    }
}

fn compare_overlays(overlay: &str) {
    // What an appsink that takes any caps would get is in host memory.
    let on_card = "video/x-raw(memory:CUDAMemory)";
    for format in FORMATS {
        let source = format!("videotestsrc num-buffers=3 ! video/x-raw,format={format},width=322,height=242");
        let (cuda, host) = (format!("{source} ! cudaupload ! {on_card} ! {overlay}"), format!("{source} ! {overlay}"));
        assert_eq!(compare((&cuda, on_gpu), (&host, on_host)), 3, "{format}");
        let (empty, count) = (Line::new(&source), Line::new(&host));
        assert!(
            empty
                .frames()
                .zip(count.frames())
                .all(|((format, a), (_, b))| on_host(&format, &a) != on_host(&format, &b))
        );
    }
    // Surfaces of a decoder, which are its own, are copied once and drawn on.
    let cuda = format!("{} ! {on_card} ! {overlay}", decoded(""));
    let host = format!("{} ! cudadownload ! video/x-raw ! videoconvert ! {overlay}", decoded(""));
    let count = compare((&cuda, on_gpu), (&host, on_host));
    println!("{count} frames equal");
    assert!(count > 10);
}

#[test]
fn a_pipeline_has_one_context() {
    if !gpu_or_skip() {
        return;
    }
    let line =
        Line::new(&format!("{} ! trtpreprocess tensor-size=64x64 name=preprocess ! identity name=other", decoded("")));
    let (_, buffer) = line.frame().unwrap();
    let context = context_of(&buffer);
    assert!(with_tensor(&buffer, |tensor| *tensor.device().unwrap().context() == context));
    // An element that has nothing yet finds it by asking around.
    let slot = CudaContextSlot::default();
    assert_eq!(slot.ensure(&line.element("other"), -1).unwrap(), context);
    assert_eq!(slot.ensure(&line.element("other"), context.device()).unwrap(), context);
    // It is the same object for all, so that they share modules and events.
    assert_eq!(context_of(&line.frame().unwrap().1).raw(), context.raw());
    // Those of other pipelines on that GPU work in it too, their decoders included.
    assert_eq!(CudaContextSlot::default().ensure(&lonely(), -1).unwrap(), context);
    let another = Line::new(&format!("{} ! trtpreprocess tensor-size=64x64", decoded("")));
    assert_eq!(context_of(&another.frame().unwrap().1), context);
}

/// A pipeline knows one context, so those of its decoders that are on another GPU would have one each.
#[test]
fn streams_of_a_pipeline_share_the_context_of_their_gpu() {
    if !gpu_or_skip() {
        return;
    }
    let gpus = device_count().unwrap().min(2);
    let stream = |i: i32| {
        let gpu = i % gpus;
        let decoder = if gpu == 0 { "nvh264dec".into() } else { format!("nvh264device{gpu}dec") };
        let decoded = decoded("").replace("nvh264dec", &decoder);
        format!(
            "{decoded} ! trtpreprocess tensor-size=64x64 cuda-device-id={gpu} ! appsink name=out{i} sync=false max-buffers=1 "
        )
    };
    let line: String = (0..4).map(stream).collect();
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let context = |i: i32| {
        let out = pipeline.by_name(&format!("out{i}")).unwrap().downcast::<AppSink>().unwrap();
        context_of(out.pull_sample().unwrap().buffer().unwrap())
    };
    let contexts: Vec<Context> = (0..4).map(context).collect();
    if gpus > 1 {
        // Next to them one that only its decoder knows to be on the second one.
        let decoded = decoded("").replace("nvh264dec", "nvh264device1dec");
        let line = Line::new(&format!("{decoded} ! trtpreprocess tensor-size=64x64 ! identity name=other"));
        let theirs = context_of(&line.frame().unwrap().1);
        assert_eq!(theirs.device(), 1);
        assert_eq!(CudaContextSlot::default().ensure(&line.element("other"), -1).unwrap(), theirs);
    }
    pipeline.set_state(gst::State::Null).unwrap();
    for (i, context) in contexts.iter().enumerate() {
        assert_eq!(context.device(), i as i32 % gpus);
        assert_eq!(*context, contexts[i % gpus as usize], "stream {i}");
    }
}

/// An element in no pipeline.
fn lonely() -> gst::Element {
    gst::ElementFactory::make("identity").build().unwrap()
}

#[test]
fn a_context_is_passed_to_neighbours() {
    if !gpu_or_skip() {
        return;
    }
    // Ours comes first here: the decoder finds it in the pipeline, and so do those that are asked later.
    let bin = gst::Pipeline::new();
    let (first, second) = (lonely(), lonely());
    bin.add_many([&first, &second]).unwrap();
    let (one, two) = (CudaContextSlot::default(), CudaContextSlot::default());
    let context = one.ensure(&first, -1).unwrap();
    let contexts = bin.contexts();
    let shared = contexts.iter().find(|context| context.context_type() == "gst.cuda.context").unwrap();
    two.set(shared, 99);
    let mut query = gst::query::Context::new("gst.cuda.context");
    assert!(
        !two.answer(&second, 99, gst::PadDirection::Src, &mut query),
        "of another device than wished, so it was not taken"
    );
    two.set(shared, -1);
    assert_eq!(two.ensure(&second, -1).unwrap(), context);

    let mut query = gst::query::Context::new("gst.cuda.context");
    assert!(one.answer(&first, -1, gst::PadDirection::Src, &mut query));
    assert_eq!(query.context().unwrap().structure(), shared.structure());
    assert!(!one.answer(&first, -1, gst::PadDirection::Src, &mut gst::query::Context::new("gst.gl.GLDisplay")));
    assert!(!one.answer(&first, -1, gst::PadDirection::Src, &mut gst::query::Latency::new()));
}

#[test]
fn wrong_devices_are_refused_by_name() {
    if !gpu_or_skip() {
        return;
    }
    let error = CudaContextSlot::default().ensure(&lonely(), 99).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Settings);
    assert!(error.message().starts_with("There is no CUDA device 99. "), "{error}");
    let slot = CudaContextSlot::default();
    let context = slot.ensure(&lonely(), 0).unwrap();
    assert!(slot.follow(&context, 0).is_ok() && slot.follow(&context, -1).is_ok());
    let error = slot.follow(&context, 1).unwrap_err();
    assert!(error.message().contains("cuda-device-id is 1, and frames come from GPU 0"), "{error}");
}

/// The content of a context is checked before it is used.
#[test]
fn contexts_with_wrong_content_are_ignored() {
    crate::common::init();
    let mut context = gst::Context::new("gst.cuda.context", true);
    context.get_mut().unwrap().structure_mut().set("gst.cuda.context", lonely());
    let slot = CudaContextSlot::default();
    slot.set(&context, -1);
    assert!(!slot.answer(&lonely(), -1, gst::PadDirection::Src, &mut gst::query::Context::new("gst.cuda.context")));
}

/// Fills a frame by the CPU; `salt` makes frames differ.
fn scribble(format: &Format, buffer: &mut gst::BufferRef, salt: usize) {
    let fill = |frame: &mut gsttrt_core::image::frame::FrameMut| {
        for plane in &mut frame.planes {
            plane.data.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + i / 251 + salt) as u8);
        }
    };
    format.draw(buffer, fill).unwrap();
}

#[test]
fn copies_have_the_same_pixels_in_the_layout_of_pools() {
    if !gpu_or_skip() {
        return;
    }
    let context = CudaContextSlot::default().ensure(&lonely(), -1).unwrap();
    for name in FORMATS {
        for (width, height) in [(64, 48), (322, 242), (321, 243), (1920, 1080)] {
            let what = format!("{name} {width}x{height}");
            if name == "I420" && height % 2 == 1 && gst::version() < (1, 24, 4, 0) {
                continue; // libgstcuda itself lays out odd heights wrongly until then
            }
            let caps =
                format!("video/x-raw(memory:CUDAMemory),format={name},width={width},height={height},framerate=1/1");
            let caps: gst::Caps = caps.parse().unwrap();
            let format = Format::from_caps(&caps).unwrap();
            let (pool, size) = cuda::pool(&context, &caps, format.info.size() as u32, 2).unwrap();
            pool.set_active(true).unwrap();
            let mut buffer = pool.acquire_buffer(None).unwrap();
            assert!(size as usize >= format.info.size() && buffer.size() == size as usize, "{what}: {size}");
            let meta = buffer.meta::<VideoMeta>().expect("a layout");
            let layout = (meta.offset().to_vec(), meta.stride().to_vec());
            assert_eq!(context_of(&buffer), context);

            scribble(&format, buffer.get_mut().unwrap(), 1);
            let pixels = on_host(&format, &buffer);
            assert!(on_gpu(&format, &buffer) == pixels, "{what}: what the CPU wrote is on the GPU");
            let copier = FramePool::on_gpu(&format, &context).unwrap();
            assert_eq!(copier.context(), Some(&context));
            let stream = Stream::new(&context).unwrap();
            // SAFETY: both buffers are there when it is done, which is waited for.
            let mut copy = unsafe { copier.queue_copy(&buffer, &stream) }.unwrap();
            stream.synchronize().unwrap();
            assert!(on_gpu(&format, &copy) == pixels, "{what}: copied");
            assert!(on_host(&format, &copy) == pixels, "{what}: and read by the CPU");
            let metas: Vec<_> = copy.iter_meta::<VideoMeta>().collect();
            assert_eq!(metas.len(), 1);
            assert_eq!((metas[0].offset(), metas[0].stride()), (&layout.0[..], &layout.1[..]), "{what}");
            drop(metas);

            // Now the CPU has its copy. What the GPU writes must be what the CPU reads next.
            scribble(&format, buffer.get_mut().unwrap(), 2);
            let pixels = on_host(&format, &buffer);
            {
                let from = format.on_gpu(&buffer, false).unwrap().unwrap();
                let to = format.on_gpu(copy.get_mut().unwrap(), true).unwrap().unwrap();
                from.order(&stream).unwrap();
                to.order(&stream).unwrap();
                for ((from, to), (row, rows)) in from.planes.iter().zip(&to.planes).zip(sizes(&format)) {
                    // SAFETY: both have these rows, and are mapped until the stream is done.
                    unsafe { stream.copy_rows((from.address, from.stride), (to.address, to.stride), row, rows) }
                        .unwrap();
                }
                stream.synchronize().unwrap();
            }
            assert!(on_host(&format, &copy) == pixels, "{what}: written by the GPU, read by the CPU");
            pool.set_active(false).unwrap();
        }
    }
}

#[test]
fn decoders_are_offered_enough_cuda_frames() {
    if !gpu_or_skip() {
        return;
    }
    let line = Line::new(&format!("{} ! trtpreprocess tensor-size=64x64 name=preprocess", decoded("")));
    let (_, buffer) = line.frame().unwrap();
    let sink = line.element("preprocess").static_pad("sink").unwrap();
    let mut query = gst::query::Allocation::new(Some(&sink.current_caps().unwrap()), true);
    assert!(sink.query(&mut query));
    let (pool, size, min, max) = query.allocation_pools().next().unwrap();
    assert_eq!(pool.unwrap().type_().name(), "GstCudaBufferPool");
    assert!(min >= 8 && (max == 0 || max >= min), "{min} to {max}");
    assert!(size as usize >= buffer.size());
    assert!(query.find_allocation_meta::<VideoMeta>().is_some());
}

#[test]
fn without_cuda_there_is_an_error_and_no_memory() {
    if !crate::common::gpu::is_hidden("gst_cuda::without_cuda_there_is_an_error_and_no_memory") {
        return;
    }
    crate::common::init();
    assert_eq!(cuda::available().unwrap_err().kind(), ErrorKind::Library);
    let buffer = gst::Buffer::with_size(16).unwrap();
    assert!(cuda::memory(&buffer).is_none());
    let element = gst::ElementFactory::make("identity").build().unwrap();
    assert_eq!(CudaContextSlot::default().ensure(&element, -1).unwrap_err().kind(), ErrorKind::Library);
}
