// SPDX-License-Identifier: MPL-2.0
//! The whole chain against the model alone, in one process, and what it allocates:
//!
//! `cargo bench --bench chain [-- PROPERTY=VALUE... TASK... | PROPERTY=VALUE... VIDEO MODEL]`
//!
//! Without tasks all of our models take their turn; TASK is detect, pose, segment, obb, classify, semantic or depth. Properties are those of trtinfer, such as
//! backend=rten threads=1. Model alone: it runs on one tensor. Chain: the file is decoded and goes through trtpreprocess, trtinfer and
//! trtnms (drawing) into a fakesink. Both take turns; a figure is the median of the rounds. In addition to the frames in a second there is the
//! processor time of all threads for each of them: other programs that run meanwhile hardly change it, so on a busy machine its ratio is the
//! one to look at. Allocations are those of 64 KiB and more, wherever in the process they come from; the model's own, counted alone, are
//! subtracted.

use std::ffi::{c_int, c_long, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gsttrt_core::backends::{LoadContext, LoadRequest, ModelInstance};
use gsttrt_core::memory::Pool;
use gsttrt_core::session::parse_options;
use gsttrt_core::tensor::{Tensor, Tensors};

const ROUNDS: usize = 5;
const RUNS: u32 = 60;
/// Frames at the start that are not counted: pools fill, the model warms up. The shortest clip has twice as many.
const WARM_UP: u64 = 30;
/// Task, clip and model.
const TASKS: [(&str, &str, &str); 7] = [
    ("detect", "data/sample.mp4", "models/shapes.onnx"),
    ("pose", "data/pose.mp4", "models/figures-pose.onnx"),
    ("segment", "data/shapes.mp4", "models/shapes-seg.onnx"),
    ("obb", "data/shapes.mp4", "models/shapes-obb.onnx"),
    ("classify", "data/classes.mp4", "models/shapes-cls.onnx"),
    ("semantic", "data/shapes.mp4", "models/shapes-sem.onnx"),
    ("depth", "data/rooms.mp4", "models/rooms-depth.onnx"),
];
const LARGE: usize = 64 << 10;

/// Large allocations of the process so far.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// glibc lets a program bring its own malloc; ours counts and passes on to glibc's.
mod counted {
    use super::*;

    unsafe extern "C" {
        fn __libc_malloc(size: usize) -> *mut c_void;
        fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
        fn __libc_realloc(memory: *mut c_void, size: usize) -> *mut c_void;
        fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
    }

    fn count(size: usize) {
        if size >= LARGE {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
    }

    // SAFETY (all): arguments and results are those of the C functions of the same name.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
        count(size);
        // SAFETY: as this function's caller promises, with the same arguments.
        unsafe { __libc_malloc(size) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn calloc(items: usize, size: usize) -> *mut c_void {
        count(items.saturating_mul(size));
        // SAFETY: as this function's caller promises, with the same arguments.
        unsafe { __libc_calloc(items, size) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn realloc(memory: *mut c_void, size: usize) -> *mut c_void {
        count(size);
        // SAFETY: as this function's caller promises, with the same arguments.
        unsafe { __libc_realloc(memory, size) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
        count(size);
        // SAFETY: as this function's caller promises, with the same arguments.
        unsafe { __libc_memalign(alignment, size) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
        count(size);
        // SAFETY: as this function's caller promises, with the same arguments.
        unsafe { __libc_memalign(alignment, size) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn posix_memalign(memory: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
        const ENOMEM: c_int = 12;
        count(size);
        // SAFETY: there is room for a pointer.
        unsafe { *memory = __libc_memalign(alignment, size) };
        // SAFETY: as above.
        if unsafe { *memory }.is_null() { ENOMEM } else { 0 }
    }
}

/// Time, processor time of the process, and its allocations, all so far.
#[derive(Clone, Copy)]
struct Mark {
    time: Instant,
    /// In microseconds.
    processor: c_long,
    allocations: u64,
}

impl Mark {
    fn now() -> Self {
        unsafe extern "C" {
            fn clock() -> c_long;
        }
        // SAFETY: the C function, which has no conditions; POSIX has a million to the second.
        let processor = unsafe { clock() };
        Mark { time: Instant::now(), processor, allocations: ALLOCATIONS.load(Ordering::Relaxed) }
    }

    /// What one round came to, of so many frames since then.
    fn round(self, end: Mark, frames: f64) -> Round {
        Round {
            fps: frames / (end.time - self.time).as_secs_f64(),
            processor: (end.processor - self.processor) as f64 / 1000.0 / frames,
            allocations: (end.allocations - self.allocations) as f64 / frames,
        }
    }
}

#[derive(Clone, Copy)]
struct Round {
    fps: f64,
    /// Milliseconds of the processor for a frame.
    processor: f64,
    allocations: f64,
}

fn median(rounds: &[Round], figure: fn(&Round) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(figure).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn model_alone(backend: &mut dyn ModelInstance, pictures: &[Arc<Tensors>]) -> Round {
    let run = |backend: &mut dyn ModelInstance| drop(backend.run(pictures).unwrap());
    (0..5).for_each(|_| run(backend));
    let begin = Mark::now();
    (0..RUNS).for_each(|_| run(backend));
    begin.round(Mark::now(), RUNS.into())
}

/// When frames come out: their number, and what was used up at the end of the warm-up and at the last frame.
#[derive(Default)]
struct Marks {
    frames: u64,
    begin: Option<Mark>,
    end: Option<Mark>,
}

fn chain(video: &str, model: &str, properties: &[String]) -> Round {
    let line = format!(
        "filesrc name=source ! decodebin ! queue ! trtpreprocess ! trtinfer name=infer backend=cpu {} \
         ! trtnms name=nms ! fakesink sync=false",
        properties.join(" ")
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    pipeline.by_name("source").unwrap().set_property("location", video);
    pipeline.by_name("infer").unwrap().set_property("model-file", model);
    let marks = Arc::new(Mutex::new(Marks::default()));
    let shared = marks.clone();
    pipeline.by_name("nms").unwrap().static_pad("src").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        let mut marks = shared.lock().unwrap();
        let now = Mark::now();
        marks.frames += 1;
        match marks.frames {
            WARM_UP => marks.begin = Some(now),
            _ => marks.end = Some(now),
        }
        gst::PadProbeReturn::Ok
    });
    pipeline.set_state(gst::State::Playing).unwrap();
    let message = pipeline
        .bus()
        .unwrap()
        .timed_pop_filtered(gst::ClockTime::from_seconds(600), &[gst::MessageType::Eos, gst::MessageType::Error]);
    if let Some(gst::MessageView::Error(error)) = message.as_ref().map(|message| message.view()) {
        panic!("{}", error.error());
    }
    pipeline.set_state(gst::State::Null).unwrap();
    let marks = marks.lock().unwrap();
    let (Some(begin), Some(end)) = (marks.begin, marks.end) else { panic!("the video is too short") };
    begin.round(end, (marks.frames - WARM_UP) as f64)
}

/// Measures one video and model, and prints the figures.
fn measure(video: &str, model: &str, properties: &[String]) {
    let texts = ["backend=cpu"].into_iter().chain(properties.iter().map(String::as_str));
    let (options, _) = parse_options(texts).unwrap();
    let no_gpu = || unreachable!("it is no GPU");
    let request = LoadRequest::new(Path::new(model), options.backend, None, 1, options.options, no_gpu).unwrap();
    let mut backend = request.load(&LoadContext::silent()).unwrap();
    let tensor = Tensor::fill(&Pool::default(), request.spec.desc.clone(), |bytes| {
        bytes.fill(0);
        Ok(())
    });
    let pictures = [Arc::new(Tensors::new(vec![tensor.unwrap()], None, None))];

    let (mut alone, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(model_alone(&mut *backend, &pictures));
        whole.push(chain(video, model, properties));
        std::thread::sleep(Duration::from_millis(200));
    }
    let ratio = |(alone, whole): (&Round, &Round)| Round {
        fps: whole.fps / alone.fps,
        processor: alone.processor / whole.processor,
        allocations: 0.0,
    };
    let ratios: Vec<Round> = alone.iter().zip(&whole).map(ratio).collect();
    println!("{ROUNDS} rounds, medians; {video}, {model}, by {} {}", request.backend.name(), properties.join(" "));
    println!(
        "model alone   {:8.1} fps   {:8.3} ms of the processor   {:6.2} large allocations a run",
        median(&alone, |r| r.fps),
        median(&alone, |r| r.processor),
        median(&alone, |r| r.allocations)
    );
    println!(
        "whole chain   {:8.1} fps   {:8.3} ms of the processor   {:6.2} large allocations a frame",
        median(&whole, |r| r.fps),
        median(&whole, |r| r.processor),
        median(&whole, |r| r.allocations)
    );
    println!(
        "ratio         {:8.3}       {:8.3}                       {:6.2} beyond the model's own",
        median(&ratios, |r| r.fps),
        median(&ratios, |r| r.processor),
        median(&whole, |r| r.allocations) - median(&alone, |r| r.allocations)
    );
}

fn main() {
    gst::init().unwrap();
    gsttrt::plugin_register_static().unwrap();
    let given = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let (properties, arguments): (Vec<String>, Vec<String>) = given.partition(|argument| argument.contains('='));
    let is_task = |argument: &String| TASKS.iter().any(|(task, ..)| task == argument);
    if let [video, model] = &arguments[..]
        && !is_task(video)
    {
        return measure(video, model, &properties);
    }
    assert!(arguments.iter().all(is_task), "give tasks, or a video and a model");
    let sample = |path: &str| format!("{}/tests/{path}", env!("CARGO_MANIFEST_DIR"));
    for (task, video, model) in TASKS {
        if arguments.is_empty() || arguments.iter().any(|argument| argument == task) {
            println!("{task}:");
            measure(&sample(video), &sample(model), &properties);
        }
    }
}
