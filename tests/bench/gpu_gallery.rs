// SPDX-License-Identifier: MPL-2.0
//! Microseconds in which a GPU compares the objects of a frame with a gallery, next to a copy of the gallery's memory within the GPU:
//!
//! `cargo bench --bench gpu_gallery`
//!
//! `gpu` is the GPU's own time from the copy of the vectors to the names, behind a copy that fills the queue, so that the host's pace
//! does not count; two events with nothing between them, and those around a kernel that does nothing, are in it, and printed. `call` is that
//! from the call to the names. `read` is half the time of a copy within the GPU's memory, which reads and writes all bytes: what reading
//! the gallery once takes. Medians. The names are compared with those of the CPU, whose time is in the last column.
//!
//! Each row is written as a line of JSON as well.

#[allow(dead_code)] // the tests use more of it
#[path = "../../core/tests/common/gpu.rs"]
mod gpu;
#[allow(dead_code)]
#[path = "../../core/tests/common/random.rs"]
mod random;

use std::time::Instant;

use cudarc::driver::result;
use gsttrt_core::counters::{Span, Stats};
use gsttrt_core::cuda::driver::{Context, Launch, Stream};
use gsttrt_core::error::Result;
use gsttrt_core::gallery::{DeviceMatcher, Gallery, GalleryEntry};
use gsttrt_core::memory::{DeviceBlock, DevicePool};
use gsttrt_core::vector::normalise;
use random::Random;
use serde_json::json;

const REPEATS: usize = 51;
/// Bytes of the copy that fills the queue: a fifth of a millisecond of the fastest memory.
const FILLED: usize = 512 << 20;

const IDLE: &str = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry idle(.param .u64 unused) { ret; }\0";

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Queues a copy of so many bytes.
fn copy(stream: &Stream, blocks: &[DeviceBlock; 2], bytes: usize) -> Result<()> {
    let [from, to] = blocks;
    // SAFETY: both blocks have so many bytes, and nothing else uses them until this is done.
    let queue = || unsafe { result::memcpy_dtod_async(to.address(), from.address(), bytes, stream.raw().cast()) };
    stream.context().with(queue)?.expect("a copy");
    Ok(())
}

/// The GPU's microseconds of what some work has measured, the median, after some rounds to warm up.
fn gpu_time(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..REPEATS + 10 {
        let (stats, span) = (Stats::default(), Span::begin(true));
        work()?;
        stats.add(span, 0);
        times.push(stats.read().gpu.last.as_secs_f64() * 1e6);
    }
    Ok(median(times.split_off(10)))
}

/// The same of what some work queues, behind a copy that fills the queue.
fn timed(stream: &Stream, blocks: &[DeviceBlock; 2], mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    gpu_time(|| {
        copy(stream, blocks, FILLED)?;
        let begin = stream.begin_timing();
        work()?;
        stream.end_timing(begin);
        stream.synchronize()
    })
}

fn vector(random: &mut Random, dims: usize) -> Vec<f32> {
    let mut vector: Vec<f32> = (0..dims).map(|_| random.unit() - 0.5).collect();
    assert!(normalise(&mut vector));
    vector
}

fn run(context: &Context, blocks: &[DeviceBlock; 2]) -> Result<()> {
    let mut matcher = DeviceMatcher::new(context)?;
    let stream = Stream::new(context)?;
    let idle = context.module(IDLE)?.function("idle")?;
    let nothing = timed(&stream, blocks, || Ok(()))?;
    let shape = Launch { grid: (1, 1, 1), block: (256, 1, 1), shared: 0 };
    // SAFETY: it takes no more than this, and touches nothing.
    let idle = timed(&stream, blocks, || unsafe { stream.launch(&idle, shape, &0u64) })?;
    println!(
        "{}: two events are {nothing:.2} µs apart, with a kernel that does nothing between them {idle:.2} µs; medians of {REPEATS}",
        context.device_name()?
    );
    println!(
        "{:>8} {:>5} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "vectors", "dims", "objects", "gpu", "call", "copy", "read", "cpu ms"
    );
    for (count, dims) in [(2_048, 512), (10_000, 512), (100_000, 128), (100_000, 512)] {
        let mut random = Random(5);
        let entries = (0..count).map(|at| GalleryEntry { name: at.to_string(), vector: vector(&mut random, dims) });
        let gallery = Gallery::new(entries);
        let _on_gpu = gallery.upload(context)?;
        let bytes = count * dims * size_of::<f32>();
        let copied = timed(&stream, blocks, || copy(&stream, blocks, bytes))?;
        for objects in [1, 4, 8, 20, 60] {
            let looks: Vec<Vec<f32>> = (0..objects).map(|_| vector(&mut random, dims)).collect();
            let looks: Vec<&[f32]> = looks.iter().map(Vec::as_slice).collect();
            let begun = Instant::now();
            let wanted = gallery.find(&looks, 2);
            let cpu = begun.elapsed().as_secs_f64() * 1e3;
            assert_eq!(matcher.find(&gallery, &looks, 2)?, wanted, "the names of the CPU");
            let gpu = gpu_time(|| {
                copy(matcher.stream(), blocks, FILLED)?;
                matcher.find(&gallery, &looks, 2).map(drop)
            })?;
            let mut call = || -> Result<f64> {
                let begun = Instant::now();
                matcher.find(&gallery, &looks, 2)?;
                Ok(begun.elapsed().as_secs_f64() * 1e6)
            };
            let call = median((0..REPEATS).map(|_| call()).collect::<Result<Vec<_>>>()?);
            let read = copied / 2.0;
            println!("{count:>8} {dims:>5} {objects:>8} {gpu:>9.1} {call:>9.1} {copied:>9.1} {read:>9.1} {cpu:>9.2}");
            println!(
                "{}",
                json!({
                    "row": "gallery", "vectors": count, "dims": dims, "objects": objects, "gpu_us": gpu, "call_us": call,
                    "copy_us": copied, "events_us": nothing, "idle_us": idle, "cpu_ms": cpu,
                })
            );
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let Some(context) = gpu::context() else { return Ok(()) };
    let pool = DevicePool::new(&context);
    let block = || -> Result<DeviceBlock> {
        let mut block = pool.take(FILLED)?;
        block.write(&vec![1; FILLED])?;
        Ok(block)
    };
    run(&context, &[block()?, block()?])
}
