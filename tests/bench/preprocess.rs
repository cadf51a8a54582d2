// SPDX-License-Identifier: MPL-2.0
//! Preprocessing against `videoconvertscale` on one core, in one run:
//!
//! `taskset -c 1 cargo bench --bench preprocess`
//!
//! Each figure is the median over frames of the time for one 1920x1080 frame. GStreamer only scales and converts, to RGB
//! bytes of 512x288; ours also normalises, and writes a 512x512 tensor with its padding.

use std::time::Instant;

use gsttrt_core::image::frame::{Colorimetry, Frame, Matrix, PixelFormat, Plane};
use gsttrt_core::image::preprocess::HostPreprocessor;
use gsttrt_core::image::transform::InputSpec;

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;
/// Frames take turns, as from a decoder's pool.
const FRAMES: usize = 8;
const REPEATS: usize = 240;

/// Microseconds of one call, which gets the number of the frame to take.
fn median(mut call: impl FnMut(usize)) -> f64 {
    let mut times: Vec<f64> = (0..REPEATS)
        .map(|i| {
            let start = Instant::now();
            call(i % FRAMES);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[REPEATS / 2]
}

/// Frames of noise, planes one after the other without gaps.
fn frames(format: PixelFormat) -> Vec<Vec<u8>> {
    let bytes: usize = format.planes(WIDTH, HEIGHT).iter().map(|(row, rows)| row * rows).sum();
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 24) as u8
    };
    (0..FRAMES).map(|_| (0..bytes).map(|_| noise()).collect()).collect()
}

fn ours(format: PixelFormat, tensor: &str) -> f64 {
    let frames = frames(format);
    let frames: Vec<Frame> = frames
        .iter()
        .map(|bytes| {
            let mut rest = &bytes[..];
            let planes = format.planes(WIDTH, HEIGHT).into_iter().map(|(stride, rows)| {
                let (data, tail) = rest.split_at(stride * rows);
                rest = tail;
                Plane { data, stride }
            });
            Frame { format, width: WIDTH, height: HEIGHT, planes: planes.collect() }
        })
        .collect();
    let spec: InputSpec = format!("cpu {tensor} letterbox:114 scale:0.003921569 images").parse().unwrap();
    let mut tensor = vec![0; spec.desc.bytes().unwrap()];
    let color = Colorimetry { matrix: Matrix::Bt709, chroma_left: true, ..Colorimetry::default() };
    let mut preprocess = HostPreprocessor::new(format, WIDTH, HEIGHT, color, &spec).unwrap();
    median(|i| preprocess.run(&frames[i], &mut tensor).unwrap())
}

fn videoconvertscale(format: PixelFormat, width: usize, height: usize) -> f64 {
    let mut harness = gst_check::Harness::new_parse(&format!(
        "videoconvertscale n-threads=1 ! capsfilter caps=video/x-raw,format=RGB,width={width},height={height}"
    ));
    harness.set_src_caps_str(&format!(
        "video/x-raw,format={},width={WIDTH},height={HEIGHT},framerate=25/1,colorimetry=bt709,chroma-site=mpeg2",
        format.name()
    ));
    let buffers: Vec<_> = frames(format).into_iter().map(gst::Buffer::from_slice).collect();
    median(|i| {
        let scaled = harness.push_and_pull(buffers[i].clone()).unwrap();
        assert_eq!(scaled.size(), width * height * 3);
    })
}

fn main() {
    gst::init().unwrap();
    let version = gst::version_string();
    let convert = videoconvertscale(PixelFormat::Nv12, 512, 288);
    println!("{:<44}{:>9}{:>9}", "one 1920x1080 frame", "us", "faster");
    println!("{:<44}{convert:>9.0}{:>9.2}", format!("{version}: NV12 to RGB 512x288"), 1.0);
    for (format, tensor) in [
        (PixelFormat::Nv12, "f32 1x3x512x512 nchw rgb"),
        (PixelFormat::Nv12, "f16 1x3x512x512 nchw rgb"),
        (PixelFormat::Nv12, "u8 1x3x512x512 nchw rgb"),
        (PixelFormat::Nv12, "f32 1x512x512x3 nhwc rgb"),
        (PixelFormat::Nv12, "u8 1x512x512x3 nhwc rgb"),
        (PixelFormat::Nv12, "f32 1x1x512x512 nchw gray"),
        (PixelFormat::I420, "f32 1x3x512x512 nchw rgb"),
        (PixelFormat::Rgb, "f32 1x3x512x512 nchw rgb"),
        (PixelFormat::Bgrx, "f32 1x3x512x512 nchw rgb"),
        (PixelFormat::Gray8, "f32 1x3x512x512 nchw rgb"),
        (PixelFormat::Nv12, "f32 1x3x640x640 nchw rgb"),
        (PixelFormat::Nv12, "f32 1x3x2560x2560 nchw rgb"),
    ] {
        let time = ours(format, tensor);
        println!("{:<44}{time:>9.0}{:>9.2}", format!("{} to {tensor}", format.name()), convert / time);
    }
}
