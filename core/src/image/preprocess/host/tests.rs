// SPDX-License-Identifier: MPL-2.0
//! The fast path against plain code with the same arithmetic, bit for bit; then both against arithmetic by hand.

mod reference;

use half::f16;
use proptest::prelude::*;

use super::*;
use crate::image::frame::{Matrix, Plane};
use crate::image::geometry::{Rect, ResizeMode};
use crate::image::preprocess::color::{GRAY, YuvToRgb};
use crate::image::transform::{Chroma, Colors, InputTransform};
use crate::options::Choices;
use crate::tensor::{Element, TensorDesc};

/// A frame that owns its planes. Bytes between rows are `poison`, which must make no difference.
#[derive(Debug)]
struct Picture {
    format: PixelFormat,
    width: usize,
    height: usize,
    planes: Vec<(Vec<u8>, usize)>,
}

impl Picture {
    /// `sample` returns the byte at (plane, byte in row, row); strides are `slack` bytes longer than rows.
    fn new(
        (format, width, height): (PixelFormat, usize, usize),
        slack: usize,
        poison: u8,
        mut sample: impl FnMut(usize, usize, usize) -> u8,
    ) -> Self {
        let planes = format.planes(width, height).into_iter().enumerate().map(|(plane, (row, rows))| {
            let stride = row + slack;
            let mut bytes = vec![poison; stride * (rows - 1) + row];
            for y in 0..rows {
                (0..row).for_each(|x| bytes[y * stride + x] = sample(plane, x, y));
            }
            (bytes, stride)
        });
        Picture { format, width, height, planes: planes.collect() }
    }

    fn noise(shape: (PixelFormat, usize, usize), slack: usize, poison: u8, seed: u32) -> Self {
        let mut state = seed;
        Picture::new(shape, slack, poison, |_, _, _| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 24) as u8
        })
    }

    /// One colour, as a pixel of the first plane and, for YUV, of the others.
    fn solid(shape: (PixelFormat, usize, usize), pixel: &[u8]) -> Self {
        Picture::new(shape, 0, 0, |plane, x, _| match (shape.0, plane) {
            (PixelFormat::Nv12 | PixelFormat::I420, 0) => pixel[0],
            (PixelFormat::Nv12, _) => pixel[1 + x % 2],
            // Codes of 8 bits are the upper bytes.
            (PixelFormat::P010, 0) => pixel[0] * (x % 2) as u8,
            (PixelFormat::P010, _) => pixel[1 + x / 2 % 2] * (x % 2) as u8,
            (PixelFormat::I420, _) => pixel[plane],
            _ => pixel[x % pixel.len()],
        })
    }

    fn frame(&self) -> Frame<'_> {
        let planes = self.planes.iter().map(|(data, stride)| Plane { data, stride: *stride }).collect();
        Frame { format: self.format, width: self.width, height: self.height, planes }
    }
}

fn spec(dtype: DType, order: TensorLayout, width: usize, height: usize, transform: InputTransform) -> InputSpec {
    let (c, h, w) = (transform.colors.channels() as i64, height as i64, width as i64);
    let dims = if order == TensorLayout::Nchw { [1, c, h, w] } else { [1, h, w, c] };
    InputSpec {
        device: crate::device::Device::Host,
        desc: TensorDesc::new("images", dtype, &dims),
        order,
        transform,
        widest: 0,
    }
}

/// Samples 0..255 as they are.
fn plain(colors: Colors, fit: ResizeMode) -> InputTransform {
    InputTransform { colors, fit, scale: 1.0, ..InputTransform::default() }
}

fn run(picture: &Picture, color: Colorimetry, spec: &InputSpec) -> Vec<u8> {
    let mut preprocess = HostPreprocessor::new(picture.format, picture.width, picture.height, color, spec).unwrap();
    let mut tensor = vec![0xa5; spec.desc.bytes().unwrap()];
    preprocess.run(&picture.frame(), &mut tensor).unwrap();
    tensor
}

