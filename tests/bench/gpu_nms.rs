// SPDX-License-Identifier: MPL-2.0
//! Times of decoding and suppression on the GPU, from the call to boxes on the host, with the outputs already in its memory:
//!
//! `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo bench --profile dev --bench gpu_nms [-- HEAD… [PROPERTY=VALUE…]]`
//!
//! `HEAD` is a file of f32, [1,16128,7] as YOLOv5 writes it; `tests/bench/gpu_nms.py` makes some and compares with torchvision.
//! For each of them TensorRT's EfficientNMS plugin is timed too, in an engine that decodes the head and suppresses, where the full
//! TensorRT is; properties are those of trtinfer that say where to find it.
//!
//! A file whose name ends in `.segment` is of a segmentation model: [1,116,8400] and then the prototypes [1,32,160,160], both f32.
//! Masks are timed on it, and plain detection of the same boxes. `tasks` in place of a file times keypoints and rotated boxes next to
//! plain detection. `tests/bench/gpu_tasks.py` does both, and compares masks with PyTorch.

#[allow(dead_code)] // the tests use more of it
#[path = "../../core/tests/common/gpu.rs"]
mod gpu;
#[allow(dead_code)] // the tests use more of it
#[path = "../../core/tests/common/onnx.rs"]
mod onnx;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use cudarc::driver::result;
use gsttrt_core::backends::{BackendPreference, LoadContext, LoadRequest};
use gsttrt_core::cuda::driver::{Context, Stream};
use gsttrt_core::error::Result;
use gsttrt_core::heads::{
    Decoder, HeadFormat, ModelHints, Thresholds, end_to_end, obb, pose, segment, yolov5, yolov8, yolov8_transposed,
};
use gsttrt_core::image::keypoints::{KeypointModel, KeypointShape};
use gsttrt_core::image::masks::Masks;
use gsttrt_core::memory::{DevicePool, Mapped};
use gsttrt_core::postprocess::suppress::Nms;
use gsttrt_core::postprocess::suppress::device::DeviceDecoder;
use gsttrt_core::session::{SessionOptions, parse_options};
use gsttrt_core::tensor::{Element, Tensor, Tensors};
use half::f16;
use onnx::{F32, Graph, I32, I64, float, int};

const SCORE: f32 = 0.25;
const IOU: f32 = 0.45;
const LIMIT: usize = 300;

/// Calls, and for how long at most.
const REPEATS: usize = 2001;
const TIME_LIMIT: Duration = Duration::from_secs(1);

/// What `work` takes, again and again; it returns how long launching took, and how many boxes are left.
fn time(name: &str, mut work: impl FnMut() -> Result<(Duration, usize)>) -> Result<()> {
    let mut left = 0;
    let mut times: Vec<(Duration, Duration)> = Vec::new();
    let begun = Instant::now();
    while times.len() < REPEATS && begun.elapsed() < TIME_LIMIT {
        let start = Instant::now();
        let (launched, boxes) = work()?;
        left = boxes;
        times.push((start.elapsed(), launched));
    }
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    times.sort();
    let at = |share: f64| micros(times[(times.len() as f64 * share) as usize].0);
    let mut launches: Vec<Duration> = times.iter().map(|(_, launched)| *launched).collect();
    launches.sort();
    println!(
        "{name:<48} {:>7.1} µs (5 % below {:.1}, 95 % below {:.1}; {:.1} until all is launched); {left} boxes",
        at(0.5),
        at(0.05),
        at(0.95),
        micros(launches[launches.len() / 2]),
    );
    Ok(())
}

fn report(context: &Context, name: &str, layout: &'static HeadFormat, tensor: Tensor, limit: usize) -> Result<()> {
    let hints = ModelHints { input: Some((512, 512)), ..ModelHints::default() };
    report_with(context, name, layout, &hints, &[tensor], limit, None)
}

