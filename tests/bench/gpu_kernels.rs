// SPDX-License-Identifier: MPL-2.0
//! Times of the kernels that touch pixels, and what share of the copy bandwidth they reach, in one run:
//!
//! `cargo bench --profile dev --bench gpu_kernels`
//!
//! Two events with nothing between them have a distance too, and so have those around a kernel that does nothing; both are
//! printed, and part of every time.
//! A share counts each byte that must be read (rows of a plane that no position falls on are not) and each byte written, once,
//! against those of a copy from device memory to device memory. Frames and tensors take turns, more than the cache holds.

#[allow(dead_code)] // the tests use more of it
#[path = "../common/gpu.rs"]
mod gpu;

use std::ffi::CStr;
use std::ptr;

use cudarc::driver::{result, sys};
use gsttrt::core::cuda::driver::{Context, Launch, Stream};
use gsttrt::core::error::Result;
use gsttrt::core::memory::{DeviceBlock, DevicePool};
use gsttrt::image::Candidate;
use gsttrt::image::detections::{DeviceDetections, found_bytes};
use gsttrt::image::device::{DevicePlane, DevicePlanes};
use gsttrt::image::frame::{Colorimetry, Matrix, PixelFormat};
use gsttrt::image::geometry::BBox;
use gsttrt::image::overlay::kernel::OverlayKernel;
use gsttrt::image::overlay::{Style, Target};
use gsttrt::image::preprocess::kernel::PreprocessKernel;
use gsttrt::image::transform::InputSpec;

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;
const FRAMES: usize = 32;
const REPEATS: usize = 51;
const COPIED: usize = 1 << 30;

const IDLE: &CStr = c".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry idle(.param .u64 unused) { ret; }";

struct Bench {
    context: Context,
    stream: Stream,
    pool: DevicePool,
    events: [sys::CUevent; 2],
}

impl Bench {
    fn new(context: &Context) -> Result<Self> {
        let event = || {
            let mut event = ptr::null_mut();
            // SAFETY: writes a handle; the context is current.
            unsafe { sys::cuEventCreate(&mut event, 0) }.result().expect("an event");
            event
        };
        Ok(Bench {
            stream: Stream::new(context)?,
            pool: DevicePool::new(context),
            events: context.with(|| [event(), event()])?,
            context: context.clone(),
        })
    }

    /// Microseconds on the GPU of what `launch` queues: the median, after some to warm up. The queue is filled behind a copy,
    /// so that the host's pace does not count.
    fn time(&self, before: &[DeviceBlock; 2], mut launch: impl FnMut(usize) -> Result<()>) -> Result<f64> {
        self.context.with(|| -> Result<f64> {
            let stream = self.stream.raw().cast();
            let mut times = Vec::new();
            for i in 0..REPEATS + 10 {
                // SAFETY: blocks and handles are alive.
                unsafe {
                    let [from, to] = before;
                    result::memcpy_dtod_async(to.address(), from.address(), COPIED / 2, stream).expect("a copy");
                    result::event::record(self.events[0], stream).expect("a time");
                }
                launch(i)?;
                // SAFETY: as above.
                let time = unsafe {
                    result::event::record(self.events[1], stream).expect("a time");
                    result::stream::synchronize(stream).expect("an end");
                    result::event::elapsed(self.events[0], self.events[1]).expect("two times")
                };
                times.push(f64::from(time) * 1e3);
            }
            let times = &mut times[10..];
            times.sort_by(f64::total_cmp);
            Ok(times[REPEATS / 2])
        })?
    }

    fn blocks(&self, count: usize, bytes: usize) -> Result<Vec<DeviceBlock>> {
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 24) as u8
        };
        let noise: Vec<u8> = (0..bytes).map(|_| noise()).collect();
        let block = || {
            let mut block = self.pool.take(bytes)?;
            block.write(&noise)?;
            Ok(block)
        };
        (0..count).map(|_| block()).collect()
    }
}

/// Planes as decoders lay them out: rows at multiples of 256 bytes.
fn layout(format: PixelFormat) -> (Vec<(usize, usize)>, usize) {
    let mut end = 0;
    let planes = format.planes(WIDTH, HEIGHT).into_iter().map(|(row, rows)| {
        let (start, stride) = (end, row.next_multiple_of(256));
        end += stride * rows;
        (start, stride)
    });
    (planes.collect(), end)
}