/// The f32 tensor of a picture under a plain transform.
fn samples(
    picture: &Picture,
    color: Colorimetry,
    width: usize,
    height: usize,
    colors: Colors,
    fit: ResizeMode,
) -> Vec<f32> {
    let spec = spec(DType::F32, TensorLayout::Nchw, width, height, plain(colors, fit));
    elements(&run(picture, color, &spec))
}

fn elements<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::U8];

fn transforms() -> impl Strategy<Value = InputTransform> {
    let imagenet =
        InputTransform { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], ..InputTransform::default() };
    let bytes = InputTransform {
        scale: 1.0,
        mean: [123.675, 116.28, 103.53],
        std: [58.395, -57.12, 0.5],
        ..InputTransform::default()
    };
    let plain = plain(Colors::Rgb, ResizeMode::Letterbox);
    let numbers = prop::sample::select(vec![InputTransform::default(), imagenet, bytes, plain]);
    let choices = (
        prop::sample::select(&Colors::ALL),
        prop::sample::select(&Chroma::ALL),
        prop::sample::select(&ResizeMode::ALL),
        // No tensor is greater.
        prop::sample::select(vec![0, 0, 100]),
    );
    (numbers, choices, any::<u8>()).prop_map(|(numbers, (colors, chroma, fit, edge), pad)| InputTransform {
        colors,
        chroma,
        fit,
        shortest_edge: if fit == ResizeMode::CenterCrop { edge } else { 0 },
        pad,
        ..numbers
    })
}

fn colorimetries() -> impl Strategy<Value = Colorimetry> {
    let matrices = prop::sample::select(vec![Matrix::Bt601, Matrix::Bt709, Matrix::Bt2020]);
    (matrices, any::<[bool; 3]>()).prop_map(|(matrix, [full_range, chroma_left, chroma_top])| Colorimetry {
        matrix,
        full_range,
        chroma_left,
        chroma_top,
    })
}

fn whole(picture: &Picture) -> Rect {
    (picture.width as u32, picture.height as u32).into()
}

/// The whole of a frame, or the part between edges that are shares of it.
fn part((width, height): (usize, usize), edges: Option<[u8; 4]>) -> Rect {
    let Some([left, top, right, bottom]) = edges else { return (width as u32, height as u32).into() };
    let between = |a: u8, b: u8, size: usize| {
        let at = |share: u8| u32::from(share) * size as u32 / 256;
        (at(a.min(b)), at(a.max(b)) + 1)
    };
    let ((left, right), (top, bottom)) = (between(left, right, width), between(top, bottom, height));
    Rect { left, top, right, bottom }
}

/// What an element that crops would give, from even edges on.
fn crop(picture: &Picture, source: &Rect) -> Picture {
    let &Rect { left, top, .. } = source;
    let shape = (picture.format, source.width() as usize, source.height() as usize);
    let pixels = picture.format.planes(2, 2); // of a pair of pixels
    Picture::new(shape, 0, 0, |plane, x, y| {
        let (bytes, stride) = &picture.planes[plane];
        let (pair, rows) = pixels[plane];
        bytes[(top as usize * rows / 2 + y) * stride + left as usize * pair / 2 + x]
    })
}

