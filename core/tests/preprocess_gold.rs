// SPDX-License-Identifier: MPL-2.0
//! Resampling and reading of chroma against OpenCV's and Pillow's: tests/gold/letterbox.py and center_crop.py made the
//! files.

use std::path::Path;

use gsttrt_core::device::Device;
use gsttrt_core::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use gsttrt_core::image::geometry::ResizeMode;
use gsttrt_core::image::preprocess::HostPreprocessor;
use gsttrt_core::image::transform::{InputSpec, InputTransform, TensorLayout};
use gsttrt_core::tensor::{DType, TensorDesc};

#[test]
fn tensors_are_those_of_opencv() {
    // OpenCV rounds samples to bytes, with weights of 11 bits; those of YUV also before it resizes.
    compare("letterbox", 1.0, 1.5);
}

/// What torchvision's `Resize` and `CenterCrop` make of a PIL image.
#[test]
fn middles_are_those_of_pillow() {
    // Pillow rounds samples to bytes after each of its two passes; the frames in YUV were rounded before it resizes.
    compare("center-crop", 1.0, 1.5);
}

/// Differences may be so great, of 255, for frames in RGB and in YUV.
fn compare(folder: &str, of_rgb: f32, of_yuv: f32) {
    let folder = Path::new(&crate::common::path("tests/gold")).join(folder);
    let index = std::fs::read_to_string(folder.join("index.txt")).unwrap();
    for case in index.lines() {
        let words: Vec<&str> = case.split(' ').collect();
        let format = PixelFormat::ALL.into_iter().find(|format| format.name() == words[1]).unwrap();
        let fit = ResizeMode::ALL.into_iter().find(|fit| fit.name() == words[2]).unwrap();
        let sizes: Vec<usize> = words[3..].iter().map(|word| word.parse().unwrap()).collect();
        let &[frame_width, frame_height, width, height, ref edge @ ..] = &sizes[..] else { panic!("{case}") };
        let shortest_edge = edge.first().map_or(0, |&edge| edge as u32);
        let data = std::fs::read(folder.join(words[0]).with_extension("frame")).unwrap();
        let gold = std::fs::read(folder.join(words[0]).with_extension("tensor")).unwrap();

        let spec = InputSpec {
            device: Device::Host,
            desc: TensorDesc::new("images", DType::F32, &[1, height as i64, width as i64, 3]),
            order: TensorLayout::Nhwc,
            transform: InputTransform { fit, shortest_edge, ..InputTransform::default() },
            widest: 0,
        };
        let mut rest = &data[..];
        let planes = format.planes(frame_width, frame_height).into_iter().map(|(stride, rows)| {
            let (data, behind) = rest.split_at(stride * rows);
            rest = behind;
            Plane { data, stride }
        });
        let frame = Frame { format, width: frame_width, height: frame_height, planes: planes.collect() };
        let mut preprocess =
            HostPreprocessor::new(frame.format, frame_width, frame_height, Colorimetry::default(), &spec).unwrap();
        let mut tensor = vec![0.0f32; gold.len()];
        preprocess.run(&frame, bytemuck::cast_slice_mut(&mut tensor)).unwrap();

        let allowed = if format == PixelFormat::Rgb { of_rgb } else { of_yuv };
        let difference = tensor.iter().zip(&gold).map(|(ours, &gold)| (ours * 255.0 - f32::from(gold)).abs());
        let greatest = difference.fold(0.0, f32::max);
        println!("{case}: differs by {greatest:.3} of 255 at most");
        assert!(greatest <= allowed, "{case}: {greatest}");
    }
}
