// SPDX-License-Identifier: MPL-2.0
//! The whole chain on frames that a GPU decoded: they stay in its memory, in the decoder's layout, and nothing stays behind.
//!
//! Needs a GPU, GStreamer's nvcodec and TensorRT; prints SKIP where one is missing, and fails instead with `REQUIRE_GPU=1`.
//! `GPU_MODEL` names a model other than shapes.onnx, `GPU_CLIP` an MP4 of H.264 other than the sample, and `TRT_PROPERTIES`
//! further properties of trtinfer, such as `trt-library=/opt/tensorrt/lib`.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use cudarc::driver::sys;
use gst::prelude::*;
use gsttrt::gst::meta::geometry::TensorSource;
use gsttrt::gst::meta::tensor::{ModelInput, ModelInputs, Payload, TensorMeta, Tiles};
use gsttrt_core::cuda::driver::{Context, Stream, device_count};
use gsttrt_core::image::geometry::{Letterbox, ResizeMode};
use gsttrt_core::image::transform::InputTransform;
use gsttrt_core::tensor::{Tensor, Tensors};

use crate::common::gpu::setting;
use crate::common::wait::{LIMIT, wait_until};
use crate::common::{gpu_chain_or_skip, has_element_or_skip, path, run, shapes};

fn decoder() -> String {
    let clip = setting("GPU_CLIP").unwrap_or_else(|| path("tests/data/sample.mp4"));
    format!("filesrc location={clip} ! qtdemux name=demux  h264parse name=parse ! nvh264dec name=decoder")
}

fn detector(nms: &str) -> String {
    let (model, more) = (setting("GPU_MODEL").unwrap_or_else(shapes), setting("TRT_PROPERTIES").unwrap_or_default());
    format!(
        "trtpreprocess name=preprocess ! trtinfer backend=tensorrt model-file={model} {more} ! queue ! trtnms name=nms {nms}"
    )
}

/// A launch line that begins with `decoder`. The demuxer makes its pad again with each start, which a launch line links
/// once only.
fn pipeline(line: &str) -> gst::Pipeline {
    let pipeline: gst::Pipeline = gst::parse::launch(line).unwrap().downcast().unwrap();
    let parse = pipeline.by_name("parse").unwrap().downgrade();
    pipeline.by_name("demux").unwrap().connect_pad_added(move |_, pad| {
        let sink = parse.upgrade().and_then(|parse| parse.static_pad("sink"));
        if let Some(sink) = sink.filter(|sink| !sink.is_linked()) {
            pad.link(&sink).expect("H.264");
        }
    });
    pipeline
}

/// Looks at every buffer that leaves an element.
fn watch(pipeline: &gst::Pipeline, element: &str, mut look: impl FnMut(&gst::Pad, &gst::BufferRef) + Send + 'static) {
    let look = Mutex::new(move |pad: &gst::Pad, buffer: &gst::BufferRef| look(pad, buffer));
    let pad = pipeline.by_name(element).unwrap().static_pad("src").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
        let buffer = info.buffer().expect("asked for");
        (look.lock().unwrap())(pad, buffer);
        gst::PadProbeReturn::Ok
    });
}

/// What identifies a frame in GPU memory: the memory itself, and where its planes begin.
type MemoryKind = (usize, Vec<usize>, Vec<i32>);

fn place(buffer: &gst::BufferRef) -> MemoryKind {
    assert!(buffer.peek_memory(0).is_type("gst.cuda.memory"), "a frame left GPU memory");
    let meta = buffer.meta::<gst_video::VideoMeta>().expect("frames of a pool have it");
    (buffer.peek_memory(0).as_ptr() as usize, meta.offset().to_vec(), meta.stride().to_vec())
}