fn main() -> Result<()> {
    let Some(context) = gpu::context() else { return Ok(()) };
    let bench = Bench::new(&context)?;
    let copied: [DeviceBlock; 2] = bench.blocks(2, COPIED)?.try_into().expect("two");
    let stream = &bench.stream;
    let copy = bench.time(&copied, |_| {
        // SAFETY: both blocks have the bytes.
        unsafe { result::memcpy_dtod_async(copied[1].address(), copied[0].address(), COPIED, stream.raw().cast()) }
            .expect("a copy");
        Ok(())
    })?;
    let bandwidth = 2.0 * COPIED as f64 / copy;
    let nothing = bench.time(&copied, |_| Ok(()))?;
    println!(
        "{}: a copy moves {:.2} TB/s, two events are {nothing:.2} µs apart; medians of {REPEATS}, µs",
        context.device_name()?,
        bandwidth / 1e6
    );
    let idle = context.module(IDLE)?.function("idle")?;
    for blocks in [1, 400] {
        let shape = Launch { grid: (blocks, 1, 1), block: (256, 1, 1), shared: 0 };
        // SAFETY: it takes no more than this, and touches nothing.
        let time = bench.time(&copied, |_| unsafe { stream.launch(&idle, shape, &0u64) })?;
        println!("{:<52}{time:>9.2}", format!("a kernel that does nothing, in {blocks} blocks"));
    }
    println!(
        "{:<52}{:>9}{:>11}{:>9}{:>12}{:>9}",
        "preprocess 1920x1080", "1 frame", "32 frames", "of copy", "32 launches", "of copy"
    );

    let color = Colorimetry { matrix: Matrix::Bt709, chroma_left: true, ..Colorimetry::default() };
    for (format, tensor) in [
        (PixelFormat::Nv12, "f16 1x3x640x640 nchw rgb"),
        (PixelFormat::Nv12, "f32 1x3x640x640 nchw rgb"),
        (PixelFormat::Nv12, "u8 1x640x640x3 nhwc rgb"),
        (PixelFormat::Nv12, "f16 1x3x512x512 nchw rgb"),
        (PixelFormat::Nv12, "f16 1x3x1280x1280 nchw rgb"),
        (PixelFormat::Nv12, "f16 1x1x640x640 nchw gray"),
        (PixelFormat::P010, "f16 1x3x640x640 nchw rgb"),
        (PixelFormat::I420, "f16 1x3x640x640 nchw rgb"),
        (PixelFormat::Rgb, "f16 1x3x640x640 nchw rgb"),
        (PixelFormat::Bgra, "f16 1x3x640x640 nchw rgb"),
        (PixelFormat::Gray8, "f16 1x3x640x640 nchw rgb"),
    ] {
        let spec: InputSpec = format!("cuda {tensor} letterbox:114 scale:0.003921569 images").parse()?;
        let written = spec.desc.bytes().expect("fixed dimensions");
        let kernel = PreprocessKernel::new(&context, format, (WIDTH, HEIGHT), color, &spec)?;
        let (planes, bytes) = layout(format);
        let (pictures, tensors) = (bench.blocks(FRAMES, bytes)?, bench.blocks(FRAMES, written)?);
        let frames: Vec<(DevicePlanes, u64)> = pictures
            .iter()
            .zip(&tensors)
            .map(|(picture, tensor)| {
                let plane = |&(start, stride)| DevicePlane { address: picture.address() + start as u64, stride };
                (planes.iter().map(plane).collect(), tensor.address())
            })
            .collect();
        // SAFETY: frames and tensors have their sizes and live until the end.
        let one = bench.time(&copied, |i| unsafe {
            let (planes, tensor) = &frames[i % FRAMES];
            kernel.launch(stream, planes, *tensor)
        })?;
        // SAFETY: as above.
        let batch = bench.time(&copied, |_| unsafe { kernel.launch_batch(stream, &frames) })?;
        let launches = bench.time(&copied, |_| {
            // SAFETY: as above.
            frames.iter().try_for_each(|(planes, tensor)| unsafe { kernel.launch(stream, planes, *tensor) })
        })?;
        let moved = FRAMES * (kernel.bytes_read().0 + written);
        let share = |time: f64| 100.0 * moved as f64 / time / bandwidth;
        let name = format!("{} to {tensor}, {:.2} MB", format.name(), moved as f64 / FRAMES as f64 / 1e6);
        println!("{name:<52}{one:>9.2}{batch:>11.1}{:>8.0}%{launches:>12.1}{:>8.0}%", share(batch), share(launches));
    }

    println!("{:<52}{:>9}", "overlay 1920x1080", "1 frame");
    for format in [PixelFormat::Nv12, PixelFormat::P010, PixelFormat::Rgba] {
        for count in [1, 10, 100, 300] {
            let (planes, bytes) = layout(format);
            let picture = &bench.blocks(1, bytes)?[0];
            let plane = |&(start, stride)| DevicePlane { address: picture.address() + start as u64, stride };
            let planes: DevicePlanes = planes.iter().map(plane).collect();
            let boxes: Vec<Candidate> = (0..count)
                .map(|i| {
                    let (x, y) = ((i * 719 % 1700) as f32, (i * 421 % 900) as f32);
                    Candidate { bbox: BBox::new(x, y, x + 200.0, y + 160.0), score: 0.9, class: i, row: i, angle: 0.0 }
                })
                .collect();
            let target = Target { format, width: WIDTH as u32, height: HEIGHT as u32, color };
            let mut kernel = OverlayKernel::new(&context, target, &["person".into()], None)?;
            let bytes = found_bytes(&boxes);
            let mut block = DevicePool::new(&context).take(bytes.len())?;
            block.write(&bytes)?;
            let (found, style) = (
                DeviceDetections {
                    address: block.address(),
                    limit: boxes.len(),
                    gathered: None,
                    are_rotated: false,
                    masks: None,
                },
                Style::default(),
            );
            // SAFETY: the picture has its size, and all lives until the end.
            let time = bench.time(&copied, |_| unsafe { kernel.launch(stream, &planes, found, None, &style) })?;
            println!("{:<52}{time:>9.2}", format!("{count} boxes with labels on {}", format.name()));
        }
    }
    Ok(())
}
