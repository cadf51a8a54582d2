// SPDX-License-Identifier: MPL-2.0
//! What the kernels are told of samplers: which planes are alone, and the tables of antialiasing.

use super::*;
use crate::image::frame::{Frame, Plane};

/// What `kernels/antialias.cu` makes of a sample of each pixel, from the tables alone.
fn mean(
    tables: &Tables,
    [rows, columns]: [[u32; 3]; 2],
    step: u32,
    plane: &Plane,
    sample: impl Fn(&[u8]) -> f32,
) -> f32 {
    let weight = |i: u32| bytemuck::pod_read_unaligned::<f32>(&tables.bytes[4 * i as usize..][..4]);
    let down = |x: u32| {
        let at = |y: u32| (rows[0] + y) as usize * plane.stride + (columns[0] + x * step) as usize;
        let products = (0..rows[1]).map(|y| sample(&plane.data[at(y)..]) * weight(rows[2] + y));
        products.reduce(|sum, product| sum + product).unwrap()
    };
    let products = (0..columns[1]).map(|x| down(x) * weight(columns[2] + x));
    products.reduce(|sum, product| sum + product).unwrap()
}

/// Which planes need no neighbours, by the size of frames that become 640x640.
#[test]
fn planes_are_alone_where_all_positions_fall_on_samples() {
    let alone = |format, size: (usize, usize), chroma: &str| {
        let spec = format!("cuda f16 1x3x640x640 nchw rgb letterbox:114 scale:1 {chroma} images");
        let spec: InputSpec = spec.replace("  ", " ").parse().unwrap();
        let color = Colorimetry { chroma_left: true, ..Colorimetry::default() };
        let reference =
            Reference::of_region(format, size, (size.0 as u32, size.1 as u32).into(), color, &spec).unwrap();
        let Samplers::Bilinear(samplers) = &reference.samplers else { panic!("it is antialiased") };
        bilinear(samplers).alone
    };
    let both = FIRST_ALONE | OTHERS_ALONE;
    assert_eq!(alone(PixelFormat::Nv12, (1920, 1080), ""), both);
    assert_eq!(alone(PixelFormat::I420, (1920, 1080), ""), both);
    assert_eq!(alone(PixelFormat::Nv12, (1920, 1080), "chroma:sited"), FIRST_ALONE);
    assert_eq!(alone(PixelFormat::Nv12, (1280, 720), ""), OTHERS_ALONE);
    assert_eq!(alone(PixelFormat::Nv12, (640, 360), ""), both, "the last sample of a row, too");
    assert_eq!(alone(PixelFormat::Nv12, (854, 480), ""), 0);
    assert_eq!(alone(PixelFormat::Rgb, (1920, 1080), ""), FIRST_ALONE, "there is no chroma");
    assert_eq!(alone(PixelFormat::Rgb, (1280, 720), ""), 0);
}

/// Where positions are equally far from each other, by the frame's size, what is read of it, and the tensor's size.
#[test]
fn positions_on_samples_are_steps_apart() {
    let found = |format, size: (usize, usize), source: Option<Rect>, (width, height): (u32, u32), chroma: &str| {
        let spec = format!("cuda f16 1x3x{height}x{width} nchw rgb letterbox:114 scale:1 {chroma} images");
        let spec: InputSpec = spec.replace("  ", " ").parse().unwrap();
        let source = source.unwrap_or((size.0 as u32, size.1 as u32).into());
        let reference = Reference::of_region(format, size, source, Colorimetry::default(), &spec).unwrap();
        let Samplers::Bilinear(samplers) = &reference.samplers else { panic!("it is antialiased") };
        steps(samplers, &reference.letterbox)
    };
    let (hd, model) = ((1920, 1080), (640, 640));
    for format in PixelFormat::ALL {
        assert_eq!(found(format, hd, None, model, ""), Some([3, 3]), "{}", format.name());
        assert_eq!(found(format, (640, 360), None, model, ""), Some([1, 1]), "{}: the last sample, too", format.name());
        assert_eq!(found(format, (1280, 720), None, model, ""), None, "{}", format.name());
    }
    assert_eq!(found(PixelFormat::Nv12, hd, None, model, "chroma:sited"), None);
    assert_eq!(found(PixelFormat::Bgra, hd, None, model, "chroma:sited"), Some([3, 3]), "there is no chroma");
    assert_eq!(found(PixelFormat::Nv12, hd, None, (512, 512), ""), None);
    let part = |left, top, right, bottom| Some(Rect { left, top, right, bottom });
    assert_eq!(found(PixelFormat::Nv12, hd, part(7, 5, 967, 545), (320, 192), ""), Some([3, 3]));
    assert_eq!(found(PixelFormat::Nv12, hd, part(0, 0, 1920, 120), model, ""), None, "most of the tensor is padding");
}

/// The tables lead a kernel to the samples and weights of the reference implementation.
#[test]
fn antialiased_tables_hold_what_the_host_reads() {
    for format in PixelFormat::ALL {
        let (width, height) = (37, 23);
        let spec: InputSpec = "cuda f32 1x3x8x12 nchw rgb center-crop:0 scale:1 chroma:sited images".parse().unwrap();
        let source = Rect { left: 3, top: 1, right: 36, bottom: 22 };
        let color = Colorimetry::default();
        let mut reference = Reference::of_region(format, (width, height), source, color, &spec).unwrap();
        let planes: Vec<(usize, Vec<u8>)> = (format.planes(width, height).into_iter())
            .map(|(row, rows)| (row, (0..row * rows).map(|i| (i * i % 251) as u8).collect()))
            .collect();
        let planes = planes.iter().map(|(stride, data)| Plane { data, stride: *stride }).collect();
        let frame = Frame { format, width, height, planes };
        let Samplers::Antialiased(samplers) = &mut reference.samplers else { panic!("{}", format.name()) };
        let tables = antialiased(samplers);
        let taps = |at: usize| bytemuck::pod_read_unaligned::<Taps>(&tables.bytes[at..][..size_of::<Taps>()]);
        let last = samplers.len() - 1;
        for (plane, sampler) in samplers.iter_mut().enumerate() {
            let run = |taps: Taps| if plane == 0 { taps.first } else { taps.others };
            let step = if plane == 0 { tables.first_step } else { tables.others_step };
            let (sample, offsets) = (sampler.sample, sampler.offsets.clone());
            for j in 0..8 {
                let mut wanted = vec![0.0; sampler.channels() * 12];
                sampler.sample(&frame, j, &mut wanted);
                for (i, line) in (0..12).flat_map(|i| (0..offsets.len()).map(move |line| (i, line))) {
                    let runs = [taps(tables.rows + j * size_of::<Taps>()), taps(i * size_of::<Taps>())].map(run);
                    let value = |bytes: &[u8]| match sample {
                        2 => {
                            f32::from(u16::from_le_bytes([bytes[2 * offsets[line]], bytes[2 * offsets[line] + 1]]))
                                / 256.0
                        }
                        _ => f32::from(bytes[offsets[line]]),
                    };
                    let found = mean(&tables, runs, step, &frame.planes[plane.min(last)], value);
                    assert_eq!(found, wanted[line * 12 + i], "{} {plane} {i},{j}", format.name());
                }
            }
        }
    }
}
