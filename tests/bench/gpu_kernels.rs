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
#[path = "../../core/tests/common/gpu.rs"]
mod gpu;

use std::ptr;
use std::sync::Arc;

use cudarc::driver::{result, sys};
use gsttrt_core::cuda::driver::{Context, Launch, Stream};
use gsttrt_core::error::{Error, Result};
use gsttrt_core::image::Candidate;
use gsttrt_core::image::detections::{DeviceDetections, DeviceMasks, found_bytes};
use gsttrt_core::image::device::{DevicePlane, DevicePlanes};
use gsttrt_core::image::frame::{Colorimetry, Matrix, PixelFormat};
use gsttrt_core::image::geometry::{BBox, Letterbox, ResizeMode};
use gsttrt_core::image::masks::{Masks, PrototypeShape, Prototypes};
use gsttrt_core::image::motion::MotionKernel;
use gsttrt_core::image::overlay::kernel::OverlayKernel;
use gsttrt_core::image::overlay::{Style, Target};
use gsttrt_core::image::preprocess::kernel::PreprocessKernel;
use gsttrt_core::image::preprocess::region_kernel::RegionKernel;
use gsttrt_core::image::privacy::kernel::PrivacyKernel;
use gsttrt_core::image::privacy::{Effect, HiddenArea, QuadMask};
use gsttrt_core::image::slices::{Division, Slices};
use gsttrt_core::image::transform::InputSpec;
use gsttrt_core::memory::{DeviceBlock, DevicePool};
use gsttrt_core::tensor::Tensor;

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;
const FRAMES: usize = 32;
const REPEATS: usize = 51;
const COPIED: usize = 1 << 30;

const IDLE: &str = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry idle(.param .u64 unused) { ret; }\0";

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
fn layout(format: PixelFormat, (width, height): (usize, usize)) -> (Vec<(usize, usize)>, usize) {
    let mut end = 0;
    let planes = format.planes(width, height).into_iter().map(|(row, rows)| {
        let (start, stride) = (end, row.next_multiple_of(256));
        end += stride * rows;
        (start, stride)
    });
    (planes.collect(), end)
}

/// Twelve slices of a large frame and the frame itself: in one launch, and in a launch for each.
fn slices(bench: &Bench, copied: &[DeviceBlock; 2], bandwidth: f64, color: Colorimetry) -> Result<()> {
    let size = (3840, 2160);
    let slices = Slices { division: Division::Count(4, 3), overlap: 0.2, with_frame: true };
    let sources = slices.of((size.0 as u32, size.1 as u32))?;
    println!("{:<52}{:>9}{:>9}{:>12}", "4x3 slices and the frame, 3840x2160", "1 launch", "of copy", "13 launches");
    for (format, tensor) in [
        (PixelFormat::Nv12, "f16 1x3x640x640 nchw rgb"),
        (PixelFormat::Nv12, "f32 1x3x640x640 nchw rgb"),
        (PixelFormat::P010, "f16 1x3x640x640 nchw rgb"),
        (PixelFormat::Bgra, "f16 1x3x640x640 nchw rgb"),
    ] {
        let spec: InputSpec = format!("cuda {tensor} letterbox:114 scale:0.003921569 images").parse()?;
        let written = spec.desc.bytes().expect("fixed dimensions");
        let together = RegionKernel::new(&bench.context, format, size, color, &spec)?.expect("it is bilinear");
        let kernel = |&source| PreprocessKernel::of_region(&bench.context, format, size, source, color, &spec);
        let kernels = sources.iter().map(kernel).collect::<Result<Vec<_>>>()?;
        let (planes, bytes) = layout(format, size);
        let (pictures, tensors) = (bench.blocks(4, bytes)?, bench.blocks(sources.len(), written)?);
        let planes = |i: usize| -> DevicePlanes {
            let plane = |&(start, stride)| DevicePlane { address: pictures[i % 4].address() + start as u64, stride };
            planes.iter().map(plane).collect()
        };
        let regions = || sources.iter().copied().zip(tensors.iter().map(DeviceBlock::address));
        // SAFETY: frames and tensors have their sizes and live until the end.
        let one = bench.time(copied, |i| unsafe { together.launch(&bench.stream, &planes(i), regions()) })?;
        let each = bench.time(copied, |i| {
            let all = kernels.iter().zip(&tensors);
            // SAFETY: as above.
            all.into_iter()
                .try_for_each(|(kernel, tensor)| unsafe { kernel.launch(&bench.stream, &planes(i), tensor.address()) })
        })?;
        let moved: usize = kernels.iter().map(|kernel| kernel.bytes_read().0 + written).sum();
        let share = 100.0 * moved as f64 / one / bandwidth;
        let name = format!("{} to {tensor}, {:.1} MB", format.name(), moved as f64 / 1e6);
        println!("{name:<52}{one:>9.1}{share:>8.0}%{each:>12.1}");
    }
    Ok(())
}