/// The same with what the model file says, and for masks whether the host wants them.
fn report_with(
    context: &Context,
    name: &str,
    layout: &'static HeadFormat,
    hints: &ModelHints,
    outputs: &[Tensor],
    limit: usize,
    wants_masks: Option<bool>,
) -> Result<()> {
    let descs: Vec<_> = outputs.iter().map(|tensor| tensor.desc().clone()).collect();
    let decoder = Decoder::new(Some(layout), &descs, hints)?;
    let mut boxes = DeviceDecoder::new(context, &decoder)?;
    boxes.wants_masks = wants_masks == Some(true);
    let stream = Arc::new(Stream::new(context)?);
    let pool = DevicePool::new(context);
    let on_device = |tensor: &Tensor| {
        let mut block = pool.take(tensor.bytes().unwrap().len())?;
        block.write(tensor.bytes().unwrap())?;
        Ok(Tensor::on_device(tensor.desc().clone(), block))
    };
    let tensors: Vec<Tensor> = outputs.iter().map(on_device).collect::<Result<_>>()?;
    let (thresholds, nms) = (Thresholds::uniform(SCORE), Nms::new(IOU, limit, false));
    let mut masks = Masks::default();
    time(name, || {
        let start = Instant::now();
        boxes.launch(&stream, &decoder.pick(&tensors)?, &thresholds, &nms)?;
        let launched = start.elapsed();
        let left = boxes.detections()?.len();
        boxes.gathered()?;
        masks.clear();
        boxes.masks(&mut masks)?;
        Ok((launched, left))
    })
}

/// Masks, and detection of the same boxes.
fn report_masks(context: &Context, name: &str, values: &[f32]) -> Result<()> {
    const ROWS: usize = 8400;
    let (rows, prototypes) = values.split_at(116 * ROWS);
    let plain = Tensor::from_slice("output0", &[1, 84, ROWS as i64], &rows[..84 * ROWS]);
    let outputs = [
        Tensor::from_slice("output0", &[1, 116, ROWS as i64], rows),
        Tensor::from_slice("output1", &[1, 32, 160, 160], prototypes),
    ];
    let hints = ModelHints { input: Some((640, 640)), ..ModelHints::default() };
    report_with(context, &format!("{name}, boxes"), &yolov8::HEAD, &hints, &[plain], LIMIT, None)?;
    for (where_to, wants) in [("masks on the GPU", false), ("masks on the host", true)] {
        report_with(context, &format!("{name}, {where_to}"), &segment::HEAD, &hints, &outputs, LIMIT, Some(wants))?;
    }
    Ok(())
}

/// Keypoints and rotated boxes compared with plain detection with as many classes.
fn report_tasks(context: &Context, passing: usize) -> Result<()> {
    const ROWS: i64 = 8400;
    let name = |what: &str| format!("{what}, {passing} pass, limit {LIMIT}");
    let tensor = |columns: usize, extra: usize| {
        let rows = head(ROWS as usize, columns, 4, passing, |v| v);
        let more = (0u8..=u8::MAX).cycle().map(f32::from);
        let rows: Vec<f32> = rows
            .chunks_exact(columns)
            .zip(more)
            .flat_map(|(row, number)| row.iter().copied().chain(std::iter::repeat_n(number, extra)))
            .collect();
        Tensor::from_slice("output0", &[1, (columns + extra) as i64, ROWS], &transposed(&rows, columns + extra))
    };
    let hints = ModelHints { input: Some((640, 640)), ..ModelHints::default() };
    let report = |what: &str, layout, hints: &ModelHints, tensor| {
        report_with(context, &name(what), layout, hints, &[tensor], LIMIT, None)
    };
    report("yolov8 f32 5x8400", &yolov8::HEAD, &hints, tensor(5, 0))?;
    let shape = KeypointShape { count: 17, dims: 3 };
    let keypoints = Some(KeypointModel { shape, names: Vec::new() });
    report("pose f32 56x8400", &pose::HEAD, &ModelHints { keypoints, ..hints.clone() }, tensor(5, 51))?;
    report("yolov8 f32 19x8400", &yolov8::HEAD, &hints, tensor(19, 0))?;
    report("obb f32 20x8400", &obb::HEAD, &hints, tensor(19, 1))
}