#[test]
fn frames_are_the_decoders_own_up_to_the_sink() {
    if !gpu_chain_or_skip() {
        return;
    }
    let pipeline = pipeline(&format!("{} ! {} ! fakesink sync=false", decoder(), detector("draw=true")));
    let [decoded, shown] = [(); 2].map(|()| Arc::new(Mutex::new(Vec::<MemoryKind>::new())));
    for (element, places) in [("decoder", decoded.clone()), ("nms", shown.clone())] {
        watch(&pipeline, element, move |pad, buffer| {
            let caps = pad.current_caps().expect("before buffers");
            assert!(caps.features(0).is_some_and(|features| features.contains("memory:CUDAMemory")), "{caps}");
            places.lock().unwrap().push(place(buffer));
        });
    }
    run(&pipeline).expect_success();
    let (decoded, shown) = (decoded.lock().unwrap(), shown.lock().unwrap());
    println!("{} frames", shown.len());
    assert!(!shown.is_empty() && *decoded == *shown);
}

/// A decoder often still holds the frame that it gives, which then goes on as a copy. Thrown away, it would be
/// allocated again, for which the whole GPU is waited for.
#[test]
fn pools_keep_frames_that_decoders_hold() {
    if !gpu_chain_or_skip() {
        return;
    }
    let pipeline = pipeline(&format!("{} ! {} ! fakesink sync=false", decoder(), detector("")));
    let pool = Arc::new(AtomicUsize::new(0));
    let (found, held) = (pool.clone(), Mutex::new(None));
    let pad = pipeline.by_name("decoder").unwrap().static_pad("src").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let frame = info.buffer().expect("asked for");
        // SAFETY: the frame is alive, so its fields may be read.
        found.store(unsafe { (*frame.as_ptr()).pool as usize }, Ordering::Relaxed);
        *held.lock().unwrap() = Some(frame.clone());
        gst::PadProbeReturn::Ok
    });
    let thrown_away = Arc::new(AtomicU64::new(0));
    let count = thrown_away.clone();
    let performance = gst::DebugCategory::get("GST_PERFORMANCE").unwrap();
    performance.set_threshold(gst::DebugLevel::Debug);
    let listener = gst::log::add_log_function(move |category, _, _, _, _, object, message| {
        let is_pool = object.is_some_and(|object| object.as_ptr() as usize == pool.load(Ordering::Relaxed));
        if category == performance && is_pool && message.get().is_some_and(|text| text.contains("discarding")) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    run(&pipeline).expect_success();
    gst::log::remove_log_function(listener);
    performance.reset_threshold();
    assert_eq!(thrown_away.load(Ordering::Relaxed), 0);
}

/// From GStreamer 1.24 on the decoder can give its surfaces themselves: as many as are asked for in its allocation query, or as it is told.
/// By default it gives copies.
#[test]
fn surfaces_of_the_decoder_are_drawn_on_as_copies_are() {
    if !gpu_chain_or_skip() {
        return;
    }
    let nvh264dec = gst::ElementFactory::make("nvh264dec").build().expect("it is there");
    if !nvh264dec.has_property("num-output-surfaces") {
        println!("SKIP: this nvh264dec has no num-output-surfaces.");
        return;
    }
    let drawn = |surfaces: u32| {
        let line = format!(
            "{} num-output-surfaces={surfaces} ! {} ! cudadownload name=download ! video/x-raw ! fakesink sync=false",
            decoder(),
            detector("draw=true")
        );
        let pipeline = pipeline(&line);
        let frames = Arc::new(Mutex::new(Vec::new()));
        let seen = frames.clone();
        watch(&pipeline, "download", move |_, buffer| {
            let mut hasher = DefaultHasher::new();
            hasher.write(&buffer.map_readable().unwrap());
            seen.lock().unwrap().push(hasher.finish());
        });
        run(&pipeline).expect_success();
        std::mem::take(&mut *frames.lock().unwrap())
    };
    let copies = drawn(1);
    println!("{} frames", copies.len());
    assert!(!copies.is_empty());
    [0, 16].into_iter().for_each(|surfaces| assert!(drawn(surfaces) == copies, "num-output-surfaces={surfaces}"));
}

/// As decoders do, the test holds each frame while it becomes a tensor, and has released it when it is drawn on.
#[test]
fn frames_that_were_held_are_drawn_in_place() {
    if !gpu_chain_or_skip() {
        return;
    }
    let source = "videotestsrc num-buffers=60 ! video/x-raw,format=NV12,width=640,height=480 ! cudaupload name=source ! video/x-raw(memory:CUDAMemory)";
    let line = format!("{source} ! {} ! fakesink sync=false", detector("draw=true"));
    let pipeline: gst::Pipeline = gst::parse::launch(&line).unwrap().downcast().unwrap();
    let pad = pipeline.by_name("source").unwrap().static_pad("src").unwrap();
    let held = Arc::new(Mutex::new(None));
    let hold = held.clone();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        *hold.lock().unwrap() = info.buffer().cloned();
        gst::PadProbeReturn::Ok
    });
    let [made, shown] = [(); 2].map(|()| Arc::new(Mutex::new(Vec::<(usize, MemoryKind)>::new())));
    for (element, places) in [("source", made.clone()), ("nms", shown.clone())] {
        watch(&pipeline, element, move |_, buffer| {
            places.lock().unwrap().push((buffer.as_ptr() as usize, place(buffer)));
        });
    }
    watch(&pipeline, "preprocess", move |_, _| drop(held.lock().unwrap().take()));
    run(&pipeline).expect_success();
    let (made, shown) = (made.lock().unwrap(), shown.lock().unwrap());
    assert_eq!(shown.len(), 60);
    assert!(*made == *shown);
}