/// Faces and persons that are blurred, and a polygon over a quarter of the frame: the areas are uploaded each time.
fn privacy(bench: &Bench, copied: &[DeviceBlock; 2], color: Colorimetry) -> Result<()> {
    println!("{:<52}{:>9}", "privacy 1920x1080", "1 frame");
    let size = (WIDTH as u32, HEIGHT as u32);
    let polygon = vec![[480.0, 270.0], [1440.0, 270.0], [1440.0, 810.0], [480.0, 810.0]];
    let mask = Arc::new(QuadMask::new(&[polygon], size)?);
    for format in [PixelFormat::Nv12, PixelFormat::P010, PixelFormat::Rgba] {
        for (what, count, (width, height), has_mask) in [
            ("face of 96x96", 1, (96.0, 96.0), false),
            ("faces of 96x96", 20, (96.0, 96.0), false),
            ("persons of 200x500", 20, (200.0, 500.0), false),
            ("faces of 96x96", 300, (96.0, 96.0), false),
            ("areas and a polygon", 0, (0.0, 0.0), true),
        ] {
            let (planes, bytes) = layout(format, (WIDTH, HEIGHT));
            let picture = &bench.blocks(1, bytes)?[0];
            let plane = |&(start, stride)| DevicePlane { address: picture.address() + start as u64, stride };
            let planes: DevicePlanes = planes.iter().map(plane).collect();
            let areas: Vec<HiddenArea> = (0..count)
                .filter_map(|i| {
                    let (x, y) = ((i * 719 % 1700) as f32, (i * 421 % 560) as f32);
                    HiddenArea::new(BBox::new(x, y, x + width, y + height), Effect::Blur, size)
                })
                .collect();
            let target = Target { format, width: size.0, height: size.1, color };
            let mut kernel = PrivacyKernel::new(&bench.context, target)?;
            let mask = has_mask.then_some(&mask);
            // SAFETY: the picture has its size, and all lives until the end.
            let time = bench.time(copied, |_| unsafe { kernel.launch(&bench.stream, &planes, &areas, mask) })?;
            println!("{:<52}{time:>9.2}", format!("{count} {what} on {}", format.name()));
        }
    }
    Ok(())
}

/// Motion in a frame, with the wait for the answer.
fn motion(bench: &Bench, copied: &[DeviceBlock; 2]) -> Result<()> {
    println!("{:<52}{:>9}", "motion 1920x1080", "1 frame");
    for format in [PixelFormat::Nv12, PixelFormat::P010, PixelFormat::Rgba] {
        let (planes, bytes) = layout(format, (WIDTH, HEIGHT));
        let pictures = bench.blocks(4, bytes)?;
        let mut kernel = MotionKernel::new(&bench.context, format, (WIDTH, HEIGHT))?;
        let time = bench.time(copied, |i| {
            let plane = |&(start, stride)| DevicePlane { address: pictures[i % 4].address() + start as u64, stride };
            let planes: DevicePlanes = planes.iter().map(plane).collect();
            // SAFETY: the pictures have their size, and live until the end.
            unsafe { kernel.changed(&bench.stream, &planes, 12) }.map(drop)
        })?;
        println!("{:<52}{time:>9.2}", format.name());
    }
    Ok(())
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
        let (planes, bytes) = layout(format, (WIDTH, HEIGHT));
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

    slices(&bench, &copied, bandwidth, color)?;
    privacy(&bench, &copied, color)?;
    motion(&bench, &copied)?;
    println!("{:<52}{:>9}", "overlay 1920x1080", "1 frame");
    let prototypes = Tensor::from_slice("prototypes", &[1, 1, 4, 4], &[1f32; 16]);
    let shape = PrototypeShape { count: 1, width: 4, height: 4 };
    let prototypes = Prototypes::new(shape, &prototypes).expect("as many numbers");
    let size = (WIDTH as u32, HEIGHT as u32);
    let whole = Letterbox::new(size, size, ResizeMode::Stretch);
    for format in [PixelFormat::Nv12, PixelFormat::P010, PixelFormat::Rgba] {
        // Masks that fill their boxes, which is the greatest work.
        for (count, has_masks) in [(1, false), (10, false), (100, false), (300, false), (50, false), (50, true)] {
            let (planes, bytes) = layout(format, (WIDTH, HEIGHT));
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
            let mut block = bench.pool.take(bytes.len())?;
            block.write(&bytes)?;
            let mut masks = Masks::default();
            masks.find(&prototypes, &vec![1.0; boxes.len()], &boxes, size);
            let (places, words) = masks.for_device();
            let [places, bits] = [bytemuck::cast_slice(&places), bytemuck::cast_slice(words)].map(|bytes: &[u8]| {
                let mut block = bench.pool.take(bytes.len())?;
                block.write(bytes)?;
                Ok::<_, Error>(block)
            });
            let (places, bits) = (places?, bits?);
            let letterbox = has_masks.then_some(&whole);
            let masks = has_masks.then(|| DeviceMasks { entries: places.address(), bits: bits.address(), detail: 0 });
            let (found, style) = (
                DeviceDetections {
                    address: block.address(),
                    limit: boxes.len(),
                    gathered: None,
                    are_rotated: false,
                    masks,
                },
                Style::default(),
            );
            // SAFETY: the picture has its size, and all lives until the end.
            let time = bench.time(&copied, |_| unsafe { kernel.launch(stream, &planes, found, letterbox, &style) })?;
            let what = if has_masks { "boxes with labels and masks" } else { "boxes with labels" };
            println!("{:<52}{time:>9.2}", format!("{count} {what} on {}", format.name()));
        }
    }
    Ok(())
}
