// SPDX-License-Identifier: MPL-2.0
//! Faces and boxes to tensors, turned and scaled, on the host.
//!
//! # Arithmetic
//! That of [`host`](super::host), but for the position. It is `f32` too, each operation rounded by itself, in this order, so that a
//! kernel that does the same is equal in every bit. For the element at column `i`, row `j` of the tensor, per axis, with `F` pixels
//! of the frame along it:
//!
//! 1. **Place** in the frame: [`Alignment::at`]. Where it is below −0.5, or not below `F − 0.5`, the element is padding, as beyond the
//!    extent of what is shown. Otherwise it is clamped to `0..F − 1`.
//! 2. **Position** in a plane of `N` samples along the axis. For full planes `p` is the place; for chroma on the first of two luma
//!    samples `place·0.5`, and between both `max((place − 0.5)·0.5, 0)`. Then `near = ⌊p⌋`, `far = min(near + 1, N − 1)` and
//!    `weight = p − near`. Chroma of `Chroma::Nearest` has those of full planes, with `near / 2` and `far / 2`.
//!
//! There is no antialiasing, as models of faces are trained and run by `warpAffine` of OpenCV, and readers of text by `warpPerspective`.

use smallvec::SmallVec;

use super::host::HostPreprocessor;
use super::sampler::{SampledPlane, Siting, lerp};
use crate::error::Result;
use crate::image::align::Alignment;
use crate::image::frame::{Colorimetry, Frame, PixelFormat, Plane};
use crate::image::geometry::ResizeMode;
use crate::image::transform::{InputSpec, InputTransform};

/// Turns faces and boxes in frames of one format and size into one kind of tensor.
pub struct HostAligner {
    /// What makes elements of samples. The tensor is covered, and so has no padding of its own.
    pub(super) base: HostPreprocessor,
    /// Those that are read, in the order of their channels.
    pub(super) planes: SmallVec<[SampledPlane; 3]>,
    /// Of a row of the tensor: where its elements are in the frame, if they are.
    places: Vec<Option<[f32; 2]>>,
    pad: f32,
}

/// Two samples of an axis, and how much the far one counts.
#[derive(Clone, Copy)]
struct AxisPair {
    near: usize,
    far: usize,
    weight: f32,
}

impl HostAligner {
    /// For frames of `size`, width and height, and tensors of `spec`, whose resizing does not matter. `color` matters to YUV and gray
    /// formats.
    ///
    /// # Errors
    /// As [`HostPreprocessor::new`].
    pub fn new(format: PixelFormat, size: (usize, usize), color: Colorimetry, spec: &InputSpec) -> Result<Self> {
        let transform = InputTransform { fit: ResizeMode::Stretch, ..spec.transform };
        let base = HostPreprocessor::new(format, size.0, size.1, color, &InputSpec { transform, ..spec.clone() })?;
        Ok(HostAligner {
            places: vec![None; base.letterbox.tensor_width as usize],
            planes: SampledPlane::all(format, size, color, &transform),
            pad: transform.pad.into(),
            base,
        })
    }

    /// Writes every element of `tensor`, with the part of the frame that is there.
    ///
    /// # Errors
    /// As [`HostPreprocessor::run`].
    pub fn run(&mut self, frame: &Frame, there: &Alignment, tensor: &mut [u8]) -> Result<()> {
        self.base.check(frame, tensor)?;
        for row in 0..self.base.letterbox.tensor_height as usize {
            self.sample(frame, there, row);
            self.base.write_colors(row, tensor);
        }
        Ok(())
    }

    /// The colours of a row of the tensor.
    fn sample(&mut self, frame: &Frame, there: &Alignment, row: usize) {
        let HostAligner { base, planes, places, pad } = self;
        let width = places.len();
        let [columns, rows] = there.extent.map(|shown| shown as usize);
        for (column, place) in places.iter_mut().enumerate() {
            let is_shown = column < columns && row < rows;
            *place = is_shown.then(|| inside(there.at(column as f32, row as f32), base.size)).flatten();
        }
        let mut samples = &mut base.samples[..];
        for plane in planes.iter() {
            let (lines, rest) = samples.split_at_mut(plane.offsets.len() * width);
            sample_plane(plane, &frame.planes[plane.plane], base.size, places, lines);
            samples = rest;
        }
        base.convert.apply(&mut base.samples, width);
        for line in base.samples.chunks_exact_mut(width) {
            let outside = line.iter_mut().zip(places.iter()).filter(|(_, place)| place.is_none());
            outside.for_each(|(sample, _)| *sample = *pad);
        }
    }
}

