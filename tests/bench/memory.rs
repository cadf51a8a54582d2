// SPDX-License-Identifier: MPL-2.0
//! Pools, and what it costs a GPU to read frames from where they are:
//!
//! `cargo bench --bench memory`
//!
//! The first rows are nanoseconds for taking a buffer from a pool and giving it back. The table is about frames in host memory
//! that the preprocess kernel turns into tensors of the same size: copied first from ordinary or from pinned memory, or read in
//! place out of pinned memory; and in the GPU's own memory. A time is that from the call until the tensor is there, the median
//! of many. The last row is a 1080p NV12 frame, and what `upload=auto` does with it here.

#[path = "../common/awake.rs"]
mod awake;

use std::time::Instant;

use awake::wait_awake;
use gsttrt_core::cuda::driver::Context;
use gsttrt_core::error::Result;
use gsttrt_core::image::device::DevicePlane;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::image::preprocess::device::{DevicePreprocessor, Upload};
use gsttrt_core::image::transform::InputSpec;
use gsttrt_core::memory::{Buffer, Limits, MemoryKind, Pool};

const REPEATS: usize = 101;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Nanoseconds for taking and giving back, while as many buffers are in use.
fn pool(pool: &Pool, away: usize) -> Result<f64> {
    const ROUNDS: u32 = 20_000;
    let size = 640 * 640 * 3 * 2;
    let kept = (0..away).map(|_| pool.take(size)).collect::<Result<Vec<_>>>()?;
    let round = || {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            drop(pool.take(size)?);
        }
        Ok(begun.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS))
    };
    let times = (0..11).map(|_| round()).collect::<Result<Vec<_>>>()?;
    drop(kept);
    Ok(median(times))
}

/// A picture, and how its planes lie in a buffer: where they begin, and their rows.
struct Picture {
    format: PixelFormat,
    size: (usize, usize),
    planes: Vec<(usize, usize, usize)>,
}

impl Picture {
    fn new(format: PixelFormat, width: usize, height: usize) -> Self {
        let (mut start, planes) = (0, format.planes(width, height));
        let planes = planes.iter().map(|&(row, rows)| {
            start += row * rows;
            (start - row * rows, row, rows)
        });
        Picture { format, size: (width, height), planes: planes.collect() }
    }

    fn bytes(&self) -> usize {
        self.planes.iter().map(|(_, row, rows)| row * rows).sum()
    }

    fn frame<'a>(&self, bytes: &'a [u8]) -> Frame<'a> {
        let planes = self.planes.iter();
        let planes = planes.map(|&(start, row, rows)| Plane { data: &bytes[start..][..row * rows], stride: row });
        Frame { format: self.format, width: self.size.0, height: self.size.1, planes: planes.collect() }
    }

    /// Microseconds until the tensor of a frame in such memory is there.
    fn time(&self, cuda: &Context, kind: MemoryKind, upload: Upload, spec: &InputSpec) -> Result<f64> {
        let mut preprocessor = DevicePreprocessor::new(cuda, self.format, self.size, Colorimetry::default(), spec)?;
        preprocessor.set_upload(upload);
        let mut buffer = match kind {
            MemoryKind::Host => Buffer::host(self.bytes()),
            MemoryKind::Device => Buffer::device(cuda, self.bytes())?,
            _ => Buffer::mapped(cuda, self.bytes())?,
        };
        buffer.write(0, &vec![99; self.bytes()])?;
        let mut times = Vec::new();
        for _ in 0..REPEATS + 10 {
            let begun = Instant::now();
            let made = match (buffer.as_bytes(), buffer.address()) {
                (Some(bytes), _) => preprocessor.of_host(&self.frame(bytes))?,
                (None, address) => {
                    let address = address.expect("on the device");
                    let planes = self.planes.iter();
                    let planes = planes.map(|&(at, stride, _)| DevicePlane { address: address + at as u64, stride });
                    // SAFETY: they stay until the tensor is there.
                    unsafe { preprocessor.of_gpu(&planes.collect::<Vec<_>>()) }?
                }
            };
            made.ready().map_or(Ok(()), wait_awake)?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        Ok(median(times.split_off(10)))
    }

    fn row(&self, cuda: &Context, name: &str, spec: &InputSpec) -> Result<[f64; 4]> {
        let times = [
            self.time(cuda, MemoryKind::Host, Upload::Copy, spec)?,
            self.time(cuda, MemoryKind::Mapped, Upload::Copy, spec)?,
            self.time(cuda, MemoryKind::Mapped, Upload::Mapped, spec)?,
            self.time(cuda, MemoryKind::Device, Upload::Copy, spec)?,
        ];
        let [pageable, pinned, mapped, device] = times;
        let best = if mapped < pinned { "mapped" } else { "copied" };
        println!("{name:<14} {pageable:>9.1} {pinned:>9.1} {mapped:>9.1} {device:>9.1}   {best}");
        Ok(times)
    }
}

fn main() -> Result<()> {
    for away in [0, 8, 64] {
        println!("host pool, {away:>2} buffers away    {:>7.0} ns", pool(&Pool::host(Limits::NONE), away)?);
    }
    let cuda = match Context::primary(0) {
        Ok(cuda) => cuda,
        Err(error) => {
            println!("SKIP: {error}");
            return Ok(());
        }
    };
    for kind in [MemoryKind::Pinned, MemoryKind::Device] {
        let time = pool(&Pool::new(kind, &cuda, Limits::NONE), 8)?;
        println!("{kind} pool,  8 buffers away  {time:>7.0} ns");
    }
    println!(
        "\n{:<14} {:>9} {:>9} {:>9} {:>9}   µs until the tensor is there",
        "frame", "pageable", "pinned", "mapped", "device"
    );
    for kib in [4, 16, 64, 256, 1024, 4096, 16384, 65536] {
        let side = ((kib * 1024) as f64).sqrt() as usize;
        let spec = format!("cuda u8 1x1x{side}x{side} nchw gray stretch:0 scale:1 images").parse()?;
        Picture::new(PixelFormat::Gray8, side, side).row(&cuda, &format!("{kib} KiB"), &spec)?;
    }
    let spec = "cuda f16 1x3x640x640 nchw rgb letterbox:114 scale:0.003921569 images".parse()?;
    let hd = Picture::new(PixelFormat::Nv12, 1920, 1080);
    let [_, pinned, mapped, _] = hd.row(&cuda, "1080p NV12", &spec)?;
    let auto = hd.time(&cuda, MemoryKind::Mapped, Upload::Auto, &spec)?;
    let faster = mapped.min(pinned);
    println!("upload=auto of the last one on {}: {auto:.1} µs, the faster one {faster:.1} µs", cuda.device_name()?);
    Ok(())
}