#[test]
fn frames_that_others_read_are_not_drawn_on() {
    if !gpu_chain_or_skip() {
        return;
    }
    let sum = |line: &str| {
        let pipeline = pipeline(line);
        let sum = Arc::new(AtomicU64::new(0));
        let total = sum.clone();
        watch(&pipeline, "look", move |_, buffer| {
            let map = buffer.map_readable().unwrap();
            let frame = map.chunks_exact(8).fold(0u64, |sum, bytes| {
                sum.rotate_left(5).wrapping_add(u64::from_le_bytes(bytes.try_into().expect("of eight")))
            });
            total.fetch_xor(frame.wrapping_mul(buffer.pts().map_or(1, |pts| pts.nseconds() | 1)), Ordering::Relaxed);
        });
        run(&pipeline).expect_success();
        sum.load(Ordering::Relaxed)
    };
    let look = "cudadownload ! identity name=look ! fakesink sync=false";
    let alone = sum(&format!("{} ! {look}", decoder()));
    let together = sum(&format!(
        "{} ! tee name=t ! queue ! {} ! fakesink sync=false async=false  t. ! queue ! {look}",
        decoder(),
        detector("draw=true")
    ));
    let drawn = sum(&format!("{} ! {} ! {look}", decoder(), detector("draw=true")));
    let undrawn = sum(&format!("{} ! {} ! {look}", decoder(), detector("draw=false")));
    assert_eq!(alone, together, "the branch of the tee without a detector");
    assert_eq!(alone, undrawn, "draw=false");
    assert_ne!(alone, drawn, "draw=true");
}

/// Objects of each frame, as corners and sizes.
fn objects(line: &str) -> Vec<Vec<(u32, u32, u32, u32)>> {
    let pipeline = pipeline(line);
    let frames = Arc::new(Mutex::new(Vec::new()));
    let found = frames.clone();
    watch(&pipeline, "nms", move |_, buffer| {
        let regions = buffer.iter_meta::<gst_video::VideoRegionOfInterestMeta>().map(|region| region.rect());
        found.lock().unwrap().push(regions.collect());
    });
    run(&pipeline).expect_success();
    drop(pipeline);
    Arc::into_inner(frames).expect("the pipeline is gone").into_inner().unwrap()
}

/// Of two rectangles, what they share of what they cover together: 0 to 1.
fn iou(a: (u32, u32, u32, u32), b: (u32, u32, u32, u32)) -> f64 {
    let shared = |a: (u32, u32), b: (u32, u32)| (a.0 + a.1).min(b.0 + b.1).saturating_sub(a.0.max(b.0)) as f64;
    let both = shared((a.0, a.2), (b.0, b.2)) * shared((a.1, a.3), (b.1, b.3));
    both / (f64::from(a.2) * f64::from(a.3) + f64::from(b.2) * f64::from(b.3) - both)
}