/// A place in a frame of that size, no further than the middles of its outermost pixels; `None` where it is outside.
#[inline(always)]
fn inside([x, y]: [f32; 2], (width, height): (usize, usize)) -> Option<[f32; 2]> {
    let along = |at: f32, side: usize| {
        let side = side as f32;
        (-0.5..side - 0.5).contains(&at).then(|| at.clamp(0.0, side - 1.0))
    };
    Some([along(x, width)?, along(y, height)?])
}

/// The samples of a plane of those places, one line per channel.
fn sample_plane(
    layout: &SampledPlane,
    plane: &Plane,
    (width, height): (usize, usize),
    places: &[Option<[f32; 2]>],
    lines: &mut [f32],
) {
    let &SampledPlane { row_bytes, rows, pixel, sample, sitings: [across, down], .. } = layout;
    for (column, place) in places.iter().enumerate() {
        let &Some([x, y]) = place else { continue };
        let x = AxisPair::new(x, width, row_bytes / pixel, across);
        let y = AxisPair::new(y, height, rows, down);
        let row = |y: usize| &plane.data[y * plane.stride..][..row_bytes];
        let (above, below) = (row(y.near), row(y.far));
        for (line, &offset) in lines.chunks_exact_mut(places.len()).zip(&layout.offsets) {
            let value = |row: &[u8], x: usize| match &row[x * pixel + offset * sample..] {
                [low, high, ..] if sample == 2 => f32::from(u16::from_le_bytes([*low, *high])) * (1.0 / 256.0),
                bytes => f32::from(bytes[0]),
            };
            let along = |row: &[u8]| lerp(value(row, x.near), value(row, x.far), x.weight);
            line[column] = lerp(along(above), along(below), y.weight);
        }
    }
}