proptest! {
    #![proptest_config(crate::test::cases(600))]

    #[test]
    fn a_part_of_a_frame_is_the_frame_cropped(
        format in prop::sample::select(&PixelFormat::ALL),
        (width, height, tensor_width, tensor_height) in (1usize..70, 1usize..70, 1usize..70, 1usize..70),
        edges in any::<[u8; 4]>(),
        seed in any::<u32>(),
        color in colorimetries(),
        transform in transforms(),
        dtype in prop::sample::select(&DTYPES),
    ) {
        let mut source = part((width, height), Some(edges));
        if format.planes(2, 2).len() > 1 {
            (source.left, source.top) = (source.left & !1, source.top & !1);
        }
        let spec = spec(dtype, TensorLayout::Nchw, tensor_width, tensor_height, transform);
        let picture = Picture::noise((format, width, height), 3, 9, seed);
        let expected = run(&crop(&picture, &source), color, &spec);
        let mut preprocess = HostPreprocessor::of_region(format, (width, height), source, color, &spec).unwrap();
        let mut tensor = vec![0xa5; expected.len()];
        preprocess.run(&picture.frame(), &mut tensor).unwrap();
        prop_assert!(tensor == expected, "{} {source:?} {spec}", format.name());
    }

    #[test]
    fn fast_path_equals_the_reference(
        format in prop::sample::select(&PixelFormat::ALL),
        (width, height, tensor_width, tensor_height) in (1usize..70, 1usize..70, 1usize..70, 1usize..70),
        edges in prop::option::of(any::<[u8; 4]>()),
        (slack, seed) in (0usize..9, any::<u32>()),
        color in colorimetries(),
        transform in transforms(),
        dtype in prop::sample::select(&DTYPES),
        order in prop::sample::select(&TensorLayout::OF_PICTURES),
    ) {
        let spec = spec(dtype, order, tensor_width, tensor_height, transform);
        let shape = (format, width, height);
        let source = part((width, height), edges);
        let expected = reference::preprocess(&Picture::noise(shape, slack, 0, seed).frame(), source, color, &spec);
        let mut preprocess = HostPreprocessor::of_region(format, (width, height), source, color, &spec).unwrap();
        let mut tensor = vec![0xa5; expected.len()];
        // Another frame goes first, which must leave no trace; then poison in the padding must make no difference.
        for (seed, poison) in [(!seed, 0), (seed, 0), (seed, 255)] {
            preprocess.run(&Picture::noise(shape, slack, poison, seed).frame(), &mut tensor).unwrap();
        }
        prop_assert!(tensor == expected, "{} {spec}", format.name());
        // The loops that other processors get.
        tensor.fill(0xa5);
        preprocess.write(&Picture::noise(shape, slack, 0, seed).frame(), &mut tensor);
        prop_assert!(tensor == expected, "portable, {} {spec}", format.name());
    }

    #[test]
    fn broken_frames_are_errors(
        format in prop::sample::select(&PixelFormat::ALL),
        lengths in prop::collection::vec(0usize..200, 0..4),
        strides in prop::collection::vec(prop_oneof![0usize..40, Just(usize::MAX), Just(usize::MAX / 3)], 3),
    ) {
        let data = [0; 200];
        let planes = lengths.iter().zip(strides).map(|(&length, stride)| Plane { data: &data[..length], stride }).collect();
        let frame = Frame { format, width: 7, height: 3, planes };
        let spec = spec(DType::U8, TensorLayout::Nchw, 8, 8, plain(Colors::Rgb, ResizeMode::Letterbox));
        let mut preprocess = HostPreprocessor::new(format, 7, 3, Colorimetry::default(), &spec).unwrap();
        let fits = frame.planes.len() == format.planes(7, 3).len()
            && frame.planes.iter().zip(format.planes(7, 3)).all(|(plane, (row, rows))| {
                plane.stride >= row && plane.data.len() as u128 >= plane.stride as u128 * (rows as u128 - 1) + row as u128
            });
        prop_assert_eq!(preprocess.run(&frame, &mut [0; 192]).is_ok(), fits);
    }
}

#[test]
fn every_format_equals_the_reference_at_awkward_sizes() {
    for format in PixelFormat::ALL {
        for (width, height) in [(1, 1), (7, 3), (2, 1), (1, 2), (8192, 1), (3, 8192), (1920, 1080)] {
            let picture = Picture::noise((format, width, height), 5, 9, 7);
            for (dtype, chroma) in DTYPES.into_iter().flat_map(|dtype| Chroma::ALL.map(|chroma| (dtype, chroma))) {
                let spec =
                    spec(dtype, TensorLayout::Nchw, 64, 48, InputTransform { chroma, ..InputTransform::default() });
                let color = Colorimetry { chroma_left: true, ..Colorimetry::default() };
                let expected = reference::preprocess(&picture.frame(), whole(&picture), color, &spec);
                assert!(run(&picture, color, &spec) == expected, "{} {width}x{height} {dtype}", format.name());
            }
        }
    }
}