#[test]
fn cuda_elements_may_be_on_either_side() {
    if !gpu_chain_or_skip() {
        return;
    }
    let with = |before: &str, after: &str| {
        objects(&format!("{} ! {before} {} ! {after} fakesink sync=false", decoder(), detector("")))
    };
    let plain = with("", "");
    let total = |frames: &[Vec<_>]| frames.iter().map(Vec::len).sum::<usize>();
    assert!(total(&plain) > 0);
    // The same pixels: the same boxes.
    assert_eq!(plain, with("cudadownload ! cudaupload ! video/x-raw(memory:CUDAMemory) !", "cudadownload !"));
    // In system memory, as software decoders give them.
    assert_eq!(plain, with("cudadownload ! video/x-raw !", ""));
    println!("{} objects in {} frames", total(&plain), plain.len());
}

#[test]
fn cuda_converters_may_be_on_either_side() {
    if !gpu_chain_or_skip() || !has_element_or_skip("cudaconvert") {
        return;
    }
    let with = |before: &str, after: &str| {
        objects(&format!("{} ! {before} {} ! {after} fakesink sync=false", decoder(), detector("")))
    };
    let plain = with("", "");
    let total = |frames: &[Vec<_>]| frames.iter().map(Vec::len).sum::<usize>();
    for format in ["I420", "BGRA", "RGB", "P010_10LE"] {
        let caps = format!("video/x-raw(memory:CUDAMemory),format={format}");
        let found =
            with(&format!("cudaconvert ! {caps} !"), "cudaconvert ! video/x-raw(memory:CUDAMemory),format=NV12 !");
        println!("{} objects in {} frames, {} of them in {format}", total(&plain), plain.len(), total(&found));
        // Converted colours are rounded, which takes an object over the threshold now and then.
        assert_eq!(plain.len(), found.len());
        assert!(total(&plain).abs_diff(total(&found)) * 50 <= total(&plain), "{format}");
        // And they are where they were: all but that many have one that overlaps them by four fifths.
        let frames = plain.iter().zip(&found);
        let again =
            frames.map(|(plain, found)| plain.iter().filter(|a| found.iter().any(|b| iou(**a, *b) > 0.8)).count());
        let again: usize = again.sum();
        assert!(
            (total(&plain) - again) * 50 <= total(&plain),
            "{format}: {again} of {} are found again",
            total(&plain)
        );
    }
}

#[test]
fn one_pipeline_is_on_one_gpu() {
    if !gpu_chain_or_skip() {
        return;
    }
    let count = device_count().unwrap();
    let on = |element: &str, device: i32| {
        let line = format!("{} ! {} ! fakesink sync=false", decoder(), detector(""));
        // Each name comes once before a space.
        line.replace(&format!("! {element} "), &format!("! {element} cuda-device-id={device} "))
    };
    for element in ["trtpreprocess", "trtinfer", "trtnms"] {
        for device in 1..=count {
            let outcome = run(&pipeline(&on(element, device)));
            // trtinfer starts before frames come, the others only see theirs.
            let words = match element {
                "trtinfer" if device == count => format!("There is no CUDA device {device}"),
                _ => format!("cuda-device-id is {device}, and frames come from GPU 0"),
            };
            assert!(outcome.error_text().contains(&words), "{element}: {outcome:?}");
        }
    }
    if count == 1 {
        println!("There is one GPU; two in one pipeline were not tried.");
        return;
    }
    // Each GPU on its own, and from one to the other by the host.
    let second = decoder().replace("nvh264dec", "nvh264device1dec");
    let there = "cudadownload ! cudaupload cuda-device-id=1 ! video/x-raw(memory:CUDAMemory) !";
    let first = objects(&format!("{} ! {} ! fakesink sync=false", decoder(), detector("")));
    assert!(first.iter().any(|found| !found.is_empty()));
    assert_eq!(first, objects(&format!("{second} ! {} ! fakesink sync=false", detector(""))));
    assert_eq!(first, objects(&format!("{} ! {there} {} ! fakesink sync=false", decoder(), detector(""))));
}