impl AxisPair {
    /// Of a place in a frame with so many pixels along the axis.
    #[inline(always)]
    fn new(place: f32, pixels: usize, samples: usize, siting: Siting) -> Self {
        let between = |at: f32, samples: usize| {
            let near = at as usize;
            AxisPair { near, far: (near + 1).min(samples - 1), weight: at - near as f32 }
        };
        match siting {
            Siting::Between(1, _) => between(place, samples),
            Siting::Between(_, 1) => between(place * 0.5, samples),
            Siting::Between(..) => between(((place - 0.5) * 0.5).max(0.0), samples),
            Siting::InCommon => {
                let AxisPair { near, far, weight } = between(place, pixels);
                AxisPair { near: near / 2, far: far / 2, weight }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::transform::Chroma;

    /// The whole tensor shows the frame.
    const ALL: [u32; 2] = [u32::MAX; 2];

    /// The planes of a frame, of bytes that differ from their neighbours.
    fn planes(format: PixelFormat, (width, height): (usize, usize)) -> Vec<(usize, Vec<u8>)> {
        let planes = format.planes(width, height).into_iter();
        planes.map(|(row, rows)| (row, (0..row * rows).map(|i| (i * i * 7 % 251) as u8).collect())).collect()
    }

    fn frame(format: PixelFormat, (width, height): (usize, usize), planes: &[(usize, Vec<u8>)]) -> Frame<'_> {
        let planes = planes.iter().map(|(stride, data)| Plane { data, stride: *stride }).collect();
        Frame { format, width, height, planes }
    }

    fn tensor(format: PixelFormat, size: (usize, usize), spec: &InputSpec, there: Alignment) -> Vec<u8> {
        let planes = planes(format, size);
        let mut tensor = vec![0xa5; spec.desc.bytes().unwrap()];
        let mut aligner = HostAligner::new(format, size, Colorimetry::default(), spec).unwrap();
        aligner.run(&frame(format, size, &planes), &there, &mut tensor).unwrap();
        tensor
    }

    /// What is not turned, scaled or moved is what the frame's own tensor is.
    #[test]
    fn a_frame_as_it_lies_is_its_own_tensor() {
        let there = Alignment { across: [1.0, 0.0], below: [0.0, 1.0], origin: [0.0, 0.0], extent: ALL };
        for (format, size) in PixelFormat::ALL.into_iter().flat_map(|format| [(format, (7, 5)), (format, (8, 6))]) {
            let (width, height) = size;
            for kind in [
                format!("f32 1x3x{height}x{width} nchw"),
                format!("f16 1x{height}x{width}x3 nhwc"),
                format!("u8 1x3x{height}x{width} nchw"),
            ] {
                for chroma in Chroma::ALL {
                    let mut spec: InputSpec = format!("cpu {kind} bgr stretch:0 scale:0.5 images").parse().unwrap();
                    spec.transform.chroma = chroma;
                    let planes = planes(format, size);
                    let mut wanted = vec![0; spec.desc.bytes().unwrap()];
                    let whole = HostPreprocessor::new(format, width, height, Colorimetry::default(), &spec);
                    whole.unwrap().run(&frame(format, size, &planes), &mut wanted).unwrap();
                    assert!(tensor(format, size, &spec, there) == wanted, "{} {size:?} {spec}", format.name());
                }
            }
        }
    }

    #[test]
    fn what_is_turned_reads_columns_as_rows_and_pads_what_is_outside() {
        let (format, size) = (PixelFormat::Rgb, (4, 3));
        let spec: InputSpec = "cpu u8 1x1x3x3 nchw gray letterbox:9 scale:1 images".parse().unwrap();
        let gray = |x: usize, y: usize| {
            let planes = planes(format, size);
            let [r, g, b] = [0, 1, 2].map(|i| f32::from(planes[0].1[(y * 4 + x) * 3 + i]));
            ((r * 0.299 + g * 0.587) + b * 0.114).round_ties_even() as u8
        };
        // The tensor's columns go down the frame, its rows to the left.
        let quarter = Alignment { across: [0.0, 1.0], below: [-1.0, 0.0], origin: [3.0, 1.0], extent: ALL };
        let wanted: Vec<u8> = [3, 2, 1].iter().flat_map(|&x| [gray(x, 1), gray(x, 2), 9]).collect();
        assert_eq!(tensor(format, size, &spec, quarter), wanted);
        // Of which two columns and two rows show something.
        let part = Alignment { extent: [2, 2], ..quarter };
        let wanted = [[gray(3, 1), gray(3, 2), 9], [gray(2, 1), gray(2, 2), 9], [9; 3]].concat();
        assert_eq!(tensor(format, size, &spec, part), wanted);
        // Every second pixel of a row, and each row.
        let squeezed = Alignment { across: [2.0, 0.0], below: [0.0, 1.0], origin: [0.0, 0.0], extent: ALL };
        let wanted: Vec<u8> = [0, 1, 2].iter().flat_map(|&y| [gray(0, y), gray(2, y), 9]).collect();
        assert_eq!(tensor(format, size, &spec, squeezed), wanted);
        let outside = Alignment { across: [1.0, 0.0], below: [0.0, 1.0], origin: [4.0, 0.0], extent: ALL };
        assert_eq!(tensor(format, size, &spec, outside), [9; 9]);
        // Nothing of it is a number; no element is left out.
        let [across, below] = [[f32::INFINITY, f32::NAN], [f32::NAN, f32::INFINITY]];
        let endless = Alignment { across, below, origin: [0.0, 0.0], extent: ALL };
        assert_eq!(tensor(format, size, &spec, endless), [9; 9]);
    }

    #[test]
    fn between_pixels_samples_are_interpolated() {
        let (format, size) = (PixelFormat::Gray8, (3, 2));
        let mut spec: InputSpec = "cpu f32 1x1x1x2 nchw gray stretch:0 scale:1 images".parse().unwrap();
        spec.transform.pad = 7;
        let color = Colorimetry { full_range: true, ..Colorimetry::default() };
        let mut aligner = HostAligner::new(format, size, color, &spec).unwrap();
        let planes = [(3, vec![0, 100, 200, 40, 140, 240])];
        let mut bytes = vec![0; 8];
        let mut run = |across, origin| -> Vec<f32> {
            let there = Alignment { across, below: [0.0; 2], origin, extent: ALL };
            aligner.run(&frame(format, size, &planes), &there, &mut bytes).unwrap();
            bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
        };
        assert_eq!(run([1.0, 0.0], [0.5, 0.5]), [70.0, 170.0]);
        assert_eq!(run([0.5, 0.5], [0.0, 0.0]), [0.0, 70.0]);
        // Up to the edges of the outermost pixels, and beyond them.
        assert_eq!(run([2.75, 0.0], [-0.25, 1.25]), [40.0, 7.0]);
        assert_eq!(run([2.5, 0.0], [-0.25, -0.5]), [0.0, 200.0]);
    }
}