#[test]
fn parts_lie_in_the_frame() {
    let spec = spec(DType::U8, TensorLayout::Nchw, 8, 8, plain(Colors::Rgb, ResizeMode::Letterbox));
    let make = |[left, top, right, bottom]: [u32; 4]| {
        let source = Rect { left, top, right, bottom };
        HostPreprocessor::of_region(PixelFormat::Nv12, (7, 3), source, Colorimetry::default(), &spec)
    };
    assert!(make([0, 0, 7, 3]).is_ok() && make([6, 2, 7, 3]).is_ok());
    for wrong in [[0, 0, 8, 3], [0, 0, 7, 4], [7, 0, 7, 3], [3, 0, 2, 3], [0, 2, 7, 1], [0, 0, u32::MAX, 3]] {
        let error = make(wrong).err().unwrap().message();
        assert!(error.contains("7x3") && error.contains("a part of the frame"), "{error}");
    }
}

#[test]
fn great_frames_equal_the_reference() {
    let picture = Picture::noise((PixelFormat::Nv12, 8192, 8192), 64, 9, 7);
    for chroma in Chroma::ALL {
        let spec = spec(DType::F32, TensorLayout::Nchw, 64, 48, InputTransform { chroma, ..InputTransform::default() });
        let expected = reference::preprocess(&picture.frame(), whole(&picture), Colorimetry::default(), &spec);
        assert!(run(&picture, Colorimetry::default(), &spec) == expected, "{}", chroma.word());
    }
}

#[test]
fn greatest_sides_are_sampled_at_both_ends() {
    let side = MAX_SIDE;
    let picture = Picture::new((PixelFormat::Gray8, side, 2), 0, 0, |_, x, _| if x < side / 2 { 10 } else { 250 });
    let full = Colorimetry { full_range: true, ..Colorimetry::default() };
    let row = samples(&picture, full, side, 1, Colors::Gray, ResizeMode::Stretch);
    assert_eq!((row[0], row[side / 2 - 1], row[side / 2], row[side - 1]), (10.0, 10.0, 250.0, 250.0));
}

#[test]
fn solid_colours_pass_each_matrix() {
    use Matrix::*;
    // Codes of 8-bit limited range from the matrices of ITU-R BT.601, BT.709 and BT.2020.
    let table: [(Matrix, bool, [u8; 3], [f32; 3]); 11] = [
        (Bt601, false, [81, 90, 240], [255.0, 0.0, 0.0]),
        (Bt601, false, [145, 54, 34], [0.0, 255.0, 0.0]),
        (Bt601, false, [41, 240, 110], [0.0, 0.0, 255.0]),
        (Bt709, false, [63, 102, 240], [255.0, 0.0, 0.0]),
        (Bt709, false, [173, 42, 26], [0.0, 255.0, 0.0]),
        (Bt709, false, [32, 240, 118], [0.0, 0.0, 255.0]),
        (Bt2020, false, [74, 97, 240], [255.0, 0.0, 0.0]),
        (Bt709, false, [16, 128, 128], [0.0; 3]),
        (Bt709, false, [235, 128, 128], [255.0; 3]),
        (Bt601, true, [76, 85, 255], [255.0, 0.0, 0.0]),
        (Bt601, true, [137, 128, 128], [137.0; 3]),
    ];
    for (matrix, full_range, yuv, rgb) in table {
        for format in [PixelFormat::Nv12, PixelFormat::P010, PixelFormat::I420] {
            if full_range && format == PixelFormat::P010 {
                continue; // its codes reach 1023, not 4 x 255
            }
            let color = Colorimetry { matrix, full_range, ..Colorimetry::default() };
            let picture = Picture::solid((format, 5, 5), &yuv);
            let tensor = samples(&picture, color, 4, 4, Colors::Rgb, ResizeMode::Stretch);
            for (c, plane) in tensor.chunks(16).enumerate() {
                // The codes are rounded to 8 bits: half a step of chroma is about one of blue.
                assert!(plane.iter().all(|s| (s - rgb[c]).abs() <= 1.5), "{matrix:?} {yuv:?}: {c} is {}", plane[0]);
            }
        }
    }
}