/// The head as a network's picture, which TensorRT's plugin decodes and suppresses.
fn plugin() -> Graph {
    let shape = |dims: &[i64]| dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
    let limit = LIMIT.to_string();
    let attributes = vec![
        float("score_threshold", SCORE),
        float("iou_threshold", IOU),
        int("max_output_boxes", LIMIT as i64),
        int("background_class", -1),
        int("score_activation", 0), // they are scores already
        int("class_agnostic", 0),
        int("box_coding", 1), // centre and size
    ];
    Graph::new()
        .input("head", F32, &["1", "1", "16128", "7"])
        .weight("rows", I64, &[3], shape(&[1, 16128, 7]))
        .weight("parts", I64, &[3], shape(&[4, 1, 2]))
        .node("Reshape", &["head", "rows"], &["flat"], vec![])
        .node("Split", &["flat", "parts"], &["boxes", "objectness", "classes"], vec![int("axis", 2)])
        .node("Mul", &["objectness", "classes"], &["scores"], vec![])
        .node(
            "EfficientNMS_TRT",
            &["boxes", "scores"],
            &["num_dets", "det_boxes", "det_scores", "det_classes"],
            attributes,
        )
        .output("num_dets", I32, &["1", "1"])
        .output("det_boxes", F32, &["1", &limit, "4"])
        .output("det_scores", F32, &["1", &limit])
        .output("det_classes", I32, &["1", &limit])
}

/// The same by that plugin, until its boxes are on the host.
fn report_plugin(context: &Context, options: &SessionOptions, head: &[u8]) -> Result<()> {
    let file = std::env::temp_dir().join("gst-plugin-trt-efficientnms.onnx");
    plugin().save(&file);
    let cuda = || Ok(context.clone());
    let request =
        LoadRequest::new(&file, BackendPreference::Named("tensorrt"), None, 1, options.options.clone(), cuda)?;
    let mut backend =
        request.load(&LoadContext { report: &|_| {}, cancelled: &AtomicBool::new(false), slots: None, contexts: 1 })?;
    let mut block = DevicePool::new(context).take(head.len())?;
    block.write(head)?;
    let picture = [Arc::new(Tensors::new(vec![Tensor::on_device(request.spec.desc.clone(), block)], None, None))];
    let stream = Stream::new(context)?;
    let room = |tensor: &Tensor| Mapped::new(context, tensor.desc().bytes().expect("fixed dimensions"));
    let mut hosts: Vec<Mapped> = backend.run(&picture)?[0].iter().map(room).collect::<Result<_>>()?;
    let run = || {
        let start = Instant::now();
        let outputs = backend.run(&picture)?.remove(0);
        outputs.ready().map_or(Ok(()), |ready| stream.wait(ready))?;
        for (tensor, host) in outputs.iter().zip(&mut hosts) {
            let address = tensor.device().expect("TensorRT's outputs").address();
            // SAFETY: both sides have the tensor's size, and stay until the copy is waited for below.
            unsafe { result::memcpy_dtoh_async(host.host_mut(), address, stream.raw().cast()) }.expect("a copy");
        }
        let launched = start.elapsed();
        stream.synchronize()?;
        let found = hosts[0].host().first_chunk().expect("one number");
        Ok((launched, i32::from_le_bytes(*found) as usize))
    };
    context.with(|| time("EfficientNMS_TRT", run))?
}