/// Frames that an application got from one pipeline and gives to another, whose model is shared.
#[test]
fn frames_of_another_context_are_reported() {
    if !gpu_chain_or_skip() {
        return;
    }
    let from = pipeline(&format!("{} ! appsink name=out sync=false", decoder()));
    let out = from.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    from.set_state(gst::State::Playing).unwrap();
    let samples: Vec<gst::Sample> = (0..20).map(|_| out.pull_sample().unwrap()).collect();
    let message = from.bus().unwrap().pop_filtered(&[gst::MessageType::HaveContext]).expect("the decoder has one");
    let gst::MessageView::HaveContext(have) = message.view() else { unreachable!("filtered") };

    let warned = |context: Option<&gst::Context>, name: &str| {
        let detector = detector("").replace("! trtinfer", &format!("! trtinfer shared-model={name}"));
        let to = gst::parse::launch(&format!("appsrc name=in format=time ! {detector} ! fakesink sync=false")).unwrap();
        let to = to.downcast::<gst::Pipeline>().unwrap();
        context.into_iter().for_each(|context| to.set_context(context));
        let source = to.by_name("in").unwrap().downcast::<gst_app::AppSrc>().unwrap();
        for sample in &samples {
            source.push_sample(sample).unwrap();
        }
        source.end_of_stream().unwrap();
        let frames = Arc::new(AtomicU64::new(0));
        let came = frames.clone();
        watch(&to, "nms", move |_, _| {
            came.fetch_add(1, Ordering::Relaxed);
        });
        let outcome = run(&to);
        outcome.expect_success();
        assert_eq!(frames.load(Ordering::Relaxed), samples.len() as u64);
        outcome.warnings.iter().filter(|warning| warning.contains("another CUDA context")).count()
    };
    assert_eq!(warned(None, "apart"), 1);
    assert_eq!(warned(Some(&have.context()), "together"), 0);
    from.set_state(gst::State::Null).unwrap();
}

#[test]
fn seeks_flush_work_in_flight() {
    if !gpu_chain_or_skip() {
        return;
    }
    let pipeline = pipeline(&format!("{} ! {} ! fakesink sync=false", decoder(), detector("")));
    pipeline.set_state(gst::State::Paused).unwrap();
    let (change, ..) = pipeline.state(gst::ClockTime::from_seconds(120));
    change.expect("it prerolls");
    let (sender, frames) = std::sync::mpsc::channel();
    watch(&pipeline, "nms", move |_, _| {
        let _ = sender.send(());
    });
    for i in 0..40 {
        while frames.try_recv().is_ok() {}
        pipeline.set_state(gst::State::Playing).unwrap();
        (0..i % 7).for_each(|_| frames.recv_timeout(std::time::Duration::from_secs(60)).expect("a frame"));
        let to = gst::ClockTime::from_mseconds(70 * (i % 20));
        pipeline.seek_simple(gst::SeekFlags::FLUSH | gst::SeekFlags::KEY_UNIT, to).unwrap();
    }
    run(&pipeline).expect_success();
}

#[test]
fn a_hundred_cycles_leave_no_gpu_memory() {
    if !gpu_chain_or_skip() {
        return;
    }
    let context = Context::primary(0).unwrap();
    let free = || context.memory().unwrap().0 >> 20;
    let pipeline = pipeline(&format!("{} ! {} ! fakesink sync=false num-buffers=3", decoder(), detector("draw=true")));
    let cycle = |i: u32| match i % 10 {
        // Stopped before the model is there.
        9 => {
            pipeline.set_state(gst::State::Playing).unwrap();
            pipeline.set_state(gst::State::Null).unwrap();
        }
        _ => run(&pipeline).expect_success(),
    };
    (0..10).for_each(cycle);
    let before = free();
    (0..100).for_each(cycle);
    let after = free();
    println!("GPU memory free: {before} MiB before 100 cycles, {after} MiB after");
    // 64 KiB a cycle, as on the host.
    assert!(after + 6 >= before, "{} MiB are gone", before - after);
}