#[test]
fn gray_is_luma() {
    let limited = Colorimetry::default();
    let full = Colorimetry { full_range: true, ..limited };
    let size = |format| (format, 4, 4);
    let table: [(PixelFormat, &[u8], Colorimetry, f32); 7] = [
        (PixelFormat::Gray8, &[126], full, 126.0),
        (PixelFormat::Gray8, &[235], limited, 255.0),
        (PixelFormat::Gray8, &[8], limited, 0.0),
        (PixelFormat::Nv12, &[16 + 73, 10, 240], limited, 85.0),
        (PixelFormat::I420, &[77, 10, 240], full, 77.0),
        (PixelFormat::Rgb, &[255, 0, 0], limited, 76.245),
        (PixelFormat::Bgra, &[255, 0, 0, 99], limited, 29.07),
    ];
    for (format, pixel, color, gray) in table {
        let picture = Picture::solid(size(format), pixel);
        let tensor = samples(&picture, color, 2, 2, Colors::Gray, ResizeMode::Stretch);
        assert!(tensor.iter().all(|s| (s - gray).abs() < 1e-4), "{} {pixel:?}: {}", format.name(), tensor[0]);
        if format == PixelFormat::Gray8 {
            assert_eq!(samples(&picture, color, 2, 2, Colors::Rgb, ResizeMode::Stretch), [tensor[0]; 12]);
        }
    }
}

/// Black, white and grey of 10 bits, in both ranges.
#[test]
fn ten_bits_are_exact() {
    let gray = |code: u16, full_range| {
        let bytes = (code << 6).to_le_bytes();
        let picture = Picture::new((PixelFormat::P010, 4, 4), 0, 0, |plane, x, _| match plane {
            0 => bytes[x % 2],
            _ => 128 * (x % 2) as u8,
        });
        let color = Colorimetry { full_range, ..Colorimetry::default() };
        let tensor = samples(&picture, color, 2, 2, Colors::Rgb, ResizeMode::Stretch);
        assert!(tensor.iter().all(|&sample| sample == tensor[0]), "{tensor:?}");
        tensor[0]
    };
    assert_eq!([gray(64, false), gray(940, false), gray(0, true)], [0.0, 255.0, 0.0]);
    assert!((gray(1023, true) - 255.0).abs() < 1e-4, "{}", gray(1023, true));
    assert!((gray(502, false) - 127.5).abs() < 1e-4, "between two codes of 8 bits: {}", gray(502, false));
}

/// A step of chroma between two samples, with luma constant: its position in the picture shows the siting.
#[test]
fn chroma_is_sampled_where_it_sits() {
    let picture = Picture::new((PixelFormat::Nv12, 8, 8), 0, 0, |plane, x, y| match plane {
        0 => 128,
        _ if x % 2 == 0 => 128,
        _ => (60 + 20 * (x / 2) + 8 * y) as u8,
    });
    for (chroma_left, chroma_top) in [(false, false), (true, false), (false, true), (true, true)] {
        let color = Colorimetry { full_range: true, chroma_left, chroma_top, ..Colorimetry::default() };
        let sited = InputTransform { chroma: Chroma::Sited, ..plain(Colors::Rgb, ResizeMode::Stretch) };
        let red: Vec<f32> = elements(&run(&picture, color, &spec(DType::F32, TensorLayout::Nchw, 8, 8, sited)));
        let nearest = samples(&picture, color, 8, 8, Colors::Rgb, ResizeMode::Stretch);
        let along = |i: usize, first: bool| (i as f32 / 2.0 - if first { 0.0 } else { 0.25 }).clamp(0.0, 3.0);
        for (j, i) in (0..8).flat_map(|j| (0..8).map(move |i| (j, i))) {
            let v = 60.0 + 20.0 * along(i, chroma_left) + 8.0 * along(j, chroma_top);
            let expected = 128.0 + (v - 128.0) * 1.402;
            assert!((red[j * 8 + i] - expected).abs() < 1e-3, "{i},{j} {chroma_left} {chroma_top}: {}", red[j * 8 + i]);
            // Unless it is asked for, the site makes no difference.
            let own = 128.0 + ((60 + 20 * (i / 2) + 8 * (j / 2)) as f32 - 128.0) * 1.402;
            assert!((nearest[j * 8 + i] - own).abs() < 1e-3, "{i},{j}: {}", nearest[j * 8 + i]);
        }
    }
}

