//! Times of decoding and suppression on the GPU, from the call to boxes on the host, with the outputs already in its memory:
//!
//! `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo bench --profile dev --bench gpu_nms [-- HEAD CANDIDATES]...`
//!
//! `HEAD` is a file of f32, [1,16128,7] as YOLOv5 writes it; `tests/bench/gpu_nms.py` makes some and compares with torchvision.

#[allow(dead_code)] // the tests use more of it
#[path = "../common/gpu.rs"]
mod gpu;

use std::time::{Duration, Instant};

use gsttrt::cuda::driver::{Context, Stream};
use gsttrt::cuda::kernels::boxes::Boxes;
use gsttrt::error::Result;
use gsttrt::memory::DevicePool;
use gsttrt::tensor::{Element, Tensor};
use gsttrt::vision::layout::{Decoder, Hints, Layout, Thresholds};
use gsttrt::vision::nms::Nms;
use half::f16;

/// Calls, and for how long at most.
const REPEATS: usize = 2001;
const PATIENCE: Duration = Duration::from_secs(1);

fn report(context: &Context, name: &str, layout: Layout, tensor: Tensor, limit: usize) -> Result<()> {
    let hints = Hints { input: Some((512, 512)), ..Hints::default() };
    let decoder = Decoder::new(Some(layout), &[tensor.desc().clone()], &hints)?;
    let mut boxes = Boxes::new(context, &decoder)?;
    let stream = Stream::new(context)?;
    let mut block = DevicePool::new(context).take(tensor.bytes().unwrap().len())?;
    block.write(tensor.bytes().unwrap())?;
    let tensors = [Tensor::on_device(tensor.desc().clone(), block)];
    let (thresholds, nms) = (Thresholds::uniform(0.25), Nms::new(0.45, limit, false));
    let mut left = 0;
    let mut times: Vec<(Duration, Duration)> = Vec::new();
    let begun = Instant::now();
    while times.len() < REPEATS && begun.elapsed() < PATIENCE {
        let start = Instant::now();
        boxes.launch(&stream, &decoder.pick(&tensors)?, &thresholds, &nms)?;
        let launched = start.elapsed();
        left = boxes.detections()?.len();
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
    let files: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    for file in &files {
        let bytes = std::fs::read(file).expect("a file that can be read");
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        report(&context, file, Layout::Yolov5, Tensor::from_slice("output0", &[1, 16128, 7], &values), 300)?;
    }
    if !files.is_empty() {
        return Ok(());
    }
    for passing in [0, 20, 200, 2000, 16128] {
        for limit in [300, usize::MAX] {
            let name = format!("yolov5 f32 16128x7, {passing} pass, limit {}", limit.min(16128));
            let tensor = Tensor::from_slice("output0", &[1, 16128, 7], &head(16128, 7, 5, passing, |v| v));
            report(&context, &name, Layout::Yolov5, tensor, limit)?;
        }
    }
    for passing in [20, 2000] {
        let name = |what: &str| format!("{what}, {passing} pass, limit 300");
        let rows = head(8400, 84, 4, passing, |v| v);
        let halves = head(8400, 84, 4, passing, f16::from_f32);
        let tensor = Tensor::from_slice("output0", &[1, 84, 8400], &transposed(&rows, 84));
        report(&context, &name("yolov8 f32 84x8400"), Layout::Yolov8, tensor, 300)?;
        let tensor = Tensor::from_slice("output0", &[1, 84, 8400], &transposed(&halves, 84));
        report(&context, &name("yolov8 f16 84x8400"), Layout::Yolov8, tensor, 300)?;
        let tensor = Tensor::from_slice("output0", &[1, 8400, 84], &rows);
        report(&context, &name("yolov8-transposed f32 8400x84"), Layout::Yolov8Transposed, tensor, 300)?;
        let tensor = Tensor::from_slice("output0", &[1, 25200, 85], &head(25200, 85, 5, passing, |v| v));
        report(&context, &name("yolov5 f32 25200x85"), Layout::Yolov5, tensor, 300)?;
        let tensor = Tensor::from_slice("output0", &[1, 300, 6], &head(300, 6, 4, passing.min(300), |v| v));
        report(&context, &name("end-to-end f32 300x6"), Layout::EndToEnd, tensor, 300)?;
    }
    Ok(())
}