/// A batch of another stream may hold what was made of a frame, and a copy in other memory what the frame was. Neither
/// lets the frame go back to its pool while the GPU reads it.
#[test]
fn frames_stay_until_the_gpu_has_read_them() {
    let Some(context) = crate::common::gpu::context() else { return };
    crate::common::init();
    type Release = fn(gst::Buffer);
    let copied: Release = |buffer| {
        let mut other = gst::Buffer::with_size(4).unwrap();
        buffer.copy_into(other.get_mut().unwrap(), gst::BUFFER_COPY_METADATA, ..).unwrap();
    };
    for release in [drop::<gst::Buffer> as Release, copied] {
        let stream = Stream::new(&context).unwrap();
        let gate = Arc::new(Gate::default());
        gate.close(&stream);
        let tensor = Tensor::from_slice("images", &[1], &[1.0f32]);
        let tensors = Arc::new(Tensors::new(vec![tensor], Some(stream.record().unwrap()), None));
        let letterbox = Letterbox::new((4, 2), (8, 8), ResizeMode::Letterbox);
        let inputs = ModelInputs {
            list: [ModelInput { tensors, letterbox }].into_iter().collect(),
            tiles: Tiles::Frame,
            source: TensorSource { element: 0, size: (4, 2), pixel_aspect: (1, 1) },
            transform: InputTransform::default(),
            is_normalised: false,
            original: None,
            still: None,
            clip: None,
        };
        let payload = Arc::new(Payload::Skipped { inputs: Arc::new(inputs), is_overdue: false });
        let mut buffer = gst::Buffer::with_size(4).unwrap();
        TensorMeta::set(buffer.get_mut().unwrap(), payload.clone());

        let releasing = AtomicI32::new(0);
        let was_open = std::thread::scope(|scope| {
            let (gate, releasing) = (&gate, &releasing);
            let thread = scope.spawn(move || {
                // SAFETY: asks for a number.
                releasing.store(unsafe { libc::gettid() }, Ordering::SeqCst);
                release(buffer);
                gate.is_open()
            });
            wait_until("the thread to wait for the GPU, or not to", LIMIT, || {
                let thread_id = releasing.load(Ordering::SeqCst);
                thread.is_finished() || thread_id != 0 && waits(thread_id)
            });
            gate.open();
            thread.join().unwrap()
        });
        assert!(was_open, "the frame was given back while the GPU was reading it");
        drop(payload);
    }
}

/// Whether a thread of this process sleeps, or has taken time of the processor, as waits for a GPU do that look again and again.
fn waits(thread_id: i32) -> bool {
    const TICKS: u64 = 5;
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread_id}/stat")).unwrap_or_default();
    let Some((_, stat)) = stat.rsplit_once(") ") else { return false };
    let fields: Vec<&str> = stat.split(' ').collect();
    let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    ["S", "D"].contains(&fields[0]) || ticks > TICKS
}

/// What is queued behind it waits until it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn close(self: &Arc<Self>, stream: &Stream) {
        unsafe extern "C" fn pass(gate: *mut std::ffi::c_void) {
            // SAFETY: `close` gave a reference away for this.
            let gate = unsafe { Arc::from_raw(gate.cast::<Gate>()) };
            let is_open = gate.is_open.lock().unwrap();
            drop(gate.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
        }
        let gate = Arc::into_raw(self.clone()).cast_mut().cast();
        // SAFETY: the stream is alive, and `pass` takes over the reference.
        let launch = || unsafe { sys::cuLaunchHostFunc(stream.raw().cast(), Some(pass), gate) };
        stream.context().with(launch).unwrap().result().unwrap();
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn is_open(&self) -> bool {
        *self.is_open.lock().unwrap()
    }
}