#[test]
fn padding_surrounds_the_frame() {
    let white = Picture::solid((PixelFormat::Rgb, 4, 2), &[255; 3]);
    let rows = |fit| -> Vec<bool> {
        let tensor = samples(&white, Colorimetry::default(), 4, 4, Colors::Rgb, fit);
        assert!(tensor.iter().all(|&s| s == 255.0 || s == 114.0));
        tensor.chunks(4).map(|row| row == [255.0; 4]).collect()
    };
    assert_eq!(rows(ResizeMode::Letterbox), [false, true, true, false].repeat(3));
    assert_eq!(rows(ResizeMode::LetterboxTopLeft), [true, true, false, false].repeat(3));
    assert_eq!(rows(ResizeMode::Stretch), [true; 12]);

    let tall = Picture::solid((PixelFormat::Gray8, 2, 4), &[255]);
    let nhwc = spec(DType::U8, TensorLayout::Nhwc, 4, 4, plain(Colors::Rgb, ResizeMode::Letterbox));
    let row = [114, 114, 114, 255, 255, 255, 255, 255, 255, 114, 114, 114];
    assert_eq!(run(&tall, Colorimetry::default(), &nhwc), row.repeat(4));
}

#[test]
fn elements_are_normalised_and_rounded() {
    let picture = Picture::solid((PixelFormat::Rgb, 2, 2), &[10, 20, 200]);
    let transform =
        InputTransform { mean: [1.0, 2.0, 3.0], std: [2.0, 4.0, 0.5], ..plain(Colors::Bgr, ResizeMode::Stretch) };
    // (200 − 1) / 2, (20 − 2) / 4, (10 − 3) / 0.5
    let nhwc = |dtype| run(&picture, Colorimetry::default(), &spec(dtype, TensorLayout::Nhwc, 1, 1, transform));
    assert_eq!(elements::<f32>(&nhwc(DType::F32)), [99.5, 4.5, 14.0]);
    assert_eq!(elements::<f16>(&nhwc(DType::F16)), [99.5, 4.5, 14.0].map(f16::from_f32));
    assert_eq!(nhwc(DType::U8), [100, 4, 14]);
    let transform = InputTransform { mean: [20.0; 3], std: [0.5; 3], ..transform };
    assert_eq!(
        run(&picture, Colorimetry::default(), &spec(DType::U8, TensorLayout::Nhwc, 1, 1, transform)),
        [255, 0, 0]
    );
}

#[test]
fn the_middle_of_the_resized_frame_is_kept() {
    // Columns of four pixels, of which two become one; the middle two of four.
    let picture = Picture::new((PixelFormat::Gray8, 8, 4), 0, 0, |_, x, _| [10, 10, 50, 50, 90, 90, 200, 200][x]);
    let full = Colorimetry { full_range: true, ..Colorimetry::default() };
    let row = &samples(&picture, full, 2, 2, Colors::Gray, ResizeMode::CenterCrop)[..2];
    // Triangles of two pixels on each side: 1/8, 3/8, 3/8, 1/8.
    let wanted: [f32; 2] = [(10.0 + 6.0 * 50.0 + 90.0) / 8.0, (50.0 + 6.0 * 90.0 + 200.0) / 8.0];
    assert!(row.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-4), "{row:?}");
    let transform = InputTransform { shortest_edge: 4, ..plain(Colors::Gray, ResizeMode::CenterCrop) };
    let unscaled = run(&picture, full, &spec(DType::U8, TensorLayout::Nchw, 2, 1, transform));
    assert_eq!(unscaled, [50, 90]);
    let transform = InputTransform { shortest_edge: 3, ..transform };
    let error =
        HostPreprocessor::new(PixelFormat::Gray8, 8, 4, full, &spec(DType::U8, TensorLayout::Nchw, 2, 4, transform));
    let error = error.err().unwrap().message();
    assert!(error.contains("shortest-edge=3 makes it 6x3"), "{error}");
}