/// Rows of a box that overlaps few others, and scores of which some pass.
fn head<T: Element>(anchors: usize, columns: usize, first_score: usize, passing: usize, from: fn(f32) -> T) -> Vec<T> {
    let mut state = 7u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32
    };
    let mut values = Vec::with_capacity(anchors * columns);
    for anchor in 0..anchors {
        let passes = anchor * passing / anchors != (anchor + 1) * passing / anchors;
        values.extend([random() * 512.0, random() * 512.0, 4.0 + random() * 40.0, 4.0 + random() * 40.0].map(from));
        values.extend((4..first_score).map(|_| from(if passes { 1.0 } else { 0.1 })));
        let best = (random() * (columns - first_score) as f32) as usize;
        let high = if passes { 0.3 + random() * 0.7 } else { 0.1 };
        values.extend((first_score..columns).map(|i| from(if i - first_score == best { high } else { 0.05 })));
    }
    values
}

fn transposed<T: Copy>(values: &[T], columns: usize) -> Vec<T> {
    let rows = values.len() / columns;
    (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
}

fn main() -> Result<()> {
    let Some(context) = gpu::context() else { return Ok(()) };
    println!("{}; medians of {REPEATS} calls, fewer if they take long", context.device_name()?);
    let given: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let (properties, files): (Vec<_>, Vec<_>) = given.into_iter().partition(|text| text.contains('='));
    let options = parse_options(properties.iter().map(String::as_str))?.0;
    for file in &files {
        if file == "tasks" {
            report_tasks(&context, 50)?;
            continue;
        }
        let bytes = std::fs::read(file).expect("a file that can be read");
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        if file.ends_with(".segment") {
            report_masks(&context, file, &values)?;
            continue;
        }
        report(&context, file, &yolov5::HEAD, Tensor::from_slice("output0", &[1, 16128, 7], &values), LIMIT)?;
        if let Err(error) = report_plugin(&context, &options, &bytes) {
            println!("EfficientNMS_TRT was not measured: {error}");
        }
    }
    if !files.is_empty() {
        return Ok(());
    }
    for passing in [0, 20, 200, 2000, 16128] {
        for limit in [300, usize::MAX] {
            let name = format!("yolov5 f32 16128x7, {passing} pass, limit {}", limit.min(16128));
            let tensor = Tensor::from_slice("output0", &[1, 16128, 7], &head(16128, 7, 5, passing, |v| v));
            report(&context, &name, &yolov5::HEAD, tensor, limit)?;
        }
    }
    for passing in [20, 2000] {
        let name = |what: &str| format!("{what}, {passing} pass, limit 300");
        let rows = head(8400, 84, 4, passing, |v| v);
        let halves = head(8400, 84, 4, passing, f16::from_f32);
        let tensor = Tensor::from_slice("output0", &[1, 84, 8400], &transposed(&rows, 84));
        report(&context, &name("yolov8 f32 84x8400"), &yolov8::HEAD, tensor, 300)?;
        let turned: Vec<f32> = rows
            .chunks_exact(84)
            .zip((0..=u8::MAX).cycle())
            .flat_map(|(row, angle)| [row, &[f32::from(angle)]].concat())
            .collect();
        let tensor = Tensor::from_slice("output0", &[1, 85, 8400], &transposed(&turned, 85));
        report(&context, &name("obb f32 85x8400"), &obb::HEAD, tensor, 300)?;
        let tensor = Tensor::from_slice("output0", &[1, 84, 8400], &transposed(&halves, 84));
        report(&context, &name("yolov8 f16 84x8400"), &yolov8::HEAD, tensor, 300)?;
        let tensor = Tensor::from_slice("output0", &[1, 8400, 84], &rows);
        report(&context, &name("yolov8-transposed f32 8400x84"), &yolov8_transposed::HEAD, tensor, 300)?;
        let tensor = Tensor::from_slice("output0", &[1, 25200, 85], &head(25200, 85, 5, passing, |v| v));
        report(&context, &name("yolov5 f32 25200x85"), &yolov5::HEAD, tensor, 300)?;
        let tensor = Tensor::from_slice("output0", &[1, 300, 6], &head(300, 6, 4, passing.min(300), |v| v));
        report(&context, &name("end-to-end f32 300x6"), &end_to_end::HEAD, tensor, 300)?;
    }
    Ok(())
}