#[test]
fn impossible_inputs_are_refused() {
    let good = || spec(DType::F32, TensorLayout::Nchw, 8, 8, InputTransform::default());
    let build = |width, height, spec: &InputSpec| {
        HostPreprocessor::new(PixelFormat::Nv12, width, height, Colorimetry::default(), spec).err()
    };
    assert_eq!(build(8, 8, &good()), None);
    for (width, height) in [(0, 8), (8, 0), (MAX_SIDE + 1, 8), (8, usize::MAX)] {
        assert!(build(width, height, &good()).is_some(), "{width}x{height}");
    }
    let with = |change: &dyn Fn(&mut InputSpec)| {
        let mut spec = good();
        change(&mut spec);
        spec
    };
    let dims = |dims: &'static [i64]| with(&move |spec| spec.desc.dims = crate::tensor::Dims::new(dims));
    let table = [
        (dims(&[3, 8, 8]), "dimensions are not one image"),
        (dims(&[]), "dimensions are not one image"),
        (dims(&[2, 3, 8, 8]), "dimensions are not one image"),
        (dims(&[-1, 3, 8, 8]), "dimensions are not one image"),
        (dims(&[1, 4, 8, 8]), "rgb has 3 channels, the tensor 4"),
        (dims(&[1, 8, 8, 3]), "rgb has 3 channels, the tensor 8"),
        (dims(&[1, 3, -1, 8]), "8x0 pixels"),
        (dims(&[1, 3, 8, 0]), "0x8 pixels"),
        (dims(&[1, 3, 8, i64::MAX]), "x8 pixels"),
        (with(&|spec| spec.transform.colors = Colors::Gray), "gray has 1 channels, the tensor 3"),
        (with(&|spec| spec.desc.dtype = DType::I8), "elements are i8"),
        (with(&|spec| spec.desc.dtype = DType::I64), "elements are i64"),
        (with(&|spec| spec.transform.std[1] = 0.0), "no finite numbers"),
        (with(&|spec| spec.transform.mean[2] = f32::NAN), "no finite numbers"),
        (with(&|spec| spec.transform.scale = f32::INFINITY), "no finite numbers"),
    ];
    for (spec, rule) in table {
        let error = build(8, 8, &spec).unwrap_or_else(|| panic!("accepted: {rule}"));
        assert_eq!(error.kind(), ErrorKind::Negotiation);
        assert!(error.message().contains(rule), "“{}” does not say “{rule}”", error.message());
    }
}

#[test]
fn other_frames_and_tensors_are_refused() {
    let spec = spec(DType::F32, TensorLayout::Nchw, 8, 8, InputTransform::default());
    let mut preprocess = HostPreprocessor::new(PixelFormat::Nv12, 7, 3, Colorimetry::default(), &spec).unwrap();
    let mut tensor = vec![0; 768];
    let picture = Picture::noise((PixelFormat::Nv12, 7, 3), 0, 0, 1);
    assert!(preprocess.run(&picture.frame(), &mut tensor[1..]).is_err(), "a short tensor");
    assert!(preprocess.run(&picture.frame(), &mut vec![0; 769]).is_err(), "a long tensor");
    for shape in [(PixelFormat::I420, 7, 3), (PixelFormat::Nv12, 8, 3), (PixelFormat::Nv12, 7, 4)] {
        assert!(preprocess.run(&Picture::noise(shape, 0, 0, 1).frame(), &mut tensor).is_err(), "{shape:?}");
    }
    // An odd address is none of the tensor's business.
    let mut shifted = vec![0; 769];
    preprocess.run(&picture.frame(), &mut shifted[1..]).unwrap();
    preprocess.run(&picture.frame(), &mut tensor).unwrap();
    assert_eq!(tensor, shifted[1..]);
}
